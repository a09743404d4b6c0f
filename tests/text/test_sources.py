"""Which files a TEXT argument means: files, folders, standard input, pipes, named corpora; and that none is learned twice."""

import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.config import DataConfig
from chargpt.errors import NoSpace, UserError
from chargpt.formatting import shown
from chargpt.notices import Kind
from chargpt.project import STATE
from chargpt.text import corpora, sources
from chargpt.text.corpora import named_corpus
from chargpt.text.sources import select_sources

TEXT = "the sea and the stone\n" * 20


def test_a_folder_is_read_in_order_without_what_is_hidden_or_binary(load, tmp_path):
    folder = tmp_path / "poems"
    for name, content in {
        "b.txt": b"b" * 9, "a/z.txt": b"z" * 9, "a.txt.gz": gzip.compress(b"a" * 9), "empty.txt": b"", "notes.md": b"no",
        ".hidden.txt": b"no", ".git/c.txt": b"no", "picture.txt": b"\x89PNG\r\n\0", "data.txt": b"\0\1\2",
    }.items():  # fmt: skip
        write(folder / name, content)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.txt")
    corpus = load(folder, separator="-")
    assert text_of(corpus) == "zzzzzzzzz-aaaaaaaaa-bbbbbbbbb" and corpus.name == "poems"
    assert corpus.notes == ["6 files", "hidden files and folders skipped: 2", "binary files skipped: 2"]
    for binary in (folder / "another.txt", tmp_path / "binaries" / "a.txt"):
        write(binary, b"\0")
    assert load(folder, separator="-").fingerprint == corpus.fingerprint, "what is skipped does not count"
    with pytest.raises(UserError, match="binaries.a.txt: no text in it .binary files skipped: 1.; give"):
        load(tmp_path / "binaries")


def test_the_case_of_a_name_does_not_matter(load, tmp_path):
    for name in ["A.TXT", "B.Txt.GZ", "c.txt", "D.MD", "e.md", "f.md", "g.py"]:
        write(tmp_path / "poems" / name, gzip.compress(b"the sea") if name.endswith("GZ") else name * 9)
    corpus = load(tmp_path / "poems")
    assert corpus.notes[0] == "3 files"
    assert [str(line).partition(":")[0].rpartition(os.sep)[2] for line in corpus.left_out] == ["D.MD and 2 more", "g.py"]
    assert load(tmp_path / "poems", pattern="*.TXT").fingerprint == corpus.fingerprint
    assert load(tmp_path / "poems", pattern="*.Md").notes[0] == "3 files"


def test_standard_input_and_a_pipe_are_read_once_and_encoded_like_a_file(load, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    corpus = load("-")
    assert text_of(corpus) == TEXT and corpus.name == "stdin"
    (tmp_path / "sea.txt").write_text(TEXT)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[TEXT])
    writer.start()
    assert load(tmp_path / "sea.txt").fingerprint == load(tmp_path / "pipe").fingerprint == corpus.fingerprint
    writer.join()


WRONG = {  # a TEXT, and what is said of it
    "code": r"code: none of its 3 files matches \*.txt; code.a.py and 1 more: to read these, add data.pattern='\*.py'",
    "papers": r"papers: none of its 1 files matches \*.txt; papers.*pdf: a PDF, not .* pdftotext .*a.pdf a.txt",
    "nothing": "an empty folder",
    "shakespear": "did you mean shakespeare?",
    "poems/shakspeare.txt": "did you mean .*poems/shakespeare.txt",
    "nowhere/x": "no such file or folder; give a text file, a folder, - for standard input, or one of",
    "poems/loop.txt": "loop.txt: a link to a file that does not exist, or to itself",
    "/dev/zero": "/dev/zero: a device or a socket, not a text; give a file, a folder or a pipe",
    "out": "a checkpoint of nanoGPT; make a run of it with python .* import out --run NAME",
    "out/ckpt.pt": "a checkpoint of nanoGPT; make a run of it with python .* import out --run NAME",
    "-": "-: standard input given twice; it can be read only once",
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name in ("code/a.py", "code/b.py", "code/c.md", "papers/a.pdf", "poems/shakespeare.txt", "out/ckpt.pt", "nothing/.a"):
        write(tmp_path / name, f"%PDF- {name} {TEXT}" if name.endswith("pdf") else f"{name[5]} = {TEXT}")
    (tmp_path / "poems" / "loop.txt").symlink_to("loop.txt")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_text_is_one_line_that_says_what_to_do(text, files, load):
    with pytest.raises(UserError, match=f"^.*{WRONG[text]}.*$"):
        load(*[text] * (1 + (text == "-")))


def test_the_advice_for_a_folder_works_and_a_broken_link_in_it_is_skipped(files, load):
    assert load("code", pattern="*.py").characters == 2 * (len(TEXT) + 4) + 1
    corpus = load("poems")
    assert text_of(corpus).endswith(TEXT) and corpus.notes == ["broken links skipped: 1"]


def test_a_stream_without_end_does_not_fill_the_disk(load, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=20_000_000))
    with open("/dev/zero", "rb") as zeros:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=zeros))
        with pytest.raises(NoSpace, match="input: more than 10,000,000 bytes, which is half of .*; set data.cache"):
            load("-")


