"""A text that goes on from that of another run: what is known keeps its side of the split, and what is new is divided."""

import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.errors import TextTooShort
from chargpt.runs.checkpoint_schema import JSON_LIMIT
from chargpt.text import comparison
from chargpt.text.comparison import GAP, LEAST_REPEATED, NEW, Comparison, Passage, divided
from chargpt.text.corpus import Corpus
from chargpt.text.document import TRAIN, VAL
from chargpt.text.growth import KINDS, Growth, Stretch
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer, code_points

rng = np.random.default_rng(5)


def prose(characters: int) -> str:
    """Text without a passage that occurs twice."""
    letters = rng.choice(np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8), characters)
    letters[np.cumsum(rng.integers(3, 10, characters // 5)) % characters] = ord(" ")
    letters[50::50] = ord("\n")
    return letters.tobytes().decode()


BOOK, MORE = [prose(3_000) for _ in range(12)], [prose(n) for n in (700, 3_000, 9_000)]
DIVISIONS = {"position": {}, "blocks": {"split": "blocks"}, "document": {"split": "document"}, "bytes": {"vocabulary": "bytes"}}


def text_of(corpus: Corpus, split: int) -> str:
    return corpus.tokenizer.decode((corpus.train, corpus.val)[split])


def windows(text: str, size: int = 40) -> set[str]:
    return {text[i : i + size] for i in range(len(text) - size)}


@pytest.fixture
def folder(tmp_path):
    """Writes chapters into files of a folder, in place of all before."""
    where, numbers = tmp_path / "book", itertools.count()

    def write(*chapters: str):
        new = where / str(next(numbers))
        new.mkdir(parents=True)
        for number, chapter in enumerate(chapters):
            (new / f"{number:03}.txt").write_text(chapter, encoding="utf-8")
        return new

    return write


GROWN = {
    "chapters at the end": [*BOOK, *MORE],
    "chapters in the middle": [*BOOK[:5], *MORE, *BOOK[5:]],
    "another order, and one is gone": [*BOOK[6:], *MORE, *BOOK[1:6]],
    "an edit in every chapter": [f"{one[:1500]} EDIT {one[1510:]}" for one in BOOK] + MORE,
    "written on in the last chapter": [*BOOK[:-1], BOOK[-1] + MORE[2]],
    "one file of it": ["\n\n".join([*BOOK, *MORE])],
    "nothing but new text": MORE,
}


# Every growth of a text that is divided by position, and one of each other division.
CASES = [*((name, "position") for name in GROWN), *zip(GROWN, list(DIVISIONS)[1:]), ("an edit in every chapter", "document")]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_what_is_known_keeps_its_side(name, how, folder, load):
    more = {"val_fraction": 0.2, **DIVISIONS[how]}
    old = load(folder(*BOOK), **more)
    new = load(folder(*GROWN[name]), **more, earlier=[old], known=old.tokenizer.characters or "")
    learned, held_out = windows(text_of(old, TRAIN)), windows(text_of(old, VAL))
    assert not windows(text_of(new, TRAIN)) & held_out and not windows(text_of(new, VAL)) & learned
    if name == "nothing but new text":
        assert new.growth == Growth(earlier=[old.fingerprint])
        assert new.fingerprint == load(folder(*MORE), **more, known=old.tokenizer.characters or "").fingerprint
        return
    known, added = (new.tokenizer.decode(new.held_out(is_new=is_new)) for is_new in (False, True))
    assert len(known) + len(added) == len(new.val) and not windows(known) & windows("\n".join(MORE))
    learned_too = len(windows("\n".join(MORE)) & windows(text_of(new, TRAIN)))
    assert 0.18 < len(added) / (len(added) + learned_too) < 0.27, "the new text is divided among itself"
    assert len(held_out & windows(known)) > 0.7 * len(held_out) or "gone" in name or how == "document"


LONG = [prose(20_000) for _ in range(9)]
POEMS = [prose(n) for n in np.random.default_rng(2).integers(90, GAP - 100, 100)]


@pytest.mark.parametrize("how", ["position", "document"])
def test_short_new_poems_between_others_are_read(how, folder, load):
    """Each of them is shorter than an edit may be, and is in a split: nothing that was learned repeats in their place."""
    old = load(folder(*POEMS[:60]), split=how, val_fraction=0.2)
    mixed = [one for three in zip(POEMS[:60:2], POEMS[1:60:2], POEMS[60:90]) for one in three]
    new = load(folder(*mixed), split=how, val_fraction=0.2, earlier=[old])
    sides = [[one[20:-20] in text_of(new, split) for one in POEMS[60:90]] for split in (TRAIN, VAL)]
    assert sum(sides[TRAIN]) >= 20 and sum(map(sum, sides)) >= 28, "one may be cut, or lie between the splits"
    assert new.growth is not None and not windows(text_of(new, VAL)) & windows(text_of(old, TRAIN))
    parts = np.array([one.size for one in new.growth.stretches])
    is_new = [one.is_new for one in new.growth.stretches]
    assert parts[is_new].sum() == pytest.approx(sum(map(len, POEMS[60:90])), rel=0.1)


def test_a_chapter_that_stood_in_both_splits_is_in_neither(folder, load):
    old = load(folder(*BOOK[:9], BOOK[0]), val_fraction=0.15)
    new = load(folder(*BOOK[1:9], MORE[1], BOOK[0]), val_fraction=0.15, earlier=[old])
    assert not windows(BOOK[0][:2_900]) & windows(text_of(new, VAL))
    assert new.growth is not None and new.growth.describe().startswith("3,")


def test_characters_that_are_folded_hide_no_passage(folder, load):
    draw = np.random.default_rng(8)
    book, more = (["".join(c if draw.random() > 0.06 else chr(draw.integers(0x4E00, 0x7000)) for c in one) for one in some]
                  for some in (BOOK, MORE))  # fmt: skip
    old = load(folder(*book), min_count=20)
    new = load(folder(*book, more[2]), min_count=20, earlier=[old])
    assert old.tokenizer.folded and new.growth is not None and new.growth.describe().startswith(("8,9", "9,0"))


def test_shuffled_lines_are_shuffled_again(folder, load):
    """No passage of such a text is in it, so it is divided as ever."""
    settings = {"shuffle": "lines"}
    new = load(folder(*BOOK, *MORE), **settings, earlier=[load(folder(*BOOK), **settings)])
    assert new.growth is None and new.fingerprint == load(folder(*BOOK, *MORE), **settings).fingerprint


def test_the_same_text_is_what_it_was_and_nothing_has_grown(folder, load):
    old = load(folder(*BOOK))
    again = load(folder(*BOOK), earlier=[old])
    assert (again.fingerprint, again.growth) == (old.fingerprint, None)


@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_a_text_of_which_all_was_learned_validates_nothing_and_says_so(fraction, folder, load):
    old = load(folder(*BOOK), val_fraction=0.0)
    if fraction:
        with pytest.raises(
            TextTooShort, match="has learned from all of it, so .*; add data.val_text=FILE, or .*data.val_fraction=0$"
        ):
            load(folder(*BOOK), val_fraction=fraction, earlier=[old])
    else:
        assert load(folder(*BOOK[::-1]), val_fraction=fraction, earlier=[old]).characters == old.characters


def test_a_third_text_knows_both_before_it(folder, load):
    texts = [BOOK, [*BOOK, MORE[1]], [*BOOK, MORE[1], MORE[2]]]
    first = load(folder(*texts[0]))
    second = load(folder(*texts[1]), earlier=[first])
    third = load(folder(*texts[2]), earlier=[second, first])
    for before in (first, second):
        assert not windows(text_of(third, VAL)) & windows(text_of(before, TRAIN))
        assert not windows(text_of(third, TRAIN)) & windows(text_of(before, VAL))
    assert third.growth is not None and third.growth.earlier == [second.fingerprint, first.fingerprint]


def test_a_growth_divides_the_text_again_without_the_texts_before(folder, load, tmp_path):
    """As a resumed run reads it, whose cache is gone, through the JSON of its state."""
    old, path = load(folder(*BOOK)), folder(*BOOK, *MORE)
    new = load(path, earlier=[old])
    assert new.growth is not None
    growth = Growth.from_json(json.loads(json.dumps(new.growth.to_json())))
    again = load(path, growth=growth, cache=str(tmp_path / "another"), tokenizer=new.tokenizer)
    assert again.fingerprint == new.fingerprint


@given(st.lists(st.tuples(st.integers(1, 10**6), st.sampled_from([*KINDS.values()])), max_size=20))
def test_a_state_has_a_growth_in_short_and_an_older_one_in_long(parts):
    growth = Growth(earlier=["0" * 64], stretches=[Stretch(size, *kind) for size, kind in parts])
    ends = itertools.accumulate(size for size, _ in parts)
    older = [{"end": end, "split": one.split, "is_new": one.is_new} for end, one in zip(ends, growth.stretches)]
    for saved in (growth.to_json(), {"earlier": growth.earlier, "stretches": older}):
        assert Growth.from_json(json.loads(json.dumps(saved))) == growth


def test_a_growth_of_many_documents_fits_a_state():
    """110,000 documents, known and new ones in turn."""
    stretches = [Stretch(1000, n % 10 == 9 and VAL or TRAIN, n % 2 == 1) for n in range(110_000)]
    assert len(json.dumps(Growth(stretches=stretches).to_json())) < JSON_LIMIT / 8


@pytest.mark.parametrize(
    "said", ["t0", "t-1", "x5", "t", "t5 v", "t1.5", "5", ["t5"], [{"end": 1.5, "split": 0, "is_new": False}], 3]
)
def test_what_is_no_growth_is_refused(said):
    with pytest.raises((ValueError, KeyError, AttributeError, TypeError)):
        Growth.from_json({"earlier": [], "stretches": said})


def test_line_ends_of_another_system_are_no_difference(folder, load, tmp_path):
    old, path = load(folder(*BOOK)), tmp_path / "windows.txt"
    path.write_bytes("\n".join([*BOOK, MORE[2]]).replace("\n", "\r\n").encode())
    new = load(path, earlier=[old])
    assert new.growth is not None and new.growth.describe().startswith("8,9") or "9,0" in new.growth.describe()


@settings(max_examples=15)
@given(st.data())
def test_passages_cover_the_text_and_say_the_truth(data):
    """Any order of known and new passages, longer than an edit, whatever the parts in which the text comes."""
    chapters = [(side, one[: data.draw(st.integers(GAP + 80, 2_000))]) for side, one in zip([TRAIN, VAL, TRAIN, VAL], BOOK)]
    chapters += [(NEW, one[: data.draw(st.integers(GAP + 80, 2_000))]) for one in BOOK[4:7]]
    order = data.draw(st.permutations(chapters))
    old = [rng_text(chapters, side) for side in (TRAIN, VAL)]
    compared, text = Comparison([encoded(*old)]), "".join(one for _, one in order)
    size = data.draw(st.integers(20, 3_000))
    for start in range(0, len(text), size):
        compared.add(code_points(text[start : start + size]))
    found = compared.passages()
    assert [one.start for one in found] == [0, *(one.end for one in found[:-1])] and found[-1].end == len(text)
    sides = np.concatenate([np.full(one.end - one.start, -1 if one.side is None else one.side) for one in found])
    truth = np.concatenate([np.full(len(one), side) for side, one in order])
    assert ((sides == truth) | (sides == -1)).mean() > 0.99
    assert not ((truth == VAL) & (sides == TRAIN)).any() or ((truth == VAL) & (sides == TRAIN)).sum() < 32


def rng_text(chapters: list[tuple[int, str]], side: int) -> str:
    return "".join(one for which, one in chapters if which == side)


def encoded(train: str, val: str) -> Corpus:
    tokenizer = Tokenizer("".join(sorted({*train, *val})), normalizer=TextNormalizer())
    ids = [tokenizer.ids_of(part) for part in (train, val)]
    return Corpus(
        fingerprint="0" * 64, tokenizer=tokenizer, train=ids[0], val=ids[1], counts=np.ones(1), distinct=1, name="", texts=[]
    )


def test_a_line_that_all_texts_have_says_nothing():
    """A licence in both parts of the old text, and in every new chapter."""
    licence = prose(1_500)
    compared = Comparison([encoded(BOOK[0] + licence, BOOK[1] + licence)])
    compared.add(code_points(licence.join([BOOK[0], MORE[2], BOOK[1], MORE[1], ""])))
    assert [one.side for one in compared.passages()] == [TRAIN, None, NEW, None, VAL, None, NEW, None]


def test_texts_shorter_than_a_window_are_new_and_know_nothing():
    for text, known in itertools.product(("", "a", "a" * 31, MORE[0]), (BOOK, ("short", ""))):
        compared = Comparison([encoded(known[0], known[1])])
        compared.add(code_points(text))
        assert compared.passages() == [Passage(0, len(text), NEW, True)][: len(text)]
    assert divided([], DataConfig(), ends=[]) == []


@pytest.mark.parametrize("marks", [2**14, 2**12, 2**10])
def test_of_a_long_text_in_another_order_nothing_is_new(marks, folder, load, monkeypatch):
    """The fewer windows are compared, the less exact are the ends of passages."""
    monkeypatch.setattr(comparison, "MOST_MARKS", marks)
    old = load(folder(*LONG), val_fraction=0.2)
    new = load(folder(*LONG[4:], *LONG[:4]), val_fraction=0.2, earlier=[old])
    assert new.growth is not None and new.growth.describe().startswith("0 characters are new")
    assert len(new.train) > 0.95 * len(old.train) and len(new.val) > 0.95 * len(old.val)


def test_the_state_of_a_run_has_room_for_a_gigabyte():
    size = 10**9
    stretches = divided([Passage(0, size, TRAIN, False), Passage(size, 2 * size, NEW, True)], DataConfig(), ends=[])
    assert 1_000 < len(stretches) < 20_000 and len(json.dumps([dataclasses.asdict(one) for one in stretches], indent=1)) < 2e6


@pytest.mark.parametrize("added", [1, 2_000, 30_000, 400_000])
def test_of_the_old_text_as_much_is_repeated_as_is_new(added):
    """In blocks from all over it, and not too little; all of it if there is less, or if nothing is new."""
    known = [Passage(*one, False) for one in ((0, 40_000, TRAIN), (40_000, 50_000, VAL), (50_000, 90_000, TRAIN))]
    for passages in ([*known, Passage(90_000, 90_000 + added, NEW, True)], known):
        stretches = divided(passages, DataConfig(), ends=[])
        sizes = Counter[tuple[int | None, bool]]()
        for stretch in stretches:
            assert stretch.size > 0
            sizes[stretch.split, stretch.is_new] += stretch.size
        assert sizes.total() == passages[-1].end and sizes[VAL, False] == 10_000
        assert sizes[TRAIN, False] == pytest.approx(
            min(80_000, max(LEAST_REPEATED, sizes[TRAIN, True]) if sizes[TRAIN, True] else 80_000), abs=20
        )
        ends = itertools.accumulate(one.size for one in stretches)
        middle = [one.split for one, end in zip(stretches, ends) if 50_000 < end]
        assert TRAIN in middle or added == 1
