"""What is unusual in a text: characters, repeated lines, the compression that a model should beat; and what is advised. A piece
of advice is a row: what finds something in a text, and its words. What it needs is measured in `facts.py`."""

import functools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from chargpt.errors import Message, Option, Words, join
from chargpt.formatting import one_line, plural
from chargpt.notices import Kind, Notice
from chargpt.text.advice import Advice, advice_on
from chargpt.text.corpus import Corpus
from chargpt.text.facts import NGRAM_MODEL, TRAIN_SAMPLE, sample
from chargpt.text.remains import TOLD
from chargpt.text.tokenizer import character_name

MAX_OVERLAP = 0.2  # of the validation split; code and reference texts repeat up to a tenth of their lines
FORMS_MATTER = 1e-4  # share of the text that is written in the rarer of two forms, above which everybody is told
# What looks the same: quotes; letters of Romanian, Persian, Azerbaijani, Vietnamese; marks below one. The usual one is first.
SAME = ('"“”״', "'‘’ʼʻ׳", "-‐", "șş", "țţ", "ȘŞ", "ȚŢ", "یي", "کك", "əǝ", "ĐÐƉ", "\u0323\u0329", "\u0331\u0320")
PLAIN = {one: group[0] for group in SAME for one in group[1:]}
# Scripts with letters which look the same, as names of these begin; and letters of units and formulas, which begin or end them.
SCRIPTS, UNITS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "COPTIC", "CHEROKEE"), "ΔΩλμπ"
WORD = re.compile(r"(?:[^\W\d_][\u0300-\u036f]*)+")
LOOKS_DIFFERENT = ("<super>", "<sub>", "<circle>", "<square>", "<fraction>", "<font>")  # from what NFKC makes of it
ODD_CATEGORIES = {"Cc": "control", "Cf": "invisible", "Co": "private use", "Cn": "unassigned", "Cs": "surrogate"}
MAX_NAMED = 3  # odd characters of a kind
# Line ends and tabs, and invisible characters that emoji, Arabic, Indic, Khmer and Mongolian letters and flags need.
# REMAINS has more to say of the character that may divide a word.
LAYOUT, NEEDED = re.compile("[\t\n\r\u00ad]"), re.compile("[\t\n\r\u00ad\u200c-\u200f\U000e0020-\U000e007f]")
NEEDED_BY = re.compile("[\u0590-\u109f\u1780-\u18af\u2194-\u27bf\u2934-\u2b55\U0001f000-\U0001faff]")


# Why the loss on the validation split does not say how well a model predicts new text of this kind, and what to do.
SPLIT = (
    Advice(
        lambda it: it.is_validated and it.facts.is_sorted,
        "the lines are in alphabetical order, so those of the validation split begin with other letters, and their loss "
        "says little; add ",
        *("data.shuffle", "lines", ", which shuffles the lines before the split"),
    ),
    Advice(
        lambda it: it.is_validated and it.ends_in_validation and not it.facts.is_sorted and it.facts.other_kind,
        "the validation split is {n} than the rest of the text (the loss of an n-gram model is {it.facts.own_loss:.2f} there, "
        "and {it.facts.spread_loss:.2f} elsewhere); for a validation split from all parts of the text, add ",
        *("data.split", "blocks"),
    ),
)
# A note on what many lines of both splits mean for the validation loss, for repeats are no fault of a text.
REPEATS = Advice(
    lambda it: it.is_validated and it.facts.shared > MAX_OVERLAP,
    "{it.facts.shared:.0%} of the validation text is lines that the training text has too, so a low loss is partly memory",
)
DIVIDER = Advice(
    lambda it: it.items is None and it.facts.divider,
    "the line {n} returns again and again; if it is between documents (or items), add ",
    *("data.field", "{n}", " (data.items for items)"),
)
# A label teaches what its items have in common.
ONCE = Advice(
    lambda it: _once(it), "{n}, so the model cannot learn what they mean; name a field with fewer labels in data.label"
)
# What is rarely intended: the model spends effort on it, and it often comes from an earlier mistake.
ODD = (
    Advice(lambda it: ", ".join(_odd_categories(it)), "{n}"),
    Advice(lambda it: _counts(it).get("\ufffd"), "{n:,} lost character{s}, now \ufffd (U+FFFD; use the original file)"),
    Advice(lambda it: ", ".join(_remains(it)), "{n}"),
    Advice(lambda it: _counts(it).get("\r"), "{n:,} line ends with \\r (", "data.newlines", "fold", " changes them to \\n)"),
)


