"""What is due between two steps of a run."""

from dataclasses import KW_ONLY, dataclass

from chargpt.config import Config
from chargpt.runs.checkpoint_schema import Progress, SavedState
from chargpt.session.stages import decision_step, is_undecided


@dataclass(frozen=True)
class Due:
    """What is due at a moment between two steps: each property first rules out what forbids it, then tests what asks for it."""

    progress: Progress
    config: Config
    _: KW_ONLY
    saved: SavedState | None  # the newest checkpoint, None if there is none
    is_stopping: bool  # a signal came

    @property
    def decide_on_teachers(self) -> bool:
        """Whether to decide now if other models follow: much is learned, and the rate is about to fall."""
        return is_undecided(self.config) and self.progress.step >= decision_step(self.config)

    @property
    def evaluate(self) -> bool:
        """Whether to evaluate now."""
        step, evaluated = self.progress.step, self.progress.evaluated
        if evaluated == step:
            return False
        is_late = evaluated is None or step - evaluated >= self.config.steps_between_evaluations
        return is_late or self.progress.is_finished(self.config.train)

    @property
    def save(self) -> bool:
        """Whether to save now. Ask after the evaluation that is due at this step."""
        progress, step, saved, config = self.progress, self.progress.step, self.saved, self.config
        if saved is not None and (saved.progress, saved.config) == (progress, config):
            return False
        return (
            progress.best_step == step  # the evaluation of this step is the best one so far
            or (saved is not None and saved.progress.step == step)  # since then, a setting or an evaluation has changed
            or (progress.evaluated == step and config.train.min_evaluations > 0)  # --minutes has set their number
            or (saved is not None and saved.config != config)
            or step % config.checkpoint.interval == 0
            or progress.is_finished(config.train)
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
