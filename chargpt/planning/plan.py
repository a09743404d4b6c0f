"""What will be trained, decided before the first step: `make_plan` makes all the decisions, and a `Plan` holds them.

Nothing is printed or written, but for texts in the cache. What the user should know of a decision is a `Notice`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.config import Config, apply_overrides, to_dict
from chargpt.nanogpt_words import CHARACTERS, is_gpt2
from chargpt.planning.adaptation import adapt, describe_adaptation, start_loss
from chargpt.planning.advice import better_way
from chargpt.planning.candidates import DEFAULT_SECONDS, SHORTEST_CONTEXT, choose, chooses, regularized
from chargpt.planning.cli import TrainOptions
from chargpt.planning.clock import long_enough, longest_run, steps_in
from chargpt.planning.forecast import describe_text, describe_training, examine_text
from chargpt.planning.settings import Settings, load_settings
from chargpt.planning.teachers import (
    Teacher,
    check_teachers,
    find_teachers,
    models_of,
    student_folder,
    teacher_folder,
    warnings_about,
)
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import find_checkpoint
from chargpt.runs.model_shape import check_size
from chargpt.runs.run import TEACHER, folder_of, new_folder
from chargpt.runs.start_from import start_from
from chargpt.terminal import Notice, UserError, clock, notice_line, shown
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.text.report import mark_to_beat
from chargpt.text.selection import run_name
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer
from model import GPT

CHOICES = ("chosen", "considered")  # labels of lines for those who ask
MINUTES_WORTH_COMPILING = 3  # with less time, compiling for a GPU takes too large a part of it; a guess, not measured


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that has not begun."""

    config: Config  # complete; with --minutes, train.max_steps is only a length that is enough to measure the speed
    corpus: Corpus
    model: GPT  # the initial weights, on the CPU
    teachers: tuple[Teacher, ...]  # those that config.train.teachers names, in the same order
    folder: Path  # of the run; it holds no run, unless the plan is for no run: --dry-run, --find-lr
    seconds: float | None  # the time limit from the start of the program, without the student's time; None: no limit
    steps: int | None  # how many are expected to fit into `seconds`, if that is known
    expected: float  # validation loss, nats per character; infinite if it is not known
    notices: tuple[Notice, ...]  # on the text and the settings: for the user before those of `describe_training`
    advice: tuple[Notice, ...]  # what to expect and what may be better: for the user after those of `describe_training`

    @property
    def student_seconds(self) -> float:
        """The time of a student that learns from this run when it has ended; 0 if there will be none."""
        return 60 * self.config.train.pupil_minutes

    def describe(self) -> str:
        """What --dry-run prints: every choice, how long the training takes, and what to expect. Times a few steps."""
        config, corpus, runtime = self.config, self.corpus, choose_runtime(self.config)
        trainer = Trainer(self.model, corpus.train, config, runtime=runtime, teachers=models_of(self.teachers))
        training = describe_training(trainer, corpus, seconds=self.seconds, steps=self.steps)
        said = [*self.notices, *training, *self.advice]
        return "\n".join(notice_line(label, text) for label, text, kind in said if kind != "summary")


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


