"""What is said about a training before it begins."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from session_helpers import opened
from text_helpers import ROOT

import train
from chargpt.commands.text import main
from chargpt.config import Config, DataConfig, OptimConfig, TrainConfig
from chargpt.model import GPTConfig
from chargpt.planning.candidate_settings import in_blocks
from chargpt.planning.chosen_for_time import choose, text_of
from chargpt.planning.forecast import StepTimes, describe_training, evaluation_seconds, forecast, outlook
from chargpt.terminal import UserError
from chargpt.text.corpus import load_corpus

VARY = ("estimate", "outlook ")  # labels of lines that depend on the machine's speed


@pytest.mark.parametrize(
    "steps, expected", [(1, "not see all"), (300, "no overfitting"), (900, "little"), (9000, "overfitting expected: ")]
)
def test_the_outlook_counts_epochs_and_warns(steps, expected, tmp_path):
    (tmp_path / "text.txt").write_text("ab" * 5000)
    data = DataConfig(cache=str(tmp_path / "cache"), val_fraction=0.5)
    corpus = load_corpus([str(tmp_path / "text.txt")], data, root=tmp_path, block_size=4)
    config = Config(model=GPTConfig(block_size=10), train=TrainConfig(max_steps=steps, batch_size=5))
    _, said, _ = outlook(corpus, config, steps=steps, parameters=10_000)
    assert expected in said and said.startswith(f"{steps / 100:.1f} epochs for 10,000 parameters")


def test_what_the_text_command_prints_is_what_training_prints(text, tmp_path, capsys):
    """Both choose the same settings for the text, from presets by name as well."""
    settings = ["model.n_embd=64", "train.max_steps=3000", f"data.cache={tmp_path}"]  # without timing, which varies
    assert main([str(text), *settings]) == 0
    said = capsys.readouterr().out.splitlines()
    assert train.main([str(text), *settings, "--run", f"{tmp_path}/run", "--dry-run"]) == 0
    assert [line for line in said if line[:8] not in VARY] == [
        line for line in capsys.readouterr().out.splitlines() if line[:8] not in VARY
    ]
    assert any(line.startswith("chosen ") for line in said)


def test_the_program_prints_what_it_found(tmp_path, capsys):
    arguments = [f"data.cache={tmp_path}", "--config", "tiny"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert output.startswith("text        python-docs: ") and "\nto beat     gzip " in output and "\noutlook     " in output
    with pytest.raises(UserError, match="nothing.txt: no such file"):
        main([*arguments, "nothing.txt"])


@pytest.mark.nightly
def test_an_installed_library_describes_a_text_in_any_folder(text, tmp_path):
    """It has neither presets nor a data folder, and writes into the user's folder for caches alone."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    shutil.copytree(ROOT / "chargpt", site / "chargpt", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "model.py", site)
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    environment.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-m", "chargpt", "text", str(text), "model.n_embd=16", "runtime.threads=1"]
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "settings    " in done.stdout and "model.n_embd=16" in done.stdout and "\noutlook " in done.stdout
    assert sorted(path.name for path in site.iterdir()) == ["chargpt", "model.py"]
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert (tmp_path / cache / "chargpt" / "cache").is_dir() and not list(elsewhere.iterdir())


def test_the_outlook_does_not_advise_what_is_set(tmp_path):
    (tmp_path / "text.txt").write_text("ab" * 5000)
    corpus = load_corpus([str(tmp_path / "text.txt")], DataConfig(cache=str(tmp_path)), root=tmp_path, block_size=4)

    def said(weight_decay: float, dropout: float) -> str:
        config = Config(model=GPTConfig(dropout=dropout), optim=OptimConfig(weight_decay=weight_decay))
        return outlook(corpus, config, steps=config.train.max_steps, parameters=10_000).text

    assert "optim.weight_decay=1" in said(0.1, 0.5) and "dropout" not in said(0.1, 0.5)
    assert "model.dropout=" in said(1.0, 0.0) and "weight_decay" not in said(1.0, 0.0)