def examine(corpus: Corpus) -> list[Notice]:
    """Notices on the text: its characters, repeated lines, the bits per character to beat, and warnings."""
    warnings = [*corpus.warnings, *advice_on(corpus, (*SPLIT, ONCE))]
    found = [*_characters(corpus), *(Notice(Kind.NOTE, words) for words in advice_on(corpus, [DIVIDER]))]
    found += [Notice(Kind.WARNING, words) for words in warnings]
    if not corpus.is_validated:
        return found
    facts = corpus.facts
    estimate = f" (estimated from {facts.sampled:,} characters)" if facts.sampled < corpus.characters else ""
    copies = f"{facts.shared:.1%} of the validation text is lines that the training text has too"
    unit = "byte" if corpus.tokenizer.characters is None else "character"
    ngram = f"that of {NGRAM_MODEL} that looks {facts.ngram_order} {unit}s back{estimate}"
    bits = f"{facts.ngram_loss / math.log(2):z.2f} bits per {unit}"
    others = f"for comparison, gzip needs {facts.gzip_bits:z.2f} bits and xz {facts.xz_bits:z.2f}"
    return [
        *found,
        Notice(Kind.REPEATS, f"{facts.repeated:.1%} of the training text is repeated lines; {copies}{estimate}", "detail"),
        *(Notice(Kind.NOTE, words) for words in advice_on(corpus, [REPEATS])),
        Notice(Kind.TO_BEAT, f"a loss of {facts.ngram_loss:z.2f} ({bits}), {ngram}; {others}", "detail"),
    ]


def _once(corpus: Corpus) -> str:
    counts = corpus.items.labels if corpus.items else {}
    once = [label for label, count in counts.items() if count == 1]
    return f"{len(once):,} of {len(counts):,} labels occur once, such as {one_line(once[0])}" if once else ""


def _counts(corpus: Corpus) -> dict[str, int]:
    """How often each character occurs that does, but for those that the program has put between items and labels."""
    marks = [] if corpus.marks is None else [mark for mark in (corpus.marks.end, corpus.marks.tab) if mark is not None]
    own = corpus.tokenizer.decode(marks)
    counts = zip(corpus.tokenizer.characters or "", corpus.counts.tolist())
    return {character: count for character, count in counts if count and character not in own}


def _characters(corpus: Corpus) -> list[Notice]:
    """The rarest character; those that are rarely intended, on which a model spends effort; and those that look the same."""
    if corpus.tokenizer.characters is None:
        rarest = f"{np.count_nonzero(corpus.counts == 0)} of 256 byte values do not occur"
        unsearched = "no search for odd characters, since the model reads bytes"
        return [Notice(Kind.RAREST, rarest, "detail"), Notice(Kind.ODD, unsearched, "detail")]
    counts, odd = _counts(corpus), [*advice_on(corpus, ODD)]
    rarest = min(counts, key=counts.__getitem__)
    times = "once" if counts[rarest] == 1 else f"{counts[rarest]:,} times"
    return [
        Notice(Kind.RAREST, f"{character_name(rarest)}, {times}", "detail"),
        Notice(Kind.ODD, join(", ", odd or ["no odd characters"]), "line" if odd else "detail"),
        *_alike(corpus, counts),
    ]


def _odd_categories(corpus: Corpus) -> Iterator[str]:
    """What is said of the characters of each of ODD_CATEGORIES."""
    needed = NEEDED if NEEDED_BY.search(corpus.tokenizer.characters or "") else LAYOUT
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for character, count in _counts(corpus).items():
        if (kind := ODD_CATEGORIES.get(unicodedata.category(character))) and not needed.match(character):
            kinds[kind][character] = count
    for kind, counts in kinds.items():
        names = ", ".join(f"U+{ord(c):04X} {unicodedata.name(c, '')}".strip() for c, _ in counts.most_common(MAX_NAMED))
        yield f"{plural(counts.total(), f'{kind} character')} ({names}{', others' * (len(counts) > MAX_NAMED)})"


def _remains(corpus: Corpus) -> Iterator[str]:
    """What is said of remains of other formats."""
    found = {} if corpus.warnings else corpus.facts.remains  # a warning says what to do with a file of another format
    for one, (count, line, words) in ((one, found[one.name]) for one in TOLD if one.name in found):
        where = f"in line {line:,}: " * (corpus.items is None and corpus.facts.sampled == corpus.characters)
        yield f"{count:,} {one.name} ({one.meant}; text FILE --clean NEW turns them back; the first {where}“{words}”)"


