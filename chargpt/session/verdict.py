"""How a run ended, in one line, with advice on what to try next."""

import math
from collections.abc import Sequence
from pathlib import Path

from chargpt.config import Config
from chargpt.runs.checkpoint import newest
from chargpt.runs.saved_state import Progress
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import shown

FAR = 0.5  # nats between training and validation loss: the model knows its training text better than its language
NOTHING = 0.005  # nats: a loss below this is printed as 0.00, and the text repeats itself
TRAINED = 0.9  # of the logarithm of the vocabulary: an untrained model has a higher loss
RISEN = 0.02  # nats above the best validation loss: more than the noise of an evaluation


def verdict(
    progress: Progress, config: Config, *, mark: float, train_loss: float | None, is_adapted: bool = False, command: str = ""
) -> str:
    """The verdict on a run that has ended. `mark` is the loss of an n-gram model; all losses are in nats per character.

    `is_adapted` says that it began with the weights of another run. It ends with the `command` that may give a lower loss.
    """
    if mark < NOTHING and progress.best_loss < NOTHING:
        return "there is nothing to learn from this text: each character follows from those before it"
    return _what_happened(progress, config, mark=mark, train_loss=train_loss, is_adapted=is_adapted) + (
        f"; for a lower loss: {command}" if command else ""
    )


def _what_happened(progress: Progress, config: Config, *, mark: float, train_loss: float | None, is_adapted: bool) -> str:
    compared = f"its loss is {mark:.2f}, that of this run {progress.best_loss:.2f}"
    if progress.best_step == 0 and progress.step > 0:
        if is_adapted:
            return f"training made the start no better; sample.py uses the start itself, whose loss is {progress.best_loss:.2f}"
        return "it learned nothing: the loss was lowest before the first step, so the learning rate is too high"
    if progress.best_loss > mark:
        return f"no better than an n-gram model: {compared}"
    if not is_memorised(progress, train_loss=train_loss):
        return f"better than an n-gram model: {compared}"
    losses = {"validation loss": progress.val_loss, "training loss": train_loss}
    now = ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items() if loss is not None)
    best = f"its best checkpoint, of step {progress.best_step:,}"
    if config.train.pupil_minutes:
        return f"the model memorised parts of the text ({now}); {best}, is the teacher"
    taken = f"; sample.py uses {best}" if _has_risen(progress) else ""
    return f"the model memorised parts of the text ({now}){taken}"


def began_trained(losses: Sequence[tuple[int, float]], *, vocabulary: int) -> bool:
    """Whether a run began with the weights of another one, as its validation losses (step, nats) say.

    Initial weights give each of the `vocabulary` characters about the same probability.
    """
    return bool(losses) and losses[0][0] == 0 and losses[0][1] < TRAINED * math.log(max(2, vocabulary))


def is_memorised(progress: Progress, *, train_loss: float | None) -> bool:
    """Whether the model knows its training text much better than its language."""
    return _has_risen(progress) or (train_loss is not None and progress.val_loss - train_loss > FAR)


def _has_risen(progress: Progress) -> bool:
    return progress.val_loss > progress.best_loss + RISEN


def after_divergence(checkpoint: Path | None, config: Config, *, name: str) -> str:
    """What is saved of the run `name` after a step that was not finite, and what to do. `checkpoint` is its last one.

    What has been damaged since it was saved is not named.
    """
    if checkpoint is None:
        return "nothing is saved yet; start again with runtime.precision=float32, or without --init-from"
    other = ", or with train.on_nonfinite=rollback" if config.train.on_nonfinite == "stop" else ""
    again = f"--resume --run {name} and a lower optim.learning_rate{other}"
    try:
        good = newest(checkpoint.parent)[0].path
    except CheckpointError as problem:
        return f"this step was not saved, and nothing of the run can be read ({problem}); start again with --run NAME"
    return f"this step was not saved. The last good checkpoint is {shown(good)}; continue from it with {again}"


def next_command(config: Config, *, name: str, stopped: bool = False) -> str:
    """What to type after the run `name`; `stopped` if a signal came, so that no second run follows by itself."""
    second = f"   (for the second run: python train.py --resume --run {name})" if stopped and config.train.pupil_minutes else ""
    return f"python sample.py {name}{second}"
