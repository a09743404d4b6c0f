"""The text report: unusual characters, repeated lines, and the compression that a model should beat."""

import math
import re
import unicodedata
from collections import Counter, defaultdict

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
    found += [Notice("warning", words) for words in [*corpus.warnings, *split_problems(corpus), *_rare_labels(corpus)]]
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
    if not corpus.is_validated:
        return []
    facts = corpus.facts
    if facts.is_sorted:
        what = "the lines are in alphabetical order, so those of the validation split begin with other letters, and their loss "
        what += "says little; add "
        return [Message(what, Option("data.shuffle", "lines"), ", which shuffles the lines before the split")]
    if not (corpus.ends_in_validation and facts.is_split_other):
        return []
    what = f"the validation split is {'harder' if facts.is_split_harder else 'easier'} than the rest of the text"
    losses = f"the loss of an n-gram model is {facts.own_loss:.2f} there, and {facts.spread_loss:.2f} elsewhere"
    mend = Message("; for a validation split from all parts of the text, add ", Option("data.split", "blocks"))
    return [Message(f"{what} ({losses})", mend)]


def about_repeats(corpus: Corpus) -> list[str]:
    """What many lines that both splits have mean for the validation loss: a note, for they are no fault of a text."""
    if not corpus.is_validated or (shared := corpus.facts.shared) <= MAX_OVERLAP:
        return []
    return [f"{shared:.0%} of the validation text is lines that the training text has too, so a low loss is partly memory"]


def _rare_labels(corpus: Corpus) -> list[Words]:
    """A warning if labels occur once: a label teaches what its items have in common."""
    labels = {} if corpus.items is None else corpus.items.labels
    if not (once := [one_line(label) for label, count in labels.items() if count == 1]):
        return []
    what = f"{len(once):,} of {len(labels):,} labels occur once, such as {once[0]}, so the model cannot learn what they mean"
    return [f"{what}; name a field with fewer labels in data.label"]


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
    counts = _counts(corpus)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    needed = NEEDED if NEEDED_BY.search(corpus.tokenizer.characters) else LAYOUT
    for character, count in counts.items():
        kind = ODD.get(unicodedata.category(character))
        if kind and not needed.match(character):
            kinds[kind][character] += count
    found = list[Words]()
    for kind, of_kind in kinds.items():
        names = [f"U+{ord(c):04X} {unicodedata.name(c, '')}".strip() for c, _ in of_kind.most_common(MAX_NAMED)]
        found.append(
            f"{plural(of_kind.total(), f'{kind} character')} ({', '.join(names)}{', others' * (len(of_kind) > MAX_NAMED)})"
        )
    if replaced := counts.get("\ufffd"):
        found.append(f"{plural(replaced, 'lost character')}, now \ufffd (U+FFFD; use the original file)")
    if garbled := corpus.facts.garbled:
        found.append(f"{plural(garbled, 'wrong character')}, such as Ã© for é (UTF-8 read as Latin-1; use the original file)")
    if returns := counts.get("\r"):
        found.append(Message(f"{returns:,} line ends with \\r (", Option("data.newlines", "fold"), " changes them to \\n)"))
    return Notice("odd", join(", ", found or ["no odd characters"]), "line" if found else "detail")


def _counts(corpus: Corpus) -> dict[str, int]:
    """How often each character occurs that does, but for those that the program has put between items and labels."""
    own = "" if corpus.items is None else end_in(corpus.tokenizer) + TAB * bool(corpus.items.labels)
    counts = zip(corpus.tokenizer.characters or "", corpus.counts.tolist())
    return {character: count for character, count in counts if count and character not in own}


def _forms(corpus: Corpus) -> list[Notice]:
    """A notice on characters that look the same: for a model they are as different as any two."""
    counts = _counts(corpus)
    # What makes two forms one, the one form, how often it occurs, and the other.
    pairs = [("", _code_point(curly), counts.get(curly, 0), straight) for curly, straight in zip("“”‘’", "\"\"''")]
    for character, count in counts.items():
        for form in ("NFC", "NFKC"):
            same = unicodedata.normalize(form, character)
            looks_same = not unicodedata.decomposition(character).startswith(LOOKS_DIFFERENT)
            if same != character and looks_same and (same in counts or (same.isalpha() and set(same) <= counts.keys())):
                pairs.append((form, _code_point(character), count, same[0]))
                break
    text = "".join(corpus.tokenizer.decode(sample(ids, TRAIN_SAMPLE)) for ids in (corpus.train, corpus.val))
    if not unicodedata.is_normalized("NFC", text):  # it has letters of several characters
        text = "".join(unicodedata.normalize("NFC", character) for character in text)
        for same, count in (Counter(unicodedata.normalize("NFC", text)) - Counter(text)).items():
            pairs.append(("NFC", " ".join(f"U+{ord(c):04X}" for c in unicodedata.normalize("NFD", same)), count, same))
    rarer, said = 0, list[Words]()
    for mend in ("NFC", "NFKC", ""):
        found = [(one, count, other) for form, one, count, other in pairs if form == mend and count and other in counts]
        rarer += sum(min(count, counts[other]) for _, count, other in found)
        listed = [f"{one} ({count:,}) and {_code_point(other)} ({counts[other]:,})" for one, count, other in found[:MAX_NAMED]]
        listed += ["..."] * (len(found) > MAX_NAMED)
        advice = Message(Option("data.normalize", mend), " makes them one") if mend else "write them in one way in the text"
        said += [Message(f"{', '.join(listed)} (", advice, ")")] * bool(found)
    words = Message("characters that look the same, with their counts: ", join("; ", said))
    return [Notice("alike", words, "line" if rarer > FORMS_MATTER * corpus.characters else "detail")] * bool(said)


def _code_point(character: str) -> str:
    return f"{character} U+{ord(character):04X}" if character.isprintable() and character != " " else f"U+{ord(character):04X}"
