"""What is named as better is a command that can be copied, runs, and is expected to help."""

import dataclasses
import random
import shlex
from pathlib import Path

import pytest
from helpers import SHAPE, publish_run

import train
from chargpt.config import Config, apply_overrides
from chargpt.planning.advice import better_training, better_way, kept_settings, known_start, train_command
from chargpt.planning.cli import parse_options
from chargpt.planning.law import Expected
from chargpt.runs.checkpoint_schema import Progress
from chargpt.text.corpus import Corpus, load_corpus


@pytest.fixture
def corpus(text, tmp_path) -> Corpus:
    config = apply_overrides(Config(), [f"data.cache={tmp_path}/cache", "data.lowercase=true"])
    return load_corpus([str(text)], config.data, root=tmp_path, block_size=8)


@pytest.fixture
def config(tmp_path) -> Config:
    return apply_overrides(Config(), [f"data.cache={tmp_path}/cache", "data.lowercase=true"])


def about_loss(loss: float) -> Expected:
    return Expected(loss, 0.9 * loss, 1.1 * loss)


def ended(corpus: Corpus, config: Config, tmp_path: Path, *, best_step: int = 1000, **facts: object) -> str:
    progress = Progress(step=1000, evaluated=1000, val_loss=2.0, best_loss=2.0, lowest_loss=2.0, best_step=best_step)
    known = {"seconds": 20.0, "is_memorised": False, "is_adapted": False, "ngram_loss": 2.5, "given": parse_options([])}
    return better_training(corpus, config, progress, **{**known, **facts}, folder=tmp_path / "run", checkpoints=tmp_path)


def test_a_command_makes_a_new_run_from_the_same_text(text, tmp_path, monkeypatch, capsys):
    words = ["--config", "tiny", "train.max_steps=2", "train.sample_length=0", "runtime.threads=1"]
    first = tmp_path / "run"
    assert train.main([str(text), *words, "--run", str(first), f"data.cache={tmp_path}/my cache", "data.lowercase=true"]) == 0
    corpus_config = apply_overrides(Config(), [f"data.cache={tmp_path}/my cache", "data.lowercase=true"])
    corpus = load_corpus([str(text)], corpus_config.data, root=tmp_path, block_size=8)
    (tmp_path / "run-2").mkdir()
    command = train_command(corpus, corpus_config, words, folder=first, checkpoints=tmp_path / "checkpoints")
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("python", "train.py") and train.main(arguments) == 0
    assert (tmp_path / "run-3" / "config.yaml").exists()


def test_a_split_that_is_unlike_the_text_is_told_to_the_end_with_its_mend(tmp_path, monkeypatch, capsys):
    draw = random.Random(1)
    names = sorted({"".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(600)})
    (tmp_path / "names.txt").write_text("\n".join(names))
    words = ["--config", "tiny", "train.max_steps=2", "train.sample_length=0", "runtime.threads=1", "data.val_fraction=0.1"]
    run = ["--run", str(tmp_path / "run"), f"data.cache={tmp_path}/cache"]
    assert train.main([str(tmp_path / "names.txt"), *words, *run]) == 0
    line = next(line for line in " ".join(capsys.readouterr().out.split()).split("result ")[1:])
    assert "but the lines are in alphabetical order" in line and line.count("data.shuffle=lines") >= 2
    assert "The lines are in alphabetical order" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_text_that_cannot_be_read_again_has_no_command(corpus, config, tmp_path):
    piped = dataclasses.replace(corpus, texts=["-"])
    assert train_command(piped, config, [], folder=tmp_path / "run", checkpoints=tmp_path) == ""


def test_before_training_what_is_clearly_better_is_named_with_both_losses(corpus, config, tmp_path):
    about = {
        "settings": ["train.seed=5", "data.lowercase=true"],
        "folder": tmp_path / "run",
        "checkpoints": tmp_path,
        "ngram_loss": 0.57,
    }
    line = better_way(corpus, config, expected=about_loss(0.6), with_minutes=(3, 0.2), **about)
    assert "--minutes 3" in line and "0.40" in line and "0.60" in line and line.count("data.lowercase=true") == 1
    assert "train.seed=5" in line and "--run run-2" in line
    assert better_way(corpus, config, expected=about_loss(0.41), with_minutes=(3, 0.01), **about) == ""  # about the same
    line = better_way(corpus, config, expected=about_loss(3.0), with_minutes=None, **about)  # worse than the n-gram model
    assert "longer text" in line and "--init-from" in line


