"""The settings that are chosen for the time of a run: for --minutes, or without it for three minutes.

Models of several sizes, the candidates, are timed on this machine. law.py has the sizes, and for each its expected loss, batch,
context and regularization; training/optimizer_kinds.py has the optimizers and their rates. candidate_settings.py writes these
settings, and clock.py corrects the number of steps in the run. A run that begins with a start (--start, --init-from) has
settings of its own: adaptation.py.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from chargpt.config import MAX_CHARACTERS, Config, apply_overrides
from chargpt.model import GPT
from chargpt.planning import law
from chargpt.planning.candidate_settings import (
    completed,
    in_blocks,
    recipe_of,
    shapes_of,
    unless,
    with_batch,
    with_context_and_batch,
)
from chargpt.planning.clock import EVALUATION_SHARE
from chargpt.planning.law import Text
from chargpt.planning.memory import NotEnoughMemory, check_memory
from chargpt.planning.teachers import Teacher, models_of, runs_in_all
from chargpt.runs.blank_model import gpt_config
from chargpt.runs.model_shape import parameter_count
from chargpt.terminal import Kind, Notice, clock, plural
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.optimizer_kinds import OPTIMIZERS, WITH_MINUTES
from chargpt.training.runtime import choose_runtime
from chargpt.training.thread_spinning import ThreadSpinning
from chargpt.training.trainer import Trainer

# Seconds of a run for which the user has chosen no length.
DEFAULT_SECONDS = 180.0
# Seconds for timing candidates, at most.
TIMING_SECONDS = 4.0
# Share of the run's time for timing candidates, at most.
TIMING_SHARE = 0.015
# Time steps for at least this many seconds, so that one undisturbed step is likely.
STEADY_SECONDS = 0.15
# Characters in a step that is timed on a CPU, at most: more characters do not make it faster.
MOST_TIMED = 2**15
# Seconds of a run before its first step.
STARTING_SECONDS = 4.0
# Share of the rest of a run's time, without evaluations, that is for steps; what is left is for saving and a reserve.
IN_STEPS = 0.92
# Step time grows as parameters^STEP_TIME_EXPONENT; in small models, call overhead dominates.
STEP_TIME_EXPONENT = 0.8
# Evaluations of a run, at most, after the one before the first step.
MAX_EVALUATIONS = 10
# Seconds from which two runs can be better than one; with less, their two starts take too large a share of the time, unless the
# text is so short that both see it as often as helps.
SHORTEST_TWO_RUNS = 60.0
# Time for the predictions of a teacher, as a share of the time of a step without teachers.
TEACHER_TIME = 1 / 3
# Speed of an evaluation, which has no gradient, as a multiple of that of training.
EVALUATES_FASTER = 3.0
# Nats above the expected loss of the next smaller model from which larger ones are not considered.
CLEARLY_WORSE = 0.045
# Nats for which no larger model is worth its time.
NEGLIGIBLE = 0.003
# The same for a student of one teacher: of two sizes for which the law expects about the same, the smaller one is as good or
# better.
NEGLIGIBLE_FOR_STUDENT = 0.011
# It is at most this share of the loss: for a log or a table, whose loss may be 0.2, 0.011 nats are a lot.
NEGLIGIBLE_SHARE = 0.02
# Share of the items that the context of a list holds whole, and what it is a multiple of.
ITEMS_HELD, MULTIPLE = 0.995, 8
# What decides the loss of a training, by the beginnings of its settings: the law knows the loss if none of them was given.
DECIDES_LOSS = (
    "model.",
    "optim.",
    "train.batch_size",
    "train.accumulate",
    "train.max_epochs",
    "train.teachers",
    "train.student_",
)
# If the user has given all of these, only the length of the run is left to choose.
CHOSEN = {
    "model.n_layer",
    "model.n_head",
    "model.n_embd",
    "model.block_size",
    "model.positions",
    "model.dropout",
    "optim.name",
    "optim.learning_rate",
    "optim.weight_decay",
    "train.batch_size",
}


class Candidate(NamedTuple):
    """A model that could be trained, and what to expect of it."""

    config: Config
    parameters: int
    speed: float  # characters a second
    evaluation: float  # seconds of one
    seen: int  # characters, in the whole run
    loss: float  # expected by the law, nats per character
    teachers: int = 0  # runs before this one, from which it learns

    @property
    def compared(self) -> float:
        """The loss that decides between models."""
        return self.loss * (law.SEVERAL_SHARE if self.teachers > 1 else 1)

    def describe(self) -> str:
        model = self.config.model
        return f"{self.parameters:,} ({model.n_layer} x {model.n_embd}) {self.compared:z.2f}"


class Choice(NamedTuple):
    """The settings of a run, how long it takes, and what to say of it."""

    config: Config
    # At most: epochs may end the run earlier, and a student may take the rest of the time. None: no limit.
    seconds: float | None
    notices: list[Notice]


def chooses(given: Collection[str], *, minutes: float | None) -> bool:
    """Whether settings are left to choose by the time of the run: that of --minutes, or the default if no length is given."""
    return (minutes is not None or "train.max_steps" not in given) and not CHOSEN <= set(given)


def choose(
    config: Config,
    corpus: Corpus,
    text: Text,
    *,
    given: Collection[str],
    seconds: float,
    optimizer: str,
    processes: int = 1,
    teachers: Sequence[Teacher] = (),
) -> Choice:
    """Complete `config` for a run on `text` of this many `seconds`. What the user has `given`, as section.key, stays.

    `optimizer` is chosen, with its settings in OPTIMIZERS: WITH_MINUTES if the user has limited the time. The models that
    are timed are as large as this machine can train in that time, so this takes a few seconds. Raises UserError if no model
    fits what was given.
    """
    names = [f"optim.name={optimizer}", *OPTIMIZERS[optimizer].settings]
    is_limited = optimizer == WITH_MINUTES
    shapes = shapes_of(config, corpus, names, given=given)
    candidates = list(_candidates(shapes, corpus, text, given=given, seconds=seconds, processes=processes, teachers=teachers))
    one_run = processes > 1 or not is_limited or config.train.teachers or "train.student_minutes" in given
    if not one_run:
        students = [_student(candidate, text, given=given, seconds=seconds) for candidate in candidates]
        best = _best(students)
        sees_often, most = best.seen >= law.STUDENT_SEES * text.two_runs_from, law.ENOUGH_EPOCHS * text.characters
        if sees_often and (seconds >= SHORTEST_TWO_RUNS or _have_time(best, most, seconds, teachers=1)):
            smaller = _best(students, within=NEGLIGIBLE_FOR_STUDENT) if best.teachers == 1 else best
            return _two_runs(smaller, students, corpus, text, given=given, seconds=seconds)
    best = _best(candidates)
    used = seconds
    if best.seen >= int(_useful(config, text, given=given)):  # the text has no more to give
        used = min(seconds, _duration(best, best.seen, best.speed))
    kind: Kind = "line" if is_limited else "detail"  # without --minutes, nobody asked for so much time
    notices = _described(best, candidates, text, given=given)
    notices += _end(used, seconds, given=given, epochs=law.MAX_EPOCHS, kind=kind)
    return Choice(best.config, seconds, notices)


def _best(candidates: list[Candidate], *, within: float = NEGLIGIBLE) -> Candidate:
    """The smallest model of those whose loss is `within` this many nats of the lowest one.

    More than NEGLIGIBLE nats are also within NEGLIGIBLE_SHARE of the loss.
    """
    lowest = min(candidate.compared for candidate in candidates)
    highest = lowest + max(NEGLIGIBLE, min(within, NEGLIGIBLE_SHARE * lowest))
    return next(candidate for candidate in candidates if candidate.compared <= highest)


def _student(candidate: Candidate, text: Text, *, given: Collection[str], seconds: float) -> Candidate:
    """The same model as the last of several runs: after fewer characters, and with several teachers if there is time."""
    config, seen = candidate.config, int(law.STUDENT_SEES * candidate.seen)
    loss = law.expected_loss(text, parameters=in_blocks(config), seen=seen, optimizer=config.optim.name)
    teachers, useful = config.train.student_teachers, int(_useful(config, text, given=given))
    most = min(law.ENOUGH_EPOCHS * text.characters, useful)
    if "train.student_teachers" not in given and _memorises(candidate, text, most):
        teachers = law.SEVERAL_TEACHERS if _have_time(candidate, most, seconds, teachers=law.SEVERAL_TEACHERS) else 1
    return candidate._replace(seen=seen, loss=loss, teachers=teachers)


def _two_runs(
    best: Candidate, candidates: list[Candidate], corpus: Corpus, text: Text, *, given: Collection[str], seconds: float
) -> Choice:
    """The settings of the first of several runs of the model of `best`. The last one learns from the others as well.

    Whether others follow depends on what the first one measures (`train.student_gap`), unless it memorises in any case.
    """
    most = min(law.ENOUGH_EPOCHS * text.characters, int(_useful(best.config, text, given=given)))
    teachers = best.teachers
    longest, timing = law.teacher_share(teachers) * seconds, min(TIMING_SECONDS, TIMING_SHARE * seconds) / 2
    seen = min(most, int(best.speed * _in_steps(longest, best.evaluation)))
    shaped = completed(with_batch(best.config, text, given=given, seen=seen), text, given=given, seen=seen, evaluations=1)
    if shaped.chars_per_step != best.config.chars_per_step and 4 * shaped.chars_per_step < timing * best.speed:  # of 4 steps
        best = best._replace(config=shaped, speed=training_speed(shaped, corpus, ()))
    rest = seconds - teachers * longest
    first = min(longest, _duration(best, most, best.speed))
    second = min(rest, _duration(best, most, best.speed / (1 + TEACHER_TIME * teachers)))
    seen = min(most, int(best.speed * _in_steps(longest, best.evaluation)))
    config = completed(shaped, text, given=given, seen=seen, evaluations=_evaluations(first, best.evaluation))
    is_sure = _memorises(best, text, seen)
    settings = {
        "train.student_minutes": round(rest / 60, 3),
        "train.student_teachers": teachers,
        "train.student_gap": 0 if is_sure else law.STUDENT_GAP,
        "train.max_epochs": law.ENOUGH_EPOCHS,
    }
    config = apply_overrides(config, unless(given, [f"{key}={value}" for key, value in settings.items()]))
    epochs = best.seen / law.STUDENT_SEES / text.characters
    when, otherwise = ("It", "") if is_sure else ("If it begins to memorise the text, it", ". Otherwise it goes on")
    learns, others = "a model of the same shape learns from the text and from", ""
    if teachers > 1:
        others = f", {plural(teachers - 1, 'run')} like it {'follows' if teachers == 2 else 'follow'}"
    whose = "its predictions" if teachers == 1 else f"the predictions of {'both' if teachers == 2 else f'all {teachers}'}"
    said = f"one run would see the text {epochs:.0f} times. {when} ends after at most {clock(first)}{others}"
    about = f"{said}, and {learns} {whose} for at most {clock(second)}{otherwise}"
    chosen = best._replace(config=config, seen=seen)
    notices = _described(chosen, candidates, text, given=given)
    is_expected = any(label == "expected" for label, *_ in notices)
    notices.insert(0, Notice(runs_in_all(teachers), about, "detail" if is_expected else "line"))
    end = _end(teachers * first + second, seconds, given=given, epochs=law.ENOUGH_EPOCHS, what="each run")
    return Choice(config, longest, [*notices, *end])


def _memorises(candidate: Candidate, text: Text, seen: int) -> bool:
    """Whether a run that sees so many characters memorises its text in any case."""
    return law.repetition(text, parameters=in_blocks(candidate.config), seen=seen) >= law.MEMORISES


def _have_time(candidate: Candidate, seen: float, seconds: float, *, teachers: int) -> bool:
    """Whether `teachers` runs, and one that learns from them, see so many characters each in their shares of the `seconds`."""
    share = law.teacher_share(teachers)
    first = candidate.speed * _in_steps(share * seconds, candidate.evaluation)
    last = candidate.speed / (1 + TEACHER_TIME * teachers) * _in_steps((1 - teachers * share) * seconds, candidate.evaluation)
    return min(first, last) >= seen


def _duration(candidate: Candidate, seen: float, speed: float) -> float:
    """The seconds of a run that sees at least this many characters, also if its speed is lower; a few more do no harm."""
    return 1.5 * STARTING_SECONDS + 1.25 * (seen / speed + (1 + MAX_EVALUATIONS) * candidate.evaluation) / IN_STEPS


def _evaluations(seconds: float, evaluation: float) -> int:
    """How many evaluations a run of this many `seconds` has, besides the one before the first step."""
    return max(1, min(MAX_EVALUATIONS, int(EVALUATION_SHARE * seconds / evaluation)))


def _in_steps(seconds: float, evaluation: float) -> float:
    """How much of the `seconds` of a run is for steps, if an evaluation takes so long."""
    evaluating = (1 + _evaluations(seconds, evaluation)) * evaluation  # the first one comes before the first step
    return max(0.3 * seconds, IN_STEPS * (seconds - STARTING_SECONDS) - evaluating)


def _end(
    used: float, seconds: float, *, given: Collection[str], epochs: int, kind: Kind = "line", what: str = "training"
) -> list[Notice]:
    """A notice if the run needs less than its time, and the user has not chosen when it ends."""
    if used >= seconds or "train.max_epochs" in given:
        return []
    return [Notice("note", f"{what} ends after {epochs} passes over this text; more would not help", kind)]


def _candidates(
    shapes: Iterator[Config],
    corpus: Corpus,
    text: Text,
    *,
    given: Collection[str],
    seconds: float,
    processes: int,
    teachers: Sequence[Teacher],
) -> Iterator[Candidate]:
    """Models of growing size, as in `shapes`, until a larger one is expected to be worse. Raises UserError if there is none."""
    done: list[Candidate] = []
    contexts = [teacher.model.config.block_size for teacher in teachers]
    # The longest context that text and teachers allow.
    longest = min(len(corpus.train) // 2, len(corpus.val) - 1, context_of_items(corpus), *contexts)
    for shape in shapes:
        useful = int(_useful(shape, text, given=given))
        parameters = parameter_count(shape.model, corpus.tokenizer.vocab_size)
        if done:  # what was measured for a smaller model tells how long a larger one takes
            speed = done[-1].speed * (done[-1].parameters / parameters) ** STEP_TIME_EXPONENT
        else:  # with a short context and a small batch; the first time of all includes what torch does once
            first = with_context_and_batch(shape, text, longest=longest, given=given, seen=0, processes=processes)
            check_memory(first, vocab_size=corpus.tokenizer.vocab_size, processes=processes, on_machine=processes)
            speed = processes * training_speed(first, corpus, teachers)
            deadline = time.perf_counter() + min(TIMING_SECONDS, TIMING_SHARE * seconds)
        work = len(validation_split(corpus.val, shape.train.eval_chars)) / EVALUATES_FASTER  # characters of training
        seen = min(int(speed * _in_steps(seconds, work / speed)), useful)
        shaped = with_context_and_batch(shape, text, longest=longest, given=given, seen=seen, processes=processes)
        timing = max(STEADY_SECONDS, 3 * shaped.chars_per_step / speed)
        try:
            check_memory(shaped, vocab_size=corpus.tokenizer.vocab_size, processes=processes, on_machine=processes)
            if shaped != first and timing < deadline - time.perf_counter():
                speed = processes * training_speed(shaped, corpus, teachers)
        except (NotEnoughMemory, torch.OutOfMemoryError):  # the latter of a GPU
            if done:
                return
            raise
        evaluation = work / speed  # seconds
        seen = min(int(speed * _in_steps(seconds, evaluation)), useful)
        complete = completed(shaped, text, given=given, seen=seen, evaluations=_evaluations(seconds, evaluation))
        loss = law.expected_loss(text, parameters=in_blocks(complete), seen=seen, optimizer=complete.optim.name)
        if len(done) > 1 and loss > done[-1].loss + CLEARLY_WORSE:
            return
        done.append(Candidate(complete, parameters, speed, evaluation, seen, loss))
        yield done[-1]
        if loss >= text.entropy:  # it learns nothing, and a larger one has less time for it
            return


def _useful(config: Config, text: Text, *, given: Collection[str]) -> float:
    """The characters to see after which the run ends: those of the epochs that the user has given, or of more than enough."""
    if "train.max_epochs" in given and config.train.max_epochs:
        return config.train.max_epochs * text.characters
    return law.longest_useful(text)


def context_of_items(corpus: Corpus) -> int:
    """The context that holds nearly every item with its label; of any other text, no limit.

    An item is predicted from the beginning of a window: positions that only other items of a window reach are of no use.
    """
    if corpus.marks is None:
        return MAX_CHARACTERS
    return MULTIPLE * -(-int(np.quantile(corpus.marks.lengths(corpus.train), ITEMS_HELD)) // MULTIPLE)


def text_of(corpus: Corpus) -> Text:
    """What the law knows of a corpus."""
    facts, vocabulary = corpus.facts, corpus.tokenizer.vocab_size
    return Text(len(corpus.train), facts.entropy, facts.ngram_loss, vocabulary, facts.copying, facts.is_split_harder)


def training_speed(config: Config, corpus: Corpus, teachers: Sequence[Teacher] = ()) -> float:
    """Characters a second of training `config` here, from the fastest of a few steps of a model that is then discarded."""
    # Compiling takes longer than the choice may, and a rate of the user may be so high that no step can be taken.
    config = apply_overrides(config, ["runtime.compile=off", "optim.learning_rate=1e-6"])
    runtime = choose_runtime(config)
    if runtime.device.type == "cpu" and config.chars_per_step > MOST_TIMED:
        windows = min(config.train.batch_size, max(1, MOST_TIMED // config.model.block_size))
        micro = max(1, MOST_TIMED // (windows * config.model.block_size))
        fewer = [f"train.batch_size={windows}", f"train.accumulate={min(config.train.accumulate, micro)}"]
        config = apply_overrides(config, fewer)
    seconds: list[float] = []
    with runtime.applied(), ThreadSpinning(runtime):
        model = GPT(gpt_config(config.model), corpus.tokenizer.vocab_size)
        trainer = Trainer(model, corpus.train, config, runtime=runtime, marks=corpus.marks, teachers=models_of(teachers))
        trainer.step()  # allocates memory
        while sum(seconds) < STEADY_SECONDS or (len(seconds) < 3 and sum(seconds) < 2 * STEADY_SECONDS):
            started = time.perf_counter()
            trainer.step()
            seconds.append(time.perf_counter() - started)
    return config.chars_per_step / min(seconds)


def _described(best: Candidate, candidates: list[Candidate], text: Text, *, given: Collection[str]) -> list[Notice]:
    """What was chosen and, if everything was, the loss that the law expects of the run, or of the last of several runs."""
    config, model = best.config, best.config.model
    epochs = config.train.max_steps * config.chars_per_step / text.characters
    parameters = f"{parameter_count(model, text.vocabulary):,} parameters"
    size = f"{parameters} ({model.n_layer} layers, width {model.n_embd}, context {model.block_size})"
    seen = f"at {best.speed:,.0f} characters a second, it sees the text {epochs:.1f} times"
    regular = f"weight decay {config.optim.weight_decay:g} and dropout {model.dropout:g} for {epochs:.1f} epochs"
    how = f"{OPTIMIZERS[config.optim.name].label}, rate {config.optim.learning_rate:g}; {regular}"
    notices = [
        Notice("chosen", f"{size}: {seen}", "detail"),
        Notice("chosen", f"{how}; {config.chars_per_step:,} characters in a step", "detail"),
    ]
    if not any(key.startswith(DECIDES_LOSS) for key in given):
        low, high = ((1 + sign * law.SPREAD) * best.compared for sign in (-1, 1))
        ngram = f"an n-gram model has {text.ngram_loss:z.2f}"
        last = f" of the last of {best.teachers + 1} models, which learns from the others" if best.teachers else ""
        notices.append(Notice("expected", f"validation loss {best.compared:z.2f} ({low:z.2f} to {high:z.2f}){last}; {ngram}"))
    others = ", ".join(candidate.describe() for candidate in candidates if candidate.parameters != best.parameters)
    return [*notices, *[Notice("considered", others, "detail")] * bool(others)]


def regularized(config: Config, text: Text, *, given: Collection[str]) -> Choice:
    """`config`, whose length was given, with weight decay and dropout for its epochs."""
    seen = config.train.max_steps * config.chars_per_step
    recipe = recipe_of(config, text, seen=seen)
    settings = [f"optim.weight_decay={recipe.weight_decay:g}", f"model.dropout={recipe.dropout:g}"]
    changed = apply_overrides(config, unless(given, settings))
    if changed == config:
        return Choice(config, None, [])
    regular = f"weight decay {changed.optim.weight_decay:g} and dropout {changed.model.dropout:g}"
    why = f"{regular}, since the run sees the text {seen / text.characters:.1f} times"
    return Choice(changed, None, [Notice("chosen", why, "detail")])
