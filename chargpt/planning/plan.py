"""What will be trained, decided before the first step: `make_plan` makes all the decisions, and an `Opening` holds them.

Nothing is printed or written, but for texts in the cache. What the user should know of a decision is a `Notice`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.config import Config, Settings, Source, difference, flat
from chargpt.errors import Message, Option, UserError, join
from chargpt.model import GPT
from chargpt.planning.adaptation import adapt, measure_start
from chargpt.planning.chosen_for_time import (
    DEFAULT_SECONDS,
    SHORTEST_CONTEXT,
    Choice,
    Job,
    choose,
    chooses,
    regularized,
    text_of,
)
from chargpt.planning.cli import TrainOptions
from chargpt.planning.memory import check_memory, memory_needed
from chargpt.planning.settings import load_settings
from chargpt.planning.teachers import check_teachers, models_of, student_settings, taught
from chargpt.planning.time_model import TimeModel, at_least_measurable, longest_run, measured, steps_in
from chargpt.project import presets_folder
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import Progress, SavedState, what_changed
from chargpt.runs.load import find_checkpoint
from chargpt.runs.model_shape import check_size, parameter_count
from chargpt.runs.models import RUN, check_model, loss_of, name_of_start, restore_model, start_from
from chargpt.runs.run import Run, folder_of, new_folder
from chargpt.terminal import Notice, clock, notice_line, plural, shown
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.text.report import examine
from chargpt.text.sources import check_found, run_name
from chargpt.training.initialisation import initial_model
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES, WITHOUT_MINUTES
from chargpt.training.parallel import Group, check_batch
from chargpt.training.runtime import Runtime, choose_runtime, is_worth_compiling


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One model of a run, before its first step in this process: made by a plan, by a saved run, or by the model before."""

    state: SavedState  # its settings, vocabulary, progress and stage, as they are now
    corpus: Corpus
    model: GPT  # its weights, on the CPU; those of `checkpoint` replace them
    teachers: Sequence[GPT] = ()
    named: tuple[Checkpoint, ...] = ()  # the teachers of a new run, which are copied into its folder
    saved: SavedState | None = None  # what the newest checkpoint holds; None for a new model
    checkpoint: Checkpoint | None = None  # that one; None in a process that is not the first one
    folder: Path | None = None  # of a new run
    run: Run | None = None  # where the first process writes
    runtime: Runtime
    seconds: float | None  # the time limit of this model, from `Session.started` on; None: no limit
    is_extended: bool = False  # by --minutes, with --resume
    time_model: TimeModel | None  # by some steps that were timed; None if no step is left
    notices: tuple[Notice, ...] = ()  # on text and settings: for the user before those of `about_training`
    choices: tuple[Notice, ...] = ()  # what was chosen, and the loss to expect: for the user after those

    @property
    def config(self) -> Config:
        return self.state.config

    def describe(self) -> str:
        """What --dry-run prints: every choice, how long the training takes, and what to expect."""
        said = [*self.notices, *self.about_training(), *self.choices]
        return "\n".join(notice_line(label, str(text)) for label, text, _ in said)

    def about_training(self) -> list[Notice]:
        """The model, the machine and the length of the training, how long it takes and its memory.

        If the epochs end it before its time limit, they are told in place of it.
        """
        config, runtime, known, vocabulary = self.config, self.runtime, self.time_model, self.corpus.tokenizer.vocab_size
        model, optim, train, step = config.model, config.optim, config.train, self.state.progress.step
        parameters, characters = parameter_count(model, vocabulary), len(self.corpus.train)
        layers = plural(model.n_layer, "layer")
        shape = f"{layers}, width {model.n_embd}, context {model.block_size}, {model.positions} positions"
        how = f"learning rate {optim.learning_rate:g} (optim.schedule={optim.schedule}), dropout {model.dropout:g}"
        notices = [
            Notice("model", f"{parameters:,} parameters: {shape}; optimizer {OPTIMIZERS[optim.name].label}"),
            Notice("steps", f"each step trains on {config.chars_per_step:,} characters; {how}", "detail"),
        ]
        if known is not None:
            left, takes = train.max_steps - step, 0.0
            if self.seconds is not None:
                fits = known.steps_in(self.seconds - known.reserve(self.seconds), interval=train.eval_interval)
                if self.folder is not None and self.state.settings.sources.get("train.max_steps") is Source.CHOSEN:
                    fits = train.max_steps  # chosen for this time, like all that is said of the run
                longest = longest_run(config, characters=characters) - step
                left = max(1, min(fits, longest))
                takes = self.seconds * (fits < longest - 1)  # the last one may be a part of a step
            count, epochs = plural(left, "step"), left * config.chars_per_step / characters
            duration = clock(known.duration(left, interval=config.steps_between_evaluations))
            length = f"for {clock(takes)} (about {count})" if takes else f"for about {duration} ({count}, {epochs:.1f} epochs)"
            memory = memory_needed(config, parameters=parameters, vocab_size=vocabulary, processes=runtime.processes)
            size = f"{max(memory, 1e8) / 1e9:.1f} GB of memory"
            notices += [
                Notice("estimate", f"about {1000 * known.step:.1f} ms a step and {size}", "detail"),
                Notice("training", f"{length} on {runtime.describe()}"),
            ]
        return [*notices, *[Notice("slower", runtime.slower)] * bool(runtime.slower)]