def test_runs_are_no_texts(load, tmp_path):
    poems, step = tmp_path / "all" / "poems", "step-00000010"
    for name in ("details.txt", f"{step}/{STATE}", f"{step}/notes.md"):
        write(poems / name, TEXT)
    (tmp_path / "all" / "a.txt").write_text(TEXT)
    for folder in (poems, tmp_path / "all"):
        with pytest.raises(UserError, match="poems is a run, whose files are not text; give a folder without runs"):
            load(folder)
    (poems / "details.txt").rename(tmp_path / "all" / "b.txt")
    assert load(tmp_path / "all").characters == len(TEXT)  # nothing of the run matches


SEA, STONE = "the sea and its own hours", "a stone under moving light"


@pytest.fixture
def folder(tmp_path):
    """A folder with two texts."""
    write(tmp_path / "poems" / "sea.txt", SEA)
    return write(tmp_path / "poems" / "stone.txt", STONE).parent


NAMES = {  # of a path
    "same": lambda path, target: path,
    "symlink": lambda path, target: target.symlink_to(path) or target,
    "hard link": lambda path, target: target.hardlink_to(path) or target,
    "packed copy": lambda path, target: write(target.with_suffix(".txt.gz"), gzip.compress(path.read_bytes())),
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_text_is_given_once_and_does_not_validate_itself(kind, load, folder, tmp_path):
    again = NAMES[kind](folder / "sea.txt", tmp_path / "again.txt")
    with pytest.raises(UserError, match=r"^(.*(sea|again)\.txt.*): the same text as .*sea\.txt; give it once$"):
        load(folder / "sea.txt", again)
    with pytest.raises(UserError, match=r"data.val_text: .* is the training text as well; give another"):
        load(folder / "sea.txt", val_text=str(again))
    corpus = load(folder, val_text=str(again))
    assert corpus.tokenizer.decode(corpus.train) == STONE and corpus.tokenizer.decode(corpus.val) == SEA


CONTENTS = st.lists(st.tuples(st.sampled_from([SEA, STONE, SEA[::-1], ""]), st.booleans()), max_size=5)


@given(CONTENTS.filter(bool), CONTENTS)
def test_of_equal_files_one_is_read_and_what_validates_is_not_trained_on(tmp_path, train, val):
    """Packed or not; empty files are no copies of each other."""
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    for folder, files in (("train", train), ("val", val)):
        for n, (text, is_packed) in enumerate(files):
            content = gzip.compress(text.encode(), mtime=n) if is_packed else text.encode()
            write(root / folder / f"{n}.txt{'.gz' * is_packed}", content)
    config, kept = DataConfig(val_text=str(root / "val") if val else ""), list[list[str]]()
    given = [[text for text, _ in files] for files in (val, train)]
    for texts in given:
        kept.append([one for n, one in enumerate(texts) if not one or one not in sum(kept, texts[:n])])
    if not kept[1]:
        with pytest.raises(UserError, match="is the training text as well; give another, or use data.val_fraction"):
            select_sources([str(root / "train")], config, root=root)
        return
    found = select_sources([str(root / "train")], config, root=root)
    assert [[b"".join(one.chunks(9)).decode() for one in some] for some in (found.val, found.train)] == kept
    count, held_out = sum(map(len, kept)), sum(text in given[0] for text in given[1] if text)
    again = sum(map(len, given)) - count - held_out
    notes = [f"{count} files"] * (count > 1)
    notes += [f"files removed from the training text because they are validation text: {held_out}"] * bool(held_out)
    said = [re.sub(r" \(.*\)", "", note) for note in found.notes]
    assert sorted(said) == sorted([*notes, *[f"files that are the same as another file, read once: {again}"] * bool(again)])


WORD = b"PK\x03\x04" + bytes(9)
LEFT_OUT = {  # files of a folder besides a text, and what is said of each kind
    "one Word document": ({"a.docx": WORD}, ["a.docx: a Word document, not text; .*pandoc"]),
    "a lock of Word is hidden": ({"~$a.docx": WORD, ".DS_Store": b"x"}, []),
    "each kind gets its line, the most frequent first": (
        {"a.docx": WORD, "b/b.DOCX": WORD, "c.rtf": b"{\\rtf1", "x.md": b"text", "y.md": b"text", "z.md": b"text"},
        [
            "x.md and 2 more: to read these too, add data.pattern='?\\*.txt,\\*.md",
            "a.docx and 1 more: a Word",
            "c.rtf: rich text",
        ],
    ),
    "without an ending": ({"README": b"text"}, ["README: to read such a file, give its path"]),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_a_folder_leaves_out_is_told_with_the_way_in(case, load, tmp_path):
    files, lines = LEFT_OUT[case]
    for name, content in (files | {"text.txt": TEXT.encode()}).items():
        write(tmp_path / "book" / name, content)
    corpus = load(tmp_path / "book")
    said = [str(one.text) for one in corpus.describe() if one.kind is Kind.LEFT_OUT]
    assert len(said) == len(lines) and all(re.search(line, one) for line, one in zip(lines, said)), said


@given(st.integers(0, 60), st.integers(12, 60), st.booleans())
def test_a_draft_of_another_file_is_named_and_two_chapters_are_not(tmp_path, changed, length, is_packed):
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    lines = [f"line {n} of the first chapter" for n in range(length)]
    draft = [f"another line {n} instead" if n < changed else line for n, line in enumerate(lines)]
    write(root / "b.txt", "\n".join(lines).encode())
    write(
        root / f"c.txt{'.gz' * is_packed}", gzip.compress("\n".join(draft).encode()) if is_packed else "\n".join(draft).encode()
    )
    write(root / "a.txt", b"the other chapter\n" * 40)
    said = list(map(str, sources.twins(select_sources([str(root)], DataConfig(), root=root).train)))
    shares = sum(line in lines for line in draft) / length
    assert [f"{shares:.0%} of its lines are those of {shown(root / 'b.txt')}" in one for one in said] == [True] * (
        0.6 < shares < 1 and not is_packed
    )


def test_a_text_or_its_folder_named_again_is_read_once_and_standard_input_is_compared(load, folder, monkeypatch):
    for again in (folder / "stone.txt", folder / ".." / "poems"):
        corpus = load(again, folder)
        assert {*text_of(corpus).splitlines()} == {STONE, SEA} and len(corpus.notes) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SEA.encode())))
    with pytest.raises(UserError, match="the same text as .*; give it once"):
        load(folder / "sea.txt", "-")


