"""A text that is given twice is not learned twice, and never validates what was learned."""

import gzip
import io
import sys

import pytest
from text_helpers import text_of

from chargpt.terminal import UserError

SEA, STONE = "the sea and its own hours", "a stone under moving light"


@pytest.fixture
def folder(tmp_path):
    """A folder with two texts."""
    (tmp_path / "poems").mkdir()
    (tmp_path / "poems" / "sea.txt").write_text(SEA)
    (tmp_path / "poems" / "stone.txt").write_text(STONE)
    return tmp_path / "poems"


def other_name(kind, path, target):
    """Another name of `path`, or a copy of it."""
    if kind == "symlink":
        target.symlink_to(path)
    elif kind == "hard link":
        target.hardlink_to(path)
    elif kind == "copy":
        target.write_bytes(path.read_bytes())
    elif kind == "packed copy":
        target = target.with_suffix(".txt.gz")
        target.write_bytes(gzip.compress(path.read_bytes()))
    elif kind == "same name":
        return path
    return target


KINDS = ["same name", "symlink", "hard link", "copy", "packed copy"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_named_twice_is_an_error(kind, load, folder, tmp_path):
    again = other_name(kind, folder / "sea.txt", tmp_path / "again.txt")
    with pytest.raises(UserError, match=r"(sea|again)\.txt.*: the same text as .*sea\.txt; give it once") as error:
        load(folder / "sea.txt", again)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_text_found_twice_in_a_folder_is_read_once(kind, load, folder):
    first = load(folder)
    other_name(kind, folder / "sea.txt", folder / "zebra.txt")
    corpus = load(folder)
    assert corpus.fingerprint == first.fingerprint and text_of(corpus) == f"{SEA}\n{STONE}"
    assert "files that are the same as another file, read once: 1" in corpus.notes


def test_a_text_or_its_folder_named_again_is_read_once(load, folder):
    for again in (folder / "stone.txt", folder / ".." / "poems"):
        corpus = load(again, folder)
        assert {*text_of(corpus).splitlines()} == {STONE, SEA} and len(corpus.notes) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_text_cannot_validate(kind, load, folder, tmp_path):
    again = other_name(kind, folder / "sea.txt", tmp_path / "again.txt")
    with pytest.raises(UserError, match=r"data.val_text: .* is the training text as well; give another"):
        load(folder / "sea.txt", val_text=str(again))
    corpus = load(folder, val_text=str(again))
    assert corpus.tokenizer.decode(corpus.train) == STONE and corpus.tokenizer.decode(corpus.val) == SEA
    assert "files removed from the training text because they are validation text: 1" in corpus.notes


def test_standard_input_is_compared_as_well(load, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SEA.encode())))
    with pytest.raises(UserError, match="the same text as .*; give it once"):
        load(folder / "sea.txt", "-")
    with pytest.raises(UserError, match="-: standard input given twice; it can be read only once"):
        load("-", "-")


def test_texts_of_one_size_and_empty_files_are_different_texts(load, folder):
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("")
    (folder / "c.txt").write_text(SEA[::-1])
    assert not any("read once" in note for note in load(folder).notes)
    start = "x" * 100_000
    for name in "de":
        (folder / f"{name}.txt").write_text(start + name)
    assert not any("read once" in note for note in load(folder).notes)
