"""A run is offered to start from when it knows the script and has seen much more of another text."""

from pathlib import Path

import pytest
from helpers import TOKENIZER, publish_run

from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.model import GPTConfig
from chargpt.runs.start_from import runs_to_start_from
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.text.tokenizer import Tokenizer

SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, bias=True)
BATCH = Config(model=SHAPE, train=TrainConfig(batch_size=8))  # 128 characters a step


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    """1,000 characters, all known to TOKENIZER."""
    (tmp_path / "text.txt").write_text("abcdefgh a\n" * 90 + "abcdefgh a")
    data = DataConfig(cache=str(tmp_path / "cache"))
    return load_corpus([str(tmp_path / "text.txt")], data, root=tmp_path, block_size=16)


def name_of_first(folder: Path, corpus: Corpus) -> str | None:
    """What is offered first."""
    return next((run.name for run in runs_to_start_from(folder / "runs", corpus, root=folder)), None)


def offered(folder: Path, corpus: Corpus, tokenizer: Tokenizer = TOKENIZER, **changes: object) -> str | None:
    """What is offered when a run of 500 steps, 64,000 characters, is the only one."""
    publish_run(folder / "runs" / "other", tokenizer, config=BATCH, **changes)
    return name_of_first(folder, corpus)


def test_a_run_that_has_learned_the_same_characters_is_offered(tmp_path, corpus):
    assert runs_to_start_from(tmp_path / "nothing", corpus, root=tmp_path) == []
    assert offered(tmp_path, corpus) == "other"


def test_a_run_that_has_seen_little_is_not_offered(tmp_path, corpus):
    assert offered(tmp_path, corpus, steps=(10,)) is None


def test_a_run_of_another_script_is_not_offered(tmp_path, corpus):
    assert offered(tmp_path, corpus, Tokenizer("\n abcdeхвг")) is None


def test_a_run_on_the_same_text_is_not_offered(tmp_path, corpus):
    assert offered(tmp_path, corpus, fingerprint=corpus.fingerprint) is None


def test_a_run_on_an_earlier_version_of_the_text_is_not_offered(tmp_path, corpus):
    """It may have learned what is the validation split now."""
    assert offered(tmp_path, corpus, texts=["another.txt", *corpus.texts]) is None


def test_the_run_that_has_seen_most_is_offered_and_damaged_ones_are_not(tmp_path, corpus):
    for name, step in (("short", 100), ("long", 900), ("damaged", 5000)):
        publish_run(tmp_path / "runs" / name, config=BATCH, steps=(step,))
    state = tmp_path / "runs" / "damaged" / "step-00005000" / "state.json"
    state.write_bytes(state.read_bytes()[:-9])
    (tmp_path / "runs" / "README.md").write_text("not a run")
    assert name_of_first(tmp_path, corpus) == "long"


def test_a_text_that_was_read_often_counts_once(tmp_path, corpus):
    """Of two runs, one has seen a short text many times, and the other a longer text for fewer steps."""
    for name, line, lines, step in (("short", "abcdefgh b\n", 100, 9000), ("long", "abcdefgh c\n", 2000, 500)):
        path = tmp_path / f"{name}.txt"
        path.write_text(line * lines)
        read = load_corpus([str(path)], DataConfig(), root=tmp_path, block_size=16)
        of_text = {"fingerprint": read.fingerprint, "texts": read.texts}
        publish_run(tmp_path / "runs" / name, read.tokenizer, config=BATCH, steps=(step,), **of_text)
    runs = runs_to_start_from(tmp_path / "runs", corpus, root=tmp_path)
    assert [run.name for run in runs] == ["long", "short"] and runs[1].read < 1100 < runs[0].read
