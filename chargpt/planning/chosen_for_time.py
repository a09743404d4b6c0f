"""The settings that are chosen for the time of a run: for --minutes, or without it for three minutes.

speeds.py knows how fast this machine trains models of several sizes, the candidates. law.py has the sizes, and for each its
expected loss, batch, context and regularization; training/optimizers.py has the optimizers and their rates. budget.py corrects
the number of steps in the run. A run that begins with a start (--start, --init-from) has settings of its own: adaptation.py.
"""

import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from chargpt.config import Config
from chargpt.device import choose_device
from chargpt.errors import Message, NoMemory, Option, UserError
from chargpt.formatting import clock
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning import law
from chargpt.planning.budget import TimeModel
from chargpt.planning.cli import SHORTEST_CONTEXT
from chargpt.planning.law import Text
from chargpt.planning.memory import check_memory
from chargpt.planning.speeds import Speeds
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import check_size, parameter_count
from chargpt.runs.stage import Models
from chargpt.settings import Settings, difference
from chargpt.text.corpus import Corpus
from chargpt.text.facts import NGRAM_MODEL
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES

PATIENT_EPOCHS = 4  # epochs from which a run ends early if the model begins to memorise its text
SIZES_TIMED = 2  # sizes that are timed besides the smallest one, at most: the second one where its steps have other kernels
# Seconds, and share of the run's time, for timing steps of several sizes on a GPU whose speeds are not known, at most: each
# takes 0.4 seconds, since graphs are recorded.
TIMING_SECONDS_GPU, TIMING_SHARE_GPU = 10.0, 0.1
# Seconds of a run in which two models can be better than one; with less, two beginnings take too large a share of it, unless
# the text is so short that both see it as often as helps.
SHORTEST_FOR_TWO = 60.0
TEACHER_TIME = 1 / 3  # time for the predictions of a teacher, as a share of the time of a step without teachers
CLEARLY_WORSE = 0.045  # nats above the expected loss of the next smaller model from which larger ones are not considered
NEGLIGIBLE = 0.003  # nats for which no larger model is worth its time
NEGLIGIBLE_FOR_STUDENT = 0.011  # the same for a student of one teacher: the smaller one is as good or better
NEGLIGIBLE_SHARE = 0.02  # share of the loss that this is at most: of a log, whose loss may be 0.2, 0.011 nats are a lot
ITEMS_HELD, MULTIPLE = 0.995, 8  # share of the items that the context of a list holds whole, and what it is a multiple of
STRETCHED = 2  # the context is up to this many times longer if it then holds every item of a list
MOST_FOR_ITEMS = 1024  # characters of context that are chosen for the sake of items; longer ones were not measured
GIVEN = "train.teachers says so"  # why a run has several models
# What decides the loss of a training, by the beginnings of its settings: the law knows the loss if none of them was given.
DECIDES_LOSS = tuple("model. optim. train.batch_size train.accumulate train.max_epochs train.teachers".split())


class Candidate(NamedTuple):
    """A model that could be trained, and what to expect of it."""

    settings: Settings
    parameters: int
    speed: float  # characters a second
    time_model: TimeModel
    seen: int  # characters, in the whole run
    loss: float  # expected by the law, nats per character
    teachers: int = 0  # models of the run before this one, from which it learns
    most_in_step: int = 0  # characters, for the device; 0: those of the law

    @property
    def config(self) -> Config:
        return self.settings.values

    @property
    def compared(self) -> float:
        """The loss that decides between models."""
        return self.loss * (law.SEVERAL_SHARE if self.teachers > 1 else 1)

    def __str__(self) -> str:
        model = self.config.model
        return f"{self.compared:z.2f}: {self.parameters:,} parameters ({model.n_layer} layers of {model.n_embd})"


class Verdict(NamedTuple):
    """What to begin with, and what to say of it."""

    notices: Sequence[Notice] = ()
    start: Checkpoint | None = None  # None: nothing
    loss: float | None = None  # of this start on the text