@pytest.mark.parametrize("seconds", [60.0, 600.0])
@pytest.mark.parametrize(("length", "memorised"), [(9700, True), (400_000, False)])
def test_the_outlook_agrees_with_the_choice(length, memorised, seconds, text, tmp_path, monkeypatch):
    """It advises nothing else than what was chosen, also if the run becomes a bit longer, and knows that it memorises."""
    monkeypatch.setattr("chargpt.planning.chosen_for_time.training_speed", lambda config, corpus, teachers: 2e4)
    written = text.read_text(encoding="utf-8")
    (tmp_path / "text.txt").write_text((written * (1 + length // len(written)))[:length], encoding="utf-8")
    corpus = load_corpus([f"{tmp_path}/text.txt"], DataConfig(cache=str(tmp_path)), root=tmp_path, block_size=16)
    config = choose(
        Config(), corpus, text_of(corpus), given={"train.student_minutes"}, seconds=seconds, optimizer="muon"
    ).config
    for longer in (1.0, 1.1):
        steps = int(longer * config.train.max_steps)
        _, said, kind = outlook(corpus, config, steps=steps, parameters=in_blocks(config) + 10_000)
        assert kind == "detail"
        assert "=" not in said and "--" not in said  # it names no setting and no option
        assert ("the model will memorise" in said) == memorised


def test_the_outlook_knows_that_a_large_vocabulary_is_memorised_sooner(tmp_path):
    (tmp_path / "text.txt").write_text("".join(map(chr, range(0x4E00, 0x4E00 + 2000))) * 20)
    corpus = load_corpus([str(tmp_path / "text.txt")], DataConfig(cache=str(tmp_path)), root=tmp_path, block_size=4)
    config = Config(optim=OptimConfig(weight_decay=1.0), train=TrainConfig(max_steps=400))
    new, begun = (outlook(corpus, config, steps=400, parameters=300_000, may_change_model=may).text for may in (True, False))
    assert "model.dropout=0.3, a smaller model" in new and "overfitting expected" in begun and "model" not in begun


@pytest.fixture
def steady(monkeypatch) -> None:
    """A machine with the same speed for every model, also while other programs use it."""
    monkeypatch.setattr("chargpt.planning.chosen_for_time.training_speed", lambda config, corpus, teachers: 1e5)
    monkeypatch.setattr(
        "chargpt.planning.forecast.step_times", lambda trainer: StepTimes(trainer.config.chars_per_step / 1e5, 0.0)
    )


def test_with_chosen_settings_the_outlook_is_that_of_the_choice(text, tmp_path, capsys, steady):
    """The same epochs, and no advice against what the program chose itself."""
    assert main([str(text), f"data.cache={tmp_path}", "--minutes", "0.2", "runtime.threads=1"]) == 0
    said = capsys.readouterr().out
    (chosen,), (seen,) = (
        re.findall(pattern, said) for pattern in (r"sees the text ([\d.]+) times", r"outlook +([\d.]+) epochs")
    )
    assert chosen == seen and "overfitting expected: the best" not in said


def test_a_length_that_minutes_replaces_is_not_looked_ahead_at(text, tmp_path, capsys, steady):
    words = ["--minutes", "0.2", "train.max_steps=1000000000", "train.max_epochs=1000000", "runtime.threads=1"]
    assert main([str(text), f"data.cache={tmp_path}", *words]) == 0
    assert re.search(r"\nestimate .* in 0:12\n", capsys.readouterr().out)


def test_with_minutes_what_is_said_is_about_the_steps_that_fit(text, tmp_path, capsys):
    arguments = [str(text), "--config", "tiny", f"data.cache={tmp_path}", "train.max_steps=123456789", "--minutes", "2"]
    session = opened([*arguments, "--run", f"{tmp_path}/run"])
    trainer, corpus = session.trainer, session.corpus
    notices = describe_training(trainer, corpus, seconds=120.0)
    (line,) = [text for label, text, kind in notices if (label, kind) == ("training", "detail")]
    assert "as many steps as fit into 2:00" in line and "epochs" not in line
    evaluations = [evaluation_seconds(trainer.config, corpus, times) for times in (StepTimes(0.1, 0.0), StepTimes(0.05, 0.05))]
    steps, more = (
        forecast(trainer.config, characters=10_800, step=0.1, evaluation=evaluation, seconds=120.0).steps
        for evaluation in evaluations
    )
    assert 100 < steps < more < 1200  # an evaluation makes no update
    (estimate,) = [text for label, text, _ in notices if label == "estimate"]
    assert estimate.endswith("in 2:00")
    capsys.readouterr()
    assert main(arguments) == 0
    assert re.search(r"\nestimate .* in 2:00\n", capsys.readouterr().out)


@pytest.mark.parametrize("option", [["--run", "x"], ["--resume"], ["--find-lr"]])
def test_the_text_command_has_no_options_of_a_run(option):
    with pytest.raises(UserError, match="no such option"):
        main(option)
