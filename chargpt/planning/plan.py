"""What will be trained, decided before the first step: `make_plan` makes all the decisions, and a `Plan` holds them.

Nothing is printed or written, but for texts in the cache. What the user should know of a decision is a `Notice`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.config import Config, Settings, Source, Tree, difference, to_dict
from chargpt.errors import Command, Message, Option, UserError, join
from chargpt.model import GPT
from chargpt.planning.chosen_for_time import DEFAULT_SECONDS, SHORTEST_CONTEXT, Choice, choose, chooses, regularized, text_of
from chargpt.planning.cli import TrainOptions
from chargpt.planning.law import Text
from chargpt.planning.memory import check_memory
from chargpt.planning.settings import load_settings
from chargpt.planning.teachers import (
    Teacher,
    check_teachers,
    find_teachers,
    models_in_all,
    models_of,
    student_settings,
    taught,
    warnings_about,
)
from chargpt.planning.time_model import TimeModel, at_least_measurable, describe_training, longest_run, steps_in
from chargpt.project import presets_folder
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import find_checkpoint
from chargpt.runs.model_shape import check_size
from chargpt.runs.models import RUN, name_of_start, start_from
from chargpt.runs.run import folder_of, new_folder
from chargpt.runs.starts import load_start
from chargpt.terminal import Notice, clock, notice_line, shown
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.text.report import examine
from chargpt.text.sources import check_found, run_name
from chargpt.training.initialisation import initial_model
from chargpt.training.optimizer_kinds import WITH_MINUTES, WITHOUT_MINUTES
from chargpt.training.parallel import check_batch
from chargpt.training.runtime import COMPILED_SAVES, COMPILING_SECONDS, choose_runtime, is_worth_compiling
from chargpt.training.trainer import Trainer

# Operations a second by which to judge if the run is worth compiling when nothing was timed: of a large GPU, an estimate.
OPERATIONS = 1e14


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Leave torch's random states as they were: of the CPU, and of a GPU that is in use."""
    cpu = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(gpu)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that has not begun."""

    settings: Settings  # complete; with --minutes, train.max_steps is only a length that is enough to measure the speed
    corpus: Corpus
    model: GPT  # the initial weights, on the CPU
    teachers: tuple[Teacher, ...]  # other runs, from which it learns
    folder: Path  # of the run; it holds no run, unless the plan is for no run: --dry-run, --find-lr
    seconds: float | None  # the time limit of the first model, from the start of the program; None: no limit
    steps: int | None  # how many are expected to fit into `seconds`, if that is known
    time_model: TimeModel | None  # None if nothing was timed
    notices: tuple[Notice, ...]  # on the text and the settings: for the user before those of `describe_training`
    choices: tuple[Notice, ...]  # what was chosen, and the loss to expect: for the user after those of `describe_training`

    @property
    def config(self) -> Config:
        return self.settings.values

    @property
    def worth_compiling(self) -> bool:
        """Whether a GPU should compile the model for this run."""
        train, parameters = self.config.train, self.model.parameter_count()
        seconds = 6 * parameters * train.max_steps * self.config.chars_per_step / OPERATIONS
        seconds = seconds if self.time_model is None else self.time_model.step * train.max_steps
        return is_worth_compiling(seconds if self.seconds is None else self.seconds)

    @random_states_kept()
    def describe(self) -> str:
        """What --dry-run prints: every choice, how long the training takes, and what to expect. Times a few steps."""
        config, corpus, runtime = self.config, self.corpus, choose_runtime(self.config)
        with runtime.applied():
            teachers = models_of(self.teachers)
            trainer = Trainer(self.model, corpus.train, config, runtime=runtime, marks=corpus.marks, teachers=teachers)
            training = describe_training(trainer, corpus, seconds=self.seconds, time_model=self.time_model, steps=self.steps)
        if runtime.device.type == "cuda" and config.runtime.compile == "auto" and self.worth_compiling:
            what = f"about {clock(COMPILING_SECONDS)} of this time; steps then take about {COMPILED_SAVES:.0%} less"
            training.append(Notice("compiling", what, "detail"))
        said = [*self.notices, *training, *self.choices]
        return "\n".join(notice_line(label, str(text)) for label, text, kind in said if kind != "summary")


@random_states_kept()
def make_plan(options: TrainOptions, *, root: Path, processes: int = 1) -> Plan:
    """Decide everything about a new run before its first step. Raises UserError.

    `root` is the folder of the project, or where an installed library keeps runs; `processes` are how many train together.
    The order is that of the mistakes a user can make: settings and names first, then the text, then what does not fit it. Only
    a text that is not there comes before a run that is.
    """
    checkpoints, notices = root / "checkpoints", list[Notice]()

    # What the user names: settings, and other runs.
    start, vocabulary = (_checkpoint_of(name, checkpoints, notices) for name in (options.init_from, options.vocab_from))
    start = start if options.start is None else load_start(options.start)
    loaded, file = _load_settings(options, start, presets=presets_folder())
    config = _with_name_of_start(loaded.values, options, start)
    teachers, warnings = find_teachers(options.teachers, checkpoints)
    settings = dataclasses.replace(loaded, values=config)
    if options.minutes is not None:  # a preset is a default then, and minutes decide the length
        settings = settings.without(Source.PRESET).leaving_open("train.max_steps")
    _check_teachers_count(config, options)
    check_found(options.texts)
    folder = _folder_of(options, checkpoints)

    # The text, and what follows from its length.
    is_open = chooses(settings, minutes=options.minutes)
    context = SHORTEST_CONTEXT if is_open and not settings.is_given("model.block_size") else config.model.block_size
    corpus = _load_corpus(options, config, start, vocabulary, root=root, context=context)
    text = text_of(corpus)
    check_teachers(teachers, corpus.tokenizer, context=context)
    if not is_open or settings.is_given("train.batch_size"):
        check_batch(config.train.batch_size, processes)
    settings = _with_length(settings, options, corpus)
    notices += [*warnings, *_about_text(corpus, options), *_about_settings(file, options, is_open=is_open)]
    notices += warnings_about(teachers, corpus.fingerprint)

    # The model and its training: chosen for the text and the time, where the user leaves it open.
    choice = _choose(settings, corpus, text, options, start, root=root, processes=processes, teachers=teachers)
    settings = dataclasses.replace(choice.settings, values=_for_any_folder_and_length(choice, corpus))
    config = settings.values
    check_size(config.model, corpus.tokenizer.vocab_size)
    check_memory(config, vocab_size=corpus.tokenizer.vocab_size, processes=processes)
    check_teachers(teachers, corpus.tokenizer, context=config.model.block_size)
    model = _first_model(config, corpus, start)

    # What to say of it.
    choices = [*choice.notices, *_about_choices(settings, loaded, options)]
    choices += [*_about_teachers(settings, teachers), *_about_items(corpus, config), *_about_short_splits(corpus, config)]
    choices += _about_shape(settings) if start is None and is_open else []
    notices, choices = _notes_in_one_line(notices, choices)
    return Plan(
        settings=settings,
        corpus=corpus,
        model=model,
        teachers=teachers,
        folder=folder,
        seconds=choice.seconds,
        steps=config.train.max_steps if is_open and choice.seconds is not None else None,
        time_model=choice.time_model,
        notices=tuple(notices),
        choices=tuple(choices),
    )


def _notes_in_one_line(notices: list[Notice], choices: list[Notice]) -> tuple[list[Notice], list[Notice]]:
    """The same, with all notes in the last one of `choices`, so that few lines come before the first step."""
    notes = [said for said in (*notices, *choices) if said.label == "note" and said.kind == "line"]
    notices, choices = ([said for said in some if said not in notes] for some in (notices, choices))
    return notices, [*choices, *([Notice("note", join("; ", (note.text for note in notes)))] if notes else [])]


def makes_run(options: TrainOptions) -> bool:
    """Whether these options make a run on disk."""
    return not (options.dry_run or options.find_lr)


def ignored(options: TrainOptions) -> list[Notice]:
    """A notice if the user has given a number of steps that --minutes replaces."""
    if options.minutes is None or not options.gives("train.max_steps"):
        return []
    what = " decides the number of steps; the train.max_steps given is not used"
    return [Notice("note", Message(Option("minutes"), what))]


def _checkpoint_of(name: str | None, checkpoints: Path, notices: list[Notice]) -> Checkpoint | None:
    """The checkpoint of --init-from or --vocab-from; its warnings are added to `notices`."""
    if name is None:
        return None
    checkpoint, warnings = find_checkpoint(name, checkpoints)
    notices += [Notice("warning", warning) for warning in warnings]
    return checkpoint


def _load_settings(options: TrainOptions, start: Checkpoint | None, *, presets: Path) -> tuple[Settings, Path | None]:
    """The settings before what follows from the text and the time, and their file. A start gives the shape of the model."""
    length: Tree = {} if options.epochs is None else {"train": {"max_steps": 1}}  # until the text is read
    typed = {**options.settings, "train": {**options.settings.get("train", {}), **length.get("train", {})}}
    return load_settings(
        options.config,
        {section: values for section, values in typed.items() if values},
        presets=presets,
        minutes=options.minutes,
        model=None if start is None else start.state.config.model,
        model_from=options.start or options.init_from or "",
    )


def _with_name_of_start(config: Config, options: TrainOptions, start: Checkpoint | None) -> Config:
    """`config` with what the weights begin with: the name of a start, `run NAME`, or nothing."""
    name = options.start or ("" if start is None else f"{RUN}{name_of_start(start)}")
    if start is None and config.train.start:
        run, is_run = config.train.start.removeprefix(RUN), config.train.start.startswith(RUN)
        raise UserError(
            f"{options.config}: has train.start: {config.train.start}, and a file of settings holds no weights; add ",
            Option("init_from" if is_run else "start", run),
            f"{' or the path of that run' * is_run}, or remove train.start from the file",
        )
    return dataclasses.replace(config, train=dataclasses.replace(config.train, start=name))


def _check_teachers_count(config: Config, options: TrainOptions) -> None:
    """Raise UserError for what cannot be together with several models in a run."""
    given = {"start": options.start, "init_from": options.init_from, "teacher": options.teachers}
    if config.train.teachers and (names := [name for name, value in given.items() if value]):
        what = f"train.teachers: {config.train.teachers} given with "
        raise UserError(what, Option(names[0]), ", which is for a run of one model; leave one out")


def _folder_of(options: TrainOptions, checkpoints: Path) -> Path:
    """The folder of the run. Raises UserError if there is one already, unless none is made."""
    name = run_name(options.texts) if options.run is None else options.run
    folder = new_folder(name, checkpoints, overwrite=options.overwrite) if makes_run(options) else folder_of(name, checkpoints)
    return folder.absolute()


def _load_corpus(
    options: TrainOptions, config: Config, start: Checkpoint | None, vocabulary: Checkpoint | None, *, root: Path, context: int
) -> Corpus:
    """The text, with the vocabulary of another run, or with one of its own that has the characters of a start too."""
    known = "" if start is None else start.state.tokenizer.characters or ""
    if known and vocabulary is None and 0 < config.data.max_vocab <= len(known):
        what = f"a run keeps all {len(known)} characters of the one that it begins with"
        raise UserError(f"data.max_vocab: {config.data.max_vocab} given, but {what}; use more, or leave it out")
    return load_corpus(
        options.texts,
        config.data,
        root=root,
        block_size=context,
        tokenizer=None if vocabulary is None else vocabulary.state.tokenizer,
        known=known,
        asked=options.settings.get("data", {}),
    )


def _with_length(settings: Settings, options: TrainOptions, corpus: Corpus) -> Settings:
    """`settings` with the length that --epochs gives."""
    if options.epochs is None:
        return settings
    steps = steps_in(options.epochs, settings.values, characters=len(corpus.train))
    return settings.give({"train": {"max_steps": steps}}, source=Source.USER, where="--epochs")


def _about_text(corpus: Corpus, options: TrainOptions) -> list[Notice]:
    brief = Notice("text", corpus.describe_briefly(), "summary")
    return [brief, *corpus.describe(), *([] if options.find_lr else examine(corpus))]


def _about_settings(file: Path | None, options: TrainOptions, *, is_open: bool) -> list[Notice]:
    """Where the settings come from, and which are not used."""
    origin = "the built-in defaults" if file is None else shown(file)
    origin = "chosen for the text and the time" if is_open and options.config is None else origin
    typed = [f"{section}.{key} {value}" for section, values in options.settings.items() for key, value in values.items()]
    return [Notice("settings", ", ".join([origin, *typed]), "detail"), *ignored(options)]


def _about_choices(settings: Settings, loaded: Settings, options: TrainOptions) -> list[Notice]:
    """Each setting that was chosen and why; with --minutes, one line on what of a preset was replaced."""
    tree, chosen = to_dict(settings.values), dict[str, list[str]]()
    for key, reason in settings.reasons.items():
        section, _, name = key.partition(".")
        if settings.sources.get(key) is Source.CHOSEN:
            chosen.setdefault(reason, []).append(f"{key} {tree[section][name]}")
    notices = [Notice("chosen", f"{', '.join(values)} ({reason})", "detail") for reason, values in chosen.items()]
    preset = {key for key, source in loaded.sources.items() if source is Source.PRESET}
    replaced = [change.key for change in difference(loaded.values, settings.values) if change.key in preset]
    if options.minutes is not None and replaced:
        what = f"chosen for the time in place of what {options.config} sets: {', '.join(replaced)}"
        notices.append(Notice("note", what))
    return notices


def _choose(
    settings: Settings,
    corpus: Corpus,
    text: Text,
    options: TrainOptions,
    start: Checkpoint | None,
    *,
    root: Path,
    processes: int,
    teachers: tuple[Teacher, ...],
) -> Choice:
    """The settings for this text and this much time, and what to say of them.

    One of three: gentle ones from the weights of a `start`; those with the lowest expected loss of all models that the
    machine can train in the time; or, if the user has decided everything else, only the regularization.
    """
    minutes = options.minutes
    limit = None if minutes is None else 60 * minutes
    if start is not None:
        from chargpt.planning.adaptation import adapt, describe_start, has_seen_validation, measure_start

        measured = measure_start(start, corpus)
        if options.epochs is not None:  # it decides how often the text is seen, and that decides the steps
            settings = settings.leaving_open("train.max_steps")
        epochs = options.epochs
        settings = adapt(settings, corpus, measured, minutes=minutes, epochs=epochs, processes=processes, teachers=teachers)
        notices = [describe_start(measured, corpus, ngram_loss=text.ngram_loss)]
        if has_seen_validation(start.state, corpus, root=root):
            why = "it was trained on text that holds this validation split, so the losses will look too good"
            what_to_do = "start from a run on other text, or give data.val_text"
            notices.append(Notice("warning", f"{shown(start.path)}: {why}; {what_to_do}"))
        return Choice(settings, limit, notices)
    if not chooses(settings, minutes=minutes):
        choice = regularized(settings, text, seconds=limit)
        return choice._replace(settings=taught(choice.settings)) if teachers else choice
    choice = choose(
        settings,
        corpus,
        text,
        seconds=limit or DEFAULT_SECONDS,
        optimizer=WITHOUT_MINUTES if minutes is None else WITH_MINUTES,
        processes=processes,
        teachers=teachers,
    )
    if options.find_lr:  # they are about a training of this length
        choice = choice._replace(notices=[])
    if not corpus.is_validated:
        choice = choice._replace(notices=[said for said in choice.notices if said.label != "expected"])
    return choice._replace(settings=taught(choice.settings)) if teachers else choice


def _for_any_folder_and_length(choice: Choice, corpus: Corpus) -> Config:
    """The chosen settings, with which a run finds its text from any folder, and no longer than `train.max_epochs` allows."""
    config = choice.settings.values
    config = dataclasses.replace(config, data=absolute_paths(config.data))
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


def _about_items(corpus: Corpus, config: Config) -> list[Notice]:
    """How many items do not fit into the context, and what follows from that. Raises UserError if a label does not fit."""
    if corpus.items is None or corpus.marks is None:
        return []
    label = corpus.items.longest_label
    if label + 2 > config.model.block_size:  # with its tab, and the end of the item before it
        what = f"the longest label has {label:,} characters, and does not fit the context of {config.model.block_size}"
        enough = Option("model.block_size", 2 * label)
        raise UserError(f"data.label: {what}; set ", enough, " or more, or shorten the labels")
    lengths, context = corpus.marks.lengths(corpus.train), config.model.block_size
    longer = int((lengths > context).sum())
    if not longer:
        return []
    what = f"{longer:,} of {len(lengths):,} items are longer than the context of {context:,}"
    what = f"{what}, so the model learns their ends without their beginnings; "
    return [Notice("note", Message(what, Option("model.block_size", int(lengths.max())), " would hold the longest"))]


def _about_teachers(settings: Settings, teachers: tuple[Teacher, ...]) -> list[Notice]:
    """From which models the last one learns, if the user has asked for it, and the settings given that do not hold for it."""
    if teachers:
        return [Notice("teachers", ", ".join(teacher.name for teacher in teachers), "detail")]
    count, config = settings.values.train.teachers, settings.values
    if not count:
        return []
    changed = difference(config, student_settings(settings).values)
    notes = []
    if first := [str(change) for change in changed if settings.is_given(change.key)]:
        one = Message(
            f"the last model changes {', '.join(first)}; for one model with your values, add ",
            Option("train.teachers", 0),
        )
        notes.append(Notice("note", one))
    if not settings.is_given("train.teachers"):  # then the choice has told it
        return notes
    condition = "if the first one memorises the text, " * bool(config.train.student_gap)
    what = f"{condition}the last one learns from the {'one' if count == 1 else count} before it as well as from the text"
    return [Notice(models_in_all(count), what), *notes]


def _about_short_splits(corpus: Corpus, config: Config) -> list[Notice]:
    """A note if a split is shorter than a window of the model."""
    shortest, context = min(len(corpus.train), len(corpus.val)), config.model.block_size
    if not corpus.is_validated:
        return [
            Notice("note", "all of the text is for training: no validation loss tells when the model begins to memorise it")
        ]
    if shortest > context or corpus.items is not None:
        return []
    what = f"{len(corpus.train):,} characters for training and {len(corpus.val):,} for validation are less than the context of"
    return [Notice("note", f"{what} {context}: the loss is a rough estimate")]


def _about_shape(settings: Settings) -> list[Notice]:
    """What else of the model was chosen, if a part of it is given: that depends on the speed of the moment."""
    given = sorted(key for key in settings.sources if key.startswith("model.") and settings.is_given(key))
    shape = ("n_layer", "n_embd", "block_size")  # n_head follows from n_embd
    open_ = [name for name in shape if not settings.is_given(f"model.{name}")]
    if not given or not open_:
        return []
    also = [Option(f"model.{name}", getattr(settings.values.model, name)) for name in open_]
    fix = " chosen for the speed of this machine, and elsewhere perhaps not; to compare runs, set all of them"
    return [Notice("note", Message(f"{', '.join(given)} set by you, and ", Command("", *also), fix))]
