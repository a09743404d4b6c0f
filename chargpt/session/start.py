"""How a training begins: a new run from settings and a text, or a run that continues where it stopped."""

import dataclasses
import shlex
from pathlib import Path

import torch

from chargpt.config import Config, apply_overrides, difference
from chargpt.parallel.group import Group
from chargpt.planning.cli import TrainOptions
from chargpt.planning.clock import long_enough, steps_in
from chargpt.planning.forecast import describe_text
from chargpt.planning.law import TAUGHT_DECAY
from chargpt.planning.plan import ignored, make_plan
from chargpt.planning.teachers import (
    check_teachers,
    find_teachers,
    keep_teachers,
    kept_teachers,
    models_of,
    reopen_teachers,
    student_folder,
    teacher_folder,
    warnings_about,
)
from chargpt.runs.checkpoint import TRAINING, Checkpoint, check_tensors, steps
from chargpt.runs.load import corpus_of, find_run, without_cache
from chargpt.runs.model_shape import blank_model
from chargpt.runs.run import TEACHER, Run, check_other_run, folder_of, new_folder
from chargpt.runs.saved_state import Progress, SavedState
from chargpt.session.notices import Notices
from chargpt.session.processes import Start, Training, check_processes, compare, join_run, publish_start
from chargpt.terminal import UserError, clock, plural, say, shown
from chargpt.text.corpus import Corpus
from chargpt.text.selection import run_name
from chargpt.training.distillation import environment
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import WORTH_COMPILING, choose_runtime
from chargpt.training.trainer import Trainer, TrainerState

# A resumed run may not change these: they decide the model, or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "train.chunks", "optim.name")
NEW = {"texts": [], "config": None, "minutes": None, "init_from": None, "vocab_from": None}  # options of new runs alone


def begin(options: TrainOptions, *, root: Path, group: Group, notices: Notices | None = None) -> Training:
    """The training that the user asked for. `notices` gets what was chosen. Raises UserError.

    A process that torchrun has started again continues its run, if that had begun.
    """
    if not group.is_first:
        training = join_run(options, root=root, group=group)
        return training._replace(seconds=time_limit(options, training.run, group=group))
    notices = notices or Notices()
    again = resumed_options(options, root=root) if group.has_begun else options
    training = (resume_run if again.resume else new_run)(again, root=root, group=group, notices=notices)
    if group.size > 1:
        notices.later("processes", f"{group.describe()}; each batch is cut into {training.trainer.config.train.chunks} chunks")
    return training


def resumed_options(options: TrainOptions, *, root: Path) -> TrainOptions:
    """The options that continue the run which `options` began; `options` if it has no checkpoint yet."""
    name = run_name(options.texts) if options.run is None else options.run
    folder = folder_of(name, root / "checkpoints")
    if options.resume or not (folder.is_dir() and steps(folder)):
        return options
    settings = [setting for setting in options.settings if setting.startswith("data.cache")]
    return dataclasses.replace(options, **NEW, resume=True, run=str(folder), settings=settings)


def new_run(options: TrainOptions, *, root: Path, group: Group = Group(), notices: Notices | None = None) -> Training:
    """A run at step 0. Raises UserError, also if a run of that name exists."""
    notices = notices or Notices()
    plan = make_plan(options, root=root, processes=group.size)
    for notice in plan.notices:
        notices.add(notice)
    for notice in plan.advice:
        notices.add(notice, is_later=True)
    config, corpus = plan.config, plan.corpus
    check_processes(config, group)
    worth_compiling = config.train.max_steps * config.chars_per_step >= WORTH_COMPILING
    state = SavedState(
        config=config,
        tokenizer=corpus.tokenizer,
        texts=corpus.texts,
        fingerprint=corpus.fingerprint,
        progress=Progress(),
        environment={},
    )
    publish_start(group, Start(state, saved=None, worth_compiling=worth_compiling))
    runtime = choose_runtime(config, worth_compiling=worth_compiling, group=group)
    run = Run(new_folder(str(plan.folder), root / "checkpoints"))
    new_folder(str(plan.folder), root / "checkpoints")  # again, now that it is locked: another process may have finished it
    check_other_run(run.folder)
    group.note_begun()
    keep_teachers(plan.teachers, run.folder)
    teachers = models_of(plan.teachers)
    compare(group, corpus.fingerprint, environment(runtime, teachers))
    trainer = Trainer(plan.model, corpus.train, config, runtime=runtime, group=group, teachers=teachers)
    trainer.share_start()
    options = dataclasses.replace(options, minutes=None if plan.seconds is None else plan.seconds / 60)
    return Training(trainer, corpus, run, time_limit(options, run, group=group))