def test_texts_of_one_size_and_empty_files_are_different_texts(load, folder):
    start = "x" * 2**20
    for name, content in {"a": "", "b": "", "c": SEA[::-1], "d": start + "d", "e": start + "e"}.items():
        write(folder / f"{name}.txt", content)
    assert not any("read once" in note for note in load(folder).notes)


def test_python_brings_two_texts(load, tmp_path):
    corpus = load()
    assert corpus.name == "python-docs" and "The standard type hierarchy" in text_of(corpus)
    assert corpus.fingerprint == load("python-docs").fingerprint
    found = [source.path for source in named_corpus("python-source", root=tmp_path)]
    names = {path.name for path in found}
    assert {"argparse.py", "ast.py"} <= names and "test_argparse.py" not in names
    assert all("site-packages" not in path.parts for path in found)


def test_a_download_is_checked_and_saved_or_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "answer").write_bytes(b"the sea")
    for url, reason in (
        ("http://127.0.0.1:1/", "the download failed, .*offline: .*"),
        ((tmp_path / "nothing").as_uri(), "the download failed, .*: .*No such file.*"),
        ((tmp_path / "answer").as_uri(), "answer gave another text, by its SHA-256"),
    ):
        monkeypatch.setattr(corpora, "SHAKESPEARE_URL", url)
        with pytest.raises(UserError, match=f"^shakespeare: .*{reason}; download .*, and save it as .*shakespeare.txt$"):
            named_corpus("shakespeare", root=tmp_path)
    with monkeypatch.context() as slow, pytest.raises(UserError, match="^shakespeare: the download .*: timed out; download "):
        slow.setattr("urllib.request.urlopen", Mock(side_effect=TimeoutError("timed out")))
        named_corpus("shakespeare", root=tmp_path)
    assert not (tmp_path / "data").exists()
    monkeypatch.setattr(corpora, "SHAKESPEARE_SHA256", hashlib.sha256(b"the sea").hexdigest())
    (tmp_path / "data").write_text("a file in place of the folder")
    with pytest.raises(UserError, match="shakespeare: .*data: File exists; download "):
        named_corpus("shakespeare", root=tmp_path)
    (tmp_path / "data").unlink()
    (source,) = named_corpus("shakespeare", root=tmp_path)
    assert source.path.read_bytes() == b"the sea" and list((tmp_path / "data").iterdir()) == [source.path]
    source.path.write_bytes(b"a stone")
    with pytest.raises(UserError, match="shakespeare: .*shakespeare.txt is another text, by its SHA-256: delete it"):
        named_corpus("shakespeare", root=tmp_path)


def test_several_patterns_choose_files(tmp_path):
    for name in ("a.md", "b.TXT", "c.py"):
        write(tmp_path / name, name)
    for pattern, count in (("*.md,*.txt", 2), ("*.md , c.*", 2), ("*.py", 1)):
        assert len(select_sources([str(tmp_path)], DataConfig(pattern=pattern), root=tmp_path).train) == count
