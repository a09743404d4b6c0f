"""What will be trained, decided before the first step: `make_plan` makes all the decisions, and an `Opening` holds them.

Nothing is printed or written, but for texts in the cache. What the user should know of a decision is a `Notice`.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from chargpt.config import Config
from chargpt.errors import Message, Option, UserError, join
from chargpt.formatting import clock, plural, shown
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning.ahead import check_places
from chargpt.planning.budget import Budget, TimeModel, longest_run, steps_in
from chargpt.planning.chosen_for_time import (
    DECIDES_LOSS,
    GIVEN,
    TEACHER_TIME,
    Choice,
    Job,
    Verdict,
    choose,
    models_given,
    regularized,
)
from chargpt.planning.cli import TrainOptions
from chargpt.planning.initial_settings import Asked, load_settings
from chargpt.planning.memory import check_memory, memory_needed
from chargpt.planning.teachers import check_teachers, for_last_model, for_student
from chargpt.project import NO_START, presets_folder
from chargpt.runs.blank_model import LOADED_SOURCE
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import NO_TEXT, SavedState, check_size, parameter_count, what_changed
from chargpt.runs.models import check_model, loss_of, restore_model
from chargpt.runs.run import Run
from chargpt.runs.stage import Length, Models, Progress, Stage, Start
from chargpt.screen import notice_line, wrapped
from chargpt.settings import Settings, Source, difference, flat
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus, absolute_paths, earlier_texts, load_corpus
from chargpt.text.examination import examine
from chargpt.text.facts import is_list_of_words
from chargpt.text.sources import can_be_read_again
from chargpt.training.group import Group, check_batch
from chargpt.training.initialisation import initial_model
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES, WITHOUT_MINUTES
from chargpt.training.runtime import Runtime, choose_runtime, is_worth_compiling

LISTED = 200_000  # characters from which it is told whether a text is a list of words


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the first of several processes has decided about a model, and tells the others: no text, no weights of its own."""

    state: SavedState  # its settings, vocabulary, progress and stage, as they are now
    teachers: Sequence[GPT] = ()
    saved: SavedState | None = None  # what the newest checkpoint holds; None for a new model
    budget: Budget  # its time; it knows the speed, unless no step is left


@dataclass(frozen=True, kw_only=True)
class Opening(Decision):
    """One model of a run, before its first step in this process: made by a plan, by a saved run, or by the model before."""

    corpus: Corpus
    model: GPT  # its weights, on the CPU; those of `checkpoint` replace them
    named: tuple[Checkpoint, ...] = ()  # the teachers of a new run, which are copied into its folder
    checkpoint: Checkpoint | None = None  # that of `saved`; None in a process that is not the first one
    folder: Path | None = None  # of a new run
    run: Run | None = None  # where the first process writes
    runtime: Runtime
    notices: tuple[Notice, ...] = ()  # on text and settings: for the user before those of `about_training`
    choices: tuple[Notice, ...] = ()  # what was chosen, and the loss to expect: for the user after those

    @property
    def decision(self) -> Decision:
        return Decision(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Decision)})

    @property
    def config(self) -> Config:
        return self.state.config

    def describe(self) -> str:
        """What --dry-run prints: every choice, how long the training takes, and what to expect."""
        said = [*self.notices, *self.about_training(), *self.choices]
        return "\n".join(wrapped(notice_line(kind, str(text))) for kind, text, _ in said)

    def about_training(self) -> list[Notice]:
        """The model, the machine and the length of the training, how long it takes and its memory. If the epochs end it before
        its time limit, they are told in place of it."""
        config, runtime, vocabulary = self.config, self.runtime, self.corpus.tokenizer.vocab_size
        model, optim, parameters = config.model, config.optim, parameter_count(config.model, vocabulary)
        layers = plural(model.n_layer, "layer")
        shape = f"{layers}, width {model.n_embd}, context {model.block_size}, {model.positions} positions"
        of_one = self.state.stage.name and f"{self.state.stage.name}: "  # the time is that of this model
        how = f"learning rate {optim.learning_rate:g} (optim.schedule={optim.schedule}), dropout {model.dropout:g}"
        notices = [
            Notice(Kind.MODEL, f"{parameters:,} parameters: {shape}; optimizer {OPTIMIZERS[optim.name].label}"),
            Notice(Kind.STEPS, f"each step trains on {config.chars_per_step:,} characters; {how}", "detail"),
        ]
        if (known := self.budget.known) is not None:
            kind, precision = runtime.device.type, runtime.precision
            memory = memory_needed(config, vocab_size=vocabulary, device=kind, precision=precision, processes=runtime.processes)
            size = f"{max(memory, 1e8) / 1e9:.1f} GB of memory"
            notices += [
                Notice(Kind.ESTIMATE, f"about {1000 * known.step:.1f} ms a step and {size}", "detail"),
                Notice(Kind.TRAINING, f"{of_one}{self._length_by(known)} on {runtime.describe()}"),
            ]
        return [*notices, *[Notice(Kind.SLOWER, runtime.slower)] * bool(runtime.slower)]

    def _length_by(self, known: TimeModel) -> str:
        """How long the training takes, by these times: its limit, unless the epochs end it sooner."""
        stage, step, characters = self.state.stage, self.state.progress.step, len(self.corpus.train)
        left, takes = stage.length.steps - step, 0.0
        if (limit := self.budget.given) is not None:
            seconds = limit - known.reserve(limit)
            fits = known.steps_in(seconds, interval=self.config.train.eval_interval)
            if self.folder is not None and self.state.settings.sources.get("train.max_steps") is Source.CHOSEN:
                fits = stage.length.steps  # chosen for this time, like all that is said of the run
            longest = longest_run(self.config, epochs=stage.models.epochs, characters=characters) - step
            left = max(1, min(fits, longest))
            takes = limit * (fits < longest - 1)  # the last one may be a part of a step
        count, epochs = plural(left, "step"), left * self.config.chars_per_step / characters
        if takes:
            return f"for {clock(takes)} (about {count})"
        return f"for about {clock(known.duration(left, interval=stage.length.interval))} ({count}, {epochs:.1f} epochs)"


