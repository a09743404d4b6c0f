"""Lists of items: what is one in each kind of file, its label, the split by item, and what a mistake is told."""

import bisect
import itertools
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_helpers import write

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text import windows
from chargpt.text.examination import examine
from chargpt.text.formats import recognise
from chargpt.text.item_reader import LONG
from chargpt.text.item_stream import SEPARATOR, Item, ItemMarks, items_in, stream_of
from chargpt.text.kind import Head
from chargpt.text.tokenizer import Tokenizer
from chargpt.text.windows import IGNORED, windows_of_items

NAMES = ["ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal", "ida", "jo"]


def splits(corpus) -> list[list[Item]]:
    """The items for training, and those for validation."""
    has_labels = bool(corpus.items.labels)
    return [items_in(ids, corpus.tokenizer, has_labels=has_labels) for ids in (corpus.train, corpus.val)]


def both(corpus) -> list[Item]:
    """The items of both splits, sorted."""
    return sorted(sum(splits(corpus), []))


LABELLED = [Item("elf" if i % 3 else "orc", name) for i, name in enumerate(NAMES)]


ROWS = "".join(f"{label},{text}\n" for label, text in LABELLED)
RECORDS = [{"race": label, "name": text, "age": 3} for label, text in LABELLED]
LISTS = {  # one list in several formats
    "a.csv": "race,name\n" + ROWS,
    "quoted.csv": "race,name\n" + ROWS.replace(",", '","').replace("\n", '"\n').replace("elf", '"elf').replace("orc", '"orc'),
    "a.tsv": "race\tname\n" + ROWS.replace(",", "\t"),
    "a.jsonl": "\n".join(map(json.dumps, RECORDS)),
    "a.json": json.dumps(RECORDS),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_record_is_an_item_and_its_field_the_label(name, load, tmp_path):
    corpus = load(write(tmp_path / name, LISTS[name]), items="name", label="race")
    assert both(corpus) == sorted(LABELLED)
    assert corpus.items.labels == {"elf": 6, "orc": 4} and corpus.items.items == 10
    text = corpus.tokenizer.decode(corpus.train)
    assert text.endswith("\n") and all(line.count("\t") == 1 for line in text.splitlines())


def test_lines_paragraphs_and_files_are_items(load, tmp_path):
    assert [item.text for item in both(load(write(tmp_path / "a.txt", "\n".join(NAMES)), items="line"))] == NAMES
    corpus = load(write(tmp_path / "poems.txt", "one\ntwo\n\nthree\n \n\nfour\nfive\n"), items="paragraph")
    assert [item.text for item in both(corpus)] == ["four\nfive", "one\ntwo", "three"]
    assert SEPARATOR in corpus.tokenizer.characters and any("U+001E" in note for note in corpus.notes)
    for language, words in (("latin", "mare\nlux"), ("greek", "thalassa"), ("norse", "ljos\n")):
        write(tmp_path / "words" / language / f"{language[0]}.txt", words)
    assert both(load(tmp_path / "words", items="file", label="folder"))[0] == Item("greek", "thalassa")
    assert both(load(tmp_path / "words", items="line", label="file"))[0] == Item("g", "thalassa")


def test_no_item_is_on_both_sides_and_each_stays_where_it_is(load, tmp_path):
    draw = random.Random(1)
    names = ["".join(draw.choices("abcdef", k=4)) for _ in range(600)]  # many of them several times
    corpus = load(write(tmp_path / "a.txt", "\n".join(names)), items="line", val_fraction=0.2)
    train, val = ({item.text for item in items} for items in splits(corpus))
    assert not train & val and train | val == {*names}
    assert corpus.items.duplicates == 600 - len({*names}) and 100 < len(corpus.val) / 5 < 140
    more = load(write(tmp_path / "b.txt", "\n".join(names[:500])), items="line", val_fraction=0.2)
    other = {item.text for item in splits(more)[1]}
    assert len(other - val) < 0.1 * len(other)  # only those at the border
    assert corpus.tokenizer.decode(corpus.train).split("\n")[:50] != sorted(train)[:50]


@pytest.mark.parametrize("most", [2, 30, 2000])
@pytest.mark.parametrize("fraction", [0.05, 0.3])
def test_a_frequent_item_does_not_take_the_validation_split_beyond_its_share(most, fraction, load, tmp_path):
    draw = random.Random(most)
    names = [name for name in NAMES for _ in range(draw.randint(1, 9))] + ["most"] * most
    draw.shuffle(names)
    train, val = splits(load(write(tmp_path / "a.txt", "\n".join(names)), items="line", val_fraction=fraction))
    assert sorted(item.text for item in train + val) == sorted(names) and not set(train) & set(val)
    is_frequent = most > 2 * fraction * len(names)  # then most of the others are learned too
    assert 1 <= len(val) <= max(9, 2 * round(fraction * (len(names) - most * is_frequent)))
    corpus = load(write(tmp_path / "a.txt", "same\n" * 50 * most + "other\n"), items="line", val_fraction=fraction)
    assert corpus.tokenizer.decode(corpus.val) == "other\n" and any(
        f"same (4 characters, {50 * most:,} times)" in note for note in corpus.notes
    )


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=3, max_size=40), st.integers(80, 9000), st.sampled_from([0.05, 0.1, 0.3]))
def test_a_long_item_does_not_take_the_validation_split_beyond_its_share_whatever_its_hash(
    load, tmp_path, lengths, longest, fraction
):
    texts = [f"{n:02}{'a' * length}" for n, length in enumerate(lengths)] + ["b" * longest]
    corpus = load(write(Path(tempfile.mkdtemp(dir=tmp_path)) / "a.txt", "\n".join(texts)), items="line", val_fraction=fraction)
    train, val = ([item.text for item in items] for items in splits(corpus))
    assert sorted(train + val) == sorted(texts)
    share, mean = max(1, round(fraction * len(texts))), sum(map(len, texts)) / len(texts)
    assert len(val) == share and (texts[-1] in train or longest <= max(LONG, share) * mean)
    assert all("so long" not in note or f"({longest:,} char" in note and "more" not in note for note in corpus.notes)


