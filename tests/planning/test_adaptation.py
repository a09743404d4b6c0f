"""A run from the weights of another one keeps what those know: it is trained gently."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import apply_overrides, logged
from session_helpers import planned

import train
from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.planning.adaptation import EPOCHS, FEWEST_EPOCHS, SMALL, SMALL_SPLIT, adapt
from chargpt.planning.chosen_for_time import Job
from chargpt.planning.cli import TrainOptions
from chargpt.planning.initial_settings import Asked
from chargpt.planning.plan import Opening
from chargpt.project import project_root
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.runs.load import find_checkpoint
from chargpt.runs.stage import Length, Start
from chargpt.settings import Settings, Source
from chargpt.text.corpus import Corpus
from chargpt.training.learning_rate import is_falling
from chargpt.training.optimizers import OPTIMIZERS

SMALLEST = ["model.n_embd=16", "model.n_head=2", "model.block_size=16", "runtime.threads=1"]
TINY = ["--config", "tiny", "train.sample_length=0", "runtime.threads=1"]


@pytest.fixture
def other(text, tmp_path) -> Path:
    """A short text in the same script."""
    path = tmp_path / "other.txt"
    path.write_text(text.read_text(encoding="utf-8")[:3000][::-1], encoding="utf-8")
    return path


def begun(text: Path, learned: Path, *words: str) -> Opening:
    return planned(text, text.parent, "--init-from", str(learned), *words)


def adapted(settings: Settings, corpus: Corpus, distance: float) -> Config:
    return adapt(settings, Job(corpus, 180), Asked(TrainOptions(), settings), distance=distance).values


def passes(plan: Opening) -> float:
    """The epochs of a run."""
    return plan.config.train.max_steps * plan.config.chars_per_step / len(plan.corpus.train)


@pytest.mark.parametrize("words", [[], ["--minutes", "1"], ["--config", "best"], ["--config", "tiny"]])
def test_a_start_is_trained_gently_whatever_else_is_chosen(words, learned, other):
    config = begun(other, learned, *words).config
    assert config.optim.learning_rate <= OPTIMIZERS[config.optim.name].start_rates[1] <= 0.002
    assert config.optim.weight_decay == 0.1 and config.model.dropout == 0
    assert is_falling(config.optim.warmup_steps + 1, config.optim, Length.of(config))


def test_a_small_validation_split_chooses_nothing(learned, other, text):
    """The distance of the text and the size of the model choose the epochs. A larger split chooses the checkpoint."""
    plan = begun(other, learned)
    assert len(plan.corpus.val) < SMALL_SPLIT and plan.config.train.patience == 0 and plan.config.checkpoint.best == "last"
    assert FEWEST_EPOCHS < passes(plan) < 1.1 * EPOCHS
    settings = Settings(apply_overrides(Config(), SMALLEST))
    for distance, length, epochs in ((0.0, 27_000, 2), (0.4, 9000, 2.6), (1.0, 900, 3.5), (7.4, 900, EPOCHS)):
        corpus = dataclasses.replace(plan.corpus, train=np.resize(plan.corpus.train, length))
        assert adapted(settings, corpus, distance).train.max_epochs == epochs
    long = other.with_name("long.txt")
    long.write_text(text.read_text(encoding="utf-8")[::-1] * 3, encoding="utf-8")
    plan = begun(long, learned)
    assert len(plan.corpus.val) >= SMALL_SPLIT and plan.config.train.patience > 0 and plan.config.checkpoint.best == "lowest"
    assert FEWEST_EPOCHS < passes(plan) < 1.1 * EPOCHS
    assert plan.config.train.eval_interval * plan.config.chars_per_step <= 0.5 * len(plan.corpus.train) + 2048
    hurried = begun(long, learned, "--minutes", "0.000001").config
    assert hurried.train.max_steps < plan.config.train.max_steps  # there is no time for two epochs


def test_epochs_that_the_user_gives_are_made_and_the_last_checkpoint_is_used(learned, other):
    plan = begun(other, learned, "--epochs", "9")
    assert passes(plan) == pytest.approx(9, rel=0.1) and plan.config.optim.name == "muon"
    assert plan.config.train.patience == 0 and plan.config.checkpoint.best == "last"


RATES = [
    *((9000, 0.0, 5e-4), (9000, 0.25, 1e-3), (9000, 1.0, 2e-3), (9000, 4.0, 2e-3)),
    *((100_794, 0.0, 1e-3), (100_794, 0.25, 1.4e-3), (100_794, 1.0, 2e-3), (10**7, 0.0, 2e-3)),
]


def test_the_rate_grows_with_the_length_of_the_text_and_with_its_distance(learned, other):
    """Muon's, by hand: four times as high for a nat, by the square root; twice as high for ten times the characters."""
    config = apply_overrides(Config(), [*SMALLEST, "optim.name=muon", "optim.learning_rate=1", "train.max_steps=9"])
    settings, corpus = Settings(config, {"train.max_steps": Source.USER}), begun(other, learned).corpus
    for characters, distance, rate in RATES:
        corpus = dataclasses.replace(corpus, train=np.broadcast_to(corpus.train[0], characters))
        assert adapted(settings, corpus, distance).optim.learning_rate == rate, (characters, distance)


