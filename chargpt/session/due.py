"""What is due between two steps of a run."""

from dataclasses import dataclass

from chargpt.config import Config
from chargpt.planning.clock import Clock
from chargpt.runs.checkpoint_schema import Progress, SavedState


@dataclass(frozen=True)
class Due:
    """What is due at a moment between two steps. Each row of a table is enough, and the last row of it forbids.

    evaluate    nothing has been evaluated yet
                the last evaluation is as many steps ago as the settings say
                the run is finished
              never: this step has been evaluated

    save        the evaluation of this step gave the lowest loss
                this step was saved, and a setting or an evaluation has changed since
                this step was evaluated, and --minutes has planned the evaluations
                a setting has changed since the last save
                the step is a multiple of checkpoint.interval
                the run is finished
                a signal came
              never: the newest checkpoint has this progress and these settings

    plan        the speed is known for the first time
                with --minutes: half of the steps that were left at the last plan are done
                with --minutes: the speed has changed by a factor
              never: (no row)
    """

    progress: Progress
    config: Config
    saved: SavedState | None  # the newest checkpoint, None if there is none
    is_finished: bool
    is_stopping: bool  # a signal came
    clock: Clock

    @property
    def evaluate(self) -> bool:
        """Whether to evaluate now."""
        step, evaluated = self.progress.step, self.progress.evaluated
        if evaluated == step:
            return False
        return self.is_finished or evaluated is None or step - evaluated >= self.config.steps_between_evaluations

    @property
    def save(self) -> bool:
        """Whether to save now. Ask after the evaluation that is due at this step."""
        progress, step, saved = self.progress, self.progress.step, self.saved
        if saved is not None and (saved.progress, saved.config) == (progress, self.config):
            return False
        return (
            progress.best_step == step
            or (saved is not None and saved.progress.step == step)
            or (progress.evaluated == step and self.config.train.min_evaluations > 0)
            or (saved is not None and saved.config != self.config)
            or step % self.config.checkpoint.interval == 0
            or self.is_finished
            or self.is_stopping
        )

    @property
    def plan(self) -> bool:
        """Whether to plan the length of the run now, by the clock of this process."""
        return self.clock.is_due(self.progress.step)