def test_what_ends_items_and_labels_is_never_a_rare_character(load, tmp_path):
    path = write(tmp_path / "a.csv", "race,name\n" + "".join(f"elf,{letter * 30}\n" for letter in "abcdef"))
    corpus = load(path, items="name", label="race", min_count=20)
    assert corpus.tokenizer.characters == "\t\nabcdef" and [text[0] for _, text in both(corpus)] == [*"abcdef"]


def test_validation_items_of_their_own_are_not_trained_on(load, tmp_path):
    train, val = write(tmp_path / "a.txt", "\n".join(NAMES)), write(tmp_path / "b.txt", "eve\nzoe\n")
    corpus = load(train, items="line", val_text=str(val))
    assert sorted(corpus.tokenizer.decode(corpus.val).split()) == ["eve", "zoe"]
    assert "eve" not in corpus.tokenizer.decode(corpus.train) and any(
        "in the validation text: 1" in note for note in corpus.notes
    )


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(NAMES)), min_size=4, max_size=30), st.integers(0, 9))
def test_a_validation_item_is_not_trained_on_under_another_label_either(load, tmp_path, rows, count):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    val = [("xyz"[i % 3], name) for i, name in enumerate(NAMES[: count + 1])]
    kept = [Item(label, name) for label, name in [*rows, ("x", "unlike")] if name not in NAMES[: count + 1]]
    paths = [folder / "train.csv", folder / "val.csv"]
    for path, lines in zip(paths, ([*rows, ("x", "unlike")], val)):
        path.write_text("race,name\n" + "".join(f"{label},{name}\n" for label, name in lines))
    corpus = load(paths[0], items="name", label="race", val_text=str(paths[1]))
    assert sorted(items_in(corpus.train, corpus.tokenizer, has_labels=True)) == sorted(kept)


def test_empty_items_and_missing_labels_are_counted_and_left_out(load, tmp_path):
    rows = "elf,ann\nelf,\n,bob\norc,dan\n , \norc,  \nelf,eve \n"
    corpus = load(write(tmp_path / "a.csv", "race,name\n" + rows), items="name", label="race")
    assert both(corpus) == [Item("elf", "ann"), Item("elf", "eve"), Item("orc", "dan")]
    assert "empty items skipped: 3" in corpus.notes and "items without a label skipped: 1" in corpus.notes


@pytest.mark.parametrize("items, lines, is_hinted", [("line", 9, True), ("line", 40, False), ("paragraph", 9, False)])
def test_a_list_of_blocks_is_hinted_at_paragraphs(load, tmp_path, items, lines, is_hinted):
    blocks = ["".join(f"block {block}, line {line}\n" for line in range(lines)) for block in range(5)]
    path = tmp_path / "tunes.abc"
    path.write_text("\n".join(blocks))
    notes = " ".join(load(path, items=items).notes)
    assert ("data.items=paragraph" in notes) == is_hinted and ("empty items skipped: 4" in notes) == (items == "line")


ITEMS = st.lists(st.builds(Item, st.text("abX", min_size=1, max_size=4), st.text("abc\t", max_size=9)), max_size=9)


