"""A training in progress, in one process: how it is created, resumed and joined, and what is done between two steps."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from chargpt.analysis.copies import longest_copy
from chargpt.analysis.heads import draw_attention
from chargpt.config import Config, TrainConfig, difference
from chargpt.errors import Message, Option, UserError, Words, resuming
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.planning.cli import TrainOptions
from chargpt.planning.clock import CHANGED, Clock
from chargpt.planning.memory import check_memory
from chargpt.planning.plan import Plan
from chargpt.planning.teachers import (
    check_teachers,
    find_teachers,
    keep_teachers,
    models_of,
    next_teacher_folder,
    number_of,
    one_more_run,
    reopen_teachers,
    seconds_of_another,
    student_config,
    student_folder,
    teacher_folders,
    teachers_that_ended,
)
from chargpt.planning.time_model import TimeModel, describe_training, long_enough, longest_run
from chargpt.runs.blank_model import blank_model
from chargpt.runs.checkpoint import TRAINING, check_tensors
from chargpt.runs.checkpoint_schema import Progress, SavedState
from chargpt.runs.run import DETAILS, Run, check_free, check_other_run
from chargpt.runs.sealed_json import CheckpointError
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.session.due import Due
from chargpt.session.journal import Journal
from chargpt.session.student import (
    decided,
    describe_decision,
    describe_next,
    describe_place,
    is_undecided,
    measure,
    why_no_next_run,
)
from chargpt.terminal import Notice, clock, plural, screen, shown
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.initialisation import initial_model
from chargpt.training.parallel import Group, check_batch
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import NotFinite, Step, Trainer, TrainerState

if TYPE_CHECKING:  # imported for a run that continues alone
    from chargpt.session.resumed import Resumed

# Returns to a checkpoint in a run, at most.
MAX_ROLLBACKS = 3
# Notices on the speed of a run, at most, and on its slowing down.
MAX_TOLD = 2


class Decisions(NamedTuple):
    """What the first of several processes decides, and the others begin with."""

    state: SavedState
    saved: Config | None  # the settings in the checkpoint that is resumed, before any were changed; None for a new run
    worth_compiling: bool
    seconds: float | None  # the time limit from the start of the program; None: no limit
    copies: Path | None = None  # the folder of the run's own copies of its teachers; None where train.teachers is read
    is_extended: bool = False  # by --minutes, with --resume


@dataclass(kw_only=True)
class Session:
    """One run in training, in one of the processes that train it. All of them call the same methods in the same order."""

    trainer: Trainer
    corpus: Corpus
    run: Run | None = None  # None in a process that is not the first one: it writes nothing
    saved: SavedState | None = None  # what the newest checkpoint holds; None while there is none
    journal: Journal
    options: TrainOptions  # what the user asked for
    sources: dict[str, str] = field(default_factory=dict)  # who set each setting that is no default: section.key -> source
    checkpoints: Path  # the folder in which runs are found by their names
    started: float  # when the time of the run began, on time.perf_counter
    seconds: float | None  # the time limit, as the user is told; None: no limit
    deadline: float | None = field(init=False)  # when the run shall end, on time.perf_counter; None: no limit
    steps: int | None = None  # how many are expected to fit into `seconds`, if that is known
    time_model: TimeModel | None = None  # of the plan
    is_extended: bool = False  # by --minutes: then the rate follows the new length, and may rise again
    choices: Sequence[Notice] = ()  # for the user, after the model and the time are described
    told_speeds: list[float] = field(default_factory=list)  # seconds per step, as the user was told
    told_slow: int = 0  # how often the user was told that the machine has become slow
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
    def create(cls, plan: Plan, options: TrainOptions, *, root: Path, group: Group, started: float) -> "Session":
        """A run at step 0, as `plan` says. `started` is when the program began, on time.perf_counter. Raises UserError."""
        config, corpus, teachers = plan.config, plan.corpus, models_of(plan.teachers)
        journal, checkpoints = Journal(verbose=options.verbose), root / "checkpoints"
        journal.add(plan.notices)
        if group.size > 1:
            vocab_size = corpus.tokenizer.vocab_size
            check_memory(config, vocab_size=vocab_size, processes=group.size, on_machine=group.local_size)
        worth_compiling = plan.worth_compiling
        state = SavedState(
            config=config,
            tokenizer=corpus.tokenizer,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            progress=Progress(),
            environment={},
        )
        group.share(Decisions(state, saved=None, worth_compiling=worth_compiling, seconds=plan.seconds))
        with group.together():
            runtime = choose_runtime(config, worth_compiling=worth_compiling, group=group)
            check_other_run(plan.folder)
            run = Run(check_free(plan.folder, checkpoints))
            check_free(plan.folder, checkpoints)  # both again, now that it is locked: another program may have made it
            check_other_run(run.folder)
            keep_teachers(plan.teachers, run.folder)
            trainer = Trainer(
                plan.model, corpus.train, config, runtime=runtime, marks=corpus.marks, group=group, teachers=teachers
            )
            saved = [*trainer.model.state_dict().values(), *trainer.optimizer.tensors().values()]
            run.check_space(sum(tensor.nbytes for tensor in saved))
        trainer.share()
        return cls(
            trainer=trainer,
            corpus=corpus,
            run=run,
            journal=journal,
            options=options,
            checkpoints=checkpoints,
            started=started,
            seconds=plan.seconds,
            steps=plan.steps,
            time_model=plan.time_model,
            sources={key: str(source) for key, source in plan.settings.sources.items()},
            choices=[*plan.choices, *_about_processes(trainer)],
        )

    @classmethod
    def resume(cls, resumed: "Resumed", options: TrainOptions, *, root: Path, group: Group, started: float) -> "Session":
        """A run as its newest valid checkpoint left it. Raises UserError."""
        from chargpt.session.resumed import what_differs

        config, corpus, checkpoint, teachers = resumed.config, resumed.corpus, resumed.checkpoint, models_of(resumed.teachers)
        journal = Journal(verbose=options.verbose)
        journal.add(resumed.notices)
        check_batch(config.train.batch_size, group.size)
        vocab_size, processes = corpus.tokenizer.vocab_size, group.size
        check_memory(config, vocab_size=vocab_size, processes=processes, on_machine=group.local_size, has_begun=True)
        worth_compiling = checkpoint.state.environment.get("compile") is True
        decisions = Decisions(
            dataclasses.replace(checkpoint.state, config=config, texts=corpus.texts),
            saved=checkpoint.state.config,
            worth_compiling=worth_compiling,
            seconds=resumed.seconds,
            copies=resumed.copies and resumed.copies.resolve(),
            is_extended=resumed.is_extended,
        )
        group.share(decisions)
        with group.together():
            saved_environment = checkpoint.state.environment
            runtime = choose_runtime(config, worth_compiling=worth_compiling, saved_environment=saved_environment, group=group)
            keep_teachers(resumed.teachers, resumed.run.folder)
            model = blank_model(config.model, vocab_size)  # its weights come with the rest of the state
            trainer = Trainer(model, corpus.train, config, runtime=runtime, marks=corpus.marks, group=group, teachers=teachers)
            state = trainer.optimizer.suitable(checkpoint.training)
            check_tensors(state, trainer.optimizer.tensors(), where=shown(checkpoint.path / TRAINING))
            trainer.load(TrainerState(checkpoint.weights, checkpoint.training, checkpoint.state.progress))
            if resumed.has_new_length:
                trainer.progress.without_gain = 0
        trainer.share()
        journal.add(what_differs(checkpoint.state.environment, trainer.environment))
        steps_left = plural(config.train.max_steps - checkpoint.step, "step")
        left = "no steps" if trainer.is_finished else steps_left if resumed.seconds is None else clock(resumed.seconds)
        journal.notice("resumed", Message(f"{shown(checkpoint.path)}, {left} to go", *_how_to_go_on(trainer)))
        screen().saved(resumed.run.folder)
        journal.add(describe_place(config, resumed.run.folder))
        journal.add([Notice("text", corpus.describe_briefly(), "summary"), *corpus.describe()])
        return cls(
            trainer=trainer,
            corpus=corpus,
            run=resumed.run,
            saved=checkpoint.state,
            journal=journal,
            options=options,
            sources=resumed.sources,
            checkpoints=root / "checkpoints",
            started=started,
            seconds=resumed.seconds,
            is_extended=resumed.is_extended,
            choices=_about_processes(trainer),
        )

    @classmethod
    def join(cls, *, root: Path, group: Group, started: float) -> "Session":
        """The session of a process that is not the first one: the first one has created or resumed the run.

        Raises UserError, and SystemExit if the first one trains nothing.
        """
        decisions: Decisions | int = group.share(0)
        if isinstance(decisions, int):
            raise SystemExit(decisions)
        state, config, vocab_size = decisions.state, decisions.state.config, decisions.state.tokenizer.vocab_size
        with group.together():
            runtime = choose_runtime(
                config, worth_compiling=decisions.worth_compiling, saved_environment=state.environment, group=group
            )
            corpus = cached_corpus(state.texts, config.data, root=root, fingerprint=state.fingerprint)
            if corpus is None:  # on another machine
                block_size = config.model.block_size
                corpus = load_corpus(state.texts, config.data, root=root, block_size=block_size, tokenizer=state.tokenizer)
            if corpus.fingerprint != state.fingerprint:
                raise UserError("TEXT: another text than that of the first process; give every machine the same one")
            opened, _ = reopen_teachers(config, copies=decisions.copies)
            check_teachers(opened, state.tokenizer, context=config.model.block_size)
            model, teachers = blank_model(config.model, vocab_size), models_of(opened)
            trainer = Trainer(model, corpus.train, config, runtime=runtime, marks=corpus.marks, group=group, teachers=teachers)
        trainer.share()
        return cls(
            trainer=trainer,
            corpus=corpus,
            saved=None if decisions.saved is None else dataclasses.replace(state, config=decisions.saved),
            journal=Journal(),
            options=TrainOptions(),
            sources=state.sources,
            checkpoints=root / "checkpoints",
            started=started,
            seconds=decisions.seconds,
            is_extended=decisions.is_extended,
        )

    def next(self) -> "Session | None":
        """The run that follows this one, which has ended: another teacher, or the student.

        None if it is to have none, or cannot have one, which the user is told. Raises UserError.
        """
        train = self.trainer.config.train
        if not train.student_minutes or self.run is None:
            return None
        own = self.run.folder
        folder = student_folder(own) or own
        count = max(train.student_teachers, number_of(own))  # fewer may be wanted now, but this one has ended
        ended = teachers_that_ended(folder, count=count)
        fingerprint, processes = self.corpus.fingerprint, self.trainer.group.size
        problem = why_no_next_run(own, folder, ended, fingerprint=fingerprint, processes=processes)
        if problem:
            self.journal.notice("note", problem)
            return None
        is_student = len(ended) == count
        config = one_more_run(self.trainer.config, teacher_folders(folder)[:count])
        config = student_config(config, teachers=ended) if is_student else config
        seconds: float | None = 60 * train.student_minutes
        if not is_student:  # without a time limit, as many steps as the one before it
            seconds = None if self.seconds is None else seconds_of_another(self.trainer.config)
        config, teachers, warnings = find_teachers(long_enough(config, step=0, seconds=seconds), folder.parent)
        check_teachers(teachers, self.corpus.tokenizer, context=config.model.block_size)
        changed = {change.key: "chosen" for change in difference(self.trainer.config, config)}
        journal = Journal(verbose=self.journal.verbose)
        journal.add(warnings)
        run = Run(check_free(folder, folder.parent))
        journal.add([describe_next(config, shown(folder), ended, is_student=is_student)])
        journal.add(notice for notice in self.corpus.describe() if notice.kind == "detail")  # the rest was told
        torch.manual_seed(config.train.seed)
        model = initial_model(config.model, self.corpus.tokenizer.vocab_size)
        keep_teachers(teachers, run.folder)
        trainer = Trainer(
            model,
            self.corpus.train,
            config,
            runtime=self.trainer.runtime,
            marks=self.corpus.marks,
            teachers=models_of(teachers),
        )
        return Session(
            trainer=trainer,
            corpus=self.corpus,
            run=run,
            journal=journal,
            options=self.options,
            sources={**self.sources, **changed},
            checkpoints=self.checkpoints,
            started=self.deadline or time.perf_counter(),  # what this run has not used is for the next one
            seconds=seconds,
        )

    # What is said and recorded

    def describe_run(self) -> None:
        """Print what will be trained and how long it takes; write config.yaml, and details.txt of a new run."""
        trainer, journal, run = self.trainer, self.journal, self.run
        with trainer.group.together():  # some steps are timed
            about = describe_training(trainer, self.corpus, seconds=self.seconds, time_model=self.time_model, steps=self.steps)
        journal.add([*about, *self.choices, *trainer.notices])
        trainer.notices.clear()
        if run is None:
            return
        curves = f"python -m tensorboard.main --logdir {shown(run.folder.parent)}"
        journal.add([Notice("run", f"{shown(run.folder)}   (curves: {curves})", "detail")])
        is_new = self.saved is None
        for problem in (run.write_config(trainer.config), run.write_details(journal.lines) if is_new else None):
            if problem:
                journal.notice("warning", problem)
        every_choice = f"{DETAILS} there" if (run.folder / DETAILS).is_file() else "--verbose"
        journal.add([Notice("run", f"{shown(run.folder)}   (every choice: {every_choice}; curves: {curves})", "summary")])

    @contextlib.contextmanager
    def recording(self) -> Iterator[Clock]:
        """Record the run from its present step on, and measure its speed by the clock that this gives, in this block."""
        trainer, train = self.trainer, self.trainer.config.train
        step, folder = trainer.progress.step, None if self.run is None else self.run.folder
        with self.journal.recording(folder, trainer.config, step=step, is_new=self.saved is None):
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
        if (slower := self.clock.slowdown()) and self.told_slow < MAX_TOLD:
            self.told_slow += 1
            journal.notice("slow", slower)

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

    def decide_on_student(self, interrupt: Interrupt) -> None:
        """Measure if the model memorises its text: then a student follows. A run without one gets the time of all runs.

        A signal leaves this to a resumed run.
        """
        trainer, before = self.trainer, self.trainer.config
        losses = measure(trainer, self.corpus, interrupt)
        if losses is None:
            return
        trainer.config = decided(losses, before)
        self.journal.add([describe_decision(losses, before)])
        if self.deadline is not None and not trainer.config.train.student_minutes:
            others = (before.train.student_teachers - 1) * seconds_of_another(before)
            self.deadline = self.clock.deadline = self.deadline + others + 60 * before.train.student_minutes
            if not self.clock.is_unmeasured:
                self.measure_speed(interrupt)

    def evaluate(self, interrupt: Interrupt) -> None:
        """Compute the loss over the validation split, write a sample, and record both. A signal meanwhile discards both.

        Raises NotFinite.
        """
        trainer, progress, group = self.trainer, self.trainer.progress, self.trainer.group
        split = validation_split(self.corpus.val, trainer.config.train.eval_chars)
        loss = trainer.evaluate(split, marks=self.corpus.marks, interrupt=interrupt)
        if loss is None:
            return
        if not math.isfinite(loss):
            raise NotFinite(f"the validation loss after it is {loss}", step=progress.step - 1)
        with group.together():  # a signal may come
            sample = self.writer.write(trainer.model, interrupt)
        if interrupt.agreed:
            return
        trainer.record_evaluation(loss, sample=sample)
        extra = {}
        if group.is_first:
            extra = extra_metrics(trainer.weights.working, self.corpus, trainer.config.train, sample=sample, loss=loss)
        self.journal.record_evaluation(progress.step, loss, best=progress.best_loss, sample=sample, extra_metrics=extra)

    def save(self) -> None:
        """Publish a checkpoint of finite weights, after everything recorded so far is on disk. Raises NotFinite, UserError."""
        trainer, corpus, journal, run = self.trainer, self.corpus, self.journal, self.run
        trainer.check_weights()
        journal.flush()
        weights, optimizer, progress = trainer.state()
        state = SavedState(
            config=trainer.config,
            tokenizer=corpus.tokenizer,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            progress=progress,
            environment=trainer.environment,
            seconds_left=self.clock.seconds_left(is_undecided=is_undecided(trainer.config)),
            sources=self.sources,
            stage=1 if self.saved is None else self.saved.stage,
        )
        with trainer.group.together():
            if run is not None:
                try:
                    problems = run.save(state, weights=weights, training=optimizer)
                except CheckpointError as error:
                    again: list[Words] = ["; then go on with: ", resuming(run.name(self.checkpoints), verb="train")]
                    raise CheckpointError(error, *(again if self.saved else [])) from error
                screen().saved(run.folder)
                for problem in problems:
                    journal.notice("warning", problem)
                if run.saved_again and run.checkpoint is not None:
                    journal.notice("saved", f"{run.checkpoint.name}, since step {progress.step:,} was saved before")
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
        is_first = not self.told_speeds
        has_changed = max_steps != before.train.max_steps and not is_first
        if self._is_news(clock_.seconds_per_step) or has_changed:
            left = clock_.time_model.duration(max_steps - step, interval=trainer.config.steps_between_evaluations)
            each = f"{1000 * clock_.seconds_per_step:.1f} ms a step"
            instead = f" in place of {before.train.max_steps:,}" if has_changed else ""
            journal.notice("speed", f"{each}; {max_steps:,} steps{instead}, done in {clock(left)}")
        if self.deadline is None:
            return
        if not self.due(interrupt).evaluate:  # otherwise it is saved after the evaluation
            self.save()
        if self.run is not None and (problem := self.run.write_config(trainer.config)):
            journal.notice("warning", problem)

    def _is_news(self, seconds_per_step: float) -> bool:
        """Whether to tell this speed: the first one, and one that has changed, twice in all."""
        is_news = not self.told_speeds or not 1 / CHANGED < seconds_per_step / self.told_speeds[-1] < CHANGED
        if not is_news or len(self.told_speeds) >= MAX_TOLD:
            return False
        self.told_speeds.append(seconds_per_step)
        return True

    # How a run goes on or ends after a step that was not finite, and how it becomes a teacher

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

    def rename_to_teacher(self, interrupt: Interrupt) -> None:
        """If a student follows, the run NAME, which has ended, becomes NAME-teacher; the next run gets NAME.

        If there are several teachers, the second one becomes NAME-teacher2, and so on.
        """
        if self.run is None or interrupt.agreed or not self.trainer.config.train.student_minutes:
            return
        if student_folder(self.run.folder) is not None:  # renamed before, or by an older version
            return
        try:
            self.run.rename(next_teacher_folder(self.run.folder))
            screen().saved(self.run.folder)
        except UserError as problem:
            self.journal.notice("warning", problem)


def extra_metrics(
    model: GPT, corpus: Corpus, config: TrainConfig, *, sample: str, loss: float
) -> dict[str, float | np.ndarray]:
    """The metrics of `model` at an evaluation in addition to its `loss`: numbers and pictures (height, width, 3).

    Uses no random state.

    `novelty/longest_copy` is the length of the longest passage of `sample` that occurs in the training text; absent without a
    sample or an index. `val/bits_per_item` is the mean over the items that the loss is of; absent if it is of a part of one.
    `attention` is a picture of all heads at the start of the validation split, if the settings ask for it.
    """
    metrics: dict[str, float | np.ndarray] = {}
    if corpus.marks is not None:
        if characters := corpus.marks.characters_per_item(validation_split(corpus.val, config.eval_chars)):
            metrics["val/bits_per_item"] = loss / math.log(2) * characters
    longest = longest_copy(corpus, sample)
    if longest is not None:
        metrics["novelty/longest_copy"] = float(longest)
    if config.log_attention:
        metrics["attention"] = draw_attention(model, corpus.val)
    return metrics


def _how_to_go_on(trainer: Trainer) -> list[Words]:
    """What to add to the command of a run that is finished, and that no student follows; otherwise nothing."""
    train = trainer.config.train
    if not trainer.is_finished or train.student_minutes:
        return []
    if trainer.progress.step < train.max_steps:
        return ["; to train on, add ", Option("train.patience", 0)]
    return ["; to train on, add ", Option("train.max_steps", 2 * train.max_steps), ", or ", Option("minutes")]


def _about_processes(trainer: Trainer) -> list[Notice]:
    """How several processes share the work; nothing for one."""
    group = trainer.group
    if group.size == 1:
        return []
    machines, each = group.size // group.local_size, trainer.config.train.batch_size // group.size
    shares = f"each computes {plural(each, 'window')} of a batch"
    return [Notice("processes", f"{group.size} on {plural(machines, 'machine')}; {shares}")]