def become_teacher(training: Training) -> None:
    """Rename a run that has ended and that a second run follows: the second one gets its name."""
    run = training.run
    if student_folder(run.folder) is not None:  # renamed before, or by an older version
        return
    try:
        run.rename(teacher_folder(run.folder))
    except UserError as problem:
        say("warning", str(problem))


def pupil_of(teacher: Training) -> Training | None:
    """The run that now learns from the one that has ended; None if it is to have none, or cannot have one, which is said.

    It has the same text, model and settings, but for what keeps a model from memorising a text alone. Raises UserError.
    """
    config, folder = teacher.trainer.config, student_folder(teacher.run.folder)
    minutes = config.train.pupil_minutes
    if not minutes:
        return None
    if problem := _why_no_second_run(teacher, folder):
        say("note", problem)
        return None
    decay = min(config.optim.weight_decay, TAUGHT_DECAY)
    seed = (config.train.seed + 1) % 2**63
    changes = ["train.pupil_minutes=0", f"train.seed={seed}", "model.dropout=0", f"optim.weight_decay={decay}"]
    changes += ["train.patience=0", f"train.teachers={teacher.run.folder}"]  # with teachers, the loss is lowest at the end
    config = apply_overrides(config, changes)
    config, teachers, warnings = find_teachers(long_enough(config, step=0, seconds=60 * minutes), folder.parent)
    for _, problem, _ in warnings:
        say("warning", problem)
    run, corpus = Run(new_folder(str(folder), folder.parent)), teacher.corpus
    own = f"weight decay {decay:g}, dropout 0, no patience and seed {seed}"
    say("second run", f"{shown(folder)} learns from {shown(teacher.run.folder)}; it has {own}")
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    keep_teachers(teachers, run.folder)
    trainer = Trainer(model, corpus.train, config, runtime=teacher.trainer.runtime, teachers=models_of(teachers))
    return Training(trainer, corpus, run, 60 * minutes)


def _why_no_second_run(teacher: Training, folder: Path | None) -> str:
    """Why the run that has ended gets no second run in `folder`, and what to do; empty if it gets one."""
    own = shown(teacher.run.folder)
    if folder is None:
        return f"{own}: for a second run, rename this folder to NAME{TEACHER}, and then --resume --run NAME{TEACHER}"
    if folder.is_dir() and steps(folder):
        return f"{shown(folder)} exists; if it is not complete, continue it with --resume --run {shlex.quote(shown(folder))}"
    if teacher.trainer.group.size > 1:
        return f"{shown(folder)}: for this run, continue without torchrun: --resume --run {shlex.quote(own)}"
    return ""


def resume_run(options: TrainOptions, *, root: Path, group: Group = Group(), notices: Notices | None = None) -> Training:
    """A run as its newest valid checkpoint left it. Raises UserError if it cannot continue as the same run."""
    notices = notices or Notices()
    run = Run(find_run(options.run, root / "checkpoints"))
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        say("warning", warning)
    if options.epochs is not None:
        steps_given = steps_in(
            options.epochs, checkpoint.state.config, characters=len(_corpus_of(checkpoint, options, root=root).train)
        )
        options = dataclasses.replace(options, epochs=None, settings=[*options.settings, f"train.max_steps={steps_given}"])
    config, copies = _resumed_config(checkpoint, options), None
    if "train.teachers" in options.given:
        config, teachers, warnings = find_teachers(config, root / "checkpoints")
    else:
        copies = kept_teachers(run.folder, checkpoint.state.environment) if config.train.teachers else None
        teachers, warnings = reopen_teachers(config, copies=copies)
    for _, problem, _ in [*warnings, *warnings_about(teachers, checkpoint.state.fingerprint)]:
        say("warning", problem)
    check_processes(config, group)
    corpus = _corpus_of(checkpoint, options, root=root)
    worth_compiling = checkpoint.state.environment.get("compile") is True
    state = dataclasses.replace(checkpoint.state, config=config)
    saved, teachers_at = checkpoint.state.config, "" if copies is None else str(copies.resolve())
    publish_start(group, Start(state, saved=saved, worth_compiling=worth_compiling, teachers_at=teachers_at))
    runtime = choose_runtime(config, worth_compiling=worth_compiling, group=group)
    check_teachers(teachers, corpus.tokenizer, context=config.model.block_size)
    keep_teachers(teachers, run.folder)
    compare(group, corpus.fingerprint, environment(runtime, models_of(teachers)))
    model = blank_model(config.model, corpus.tokenizer.vocab_size)  # its weights come with the rest of the state
    trainer = Trainer(model, corpus.train, config, runtime=runtime, group=group, teachers=models_of(teachers))
    check_tensors(checkpoint.training, trainer.optimizer.expected(), where=shown(checkpoint.path / TRAINING))
    progress = checkpoint.state.progress
    if options.minutes is not None or config.train.max_steps != checkpoint.state.config.train.max_steps:  # another length
        progress = dataclasses.replace(progress, without_gain=0)
    trainer.load(TrainerState(checkpoint.weights, checkpoint.training, progress))
    trainer.is_extended = options.minutes is not None
    _say_what_differs(checkpoint.state.environment, trainer)
    seconds = time_limit(options, run, group=group)
    rest = plural(config.train.max_steps - checkpoint.step, "step") if seconds is None else clock(seconds)
    notices.say("resumed", f"{shown(checkpoint.path)}, {'no steps' if trainer.is_finished else rest} to go")
    notices.summary("text", corpus.describe_briefly())
    for notice in describe_text(corpus):
        notices.add(notice)
    return Training(trainer, corpus, run, seconds)