class Named(NamedTuple):
    """The other runs that the user names, and warnings about them."""

    start: Checkpoint | None
    vocabulary: Checkpoint | None
    teachers: tuple[Checkpoint, ...]
    notices: list[Notice]
    earlier: Sequence[EncodedText] = ()  # the texts that a run of the user has read which is the start; none if one is lost


def make_plan(options: TrainOptions, *, root: Path, group: Group = Group(), started: float | None = None) -> Opening:
    """Decide everything about a new run before its first step. The time of the run began when it `started`, on
    time.perf_counter; None: now. Raises UserError.

    What was asked becomes settings, in layers: a preset, a file and the command line; what the text needs; what the time
    allows; what the device allows. The order is that of the mistakes a user can make: settings and names first, then the text,
    then what does not fit it. A missing text comes before a run that exists.
    """
    named = _find_named(options, root=root)
    asked = _ask(options, named.start)
    folder = check_places(options, root=root)
    with options.spelling():
        corpus = _load_corpus(asked, named, root=root)
    if not asked.is_open or asked.settings.is_given("train.batch_size"):
        check_batch(asked.settings.values.train.batch_size, group.size)
    about_teachers = check_teachers(named.teachers, corpus, context=asked.context)
    job = Job(corpus, asked.seconds, group.size, [*map(restore_model, named.teachers)])
    with choose_runtime(asked.settings.values, group=group).applied():  # for losses before the training, and short trials
        choice = _choose(asked, job, named)
        tried = _try_starts(asked, job, named, expected=choice.loss)
        if tried.start is not None:
            asked, job, named, choice = _begin(tried.start, asked, job, named, root=root, loss=tried.loss)
    opening = _open(choice, job, named, asked, folder=folder, group=group, started=started)
    notices = [*named.notices, *job.corpus.describe(), *about_teachers, *([] if options.find_lr else examine(job.corpus))]
    choices = [*tried.notices, *choice.notices, *_about_settings(choice.settings, asked)]
    choices += [*_about_teachers(choice.settings, choice.models, named.teachers), *_about_splits(job.corpus, opening.config)]
    choices += _about_processes(opening.config, group)
    if asked.file is not None and asked.file.name == "config.yaml":
        from chargpt.runs.repeat import lacking

        choices += [Notice(Kind.NOTE, what) for what in lacking(asked.file, opening.state)]
    return dataclasses.replace(opening, notices=tuple(notices), choices=tuple(choices))


