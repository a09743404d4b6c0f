"""Where texts come from: files, folders, pipes, archives, JSON lines, named corpora."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chargpt.config import DataConfig
from chargpt.terminal import UserError
from chargpt.text import sources as inputs
from chargpt.text.corpus import Corpus, load_corpus

ROOT = Path(__file__).parents[2]
TEXT = "the sea and the stone\n" * 20


@pytest.fixture
def load(tmp_path):
    """load_corpus with a cache of this test's own."""

    def load(*texts: Path | str, **changes: object) -> Corpus:
        config = DataConfig(**{"cache": str(tmp_path / ".cache"), "val_fraction": 0.5, **changes})
        return load_corpus([str(text) for text in texts], config, root=tmp_path, block_size=4)

    return load


def text_of(corpus: Corpus) -> str:
    return corpus.tokenizer.decode(corpus.train) + corpus.tokenizer.decode(corpus.val)


@pytest.mark.parametrize("name, pack", [("sea.txt.gz", gzip.compress), ("sea.xz", lzma.compress), ("sea.bz2", bz2.compress)])
def test_compressed_texts_read_like_plain_ones(name, pack, load, tmp_path):
    (tmp_path / name).write_bytes(pack(TEXT.encode()))
    (tmp_path / "plain.txt").write_text(TEXT)
    packed, plain = load(tmp_path / name), load(tmp_path / "plain.txt")
    assert text_of(packed) == TEXT and packed.fingerprint == plain.fingerprint and packed.name == "sea"
    (tmp_path / name).write_bytes(pack(TEXT.encode())[:-9])
    with pytest.raises(UserError, match=f"{name}: damaged or cut off .*; give a file that can be read"):
        load(tmp_path / name)


def test_zstd_where_there_is_a_library_and_a_line_on_what_is_missing_where_not(load, tmp_path):
    path = tmp_path / "sea.txt.zst"
    path.write_bytes(b"")
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            with pytest.raises(UserError, match="this Python reads no .zst; unpack it .*, or pip install backports.zstd"):
                load(path)
            return
    path.write_bytes(zstd.compress(TEXT.encode()) + zstd.compress(TEXT.encode()))
    assert text_of(load(path)) == TEXT * 2
    for damaged in (path.read_bytes()[:-5], path.read_bytes() + b"junk"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged or cut off"):
            load(path)


def test_a_folder_is_read_in_order_without_what_is_hidden_or_binary(load, tmp_path):
    folder = tmp_path / "poems"
    for name, content in {
        "b.txt": b"b" * 9, "a/z.txt": b"z" * 9, "a.txt.gz": gzip.compress(b"a" * 9), "empty.txt": b"", "notes.md": b"no",
        ".hidden.txt": b"no", ".git/c.txt": b"no", "picture.txt": b"\x89PNG\r\n\0", "data.txt": b"\0\1\2",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "loop").symlink_to(folder)
    corpus = load(folder, separator="-")
    assert text_of(corpus) == "zzzzzzzzz-aaaaaaaaa-bbbbbbbbb" and corpus.name == "poems"
    assert [line.split(maxsplit=1)[1] for line in corpus.describe()[3:]] == [
        "6 files",
        "hidden files and folders passed over: 2",
        "binary files passed over: 2",
    ]
    for binary in (folder / "another.txt", tmp_path / "binaries" / "a.txt"):
        binary.parent.mkdir(exist_ok=True)
        binary.write_bytes(b"\0")
    assert load(folder, separator="-").fingerprint == corpus.fingerprint, "what is passed over does not count"
    with pytest.raises(UserError, match="binaries.a.txt: binary files passed over: 1; give"):
        load(tmp_path / "binaries")


def test_a_folder_without_matches_names_the_pattern_that_would_match(load, tmp_path):
    for name in ("a.py", "b.py", "c.md"):
        (tmp_path / "code" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "code" / name).write_text("x = 1\n" * 10)
    with pytest.raises(UserError, match=r"code: none of its 3 files matches \*.txt, 2 match \*.py; add data.pattern='\*.py'"):
        load(tmp_path / "code")
    assert load(tmp_path / "code", pattern="*.py").characters == 121
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="an empty folder"):
        load(tmp_path / "nothing")


def test_several_texts_are_joined_by_the_separator(load, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name * 20)
    assert text_of(load(tmp_path / "a", tmp_path / "b")) == "a" * 20 + "\n" + "b" * 20
    assert text_of(load(tmp_path / "a", tmp_path / "b", separator=r"\x00é\n")) == "a" * 20 + "\0é\n" + "b" * 20
    assert text_of(load(tmp_path / "a", tmp_path / "b", separator="E", lowercase=True)) == "a" * 20 + "e" + "b" * 20
    bytes_corpus = load(tmp_path / "a", tmp_path / "b", separator="é", vocabulary="bytes", val_fraction=0.4)
    assert text_of(bytes_corpus) == "a" * 20 + "é" + "b" * 20