def test_a_run_that_knows_the_text_better_is_named_and_one_that_does_not_is_not(text, corpus, config, tmp_path):
    checkpoints, about = (
        tmp_path / "checkpoints",
        {"settings": [], "with_minutes": None, "folder": tmp_path / "run", "ngram_loss": 9.0},
    )
    publish_run(checkpoints / "random", corpus.tokenizer, steps=(10**6,), val_loss=3.0, fingerprint="1" * 64)
    words, loss, after = known_start(corpus, ngram_loss=9.0, checkpoints=checkpoints)
    assert words == ["--init-from", "random"] and loss > 2 and after < loss
    assert known_start(corpus, ngram_loss=loss - 0.5, checkpoints=checkpoints) is None  # worse than n-grams
    assert "random" not in better_way(corpus, config, expected=about_loss(1.0), checkpoints=checkpoints, **about)
    line = better_way(corpus, config, expected=about_loss(loss + 1), checkpoints=checkpoints, **about)
    assert "--init-from random" in line and f"{loss:.2f}" in line and f"{loss + 1:.2f}" in line
    for length, fits in ((SHAPE.block_size, False), (SHAPE.block_size + 1, True)):  # that training would refuse
        short = dataclasses.replace(corpus, val=corpus.val[:length])
        assert (known_start(short, ngram_loss=9.0, checkpoints=checkpoints) is not None) == fits
    own = dataclasses.replace(corpus, texts=["poems.txt"])
    assert known_start(own, ngram_loss=9.0, checkpoints=checkpoints) is None


def test_after_training_the_command_fits_how_the_run_ended(corpus, config, tmp_path):
    short = apply_overrides(config, ["train.batch_size=1", "model.block_size=8"])  # it sees the text once
    muon = apply_overrides(config, ["optim.name=muon"])
    assert "--minutes 2 " in ended(corpus, config, tmp_path, seconds=500.0)  # Muon learns more, of a short text in two runs
    assert "--minutes 9 " in ended(corpus, short, tmp_path, seconds=500.0)
    assert "--minutes 4 " in ended(corpus, apply_overrides(short, ["optim.name=muon"]), tmp_path, seconds=90.0)
    assert "--minutes 2 " in ended(corpus, muon, tmp_path, is_memorised=True)  # two runs
    assert ended(corpus, muon, tmp_path, is_memorised=True, seconds=600.0) == ""  # nothing that this program knows
    assert ended(corpus, config, tmp_path, is_adapted=True) == ""
    assert "--find-lr" in ended(corpus, config, tmp_path, best_step=0)
    assert all("data.lowercase=true" in command for command in (ended(corpus, config, tmp_path),))


def test_the_command_keeps_the_settings_that_it_does_not_replace(corpus, config, tmp_path):
    words = ["train.seed=5", "train.max_steps=9", "optim.name=adamw", "data.lowercase=true", "runtime.threads=1"]
    command = ended(corpus, config, tmp_path, given=parse_options(words))
    assert "train.seed=5 runtime.threads=1 " in command and command.count("data.lowercase=true") == 1
    assert "max_steps" not in command and "adamw" not in command
    command = ended(corpus, config, tmp_path, best_step=0, given=parse_options(["optim.learning_rate=5", "train.seed=5"]))
    assert "--find-lr train.seed=5" in command and "learning_rate" not in command


@pytest.mark.parametrize("option", ["--start", "--init-from"])
def test_the_command_leaves_out_what_a_start_cannot_have(option):
    settings = ["train.student_minutes=1", "train.teachers=a", "train.student_gap=0.1", "model.n_layer=2", "train.seed=2"]
    assert kept_settings(settings, option) == ["train.seed=2"]
    assert kept_settings(settings, "--minutes") == [setting for setting in settings if "teachers" not in setting]


def test_what_was_done_already_is_not_advised_again(corpus, config, tmp_path):
    muon, minutes = apply_overrides(config, ["optim.name=muon"]), parse_options(["--minutes", "2"])
    assert ended(corpus, muon, tmp_path, is_memorised=True, given=minutes) == ""
    worse = ended(corpus, muon, tmp_path, is_memorised=True, given=minutes, ngram_loss=1.5)
    assert "longer text" in worse and "--init-from" in worse  # as `better_way` says before such a run
    once = apply_overrides(muon, ["train.batch_size=1", "model.block_size=8"])
    worse = ended(corpus, once, tmp_path, given=parse_options(["--minutes", "0.5"]), ngram_loss=1.5)
    assert "longer text" in worse and "--minutes" not in worse


def test_before_and_after_a_training_the_same_command_is_named(corpus, config, tmp_path):
    """It took longer than was planned, and its loss is lower than was expected."""
    for with_minutes in ((3, 0.2), (7, 0.1), (1, 0.04)):
        place = {"folder": tmp_path / "run", "checkpoints": tmp_path}
        about = {"expected": about_loss(2.3), "ngram_loss": 2.5, "settings": [], "with_minutes": with_minutes}
        before = better_way(corpus, config, **about, **place).partition("   (")[0]
        assert ended(corpus, config, tmp_path, with_minutes=with_minutes, seconds=500.0) == before != ""
    assert "--minutes 2 " not in ended(corpus, config, tmp_path, with_minutes=(2, 0.0))  # which does not help