def _begin(
    start: Checkpoint, asked: Asked, job: Job, named: Named, *, root: Path, loss: float | None
) -> tuple[Asked, Job, Named, Choice]:
    """The same with a start that a trial has chosen, which has this loss, and the settings for it. The text, which was read for
    the trial, gets the characters of the start."""
    asked, named = _ask(dataclasses.replace(asked.options, start=start.run), start), named._replace(start=start)
    corpus = job.corpus.knowing(start.state.tokenizer.characters or "")
    job = dataclasses.replace(job, corpus=_load_corpus(asked, named, root=root) if corpus is None else corpus)
    return asked, job, named, _choose(asked, job, named, loss=loss)


def _open(
    choice: Choice, job: Job, named: Named, asked: Asked, *, folder: Path, group: Group, started: float | None
) -> Opening:
    """The opening of a chosen model, as far as the device allows it. Raises UserError."""
    config, corpus, start, options = choice.config, job.corpus, named.start, asked.options
    check_size(config.model, corpus.tokenizer.vocab_size)
    check_model(config.model, corpus.tokenizer.vocab_size)
    check_memory(config, vocab_size=corpus.tokenizer.vocab_size, processes=group.size, on_machine=group.local_size)
    known, later = choice.time_model or job.speeds.time_model(config), choice.models.seconds_after(1)
    budget = Budget(asked.limit, started=started, later=later, known=known)
    begun = None if start is None else Start(name=options.start or start.run, is_run=options.start is None)
    longest, steps = longest_run(config, epochs=choice.models.epochs, characters=len(corpus.train)), config.train.max_steps
    steps = min(steps, longest) if budget.limit is None else budget.least(steps)  # with a limit, the first measurement decides
    stage = Stage(models=choice.models, start=begun, length=Length.of(config, steps=steps))
    is_long = is_worth_compiling(seconds_of_steps(stage, budget, longest=longest))
    environment: dict[str, str | int | bool] = {"compile": is_long and not options.find_lr}
    return Opening(
        state=SavedState(
            settings=choice.settings,
            progress=Progress(),
            stage=stage,
            environment=environment,
            texts=corpus.texts,
            fingerprint=corpus.fingerprint,
            growth=corpus.growth,
            tokenizer=corpus.tokenizer,
            model_source=LOADED_SOURCE,
        ),
        corpus=corpus,
        model=_first_model(config, corpus, start),
        teachers=job.teachers,
        named=named.teachers,
        folder=folder.absolute(),
        runtime=choose_runtime(config, environment, group=group),
        budget=budget,
    )


def _find_named(options: TrainOptions, *, root: Path) -> Named:
    """The runs that the options name. Raises UserError."""
    notices, earlier = list[Notice](), list[EncodedText]()

    def find(name: str | None, start: str | None = None) -> Checkpoint | None:
        if name is None and start is None:
            return None
        from chargpt.runs.load import find_checkpoint  # most runs name no other one

        checkpoint, warnings = find_checkpoint(name, root / "checkpoints", start=start)
        warnings += filter(None, [what_changed(checkpoint.state, lambda: loss_of(restore_model(checkpoint)))])
        notices.extend(Notice(Kind.WARNING, warning) for warning in warnings)
        return checkpoint

    start = find(options.init_from, None if options.start == NO_START else options.start)
    vocabulary, teachers = find(options.vocab_from), tuple(filter(None, map(find, options.teacher)))
    if start is not None and options.init_from is not None:
        before = [] if start.state.growth is None else start.state.growth.earlier
        earlier = earlier_texts([start.state.fingerprint, *before], start.state.config.data, root=root)
    return Named(start, vocabulary, teachers, notices, earlier)


def _ask(options: TrainOptions, start: Checkpoint | None) -> Asked:
    """The settings before what follows from the text and the time. A start gives the shape of the model. Raises UserError."""
    model, origin = None if start is None else start.state.config.model, options.start or options.init_from or ""
    asked = load_settings(options, presets=presets_folder(), model=model, model_from=origin)
    teachers = asked.loaded.values.train.teachers
    if teachers and (start is not None or options.teacher):
        what = f"train.teachers: {teachers} given, but it cannot be used with "
        names = join(", ", map(Option, ("start", "init_from", "teacher")))
        raise UserError(what, names, "; leave out train.teachers")
    return asked


