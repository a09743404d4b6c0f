"""Progress in a pipe: a line for each evaluation, and few others."""

import pytest

from chargpt.training.progress_bar import ProgressBar, clock


def test_an_evaluation_is_a_line_and_training_losses_are_not(capsys):
    bar = ProgressBar(step=0, total=100)
    for step in range(1, 50):
        bar.advance()
        bar.show(step, {"train/loss": 2.0, "chars_per_second": 1234.0})
    bar.show(50, {"val/loss": 1.5, "val/bits_per_char": 2.164})
    bar.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("step 50/100: train 2.000, val 1.500, 2.164 bits/char, 1,234 chars/s, ")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_the_time_is_written_as_a_clock_shows_it(seconds, text):
    assert clock(seconds) == text


def test_a_validation_loss_is_shown_only_when_it_is_new(capsys, monkeypatch):
    monkeypatch.setattr("chargpt.training.progress_bar.PLAIN_SECONDS", 0.0)
    bar = ProgressBar(step=0, total=100)
    bar.show(0, {"val/loss": 4.734, "val/bits_per_char": 6.83})
    bar.show(20, {"train/loss": 1.462})
    bar.close()
    first, second = capsys.readouterr().out.splitlines()
    assert "val 4.734" in first and "train 1.462" in second and "val" not in second