def make_plan(options: TrainOptions, *, root: Path, group: Group = Group()) -> Opening:
    """Decide everything about a new run before its first step. Raises UserError.

    `root` is the folder of the project, or where an installed library keeps runs. The order is that of the mistakes a user can
    make: settings and names first, then the text, then what does not fit it. A missing text comes before a run that exists.
    """
    checkpoints, notices, processes = root / "checkpoints", list[Notice](), group.size

    # What the user names: settings, and other runs.
    start = None if options.start is None else _checkpoint_of(None, checkpoints, notices, start=options.start)
    start = start if options.init_from is None else _checkpoint_of(options.init_from, checkpoints, notices)
    vocabulary = None if options.vocab_from is None else _checkpoint_of(options.vocab_from, checkpoints, notices)
    loaded, file = _load_settings(options, start)  # with minutes, a preset is a default, and they decide the length
    settings = loaded if options.minutes is None else loaded.without(Source.PRESET).leaving_open("train.max_steps")
    teachers = tuple(_checkpoint_of(name, checkpoints, notices) for name in options.teacher)
    check_found(options.texts)
    name = run_name(options.texts) if options.run is None else options.run
    is_made = not (options.dry_run or options.find_lr)
    folder = new_folder(name, checkpoints, overwrite=options.overwrite) if is_made else folder_of(name, checkpoints)

    # The text, and what follows from its length.
    is_open, config = chooses(settings, minutes=options.minutes), settings.values
    context = SHORTEST_CONTEXT if is_open and not settings.is_given("model.block_size") else config.model.block_size
    corpus = _load_corpus(options, config, start, vocabulary, root=root, context=context)
    if not is_open or settings.is_given("train.batch_size"):
        check_batch(config.train.batch_size, processes)
    notices += corpus.describe()
    notices += [*check_teachers(teachers, corpus, context=context), *([] if options.find_lr else examine(corpus))]

    # The model and its training: chosen for the text and the time, where the user leaves it open.
    models, seconds = models_of(teachers), DEFAULT_SECONDS if options.minutes is None else 60 * options.minutes
    choice = _choose(settings, Job(corpus, text_of(corpus), seconds, processes, models), options, start)
    settings = dataclasses.replace(choice.settings, values=_for_any_folder_and_length(choice, corpus))
    config, limit = settings.values, choice.seconds
    check_size(config.model, corpus.tokenizer.vocab_size)
    check_model(config.model, corpus.tokenizer.vocab_size)
    check_memory(config, vocab_size=corpus.tokenizer.vocab_size, processes=processes, on_machine=group.local_size)
    known = choice.time_model or measured(config, corpus, models, processes=processes)
    seconds = limit or known.step * config.train.max_steps
    environment: dict[str, str | int | bool] = {"compile": is_made and is_worth_compiling(seconds)}

    # What to say of it.
    origin = shown(file or ("chosen for the text and the time" if is_open else "the defaults"))
    choices = [*choice.notices, *_about_choices(settings, loaded, options, origin=origin)]
    choices += [*_about_teachers(settings, teachers), *_about_splits(corpus, config), *_about_processes(config, group)]
    notices, choices = _with_one_note(notices, choices)
    return Opening(
        state=SavedState(
            settings=settings,
            progress=Progress(),
            environment=environment,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            tokenizer=corpus.tokenizer,
        ),
        corpus=corpus,
        model=_first_model(config, corpus, start),
        teachers=models,
        named=teachers,
        folder=folder.absolute(),
        runtime=choose_runtime(config, environment, group=group),
        seconds=limit,
        time_model=known,
        notices=tuple(notices),
        choices=tuple(choices),
    )