def _load_corpus(asked: Asked, named: Named, *, root: Path) -> Corpus:
    """The text, with the vocabulary of another run, or with one of its own that has the characters of a start too."""
    data, vocabulary = asked.settings.values.data, named.vocabulary
    known = "" if named.start is None else named.start.state.tokenizer.characters or ""
    if known and vocabulary is None and 0 < data.max_vocab <= len(known):
        what = f"the model that you start from has {len(known)} characters, and one for all others; use {len(known) + 1}"
        raise UserError(f"data.max_vocab: {data.max_vocab} given, but {what} or more, or leave it out")
    return load_corpus(
        asked.options.texts,
        data,
        root=root,
        block_size=asked.context,
        tokenizer=None if vocabulary is None else vocabulary.state.tokenizer,
        known=known,
        earlier=named.earlier,
        asked=asked.options.settings.get("data", {}),
    )


def _choose(asked: Asked, job: Job, named: Named, *, loss: float | None = None) -> Choice:
    """The settings for this text and this much time, and what to say of them. A run finds its text from any folder then. A
    trial may know the `loss` of the start on the text. They are gentle ones from the weights of the start; or those with the
    lowest expected loss of all models that the machine can train in the time; or, if the user has decided everything else,
    only the regularization is chosen."""
    settings, start = asked.settings, named.start
    if (epochs := asked.options.epochs) is not None:
        steps = steps_in(epochs, settings.values, characters=job.text.characters)
        settings = settings.give({"train": {"max_steps": steps}}, source=Source.USER, where="--epochs")
    if start is not None:
        from chargpt.planning.adaptation import adapt, measure_start

        has_read = asked.options.init_from is not None and start.state.fingerprint != NO_TEXT
        lost = has_read and not settings.values.data.val_text and not named.earlier
        distance, notices = measure_start(start, job.corpus, ngram_loss=job.text.ngram_loss, lost=lost, loss=loss)
        choice = Choice(adapt(settings, job, asked, distance=distance), notices)
    elif asked.is_open:
        choice = choose(settings, job, optimizer=WITHOUT_MINUTES if asked.options.minutes is None else WITH_MINUTES)
    else:
        settings, notices = regularized(settings, job.text)
        choice = Choice(settings, notices, models=models_given(settings, seconds=asked.limit))
    settings = for_student(choice.settings) if job.teachers and start is None else choice.settings
    return choice._replace(settings=dataclasses.replace(settings, values=absolute_paths(settings.values)))


def _try_starts(asked: Asked, job: Job, named: Named, *, expected: float | None) -> Verdict:
    """What a short trial of the starts shows; nothing, if the user has decided how the model begins. Without one, the law
    expects this loss of the run."""
    options, corpus = asked.options, job.corpus
    others = (options.start, options.init_from, options.vocab_from, options.config, options.find_lr, named.teachers)
    is_fixed = any(others) or asked.settings.is_any_given(*DECIDES_LOSS) or asked.settings.values.data.max_vocab
    texts = [*options.texts, *filter(None, [asked.settings.values.data.val_text])]
    is_text = corpus.is_validated and corpus.items is None and all(map(can_be_read_again, texts))
    # Of names, a start knows those of its language alone, and of a list in an order, the law knows too little.
    if expected is None or is_fixed or not is_text or is_list_of_words(corpus.tokenizer.decode(corpus.train[:LISTED])):
        return Verdict()
    from chargpt.planning.trial import try_starts  # most runs have decided how they begin

    return try_starts(asked, job, expected=expected)


def seconds_of_steps(stage: Stage, budget: Budget, *, longest: int) -> float:
    """The seconds that all models of a run spend in steps, about, each in `longest` steps at most, at the speed of the first
    one, which the budget knows."""
    assert budget.known is not None
    seconds = budget.known.step * (stage.length.steps if budget.share is None else longest)
    times = stage.models.count + TEACHER_TIME * (stage.models.count - 1)
    return times * min(seconds, math.inf if budget.share is None else budget.share)


def _first_model(config: Config, corpus: Corpus, start: Checkpoint | None) -> GPT:
    """The model that a run begins with: an initial one, or one with the weights of `start`."""
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    if start is not None:
        from chargpt.runs.beginning import start_from  # most runs begin with nothing

        start_from(start, model, corpus.tokenizer)
    return model


