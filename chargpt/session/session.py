"""A training in progress, in one process: how it is opened, and what is done between two steps."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chargpt.analysis.copies import longest_copy
from chargpt.analysis.heads import draw_attention
from chargpt.config import Settings, TrainConfig
from chargpt.errors import Message, Option, Words, resuming
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.pages.report_page import REPORT
from chargpt.planning.cli import TrainOptions
from chargpt.planning.clock import CHANGED, SLOW, Clock
from chargpt.planning.teachers import seconds_of_stage
from chargpt.planning.time_model import TimeModel, describe_training, longest_run
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import CheckpointError, SavedState
from chargpt.runs.run import DETAILS, Run
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.session.due import Due
from chargpt.session.journal import Journal
from chargpt.session.live_page import LivePage
from chargpt.session.opening import Opening, for_others, joined, make_trainer, open_next_stage
from chargpt.session.stages import (
    decided,
    describe_decision,
    describe_stage,
    is_undecided,
    measure,
    name_of_stage,
)
from chargpt.terminal import Notice, clock, plural, screen, shown
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.parallel import Group
from chargpt.training.trainer import NotFinite, Step, Trainer, TrainerState

# Returns to a checkpoint in a run, at most.
MAX_ROLLBACKS = 3
# Characters of a sample before the first evaluation after step 0.
EARLY_SAMPLE = 100


@dataclass(kw_only=True)
class Session:
    """One model of a run in training, in one of the processes that train it. All of them call the same methods in one order."""

    trainer: Trainer
    corpus: Corpus
    run: Run | None = None  # None in a process that is not the first one: it writes nothing
    saved: SavedState | None = None  # what the newest checkpoint holds; None while there is none
    journal: Journal
    page: LivePage
    options: TrainOptions  # what the user asked for
    settings: Settings  # as the session began; those of `trainer.config` are the present ones
    stage: int = 1  # which of the models of the run
    checkpoints: Path  # the folder in which runs are found by their names
    started: float  # when the time of the run began, on time.perf_counter
    seconds: float | None  # the time limit, as the user is told; None: no limit
    deadline: float | None = field(init=False)  # when the run shall end, on time.perf_counter; None: no limit
    steps: int | None = None  # how many are expected to fit into `seconds`, if that is known
    time_model: TimeModel | None = None  # of the plan
    is_extended: bool = False  # by --minutes: then the rate follows the new length, and may rise again
    choices: Sequence[Notice] = ()  # for the user, after the model and the time are described
    told_speed: float = 0.0  # seconds per step, as the user was last told; 0: not yet
    clock: Clock = field(init=False)  # while the run is recorded
    writer: SampleWriter = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = None if self.seconds is None else self.started + self.seconds
        config, group = self.trainer.config, self.trainer.group
        self.writer = SampleWriter(
            self.corpus.tokenizer,
            config.model,
            device=self.trainer.runtime.device,
            length=config.train.sample_length if group.is_first else 0,
            seed=config.train.seed,
            labels=[] if self.corpus.items is None else list(self.corpus.items.labels) or [""],
        )

    # How a session begins

    @classmethod
    def open(
        cls,
        opening: Opening | None,
        options: TrainOptions,
        *,
        root: Path,
        group: Group,
        started: float,
        before: "Session | None" = None,
    ) -> "Session":
        """The session of a new model or of one that continues; in a process that is not the first one, without `opening`.

        `started` is when its time began, on time.perf_counter; `before` is the session of the model before it. Raises
        UserError, and SystemExit if the first process trains nothing.
        """
        shared: Opening | int = group.share(for_others(opening) if opening is not None else 0)
        if isinstance(shared, int):
            raise SystemExit(shared)
        with group.together():
            if opening is None:
                corpus, runtime = (before.corpus, before.trainer.runtime) if before else (None, None)
                opening = joined(shared, root=root, group=group, corpus=corpus, runtime=runtime)
            journal = Journal(verbose=options.verbose)
            journal.add(opening.notices)
            trainer = make_trainer(opening, group)
        trainer.share()
        session = cls(
            trainer=trainer,
            corpus=opening.corpus,
            run=opening.run,
            saved=opening.saved,
            journal=journal,
            page=before.page if before else LivePage(opens=options.open),
            options=options,
            settings=opening.state.settings,
            stage=opening.state.stage,
            checkpoints=root / "checkpoints",
            started=started,
            seconds=opening.seconds,
            steps=opening.steps,
            time_model=opening.time_model,
            is_extended=opening.is_extended,
            choices=[*opening.choices, *_about_processes(trainer)],
        )
        session._describe_opening(opening.checkpoint)
        return session

    def _describe_opening(self, checkpoint: Checkpoint | None) -> None:
        """Say where a run continues, and which of several models begins or goes on."""
        trainer, journal, corpus, config = self.trainer, self.journal, self.corpus, self.trainer.config
        if checkpoint is not None and self.run is not None:
            journal.add(what_differs(checkpoint.state.environment, trainer.environment))
            steps_left = plural(config.train.max_steps - checkpoint.step, "step")
            left = "no steps" if trainer.is_finished else steps_left if self.seconds is None else clock(self.seconds)
            how = _how_to_go_on(trainer, self.stage)
            journal.notice("resumed", Message(f"{shown(checkpoint.path)}, {left} to go", *how))
            screen().saved(self.run.folder)
            journal.add([Notice("text", corpus.describe_briefly(), "summary"), *corpus.describe()])
        if checkpoint is not None or self.stage > 1:
            journal.add(describe_stage(config, self.stage))

    def next_stage(self) -> "Session | None":
        """The model that follows this one, whose training has ended; None after the last one. Raises UserError."""
        group, opening = self.trainer.group, None
        if self.stage > self.trainer.config.train.teachers:
            return None
        with group.together():
            if self.run is not None:
                opening = open_next_stage(self.run, self.state(), self.corpus, runtime=self.trainer.runtime)
        # What this model has not used of its time is for the next one.
        started, root = self.deadline or time.perf_counter(), self.checkpoints.parent
        return Session.open(opening, self.options, root=root, group=group, started=started, before=self)

    # What is said and recorded

    def describe_run(self) -> None:
        """Print what will be trained and how long it takes; write config.yaml, and details.txt of a new run."""
        trainer, journal, run = self.trainer, self.journal, self.run
        with trainer.group.together():  # some steps are timed
            about = describe_training(trainer, self.corpus, seconds=self.seconds, time_model=self.time_model, steps=self.steps)
        name, follows = name_of_stage(trainer.config, self.stage), self.stage > 1 and self.saved is None
        if name:  # the time is that of this model
            about = [
                said._replace(text=Message(f"{name}: ", said.text)) if said.label == "training" else said for said in about
            ]
        journal.add([notice for notice in about if notice.label == "training" or not follows])  # the rest was told
        journal.add([*self.choices, *trainer.notices])
        trainer.notices.clear()
        if run is None or follows:
            return
        curves = f"python -m tensorboard.main --logdir {shown(run.home.parent)}"
        journal.add([Notice("run", f"{shown(run.home)}   (curves: {curves})", "detail")])
        for problem in (run.write_config(trainer.config), None if self.saved else run.write_details(journal.lines)):
            if problem:
                journal.notice("warning", problem)
        every_choice = f"{DETAILS} there" if (run.folder / DETAILS).is_file() else "--verbose"
        page = f"report: {shown(run.home / REPORT)}"
        journal.add([Notice("run", f"{shown(run.home)}   ({page}; every choice: {every_choice}; curves: {curves})", "summary")])

    @contextlib.contextmanager
    def recording(self) -> Iterator[Clock]:
        """Record the run from its present step on, and measure its speed by the clock that this gives, in this block."""
        trainer, train = self.trainer, self.trainer.config.train
        step, name = trainer.progress.step, name_of_stage(trainer.config, self.stage)
        present, is_new = dataclasses.replace(self.settings, values=trainer.config), self.saved is None
        with self.journal.recording(self.run, present, progress=trainer.progress, is_new=is_new, name=name):
            every = train.log_interval if trainer.runtime.runs_ahead else 1
            left, least = train.max_steps - step, train.min_evaluations
            self.clock = Clock(steps_left=left, deadline=self.deadline, min_evaluations=least, waits_every=every)
            yield self.clock

    def record(self, report: Step) -> None:
        """Record the mean training loss since the last record, what the last step reported, and the speed."""
        trainer, journal = self.trainer, self.journal
        journal.add(trainer.notices)
        trainer.notices.clear()
        speed = self.clock.steps_per_second() * trainer.config.chars_per_step
        journal.record_training(trainer.progress.step, trainer.progress.take_mean_loss(), report, chars_per_second=speed)
        if 0 < SLOW * self.told_speed < self.clock.lately:
            now, before, self.told_speed = 1000 * self.clock.lately, 1000 * self.told_speed, self.clock.lately
            journal.notice("slow", f"{now:.1f} ms a step, {before:.1f} before: the machine is busy with other work, or too hot")

    # What is due

    def due(self, interrupt: Interrupt) -> Due:
        """What is due now. All processes know of the same signal: they agree on it in each step and each evaluation.

        A signal makes saving due. It cancels nothing: an evaluation that is due ends at once, and is discarded.
        """
        trainer = self.trainer
        return Due(
            progress=trainer.progress,
            config=trainer.config,
            saved=self.saved,
            is_stopping=interrupt.agreed,
            clock=self.clock,
            group=trainer.group,
        )

    # What is done between two steps

    def decide_on_teachers(self, interrupt: Interrupt) -> None:
        """Measure if the model memorises its text: then others follow. A run of one model gets the time of all.

        A signal leaves this to a resumed run.
        """
        trainer, before = self.trainer, self.trainer.config
        losses = measure(trainer, self.corpus, interrupt)
        if losses is None:
            return
        trainer.config = decided(losses, before)
        self.journal.add([describe_decision(losses, before)])
        if self.deadline is not None and not trainer.config.train.teachers:
            others = sum(seconds_of_stage(before, stage) or 0.0 for stage in range(2, before.train.teachers + 2))
            self.deadline = self.clock.deadline = self.deadline + others
            if not self.clock.is_unmeasured:
                self.measure_speed(interrupt)

    def evaluate(self, interrupt: Interrupt) -> None:
        """Compute the loss over the validation split, write a sample, and record both. A signal meanwhile discards both.

        Raises NotFinite.
        """
        trainer, progress, group = self.trainer, self.trainer.progress, self.trainer.group
        loss = None
        if self.corpus.is_validated:
            split = validation_split(self.corpus.val, trainer.config.train.eval_chars)
            loss = trainer.evaluate(split, marks=self.corpus.marks, interrupt=interrupt)
            if loss is None:
                return
            if not math.isfinite(loss):
                raise NotFinite(f"the validation loss after this step is {loss}", step=progress.step - 1)
        with group.together():  # a signal may come
            sample = self.writer.write(trainer.model, interrupt)
        if interrupt.agreed:
            return
        trainer.record_evaluation(loss, sample=sample)
        extra = {}
        if group.is_first:
            extra = extra_metrics(trainer.weights.working, self.corpus, trainer.config.train, sample=sample, loss=loss)
        self.journal.record_evaluation(progress.step, loss, best=progress.best_loss, sample=sample, extra_metrics=extra)
        if self.run is not None and self.page.is_due:
            self.write_page(self.run)

    def write_page(self, run: Run, *, is_training: bool = True) -> None:
        """Write the report of the run as it is."""
        self.journal.flush()
        self.page.write(run, self.state(), self.corpus, is_training=is_training)

    def write_sample(self) -> None:
        """Write a short sample before the first evaluation that writes one, and record it. No signal cuts it short."""
        sample = self.writer.write(self.trainer.model, Interrupt(), most=EARLY_SAMPLE)
        self.journal.record_sample(self.trainer.progress.step, sample)

    def state(self) -> SavedState:
        """What a checkpoint of now holds besides weights and optimizer."""
        trainer, corpus = self.trainer, self.corpus
        return SavedState(
            settings=dataclasses.replace(self.settings, values=trainer.config),
            tokenizer=corpus.tokenizer,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            progress=trainer.progress.copy(),
            environment=trainer.environment,
            seconds_left=self.clock.seconds_left(is_undecided=is_undecided(trainer.config)),
            stage=self.stage,
        )

    def save(self) -> None:
        """Publish a checkpoint of finite weights, after everything recorded so far is on disk. Raises NotFinite, UserError."""
        trainer, journal, run = self.trainer, self.journal, self.run
        trainer.check_weights()
        journal.flush()
        weights, optimizer, progress = trainer.state()
        state = self.state()
        with trainer.group.together():
            if run is not None:
                try:
                    problems = run.save(state, weights=weights, training=optimizer)
                except CheckpointError as error:
                    again: list[Words] = ["; then continue with: ", resuming(run.name(self.checkpoints), verb="train")]
                    raise CheckpointError(error, *(again if self.saved else [])) from error
                screen().saved(run.folder)
                for problem in problems:
                    journal.notice("warning", problem)
                if run.checkpoint is not None and run.checkpoint.suffix:  # the number of a further one of this step
                    journal.notice("saved", f"as {run.checkpoint.name}: step {progress.step:,} had a checkpoint already")
                trainer.group.note_save()
        self.saved = state

    def measure_speed(self, interrupt: Interrupt) -> None:
        """Measure the speed, and say how long the run takes. With a time limit, first fit the length of the run to it.

        Such a length is saved: from now on, a resumed run knows it. Raises NotFinite, UserError.
        """
        trainer, clock_, journal = self.trainer, self.clock, self.journal
        step, before = trainer.progress.step, trainer.config
        clock_.measure()
        if self.deadline is not None:
            longest = max(step, longest_run(before, characters=len(self.corpus.train)))
            fits = clock_.length_that_fits(step, eval_interval=before.train.eval_interval, longest=longest)
            max_steps, evaluations = trainer.group.share(fits)
            trainer.set_length(max_steps, min_evaluations=evaluations, may_rise=self.is_extended)
            self.is_extended = False
            journal.set_total(max_steps)
        max_steps = trainer.config.train.max_steps
        clock_.set_length(step, max_steps)
        if not 1 / CHANGED < clock_.seconds_per_step / (self.told_speed or math.inf) < CHANGED:  # the first one, and news
            self.told_speed = clock_.seconds_per_step
            left = clock_.time_model.duration(max_steps - step, interval=trainer.config.steps_between_evaluations)
            journal.notice("speed", f"{1000 * self.told_speed:.1f} ms a step; {max_steps:,} steps, done in {clock(left)}")
        if self.deadline is None:
            return
        if not self.due(interrupt).evaluate:  # otherwise it is saved after the evaluation
            self.save()
        if self.run is not None and (problem := self.run.write_config(trainer.config)):
            journal.notice("warning", problem)

    # How a run goes on after a step that was not finite

    @property
    def can_roll_back(self) -> bool:
        """Whether the settings and the checkpoints allow to go on after a step that was not finite."""
        stops = self.trainer.config.train.on_nonfinite == "stop" or len(self.trainer.progress.skipped) >= MAX_ROLLBACKS
        return not stops and self.saved is not None

    def roll_back(self, problem: NotFinite) -> None:
        """Return to the newest valid checkpoint; go on at half the rate, without the batch that was the `problem`."""
        skipped = [*self.trainer.progress.skipped, problem.step]
        if self.run is not None:
            checkpoint, warnings = self.run.load_newest()
            self.journal.add(Notice("warning", warning) for warning in warnings)
            self.saved = checkpoint.state
            self.trainer.load(TrainerState(checkpoint.weights, checkpoint.training, checkpoint.state.progress))
            where = f"back to {shown(checkpoint.path)}, at half the rate and without that batch"
            self.journal.notice("rollback", f"{problem}; {where}")
        self.trainer.share()
        if self.run is None and self.saved is not None:  # the same in every process, so that all save at the same steps
            self.saved = dataclasses.replace(self.saved, progress=self.trainer.progress.copy())
        self.trainer.progress.skipped = skipped


def extra_metrics(
    model: GPT, corpus: Corpus, config: TrainConfig, *, sample: str, loss: float | None
) -> dict[str, float | np.ndarray]:
    """The metrics of `model` at an evaluation in addition to its `loss`: numbers and pictures (height, width, 3).

    Uses no random state.

    `novelty/longest_copy` is the length of the longest passage of `sample` that occurs in the training text; absent without a
    sample or an index. `val/bits_per_item` is the mean over the items that the loss is of; absent if it is of a part of one.
    `attention` is a picture of all heads at the start of the validation split, if the settings ask for it.
    """
    metrics: dict[str, float | np.ndarray] = {}
    if corpus.marks is not None and loss is not None:
        if characters := corpus.marks.characters_per_item(validation_split(corpus.val, config.eval_chars)):
            metrics["val/bits_per_item"] = loss / math.log(2) * characters
    longest = longest_copy(corpus, sample)
    if longest is not None:
        metrics["novelty/longest_copy"] = float(longest)
    if config.log_attention:
        metrics["attention"] = draw_attention(model, corpus.judged)
    return metrics


def _how_to_go_on(trainer: Trainer, stage: int) -> list[Words]:
    """What to add to the command of a run whose last model is finished; otherwise nothing."""
    train = trainer.config.train
    if not trainer.is_finished or stage <= train.teachers:
        return []
    if trainer.progress.step < train.max_steps:
        return ["; to train longer, add ", Option("train.patience", 0)]
    return ["; to train longer, add ", Option("train.max_steps", 2 * train.max_steps), ", or ", Option("minutes")]


def _about_processes(trainer: Trainer) -> list[Notice]:
    """How several processes share the work; nothing for one."""
    group = trainer.group
    if group.size == 1:
        return []
    machines, each = group.size // group.local_size, trainer.config.train.batch_size // group.size
    shares = f"each computes {plural(each, 'window')} of a batch"
    return [Notice("processes", f"{group.size} on {plural(machines, 'machine')}; {shares}")]


def what_differs(before: Mapping[str, str | int | bool], now: Mapping[str, str | int | bool]) -> list[Notice]:
    """A warning if a run whose environment was `before` cannot continue with the same bits here."""
    if "teachers" not in before:  # of a version that did not save them
        now = {key: value for key, value in now.items() if key != "teachers"}
    before = {"processes": 1, **before}  # earlier versions did not save their number
    changes = [f"{key} {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if not changes:
        return []
    what = f"the environment has changed ({', '.join(changes)}): the run continues, but not with the same bits"
    return [Notice("warning", what)]
