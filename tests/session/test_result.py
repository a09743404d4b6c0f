"""The result of a run names what was measured and what to type, and never what is already set."""

import pytest
from helpers import last_step, publish_run

from chargpt.config import CheckpointConfig, Config, TrainConfig
from chargpt.runs.checkpoint import steps
from chargpt.runs.checkpoint_schema import Progress
from chargpt.session.result import after_divergence, began_after, began_trained, best_of, what_happened


def said(val_loss: float, best_loss: float, best_step: int, *, config: Config | None = None, **facts: object) -> str:
    progress = Progress(
        step=1000, evaluated=1000, val_loss=val_loss, best_loss=best_loss, lowest_loss=best_loss, best_step=best_step
    )
    return what_happened(progress, config or Config(), **{"ngram_loss": 1.8, "train_loss": None, **facts})


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((4.5, 4.2, 0), ["learned nothing", "learning rate is too high"]),
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
    assert best_of(progress, config) == "best 1.2600 at step 10; an earlier one had 1.2500, but checkpoint.best=last"
    assert best_of(progress, Config()).endswith("an earlier one had 1.2500, before checkpoint.best was changed")
    progress.best_loss, progress.best_step = 1.25, 5
    assert best_of(progress, config) == "best 1.2500 at step 5, whose sample is above"


def test_the_first_of_two_runs_is_the_teacher():
    line = said(1.7, 1.5, 400, config=Config(train=TrainConfig(student_minutes=1.0)))
    assert "its best checkpoint, of step 400, is the teacher" in line


def test_a_start_that_training_made_no_better_is_what_is_sampled():
    line = said(1.7, 1.5, 0, is_adapted=True)
    assert "1.50" in line and "samples use the weights from before it" in line and "learned nothing" not in line


def test_imported_weights_that_training_made_no_better_are_not_called_unlearned():
    for line in (said(1.7, 1.5, 0, is_adapted=True, began=49), said(1.7, 1.5, 40, is_adapted=True, began=49, train_loss=3.6)):
        assert "did not lower the loss" in line
    assert began_after([(50, 1.7), (100, 1.6)]) == 49 and began_after([(0, 4.0), (50, 1.7)]) == began_after([]) == 0


def test_a_training_loss_above_the_validation_loss_is_no_sign_of_memorising():
    assert "knows its training text" not in said(1.7, 1.5, 400, train_loss=1.9)
    assert "knows its training text" in said(1.7, 1.5, 400, train_loss=1.6)


def test_the_losses_of_a_run_say_whether_it_began_with_trained_weights():
    assert began_trained([(0, 2.0), (10, 1.9)], vocabulary=60)
    assert not began_trained([(0, 4.1), (10, 1.9)], vocabulary=60)
    assert not began_trained([(10, 1.9)], vocabulary=60) and not began_trained([], vocabulary=60)


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