# What makes one spelling of two that look the same, which for a model are as different as any two characters.
MENDS: tuple[tuple[Callable[[str], str], Words], ...] = (
    (functools.partial(unicodedata.normalize, "NFC"), Message(Option("data.normalize", "NFC"), " makes them one")),
    (functools.partial(unicodedata.normalize, "NFKC"), Message(Option("data.normalize", "NFKC"), " makes them one")),
    (lambda spelling: PLAIN.get(spelling, spelling), "write them in one way in the text"),
)


def _alike(corpus: Corpus, counts: dict[str, int]) -> Iterator[Notice]:
    """A notice on characters that look the same, if there are any; if it does not list all, one for the details follows."""
    text = "".join(corpus.tokenizer.decode(sample(ids, TRAIN_SAMPLE)) for ids in (corpus.train, corpus.val))
    found, rarer = _pairs(counts, _composed(text))
    foreign, example = _foreign_letters(text, counts)
    shown = [f"{_code_points(one)} ({count:,})" for one, count in foreign.most_common()]
    found += [(shown, f"of another script than the rest of their word, such as {example}")] * bool(foreign)
    rarer += foreign.total()
    for most in dict.fromkeys((MAX_NAMED, max(MAX_NAMED, *(len(shown) for shown, _ in found)))) if found else ():
        said = [Message(f"{', '.join(shown[:most] + ['...'] * (len(shown) > most))} (", way, ")") for shown, way in found]
        is_told = most == MAX_NAMED and rarer > FORMS_MATTER * corpus.characters
        words = Message("characters that look the same, with their counts: ", join("; ", said))
        yield Notice(Kind.ALIKE, words, "line" if is_told else "detail")


def _pairs(known: dict[str, int], composed: dict[str, int]) -> tuple[list[tuple[list[str], Words]], int]:
    """For each of MENDS that finds some, the pairs of spellings that look the same; and how often the rarer ones occur."""
    counts, found, rarer = Counter(known), list[tuple[list[str], Words]](), 0
    for one, count in known.items():  # a mark below may be a part of a letter
        counts.update({mark: count for mark in unicodedata.normalize("NFD", one)[1:] if mark in PLAIN.values()})
    left = dict.fromkeys(PLAIN, 0) | counts | composed
    for mend, advice in MENDS:
        pairs = {one: mend(one)[0] for one, count in left.items() if count and _looks_like(mend(one), one, counts)}
        shown = [f"{_code_points(one)} ({left[one]:,}) and {_code_points(to)} ({counts[to]:,})" for one, to in pairs.items()]
        found += [(shown, advice)] * bool(pairs)
        rarer += sum(min(left.pop(one), counts[to]) for one, to in pairs.items())
    return found, rarer


def _foreign_letters(text: str, counts: Mapping[str, int]) -> tuple[Counter[str], str]:
    """How often each letter occurs in a word that is mostly of another of SCRIPTS; and one of these words."""
    names = {one: unicodedata.name(one, "").partition(" ")[0] for one in counts if one.isalpha()}
    scripts = {one: name for one, name in names.items() if name in SCRIPTS}
    found, example = Counter[str](), ""
    for word in WORD.findall(text) if len({*scripts.values()}) > 1 else ():
        of_word = Counter(scripts[one] for one in word if one in scripts)
        if len(of_word) > 1 and len({scripts.get(one) for one in word.strip(UNITS)} - {None}) > 1:
            usual, example = of_word.most_common(1)[0][0], example or word
            found.update(one for one in word if scripts.get(one, usual) != usual)
    return found, example


def _looks_like(other: str, spelling: str, counts: Mapping[str, int]) -> bool:
    """Whether another character, or letters, of the text look like a spelling."""
    is_there = set(other) <= counts.keys() and (len(other) == 1 or other.isalpha())
    return is_there and other != spelling and not unicodedata.decomposition(spelling[0]).startswith(LOOKS_DIFFERENT)


def _composed(text: str) -> dict[str, int]:
    """How often each sequence of characters occurs that could be one character."""
    if unicodedata.is_normalized("NFC", text):
        return {}
    apart = "".join(unicodedata.normalize("NFC", character) for character in text)
    composed = Counter(unicodedata.normalize("NFC", apart)) - Counter(apart)
    return {unicodedata.normalize("NFD", one): count for one, count in composed.items()}


def _code_points(spelling: str) -> str:
    """A character, if it can be shown, and the numbers of its code points."""
    shown = f"{spelling} " if len(spelling) == 1 and spelling.isprintable() and spelling != " " else ""
    return shown + " ".join(f"U+{ord(character):04X}" for character in spelling)
