"""The text report: unusual characters, repeated lines, the compression that a model should beat, and advice.

A piece of advice is a row: when it holds, and its words. What it needs is measured in `facts.py`.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from chargpt.errors import Message, Option, Words, join
from chargpt.terminal import Notice, one_line, plural
from chargpt.text.corpus import Corpus
from chargpt.text.facts import NGRAM_MODEL, TRAIN_SAMPLE, sample
from chargpt.text.items import TAB, end_in
from chargpt.text.tokenizer import character_name

MAX_OVERLAP = 0.2  # of the validation split; code and reference texts repeat up to a tenth of their lines
FORMS_MATTER = 1e-4  # share of the text that is written in the rarer of two forms, above which everybody is told
LOOKS_DIFFERENT = ("<super>", "<sub>", "<circle>", "<square>", "<fraction>", "<font>")  # from what NFKC makes of it
ODD = {"Cc": "control", "Cf": "invisible", "Co": "private use", "Cn": "unassigned", "Cs": "surrogate"}
MAX_NAMED = 3  # odd characters of a kind
# Line ends and tabs, and invisible characters that emoji, Arabic, Indic, Khmer and Mongolian letters and flags need.
LAYOUT, NEEDED = re.compile("[\t\n\r]"), re.compile("[\t\n\r\u200c-\u200f\U000e0020-\U000e007f]")
NEEDED_BY = re.compile("[\u0590-\u109f\u1780-\u18af\u2194-\u27bf\u2934-\u2b55\U0001f000-\U0001faff]")


def examine(corpus: Corpus) -> list[Notice]:
    """Notices on the text: its characters, repeated lines, the bits per character to beat, and warnings."""
    found = [Notice("rarest", _rarest(corpus), "detail"), _odd(corpus), *_forms(corpus)]
    labels = [advice.words(corpus) for advice in LABELS if advice.holds(corpus)]
    found += [Notice("warning", words) for words in [*corpus.warnings, *split_problems(corpus), *labels]]
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
        Notice("repeats", f"{facts.repeated:.1%} of the training text is repeated lines; {copies}{estimate}", "detail"),
        *(Notice("note", note) for note in about_repeats(corpus)),
        Notice("to beat", f"a loss of {facts.ngram_loss:z.2f} ({bits}), {ngram}; {others}", "detail"),
    ]


def split_problems(corpus: Corpus) -> list[Words]:
    """Why the loss on the validation split does not say how well a model predicts new text of this kind, and what to do."""
    return [advice.words(corpus) for advice in SPLIT if corpus.is_validated and advice.holds(corpus)]


def about_repeats(corpus: Corpus) -> list[str]:
    """What many lines that both splits have mean for the validation loss: a note, for they are no fault of a text."""
    return [str(advice.words(corpus)) for advice in REPEATS if corpus.is_validated and advice.holds(corpus)]


class Advice(NamedTuple):
    """What is said of a text for which something holds."""

    holds: Callable[[Corpus], bool]
    words: Callable[[Corpus], Words]


def _is_other_end(corpus: Corpus) -> bool:
    return corpus.ends_in_validation and corpus.facts.is_split_other and not corpus.facts.is_sorted


def _other_end(corpus: Corpus) -> Words:
    facts = corpus.facts
    what = f"the validation split is {'harder' if facts.is_split_harder else 'easier'} than the rest of the text"
    losses = f"the loss of an n-gram model is {facts.own_loss:.2f} there, and {facts.spread_loss:.2f} elsewhere"
    mend = "; for a validation split from all parts of the text, add "
    return Message(f"{what} ({losses}){mend}", Option("data.split", "blocks"))


def _once(corpus: Corpus) -> list[str]:
    return [label for label, count in (corpus.items.labels if corpus.items else {}).items() if count == 1]


def _labels(corpus: Corpus) -> Words:
    once, all_of_them = _once(corpus), len(corpus.items.labels if corpus.items else ())
    what = f"{len(once):,} of {all_of_them:,} labels occur once, such as {one_line(once[0])}"
    return f"{what}, so the model cannot learn what they mean; name a field with fewer labels in data.label"


ALPHABETICAL = Message(
    "the lines are in alphabetical order, so those of the validation split begin with other letters, and their loss ",
    *("says little; add ", Option("data.shuffle", "lines"), ", which shuffles the lines before the split"),
)
MEMORY = "{:.0%} of the validation text is lines that the training text has too, so a low loss is partly memory"
SPLIT = (Advice(lambda corpus: corpus.facts.is_sorted, lambda _: ALPHABETICAL), Advice(_is_other_end, _other_end))
REPEATS = (Advice(lambda corpus: corpus.facts.shared > MAX_OVERLAP, lambda corpus: MEMORY.format(corpus.facts.shared)),)
LABELS = (Advice(lambda corpus: bool(_once(corpus)), _labels),)  # a label teaches what its items have in common


def _rarest(corpus: Corpus) -> str:
    if corpus.tokenizer.characters is None:
        return f"{np.count_nonzero(corpus.counts == 0)} of 256 byte values do not occur"
    counts = _counts(corpus)
    rarest = min(counts, key=counts.__getitem__)
    return f"{character_name(rarest)}, {'once' if counts[rarest] == 1 else f'{counts[rarest]:,} times'}"


def _odd(corpus: Corpus) -> Notice:
    """Characters that are rarely intended: the model spends effort on them, and they often come from an earlier mistake."""
    if corpus.tokenizer.characters is None:
        return Notice("odd", "no search for odd characters, since the model reads bytes", "detail")
    counts, needed = _counts(corpus), NEEDED if NEEDED_BY.search(corpus.tokenizer.characters) else LAYOUT
    found: list[Words] = [*_by_category({one: count for one, count in counts.items() if not needed.match(one)})]
    if lost := counts.get("\ufffd"):
        found.append(f"{plural(lost, 'lost character')}, now \ufffd (U+FFFD; use the original file)")
    if garbled := corpus.facts.garbled:
        found.append(f"{plural(garbled, 'wrong character')}, such as Ã© for é (UTF-8 read as Latin-1; use the original file)")
    if returns := counts.get("\r"):
        found.append(Message(f"{returns:,} line ends with \\r (", Option("data.newlines", "fold"), " changes them to \\n)"))
    return Notice("odd", join(", ", found or ["no odd characters"]), "line" if found else "detail")


def _by_category(counts: dict[str, int]) -> Iterator[str]:
    """What is said of the characters of each category of ODD."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for character, count in counts.items():
        if kind := ODD.get(unicodedata.category(character)):
            kinds[kind][character] = count
    for kind, of_kind in kinds.items():
        names = ", ".join(f"U+{ord(c):04X} {unicodedata.name(c, '')}".strip() for c, _ in of_kind.most_common(MAX_NAMED))
        yield f"{plural(of_kind.total(), f'{kind} character')} ({names}{', others' * (len(of_kind) > MAX_NAMED)})"