def test_standard_input_is_read_once_and_encoded_like_a_file(load, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    corpus = load("-")
    assert text_of(corpus) == TEXT and corpus.name == "stdin"
    (tmp_path / "sea.txt").write_text(TEXT)
    assert load(tmp_path / "sea.txt").fingerprint == corpus.fingerprint


def test_a_pipe_is_read_like_a_file(load, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[TEXT])
    writer.start()
    assert text_of(load(tmp_path / "pipe")) == TEXT
    writer.join()


def test_json_lines_take_the_field_named(load, tmp_path):
    records = [{"body": "one\nline\u2028"}, {"body": "two", "id": 5}, {"body": "é" * 20}]
    path = tmp_path / "all.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(json.dumps(record) for record in records).encode()))
    assert text_of(load(path, field="body")) == "one\nline\u2028\ntwo\n" + "é" * 20
    with pytest.raises(UserError, match="line 1: no field 'text', its fields are: body; name the one"):
        load(path)
    with pytest.raises(UserError, match="line 3: field 'id' holds a int"):
        path.write_bytes(gzip.compress(b'{"id": "a"}\n\n{"id": 5}'))
        load(path, field="id")


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: holds no JSON object"),
        ('{"text": "\\ud800"}', "line 2: half a surrogate pair"),
        ("[" * 10**5, "line 2: not JSON"),
    ],
    ids=["broken", "no object", "surrogate", "deep"],
)
def test_json_lines_errors_name_the_line(line, message, load, tmp_path):
    (tmp_path / "all.jsonl").write_text('{"text": "fine"}\n' + line)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "all.jsonl")


def test_json_lines_may_be_longer_than_a_chunk(load, tmp_path):
    texts = ["a" * 3_000_000, "海" * 1_000_000, "b" * 10]
    (tmp_path / "all.ndjson").write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert text_of(load(tmp_path / "all.ndjson")) == "\n".join(texts)


def test_a_name_that_is_nearly_right_gets_the_right_one(load, tmp_path):
    (tmp_path / "shakespeare.txt").write_text(TEXT)
    with pytest.raises(UserError, match="did you mean shakespeare"):
        load("shakespear")
    with pytest.raises(UserError, match=f"did you mean {tmp_path}/shakespeare.txt"):
        load(tmp_path / "shakspeare.txt")
    with pytest.raises(UserError, match="no such file or folder; give a text file, a folder, - for standard input, or one of"):
        load(tmp_path / "nowhere" / "x")


def test_the_default_is_the_documentation_every_python_carries(load):
    corpus = load()
    assert corpus.name == "python-docs" and "The standard type hierarchy" in text_of(corpus)
    assert corpus.fingerprint == load("python-docs").fingerprint


def test_the_standard_library_is_a_text(tmp_path):
    found = inputs.find(["python-source"], val_text="", pattern="*.txt", root=tmp_path, spool_folder=tmp_path)
    names = {source.path.name for source in found.train}
    assert {"argparse.py", "ast.py"} <= names and "test_argparse.py" not in names
    assert all("site-packages" not in source.path.parts for source in found.train)


def test_shakespeare_is_taken_from_data_and_nothing_else_for_it(load, tmp_path, corpora):
    content = (corpora / "shakespeare.txt").read_bytes()
    assert hashlib.sha256(content).hexdigest() == inputs.SHAKESPEARE_SHA256
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shakespeare.txt").write_bytes(content)
    assert load("shakespeare").characters == 1_115_394
    (tmp_path / "data" / "shakespeare.txt").write_bytes(content[:-1])
    with pytest.raises(UserError, match="not the Shakespeare text, by its SHA-256; delete it, and it is fetched again"):
        load("shakespeare")


def test_without_a_network_shakespeare_says_where_to_put_the_file(tmp_path):
    code = f"""
from pathlib import Path
from chargpt.text import sources as inputs
folder = Path({str(tmp_path)!r})
inputs.find(["shakespeare"], val_text="", pattern="", root=folder, spool_folder=folder)
"""
    environment = {"https_proxy": "http://127.0.0.1:1"}  # a port where nobody answers
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert f"put that file at {tmp_path}/data/shakespeare.txt" in result.stderr and not list(tmp_path.iterdir())
