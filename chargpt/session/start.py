"""How a training begins: a new run from settings and a text, or a run that continues where it stopped."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import NamedTuple

import torch

from chargpt.config import Config, apply_overrides, difference, to_dict
from chargpt.nanogpt_words import CHARACTERS, is_gpt2
from chargpt.parallel.group import Group
from chargpt.planning.adaptation import adapt, describe_adaptation, start_loss
from chargpt.planning.advice import better_way
from chargpt.planning.candidates import DEFAULT_SECONDS, SHORTEST_CONTEXT, choose, chooses, regularized
from chargpt.planning.cli import TrainOptions
from chargpt.planning.clock import MAX_STEPS, SETTLING_STEPS
from chargpt.planning.law import TAUGHT_DECAY
from chargpt.planning.settings import Settings, load_settings
from chargpt.planning.teachers import (
    keep_teachers,
    kept_teachers,
    load_teachers,
    pupil_folder,
    teacher_folder,
    warn_of_other_texts,
    with_teachers_found,
)
from chargpt.runs.checkpoint import TRAINING, Checkpoint, check_tensors, steps
from chargpt.runs.load import corpus_of, find_checkpoint, find_run, without_cache
from chargpt.runs.model_shape import blank_model, check_size
from chargpt.runs.run import TEACHER, Run, check_other_run, folder_of, new_folder
from chargpt.runs.saved_state import Progress, SavedState
from chargpt.runs.start_from import start_from
from chargpt.session.notices import Notices
from chargpt.session.processes import Start, Training, check_processes, compare, join_run, publish_start
from chargpt.session.second_run import is_undecided
from chargpt.terminal import UserError, clock, plural, say, shown
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.text.report import mark_to_beat
from chargpt.text.selection import run_name
from chargpt.training.distillation import environment
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import WORTH_COMPILING, choose_runtime
from chargpt.training.trainer import Trainer, TrainerState
from model import GPT

# A resumed run may not change these: they decide the model, or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "train.chunks", "optim.name")
NEW = {"texts": [], "config": None, "minutes": None, "init_from": None, "vocab_from": None}  # options of new runs alone
CHOICES = ("chosen", "considered")  # labels of lines for those who ask
MINUTES_WORTH_COMPILING = 3  # with less time, compiling for a GPU takes too large a part of it; a guess, not measured


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
    name = run_name(options.texts) if options.run is None else options.run
    folder = new_folder(name, root / "checkpoints")  # before the text is read, which may take long
    model, corpus, config, minutes, _ = new_model(options, root=root, processes=group.size, notices=notices)
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
    if config.train.pupil_minutes:  # when the run has ended, it gets the name of a teacher
        if pupil_folder(folder) is not None:
            raise UserError(f"--run: {name!r} given for two runs; use a name without {TEACHER}, which the first one gets")
        new_folder(str(teacher_folder(folder)), root / "checkpoints")
    run = Run(new_folder(name, root / "checkpoints"))
    new_folder(name, root / "checkpoints")  # again, now that it is locked: another process may have finished it meanwhile
    check_other_run(run.folder)
    group.note_begun()
    teachers = load_teachers(config, corpus.tokenizer)
    keep_teachers(config, teachers, run.folder)
    compare(group, corpus.fingerprint, environment(runtime, teachers))
    trainer = Trainer(model, corpus.train, config, runtime=runtime, group=group, teachers=teachers)
    trainer.share_start()
    return Training(trainer, corpus, run, time_limit(dataclasses.replace(options, minutes=minutes), run, group=group))


class NewModel(NamedTuple):
    """What a new run starts with."""

    model: GPT
    corpus: Corpus
    config: Config
    minutes: float | None  # the time limit: that of the options, or a part of it if a second run may follow
    has_length: bool  # whether train.max_steps is that of the run; otherwise a time limit replaces it


def new_model(options: TrainOptions, *, root: Path, processes: int = 1, notices: Notices | None = None) -> NewModel:
    """The model that a new run starts with, its text, its settings and its time. `notices` gets the choices. Raises
    UserError.
    """
    notices = notices or Notices()
    source = None if options.init_from is None else _checkpoint_of(options.init_from, root)
    vocabulary = None if options.vocab_from is None else _checkpoint_of(options.vocab_from, root).state.tokenizer
    shape = None if source is None else to_dict(source.state.config)["model"]
    length = ["train.max_steps=1"] if options.epochs is not None else []  # until the text is read
    settings = load_settings(
        options.config,
        [*options.settings, *length],
        presets=root / "configs",
        minutes=options.minutes,
        model=shape,
        model_from=options.init_from or "",
    )
    config = with_teachers_found(settings.config, root / "checkpoints")
    if config.train.pupil_minutes:
        _check_pupil(options, processes=processes)
    open = chooses(settings.given, minutes=options.minutes)
    preset = "the built-in defaults" if settings.file is None else shown(settings.file)
    preset = "chosen for the text and the time" if open and options.config is None else preset
    block_size = SHORTEST_CONTEXT if open and "model.block_size" not in settings.given else config.model.block_size
    corpus = load_corpus(
        options.texts, config.data, root=root, block_size=block_size, tokenizer=vocabulary, given=options.given
    )
    notices.summary("text", corpus.describe_briefly())
    notices.detail("settings", ", ".join([preset, *options.settings]))
    _say_ignored(options)
    if not config.train.chunks:
        batch = [f"train.batch_size={processes}"] if open and "train.batch_size" not in settings.given else []  # any that fits
        config = apply_overrides(config, [f"train.chunks={processes}", *batch])
    if options.epochs is not None:
        config = apply_overrides(config, [f"train.max_steps={steps_in(options.epochs, config, corpus)}"])
    settings = dataclasses.replace(settings, config=config)
    if source is not None:
        _, about, loss = _first_model(config, corpus, source)
        notices.later("start", f"{about}; before training, its loss on this text is {loss:.2f}")
        mark = mark_to_beat(corpus)
        notices.later("expected", f"validation loss {loss:.2f}, which the start has, or less; an n-gram model has {mark:.2f}")
    adapted = _adapted(settings, corpus, options, processes=processes, notices=notices)
    config, minutes = adapted.config, adapted.minutes
    second = config.train.pupil_minutes
    if second and "train.pupil_minutes" in settings.given:
        condition = " if it memorises its text" if is_undecided(config) else ""
        what = f"a model of the same shape learns from it for {clock(60 * second)}{condition}"
        notices.later("two runs", f"after this run, {what}")
    warn_of_other_texts(config, corpus.fingerprint)
    load_teachers(config, corpus.tokenizer)  # one that does not fit is an error before there is a folder
    has_length = minutes is None or open
    model = _first_model(config, corpus, source).model
    if source is None:
        folder = folder_of(run_name(options.texts) if options.run is None else options.run, root / "checkpoints")
        better = better_way(
            corpus,
            config,
            expected=adapted.expected,
            with_minutes=adapted.with_minutes,
            settings=options.settings,
            folder=folder,
            checkpoints=root / "checkpoints",
        )
        if better:
            notices.later("better", better)
    return NewModel(model, corpus, config, minutes, has_length=has_length)


class FirstModel(NamedTuple):
    """A model at step 0."""

    model: GPT
    about: str  # where its weights are from; empty for initial ones
    loss: float  # of weights from another run, on the validation part, nats per character; otherwise infinite


def _first_model(config: Config, corpus: Corpus, source: Checkpoint | None) -> FirstModel:
    """The model that a run begins with: an initial one, or one with the weights of `source`."""
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    if source is None:
        return FirstModel(model, "", math.inf)
    about = start_from(source, model, corpus.tokenizer)
    return FirstModel(model, about, start_loss(model, corpus))


class Adapted(NamedTuple):
    """Settings for a text and a time."""

    config: Config
    minutes: float | None  # that the run may take, if they are limited
    expected: float = math.inf  # loss, where it is known
    with_minutes: tuple[int, float] | None = None  # see Choice


def _adapted(settings: Settings, corpus: Corpus, options: TrainOptions, *, processes: int, notices: Notices) -> Adapted:
    """The settings for this text and this much time."""
    config, minutes, given = settings.config, options.minutes, settings.given
    expected, with_minutes = math.inf, None
    if minutes is not None and minutes < MINUTES_WORTH_COMPILING and config.runtime.compile == "auto":
        config = apply_overrides(config, ["runtime.compile=off"])
    if options.init_from is not None:
        keep = options.given if settings.is_preset else given
        config = adapt(config, corpus, given=given, keep=keep, minutes=minutes, processes=processes)
        notices.detail("chosen", describe_adaptation(config, characters=len(corpus.train)))
    elif chooses(given, minutes=minutes):
        seconds = DEFAULT_SECONDS if minutes is None else 60 * minutes
        if minutes is not None:  # they decide the length
            given = given - {"train.max_steps"}
        choice = choose(config, corpus, given=given, seconds=seconds, muon=minutes is not None, processes=processes)
        config, minutes = choice.config, None if minutes is None else choice.seconds / 60
        expected, with_minutes = choice.loss, choice.with_minutes
        for label, line in choice.notices:
            is_detail = label in CHOICES or (label == "note" and options.minutes is None)  # nobody asked for so much time
            (notices.detail if is_detail else notices.later)(label, line)
    else:
        config, chosen = regularized(config, corpus, given=given)
        if chosen:
            notices.detail("chosen", chosen)
    check_size(config.model, corpus.tokenizer.vocab_size)
    config = dataclasses.replace(config, data=absolute_paths(config.data))  # so that a run finds its text from any folder
    if minutes is None:
        most = longest_run(config, characters=len(corpus.train))
        config = apply_overrides(config, [f"train.max_steps={min(most, config.train.max_steps)}"])
    else:
        config = _long_enough(config, step=0, seconds=60 * minutes)
    return Adapted(config, minutes, expected, with_minutes)


def steps_in(epochs: float, config: Config, corpus: Corpus) -> int:
    """The steps in which a run reads its text this number of times."""
    return max(1, math.ceil(epochs * len(corpus.train) / config.chars_per_step))


def _check_pupil(options: TrainOptions, *, processes: int) -> None:
    """Raise UserError for what cannot be together with two runs."""
    if processes > 1:
        raise UserError("train.pupil_minutes: two runs are made by one process; start without torchrun, or use 0")
    if options.init_from is not None:
        raise UserError("train.pupil_minutes: given with --init-from, from which only the first run would start; leave one out")


def become_teacher(training: Training) -> None:
    """Rename a run that has ended and that a second run follows: the second one gets its name."""
    run = training.run
    if pupil_folder(run.folder) is not None:  # renamed before, or by an older version
        return
    try:
        run.rename(teacher_folder(run.folder))
    except UserError as problem:
        say("warning", str(problem))


def pupil_of(teacher: Training) -> Training | None:
    """The run that now learns from the one that has ended; None if it is to have none, or cannot have one, which is said.

    It has the same text, model and settings, but for what keeps a model from memorising a text alone. Raises UserError.
    """
    config, folder = teacher.trainer.config, pupil_folder(teacher.run.folder)
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
    config = _long_enough(with_teachers_found(config, folder.parent), step=0, seconds=60 * minutes)
    run, corpus = Run(new_folder(str(folder), folder.parent)), teacher.corpus
    own = f"weight decay {decay:g}, dropout 0, no patience and seed {seed}"
    say("second run", f"{shown(folder)} learns from {shown(teacher.run.folder)}; it has {own}")
    torch.manual_seed(config.train.seed)
    model, teachers = initial_model(config.model, corpus.tokenizer.vocab_size), load_teachers(config, corpus.tokenizer)
    keep_teachers(config, teachers, run.folder)
    trainer = Trainer(model, corpus.train, config, runtime=teacher.trainer.runtime, teachers=teachers)
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
        steps_given = steps_in(options.epochs, checkpoint.state.config, _corpus_of(checkpoint, options, root=root))
        options = dataclasses.replace(options, epochs=None, settings=[*options.settings, f"train.max_steps={steps_given}"])
    config, copies = _resumed_config(checkpoint, options), None
    if "train.teachers" in options.given:
        config = with_teachers_found(config, root / "checkpoints")
    elif config.train.teachers:
        copies = kept_teachers(run.folder, checkpoint.state.environment)
    warn_of_other_texts(config, checkpoint.state.fingerprint, copies=copies)
    check_processes(config, group)
    corpus = _corpus_of(checkpoint, options, root=root)
    worth_compiling = checkpoint.state.environment.get("compile") is True
    state = dataclasses.replace(checkpoint.state, config=config)
    saved, teachers_at = checkpoint.state.config, "" if copies is None else str(copies.resolve())
    publish_start(group, Start(state, saved=saved, worth_compiling=worth_compiling, teachers_at=teachers_at))
    runtime = choose_runtime(config, worth_compiling=worth_compiling, group=group)
    teachers = load_teachers(config, corpus.tokenizer, copies=copies)
    keep_teachers(config, teachers, run.folder)
    compare(group, corpus.fingerprint, environment(runtime, teachers))
    model = blank_model(config.model, corpus.tokenizer.vocab_size)  # its weights come with the rest of the state
    trainer = Trainer(model, corpus.train, config, runtime=runtime, group=group, teachers=teachers)
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
    return Training(trainer, corpus, run, seconds)


def _corpus_of(checkpoint: Checkpoint, options: TrainOptions, *, root: Path) -> Corpus:
    """The corpus of a run that is resumed; a cache that the user gives is read and written."""
    config, given = checkpoint.state.config, [setting for setting in options.settings if setting.startswith("data.cache")]
    return corpus_of(checkpoint, apply_overrides(config, given) if given else without_cache(config), root=root)


def _resumed_config(checkpoint: Checkpoint, options: TrainOptions) -> Config:
    """The run's settings with those that the user changes. Raises UserError for a change that makes it another run."""
    saved = checkpoint.state.config
    _say_ignored(options)
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
    return _long_enough(config, step=checkpoint.step, seconds=seconds)


