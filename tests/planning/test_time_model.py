"""What is said about a training before it begins."""

import re

import pytest
from helpers import TINY_FILE, apply_overrides

import train
from chargpt.commands.text import main
from chargpt.config import Config
from chargpt.planning.clock import Clock
from chargpt.planning.time_model import SETTLING_STEPS, TimeModel, at_least_measurable
from chargpt.terminal import UserError

VARY = ("estimate", "training")  # labels of lines that depend on the machine's speed


def test_what_the_text_command_prints_is_what_training_prints(text, tmp_path, capsys):
    """Both choose the same settings for the text, from presets by name as well."""
    settings = ["model.n_embd=64", "train.max_steps=3000", f"data.cache={tmp_path}"]  # without timing, which varies
    assert main([str(text), *settings]) == 0
    said = capsys.readouterr().out.splitlines()
    assert train.main([str(text), *settings, "--run", f"{tmp_path}/run", "--dry-run"]) == 0
    assert [line for line in said if not line.startswith(VARY)] == [
        line for line in capsys.readouterr().out.splitlines() if not line.startswith(VARY)
    ]
    assert any(line.startswith("chosen ") for line in said)


def test_the_program_prints_what_it_found(tmp_path, capsys):
    arguments = [f"data.cache={tmp_path}", "--config", "tiny"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert output.startswith("text        python-docs: ") and "\nto beat     gzip " in output
    with pytest.raises(UserError, match="nothing.txt: no such file"):
        main([*arguments, "nothing.txt"])


def test_with_minutes_what_is_said_is_about_the_steps_that_fit(text, tmp_path, capsys):
    arguments = [str(text), "--config", TINY_FILE, f"data.cache={tmp_path}", "train.max_steps=123456789", "--minutes", "2"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert re.search(r"\nestimate .* 0.1 GB of memory\ntraining +2:00, about [\d,]+ steps on cpu", said)
    assert main([*arguments, "train.max_epochs=3"]) == 0
    assert re.search(r"\ntraining +127 steps, 3.0 epochs, about [\d:]+ on cpu", capsys.readouterr().out)


@pytest.mark.parametrize("option", [["--run", "x"], ["--resume"], ["--find-lr"]])
def test_the_text_command_has_no_options_of_a_run(option):
    with pytest.raises(UserError, match="no such option"):
        main(option)


def test_what_comes_before_and_after_the_steps_takes_at_most_a_third_of_a_short_time():
    model = TimeModel(0.1, 1.0, overhead=5.0)
    assert [model.reserve(seconds) for seconds in (0.3, 6.0, 15.0, 600.0)] == pytest.approx([0.1, 2.0, 5.0, 5.0])


@pytest.mark.parametrize("step", [0, 1000])
def test_a_run_with_a_time_limit_is_long_enough_to_measure_its_speed_whatever_its_preset_says(step):
    short = apply_overrides(Config(), ["train.max_steps=1"])
    steps = at_least_measurable(short, step=step, seconds=1.0).train.max_steps - step
    clock = Clock(steps_left=steps, deadline=1e9)
    due = []
    for done in range(1, steps + 1):
        clock.step_done()
        due += [done] if clock.is_due(step + done) else []
    assert due and SETTLING_STEPS < due[0] <= steps // 2  # the rate falls in the second half
    assert at_least_measurable(short, step=step, seconds=None) == short
