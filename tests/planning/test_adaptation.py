"""A run from the weights of another one keeps what those know: its best checkpoint is never worse than its start."""

import json
import math
import re
from pathlib import Path

import pytest
from helpers import logged

import train
from chargpt.config import Config, apply_overrides
from chargpt.planning.adaptation import EPOCHS, adapt
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import Plan, make_plan
from chargpt.project import project_root
from chargpt.runs.load import find_checkpoint
from chargpt.text.corpus import Corpus
from chargpt.training.optimizers import OPTIMIZERS, is_falling

TINY = ["--config", "tiny", "train.sample_length=0", "runtime.threads=1"]


@pytest.fixture(scope="module")
def start(text, tmp_path_factory) -> Path:
    """A run that has learned the text a little."""
    folder = tmp_path_factory.mktemp("start") / "sea"
    words = ["train.max_steps=60", "--run", str(folder), f"data.cache={folder.parent}/cache"]
    assert train.main([str(text), *TINY, *words]) == 0
    return folder


@pytest.fixture
def other(text, tmp_path) -> Path:
    """A short text in the same script."""
    path = tmp_path / "other.txt"
    path.write_text(text.read_text(encoding="utf-8")[:3000][::-1], encoding="utf-8")
    return path


def begun(text: Path, start: Path, *words: str) -> Plan:
    cache = f"data.cache={text.parent}/cache"
    return make_plan(
        parse_options([str(text), "--init-from", str(start), cache, "runtime.threads=1", *words]), root=project_root()
    )


@pytest.mark.parametrize("words", [[], ["--minutes", "1"], ["--config", "best"], ["--config", "tiny"]])
def test_a_start_is_trained_gently_whatever_else_is_chosen(words, start, other):
    config = begun(other, start, *words).config
    assert config.optim.learning_rate <= OPTIMIZERS[config.optim.name].start_rate <= 0.001
    assert config.optim.weight_decay == 0.1 and config.model.dropout == 0
    assert (
        is_falling(config.optim.warmup_steps + 1, config.optim, max_steps=config.train.max_steps) and config.train.patience > 0
    )


def test_a_short_text_is_seen_a_few_times_and_evaluated_early_and_time_only_limits_it(start, other):
    for words in ([], ["--minutes", "5"]):
        model = begun(other, start, *words)
        characters, train_config = len(model.corpus.train), model.config.train
        assert train_config.max_epochs == EPOCHS
        assert EPOCHS <= train_config.max_steps * model.config.chars_per_step / characters < EPOCHS + 1
        assert train_config.eval_interval * model.config.chars_per_step <= 0.5 * characters + model.config.chars_per_step
    hurried = begun(other, start, "--minutes", "0.000001").config
    assert hurried.train.max_steps < train_config.max_steps  # there is no time for six epochs


def test_what_the_user_gives_stays(start, other):
    words = [
        "optim.learning_rate=0.004",
        "model.dropout=0.2",
        "optim.weight_decay=0.7",
        "train.patience=0",
        "train.max_steps=9",
    ]
    config = begun(other, start, "--config", "tiny", *words).config
    assert apply_overrides(config, words) == config
    own = other.with_suffix(".yaml")
    own.write_text("optim: {learning_rate: 0.004}\n")
    assert begun(other, start, "--config", str(own)).config.optim.learning_rate == 0.004


def test_training_begins_with_the_loss_that_was_printed_and_its_best_is_no_worse(start, other, capsys):
    run = other.parent / "adapted"
    words = ["--init-from", str(start), "--run", str(run), f"data.cache={other.parent}/cache", "train.sample_length=0"]
    assert train.main([str(other), *words, "runtime.threads=1", "runtime.precision=float32"]) == 0
    said = capsys.readouterr().out
    printed = float(re.search(r"its loss on this text is ([\d.]+)", said)[1])
    assert re.search(rf"\nexpected .*{printed:.2f}", said) and said.index("\nstart ") < said.index("step 0")
    losses = [line["val/loss"] for line in logged(run) if "val/loss" in line]
    best = json.loads((run / "best.json").read_text())["val/loss"]
    assert losses[0] == pytest.approx(printed, abs=0.006) and best == min(losses) <= losses[0]


def test_a_start_that_training_only_makes_worse_stays_the_best(start, text, capsys):
    """The text is the one that the start knows, and the rate is far too high."""
    run = start.parent / "ruined"
    words = ["--init-from", str(start), "--run", str(run), f"data.cache={start.parent}/cache", "optim.learning_rate=3"]
    assert train.main([str(text), *TINY, *words, "train.max_steps=20", "optim.grad_clip=0"]) == 0
    assert json.loads((run / "best.json").read_text())["checkpoint"] == "step-00000000"
    kept, _ = find_checkpoint(str(run), run.parent)
    assert kept.path.name == "step-00000000" and kept.state.progress.best_loss < math.inf


def test_a_given_length_in_steps_needs_no_timing(start, other):
    corpus: Corpus = begun(other, start, "train.max_steps=7").corpus
    config = apply_overrides(Config(), ["train.max_steps=7"])
    adapted = adapt(config, corpus, given={"train.max_steps"}, keep={"train.max_steps"}, minutes=None)
    assert adapted.train.max_steps == 7 and adapted.train.eval_interval == 1
