"""The command line of train.py: texts and settings are told apart, contradictions are one line."""

import re

import pytest

from chargpt.errors import UserError
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.text.source import NAMES


def test_texts_and_settings_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a=b.txt", "data.txt"):  # files whose names look like settings
        (tmp_path / name).write_text("")
    assert parse_options(["data.txt"]).texts == ["data.txt"]
    options = parse_options(["a=b.txt", "train.seed=1", "more.txt", "--device", "cpu", "--minutes", "1.5"])
    assert options.texts == ["a=b.txt", "more.txt"] and options.settings == {"train": {"seed": 1}, "runtime": {"device": "cpu"}}
    assert options.gives("train.seed") and not options.gives("train.max_steps")
    assert options.minutes == 1.5 and not options.resume


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("90 1.5h 1h30 1h30m 90m 1h30min", 90),
        ("2h", 120),
        ("30s", 0.5),
        ("2m30s 2m30", 2.5),
        ("5min 5m", 5),
        ("90s 1.5min", 1.5),
    ],
)
def test_a_time_may_have_units(written, minutes):
    assert {parse_options(["--minutes", given]).minutes for given in written.split()} == {minutes}


@pytest.mark.parametrize(
    "given", ["1:30", "h", "m", "", "1h-30", "1h30h", "30m1h", "1.5h30", "1h30s", "h30", "1 h", "１h30", "1h" * 9]
)
def test_a_time_that_is_not_clear_is_one_line(given):
    with pytest.raises(UserError, match="use minutes as a number, or a time such as 2h, 1h30 or 30s"):
        parse_options([f"--minutes={given}"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x.txt", "./x.txt"], "TEXT: the same text given twice"),
        ([""], "TEXT: a file name is empty (from an empty shell variable?); give the name"),
        (["x.txt", "train.seed", "5"], "train.seed: a setting without a value; write train.seed=VALUE"),
        (["--minutes", "0"], "--minutes: 0 given; use a number above 0"),
        (["--minutes", "1e10"], "use a number above 0, up to 5,256,000"),
        (
            ["--resume", "--init-from", "x"],
            "--resume: cannot be used with --init-from, since the run has its settings and weights",
        ),
        (["--find-lr", "--minutes", "3"], "--find-lr: "),
        (
            ["--dry-run", "--resume"],
            "--dry-run: cannot be used with --resume, since it describes a new run; leave out --resume",
        ),
        (["--start", "english", "--init-from", "x"], "each gives the weights to begin with; leave out --init-from"),
        (["--find-lr", "optim.learning_rate=0.1"], "trainings of its own; leave out optim.learning_rate"),
        (["--epochs", "0"], "--epochs: 0 given; use a number above 0, up to 1,000,000"),
        (["--epochs", "many"], "--epochs: 'many' given; use a number"),
        (
            ["--epochs", "3", "--minutes", "1"],
            "--epochs: cannot be used with --minutes, since each sets the length of the training; leave out --minutes",
        ),
        (["--resume", "--epochs", "3", "train.max_steps=5"], "sets the length of the training; leave out train.max_steps"),
        (["--minute", "1", "train.seed=1"], "--minute: no such option; did you mean --minutes?"),
        (["-minutes", "1"], "-minutes: no such option; did you mean --minutes?"),
        (["--device", "cpu", "runtime.device = cuda"], "--device: given together with runtime.device"),
    ],
)
def test_a_contradiction_is_one_line_that_says_what_to_do(words, says):
    with pytest.raises(UserError) as caught:
        parse_options(words)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_given_as_a_text_to_resume_is_an_error_that_says_what_to_write(installed):
    (installed / "checkpoints" / "poems").mkdir(parents=True)
    with pytest.raises(UserError, match="--resume: poems is a run, not a TEXT; write --resume --run poems$"):
        parse_options(["--resume", "poems", "--minutes", "5"])
    assert parse_options(["--resume", "other"]).texts == ["other"]  # a text that has moved
    with pytest.raises(UserError, match="leave out --config"):
        parse_options(["--resume", "--config", "tiny"])


@pytest.mark.parametrize("option", ["--config", "--run", "--minutes", "--device"])
def test_an_option_that_is_given_twice_is_one_line_and_none_is_dropped(option):
    with pytest.raises(UserError, match=f"{option}: given twice, 1.* and 2.*; give it once"):
        parse_options([option, "1", option, "2"])


def test_the_help_names_every_corpus(capsys):
    with pytest.raises(SystemExit):
        parse_options(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--items name --label Realms", "--label realm"),
        ("data.items=name data.label=Realms", "data.label=realm"),
        ("--items name data.label=Realms", "data.label=realm"),
        ("data.items=name --label Realms", "--label realm"),
        ("--items Names --label realm", "--items name"),
        ("data.items=Names --label realm", "data.items=name"),
    ],
)
def test_a_guess_is_spelled_as_what_was_typed(typed, meant, tmp_path):
    (tmp_path / "towns.csv").write_text("name,realm\n" + "Turku,Finland\n" * 30)
    options = parse_options([str(tmp_path / "towns.csv"), *typed.split(), "--dry-run", f"data.cache={tmp_path}"])
    with pytest.raises(UserError, match=rf"did you mean {re.escape(meant)}\?$"):
        make_plan(options, root=tmp_path)
