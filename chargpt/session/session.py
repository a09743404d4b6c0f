"""A training in progress, in one process: how it is opened, and what is done between two steps."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from chargpt.errors import Message, NotFinite, NotWritten, Option, UserError, Words, resuming
from chargpt.formatting import clock, one_line, plural, shown
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.notices import Kind
from chargpt.planning.budget import Budget, Stopwatch, longest_run
from chargpt.planning.cli import TrainOptions
from chargpt.planning.plan import Decision, Opening
from chargpt.planning.speeds import Speeds
from chargpt.project import REPORT
from chargpt.runs.blank_model import LOADED_SOURCE
from chargpt.runs.checkpoint_schema import CheckpointError, SavedState
from chargpt.runs.metrics import BEST, KNOWN, NEW
from chargpt.runs.models import loss_of
from chargpt.runs.run import DETAILS
from chargpt.runs.stage import Stage
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.screen import screen
from chargpt.session.due import Due
from chargpt.session.follower import Follower
from chargpt.session.journal import Journal
from chargpt.session.opening import decide, describe_stage, join_opening, make_trainer, measure, open_next_stage, trainer_state
from chargpt.text.corpus import Corpus
from chargpt.text.suffix_array import longest_copy
from chargpt.training.evaluation import bits_per_item, digest, evaluate, validation_split
from chargpt.training.group import Group
from chargpt.training.trainer import Step, Trainer

MAX_ROLLBACKS = 3  # returns to a checkpoint in a run, at most
PART = 20_000  # characters of each part of a validation split whose loss is told apart
EARLY_SAMPLE = 100  # characters of a sample before the first evaluation after step 0


class Evaluation(NamedTuple):
    """What an evaluation found."""

    loss: float | None  # on the validation split, nats per character; None without one
    temperature: float  # by which the logits are divided, since that gives the lowest loss
    sample: str  # what the model has written; empty if it writes none


class Session:
    """One model of a run in training, in one of the processes that train it. All of them call the same methods in one order."""

    def __init__(
        self, opening: Opening | None, options: TrainOptions, *, root: Path, group: Group, before: "Session | None" = None
    ) -> None:
        """A new model, or one that continues or follows `before`. Only the first process has an `opening`. Raises UserError."""
        shared: Decision | int = group.share(opening.decision if opening is not None else 0)
        if isinstance(shared, int):
            raise SystemExit(shared)
        with group.together():
            if opening is None:
                corpus, runtime = (before.corpus, before.trainer.runtime) if before else (None, None)
                opening = join_opening(shared, root=root, group=group, corpus=corpus, runtime=runtime)
            self.trainer: Trainer = make_trainer(opening, group)
        self.trainer.share()
        self.opening, self.options, self.root = opening, options, root
        self.corpus: Corpus = opening.corpus
        self.run, self.models, self.changed = opening.run, opening.state.stage.models, opening.state.stage.changed
        self.checkpoints = root / "checkpoints"  # the folder in which runs are found by their names
        self.journal = Journal(verbose=options.verbose)
        self.follower: Follower | None = before.follower if before else None  # what writes the report of the run
        self.saved = opening.saved  # what the newest checkpoint holds; None while there is none
        self.budget: Budget = opening.budget
        train, items = self.trainer.config.train, self.corpus.items
        self.writer = SampleWriter(
            self.corpus.tokenizer,
            self.trainer.config.model,
            device=self.trainer.runtime.device,
            length=train.sample_length if group.is_first else 0,
            seed=train.seed,
            labels=[] if items is None else list(items.labels) or [""],
        )
        self._describe_opening()

    def _describe_opening(self) -> None:
        """Say how the session was opened, where a run continues, and which of several models begins or goes on."""
        trainer, journal, corpus, checkpoint = self.trainer, self.journal, self.corpus, self.opening.checkpoint
        journal.add(self.opening.notices)
        if checkpoint is not None and self.run is not None:
            from chargpt.session.resuming import what_differs

            seconds, length = self.budget.share, trainer.length.steps
            journal.warn(differs := what_differs(checkpoint.state.environment, trainer.environment))
            self.changed = checkpoint.step if differs and not trainer.is_finished else self.changed
            steps = "no steps" if trainer.is_finished else plural(length - checkpoint.step, "step")
            left: list[Words] = [f"from {shown(checkpoint.path)}, {steps if seconds is None else clock(seconds)} to go"]
            if trainer.is_finished and self.stage.is_last:
                more = ("train.patience", 0) if trainer.progress.step < length else ("train.max_steps", 2 * length)
                left += ["; to train longer, add ", Option(*more)]
            journal.notice(Kind.RESUMED, Message(*left))
            screen().saved(self.run.folder)
            journal.add(corpus.describe())
        if checkpoint is not None or self.stage.number > 1:
            journal.add(describe_stage(self.stage, trainer.config.train.seed))

    def next_stage(self) -> "Session | None":
        """The model that follows this one, whose training has ended; None after the last one. Raises UserError."""
        group, opening = self.trainer.group, None
        if self.stage.is_last:
            return None
        with group.together():
            if self.run is not None:
                runtime = self.trainer.runtime
                opening = open_next_stage(self.run, self.state(), self.corpus, runtime=runtime, budget=self.budget)
        return Session(opening, self.options, root=self.root, group=group, before=self)

    def describe_run(self) -> None:
        """Print what will be trained and how long it takes; write config.yaml, and details.txt of a new run."""
        journal, run, opening = self.journal, self.run, self.opening
        if run is None:
            return
        device = self.trainer.runtime.device
        self.follower = self.follower or Follower(run, self.corpus, device=str(device), opens=self.options.open)
        follows = self.stage.number > 1 and self.saved is None
        for said in opening.about_training():
            if said.kind is Kind.TRAINING or not follows:  # the rest was told
                journal.add([said])
        journal.add(opening.choices)
        if follows:
            return
        details = "".join(f"{line}\n" for line in journal.lines)  # without the name of the run, which may change
        where = f"report: {shown(run.home / REPORT)}; all settings: {shown(run.home / DETAILS)}; loss curves: "
        journal.notice(Kind.RUN, f"{shown(run.home)}   ({where}python -m tensorboard.main --logdir {shown(run.home.parent)})")
        journal.warn(self.write_config(), None if self.saved else run.write(DETAILS, details))

    @contextlib.contextmanager
    def recording(self) -> Iterator[Stopwatch]:
        """Record the run from its present step on in this block, and time its steps by the watch that this gives."""
        trainer, settings, is_new = self.trainer, self.opening.state.settings, self.saved is None
        progress, steps, name = trainer.progress, trainer.length.steps, self.stage.name
        every = settings.values.train.log_interval if trainer.runtime.runs_ahead else 1
        with self.journal.recording(self.run, settings, progress=progress, steps=steps, is_new=is_new, name=name):
            self.budget.begin(progress.step, steps, waits_every=every)
            try:
                yield self.budget.watch
            except Exception as error:
                self.journal.note("failed", step=trainer.progress.step, reason=one_line(error) or type(error).__name__)
                raise
            if not trainer.is_finished or self.stage.is_last:
                self.journal.note("finished" if trainer.is_finished else "stopped", step=trainer.progress.step)

    def record(self, report: Step) -> None:
        """Record the mean training loss since the last record, what the last step reported, and the speed."""
        trainer, journal = self.trainer, self.journal
        journal.add(trainer.notices)
        trainer.notices.clear()
        values = {"train/loss": trainer.progress.take_mean_loss(), "lr": report.rate, "grad_norm": report.grad_norm}
        if speed := self.budget.watch.steps_per_second() * trainer.config.chars_per_step:
            values["chars_per_second"] = speed
        journal.record(trainer.progress.step, values)
        journal.add(self.budget.slower())

    def due(self, interrupt: Interrupt) -> Due:
        """What is due now. A signal makes saving due; an evaluation that is due then ends at once, and is discarded."""
        return Due(self.trainer.progress, self.trainer.config, self.stage, saved=self.saved, is_stopping=interrupt.agreed)

    @property
    def is_speed_due(self) -> bool:
        """Whether to measure the speed now. With a time limit, the first process decides for all."""
        due, group = self.budget.is_due(self.trainer.progress.step) and not self.trainer.is_finished, self.trainer.group
        if self.budget.limit is None or group.size == 1:
            return due
        number = torch.tensor(float(due))  # faster than `share`, and this is asked in every step
        group.broadcast(number)
        return bool(number)

    def advance(self) -> None:
        """Take a step, and show it. On a CPU, raises NotFinite."""
        trainer = self.trainer
        trainer.advance()
        trainer.progress.seconds += self.budget.step_done()
        self.journal.move(trainer.progress.step, trainer.length.steps)

    def decide_on_teachers(self, interrupt: Interrupt) -> None:
        """Measure if the model memorises its text: then others follow. If not, it gets the time of all."""
        losses, planned = measure(self.trainer, self.corpus, interrupt), self.models
        if losses is None:
            return
        self.models, notice = decide(*losses, planned)
        self.journal.add([notice])
        self.journal.warn(self.write_config())
        self.budget.later = self.models.seconds_after(1)
        if self.budget.limit is not None and self.models.count == 1 and not self.budget.is_unmeasured:
            self.measure_speed(interrupt)

    def evaluate(self, interrupt: Interrupt) -> None:
        """Compute the loss, write a sample, record both, unless a signal comes; of the mean if patience ends the run."""
        trainer, before = self.trainer, self.trainer.progress.copy()
        if (found := self._measure(interrupt)) is None:
            return
        trainer.record_evaluation(**found._asdict())
        if trainer.ends_early_with_mean:
            last = trainer.take_mean()
            if (found := self._measure(interrupt)) is None:
                trainer.restore(last, before)
                return
            trainer.record_evaluation(**found._asdict())
        if self.run is not None:
            self.journal.record(trainer.progress.step, self._metrics(**found._asdict()))

    def _measure(self, interrupt: Interrupt) -> Evaluation | None:
        """The evaluation of the weights as they are; None if a signal came."""
        trainer, loss, temperature = self.trainer, None, 1.0
        if self.corpus.is_validated:
            split = validation_split(self.corpus.val, trainer.config.train.eval_chars)
            begins = trainer.progress.step == 0 and self.stage.number == trainer.group.size == 1
            calibrate = self._first_loss if begins else trainer.calibrate
            found = calibrate(split, marks=self.corpus.marks, interrupt=interrupt)
            if found is None:
                return None
            loss, temperature = found
            if not math.isfinite(loss):
                step = trainer.progress.step
                raise NotFinite(f"step {step:,}: the validation loss after this step is {loss}", step=step - 1)
        with trainer.group.together(), trainer.calibrated(temperature) as model:  # a signal may come
            sample = self.writer.write(model, interrupt)
        return None if interrupt.agreed else Evaluation(loss, temperature, sample)

    def _first_loss(self, split: np.ndarray, **how: Any) -> tuple[float, float] | None:
        """`calibrate` before the first step: from the cache, with the seconds it took, if a run began with these weights."""
        trainer, began, used = self.trainer, time.perf_counter(), time.process_time()
        computed = (self.corpus.marks, trainer.config.model, trainer.environment, LOADED_SOURCE)

        def measure() -> tuple[float, ...] | None:
            found = trainer.calibrate(split, **how)
            return found and (*found, time.perf_counter() - began, time.process_time() - used)

        def read(found: Any) -> tuple[float, float]:
            self.budget.watch.spared = max(0.0, min(map(float, found[2:])) - (time.perf_counter() - began))  # without pauses
            return float(found[0]), float(found[1])

        return self.corpus.kept("begun.json", [digest([trainer.model]), len(split), repr(computed)], measure, read, by="*")

    def _metrics(self, loss: float | None, *, temperature: float, sample: str) -> dict[str, float | str | np.ndarray]:
        """What is recorded of an evaluation: losses in nats per character, the `sample`, and a picture (height, width, 3).

        `val/bits_per_item` is absent if the loss is of a part of an item, and `novelty/longest_copy` (characters of the sample
        that the training text has) without a sample or an index.
        """
        corpus, train, values = self.corpus, self.trainer.config.train, dict[str, float | str | np.ndarray]()
        if loss is not None:
            with self.trainer.calibrated(temperature) as model:
                values |= {"val/loss": loss, "val/bits_per_char": loss / math.log(2), **self._on_parts(model)}
            values["val/temperature"] = temperature
            bits = bits_per_item(loss, corpus.val, train.eval_chars, corpus.marks)
            values |= {"val/bits_per_item": bits} if bits else {}
        if (best := self.trainer.progress.best_loss) is not None:
            values[BEST] = best
        if (longest := longest_copy(corpus, sample)) is not None:
            values["novelty/longest_copy"] = float(longest)
        if train.log_attention:
            from chargpt.session.tensorboard import draw_attention

            with contextlib.suppress(UserError):  # a changed model.py may give none
                values["attention"] = draw_attention(self.trainer.weights.working, corpus.evaluation_ids)
        return values | ({"sample": sample} if sample else {})

    def _on_parts(self, model: GPT) -> dict[str, float]:
        """The losses of `model` on the beginnings of what a grown text holds out: that of an earlier run, and what is new."""
        parts = {name: self.corpus.held_out(is_new=is_new) for name, is_new in ((KNOWN, False), (NEW, True))}
        return {name: evaluate(model, validation_split(part, PART)) for name, part in parts.items() if len(part) > 1}

    def write_sample(self) -> None:
        """Write a short sample before the first evaluation that writes one, and record it. No signal cuts it short."""
        sample = self.writer.write(self.trainer.model, Interrupt(), most=EARLY_SAMPLE)
        self.journal.record(self.trainer.progress.step, {"sample": sample})

    @property
    def stage(self) -> Stage:
        """Which model this is, and what was decided about it, as it is now."""
        return replace(self.opening.state.stage, models=self.models, length=self.trainer.length, changed=self.changed)

    def write_config(self) -> str | None:
        """Write the settings with which another run trains as this one does. Returns a line for a problem."""
        return None if self.run is None else self.run.write_config(self.trainer.config, self.stage)

    def state(self) -> SavedState:
        """What a checkpoint of now holds besides weights and optimizer."""
        return replace(
            self.opening.state,
            progress=self.trainer.progress.copy(),
            stage=self.stage,
            environment=self.trainer.environment,
            seconds_left=self.budget.unused(is_undecided=not self.models.is_decided),
            model_source=LOADED_SOURCE,
        )

    def save(self) -> None:
        """Publish a checkpoint of finite weights, after everything recorded so far is on disk. Raises NotFinite, UserError."""
        trainer, journal, run = self.trainer, self.journal, self.run
        trainer.check_weights()
        journal.flush()
        weights, optimizer, *_ = trainer.state()
        state = self.state()
        with trainer.group.together():
            if run is not None:
                with trainer.calibrated(trainer.temperature) as model:
                    state = replace(state, model_loss=loss_of(model))
                try:
                    problems = run.save(state, weights=weights, training=optimizer)
                except (CheckpointError, NotWritten) as error:
                    again: list[Words] = ["; then continue with: ", resuming(run.name(self.checkpoints), verb="train")]
                    raise type(error)(error, *(again if self.saved else [])) from error
                screen().saved(run.folder)
                journal.warn(*problems)
                trainer.group.note_save()
        self.saved = state

    def measure_speed(self, interrupt: Interrupt) -> None:
        """Tell how long the run takes. With a time limit, first fit its length, and save. Raises NotFinite, UserError."""
        trainer, budget, journal = self.trainer, self.budget, self.journal
        step, config = trainer.progress.step, trainer.config
        budget.measure()
        if budget.limit is not None:
            longest = longest_run(config, epochs=self.models.epochs, characters=len(self.corpus.train))
            fits = budget.length_that_fits(step, eval_interval=config.train.eval_interval, longest=max(step, longest))
            steps, interval = trainer.group.share(fits)
            trainer.set_length(steps, interval=interval, may_rise=budget.extends)
            budget.extends = False
            journal.move(step, steps)
        journal.add(budget.set_length(step, trainer.length))
        if self.run is not None and budget.known is not None and not trainer.runtime.compile:  # what is timed is not compiled
            speeds = Speeds(self.corpus, self.opening.teachers, processes=trainer.group.size)
            speeds.keep(config, config.chars_per_step / budget.known.step)
        if budget.limit is not None:
            if not self.due(interrupt).evaluate:  # otherwise it is saved after the evaluation
                self.save()
            journal.warn(self.write_config())

    @property
    def can_roll_back(self) -> bool:
        """Whether the settings and the checkpoints allow to go on after a step that was not finite."""
        stops = self.trainer.config.train.on_nonfinite == "stop" or len(self.trainer.progress.skipped) >= MAX_ROLLBACKS
        return not stops and self.saved is not None

    def roll_back(self, problem: NotFinite) -> None:
        """Return to the newest valid checkpoint; go on at half the rate, without the batch that was the `problem`."""
        assert problem.step is not None
        skipped = [*self.trainer.progress.skipped, problem.step]
        if self.run is not None:
            checkpoint, warnings = self.run.load_newest()
            self.journal.warn(*warnings)
            self.saved = checkpoint.state
            self.trainer.load(trainer_state(checkpoint, checkpoint.state))
            where = f"it goes on from {shown(checkpoint.path)}, with half the learning rate, and skips the text of that step"
            self.journal.notice(Kind.ROLLBACK, f"training failed at {problem}; {where}")
        self.trainer.share()
        self.saved = self.trainer.group.share(self.saved)  # so that all save at the same steps
        self.trainer.progress.skipped = skipped
