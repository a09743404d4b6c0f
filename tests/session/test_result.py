"""The result of a run names what was measured and what to type, and never what is already set."""

import dataclasses
import re

import pytest
from session_helpers import trained

from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root
from chargpt.runs.stage import Progress, Start
from chargpt.session.result import better_way, what_happened


@pytest.mark.parametrize(
    ("losses", "words", "others"),  # the last validation loss, the best one, its step, that of training, that of n-grams
    [
        ((4.5, 4.2, 0, None, 1.8), ["only rose", "lower optim.learning_rate"], []),
        ((2.0, 2.0, 1000, None, 1.8), ["worse than an n-gram model", "1.80", "2.00"], []),
        ((1.5, 1.5, 1000, 1.4, 1.8), ["better than an n-gram model", "1.80", "1.50"], ["knows"]),
        ((1.7, 1.5, 400, 1.6, 1.8), ["better than", "knows its training text better", "1.60", "1.70"], []),
        ((1.5, 1.5, 1000, 0.6, 1.8), ["better than", "knows its training text better", "0.60", "1.50"], []),
        ((1.7, 1.5, 400, 1.9, 1.8), ["better than"], ["knows"]),  # above the validation loss, it is no sign of memorising
        ((0.0, 0.0, 0, None, 0.0), ["nothing to learn"], []),
        ((0.004, 0.001, 500, None, 0.0), ["nothing to learn"], []),
        ((0.004, 0.001, 500, None, 1.8), ["better than"], ["nothing to learn"]),
    ],
)
def test_every_end_has_its_own_words_and_the_losses(losses, words, others):
    val, best, step, train, ngram = losses
    progress = Progress(step=1000, val_loss=val, best_loss=best, best_step=step, train_loss=train)
    line = what_happened(progress, start=None, ngram_loss=ngram)
    assert all(word in line for word in words) and not any(word in line for word in others)
    if step == 0 and ngram:
        line = what_happened(progress, start=Start(name="english", is_run=False), ngram_loss=ngram)
        assert f"{best:.2f}" in line and "use the weights of the start" in line and "only rose" not in line


COMMANDS = {  # words, and whether more minutes are named for a better model
    "poem": (["POEM"], True),
    "poem, with minutes": (["POEM", "--minutes", "0.1"], False),
    "poem, by epochs": (["POEM", "--epochs", "2"], False),
    "poem, a vocabulary": (["POEM", "--vocab-from", "RUN"], True),
    "a text that repeats itself": (["REPEATED"], False),
    "items": (["POEM", "--items"], True),
    "novel on the CPU": (["NOVEL", "--device", "cpu", "--verbose"], True),
    "with a start that reads all it should": (["POEM", "--start", "english"], False),
    "with a start that has no time for that": (["NOVEL", "--start", "english"], True),
    "from a run": (["POEM", "--init-from", "RUN"], False),
    "a preset": (["POEM", "--config", "tiny"], False),
    "a model": (["POEM", "model.n_layer=2"], False),
    "a length": (["NOVEL", "train.max_steps=9"], False),
}


@pytest.fixture(scope="module")
def known(text, tmp_path_factory) -> dict[str, str]:
    """The places of three texts and a run, by the names that the commands have for them."""
    written, folder = text.read_text(encoding="utf-8"), tmp_path_factory.mktemp("known")
    files = {"POEM": written[:6000], "NOVEL": written * (1 + 300_000 // len(written)), "REPEATED": "abc\n" * 1000}
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    trained(folder / "POEM.txt", folder / "RUN", "--config", "tiny", "train.max_steps=1", "train.sample_length=0")
    return {name: f"{folder}/{name}.txt" for name in files} | {"RUN": f"{folder}/RUN", "CACHE": f"{folder}/cache"}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_named_for_a_better_model_can_be_added_to_the_command(command, known, tmp_path, monkeypatch):
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", lambda config, corpus, teachers: 2e3)

    def planned(words: list[str]) -> tuple:
        argv = [*[known.get(word, word) for word in words], "--run", f"{tmp_path}/run", "--dry-run"]
        options = parse_options([*argv, f"data.cache={known['CACHE']}", "runtime.threads=1"])
        return options, make_plan(options, root=project_root())

    words, named = COMMANDS[command]
    options, plan = planned(words)
    end = Progress(step=plan.state.stage.length.steps, val_loss=0.0, best_loss=0.0)
    reached = dataclasses.replace(plan.state, progress=end)
    better = str(better_way(options, reached, plan.corpus) or "")
    assert bool(better) == named
    early = dataclasses.replace(reached, progress=dataclasses.replace(end, step=1))  # patience has ended it
    assert plan.state.stage.start is None or better_way(options, early, plan.corpus) is None
    if named:
        assert (found := re.search(r"(--minutes \d+) and --run NAME$", better))
        planned([*words, *found[1].split()])
