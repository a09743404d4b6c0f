"""The result of a run names what was measured and what to type, and never what is already set."""

import re

import pytest
from helpers import last_step, publish_run

from chargpt.config import CheckpointConfig, Config, TrainConfig
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root
from chargpt.runs.checkpoint import steps
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.starts import start_names
from chargpt.session.result import after_divergence, best_of, better_way, what_happened


def said(
    val_loss: float,
    best_loss: float,
    best_step: int,
    *,
    config: Config | None = None,
    ngram_loss: float = 1.8,
    train_loss: float | None = None,
) -> str:
    progress = Progress(
        step=1000,
        evaluated=1000,
        val_loss=val_loss,
        best_loss=best_loss,
        lowest_loss=best_loss,
        best_step=best_step,
        train_loss=train_loss,
    )
    return what_happened(progress, config or Config(), ngram_loss=ngram_loss)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((4.5, 4.2, 0), ["only rose", "lower optim.learning_rate"]),
        ((2.0, 2.0, 1000), ["no better than an n-gram model", "1.80", "2.00"]),
        ((1.7, 1.5, 400), ["1.70", "1.50", "step 400"]),
        ((1.5, 1.5, 1000), ["better than an n-gram model", "1.80", "1.50"]),
    ],
)
def test_every_end_has_its_own_words_and_the_losses(losses, words):
    assert all(word in said(*losses) for word in words)


def test_a_validation_loss_far_above_the_training_loss_is_told_as_measured():
    line = said(1.5, 1.5, 1000, train_loss=0.6)  # the loss was lowest at the end, so a shorter run would be no better
    assert "1.50" in line and "0.60" in line and "memorised" not in line and "samples use" not in line
    assert "better than an n-gram model" in said(1.5, 1.5, 1000, train_loss=1.4)


@pytest.mark.parametrize("losses", [(0.0, 0.0, 0), (0.004, 0.001, 500)])
def test_a_text_that_repeats_itself_has_nothing_to_learn(losses):
    assert "nothing to learn" in said(*losses, ngram_loss=0.0) and "nothing to learn" not in said(*losses)


def test_the_best_checkpoint_is_told_apart_from_the_lowest_loss():
    progress = Progress(step=10, val_loss=1.26, best_loss=1.26, lowest_loss=1.25, best_step=10)
    config = Config(checkpoint=CheckpointConfig(best="last"))
    assert best_of(progress, config) == "best 1.2600 at step 10; an earlier one had 1.2500, but checkpoint.best is last"
    assert best_of(progress, Config()).endswith("an earlier one had 1.2500, before checkpoint.best was changed")
    progress.best_loss, progress.best_step = 1.25, 5
    assert best_of(progress, config) == "best 1.2500 at step 5"


def test_a_start_that_training_made_no_better_is_what_is_sampled():
    line = said(1.7, 1.5, 0, config=Config(train=TrainConfig(start="english")))
    assert "1.50" in line and "use the weights of the start" in line and "only rose" not in line


def test_a_training_loss_above_the_validation_loss_is_no_sign_of_memorising():
    assert "knows its training text" not in said(1.7, 1.5, 400, train_loss=1.9)
    assert "knows its training text" in said(1.7, 1.5, 400, train_loss=1.6)


def test_after_divergence_it_names_what_is_saved_and_what_to_do(tmp_path):
    config, last = Config(), last_step(publish_run(tmp_path / "poems", steps=(20, 40)))
    assert "nothing is saved yet; start again" in str(after_divergence(None, config, name="poems"))
    line = str(after_divergence(last, config, name="poems"))
    assert "step-00000040; continue from it with --resume --run poems" in line and "train.on_nonfinite=rollback" in line
    config = Config(train=TrainConfig(on_nonfinite="rollback"))
    assert "rollback" not in str(after_divergence(last, config, name="poems"))


def test_after_divergence_a_checkpoint_that_is_damaged_by_now_is_not_called_good(tmp_path):
    first, last = steps(publish_run(tmp_path / "poems", steps=(20, 40)))
    (last / "model.safetensors").write_bytes(b"")
    assert "step-00000020; continue from it" in str(after_divergence(last, Config(), name="poems"))
    (first / "state.json").unlink()
    assert "nothing of the run can be read" in str(after_divergence(last, Config(), name="poems"))


COMMANDS = {  # words, and what is named for a better model
    "poem": (["POEM"], "start"),
    "poem, with minutes": (["POEM", "--minutes", "0.1"], "start"),
    "poem, by epochs": (["POEM", "--epochs", "2"], "start"),
    "poem, a vocabulary": (["POEM", "--vocab-from", "RUN"], "start"),
    "poem, another case": (["POEM", "data.lowercase=true", "data.val_fraction=0.2"], "start"),
    "a few lines": (["LINES"], "minutes"),
    "a few lines for training": (["LINES", "VALIDATION"], "minutes"),
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
    monkeypatch.setattr("chargpt.planning.chosen_for_time.training_speed", lambda config, corpus, teachers: 1e5)
    monkeypatch.setattr("chargpt.planning.adaptation.training_speed", lambda config, corpus, teachers: 1e5)
    written = text.read_text(encoding="utf-8")
    files = {"POEM": written[:6000], "NOVEL": written * (1 + 300_000 // len(written)), "LINES": written[:250]}
    files["REPEATED"] = "abc\n" * 1000
    for name, content in files.items():
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
    known = {name: str(tmp_path / f"{name}.txt") for name in files} | {"RUN": str(tmp_path / "known")}
    known["VALIDATION"] = f"data.val_text={known['POEM']}"

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
    better = str(better_way(options, plan.config, plan.corpus, Progress(val_loss=0.0, best_loss=0.0)) or "")
    found = re.search(r"(--(start|minutes) \w+)(?: \(or ([\w, ]+)\))? and --run NAME$", better)
    assert (found[2] if found else "") == named and bool(better) == bool(named)
    if found:
        _, following = planned([*words, *found[1].split()], "second")
        assert following.config.train.start == (found[1].split()[1] if named == "start" else "")
        assert not found[3] or {*found[3].split(", ")} <= {*start_names()}
