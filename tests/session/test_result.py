"""The result of a run names what was measured and what to type, and never what is already set."""

import dataclasses
import re

import pytest

from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.stage import Start
from chargpt.runs.starts import start_names
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


COMMANDS = {  # words, and what is named for a better model
    "poem": (["POEM"], "start"),
    "poem, with minutes": (["POEM", "--minutes", "0.1"], "start"),
    "poem, by epochs": (["POEM", "--epochs", "2"], "start"),
    "poem, a vocabulary": (["POEM", "--vocab-from", "RUN"], "start"),
    "poem, another case": (["POEM", "data.lowercase=true", "data.val_fraction=0.2"], "start"),
    "a few lines": (["LINES"], "start"),
    "a list of names": (["NAMES"], "minutes"),
    "a text that repeats itself": (["REPEATED"], ""),
    "bytes": (["POEM", "data.vocabulary=bytes"], "minutes"),
    "few characters": (["POEM", "data.max_vocab=20"], "minutes"),
    "items": (["POEM", "--items"], "minutes"),
    "novel": (["NOVEL"], "minutes"),
    "novel on the CPU": (["NOVEL", "--device", "cpu", "--verbose"], "minutes"),
    "novel, with minutes": (["NOVEL", "--minutes", "0.1"], ""),
    "novel, by epochs": (["NOVEL", "--epochs", "1"], ""),
    "with a start": (["POEM", "--start", "english"], ""),
    "from a run": (["POEM", "--init-from", "RUN"], ""),
    "a preset": (["POEM", "--config", "tiny"], ""),
    "a model": (["POEM", "model.n_layer=2"], ""),
    "a length": (["NOVEL", "train.max_steps=9"], ""),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_named_for_a_better_model_can_be_added_to_the_command(command, text, tmp_path, monkeypatch):
    monkeypatch.setattr("chargpt.planning.speeds.training_speed", lambda config, corpus, teachers: 1e5)
    written = text.read_text(encoding="utf-8")
    files = {"POEM": written[:6000], "NOVEL": written * (1 + 300_000 // len(written)), "LINES": written[:250]}
    files["NAMES"] = "".join(f"{word}{n}\n" for n, word in enumerate(written.split()[:200]))
    files["REPEATED"] = "abc\n" * 1000
    for name, content in files.items():
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
    known = {name: str(tmp_path / f"{name}.txt") for name in files} | {"RUN": str(tmp_path / "known")}

    def planned(words: list[str], run: str) -> tuple:
        argv = [*[known.get(word, word) for word in words], "--run", f"{tmp_path}/{run}", "--dry-run"]
        options = parse_options([*argv, f"data.cache={tmp_path}/cache", "runtime.threads=1"])
        return options, make_plan(options, root=project_root())

    words, named = COMMANDS[command]
    if "RUN" in words:
        import train

        tiny = ["--config", "tiny", "train.max_steps=1", "train.sample_length=0", f"data.cache={tmp_path}/cache"]
        assert train.main([known["POEM"], *tiny, "--run", known["RUN"]]) == 0
    options, plan = planned(words, "first")
    reached = dataclasses.replace(plan.state, progress=Progress(val_loss=0.0, best_loss=0.0))
    better = str(better_way(options, reached, plan.corpus) or "")
    found = re.search(r"(--(start|minutes) \w+)(?: \(or ([\w, ]+)\))? and --run NAME$", better)
    assert (found[2] if found else "") == named and bool(better) == bool(named)
    if found:
        _, following = planned([*words, *found[1].split()], "second")
        assert str(following.state.stage.start or "") == (found[1].split()[1] if named == "start" else "")
        assert not found[3] or {*found[3].split(", ")} <= {*start_names()}