def _about_settings(settings: Settings, asked: Asked) -> list[Notice]:
    """Where settings come from, what was chosen and why; with --minutes, one line on what of a preset was replaced."""
    options, loaded = asked.options, asked.loaded
    origin = shown(asked.file or ("chosen for the text and the time" if asked.is_open else "the defaults"))
    typed = [f"{section}.{key} {value}" for section, values in options.settings.items() for key, value in values.items()]
    notices = [Notice(Kind.SETTINGS, ", ".join([origin, *typed]), "detail")]
    values, chosen = flat(settings.values), dict[str, list[str]]()
    for key, reason in settings.reasons.items():
        if settings.sources.get(key) is Source.CHOSEN:
            chosen.setdefault(reason, []).append(f"{key} {values[key]}")
    notices += [Notice(Kind.CHOSEN, f"{', '.join(some)} ({reason})", "detail") for reason, some in chosen.items()]
    changed = [change.key for change in difference(loaded.values, settings.values)]
    replaced = [key for key in changed if loaded.sources.get(key) is Source.PRESET]
    by_minutes = {
        " decides how long the training is, so your train.max_steps is not used": options.gives("train.max_steps"),
        f" changes these settings of {options.config} to fit the time: {', '.join(replaced)}": replaced,
    }
    told = [what for what, is_so in by_minutes.items() if is_so and options.minutes is not None]
    return [*notices, *(Notice(Kind.NOTE, Message(Option("minutes"), what)) for what in told)]


def _about_teachers(settings: Settings, models: Models, teachers: tuple[Checkpoint, ...]) -> list[Notice]:
    """From which models the last one learns, if the user has asked for it, and the settings given that do not hold for it."""
    if teachers:
        return [Notice(Kind.TEACHERS, ", ".join(shown(teacher.path) for teacher in teachers), "detail")]
    if models.count == 1:
        return []
    notices = []
    if models.epochs is None and models.why == GIVEN:  # otherwise the choice has told it
        what = "one after the other; the last one learns from the text and from what those before it predict"
        notices.append(Notice(Kind.MODELS, f"{models.count}, {what}"))
    changed = difference(settings.values, for_last_model(settings).values)
    if given := [str(change) for change in changed if settings.is_given(change.key)]:
        what = f"in the last model, the program changes {', '.join(given)}; for one model with your values, add "
        notices.append(Notice(Kind.NOTE, Message(what, Option("train.teachers", 0))))
    return notices


def _about_processes(config: Config, group: Group) -> list[Notice]:
    """How several processes share the batch."""
    on, batch = plural(group.size // group.local_size, "machine"), config.train.batch_size
    what = f"{group.size} on {on}; each computes {batch // group.size:,} of the {batch:,} sequences of a step"
    return [Notice(Kind.PROCESSES, what)] * (group.size > 1)


def _about_splits(corpus: Corpus, config: Config) -> list[Notice]:
    """What of the text does not fit into the context of the model. Raises UserError for a label that does not."""
    context, all_learned = config.model.block_size, "all of the text is for training, so there is no validation loss"
    notices = [Notice(Kind.NOTE, all_learned)] * (not corpus.is_validated)
    if corpus.items is None or corpus.marks is None:
        shortest = min(len(corpus.train), len(corpus.val))
        if corpus.is_validated and shortest <= context:
            short = "validation" if shortest == len(corpus.val) else "training"
            what = f"the {short} text has only {shortest:,} characters, so the loss is a rough estimate"
            notices.append(Notice(Kind.NOTE, what))
        return notices
    label, lengths = corpus.items.longest_label, corpus.marks.lengths(corpus.train)
    if label + 2 > context:  # with its tab, and the end of the item before it
        what = f"data.label: the longest label has {label:,} characters, and does not fit the context of {context}; set "
        raise UserError(what, Option("model.block_size", 2 * label), " or more, or shorten the labels")
    if longer := int((lengths > context).sum()):
        what = f"{longer:,} of {len(lengths):,} items are longer than the context of {context:,} characters"
        would = Option("model.block_size", int(lengths.max()))
        said = Message(f"{what}, so the model learns only their ends; ", would, " would hold the longest")
        notices.append(Notice(Kind.NOTE, said))
    return notices
