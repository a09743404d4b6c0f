"""The verdict names what went wrong and what to type, and never what is already set."""

import pytest
from helpers import last_step, publish_run

from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.runs.checkpoint import steps
from chargpt.runs.saved_state import Progress
from chargpt.training.verdict import after_divergence, verdict


def said(
    val_loss: float,
    best_loss: float,
    best_step: int,
    *,
    train_loss: float | None = None,
    config: Config | None = None,
    mark: float = 1.8,
) -> str:
    progress = Progress(step=1000, evaluated=1000, val_loss=val_loss, best_loss=best_loss, best_step=best_step)
    return verdict(progress, config or Config(), mark=mark, train_loss=train_loss)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((4.5, 4.2, 0), ["learned nothing", "lower optim.learning_rate", "--find-lr"]),
        ((2.0, 2.0, 1000), ["no better than an n-gram model", "1.80", "--minutes"]),
        ((2.5, 2.0, 500), ["no better than an n-gram model", "more text"]),
        ((1.7, 1.5, 400), ["memorised", "more text", "optim.weight_decay=0.5", "train.patience=3", "step 400"]),
        ((1.5, 1.5, 1000), ["better than an n-gram model", "1.80", "1.50"]),
    ],
)
def test_every_end_has_its_verdict(losses, words):
    assert all(word in said(*losses) for word in words)


def test_validation_far_above_training_is_memorisation():
    line = said(1.5, 1.5, 1000, train_loss=0.6)  # the loss was lowest at the end, so a shorter run would be no better
    assert "memorised" in line and not any(words in line for words in ("sample.py", "fewer steps", "train.patience"))
    assert "better than an n-gram model" in said(1.5, 1.5, 1000, train_loss=1.4)


@pytest.mark.parametrize("losses", [(0.0, 0.0, 0), (0.004, 0.001, 500)])
def test_a_text_that_repeats_itself_has_nothing_to_learn(losses):
    assert "nothing to learn from this text" in said(*losses, mark=0.0)
    assert "nothing to learn" not in said(*losses)


def test_advice_does_not_repeat_what_is_set():
    config = Config(optim=OptimConfig(weight_decay=1.0), train=TrainConfig(patience=3))
    line = said(1.7, 1.5, 400, config=config)
    assert "optim.weight_decay=2" in line and "train.patience" not in line


def test_the_first_of_two_runs_gets_no_advice_against_memorising():
    line = said(1.7, 1.5, 400, config=Config(train=TrainConfig(pupil_minutes=1.0)))
    assert "memorised" in line and "its best checkpoint, of step 400, is the teacher" in line and "more text" not in line


def test_a_run_with_teachers_is_not_told_to_stop_early():
    config = Config(train=TrainConfig(teachers="checkpoints/first/step-00000400"))
    line = said(1.7, 1.5, 400, config=config)
    assert "memorised" in line and "train.patience" not in line and "more text" in line


def test_after_divergence_it_names_what_is_saved_and_what_to_do(tmp_path):
    config, last = Config(), last_step(publish_run(tmp_path / "poems", steps=(20, 40)))
    assert "nothing is saved yet; start again" in after_divergence(None, config, name="poems")
    line = after_divergence(last, config, name="poems")
    assert "step-00000040; continue from it with --resume --run poems" in line and "train.on_nonfinite=rollback" in line
    config = Config(train=TrainConfig(on_nonfinite="rollback"))
    assert "rollback" not in after_divergence(last, config, name="poems")


def test_after_divergence_a_checkpoint_that_is_damaged_by_now_is_not_called_good(tmp_path):
    first, last = steps(publish_run(tmp_path / "poems", steps=(20, 40)))
    (last / "model.safetensors").write_bytes(b"")
    assert "step-00000020; continue from it" in after_divergence(last, Config(), name="poems")
    (first / "state.json").unlink()
    assert "nothing of the run can be read" in after_divergence(last, Config(), name="poems")