def test_a_large_start_is_pulled_towards_its_weights_and_more_in_a_short_run(learned, other):
    corpus = begun(other, learned).corpus
    for layers, steps, pull in ((1, 100, 0), (1, 1000, 0), (12, 100, 8.0), (12, 1000, 0.8)):
        words = [f"model.n_layer={layers}", "model.n_embd=128", "model.n_head=4", f"train.max_steps={steps}"]
        config = apply_overrides(Config(), words)
        assert (parameter_count(config.model, 31) > SMALL) == (pull > 0)
        settings = Settings(config, {"train.max_steps": Source.USER})
        assert adapted(settings, corpus, 1.0).optim.start_decay == pull


def test_what_the_user_gives_stays(learned, other):
    words = "optim.learning_rate=0.004 model.dropout=0.2 optim.weight_decay=0.7 train.patience=0 train.max_steps=9".split()
    config = begun(other, learned, "--config", "tiny", *words).config
    assert apply_overrides(config, words) == config
    own = other.with_suffix(".yaml")
    own.write_text("optim: {learning_rate: 0.0004}\n")
    assert begun(other, learned, "--config", str(own)).config.optim.learning_rate == 0.0004


def test_the_run_names_its_start(learned, other):
    assert begun(other, learned).state.stage.start == Start(name="sea", is_run=True)


def test_a_vocabulary_that_is_smaller_than_that_of_the_start_is_refused(learned, other):
    known = len(find_checkpoint(str(learned), project_root())[0].state.tokenizer.characters)
    with pytest.raises(
        UserError, match=f"data.max_vocab: {known} given, but .* has {known} characters, .*; use {known + 1} or more"
    ):
        begun(other, learned, f"data.max_vocab={known}")
    assert begun(other, learned, f"data.max_vocab={known + 1}").corpus.tokenizer.vocab_size <= known + 1


def test_training_begins_with_the_loss_that_was_printed(learned, other, capsys):
    run = other.parent / "adapted"
    words = ["--init-from", str(learned), "--run", str(run), f"data.cache={other.parent}/cache", "train.sample_length=0"]
    assert train.main([str(other), *words, "runtime.threads=1", "runtime.precision=float32"]) == 0
    said = capsys.readouterr().out
    printed = float(re.search(r"\nstart .*its loss on your text is ([\d.]+).*, and an n-gram model .* has [\d.]+\n", said)[1])
    assert said.index("\nstart ") < said.index("step 0") and "\nexpected " not in said
    losses = [line["val/loss"] for line in logged(run) if "val/loss" in line]
    assert losses[0] == pytest.approx(printed, abs=0.006)
    assert find_checkpoint(str(run), run)[0].state.progress.val_loss == losses[-1]  # the split is too small to choose
    is_lowest = losses[-1] <= min(losses) + 1e-4
    assert is_lowest or f"an earlier one had {min(losses):.4f}, but checkpoint.best=last" in " ".join(said.split())


def test_a_run_keeps_the_characters_of_its_start(learned, other, tmp_path):
    other.write_text(other.read_text(encoding="utf-8").lower().replace("aes", "a\u00e9s"), encoding="utf-8")
    plan = begun(other, learned)
    known, _ = find_checkpoint(str(learned), learned.parent)
    characters = plan.corpus.tokenizer.characters
    assert {*characters} == {*known.state.tokenizer.characters} | {*other.read_text(encoding="utf-8")} and "T" in characters
    rows = plan.model.token_embedding.weight
    assert torch.equal(rows[characters.index("\u00e9")], rows[characters.index("e")])
    assert ": \u00e9 (e)" in plan.choices[1].text and "not used" not in plan.choices[1].text


def test_the_pull_of_a_run_that_has_begun_cannot_come_or_go(learned):
    with pytest.raises(UserError, match="optim.start_decay: 0.0 -> 5.0: .* start a new one with --run NAME"):
        train.main(["--resume", "--run", str(learned), "train.max_steps=70", "optim.start_decay=5"])


def test_items_from_a_start_whose_items_held_newlines_end_as_those_did(other, tmp_path):
    listed = tmp_path / "listed.jsonl"
    listed.write_text("".join(f'{{"t": "the {n} sea\\nand {n * n}"}}\n' for n in range(300)), encoding="utf-8")
    words = [*TINY, f"data.cache={tmp_path}/cache", "train.max_steps=3"]
    assert train.main([str(listed), "--items", "t", *words, "--run", f"{tmp_path}/listed"]) == 0
    other.write_text("\n".join(f"name {n}" for n in range(400)), encoding="utf-8")
    plan = begun(other, tmp_path / "listed", "data.items=line")
    assert chr(plan.corpus.marks.end) and plan.corpus.tokenizer.characters[plan.corpus.marks.end] == "\x1e"
