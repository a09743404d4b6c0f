"""The text report is true of the text, and each piece of advice is given where it holds and nowhere else."""

import itertools
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_helpers import write

from chargpt.notices import Kind
from chargpt.text import facts
from chargpt.text.corpus import Corpus
from chargpt.text.examination import DIVIDER, ODD, ONCE, REPEATS, SPLIT, examine
from chargpt.text.tokenizer import Tokenizer, character_name


@pytest.fixture
def load_string(load, tmp_path) -> Callable[..., Corpus]:
    """The corpus of a string."""
    return lambda text, **changes: load(write(tmp_path / "text.txt", text), **changes)


def words(count: int, seed: int = 0, letters: str = "abcdefgh") -> str:
    draw = random.Random(seed)
    return " ".join("".join(draw.choices(letters, k=5)) for _ in range(count))


def line(corpus: Corpus, what: Kind) -> str:
    return next(str(text) for kind, text, _ in examine(corpus) if kind is what)


def marks(said: str) -> list[float]:
    return [float(mark) for mark in re.findall(r"(?:\(|gzip needs |xz )(\d+\.\d+)", said)]


@given(st.text("abc é海\n", min_size=2), st.booleans())
def test_the_rarest_character_is_the_first_of_those_that_occur_least(text, are_bytes):
    tokenizer = Tokenizer(None) if are_bytes else Tokenizer("".join(sorted({*text, "z"})))
    ids = tokenizer.encode(text)
    counts, source = np.bincount(ids, minlength=tokenizer.vocab_size), {"name": "", "texts": [], "fingerprint": ""}
    said = line(
        Corpus(tokenizer=tokenizer, train=ids, val=ids[:0], counts=counts, distinct=len({*text}), **source), Kind.RAREST
    )
    times, rarest = min((count, character) for character, count in Counter(text).items())
    expected = f"{character_name(rarest)}, {'once' if times == 1 else f'{times} times'}"
    assert said == (f"{256 - len({*text.encode()})} of 256 byte values do not occur" if are_bytes else expected)