def _counts(corpus: Corpus) -> dict[str, int]:
    """How often each character occurs that does, but for those that the program has put between items and labels."""
    own = "" if corpus.items is None else end_in(corpus.tokenizer) + TAB * bool(corpus.items.labels)
    counts = zip(corpus.tokenizer.characters or "", corpus.counts.tolist())
    return {character: count for character, count in counts if count and character not in own}


class Alike(NamedTuple):
    """A character that looks like another one of the text: for a model they are as different as any two."""

    mend: str  # the normal form that makes them one; empty if none does
    shown: str
    times: int
    other: str


def _forms(corpus: Corpus) -> list[Notice]:
    """A notice on characters that look the same."""
    counts, said = _counts(corpus), list[Words]()
    pairs = [Alike("", _code_point(one), counts.get(one, 0), other) for one, other in zip("“”‘’", "\"\"''")]
    pairs += [*_of_one_character(counts), *_of_several_characters(corpus)]
    pairs = [pair for pair in pairs if pair.times and pair.other in counts]
    for mend in ("NFC", "NFKC", ""):
        found = [pair for pair in pairs if pair.mend == mend]
        shown = [f"{one} ({n:,}) and {_code_point(other)} ({counts[other]:,})" for _, one, n, other in found[:MAX_NAMED]]
        shown += ["..."] * (len(found) > MAX_NAMED)
        advice = Message(Option("data.normalize", mend), " makes them one") if mend else "write them in one way in the text"
        said += [Message(f"{', '.join(shown)} (", advice, ")")] * bool(found)
    words = Message("characters that look the same, with their counts: ", join("; ", said))
    rarer = sum(min(pair.times, counts[pair.other]) for pair in pairs)
    return [Notice("alike", words, "line" if rarer > FORMS_MATTER * corpus.characters else "detail")] * bool(said)


def _of_one_character(counts: dict[str, int]) -> Iterator[Alike]:
    """Characters of which a normal form makes another one, or letters."""
    for character, count in counts.items():
        for form in ("NFC", "NFKC"):
            same = unicodedata.normalize(form, character)
            looks_same = not unicodedata.decomposition(character).startswith(LOOKS_DIFFERENT)
            if same != character and looks_same and (same in counts or (same.isalpha() and set(same) <= counts.keys())):
                yield Alike(form, _code_point(character), count, same[0])
                break


def _of_several_characters(corpus: Corpus) -> Iterator[Alike]:
    """Letters of several characters."""
    text = "".join(corpus.tokenizer.decode(sample(ids, TRAIN_SAMPLE)) for ids in (corpus.train, corpus.val))
    if not unicodedata.is_normalized("NFC", text):
        text = "".join(unicodedata.normalize("NFC", character) for character in text)
        for same, count in (Counter(unicodedata.normalize("NFC", text)) - Counter(text)).items():
            yield Alike("NFC", " ".join(f"U+{ord(c):04X}" for c in unicodedata.normalize("NFD", same)), count, same)


def _code_point(character: str) -> str:
    return f"{character} U+{ord(character):04X}" if character.isprintable() and character != " " else f"U+{ord(character):04X}"
