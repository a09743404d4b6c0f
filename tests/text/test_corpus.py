"""A text becomes ids that mean it exactly, or an error that says what to do; whatever happens meanwhile."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.terminal import UserError
from chargpt.text.cache import Cache
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.text.tokenizer import FOLDED, Tokenizer, UnknownCharacters

ROOT = Path(__file__).parents[2]
BLOCK = 4


@pytest.fixture
def load(tmp_path):
    """load_corpus for files in a folder of this test's own."""

    def load(*texts: Path | str, block_size: int = BLOCK, tokenizer: Tokenizer | None = None, **changes: object) -> Corpus:
        config = DataConfig(**{"cache": str(tmp_path / "cache"), "val_fraction": 0.5, **changes})
        return load_corpus([str(text) for text in texts], config, root=tmp_path, block_size=block_size, tokenizer=tokenizer)

    return load


def text_of(corpus: Corpus) -> str:
    return corpus.tokenizer.decode(corpus.train) + corpus.tokenizer.decode(corpus.val)


def aged(path: Path, content: bytes | str | None = None) -> Path:
    """`path`, holding `content`, as if it had been written a while ago: its times can be trusted (see Source.signature)."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    while time.time_ns() - path.stat().st_ctime_ns < 2_100_000_000:
        time.sleep(0.1)
    return path


def encodings_in(cache: Path) -> list[Path]:
    return [entry for entry in cache.iterdir() if entry.is_dir() and entry.name not in ("seen", "partial")]


# What a text may be


MANY = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x1_3000)]))
TRAINS = {
    "one character repeated": "a" * 100,
    "just long enough for both parts": "ab" * 5,
    "no line end at the end": "the sea\nthe stone",
    "CRLF": "the sea\r\nthe stone\r\n",
    "lone CR": "the sea\rthe stone\r",
    "NUL bytes": "the\0sea and\0stone",
    "other line ends": "sea\u2028and\u2029stone\x85\x0b\x0c\x1c",
    "a mark in the middle": "sea and\ufeff stone",
    "all planes": "sea 海 🌊 \U0010fffd é e\u0301",
    "more than 2^16 characters": MANY,
}


@pytest.mark.parametrize("content", TRAINS.values(), ids=TRAINS.keys())
def test_ids_mean_the_text_byte_for_byte(content, load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(content.encode())
    corpus = load(path)
    assert text_of(corpus).encode() == path.read_bytes()
    assert corpus.tokenizer.characters == "".join(sorted(set(content)))
    assert len(corpus.train) == len(content) // 2 and corpus.characters == len(content)
    assert corpus.train.dtype == corpus.val.dtype == corpus.tokenizer.dtype and corpus.name == "text"
    assert corpus.counts.tolist() == [content.count(c) for c in sorted(set(content))] or len(set(content)) > 1000
    bytes_corpus = load(path, vocabulary="bytes")
    assert bytes(bytes_corpus.train) + bytes(bytes_corpus.val) == path.read_bytes()


FAILS = {
    "empty": (b"", "text.txt: empty; give"),
    "one character": (b"a", "text: 0 characters to learn from and 1 to validate; .* needs 5 of each: give a longer text"),
    "too short": (b"abcdefghi", "text: 4 characters to learn from and 5 to validate; model.block_size=4 .*block_size=3"),
    "Latin-1": (
        "Un été\nà la mer\n".encode("latin-1"),
        r"text.txt: byte 3 \(line 1\) is not utf-8; it reads as cp1252, so add data.encoding=cp1252",
    ),
    "Latin-1 further on": (
        b"The sea\n" * 200_000 + "où\n".encode("latin-1"),
        r"byte 1,600,001 \(line 200,001\) is not utf-8; it reads as cp1252",
    ),
    "a few words of Latin-1": ("Un été\n".encode("latin-1"), "add data.encoding=cp1252"),
    "Polish": (
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności\n".encode("cp1250"),
        "add data.encoding=cp1250",
    ),
    "Greek": ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι\n".encode("cp1253"), "add data.encoding=cp1253"),
    "GB 18030": ("春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。\n".encode("gb18030"), "add data.encoding=gb18030"),
    "Shift JIS": ("吾輩は猫である。名前はまだ無い。\n".encode("shift_jis"), "add data.encoding=shift_jis"),
    "KOI8": ("Все счастливые семьи похожи друг на друга\n".encode("koi8_r"), "add data.encoding=koi8_r"),
    "cp1251": ("Все счастливые семьи похожи друг на друга\n".encode("cp1251"), "add data.encoding=cp1251"),
    "UTF-16 without a mark": ("Un été à la mer\n".encode("utf-16-le"), "add data.encoding=utf-16-le"),
    "cut within a character": ("the sea 海".encode()[:-1], r"byte 8 \(line 1\) is not utf-8"),
    "a PDF": (b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "a PDF, not text; take its text out first"),
    "a Word document": (b"PK\x03\x04\x14\0\x06\0", "save it as plain text"),
    "a program": (b"\x7fELF\x02\x01\0\0\xff", "a program"),
    "random bytes": (np.random.default_rng(0).bytes(5000), "NUL bytes, so this seems to be no text"),
}


@pytest.mark.parametrize("content, message", FAILS.values(), ids=FAILS.keys())
def test_what_cannot_be_learned_from_says_in_a_line_what_to_do(content, message, load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load(path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "cache" / "partial").exists()


def test_the_advice_given_for_a_short_poem_works(load, tmp_path):
    (tmp_path / "poem.txt").write_text("a" * 300)
    with pytest.raises(UserError, match="set data.val_fraction=0.22, or set model.block_size=29 or less"):
        load(tmp_path / "poem.txt", block_size=64, val_fraction=0.1)
    load(tmp_path / "poem.txt", block_size=64, val_fraction=0.22)
    load(tmp_path / "poem.txt", block_size=29, val_fraction=0.1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_honoured_and_said(encoding, load, tmp_path):
    (tmp_path / "text.txt").write_text("Un été à la mer 🌊", encoding=encoding)
    corpus = load(tmp_path / "text.txt")
    assert text_of(corpus) == "Un été à la mer 🌊"
    assert any("by the byte-order mark" in line for line in corpus.describe())


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-be", "utf-16", "gb18030"])
def test_an_encoding_can_be_named(encoding, load, tmp_path):
    content = ("Un été à la mer\n" if encoding != "gb18030" else "春眠不觉晓，处处闻啼鸟。") * 100_000
    (tmp_path / "text.txt").write_bytes(content.encode(encoding))
    assert text_of(load(tmp_path / "text.txt", encoding=encoding)) == content


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=20))
def test_any_text_at_all(load, tmp_path, text):
    if text.startswith("\ufeff") or text.encode()[:4] in (b"PK\x03\x04", b"%PDF"):
        text = "." + text
    (tmp_path / "text.txt").write_bytes(text.encode())
    corpus = load(tmp_path / "text.txt")
    assert text_of(corpus) == text and corpus.train.max() < corpus.tokenizer.vocab_size
    assert corpus.tokenizer.encode(text).tolist() == [*corpus.train, *corpus.val]


DOORS = [{"newlines": "fold"}, {"normalize": "NFC"}, {"normalize": "NFKC", "lowercase": True}]


@pytest.mark.parametrize("door", DOORS, ids=str)
def test_prompts_pass_the_same_door_as_megabytes_did(door, load, tmp_path):
    content = "Cafe\u0301 ΟΔΟΣ\r\nﬁn\rか\u3099行\n" * 100_000
    (tmp_path / "text.txt").write_bytes(content.encode())
    corpus = load(tmp_path / "text.txt", **door)
    assert [*corpus.train, *corpus.val] == corpus.tokenizer.encode(content).tolist()
    assert text_of(corpus) == corpus.tokenizer.door.apply(content) != content


# Memory


MEASURE = """
import re, sys
from pathlib import Path
import torch
from chargpt.config import DataConfig
from chargpt.text.corpus import load_corpus
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024
Path("/proc/self/clear_refs").write_text("5")  # what the imports needed for a moment does not count
before = peak()
corpus = load_corpus([sys.argv[1]], DataConfig(cache=sys.argv[2]), root=Path("."), block_size=64)
print(peak() - before, corpus.characters)
"""


def memory_to_encode(path: Path, cache: Path) -> tuple[int, int]:
    """Bytes above what the imports take, at the peak, and the characters encoded."""
    output = subprocess.run(
        [sys.executable, "-c", MEASURE, path, cache], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    peak, characters = output.split()
    return int(peak), int(characters)


def test_64_mib_on_one_line_with_one_emoji_take_little_memory(tmp_path):
    path = tmp_path / "line.txt"
    path.write_bytes(b"a" * 2**25 + "🌊".encode() + b"b" * 2**25)
    peak, characters = memory_to_encode(path, tmp_path / "cache")
    assert peak < 100_000_000 and characters == 2**26 + 1


@pytest.mark.nightly
def test_a_gigabyte_takes_no_more_memory(corpora, tmp_path):
    for name in ("shakespeare.txt", "chinese-poems.txt"):
        block = (corpora / name).read_bytes()
        with open(tmp_path / name, "wb") as file:
            for _ in range(10**9 // len(block)):
                file.write(block)
        peak, _ = memory_to_encode(tmp_path / name, tmp_path / "cache")
        assert peak < 200_000_000


# The cache


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_second_start_does_not_read_the_text_again(load, tmp_path):
    path = aged(tmp_path / "text.txt", "the sea and the stone\n" * 200_000)
    first, before = load(path), bytes_read()
    second = load(path)
    assert bytes_read() - before < 100_000
    assert second.fingerprint == first.fingerprint and np.array_equal(second.train, first.train)
    assert second.describe() == first.describe()


def test_an_edit_that_keeps_size_and_time_is_seen(load, tmp_path):
    path = aged(tmp_path / "text.txt", "the sea and the stone")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    first = load(path)
    path.write_text("the sea and the store")
    os.utime(path, ns=times)
    second = load(path)
    assert second.fingerprint != first.fingerprint and text_of(second) == "the sea and the store"


def test_edits_in_quick_succession_are_seen(load, tmp_path):
    path = tmp_path / "text.txt"
    for word in ("stone", "store", "stone", "shore"):
        path.write_text(f"the sea and the {word}")
        assert text_of(load(path)) == f"the sea and the {word}"
    assert len(encodings_in(tmp_path / "cache")) == 3


def test_the_fingerprint_follows_content_and_settings_and_nothing_else(load, tmp_path):
    content = "The sea\r\nand the stone " * 20
    path, copy = tmp_path / "text.txt", tmp_path / "other.txt"
    path.write_bytes(content.encode())
    copy.write_bytes(content.encode())
    first = load(path)
    assert load(copy).fingerprint == load(path, pattern="*.md").fingerprint == first.fingerprint
    assert load(path, tokenizer=first.tokenizer).fingerprint == first.fingerprint, "a resumed run has the tokenizer already"
    others = [{"val_fraction": 0.4}, {"lowercase": True}, {"newlines": "fold"}, {"vocabulary": "bytes"}, {"max_vocab": 5}]
    fingerprints = {load(path, **other).fingerprint for other in others} | {first.fingerprint}
    path.write_bytes(content.encode() + b".")
    assert len(fingerprints | {load(path).fingerprint}) == 7


def test_a_text_edited_during_a_run_does_not_touch_the_run_but_its_resumption(load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the sea and the stone")
    corpus = load(path)
    path.write_text("THE SEA AND THE STORE")
    assert text_of(corpus) == "the sea and the stone"
    with pytest.raises(UnknownCharacters, match="text.txt: characters the model has not seen: 'A'"):
        load(path, tokenizer=corpus.tokenizer)
    path.write_text("the stone and the sea")
    assert load(path, tokenizer=corpus.tokenizer).fingerprint != corpus.fingerprint
    path.unlink()
    again = cached_corpus("text", corpus.fingerprint, DataConfig(cache=str(tmp_path / "cache")), root=tmp_path)
    assert text_of(again) == "the sea and the stone"


@pytest.mark.parametrize("settled", [False, True])
def test_a_text_that_grows_while_it_is_read_is_an_error_not_a_mixture(settled, load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"the sea and the stone\n" * 2_000_000)
    if settled:
        aged(path)
    stop = threading.Event()

    def grow() -> None:
        with open(path, "ab", buffering=0) as file:
            time.sleep(0.02)  # the reading has begun
            while not stop.wait(0.001):
                file.write(b"and more\n")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(UserError, match="text.txt: changed while it was read"):
            load(path)
    finally:
        stop.set()
        writer.join()
    assert not encodings_in(tmp_path / "cache")


@pytest.mark.parametrize("name", ["train.ids", "val.ids", "counts.int64", "entry.json"])
def test_a_damaged_entry_is_made_anew(name, load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    corpus = load(tmp_path / "text.txt")
    file = tmp_path / "cache" / corpus.fingerprint / name
    os.truncate(file, file.stat().st_size // 2)
    assert text_of(load(tmp_path / "text.txt")) == "the sea and the stone"
    file.unlink()
    assert text_of(load(tmp_path / "text.txt")) == "the sea and the stone"


# Faults


ENCODE = """
import sys
from pathlib import Path
from chargpt.config import DataConfig
from chargpt.text.corpus import load_corpus
corpus = load_corpus([sys.argv[1]], DataConfig(cache=sys.argv[2]), root=Path("."), block_size=64)
print(corpus.fingerprint)
"""


def encoding_process(path: Path, cache: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", ENCODE, path, cache]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: to a writer, a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_killed_while_encoding_the_next_start_makes_it_whole(load, tmp_path):
    path, cache = tmp_path / "text.txt", tmp_path / "cache"
    path.write_bytes(b"the sea and the stone\n" * 5_000_000)
    process = encoding_process(path, cache)
    while not any(file.stat().st_size for file in cache.glob("partial/train.ids")):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (cache / "partial").exists() and not encodings_in(cache), "killed too late to be a test"
    corpus = load(path)
    assert corpus.characters == path.stat().st_size and not (cache / "partial").exists()


def test_a_full_disk_is_a_line_with_the_room_needed_and_leaves_nothing(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone\n" * 10_000)
    with files_limited_to(100_000), pytest.raises(UserError) as error:
        load(tmp_path / "text.txt")
    assert "cache: File too large, the encoded text takes 220,000 bytes; make room there, or" in str(error.value)
    assert not encodings_in(tmp_path / "cache")
    assert load(tmp_path / "text.txt").characters == 220_000


def test_two_runs_that_start_at_once_share_one_encoding(load, tmp_path):
    path, cache = tmp_path / "text.txt", tmp_path / "cache"
    path.write_bytes(b"the sea and the stone\n" * 1_000_000)
    with Cache(cache).locked():  # so that both come to the point where one has to wait
        processes = [encoding_process(path, cache) for _ in range(2)]
        for process in processes:
            assert "waiting for another run" in process.stderr.readline()
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] and len(encodings_in(cache)) == 1


def test_a_cache_that_cannot_be_written_to_says_so(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file.*; name a folder that can be written to in data.cache"):
        load(tmp_path / "text.txt", cache=str(tmp_path / "file" / "cache"))


# The split


def test_documents_are_split_whole_and_evenly(load, tmp_path):
    lines = [f'{{"text": "document {n:03} of the sea"}}' for n in range(200)]
    (tmp_path / "sea.jsonl").write_text("\n".join(lines) + "\n\n")
    corpus = load(tmp_path / "sea.jsonl", split="document", val_fraction=0.1, separator="\\n--\\n")
    train, val = (corpus.tokenizer.decode(part).split("\n--\n") for part in (corpus.train, corpus.val))
    assert sorted(train + val) == [f"document {n:03} of the sea" for n in range(200)]
    assert len(val) == 20 and {int(text[9:12]) // 50 for text in val} == {0, 1, 2, 3}


def test_a_split_by_documents_needs_several(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    with pytest.raises(UserError, match="set data.split=position, or give a longer text"):
        load(tmp_path / "text.txt", split="document")


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"split": "document", "val_text": "x"}, "split: 'document' given; use position, since data.val_text already"),
        ({"vocabulary": "bytes", "max_vocab": 50}, "vocabulary: 'bytes' given; use characters, since bytes are never folded"),
        ({"separator": "\\"}, "separator: .* given; use text, with"),
        ({"encoding": "utf-88"}, "encoding: 'utf-88' given; use a text encoding that Python knows"),
        ({"min_count": 0}, "min_count: 0 given"),
        ({"max_vocab": 1}, "max_vocab: 1 given"),
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_errors(wrong, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**wrong)


def test_a_validation_text_given_is_all_that_validates(load, tmp_path):
    for name in ("a", "b", "held"):
        (tmp_path / f"{name}.txt").write_text(f"the {name} text and more")
    corpus = load(tmp_path / "a.txt", tmp_path / "b.txt", val_text=str(tmp_path / "held.txt"))
    assert corpus.tokenizer.decode(corpus.train) == "the a text and more\nthe b text and more"
    assert corpus.tokenizer.decode(corpus.val) == "the held text and more"
    folder = load(tmp_path, val_text=str(tmp_path / "held.txt"))
    assert np.array_equal(folder.train, corpus.train) and "in the validation text: 1 files" in folder.describe()[-1]
    with pytest.raises(UserError, match="is the training text as well"):
        load(tmp_path / "held.txt", val_text=str(tmp_path / "held.txt"))


# The vocabulary


def test_folding_covers_what_it_says(load, corpora):
    corpus = load(corpora / "chinese-poems.txt", max_vocab=2000)
    ids = np.concatenate([corpus.train, corpus.val])
    assert corpus.tokenizer.vocab_size == 2000 and corpus.tokenizer.never_sampled == (1999,)
    assert np.array_equal(np.bincount(ids, minlength=2000), corpus.counts)
    assert f"{np.mean(ids != 1999):.2%} of the text" in corpus.describe()[1] and FOLDED in text_of(corpus)


def test_min_count_beyond_every_count_is_an_error(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    with pytest.raises(UserError, match="data.min_count: 50 given, but no character stands more than 4 times"):
        load(tmp_path / "text.txt", min_count=50)


def test_a_vocabulary_from_a_run_brings_its_door(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    (tmp_path / "more.txt").write_text("The SEA and the STONE")
    small = load(tmp_path / "text.txt", lowercase=True).tokenizer
    assert text_of(load(tmp_path / "more.txt", tokenizer=small)) == "the sea and the stone"


def test_real_texts_are_what_python_reads(load, corpora):
    for name, distinct in (("shakespeare.txt", 65), ("chinese-poems.txt", 6257)):
        corpus = load(corpora / name, val_fraction=0.1)
        assert text_of(corpus) == (corpora / name).read_bytes().decode() and corpus.tokenizer.vocab_size == distinct


def test_the_program_prints_what_it_found(tmp_path):
    command = [sys.executable, "-m", "chargpt.text.corpus", f"data.cache={tmp_path}", "--config", "configs/tiny.yaml"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.startswith("text        python-docs: ") and "\nto beat     gzip " in output and "\noutlook     " in output
    wrong = subprocess.run([*command, "nothing.txt"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: nothing.txt: no such file") and wrong.stderr.count("\n") == 1
