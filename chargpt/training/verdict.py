"""How a run ended, in one line, with advice on what to try next."""

from pathlib import Path

from chargpt.config import Config
from chargpt.runs.checkpoint import newest
from chargpt.runs.saved_state import Progress
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import shown

FAR = 0.5  # nats between training and validation loss: the model knows its training text better than its language
NOTHING = 0.005  # nats: a loss below this is printed as 0.00, and the text repeats itself
RISEN = 0.02  # nats above the best validation loss: more than the noise of an evaluation


def verdict(progress: Progress, config: Config, *, mark: float, train_loss: float | None) -> str:
    """The verdict on a run that has ended. `mark` is the loss of an n-gram model; all losses are in nats per character.

    Advice never repeats what the settings already have.
    """
    if mark < NOTHING and progress.best_loss < NOTHING:
        return "there is nothing to learn from this text: each character follows from those before it"
    compared = f"its loss is {mark:.2f}, that of this run {progress.best_loss:.2f}"
    if progress.best_step == 0 and progress.step > 0:
        return f"it learned nothing: the loss was lowest before the first step; use a lower optim.learning_rate ({_find_lr()})"
    if progress.best_loss > mark:
        more = "more steps (train.max_steps) or --minutes" if progress.best_step == progress.evaluated else "more text"
        return f"no better than an n-gram model: {compared}; use {more}, or another optim.learning_rate ({_find_lr()})"
    risen = progress.val_loss > progress.best_loss + RISEN
    if risen or (train_loss is not None and progress.val_loss - train_loss > FAR):
        losses = {"validation loss": progress.val_loss, "training loss": train_loss}
        now = ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items() if loss is not None)
        if config.train.pupil_minutes:
            best = f"its best checkpoint, of step {progress.best_step:,}, is the teacher"
            return f"the model memorised parts of the text ({now}); {best}"
        ways = ["more text", f"optim.weight_decay={_more_decay(config):g}"]
        if risen:
            needs_no_patience = config.train.patience or config.train.teachers
            ways += ["fewer steps"] if needs_no_patience else ["fewer steps", "train.patience=3"]
        taken = f"; sample.py uses the best checkpoint, of step {progress.best_step:,}" if risen else ""
        return f"the model memorised parts of the text ({now}); use {', '.join(ways[:-1])} or {ways[-1]}{taken}"
    return f"better than an n-gram model: {compared}"


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
    if stopped and config.train.pupil_minutes:
        return f"python sample.py {name}   (for the second run: python train.py --resume --run {name})"
    better = (
        "   (for a lower loss from the same text and time, train with --config best)" if config.optim.name == "adamw" else ""
    )
    return f"python sample.py {name}{better}"


def _find_lr() -> str:
    return "train.py --find-lr suggests one"


def _more_decay(config: Config) -> float:
    return max(0.5, 2 * config.optim.weight_decay)