@given(ITEMS, st.text("abc", max_size=3), st.booleans(), st.integers(1, 6), st.integers(1, 40))
def test_the_marks_of_items_divide_their_ids_and_windows_predict_each_of_them_once(items, rest, has_labels, size, at_once):
    """Beside the same in plain Python, with what is left of an item at the end."""
    items = items if has_labels else [Item("", item.text) for item in items]
    tokenizer, parts = Tokenizer("\t\nXabc"), [stream_of([item], end="\n") for item in items]
    ids, marks = tokenizer.ids_of("".join(parts) + rest), ItemMarks.of(tokenizer, has_labels=has_labels)
    assert items_in(ids, tokenizer, has_labels=has_labels) == items
    counted = [[False] * (len(part) - len(item.text) - 1) + [True] * (len(item.text) + 1) for part, item in zip(parts, items)]
    assert marks.counted(ids).tolist() == sum(counted, []) + [not has_labels] * len(rest)
    lengths = [len(item.text) + 1 for item in items]
    assert marks.characters_per_item(ids) == (pytest.approx(sum(lengths) / len(items)) if items else 0)
    if not items:
        assert not rest or [end.tolist() for end in marks.bounds(ids)] == [[0], [len(rest) - 1]], (
            "the only one, and not complete"
        )
        return
    ends = [*itertools.accumulate(map(len, parts))]
    assert marks.lengths(ids).tolist() == [*map(len, parts)]
    assert [ends_of.tolist() for ends_of in marks.bounds(ids)] == [[0, *ends[:-1]], [end - 1 for end in ends]]
    starts = [(before, first) for before, part in zip([0, *ends], parts) for first in range(before, before + len(part), size)]
    stops = [min(first + size, ends[bisect.bisect(ends, before)]) for before, first in starts]
    stream, targets = [marks.end, *ids.tolist()], np.where(marks.counted(ids), ids, IGNORED).tolist()
    expected = [(stream[first:stop], targets[first:stop]) for (_, first), stop in zip(starts, stops)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "IDS_AT_ONCE", at_once)
        batches = windows_of_items(ids, marks, size=size, vocab_size=6)
    assert all(read.shape == wanted.shape and (len(read) == 1 or read.size <= at_once) for read, wanted in batches)
    assert [read.shape[1] for read, _ in batches] == sorted((read.shape[1] for read, _ in batches), reverse=True), (
        "like lengths"
    )
    found = [(row.tolist(), predicted.tolist()) for read, wanted in batches for row, predicted in zip(read, wanted)]
    assert Counter(map(without_filling, found)) == Counter(map(without_filling, expected))


def without_filling(window: tuple[list[int], list[int]]) -> tuple[tuple[int, ...], ...]:
    """A window up to the last id that is predicted."""
    stop = max((n + 1 for n, one in enumerate(window[1]) if one != IGNORED), default=0)
    return tuple(window[0][:stop]), tuple(window[1][:stop])


