"""What is due between two steps of a run."""

from dataclasses import KW_ONLY, dataclass

from chargpt.config import Config
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.stage import Length, Progress, Stage
from chargpt.training.learning_rate import decay_start

# The decision on further models comes after this share of the steps before the decay, and after this share of the run.
BEFORE_DECAY, EARLIEST = 0.9, 0.2


@dataclass(frozen=True)
class Due:
    """What is due at a moment between two steps: each property first rules out what forbids it, then tests what asks for it."""

    progress: Progress
    config: Config
    stage: Stage
    _: KW_ONLY
    saved: SavedState | None  # the newest checkpoint, None if there is none
    is_stopping: bool  # a signal came

    @property
    def is_finished(self) -> bool:
        """Whether no step is left to take."""
        return self.progress.is_finished(self.stage.length, patience=self.config.train.patience)

    @property
    def decide_on_teachers(self) -> bool:
        """Whether to decide now if other models follow: much is learned, and the rate is about to fall."""
        return not self.stage.models.is_decided and self.progress.step >= decision_step(self.config, self.stage.length)

    @property
    def evaluate(self) -> bool:
        """Whether to evaluate now."""
        step, evaluated = self.progress.step, self.progress.evaluated
        if evaluated == step:
            return False
        return evaluated is None or step - evaluated >= self.stage.length.interval or self.is_finished

    @property
    def save(self) -> bool:
        """Whether to save now. Ask after the evaluation that is due at this step."""
        progress, step, config, is_changed = self.progress, self.progress.step, self.config, False
        if (saved := self.saved) is not None:
            is_decided_anew = (saved.config, saved.stage) != (config, self.stage)
            if saved.progress == progress and not is_decided_anew:
                return False
            is_changed = is_decided_anew or saved.progress.step == step  # of that step, an evaluation has changed
        return (
            is_changed
            or progress.best_step == step  # the evaluation of this step is the best one so far
            or (progress.evaluated == step and self.stage.length.interval < config.train.eval_interval)  # fitted to the time
            or step % config.checkpoint.interval == 0
            or self.is_finished
            or self.is_stopping
        )

    @property
    def record(self) -> bool:
        """Whether to record the training loss now: something was computed since the last record."""
        return self.progress.step % self.config.train.log_interval == 0 and self.progress.loss_count > 0

    @property
    def sample(self) -> bool:
        """Whether to write a sample now, before the evaluations that write one: after steps 1, 2, 5, 10, 20, 50 and so on."""
        is_early = not self.progress.evaluated and str(self.progress.step).rstrip("0") in ("1", "2", "5")
        return is_early and self.config.train.sample_length > 0 and not self.evaluate


def decision_step(config: Config, length: Length) -> float:
    """The step at which to decide: the model has learned much, and the rate has not begun to fall."""
    return max(BEFORE_DECAY * decay_start(config.optim, length), EARLIEST * length.steps, length.warmup)