NAMES = [f"{a}{b}{c}" for a in "ABDEFGHIJKLMNOPRSTUVWZ" for b in ("an", "el", "or", "ún") for c in "adeimnoy"]
POEM = [f"line number {n:04} of the poem" for n in range(100)]
PLAIN, UNINTENDED = "the sea\tand the stone é海\n", "ab\x00\x00\u200b\ue000\ufffd\r\n\tÃ© Ã¼ a\r\n" + "a\n" * 10
VERSE, OTHER, KNOWN = words(3200, letters="abcd"), words(400, seed=1), "abcd " * 400
LABELLED = "kind,body\n" + "\n".join(f"k{{}},the sea and {n} stones" for n in range(40))
BY_INITIAL, PROSE = sorted(NAMES, key=lambda name: (name[0], name[::-1])), [words(8, seed) for seed in range(200)]
KAKAO = [f"2024년 3월 {n // 9 + 1:02}일 오후 {n % 9 + 1}:05, {words(3, n)}" for n in range(200)]
# Each row of advice: its settings, texts of which it holds, what is said, and texts of which it does not hold.
ROWS = {
    ODD[0]: ({}, [UNINTENDED], r"2 control characters \(U\+0000\), 1 invisible .*\(U\+200B ZERO WIDTH SPACE\), 1 pri", [PLAIN]),
    ODD[1]: ({}, [UNINTENDED], r"1 lost character, now \ufffd \(U\+FFFD; use the original file\)", [PLAIN]),
    ODD[2]: ({}, [UNINTENDED], "2 Ã© .é, in UTF-8 read as Latin-1; text FILE --clean NEW", [PLAIN + "Ã"]),
    ODD[3]: ({"newlines": "keep"}, [UNINTENDED], r"2 line ends with \\r \(data.newlines=fold changes them to \\n\)", [PLAIN]),
    SPLIT[0]: (
        {"val_fraction": 0.1},
        [*map("\n".join, (NAMES, NAMES[::-1], BY_INITIAL)), "\n  ".join(NAMES).lower(), "\n\n".join(NAMES)],
        "^the lines are in alphabetical order, .* says little; add data.shuffle=lines, which shuffles the lines before",
        [
            *map(
                "\n".join,
                (random.Random(0).sample(NAMES, len(NAMES)), KAKAO, PROSE, NAMES[:10], ["the sea"] * 100, ["a"] * 100),
            )
        ],
    ),
    SPLIT[1]: (
        {"val_fraction": 0.1},
        [VERSE + OTHER, KNOWN + VERSE + KNOWN],
        r"^the validation split is (hard|easi)er than the rest of the text .* elsewhere\); .*, add data.split=blocks$",
        [VERSE, OTHER, "\n".join(NAMES)],
    ),
    REPEATS: (
        {},
        ["\n".join(POEM + POEM)],
        "^97% of the validation text is lines that the training text has too, so a low loss is partly memory$",
        ["\n".join(POEM + POEM[:10]), "\n".join([POEM[0]] * 200 + POEM)],
    ),
    DIVIDER: (
        {},
        [f"\n{mark}\n".join(POEM) for mark in ("%", "***", "* * *", "-----", "<|endoftext|>")],
        r"^the line \S.* returns again and again; if it is .*, add data.field='?\S.* \(data.items for items\)$",
        ["\n%\n".join(POEM[:4]), "\n}\n".join(POEM), "\n\n".join(POEM), f"{PROSE}\n%\n"],
    ),
    ONCE: (
        {"items": "body", "label": "kind"},
        [LABELLED.format(*range(20), *[1, 2] * 10)],
        "^18 of 20 labels occur once, such as k0, so the model cannot learn what they mean; name a field with fewer",
        [LABELLED.format(*[1, 2] * 20), LABELLED.format(*[1] * 40)],
    ),
}


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_each_row_of_advice_is_given_where_it_holds_and_nowhere_else(row, load, tmp_path):
    assert [*ROWS] == [*ODD, *SPLIT, REPEATS, DIVIDER, ONCE]
    changes, texts, said, others = [*ROWS.values()][row]
    for number, text in enumerate(texts + others):
        corpus = load(write(tmp_path / f"a{'.csv' * ('items' in changes)}", text), **changes)
        found = [str(words) for kind, words, _ in examine(corpus) if kind in (Kind.ODD, Kind.WARNING, Kind.NOTE)]
        assert any(re.search(said, words) for words in found) == (number < len(texts)), found


HARMLESS = (
    *("a family 👩\u200d👩\u200d👧 by the sea", "England \U0001f3f4\U000e0067\U000e0062\U000e007f by the sea"),
    *("می\u200cخواهم می\u200cروم به دریا و سنگ", "הים והאבן\u200f הים והאבן"),
)


def test_invisible_characters_that_a_text_needs_are_not_odd(load_string):
    for content in HARMLESS:
        assert line(load_string(content), Kind.ODD) == "no odd characters"
        joiner = next(c for c in content if unicodedata.category(c) == "Cf")
        assert f"1 invisible character (U+{ord(joiner):04X}" in line(load_string(f"the sea{joiner} and the stone"), Kind.ODD)


