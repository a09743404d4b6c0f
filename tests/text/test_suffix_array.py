"""The index finds what a naive search finds, in chunks as in one, and one of another length is made again."""

from os.path import commonprefix
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.errors import NotWritten
from chargpt.text import suffix_array
from chargpt.text.corpus import load_corpus
from chargpt.text.suffix_array import (
    SuffixIndex,
    index_for_training,
    open_index,
    open_or_make_index,
    sort_suffixes,
    sorted_chunks,
)

IDS = st.lists(st.integers(0, 2), max_size=60)


def index_in_chunks(ids: np.ndarray, *, vocab_size: int, chunk: int, overlap: int) -> SuffixIndex:
    chunks = [np.zeros(0, "<u4"), *sorted_chunks(ids, vocab_size=vocab_size, chunk=chunk, overlap=overlap)]
    return SuffixIndex(ids, np.concatenate(chunks), chunk=chunk)


@given(ids=IDS, vocab_size=st.sampled_from([3, 65, 255, 256, 7000, 100_000]), highest=st.booleans())
@example(ids=[0, 1] * 2500, vocab_size=256, highest=True)
@example(ids=[*range(100)] * 50, vocab_size=256, highest=False)
def test_suffixes_are_sorted(ids, vocab_size, highest):
    ids = [vocab_size - 1 - i for i in ids] if highest else ids
    order = sort_suffixes(np.array(ids, np.uint32), vocab_size=vocab_size)
    assert order.tolist() == sorted(range(len(ids)), key=lambda i: ids[i:])


@given(ids=IDS, query=st.lists(st.integers(-1, 3), max_size=40), chunk=st.integers(1, 70), at_once=st.integers(1, 40))
def test_matches_and_their_numbers_are_those_of_a_naive_search(ids, query, chunk, at_once):
    index = index_in_chunks(np.array(ids, np.uint8), vocab_size=4, chunk=chunk, overlap=60)
    with patch.multiple(suffix_array, QUERIES=at_once, COMPARED=1 + at_once % 5):
        lengths, places = index.longest_matches(np.array(query, np.int64))
        counts = [index.count(np.array(query[start : start + 6])) for start in range(len(query))]
    common = [[len(commonprefix([ids[i:], query[j:]])) for i in range(len(ids))] for j in range(len(query))]
    assert lengths.tolist() == [max(matches, default=0) for matches in common]
    assert all(ids[at : at + n] == query[i : i + n] for i, (n, at) in enumerate(zip(lengths.tolist(), places.tolist())))
    assert counts == [sum(n >= len(query[start : start + 6]) for n in matches) for start, matches in enumerate(common)]


def test_more_than_the_overlap_is_found_of_a_long_match():
    text = np.random.default_rng(0).integers(0, 50, 400).astype(np.uint8)
    lengths, _ = index_in_chunks(text, vocab_size=50, chunk=100, overlap=20).longest_matches(text[50:350].astype(np.int64))
    assert lengths[0] == 300  # nothing else begins like it, and the comparison does not end with the chunk


@pytest.fixture
def corpus(tmp_path, text):
    return load_corpus([str(text)], DataConfig(cache=str(tmp_path / "cache")), root=tmp_path, block_size=8)


def test_the_index_is_kept_and_made_again_if_it_is_another_one(corpus):
    path, query = corpus.folder / suffix_array.NAME, corpus.train[100:200].astype(np.int64)
    assert open_index(corpus) is None and open_or_make_index(corpus).longest_matches(query)[0][0] == 100
    assert open_index(corpus).count(query) == 1
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-4], content + content[:4], b""):
        path.unlink()
        path.write_bytes(damaged)
        assert open_index(corpus) is None and open_or_make_index(corpus) and path.read_bytes() == content
    path.chmod(0o600)
    path.write_bytes(np.random.default_rng(0).integers(0, 2**32, len(corpus.train), np.uint32).tobytes())
    found = zip(*open_index(corpus).longest_matches(query))
    assert all((corpus.train[at : at + n] == query[i : i + n]).all() for i, (n, at) in enumerate(found)), "it stands there"


def test_an_index_that_cannot_be_written_is_one_line(corpus, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(suffix_array, "mapped_numbers", full)  # it is written, and cannot be opened: too few open files
    with pytest.raises(NotWritten, match="train.suffixes: cannot be opened in .*; raise the limit of open files"):
        open_or_make_index(corpus)
    assert index_for_training(corpus) is None, "no step needs it"
    monkeypatch.setattr(suffix_array, "publishing", full)
    with pytest.raises(NotWritten, match="train.suffixes: No space left on device; free some space"):
        open_or_make_index(corpus)
