"""Passages and new n-grams are those that a naive search finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chargpt.analysis.copies import SIZES, longest_passages, novelty
from chargpt.text import suffix_array
from chargpt.text.suffix_array import SuffixIndex, longest_copy, open_or_make_index, sorted_chunks
from chargpt.text.tokenizer import Tokenizer


def index_of(ids: list[int]) -> SuffixIndex:
    text = np.array(ids, np.uint8)
    return SuffixIndex(text, np.concatenate([np.zeros(0, "<u4"), *sorted_chunks(text, vocab_size=9)]))


@given(
    training=st.lists(st.integers(0, 2), max_size=80),
    texts=st.lists(st.lists(st.integers(-1, 3), max_size=40), min_size=1, max_size=3),
)
def test_new_n_grams_and_the_longest_copy_are_those_of_a_naive_search(training, texts):
    index = index_of(training)
    longest, shares = novelty([index.longest_matches(np.array(text, np.int64)) for text in texts])
    known = {n: {tuple(training[i : i + n]) for i in range(len(training) - n + 1)} for n in range(1, 41)}
    for n in SIZES:
        grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
        assert (n in shares) == bool(grams)
        if grams:
            assert shares[n] == sum(gram not in known[n] for gram in grams) / len(grams)
    copies = [n for n in known for text in texts for i in range(len(text) - n + 1) if tuple(text[i : i + n]) in known[n]]
    assert longest == max(copies, default=0)


def test_planted_passages_are_listed_with_their_place_and_copies():
    draw = np.random.default_rng(3)
    training = draw.integers(0, 200, 2000).astype(np.uint8)
    training[1500:1530] = training[100:130]
    fresh = np.full(10, -1)
    texts = [
        np.concatenate([fresh, training[100:130], fresh]).astype(np.int64),
        np.concatenate([training[700:750], fresh, training[40:45]]).astype(np.int64),
    ]
    index = SuffixIndex(training, np.concatenate([*sorted_chunks(training, vocab_size=200)]))
    matches, tokenizer = [index.longest_matches(text) for text in texts], Tokenizer("".join(map(chr, range(200))))
    found = longest_passages(texts, matches, index, tokenizer, most=3)
    assert [(p.text, p.start, p.length, p.copies) for p in found] == [(1, 0, 50, 1), (0, 10, 30, 2), (1, 60, 5, 1)]
    assert [ord(c) for c in found[2].content] == training[40:45].tolist()
    assert found[0].place == 700 and found[1].place in (100, 1500) and found[2].place == 40


def test_a_long_text_has_the_number_only_with_an_index(corpus, monkeypatch):
    monkeypatch.setattr(suffix_array, "MAX_INDEXED", 100)
    assert longest_copy(corpus, "the") is None
    open_or_make_index(corpus)
    assert longest_copy(corpus, "the") == 3


def test_the_longest_copy_is_that_of_the_sample(corpus):
    copied = corpus.tokenizer.decode(corpus.train[200:260])
    unknown = "~" * 5
    assert longest_copy(corpus, unknown + copied + unknown) == 60
    assert longest_copy(corpus, "~") == 0 and longest_copy(corpus, "") is None