def _with_one_note(notices: list[Notice], choices: list[Notice]) -> tuple[list[Notice], list[Notice]]:
    """The same, with all notes in the last one of `choices`: few lines come before the first step."""
    notes = [said for said in (*notices, *choices) if said.label == "note" and said.kind == "line"]
    notices, choices = ([said for said in some if said not in notes] for some in (notices, choices))
    return notices, choices + [Notice("note", join("; ", (note.text for note in notes)))] * bool(notes)


def _checkpoint_of(name: str | None, checkpoints: Path, notices: list[Notice], *, start: str | None = None) -> Checkpoint:
    """The checkpoint of --init-from, --vocab-from, --teacher or --start; its warnings are added to `notices`."""
    checkpoint, warnings = find_checkpoint(name, checkpoints, start=start)
    warnings += filter(None, [what_changed(checkpoint.state, lambda: loss_of(restore_model(checkpoint)[0]))])
    notices += [Notice("warning", warning) for warning in warnings]
    return checkpoint


def _load_settings(options: TrainOptions, start: Checkpoint | None) -> tuple[Settings, Path | None]:
    """The settings before what follows from the text and the time, and their file. A start gives the shape of the model."""
    typed = options.settings
    if options.epochs is not None:  # a length, which is known when the text is read
        typed = {**typed, "train": {**typed.get("train", {}), "max_steps": 1}}
    settings, file = load_settings(
        options.config,
        typed,
        presets=presets_folder(),
        minutes=options.minutes,
        model=None if start is None else start.state.config.model,
        model_from=options.start or options.init_from or "",
    )
    train = settings.values.train
    if start is None and train.start:
        run = train.start.removeprefix(RUN)
        add = Option("start" if run == train.start else "init_from", run)
        what = f"{options.config}: train.start is {train.start!r}, a model that such a file does not bring; for it, add "
        raise UserError(what, add, "; otherwise remove train.start from the file")
    if train.teachers and (start is not None or options.teacher):
        what = f"train.teachers: {train.teachers} given, but it cannot be used with "
        names = join(", ", map(Option, ("start", "init_from", "teacher")))
        raise UserError(what, names, "; leave out train.teachers")
    begins = options.start or ("" if start is None else f"{RUN}{name_of_start(start)}")
    values = dataclasses.replace(settings.values, train=dataclasses.replace(train, start=begins))
    return dataclasses.replace(settings, values=values), file


def _load_corpus(
    options: TrainOptions, config: Config, start: Checkpoint | None, vocabulary: Checkpoint | None, *, root: Path, context: int
) -> Corpus:
    """The text, with the vocabulary of another run, or with one of its own that has the characters of a start too."""
    known = "" if start is None else start.state.tokenizer.characters or ""
    if known and vocabulary is None and 0 < config.data.max_vocab <= len(known):
        what = f"the model that you start from has {len(known)} characters, and one for all others; use {len(known) + 1}"
        raise UserError(f"data.max_vocab: {config.data.max_vocab} given, but {what} or more, or leave it out")
    return load_corpus(
        options.texts,
        config.data,
        root=root,
        block_size=context,
        tokenizer=None if vocabulary is None else vocabulary.state.tokenizer,
        known=known,
        asked=options.settings.get("data", {}),
    )


def _choose(settings: Settings, job: Job, options: TrainOptions, start: Checkpoint | None) -> Choice:
    """The settings for this text and this much time, and what to say of them.

    One of three: gentle ones from the weights of a `start`; those with the lowest expected loss of all models that the
    machine can train in the time; or, if the user has decided everything else, only the regularization.
    """
    minutes, limit = options.minutes, None if options.minutes is None else job.seconds
    if options.epochs is not None:
        steps = steps_in(options.epochs, settings.values, characters=job.text.characters)
        settings = settings.give({"train": {"max_steps": steps}}, source=Source.USER, where="--epochs")
    if start is not None:
        distance, notices = measure_start(start, job.corpus, ngram_loss=job.text.ngram_loss)
        if options.epochs is not None:  # it decides how often the text is seen, and that decides the steps
            settings = settings.leaving_open("train.max_steps")
        adapted = adapt(settings, job, distance=distance, minutes=minutes, epochs=options.epochs)
        return Choice(adapted, limit, notices)
    if chooses(settings, minutes=minutes):
        choice = choose(settings, job, optimizer=WITHOUT_MINUTES if minutes is None else WITH_MINUTES)
    else:
        choice = Choice(regularized(settings, job.text), limit, [])
    return choice._replace(settings=taught(choice.settings)) if job.teachers else choice


