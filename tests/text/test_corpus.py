"""A corpus: its fingerprint, its parts, its vocabulary, and errors that say what to do."""

import io
import itertools
import os
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.config import Config, DataConfig
from chargpt.errors import UserError
from chargpt.screen import notice_line
from chargpt.text.corpus import Corpus, absolute_paths, cached_corpus
from chargpt.text.document import TRAIN, VAL
from chargpt.text.ids import BLOCKS, _in_stretches, split_of
from chargpt.text.tokenizer import UnknownCharacters

UNFIT = {  # a text, settings, and what is said of it with a context of 64
    "empty": ("a.txt", "", {}, "a.txt: empty; give"),
    "one character": ("a.txt", "a", {}, "with 0 characters .* needs 65 for training and 2 for validation: give"),
    "too short": ("a.txt", "abcdefghi" * 9, {}, "with 40 characters .* 41 .*size=64 .* set .*size=39 or less, or"),
    "a short poem": ("a.txt", "a" * 300, {"val_fraction": 0.9}, "65 for training: set model.block_size=28 or less, or give"),
    "one document": ("a.txt", "the sea" * 99, {"split": "document"}, "and 2 for validation: set data.split=position, or give"),
    "one record": ("a.jsonl", '{"text": "the sea and the stone"}', {"split": "document"}, "set data.split=position, or give"),
    "short ones": ("a.jsonl", '{"text": "the sea"}\n{"text": "b"}', {"split": "document"}, "7 char.*data.split=position"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_a_text_that_is_too_short_says_in_one_line_what_to_do(case, load, tmp_path):
    name, content, settings, message = UNFIT[case]
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        load(write(tmp_path / name, content), block_size=64, **settings)


def test_the_advice_given_for_a_short_poem_works(load, tmp_path):
    (tmp_path / "poem.txt").write_text("a" * 300)
    for block_size, fraction, known in ((64, 0.78, ""), (28, 0.9, ""), (64, 0.1, ""), (400, 0.1, "ab")):
        load(tmp_path / "poem.txt", block_size=block_size, val_fraction=fraction, known=known)  # "ab": a start has a context


def test_more_characters_than_a_language_has_are_refused_with_the_setting(load, tmp_path, monkeypatch):
    monkeypatch.setattr("chargpt.text.corpus.MAX_VOCAB", 100)
    with pytest.raises(UserError, match="101 distinct characters are more than any language has, .*; add data.max_vocab=10000"):
        load(write(tmp_path / "a.txt", "".join(map(chr, range(0x4E00, 0x4E00 + 101)))))
    assert load(tmp_path / "a.txt", max_vocab=50).tokenizer.vocab_size == 50


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_are_folded_with_a_note_unless_they_are_to_stay(end, load, tmp_path):
    lines = "the sea\nand the stone\n" * 5
    (tmp_path / "text.txt").write_text(lines.replace("\n", end), newline="")
    corpus, plain = load(tmp_path / "text.txt"), load(write(tmp_path / "plain.txt", lines))
    assert text_of(corpus) == text_of(plain) == lines and "\r" not in corpus.tokenizer.characters
    assert [note for note in corpus.notes if "set data.newlines=keep" in note] and not plain.notes
    assert plain.fingerprint == load(tmp_path / "plain.txt", newlines="keep").fingerprint, "as before line ends were folded"
    assert corpus.tokenizer.encode(f"sea{end}").tolist() == plain.tokenizer.encode("sea\n").tolist()
    again = load(tmp_path / "text.txt", tokenizer=corpus.tokenizer)
    assert again.fingerprint == corpus.fingerprint, "a resumed run"
    assert text_of(load(tmp_path / "text.txt", tokenizer=plain.tokenizer)) == lines, "the vocabulary of a text without \\r"
    assert load(tmp_path / "plain.txt", tokenizer=plain.tokenizer).fingerprint == plain.fingerprint
    for changes in ({"newlines": "keep"}, {"vocabulary": "bytes"}):
        assert text_of(load(tmp_path / "text.txt", **changes)) == lines.replace("\n", end)


def test_a_corpus_records_where_its_text_is_and_its_name_cannot_control_the_terminal(load, tmp_path, monkeypatch):
    write(tmp_path / "texts" / "sea.txt", "the sea and the stone")
    monkeypatch.chdir(tmp_path)
    corpus = load("texts/sea.txt", "texts")
    assert corpus.texts == [str(tmp_path / "texts" / "sea.txt"), str(tmp_path / "texts")] and corpus.name == "sea"
    assert load("python-docs").texts == ["python-docs"] and load().texts == []
    path = write(tmp_path / "a\x1b[31m\u202eb.txt", "the sea and the stone")
    assert all(notice_line(*notice[:2]).isprintable() for notice in load(path).describe())


def test_a_text_edited_during_a_run_does_not_touch_the_run_but_its_resumption(load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the sea and the stone")
    corpus = load(path)
    path.write_text("THE SEA AND THE STORE")
    assert text_of(corpus) == "the sea and the stone"
    with pytest.raises(UnknownCharacters, match="text.txt: characters that the model has never seen: 'A'"):
        load(path, tokenizer=corpus.tokenizer)
    path.write_text("the stone and the sea")
    assert load(path, tokenizer=corpus.tokenizer).fingerprint != corpus.fingerprint
    path.unlink()
    config = DataConfig(cache=str(tmp_path / ".cache"))
    again = cached_corpus(corpus.texts, config, corpus.tokenizer, root=tmp_path, fingerprint=corpus.fingerprint)
    assert (again.name, again.texts) == ("text", [str(path)]) and text_of(again) == "the sea and the stone"


def test_a_text_from_standard_input_is_found_again_by_its_fingerprint_alone(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the sea and the stone")))
    corpus = load("-", cache="elsewhere")
    saved = absolute_paths(Config(data=DataConfig(cache="elsewhere", val_text="stone.txt"))).data
    assert saved.cache == str(tmp_path / "elsewhere") and saved.val_text == "stone.txt"
    monkeypatch.chdir("/")
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for ever

    def again(text: str = "-", config: DataConfig = saved, fingerprint: str = corpus.fingerprint) -> Corpus | None:
        return cached_corpus([text], config, corpus.tokenizer, root=tmp_path, fingerprint=fingerprint)

    assert text_of(again()) == "the sea and the stone" and (again().name, again().texts) == ("stdin", ["-"])
    assert again(str(tmp_path / "pipe")).name == "pipe"
    assert again(config=DataConfig()) is again(fingerprint="0" * 64) is again(fingerprint=f"../{corpus.fingerprint}") is None
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "data" / "cache")  # the default is searched as well
    assert again().fingerprint == corpus.fingerprint


def test_settings_that_mean_nothing_are_errors():
    for wrong, message in (
        ({"split": "document", "val_text": "x"}, "split: 'document' given; use position, because data.val_text"),
        ({"split": "blocks", "shuffle": "lines"}, "shuffle: 'lines' given; use none, because"),
        ({"vocabulary": "bytes", "max_vocab": 50}, "vocabulary: 'bytes' given; use characters, because min_count"),
        ({"separator": "\\"}, "separator: .* given; use text, with"),
        ({"encoding": "utf-88"}, "encoding: 'utf-88' given; use a text encoding that Python knows"),
        ({"min_count": 0}, "min_count: 0 given"),
    ):
        with pytest.raises(ValueError, match=message):
            DataConfig(**wrong)


def test_a_validation_text_given_is_all_that_validates(load, tmp_path):
    for name in ("a", "b", "held"):
        (tmp_path / f"{name}.txt").write_text(f"the {name} text and more")
    corpus = load(tmp_path / "a.txt", tmp_path / "b.txt", val_text=str(tmp_path / "held.txt"))
    assert corpus.tokenizer.decode(corpus.train) == "the a text and more\nthe b text and more"
    assert corpus.tokenizer.decode(corpus.val) == "the held text and more"
    folder = load(tmp_path, val_text=str(tmp_path / "held.txt"))
    assert np.array_equal(folder.train, corpus.train) and any("they are validation text: 1" in note for note in folder.notes)
    with pytest.raises(UserError, match="is the training text as well"):
        load(tmp_path / "held.txt", val_text=str(tmp_path / "held.txt"))


@given(st.integers(0, 9000), st.floats(0.01, 0.99), st.sampled_from(["blocks", "position", "document"]), st.integers(1, 3000))
def test_each_stretch_of_a_text_goes_to_its_split_however_the_text_is_cut(length, fraction, how, size):
    """What was added since goes to the training split, and what only validates is all for validation."""
    split = split_of(length, DataConfig(split=how, val_fraction=fraction))
    assert all(size > 0 for size, _ in split.stretches) and length == sum(map(split.size, (TRAIN, VAL, None)))
    assert abs(split.size(VAL) - fraction * length * (how != "document")) < 2 + BLOCKS * (how == "blocks")
    numbers = np.arange(length + 7, dtype=np.uint32)
    pieces = [(TRAIN, numbers[at : at + size].data) for at in range(0, len(numbers), size)]
    found: dict[int, list[int]] = {TRAIN: [], VAL: []}
    for part, ids in _in_stretches([*pieces[:1], (VAL, numbers[:5].data), *pieces[1:]], split):
        found[part] += ids.tolist()
    own = [*itertools.chain(*([part] * size for size, part in split.stretches)), *[TRAIN] * 7]
    assert found[TRAIN] == [n for n in numbers.tolist() if own[n] == TRAIN]
    assert sorted(found[VAL]) == sorted([*range(5), *(n for n, part in enumerate(own) if part == VAL)])


def test_what_is_left_out_beside_blocks_is_told(load, tmp_path):
    corpus = load(write(tmp_path / "text.txt", "the sea and\n" * 300), split="blocks")
    assert (
        f"{3600 - corpus.characters:,} characters next to these are not used" in corpus.notes[-1] and corpus.characters < 3600
    )
    assert load(tmp_path / "text.txt").fingerprint != corpus.fingerprint


def test_a_folder_of_many_files_is_split_by_whole_files_and_other_texts_at_their_end(load, tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text(chr(0x4E00 + number) * 100, encoding="utf-8")
    corpus = load(tmp_path, separator="", val_fraction=0.1)
    assert not {*corpus.tokenizer.decode(corpus.train)} & {*corpus.tokenizer.decode(corpus.val)} and len(corpus.val) == 200
    assert any("data.split=position" in str(note) for note in corpus.notes)
    assert corpus.fingerprint == load(tmp_path, separator="", val_fraction=0.1, split="document").fingerprint

    def is_at_the_end(*texts) -> bool:
        auto, position = (load(*texts, val_fraction=0.1, split=split) for split in ("auto", "position"))
        return auto.fingerprint == position.fingerprint

    assert is_at_the_end(*sorted(tmp_path.glob("*.txt"))) and not is_at_the_end(tmp_path), "files that were named"
    (tmp_path / "05.txt").write_text("a" * 1000)
    assert is_at_the_end(tmp_path), "one of them is larger than the validation split"
    for number in range(6):
        (tmp_path / f"{number:02}.txt").unlink()
    assert is_at_the_end(tmp_path), "few files"


@hypothesis_settings(max_examples=10)
@given(st.text("abc\r\n\u00e9\u4e00", min_size=40), st.text("axyz\u00e8\u4e8c"), st.sampled_from(["position", "blocks"]))
def test_a_vocabulary_grows_as_if_the_text_had_been_read_again(load, tmp_path, text, known, split):
    path = write(tmp_path / "a.txt", text)
    corpus = load(path, split=split)
    grown = corpus.knowing(known)
    assert grown.facts == corpus.facts
    (again := tmp_path / "again").mkdir(exist_ok=True)
    read = load(path, split=split, known=known, cache=str(again))
    for name in ("fingerprint", "tokenizer", "distinct", "name", "texts", "notes", "facts"):
        assert getattr(grown, name) == getattr(read, name), name
    for name in ("train", "val", "counts"):
        assert getattr(grown, name).tobytes() == getattr(read, name).tobytes(), name


@pytest.mark.parametrize("change", [{"vocabulary": "bytes"}, {"max_vocab": 2}])
def test_a_text_of_bytes_or_with_folded_characters_is_to_be_read_again(load, tmp_path, change):
    assert load(write(tmp_path / "a.txt", "abcd" * 20), **change).knowing("xyz") is None
