"""What is due between two steps of a run."""

from dataclasses import dataclass

import torch

from chargpt.config import Config
from chargpt.planning.clock import Clock
from chargpt.runs.checkpoint_schema import Progress, SavedState
from chargpt.session.stages import decision_step, is_undecided
from chargpt.training.parallel import Group


@dataclass(frozen=True)
class Due:
    """What is due at a moment between two steps. Each row of a table is enough, and the last row of it forbids.

    decide_on_teachers
                the model has learned much, and the rate is about to fall
              never: the settings have one model, or it is decided

    evaluate    nothing has been evaluated yet
                the last evaluation is as many steps ago as the settings say
                the run is finished
              never: this step has been evaluated

    save        the evaluation of this step is the best one so far
                this step was saved, and a setting or an evaluation has changed since
                this step was evaluated, and --minutes has set their number
                a setting has changed since the last save
                the step is a multiple of checkpoint.interval
                the run is finished
                a signal came
              never: the newest checkpoint has this progress and these settings

    record      the step is a multiple of train.log_interval
              never: nothing was computed since the last record

    sample      the step is 1, 2 or 5 times a power of ten
              never: an evaluation after step 0 has written one, or will write it now

    measure_speed
                the first steps are done: they are slower
                with --minutes: half of the steps that were left at the last measurement are done
                with --minutes: the speed has changed by a factor
              never: (no row)
    """

    progress: Progress
    config: Config
    saved: SavedState | None  # the newest checkpoint, None if there is none
    is_stopping: bool  # a signal came
    clock: Clock
    group: Group

    @property
    def decide_on_teachers(self) -> bool:
        """Whether to decide now if other models follow."""
        return is_undecided(self.config) and self.progress.step >= decision_step(self.config)

    @property
    def evaluate(self) -> bool:
        """Whether to evaluate now."""
        step, evaluated = self.progress.step, self.progress.evaluated
        if evaluated == step:
            return False
        return (
            self.progress.is_finished(self.config.train)
            or evaluated is None
            or step - evaluated >= self.config.steps_between_evaluations
        )

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
            or progress.is_finished(self.config.train)
            or self.is_stopping
        )

    @property
    def record(self) -> bool:
        """Whether to record the training loss now."""
        return self.progress.step % self.config.train.log_interval == 0 and self.progress.loss_count > 0

    @property
    def sample(self) -> bool:
        """Whether to write a sample now, before the evaluations that write one."""
        is_early = not self.progress.evaluated and str(self.progress.step).rstrip("0") in ("1", "2", "5")
        return is_early and self.config.train.sample_length > 0 and not self.evaluate

    @property
    def measure_speed(self) -> bool:
        """Whether to measure the speed now. With a time limit, the clock of the first process decides for all."""
        due = self.clock.is_due(self.progress.step)
        if self.clock.deadline is None or self.group.size == 1:
            return due
        number = torch.tensor(float(due))  # faster than `share`, and this is asked in every step
        self.group.broadcast(number)
        return bool(number)