def _corpus_of(checkpoint: Checkpoint, options: TrainOptions, *, root: Path) -> Corpus:
    """The corpus of a run that is resumed; a cache that the user gives is read and written."""
    config, given = checkpoint.state.config, [setting for setting in options.settings if setting.startswith("data.cache")]
    return corpus_of(checkpoint, apply_overrides(config, given) if given else without_cache(config), root=root)


def _resumed_config(checkpoint: Checkpoint, options: TrainOptions) -> Config:
    """The run's settings with those that the user changes. Raises UserError for a change that makes it another run."""
    saved = checkpoint.state.config
    for label, text, _ in ignored(options):
        say(label, text)
    if options.minutes is not None or "train.max_steps" in options.given:  # --minutes had chosen them for another length
        saved = apply_overrides(saved, ["train.min_evaluations=0", "train.max_epochs=0", "optim.replanned=0,0"])
    config = apply_overrides(saved, options.settings)
    if config.train.max_steps < checkpoint.step:
        raise UserError(f"train.max_steps: {config.train.max_steps:,} given; the run is already at step {checkpoint.step:,}")
    for change in difference(saved, config):
        if change.startswith(FIXED) and not change.startswith("data.cache"):
            raise UserError(f"{change}: cannot change in a run that has begun; start a new one with --run NAME")
        if options.minutes is None or not change.startswith("train.max_steps:"):
            say("changed", change)
    seconds = checkpoint.state.seconds_left if options.minutes is None else 60 * options.minutes
    return long_enough(config, step=checkpoint.step, seconds=seconds)


def time_limit(options: TrainOptions, run: Run, *, group: Group = Group()) -> float | None:
    """The seconds that the run may take from the start of the program; None if there is no limit.

    A run that was killed before --minutes could fix its length has the rest of that time.
    """
    if group.has_begun and run.saved and not options.resume:  # torchrun has started the processes again
        return run.saved.seconds_left
    if options.minutes is None:
        length_given = "train.max_steps" in options.given
        return run.saved.seconds_left if run.saved and not length_given else None
    return 60 * options.minutes


def roll_back(trainer: Trainer, run: Run, *, without: int) -> None:
    """Return to the newest valid checkpoint, `run.checkpoint`; go on at half the rate, without the batch of step `without`."""
    skipped, state = [*trainer.progress.skipped, without], None
    if trainer.group.is_first:
        checkpoint, warnings = run.load_newest()
        for warning in warnings:
            say("warning", warning)
        state = TrainerState(checkpoint.weights, checkpoint.training, checkpoint.state.progress)
    trainer.load(state)
    trainer.progress.skipped = skipped


def _say_what_differs(before: dict[str, str | int | bool], trainer: Trainer) -> None:
    """Warn, in one line, if the run cannot continue with the same bits here."""
    now = trainer.environment
    if "teachers" not in before:  # of a version that did not save them
        now = {key: value for key, value in now.items() if key != "teachers"}
    changes = [f"{key} {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if changes:
        say("warning", f"the environment has changed ({', '.join(changes)}): the run continues, but not with the same bits")