def longest_run(config: Config, *, characters: int) -> int:
    """The highest number of steps of a run, from `train.max_epochs` and the length of the training text; rounded up."""
    if not config.train.max_epochs:
        return MAX_STEPS
    return max(1, math.ceil(config.train.max_epochs * characters / config.chars_per_step))


def _say_ignored(options: TrainOptions) -> None:
    """Say so if the user has given a number of steps that --minutes replaces."""
    if options.minutes is not None and "train.max_steps" in options.given:
        say("note", "--minutes decides the number of steps; the train.max_steps given is not used")


def _long_enough(config: Config, *, step: int, seconds: float | None) -> Config:
    """With a time limit: a run long enough to measure the speed before the rate falls, whatever its preset says."""
    if seconds is None:
        return config
    steps = max(step + 4 * (SETTLING_STEPS + 1), config.train.max_steps)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=steps))


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


def _checkpoint_of(name: str, root: Path) -> Checkpoint:
    try:
        checkpoint, warnings = find_checkpoint(name, root / "checkpoints")
    except UserError:
        if not is_gpt2(name):
            raise
        what_to_do = "leave --init-from out, or give a run of yours, or one that python -m chargpt import has made of a model"
        raise UserError(f"--init-from: {name} is {CHARACTERS}; {what_to_do} of characters") from None
    for warning in warnings:
        say("warning", warning)
    return checkpoint


def _say_what_differs(before: dict[str, str | int | bool], trainer: Trainer) -> None:
    """Warn, in one line, if the run cannot continue with the same bits here."""
    now = trainer.environment
    if "teachers" not in before:  # of a version that did not save them
        now = {key: value for key, value in now.items() if key != "teachers"}
    changes = [f"{key} {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if changes:
        say("warning", f"the environment has changed ({', '.join(changes)}): the run continues, but not with the same bits")