NFC, NFKC = "(data.normalize=NFC makes them one)", "(data.normalize=NFKC"
FORMS = {  # a text, what is said of its forms, and whether everybody is told
    "an accent": ("l'été à la mer. " * 9 + "l'e\u0301te\u0301", f"U+0065 U+0301 (2) and é U+00E9 (18) {NFC}", True),
    "spaces": ("the sea and\u00a0the\u2009stone", f"U+00A0 (1) and U+0020 (2), U+2009 (1) and U+0020 (2) {NFKC}", True),
    "quotes": ('"the sea" and “the stone”', '“ U+201C (1) and " U+0022 (2), ” U+201D (1) and " U+0022 (2) (write them', True),
    "a micro sign": ("5 µm, 6 μm", f"µ U+00B5 (1) and μ U+03BC (1) {NFKC}", True),
    "an Ångström": ("5 \u212b, 6 Å in all", f"\u212b U+212B (1) and Å U+00C5 (1) {NFC}", True),
    "a ligature": ("ﬁrst and first", f"ﬁ U+FB01 (1) and f U+0066 (1) {NFKC}", True),
    "Hangul": ("한국 " * 5 + unicodedata.normalize("NFD", "한"), "U+1112 U+1161 U+11AB (1) and 한 U+D55C (5)", True),
    "Hangul in one form": (unicodedata.normalize("NFD", "한국 " * 5), "", False),
    "two in one": ("Å " * 9 + "\u212b A\u030a", "\u212b U+212B (1) and Å U+00C5 (9), U+0041 U+030A (1) and Å U+00C5 (9)", True),
    "a single one": ("été " * 9000 + "e\u0301", "U+0065 U+0301 (1) and é U+00E9 (18,000)", False),
    "only one form": ("l'e\u0301te\u0301 a\u0300 la mer", "", False),
    "Greek in a word": (
        "Olόwό " * 9 + "the sea " * 99,
        "ό U+03CC (18) (of another script than the rest of their word, such as Olόwό)",
        True,
    ),
    "Cyrillic in a word": ("the seа and the stone " * 9, "а U+0430 (9) (of another script", True),
    "Latin in a Cyrillic word": ("вoда и земля " * 9, "o U+006F (9) (of another", True),
    "a mark below that is another one": (
        "o\u0329r\u1ecd\u0301 \u1ecd " * 9,
        "U+0329 (9) and \u0323 U+0323 (18) (write them in",
        True,
    ),
    "Armenian and Latin": ("Տnւն " * 9, "n U+006E (9) (of another script", True),
    "units and formulas": ("5 μm, 3 kΩ, 4 μmol, ΔG and λx.x, πr " * 9, "", False),
    "Romanian": (
        "orașul și țara " * 9 + "oraşul şi ţara",
        "ş U+015F (2) and ș U+0219 (18), ţ U+0163 (1) and ț U+021B (9) (wr",
        True,
    ),
    "Persian": ("یک کتاب " * 9 + "كتابي", "ي U+064A (1) and ی U+06CC (9), ك U+0643 (1) and ک U+06A9 (18) (write", True),
    "apostrophes": ("п'ять м'яч " * 9 + "пʼять", "ʼ U+02BC (1) and ' U+0027 (18) (write them", True),
    "Turkish": ("şiir ve şey, ţ " * 9, "", False),
    "words of two scripts": ("вода и sea, η θάλασσα, km/ч, π and Wi-Fi " * 9, "", False),
    "not alike": ("2 and ², a and ª, ½ and 12, … and ..., «sea» and 'stone'", "", False),
}


@pytest.mark.parametrize("case", FORMS)
def test_characters_that_look_the_same_are_counted_with_what_makes_them_one(case, load_string):
    content, said, is_told = FORMS[case]
    notices = {kind: (str(text), level) for kind, text, level in examine(load_string(content))}
    text, level = notices.get(Kind.ALIKE, ("", "detail"))
    assert (said in text if said else not text) and (level == "line") == is_told, text


LETTERS = {"LATIN": "abcdeghijk", "GREEK": "αβγδεζηθικ", "CYRILLIC": "абвгдежзик"}


@settings(max_examples=20)
@given(
    st.sampled_from([*itertools.permutations(LETTERS, 2)]),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.integers(1, 3),
)
def test_every_letter_of_another_script_is_counted_and_the_details_list_all(load_string, scripts, places, length):
    usual, other = (LETTERS[script] for script in scripts)
    mixed = [usual[:length] + other[place] + usual[place:] + usual[0] * length for place in places]
    corpus = load_string(" ".join([*mixed, *[usual] * 99, *[other] * 9]))
    said = [(str(text), level) for label, text, level in examine(corpus) if label is Kind.ALIKE]
    counts = Counter(other[place] for place in places)
    assert all(f"{one} U+{ord(one):04X} ({count})" in said[-1][0] for one, count in counts.items()) and "..." not in said[-1][0]
    assert len(said) == 1 + (len(counts) > 3) and said[0][1] == "line" and all(level == "detail" for _, level in said[1:])


