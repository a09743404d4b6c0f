"""Documents, separators and normalised pieces give the same text as reading everything at once, in little memory."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text_helpers import ROOT, text_of, write


def test_several_texts_are_joined_by_the_separator(load, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name * 20)
    assert text_of(load(tmp_path / "a", tmp_path / "b")) == "a" * 20 + "\n" + "b" * 20
    assert text_of(load(tmp_path / "a", tmp_path / "b", separator=r"\x00é\n")) == "a" * 20 + "\0é\n" + "b" * 20
    assert text_of(load(tmp_path / "a", tmp_path / "b", separator="E", lowercase=True)) == "a" * 20 + "e" + "b" * 20
    bytes_corpus = load(tmp_path / "a", tmp_path / "b", separator="é", vocabulary="bytes", val_fraction=0.4)
    assert text_of(bytes_corpus) == "a" * 20 + "é" + "b" * 20


NORMALIZERS = [{"newlines": "fold"}, {"normalize": "NFC"}, {"normalize": "NFKC", "lowercase": True}]


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
def test_prompts_are_normalised_like_megabytes_of_text(normalizer, load, tmp_path):
    content = "Cafe\u0301 ΟΔΟΣ\r\nﬁn\rか\u3099行\n" * 50_000
    corpus = load(write(tmp_path / "text.txt", content.encode()), **normalizer)
    assert np.array_equal(np.concatenate([corpus.train, corpus.val]), corpus.tokenizer.encode(content))
    assert text_of(corpus) == corpus.tokenizer.normalizer.apply(content) != content


def test_documents_are_split_whole_and_evenly(load, tmp_path):
    lines = [f'{{"text": "document {n:03} of the sea"}}' for n in range(200)]
    (tmp_path / "sea.jsonl").write_text("\n".join(lines) + "\n\n")
    corpus = load(tmp_path / "sea.jsonl", split="document", val_fraction=0.1, separator="\\n--\\n")
    train, val = (corpus.tokenizer.decode(part).split("\n--\n") for part in (corpus.train, corpus.val))
    assert sorted(train + val) == [f"document {n:03} of the sea" for n in range(200)]
    assert len(val) == 20 and {int(text[9:12]) // 50 for text in val} == {0, 1, 2, 3}


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
config = DataConfig(cache=sys.argv[2], lowercase=sys.argv[3] == "lower")
corpus = load_corpus([sys.argv[1]], config, root=Path("."), block_size=64)
print(peak() - before, corpus.characters)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["keep", "lower"])
def test_64_mib_on_one_line_with_one_emoji_take_little_memory(case, tmp_path):
    path = tmp_path / "line.txt"
    path.write_bytes(b"a" * 2**25 + "🌊".encode() + b"b" * 2**25)
    words = [sys.executable, "-c", MEASURE, path, tmp_path / ".cache", case]
    peak, characters = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
    assert int(peak) < 100_000_000 and int(characters) == 2**26 + 1  # the bytes above what the imports take


MANY = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x1_3000)]))


@settings(max_examples=12)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=20))
@example("a" * 100)
@example("the sea\r\nthe stone\rthe\0sea and\0stone")
@example("sea\u2028and\u2029stone\x85\x0b\x0c\x1c and\ufeff 海 🌊 \U0010fffd é e\u0301")
@example(MANY)  # more than 2^16 characters
def test_ids_mean_the_text_byte_for_byte(load, tmp_path, text):
    if text.startswith("\ufeff") or text.encode()[:4] in (b"PK\x03\x04", b"%PDF"):
        text = "." + text
    if text.count("\0") > len(text) / 4:  # not a text
        text = text.replace("\0", "0")
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    corpus = load(path, newlines="keep")
    assert text_of(corpus) == text and corpus.tokenizer.characters == "".join(sorted(set(text)))
    assert len(corpus.train) == len(text) // 2 and corpus.train.dtype == corpus.val.dtype == corpus.tokenizer.dtype
    ids = corpus.tokenizer.encode(text)
    assert ids.tolist() == [*corpus.train, *corpus.val] and corpus.counts.tolist() == np.bincount(ids).tolist()
    of_bytes = load(path, vocabulary="bytes")
    assert bytes(of_bytes.train) + bytes(of_bytes.val) == path.read_bytes()