@random_states_kept()
def make_plan(options: TrainOptions, *, root: Path, processes: int = 1) -> Plan:
    """Decide everything about a new run before its first step. Raises UserError.

    `root` is the folder of the project, or where an installed library keeps runs; `processes` are how many train together.
    """
    notices: list[Notice] = []
    source, vocabulary = None, None
    if options.init_from is not None:
        source = _checkpoint_of(options.init_from, root, notices)
    if options.vocab_from is not None:
        vocabulary = _checkpoint_of(options.vocab_from, root, notices).state.tokenizer
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
    config, teachers, warnings = find_teachers(settings.config, root / "checkpoints")
    notices += warnings
    if config.train.pupil_minutes:
        _check_student(options, processes=processes)
    folder = _folder_of(options, root=root)
    is_open = chooses(settings.given, minutes=options.minutes)
    preset = "the built-in defaults" if settings.file is None else shown(settings.file)
    preset = "chosen for the text and the time" if is_open and options.config is None else preset
    block_size = SHORTEST_CONTEXT if is_open and "model.block_size" not in settings.given else config.model.block_size
    corpus = load_corpus(
        options.texts, config.data, root=root, block_size=block_size, tokenizer=vocabulary, given=options.given
    )
    check_teachers(teachers, corpus.tokenizer, context=block_size)
    notices.append(Notice("text", corpus.describe_briefly(), "summary"))
    if not options.find_lr:
        notices += [*describe_text(corpus), *examine_text(corpus)]
    notices.append(Notice("settings", ", ".join([preset, *options.settings]), "detail"))
    notices += ignored(options)
    if not config.train.chunks:
        batch = (
            [f"train.batch_size={processes}"] if is_open and "train.batch_size" not in settings.given else []
        )  # any that fits
        config = apply_overrides(config, [f"train.chunks={processes}", *batch])
    if options.epochs is not None:
        config = apply_overrides(config, [f"train.max_steps={steps_in(options.epochs, config, characters=len(corpus.train))}"])
    settings = dataclasses.replace(settings, config=config)
    advice = []
    if source is not None:
        _, about, loss = _first_model(config, corpus, source)
        advice.append(Notice("start", f"{about}; before training, its loss on this text is {loss:.2f}"))
        mark = mark_to_beat(corpus)
        known = f"validation loss {loss:.2f}, which the start has, or less; an n-gram model has {mark:.2f}"
        advice.append(Notice("expected", known))
    adapted = _adapted(settings, corpus, options, processes=processes, teachers=teachers)
    config, minutes = adapted.config, adapted.minutes
    advice += adapted.notices
    second = config.train.pupil_minutes
    if second and "train.pupil_minutes" in settings.given:
        condition = " if it memorises its text" if config.train.second_run_gap else ""
        what = f"a model of the same shape learns from it for {clock(60 * second)}{condition}"
        advice.append(Notice("two runs", f"after this run, {what}"))
    notices += warnings_about(teachers, corpus.fingerprint)
    check_teachers(teachers, corpus.tokenizer, context=config.model.block_size)
    if second and makes_run(options):  # when the run has ended, it gets the name of a teacher
        if student_folder(folder) is not None:
            given = options.run or folder.name
            raise UserError(f"--run: {given!r} given for two runs; use a name without {TEACHER}, which the first one gets")
        new_folder(str(teacher_folder(folder)), root / "checkpoints")
    model = _first_model(config, corpus, source)[0]
    if source is None:
        better = better_way(
            corpus,
            config,
            expected=adapted.expected,
            with_minutes=adapted.with_minutes,
            settings=options.settings,
            folder=folder,
            checkpoints=root / "checkpoints",
        )
        advice += [Notice("better", better)] * bool(better)
    return Plan(
        config=config,
        corpus=corpus,
        model=model,
        teachers=teachers,
        folder=folder,
        seconds=None if minutes is None else 60 * minutes,
        steps=config.train.max_steps if minutes is not None and is_open else None,
        expected=adapted.expected,
        notices=tuple(notices),
        advice=tuple(advice),
    )


def makes_run(options: TrainOptions) -> bool:
    """Whether these options make a run on disk."""
    return not (options.dry_run or options.find_lr)


def _folder_of(options: TrainOptions, *, root: Path) -> Path:
    """The folder of the run. Raises UserError if there is one already, unless none is made."""
    name = run_name(options.texts) if options.run is None else options.run
    return (new_folder if makes_run(options) else folder_of)(name, root / "checkpoints").absolute()


def ignored(options: TrainOptions) -> list[Notice]:
    """A notice if the user has given a number of steps that --minutes replaces."""
    if options.minutes is None or "train.max_steps" not in options.given:
        return []
    return [Notice("note", "--minutes decides the number of steps; the train.max_steps given is not used")]