def _for_any_folder_and_length(choice: Choice, corpus: Corpus) -> Config:
    """The chosen settings, with which a run finds its text from any folder, and no longer than `train.max_epochs` allows."""
    config = dataclasses.replace(choice.config, data=absolute_paths(choice.config.data))
    if choice.seconds is not None:
        return at_least_measurable(config, step=0, seconds=choice.seconds)
    most = longest_run(config, characters=len(corpus.train))
    return dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=min(most, config.train.max_steps)))


def _first_model(config: Config, corpus: Corpus, start: Checkpoint | None) -> GPT:
    """The model that a run begins with: an initial one, or one with the weights of `start`."""
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    if start is not None:
        start_from(start, model, corpus.tokenizer)
    return model


def _about_choices(settings: Settings, loaded: Settings, options: TrainOptions, *, origin: str) -> list[Notice]:
    """Where settings come from, what was chosen and why; with --minutes, one line on what of a preset was replaced."""
    typed = [f"{section}.{key} {value}" for section, values in options.settings.items() for key, value in values.items()]
    notices = [Notice("settings", ", ".join([origin, *typed]), "detail")]
    values, chosen = flat(settings.values), dict[str, list[str]]()
    for key, reason in settings.reasons.items():
        if settings.sources.get(key) is Source.CHOSEN:
            chosen.setdefault(reason, []).append(f"{key} {values[key]}")
    notices += [Notice("chosen", f"{', '.join(some)} ({reason})", "detail") for reason, some in chosen.items()]
    changed = [change.key for change in difference(loaded.values, settings.values)]
    replaced = [key for key in changed if loaded.sources.get(key) is Source.PRESET]
    if options.minutes is not None and options.gives("train.max_steps"):
        what = " decides how long the training is, so your train.max_steps is not used"
        notices.append(Notice("note", Message(Option("minutes"), what)))
    if options.minutes is not None and replaced:
        what = f" changes these settings of {options.config} to fit the time: {', '.join(replaced)}"
        notices.append(Notice("note", Message(Option("minutes"), what)))
    return notices


def _about_teachers(settings: Settings, teachers: tuple[Checkpoint, ...]) -> list[Notice]:
    """From which models the last one learns, if the user has asked for it, and the settings given that do not hold for it."""
    if teachers:
        return [Notice("teachers", ", ".join(shown(teacher.path) for teacher in teachers), "detail")]
    train = settings.values.train
    if not train.teachers:
        return []
    notices = []
    if not train.teacher_minutes:  # otherwise the choice has told it
        condition = "; if the first does not begin to memorise the text, no other follows" * bool(train.student_gap)
        what = f"one after the other; the last one learns from the text and from what those before it predict{condition}"
        notices.append(Notice(f"{train.teachers + 1} models", what))
    changed = difference(settings.values, student_settings(settings).values)
    if given := [str(change) for change in changed if settings.is_given(change.key)]:
        what = f"in the last model, the program changes {', '.join(given)}; for one model with your values, add "
        notices.append(Notice("note", Message(what, Option("train.teachers", 0))))
    return notices


def _about_processes(config: Config, group: Group) -> list[Notice]:
    """How several processes share the batch."""
    on, batch = plural(group.size // group.local_size, "machine"), config.train.batch_size
    what = f"{group.size} on {on}; each computes {batch // group.size:,} of the {batch:,} sequences of a step"
    return [Notice("processes", what)] * (group.size > 1)


def _about_splits(corpus: Corpus, config: Config) -> list[Notice]:
    """What of the text does not fit into the context of the model. Raises UserError for a label that does not."""
    context = config.model.block_size
    notices = [] if corpus.is_validated else [Notice("note", "all of the text is for training, so there is no validation loss")]
    if corpus.items is None or corpus.marks is None:
        shortest = min(len(corpus.train), len(corpus.val))
        if corpus.is_validated and shortest <= context:
            short = "validation" if shortest == len(corpus.val) else "training"
            what = f"the {short} text has only {shortest:,} characters, so the loss is a rough estimate"
            notices.append(Notice("note", what))
        return notices
    label, lengths = corpus.items.longest_label, corpus.marks.lengths(corpus.train)
    if label + 2 > context:  # with its tab, and the end of the item before it
        what = f"data.label: the longest label has {label:,} characters, and does not fit the context of {context}; set "
        raise UserError(what, Option("model.block_size", 2 * label), " or more, or shorten the labels")
    if longer := int((lengths > context).sum()):
        what = (
            f"{longer:,} of {len(lengths):,} items are longer than the context of {context:,} characters, so the model learns"
        )
        would = Option("model.block_size", int(lengths.max()))
        notices.append(Notice("note", Message(f"{what} only their ends; ", would, " would hold the longest")))
    return notices