def test_the_marks_between_items_and_what_the_text_does_not_have_are_neither_odd_nor_rare(load_string):
    corpus = load_string("one\ntwo\n\nthree\n\nfour\nfive\n\n\n", items="paragraph")
    assert (
        line(corpus, Kind.ODD) == "no odd characters" and "U+001E" not in line(corpus, Kind.RAREST) and corpus.items.items == 3
    )
    assert not [note for note in corpus.notes if "empty items" in str(note)], "the end of a file is no item"
    assert "U+000A" not in line(load_string("aaa\nbbb\n", items="line"), Kind.RAREST)
    # A vocabulary may hold the characters of a start as well.
    corpus = load_string("aaaaaabbbbbb\u00e9", known="xyz\u200b\ufffd" + "".join(map(chr, range(0x4E00, 0x4E80))))
    assert corpus.tokenizer.vocab_size == 3 + 5 + 0x80 and corpus.distinct == 3
    assert line(corpus, Kind.RAREST).endswith("ACUTE, once") and line(corpus, Kind.ODD).endswith("no odd characters")


def test_repeated_lines_are_counted(load_string):
    said = line(load_string("\n".join(POEM + POEM)), Kind.REPEATS)
    assert said.startswith("0.0% of the training text is repeated lines; 96.6% of the validation text is lines")
    assert line(load_string("\n".join([POEM[0]] * 200 + POEM)), Kind.REPEATS).startswith("95.9% of the training text")


def test_a_list_in_order_whose_splits_both_have_every_initial_needs_no_shuffling(load_string, tmp_path):
    write(tmp_path / "val.txt", "\n".join(NAMES[::7]))
    corpus = load_string("\n".join(NAMES), val_text=str(tmp_path / "val.txt"))
    assert not any("alphabetical" in str(text) for _, text, _ in examine(corpus))


def test_a_text_without_a_validation_split_is_told_of_its_format(load, tmp_path):
    (tmp_path / "a.csv").write_text("id,body\n" + "1,the sea\n" * 20)
    assert "data.field=body" in line(load(tmp_path / "a.csv", val_fraction=0), Kind.WARNING)


def test_the_marks_of_a_short_text_are_free_of_what_every_archive_begins_with(load_string):
    noise = "".join(random.Random(0).choices("abcdefgh", k=4000))  # 3 bits per character
    _, gzip_bits, xz_bits = marks(line(load_string(noise, val_fraction=0.1), Kind.TO_BEAT))
    assert 2.8 < gzip_bits < 4 and 2.8 < xz_bits < 4
    _, gzip_bits, xz_bits = marks(line(load_string(noise[:1000] * 2, val_fraction=0.5), Kind.TO_BEAT))
    assert gzip_bits < 0.3 and xz_bits < 0.5, "the training text has been seen"


def test_a_long_text_is_judged_by_a_sample_and_says_so(load_string, monkeypatch):
    assert "estimated" not in line(load_string(words(2000)), Kind.REPEATS)
    monkeypatch.setattr(facts, "TRAIN_SAMPLE", 1000)
    assert "(estimated from 6,9" in line(load_string(words(2001)), Kind.REPEATS)
    sample = facts.sample(np.arange(10**6), 1000)
    assert 900 <= len(set(sample)) == len(sample) <= 1000 and (sample[0], sample[-1]) == (0, 10**6 - 1)


@pytest.mark.parametrize(("before", "ids"), [(27, 2), (27, 3), (27, 4), (2, 27)])
def test_a_part_of_a_few_characters_has_a_mark(before, ids, load_string):
    corpus = load_string(words(10)[: before + ids], val_fraction=ids / (before + ids), block_size=1)
    assert (len(corpus.train), len(corpus.val)) == (before, ids) and "nan" not in line(corpus, Kind.TO_BEAT)
    assert math.isfinite(corpus.facts.ngram_loss) and math.isfinite(corpus.facts.copying)


@pytest.mark.parametrize(("text", "level"), [(VERSE + OTHER, "harder"), (KNOWN + VERSE + KNOWN, "easier")])
def test_a_validation_split_of_another_kind_is_told_with_both_losses_and_blocks_mend_it(text, level, load_string):
    """The last part of a concatenated text has other letters in another order."""
    corpus = load_string(text, val_fraction=0.1)
    said, is_harder = line(corpus, Kind.WARNING), level == "harder"
    own, spread = map(float, re.findall(r"\d+\.\d\d", said))
    assert f"is {level} than" in said and (corpus.facts.other_kind == "harder") == is_harder
    assert own > spread + 0.5 if is_harder else own < spread - 0.5
    assert not any(
        "from all parts" in str(words) for _, words, _ in examine(load_string(text, val_fraction=0.1, split="blocks"))
    )
