"""Before the first step, a few lines tell what matters; details.txt and --verbose have all; numbers are recorded once."""

import pytest
from helpers import Clock, logged
from session_helpers import opened

import train
from chargpt.kernels.compiler import HOW_TO_INSTALL
from chargpt.runs.run import Run
from chargpt.runs.stage import Progress
from chargpt.screen import Screen
from chargpt.session import journal as journals
from chargpt.session.journal import Journal
from chargpt.settings import Settings

FEW = 8  # lines
TINY = ["--config", "tiny", "train.max_steps=4", "train.sample_length=0", "runtime.threads=1"]


def before_training(arguments: list[str], capsys) -> list[str]:
    """What train.py prints before the first step, by line."""
    opened(arguments).describe_run()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", [TINY, ["--minutes", "0.2", "runtime.threads=1"], ["--minutes", "2", "runtime.threads=1"]])
def test_few_lines_say_what_is_trained_on_what_how_long_and_where(words, text, tmp_path, capsys):
    lines = before_training([str(text), *words, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}"], capsys)
    labels = [line.split()[0] for line in lines]
    assert len(lines) <= FEW and labels[0] == "text" and labels[-1] == "run"
    assert {"model", "training"} <= set(labels) and "run" in lines[-1] and "details.txt" in lines[-1]


def test_every_choice_is_in_the_run_and_printed_on_request(text, tmp_path, capsys):
    arguments = [str(text), *TINY, f"data.cache={tmp_path}"]
    few = before_training([*arguments, "--run", f"{tmp_path}/a"], capsys)
    all_of_them = before_training([*arguments, "--run", f"{tmp_path}/b", "--verbose"], capsys)
    kept = (tmp_path / "a" / "details.txt").read_text(encoding="utf-8").splitlines()
    labels = [[line[:11].strip() for line in lines] for lines in (kept, all_of_them)]
    assert [*labels[0], "run"] == labels[1] and len(few) < len(kept), "but for the name of the run, which may change"
    assert {"settings", "vocabulary", "repeats", "to beat", "steps", "estimate"} <= set(labels[0])


def test_warnings_about_the_text_are_never_hidden(tmp_path, capsys):
    (tmp_path / "odd.txt").write_text("It was cafÃ© time\u200b again, said line after line.\n" * 200, encoding="utf-8")
    arguments = [str(tmp_path / "odd.txt"), *TINY, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}"]
    said = "\n".join(before_training(arguments, capsys))
    assert "so a low loss is partly memory" in said and "Ã©" in said and "invisible" in said


def test_without_a_c_compiler_one_line_says_what_to_do(text, tmp_path, capsys, no_compiler):
    lines = before_training([str(text), *TINY, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}"], capsys)
    (line,) = [line for line in lines if "no C compiler" in line]
    assert HOW_TO_INSTALL in line and len(lines) <= FEW


def test_a_resumed_run_says_few_lines_and_keeps_the_details_of_its_beginning(text, tmp_path, capsys):
    run, cache = tmp_path / "run", f"data.cache={tmp_path}"
    assert train.main([str(text), *TINY, "--run", str(run), cache]) == 0
    details = (run / "details.txt").read_bytes()
    capsys.readouterr()
    resume = ["--resume", "--run", str(run), cache, "train.max_steps=8"]
    few = before_training(resume, capsys)
    assert len(few) <= FEW and any("resumed" in line and "4 steps to go" in line for line in few)
    assert len(before_training([*resume, "--verbose"], capsys)) > len(few)
    assert (run / "details.txt").read_bytes() == details


def test_losses_and_samples_are_recorded_once(tmp_path):
    journal = Journal()
    with journal.recording(Run(tmp_path), Settings(), progress=Progress(), steps=9, is_new=True):
        journal.record(0, first := {"val/loss": 2.0, "val/bits_per_char": 3.0, "sample": "text"})
        journal.move(1, 30)
        journal.record(20, second := {"train/loss": 1.5, "lr": 1e-3, "grad_norm": 0.7})
    journal.record(30, second)  # nothing is recorded after it
    assert logged(tmp_path) == [{"stage": 1, "step": 0, **first}, {"stage": 1, "step": 20, **second}]


@pytest.mark.parametrize("of", [1, 7, 1000])
@pytest.mark.parametrize("apart", [0.0, 0.01, 1.0])
def test_the_last_step_is_told_however_fast_the_steps_are(of, apart, monkeypatch, tmp_path):
    """A bar would otherwise never end; and what comes in between is told now and then."""
    clock, told = Clock(), []
    monkeypatch.setattr(journals, "time", clock)
    screen = Screen()
    monkeypatch.setattr(screen, "progress", told.append)
    monkeypatch.setattr(journals, "screen", lambda: screen)
    journal = Journal()
    with journal.recording(Run(tmp_path), Settings(), progress=Progress(), steps=of, is_new=True):
        for step in range(1, of + 1):
            clock.sleep(apart)
            journal.move(step, of)
    assert told[-1].step == of and len(told) <= 3 + of * apart / journals.APART + (apart >= journals.APART) * of
    assert told[-1].seconds_left == 0 and told[0].seconds_left is None


@pytest.mark.parametrize("longer", [500, 2000])
@pytest.mark.parametrize("every", [1, 20, 300])
def test_a_loss_is_told_beside_the_length_of_now(longer, every, monkeypatch, tmp_path):
    """Losses of fast steps may come sooner one after the other than the step alone is told."""
    told = []
    monkeypatch.setattr(journals, "time", Clock())
    monkeypatch.setattr(Screen, "progress", lambda _, now: told.append(now))
    monkeypatch.setattr(journals, "screen", Screen)
    journal = Journal()
    with journal.recording(Run(tmp_path), Settings(), progress=Progress(), steps=1000, is_new=True):
        for step in range(1, 400):
            journal.move(step, of := 1000 if step < 100 else longer)
            if step % every == 0:
                journal.record(step, {"train/loss": 1.0})
                assert (told[-1].step, told[-1].of) == (step, of)