def _first_model(config: Config, corpus: Corpus, source: Checkpoint | None) -> tuple[GPT, str, float]:
    """The model that a run begins with: an initial one, or one with the weights of `source`.

    Of the latter also a line, and the loss on the validation split in nats per character.
    """
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    if source is None:
        return model, "", float("inf")
    about = start_from(source, model, corpus.tokenizer)
    return model, about, start_loss(model, corpus)


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """Settings for a text and a time."""

    config: Config
    minutes: float | None  # that the run may take, if they are limited
    notices: list[Notice]
    expected: float = float("inf")  # loss, where it is known
    with_minutes: tuple[int, float] | None = None  # see Choice


def _adapted(
    settings: Settings, corpus: Corpus, options: TrainOptions, *, processes: int, teachers: tuple[Teacher, ...]
) -> Adapted:
    """The settings for this text and this much time."""
    config, minutes, given = settings.config, options.minutes, settings.given
    expected, with_minutes = float("inf"), None
    notices: list[Notice] = []
    if minutes is not None and minutes < MINUTES_WORTH_COMPILING and config.runtime.compile == "auto":
        config = apply_overrides(config, ["runtime.compile=off"])
    if options.init_from is not None:
        keep = options.given if settings.is_preset else given
        config = adapt(config, corpus, given=given, keep=keep, minutes=minutes, processes=processes, teachers=teachers)
        notices.append(Notice("chosen", describe_adaptation(config, characters=len(corpus.train)), "detail"))
    elif chooses(given, minutes=minutes):
        seconds = DEFAULT_SECONDS if minutes is None else 60 * minutes
        if minutes is not None:  # they decide the length
            given = given - {"train.max_steps"}
        muon = minutes is not None
        choice = choose(config, corpus, given=given, seconds=seconds, muon=muon, processes=processes, teachers=teachers)
        config, minutes = choice.config, None if minutes is None else choice.seconds / 60
        expected, with_minutes = choice.loss, choice.with_minutes
        for label, line in choice.notices:
            is_detail = label in CHOICES or (label == "note" and options.minutes is None)  # nobody asked for so much time
            notices.append(Notice(label, line, "detail" if is_detail else "line"))
    else:
        config, chosen = regularized(config, corpus, given=given)
        notices += [Notice("chosen", chosen, "detail")] * bool(chosen)
    check_size(config.model, corpus.tokenizer.vocab_size)
    config = dataclasses.replace(config, data=absolute_paths(config.data))  # so that a run finds its text from any folder
    if minutes is None:
        most = longest_run(config, characters=len(corpus.train))
        config = apply_overrides(config, [f"train.max_steps={min(most, config.train.max_steps)}"])
    else:
        config = long_enough(config, step=0, seconds=60 * minutes)
    return Adapted(config=config, minutes=minutes, notices=notices, expected=expected, with_minutes=with_minutes)


def _check_student(options: TrainOptions, *, processes: int) -> None:
    """Raise UserError for what cannot be together with a student that follows."""
    if processes > 1:
        raise UserError("train.pupil_minutes: two runs are made by one process; start without torchrun, or use 0")
    if options.init_from is not None:
        raise UserError("train.pupil_minutes: given with --init-from, from which only the first run would start; leave one out")


def _checkpoint_of(name: str, root: Path, notices: list[Notice]) -> Checkpoint:
    try:
        checkpoint, warnings = find_checkpoint(name, root / "checkpoints")
    except UserError:
        if not is_gpt2(name):
            raise
        what_to_do = "leave --init-from out, or give a run of yours, or one that python -m chargpt import has made of a model"
        raise UserError(f"--init-from: {name} is {CHARACTERS}; {what_to_do} of characters") from None
    notices += [Notice("warning", warning) for warning in warnings]
    return checkpoint
