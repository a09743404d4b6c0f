"""The words and the numbers of a report are those that it is given."""

import numpy as np
import pytest
import torch
from helpers import saved_state

from chargpt.analysis.heads import measure_heads
from chargpt.analysis.losses import ClassLoss, LastDoubling, LossBreakdown
from chargpt.analysis.run_facts import RunFacts
from chargpt.analysis.scored_text import Line
from chargpt.config import Config
from chargpt.formatting import up_to_a_word
from chargpt.pages.report_page import (
    coloured,
    headline,
    report_page,
    result,
    settings,
    tiles,
)
from chargpt.runs.metrics import MetricsLog
from chargpt.runs.stage import Length, Progress, Stage, Start
from chargpt.settings import Settings, Source


def test_the_level_of_a_character_is_its_surprise():
    line = Line(1, "ab<c\n", np.array([np.nan, 0.1, 20.0, 1.5, 0.0]))
    assert coloured([line]) == [(-1, "a"), (0, "b"), (8, "<"), (2, "c")]
    assert coloured([line], 2) == [(-1, "a"), (0, "b"), (0, " …")]
    blank, end = Line(1, "\n", np.array([9.0])), Line(2, "  x\n", np.array([0.0, 0.0, 3.0, 9.0]))
    assert coloured([blank, end], 100) == [(0, "  "), (4, "x")] and coloured([end], 100) == [(4, "x")]
    assert coloured([end, blank, end], 6) == [(0, "  "), (4, "x"), (7, "\n\n"), (0, " "), (0, " …")]
    assert coloured([], 5) == []


def report(*, texts: str = "0", start: Start | None = None, progress: Progress | None = None, **changes) -> RunFacts:
    """A report of what is given; `texts` stands for them in the fingerprint."""
    settings, stage = changes.pop("settings", Settings()), Stage(start=start, length=Length.of(Config()))
    known = {"settings": settings, "progress": progress or Progress(step=600), "stage": stage}
    facts = {"name": "a", "step": 500, "val_loss": 1.5, "logs": [MetricsLog()]}
    return RunFacts(**{**facts, "state": saved_state(600, fingerprint=texts * 64, **known), **changes})


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([{"val_loss": 2.0}], "a predicts new text best: a is as unsure as if it chose among 4.5 characters, b among 7.4."),
        (
            [{"val_loss": 1.505}, {"val_loss": 2.0}],
            "a and b predict new text best: a is as unsure as if it chose among 4.5 characters, ",
        ),
        ([{"val_loss": None}], "Fewer than two of these runs have been tried on new text"),
        ([{"val_loss": 1.0, "texts": "1"}], "These runs differ in the text, its split or its vocabulary"),
        ([{"val_loss": None, "texts": "1"}], "Fewer than two of these runs have been tried on new text"),
    ],
)
def test_the_best_of_several_runs_is_named(others, said):
    runs = [report(), *(report(name=name, **other) for name, other in zip("bc", others))]
    content = report_page(runs)
    assert f'<p class="result">{said}' in content and content.index(said) < content.index("<table")


def test_the_time_of_the_steps_and_the_loss_before_them_are_what_the_run_has_kept():
    """The best step was the 500th of 1,000. Of an imported run, no time is shown: not all was counted."""
    start, progress = Start(name="english", is_run=False), Progress(step=1000, seconds=150.0, first_loss=2.0)
    shown = tiles(report(start=start, progress=progress))
    assert ("time of the steps", "2:30", f"{1000 * Config().chars_per_step / 150:,.0f} characters per second") in shown
    assert ("start alone", "2.0000", "english; the model is 0.50 lower") in shown
    older = tiles(report(start=start, progress=Progress(step=1000, seconds=150.0)))
    assert not {"time of the steps", "start alone"} & {name for name, *_ in older}


def test_a_head_is_as_wide_as_the_characters_that_it_looks_at():
    text = "abcdefghij" * 2
    T = len(text)
    one, two = torch.eye(T).roll(-1, 1).tril(), torch.eye(T)  # one character back; the character itself and that before it
    one[0, 0] = 1.0
    two = torch.stack([one, (one + two) / 2])
    content = report_page([report(heads=measure_heads(two[None], text))])
    assert "1.0 wide, 1.0 back" in content and "2.0 wide, 0.5 back" in content and "<b>previous 1.00</b>" in content
    assert "<b>itself" in content


@pytest.mark.parametrize("written", [5, 6, 7, 60])
def test_a_page_that_leaves_out_samples_says_how_many_there_are(written):
    content = report_page([report(logs=[MetricsLog(samples=[(step, f"sample{step}") for step in range(written)])])])
    shown = sum(f">sample{step}<" in content for step in range(written))
    assert (f"{shown} of {written} samples, " in content) == (shown < written) and shown in (written, 6, 7)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"ngram_loss": 1.4}, ["1.50 nats (2.16 bits)", "0.10 above that of an n-gram model"]),
        ({"ngram_loss": 1.505}, ["about that of an n-gram model"]),
        ({"val_loss": None}, ["not evaluated"]),
        (
            {"progress": Progress(step=950, evaluated=900, val_loss=2.1)},
            ["At step 500 it was 1.50; it rose to 2.10 after"],
        ),
        (
            {"logs": [MetricsLog(curves={"train/loss": [(0, 4.0), (480, 0.5), (900, 0.1)]})]},
            ["training loss is 0.50", "memorised"],
        ),
    ],
)
def test_the_result_says_what_the_numbers_say(changes, said):
    assert all(part in result(report(**changes)) for part in said)


def test_the_headline_needs_no_loss_to_be_understood():
    unsure = "is as unsure as if it chose among 4.5 characters; a blind guess chooses among 11."
    assert headline(report()) == f"On new text, it {unsure}"
    classes = [
        ClassLoss(name=name, characters=1, share=0.5, loss=1, share_of_loss=0.5, right=r)
        for name, r in (("a", 0.2), ("b", 0.9))
    ]
    losses = LossBreakdown(loss=1.5, classes=classes, positions=[], last_doubling=LastDoubling(), confused=[])
    assert headline(report(losses=losses)) == f"It guesses the next character of new text right 55 times in 100. It {unsure}"
    assert headline(report(val_loss=None)) == "It has not been tried on new text."
    content = report_page([report(ngram_loss=1.6)])
    assert content.index(unsure) < content.index("1.50 nats") and "that of an n-gram model" in content
    assert all(word in content.split("Words on this page")[1] for word in ("nat, bit", "n&#8209;gram model", "step, epoch"))


def test_a_sample_ends_at_the_end_of_a_word():
    whole = ("The sea.", "The sea ", "Thesea", "")
    ends = {"The sea and a young ta": "The sea and a young", "The sea.\nTh": "The sea."} | dict(zip(whole, whole))
    assert {sample: up_to_a_word(sample) for sample in ends} == ends


def test_the_settings_that_somebody_gave_come_first():
    given = Settings().give({"train": {"seed": 5}, "optim": {"name": "muon"}}, source=Source.USER, where="")
    (name, rows), *others = settings(report(settings=given))
    assert (name, rows) == ("given", [("optim.name", "muon"), ("train.seed", "5")]) and others[0][0] == "model"