@dataclasses.dataclass(frozen=True)
class Job:
    """A text, the time for it, and who trains."""

    corpus: Corpus
    seconds: float
    processes: int = 1
    teachers: Sequence[GPT] = ()
    timing: float = 0.0  # seconds for timing steps of several sizes, of a job that is planned for a CUDA GPU

    @property
    def is_gpu(self) -> bool:
        return self.timing > 0

    @functools.cached_property
    def text(self) -> Text:
        """What the law knows of it."""
        facts, vocabulary = self.corpus.facts, self.corpus.tokenizer.vocab_size
        is_harder = facts.other_kind == "harder"
        return Text(len(self.corpus.train), facts.entropy, facts.ngram_loss, vocabulary, facts.copying, is_harder)

    @functools.cached_property
    def speeds(self) -> Speeds:
        return Speeds(self.corpus, self.teachers, processes=self.processes)

    def seen(self, settings: Settings, speed: float) -> int:
        """The characters that one model sees in the time, at so many a second, or after which it ends."""
        in_time = speed * self.speeds.time_model(settings.values, speed=speed).in_steps(self.seconds)
        return min(int(in_time), self.useful(settings))

    def useful(self, settings: Settings) -> int:
        """The characters to see after which a model ends: those of the epochs that are given, or of more than enough."""
        epochs = settings.values.train.max_epochs if settings.is_given("train.max_epochs") else 0
        return int((epochs or law.MAX_EPOCHS) * self.text.characters)

    def seen_by_each(self, settings: Settings) -> int:
        """The characters that each of several models sees at most."""
        return min(law.ENOUGH_EPOCHS * self.text.characters, self.useful(settings))

    def check_memory(self, config: Config, *, at_once: bool = False) -> None:
        """As `check_memory` of memory.py, if all processes are on this machine."""
        size, processes = self.corpus.tokenizer.vocab_size, self.processes
        check_memory(config, vocab_size=size, processes=processes, on_machine=processes, at_once=at_once)

    @functools.cached_property
    def longest_context(self) -> int:
        """The longest context that text and teachers allow. The items of a list are read one by one, however few validate."""
        validates = [len(self.corpus.evaluation_ids) - 1] * (self.corpus.marks is None)
        return min([len(self.corpus.train) // 2, *validates, *(teacher.config.block_size for teacher in self.teachers)])

    @functools.cached_property
    def item_context(self) -> int:
        """The context that holds nearly every item of a list with its label, or all of them if it is then at most STRETCHED
        times as long; at most MOST_FOR_ITEMS. 0 if most items are longer than that, and for any other text."""
        if self.corpus.marks is None:
            return 0
        lengths = self.corpus.marks.lengths(self.corpus.train)
        lengths = np.quantile(lengths, (0.5, ITEMS_HELD, 1), method="lower")  # between two, no item lies
        half, nearly, whole = (MULTIPLE * -(-int(length) // MULTIPLE) for length in lengths)
        return min(whole if whole <= STRETCHED * nearly else nearly, MOST_FOR_ITEMS) if half <= MOST_FOR_ITEMS else 0


class Choice(NamedTuple):
    """The settings of a run, and what to say of it."""

    settings: Settings
    notices: list[Notice]
    loss: float | None = None  # to expect at the end, nats per character; None if the law does not tell
    time_model: TimeModel | None = None  # None if it plays no part in the choice
    models: Models = Models()

    @property
    def config(self) -> Config:
        return self.settings.values


def choose(settings: Settings, job: Job, *, optimizer: str) -> Choice:
    """Complete `settings` for a job. What is given stays.

    `optimizer` is chosen unless one is given, with its settings in OPTIMIZERS: WITH_MINUTES if the user has limited the time.
    The best model is timed, if its speed is not known. Raises UserError if no model fits what was given.
    """
    if choose_device(settings.values.runtime.device).type == "cuda":
        timing = min(TIMING_SECONDS_GPU, TIMING_SHARE_GPU * job.seconds)
        job = dataclasses.replace(job, seconds=job.seconds - timing, timing=timing)
    shapes = list(shapes_of(settings, job, optimizer))
    for timed in range(SIZES_TIMED + 1):
        choice = _choose(shapes, settings, job, optimizer=optimizer)
        if timed == SIZES_TIMED or job.speeds.is_known(choice.config):
            break
        job.speeds.measured(choice.config)  # which may make another one the best
    return choice


def _choose(shapes: list[Settings], settings: Settings, job: Job, *, optimizer: str) -> Choice:
    """`choose` among these shapes, by the speeds that are known now."""
    best, compared = _best_of_all(_candidates(shapes, job), settings, job, optimizer=optimizer)
    if best.teachers:
        return _several_models(best, compared, job)
    used, models = job.timing + job.seconds, models_given(settings)
    if best.seen >= job.useful(settings):  # the text has no more to give
        used = best.time_model.at_most(best.seen / best.config.chars_per_step)
    notices = _described(best, compared, job, takes=used, models=models)
    return Choice(best.settings, notices, best.compared, best.time_model, models)


def _best_of_all(
    candidates: list[Candidate], settings: Settings, job: Job, *, optimizer: str
) -> tuple[Candidate, list[Candidate]]:
    """The best model, alone or as the last of several, and those that it was compared with."""
    is_given, wanted, text = settings.is_given("train.teachers"), settings.values.train.teachers, job.text
    may_learn = wanted or (not is_given and job.corpus.is_validated)
    if optimizer == WITH_MINUTES and not job.teachers and may_learn:
        students = [_student(candidate, job) for candidate in candidates]
        best = _best(students)
        epochs = law.TWO_MODELS_FROM_HARDER if text.is_split_harder else law.TWO_MODELS_FROM
        sees_often, most = best.seen >= law.STUDENT_SEES * epochs * text.characters, law.ENOUGH_EPOCHS * text.characters
        if is_given or (sees_often and (job.seconds >= SHORTEST_FOR_TWO or _have_time(best, most, job.seconds, teachers=1))):
            return _best(students, within=NEGLIGIBLE_FOR_STUDENT) if best.teachers == 1 else best, students
    return _best(candidates), candidates


def _best(candidates: list[Candidate], *, within: float = NEGLIGIBLE) -> Candidate:
    """The smallest model of those whose loss is `within` this many nats, or NEGLIGIBLE_SHARE of it, of the lowest one."""
    lowest = min(candidate.compared for candidate in candidates)
    highest = lowest + max(NEGLIGIBLE, min(within, NEGLIGIBLE_SHARE * lowest))
    return next(candidate for candidate in candidates if candidate.compared <= highest)


def _student(candidate: Candidate, job: Job) -> Candidate:
    """The same model as the last of several: after fewer characters, and with several teachers if there is time."""
    config, seen = candidate.config, int(law.STUDENT_SEES * candidate.seen)
    loss = loss_by_law(config, job.text, seen=seen)
    teachers, most = max(1, config.train.teachers), job.seen_by_each(candidate.settings)
    if not candidate.settings.is_given("train.teachers") and _memorises(candidate, job.text, most):
        has_time = _have_time(candidate, most, job.seconds, teachers=law.SEVERAL_TEACHERS)
        teachers = law.SEVERAL_TEACHERS if has_time else 1
    return candidate._replace(seen=seen, loss=loss, teachers=teachers)


def _several_models(best: Candidate, candidates: list[Candidate], job: Job) -> Choice:
    """The settings of the first of several models as large as that of `best`. The last one learns from the others as well.
    Whether others follow depends on what the first one measures, unless it memorises in any case."""
    share = job.seconds / (best.teachers + 2)  # the last one gets two of them
    one = _first_of_several(best, job, seconds=share)
    models = _models_with(one, job, seconds=share)
    steps, known = job.seen_by_each(one.settings) / one.config.chars_per_step, one.time_model
    slower = dataclasses.replace(known, step=known.step * (1 + TEACHER_TIME * best.teachers))
    first, last = min(share, known.at_most(steps)), min(2 * share, slower.at_most(steps))
    notices = [
        _about_models(models, first=job.timing + first, last=last, is_detail=not one.settings.is_any_given(*DECIDES_LOSS)),
        *_described(one, candidates, job, takes=job.timing + best.teachers * first + last, models=models),
    ]
    return Choice(one.settings, notices, best.compared, known, models)


def _models_with(one: Candidate, job: Job, *, seconds: float) -> Models:
    """Several models of a run whose first one is this candidate, with so many seconds for it. Is it sure that others follow?"""
    why, is_sure = GIVEN, True
    if not one.settings.is_given("train.teachers"):
        is_sure = _memorises(one, job.text, one.seen)
        why = "a model of this size memorises this text" if is_sure else "the first one may have something to teach"
    epochs = None if one.settings.is_given("train.max_epochs") else float(law.ENOUGH_EPOCHS)
    return Models(count=one.teachers + 1, is_decided=is_sure, why=why, seconds=seconds, epochs=epochs)


def _first_of_several(best: Candidate, job: Job, *, seconds: float) -> Candidate:
    """`best` as the first of several models, which has so many seconds, with the batch for them."""
    most, known = job.seen_by_each(best.settings), best.time_model
    seen = min(most, int(best.speed * known.in_steps(seconds)))
    shaped = with_batch(best.settings, job, seen=seen, most=best.most_in_step)
    known = dataclasses.replace(known, step=shaped.values.chars_per_step / best.speed)
    evaluations = known.evaluations_in(min(seconds, known.at_most(most / shaped.values.chars_per_step)))
    settings = completed(shaped, job.text, seen=seen, evaluations=evaluations)
    return best._replace(settings=settings, time_model=known, seen=seen)


def _about_models(models: Models, *, first: float, last: float, is_detail: bool) -> Notice:
    """How several models share the time: at most so many seconds for each of the first ones and for the last one."""
    at_most = f"for at most {clock(first)}"
    earlier = f"{models.count - 1} models {at_most} each" if models.count > 2 else f"one model {at_most}"
    about = f"{models.count}: first {earlier}; then a last one, for at most {clock(last)}, "
    about += f"which learns from the text and from what those before it predict ({models.why})"
    about += "" if models.is_decided else "; if the first does not begin to memorise the text, no other follows"
    return Notice(Kind.MODELS, about, "detail" if is_detail else "line")


def models_given(settings: Settings, *, seconds: float | None = None) -> Models:
    """The models that `settings` ask for, which share so many seconds; None: as many steps for each."""
    teachers = settings.values.train.teachers
    share = None if seconds is None or not teachers else seconds / (teachers + 2)  # the last one gets two of them
    return Models(count=teachers + 1, why=GIVEN if teachers else "", seconds=share)


def _memorises(candidate: Candidate, text: Text, seen: int) -> bool:
    """Whether a run that sees so many characters memorises its text in any case."""
    return law.repetition(text, parameters=in_blocks(candidate.config), seen=seen) >= law.MEMORISES


def _have_time(candidate: Candidate, seen: float, seconds: float, *, teachers: int) -> bool:
    """Whether `teachers` models, and one that learns from them, see so many characters each in their shares of `seconds`."""
    share, known = 1 / (teachers + 2), candidate.time_model
    first = candidate.speed * known.in_steps(share * seconds)
    last = candidate.speed / (1 + TEACHER_TIME * teachers) * known.in_steps((1 - teachers * share) * seconds)
    return min(first, last) >= seen


def _candidates(shapes: Iterable[Settings], job: Job) -> list[Candidate]:
    """Models of growing size, as in `shapes`, until a larger one is expected to be worse. Raises UserError if there is none."""
    found, until = list[Candidate](), time.perf_counter() + job.timing
    for shape in shapes:
        try:
            candidate = _candidate(shape, job, until=until, smaller=found[-1] if found else None)
        except (NoMemory, torch.OutOfMemoryError):  # the latter of a GPU
            if found:
                break
            raise
        if len(found) > 1 and candidate.loss > found[-1].loss + CLEARLY_WORSE:
            break
        found.append(candidate)
    return found


def _candidate(shape: Settings, job: Job, *, until: float, smaller: Candidate | None) -> Candidate:
    """The model of a `shape`, with its batch. On a GPU, the batch fills it, and what is not known is timed, `until` then."""
    most = 0
    if job.is_gpu and smaller is not None:  # whose steps tell about how many characters there are in this one's
        most = max(smaller.most_in_step // 4, law.most_in_step(in_blocks(shape.values)))
    rough = with_context_and_batch(shape, job, seen=0, most=most)  # with a short context and a small batch
    job.check_memory(rough.values)
    shaped = with_context_and_batch(shape, job, seen=job.seen(shape, job.speeds.expected(rough.values)), most=most)
    job.check_memory(shaped.values, at_once=job.is_gpu and smaller is not None)
    is_timed = time.perf_counter() < until
    speed = job.speeds.measured(shaped.values) if is_timed else job.speeds.expected(shaped.values)
    if job.is_gpu and not shape.is_given("train.batch_size"):
        took = _times_of_steps(shaped, job, speed=speed, until=until)
        most = max(took)
        shaped = with_batch(shaped, job, seen=job.seen(shaped, most / took[most]), most=most)
        in_step = shaped.values.chars_per_step
        speed = in_step / next(seconds for characters, seconds in took.items() if characters >= min(in_step, most))
    known, seen = job.speeds.time_model(shaped.values, speed=speed), job.seen(shaped, speed)
    complete = completed(shaped, job.text, seen=seen, evaluations=known.evaluations_in(job.seconds))
    loss = loss_by_law(complete.values, job.text, seen=seen)
    parameters = parameter_count(shaped.values.model, job.corpus.tokenizer.vocab_size)
    return Candidate(complete, parameters, speed, known, seen, loss, most_in_step=most)


def _times_of_steps(shaped: Settings, job: Job, *, speed: float, until: float) -> dict[int, float]:
    """The seconds of a step on a GPU, by its characters: those of `shaped`, which has this `speed`, twice as many, and so on.

    The last ones take less than GROWS times as long as half of them, and leave STEPS steps or more, EPOCH_STEPS in each epoch.
    """
    now, useful = shaped.values.chars_per_step, min(job.useful(shaped), job.text.characters * law.STEPS // law.EPOCH_STEPS)
    times = {now: now / speed}
    while law.STEPS * 2 * now <= min(useful, 2 * now / times[now] * job.seconds) and time.perf_counter() < until:
        larger = with_batch(shaped, job, seen=law.STEPS * 2 * now, most=2 * now)
        try:
            job.check_memory(larger.values, at_once=True)
            took = 2 * now / job.speeds.measured(larger.values)
        except (NoMemory, torch.OutOfMemoryError):
            break
        if took >= law.GROWS * times[now]:
            break
        now *= 2
        times[now] = took
    return times


def _described(best: Candidate, candidates: list[Candidate], job: Job, *, takes: float, models: Models) -> list[Notice]:
    """What was chosen for models that take so many seconds together and, if everything was, the loss to expect of the last."""
    config, model = best.config, best.config.model
    epochs = config.train.max_steps * config.chars_per_step / job.text.characters
    shape = f"{best.parameters:,} parameters ({model.n_layer} layers, width {model.n_embd}, context {model.block_size})"
    seen = f"it will read the whole text {epochs:.1f} times, at {best.speed:,.0f} characters a second"
    notices = [Notice(Kind.CHOSEN, f"a model of {shape}; {seen}", "detail")]
    if job.corpus.is_validated and not job.corpus.facts.is_sorted and not best.settings.is_any_given(*DECIDES_LOSS):
        low, high = ((1 + sign * law.SPREAD) * best.compared for sign in (-1, 1))
        ngram = f"lower is better, and {NGRAM_MODEL} has {job.text.ngram_loss:z.2f}"
        loss = f"validation loss about {best.compared:z.2f} at the end (in most runs {low:z.2f} to {high:z.2f})"
        notices.append(Notice(Kind.EXPECTED, f"{loss}; {ngram}"))
    if others := [str(one) for one in candidates if one.parameters != best.parameters]:
        notices.append(Notice(Kind.CONSIDERED, f"but not chosen, expected loss {'; '.join(others)}", "detail"))
    if takes < job.seconds and not best.settings.is_given("train.max_epochs"):
        who, passes = "each model" if best.teachers else "training", models.epochs or config.train.max_epochs
        ends = f"{who} ends after {passes:g} passes over the text at most, since more would not help"
        further = "; what may help is more models to learn from: "
        more = (further, Option("train.teachers", law.MORE_TEACHERS)) if 1 < best.teachers < law.MORE_TEACHERS else ()
        notices.append(Notice(Kind.NOTE, Message(ends, *more), "detail"))
    return notices


def regularized(settings: Settings, text: Text) -> tuple[Settings, list[Notice]]:
    """`settings`, whose length was given, with weight decay and dropout for its epochs, and what to say of that."""
    seen = settings.values.train.max_steps * settings.values.chars_per_step
    recipe = recipe_of(settings.values, text, seen=seen)
    why = f"the run reads the text {seen / text.characters:.1f} times"
    chosen = settings.choose(why, optim={"weight_decay": recipe.weight_decay}, model={"dropout": recipe.dropout})
    changes = [f"{change.key}={change.new:g}" for change in difference(settings.values, chosen.values)]
    said = f"{' and '.join(changes)}, since {why}; give what you want in their place"
    return chosen, [Notice(Kind.CHOSEN, said)] * bool(changes)


# --- The settings of a candidate: a shape, completed for a run that sees a number of characters, by the recipe of law.py ------


def shapes_of(settings: Settings, job: Job, optimizer: str) -> Iterator[Settings]:
    """Models of growing size that what is given allows, with the positions of their optimizer. UserError if there is none."""
    seen, problem, model = [], None, settings.values.model
    for n_layer, n_embd in law.SHAPES + law.LARGER_SHAPES * job.is_gpu:
        heads = model.n_head if settings.is_given("model.n_head") else None
        width = model.n_embd if settings.is_given("model.n_embd") else multiple(n_embd, of=2 * (heads or 1))
        shape = {"n_layer": n_layer, "n_embd": width, "n_head": heads or heads_for(width)}
        try:
            why = "the lowest loss that the law expects in this time, on this machine"
            named = settings.choose(why, optim={"name": optimizer})
            shaped = named.choose(why, model={**OPTIMIZERS[named.values.optim.name].model, **shape})
            check_size(shaped.values.model, job.corpus.tokenizer.vocab_size)  # before a model is made
        except UserError as error:  # for example a width that is not a multiple of the number of heads that is given
            problem = error
            continue
        if shaped.values.model not in seen:
            seen.append(shaped.values.model)
            yield shaped
    if not seen and problem is not None:
        raise problem


def with_context_and_batch(shape: Settings, job: Job, *, seen: int, most: int = 0) -> Settings:
    """`shape` with the context and, as `with_batch`, the batch for a run that sees about this many characters."""
    width, optimizer = shape.values.model.n_embd, shape.values.optim.name
    context = job.item_context or law.context_for(job.text, n_embd=width, seen=seen, optimizer=optimizer)
    context = max(SHORTEST_CONTEXT, min(context, job.longest_context))
    why = "the items" if job.item_context else "the text, and the width of the model"
    settings = shape.choose(why, model={"block_size": context})
    return with_batch(settings, job, seen=seen, most=most)


def with_batch(settings: Settings, job: Job, *, seen: int, most: int = 0) -> Settings:
    """With the batch for a run that sees this many characters, `most` of them in a step (0: as on a CPU)."""
    config = settings.values
    in_step = recipe_of(config, job.text, seen=seen, most=most).characters_per_step
    batch = multiple(round(in_step / config.model.block_size / config.train.accumulate), of=job.processes)
    return settings.choose(f"about {law.STEPS:,} steps or more", train={"batch_size": batch})


def completed(settings: Settings, text: Text, *, seen: int, evaluations: int) -> Settings:
    """With what follows from the characters that are seen, but for context and batch: length, rate, regularization."""
    recipe = recipe_of(settings.values, text, seen=seen)
    steps = max(law.MIN_STEPS, seen // settings.values.chars_per_step)
    interval = -(-steps // evaluations)  # rounded down, a few steps would be left for one more evaluation
    patience = 3 if seen > PATIENT_EPOCHS * text.characters else 0
    is_averaged = text.characters <= law.AVERAGED_UP_TO and seen >= law.AVERAGED_FROM * text.characters
    settings = settings.choose(
        f"the run reads the text {seen / text.characters:.1f} times",
        model={"dropout": recipe.dropout},
        optim={"weight_decay": recipe.weight_decay, "average_fraction": law.AVERAGED if is_averaged else 0.0},
        train={"max_epochs": law.MAX_EPOCHS, "patience": patience},
    )
    rate = {"learning_rate": recipe.learning_rate, "momentum": recipe.momentum, "warmup_steps": min(100, steps // 10)}
    settings = settings.choose("the size of the model and the length of the run", optim=rate)
    length = {"max_steps": steps, "eval_interval": interval}
    return settings.choose("the time", train=length, checkpoint={"interval": interval})


def loss_by_law(config: Config, text: Text, *, seen: float) -> float:
    """The loss that the law expects of a run with these settings that sees this many characters."""
    return law.expected_loss(text, parameters=in_blocks(config), seen=seen, optimizer=config.optim.name)


def recipe_of(config: Config, text: Text, *, seen: int, most: int = 0) -> law.Recipe:
    """The recipe of the law for a run with these settings that sees this many characters, `most` of them in a step."""
    return law.recipe_for(text, parameters=in_blocks(config), seen=seen, optimizer=config.optim.name, most=most)


def in_blocks(config: Config) -> int:
    """The parameters of the matrices in the blocks, which do the work of a step: 12 C^2 in each."""
    return 12 * config.model.n_layer * config.model.n_embd**2


def heads_for(width: int) -> int:
    """The number of heads for a width, of HEAD_SIZE channels each, or of a number of channels close to it."""
    possible = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads % 2 == 0]
    return min(possible or [1], key=lambda heads: abs(width // heads - law.HEAD_SIZE))


def multiple(number: float, *, of: int) -> int:
    """The multiple of `of` next to `number`, at least `of` itself."""
    return of * max(1, round(number / of))
