"""What the doctor says is true of the text, and takes no time worth mentioning."""

import math
import random

import numpy as np
import pytest
import torch

from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.text import report as doctor
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.training.runtime import Runtime
from model import GPT, GPTConfig


@pytest.fixture
def load(tmp_path):
    """A corpus of a string."""

    def load(text: str, **changes: object) -> Corpus:
        (tmp_path / "text.txt").write_bytes(text.encode())
        config = DataConfig(**{"cache": str(tmp_path / "cache"), "val_fraction": 0.5, **changes})
        return load_corpus([str(tmp_path / "text.txt")], config, root=tmp_path, block_size=4)

    return load


def words(count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    return " ".join("".join(draw.choices("abcdefgh", k=5)) for _ in range(count))


def line(corpus: Corpus, what: str) -> str:
    return next(text for text in doctor.examine(corpus) if text.startswith(what))


def test_odd_characters_are_counted_and_explained(load):
    said = line(load("ab\x00\x00\u200b\ue000\ufffd\r\n\tÃ© Ã¼ a\r\n" + "a\n" * 10), "odd")
    for part in ("2 control", "1 invisible", "1 private use", "1 U+FFFD", "2 like Ã©", "mixed line ends, 2 \\r beside 12 \\n"):
        assert part in said
    assert "all line ends are \\r\\n (data.newlines=fold" in line(load("a sea\r\nb stone\r\n"), "odd")
    assert line(load("the sea\tand\nthe stone é海"), "odd").endswith("no odd characters")


def test_the_rarest_character_and_what_folding_would_save(load):
    assert line(load("aaaaaabbbbbbé"), "rarest").endswith("'é' U+00E9 LATIN SMALL LETTER E WITH ACUTE, once")
    many = "a" * 9900 + "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
    said = line(load(many), "rarest")
    assert "100 characters stand less than 3 times, 1.00% of the text: data.min_count=3 folds them" in said


def test_repeated_lines_and_lines_in_both_parts(load):
    poem = [f"line number {n:04} of the poem" for n in range(100)]
    said = line(load("\n".join(poem + poem)), "repeats")
    assert "0.0% of the training part is lines that it has already" in said and "96.6% of the validation part is lines" in said
    said = line(load("\n".join([poem[0]] * 100 + poem[:100])), "repeats")
    assert "95.6% of the training part" in said


def test_the_ngram_is_a_distribution():
    """Over all that could come next, the probabilities of a context sum to one: seen contexts and unseen ones."""
    train = np.random.default_rng(0).integers(0, 4, 200).astype(np.uint8)
    for context in ([0, 1, 2], [3, 3, 3], [2, 0, 2]):
        bits = [doctor.ngram_bits(train, np.uint8([*context, c]), vocab_size=5, order=3) for c in range(5)]
        assert sum(2**-b for b in bits) == pytest.approx(1)


def test_the_ngram_finds_what_there_is_to_find():
    noise = np.random.default_rng(0).integers(0, 16, 200_000).astype(np.uint16)
    assert doctor.ngram_bits(noise[:100_000], noise[100_000:], vocab_size=16, order=2) == pytest.approx(4, abs=0.1)
    cycle = np.tile(np.arange(7, dtype=np.uint8), 1000)
    assert doctor.ngram_bits(cycle, cycle, vocab_size=7, order=3) < 0.01


def test_the_marks_of_shakespeare_are_plausible(load, corpora):
    said = line(load((corpora / "shakespeare.txt").read_text(), val_fraction=0.1), "to beat")
    gzip_bits, xz_bits, ngram = (float(mark.split()[-1]) for mark in said.split(" bits per")[0].split(", "))
    assert 3.0 < gzip_bits < 3.5 and 2.7 < xz_bits < 3.2 and 2.3 < ngram < 2.8
    assert float(said.split()[-1]) == pytest.approx(ngram * math.log(2), abs=0.01)


def test_a_long_text_is_judged_by_a_sample_and_says_so(load, monkeypatch):
    assert "estimated" not in line(load(words(2000)), "repeats")
    monkeypatch.setattr(doctor, "TRAIN_SAMPLE", 1000)
    assert "(estimated from 6,9" in line(load(words(2000)), "repeats")
    ids = np.arange(10**6)
    sample = doctor.sample(ids, 1000)
    assert 900 <= len(sample) <= 1000 and sample[0] == 0 and sample[-1] == 10**6 - 1 and len(set(sample)) == len(sample)


@pytest.mark.parametrize("changes", [{"vocabulary": "bytes"}, {"max_vocab": 5}, {"lowercase": True}], ids=str)
def test_every_kind_of_vocabulary_can_be_examined(changes, load):
    assert len(doctor.examine(load(words(300) + " é海", **changes))) == 4


def test_a_text_with_more_characters_than_fit_four_into_a_number(load):
    assert "order-2 n-gram" in line(load("".join(map(chr, range(0x1_0000, 0x1_0000 + 60_000)))), "to beat")


@pytest.mark.parametrize(
    "steps, expected", [(1, "not see all"), (300, "no overfitting"), (900, "little"), (9000, "overfitting expected, the best")]
)
def test_the_outlook_counts_epochs_and_warns(steps, expected, load):
    corpus = load("ab" * 5000)
    config = Config(model=GPTConfig(block_size=10), train=TrainConfig(max_steps=steps, batch_size=5))
    said = doctor.outlook(corpus, config, parameters=10_000, characters_per_second=1000)
    assert expected in said and f"{steps / 100:.1f} epochs for 10,000 parameters" in said


def test_a_trial_counts_parameters_and_measures_speed():
    config = Config(model=GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8))
    parameters, speed = doctor.trial(config, 5, Runtime(device=torch.device("cpu"), precision=torch.float32, threads=1))
    assert parameters == GPT(config.model, 5).parameter_count() and speed > 100