IDS = "id,name\n" + "".join(f"{i},ann{i % 5}\n" for i in range(10_001))
HOSTILE = {  # a file, settings, and what is said
    "a label that is not there": ("race,name\nelf,a\n", {"items": "name", "label": "rase"}, "mean data.label=race"),
    "a field of plain text": ("ann\nbob\n", {"items": "name"}, "plain text, in which no line is .name.; name a line"),
    "a label of plain text": ("ann\nbob\n", {"items": "line", "label": "race"}, "data.label: 'race' .* use data.label=file, "),
    "a label of a table's lines": (
        "race,name\nelf,anna\norc,b\n",
        {"items": "line", "label": "x"},
        "are race, name; .* data.items=name",
    ),
    "NUL": ("ann\nb\0b\n", {"items": "line"}, r"line 2: .*U\+0000 in an item; delete it"),
    "the separator": ("ann\nb\x1eb\n", {"items": "line"}, r"line 2: .*U\+001E in an item; delete it"),
    "one item": ("ann\nann\n", {"items": "line"}, "too few items that differ \\(1\\); give at least two"),
    "none": ("\n \n", {"items": "line"}, "no items .*; give items"),
    "many labels": (IDS, {"items": "name", "label": "id"}, "data.label: id .* 10,001 different values of it; choose a label"),
    "bytes": ("ann\nbob\n", {"items": "line", "vocabulary": "bytes"}, "items"),
    "a label without items": ("ann\nbob\n", {"label": "race"}, "label: .*data.items"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_gets_one_line(what, load, tmp_path):
    content, settings, message = HOSTILE[what]
    with pytest.raises(ValueError, match=f"^.*{message}.*$"):
        load(write(tmp_path / f"a.{'csv' if ',' in content else 'txt'}", content), **settings)


TUNES = "".join(f"X:{n}\nM:{'6/8' if n % 2 else '3/4'}\nK: {'DG'[n % 2]} \n|a{n}|\n\n" for n in range(20))
GENES = "".join(f">g{n} made up{' Homo' * (n % 2)} [{'cat' if n % 2 else 'big dog'}]\nAC{'GT' * n}\n" for n in range(20))
UNIPROT = GENES.replace("[", "OS=").replace("]", " OX=9 PE=1")
SMILES = "".join(f"C{'N' * n}\tmol {n % 2}\n" for n in range(20))
# A file, what is an item, its label, and the labels that are found.
COLOURS = "".join(f"{n} {'red' if n % 2 else 'blue'}\n" for n in range(9))
PAIRS = ('"P, E",0', '"P, E",1')
LABELS = {
    "a line of the item": ("a.abc", TUNES, "paragraph", "re:(?m)^K:(.*)", {"D", "G"}),
    "each line has a beginning": ("a.abc", TUNES, "paragraph", "re:^M:(.*)", {"3/4", "6/8"}),
    "a part of a line": ("a.txt", COLOURS, "line", r"re:(red|blue)$", {"red", "blue"}),
    "a field": ("a.csv", "n,x\n" + "".join(f"{n},a{n % 2}b{n}\n" for n in range(9)), "x", r"re:^(a\d)", {"a0", "a1"}),
    "header": ("a.fasta", GENES, "line", "header", {f"g{n}" for n in range(20)}),
    "word of a header": ("a.fasta", GENES, "line", "header[1]", {"made"}),
    "its last word": ("a.fasta", GENES, "line", "header[-1]", {"[cat]", "dog]"}),
    "organism, NCBI": ("a.fasta", GENES, "line", "organism", {"cat", "big dog"}),
    "organism, UniProt": ("a.fasta", UNIPROT, "line", "organism", {"cat", "big dog"}),
    "pattern in a header": ("a.fasta", GENES, "line", r"re:made (\w+)", {"up"}),
    "numbers": ("a.smi", SMILES, "1", "2", {"mol 0", "mol 1"}),
    "numbers, spaces": ("a.smi", SMILES.replace("\t", " "), "1", "2", {"mol 0", "mol 1"}),
    "numbers, commas": ("a.csv", SMILES.replace("\t", ","), "1", "2", {"mol 0", "mol 1"}),
    "two columns": ("a.csv", "a,b,x\n" + "".join(f'"P, E",{n % 2},n{n}\n' for n in range(9)), "x", "a,b", {*PAIRS}),
    "a column of that name": ("a.csv", "2,1\n" + SMILES.replace("\t", ","), "2", "1", {"mol 0", "mol 1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS)
def test_a_label_comes_from_where_it_is(name, tmp_path, load):
    file, content, items, label, labels = LABELS[name]
    corpus = load(write(tmp_path / file, content), items=items, label=label)
    assert corpus.items is not None and set(corpus.items.labels) == labels
    found, count = both(corpus), content.count({"paragraph": "X:", "line": "\n"}.get(items, "\n"))
    assert len(found) == corpus.items.items == count // (2 if file == "a.fasta" else 1) - (items in ("x", "2"))
    assert all("\t" not in text and text for _, text in found)
    assert file != "a.fasta" or "FASTA: the field 'sequence' of 20 records was read" in corpus.notes


FIRST = [("CO\nCN\nCC\n", "\t"), ("CO\tx\nCN\ty\nCC\tz\n", "\t"), ("CO x y\nCN\nCC\n" * 9, " ")]


@pytest.mark.parametrize("content, delimiter", FIRST)
def test_the_first_item_is_no_header_with_numbers(content, delimiter, tmp_path, load):
    assert recognise(Head(suffix=".smi", text=content, field="1")).delimiter == delimiter
    assert {item.text for item in both(load(write(tmp_path / "a.smi", content), items="1"))} == {"CO", "CN", "CC"}


@pytest.mark.parametrize("label", ["re:^(a", "re:^K:.*(?=x)", "re:^(?:a|b)"])
def test_a_wrong_pattern_is_one_line(label):
    with pytest.raises(ValueError, match="regular expression with a group"):
        DataConfig(items="line", label=label)


def test_labels_that_occur_once_are_warned_of_and_one_that_fasta_has_not_is_named(tmp_path, load):
    path = write(tmp_path / "a.fasta", GENES)
    for label, count in (("header", 1), ("organism", 0)):
        said = [str(notice) for notice in examine(load(path, items="line", label=label))]
        assert sum("20 of 20 labels occur once" in line for line in said) == count
    with pytest.raises(
        UserError, match=r"no field 'species', .* are: header, header\[1\], organism, seq.*, for example data.label=header"
    ):
        load(path, items="line", label="species")
