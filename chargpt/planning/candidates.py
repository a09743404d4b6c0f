"""Chooses the settings of a run for its time: candidates are timed on this machine, and the law of law.py compares them."""

import math
import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from chargpt.config import Config, apply_overrides
from chargpt.planning import law
from chargpt.planning.clock import EVALUATION_SHARE
from chargpt.planning.law import HEAD_SIZE, Expected, Text
from chargpt.planning.teachers import Teacher, models_of
from chargpt.runs.model_shape import blank_model, check_size
from chargpt.terminal import UserError, clock
from chargpt.text.corpus import Corpus
from chargpt.text.report import mark_and_copying
from chargpt.training.evaluation import validation_part
from chargpt.training.optimizers import OPTIMIZERS
from chargpt.training.runtime import choose_runtime
from chargpt.training.thread_waiting import ThreadWaiting
from chargpt.training.trainer import Trainer
from model import GPT

DEFAULT_SECONDS = 180.0  # of a run for which the user has chosen no length
TIMING_SECONDS, TIMING_SHARE = 4.0, 0.015  # at most for timing, and at most this part of the run's time
STEADY_SECONDS = 0.15  # of steps that are timed: in a shorter time, another program may have disturbed each of them
STARTING_SECONDS, IN_STEPS = 4.0, 0.92  # the rest of a run's time, besides evaluations, is for saving and as a reserve
SLOWER = 0.8  # power of the parameters with which a step becomes slower; the calls of small models take much of theirs
MAX_EVALUATIONS = 10
SHORTEST_TEACHING = 120.0  # seconds: with less, the two starts take too large a part of the time
TAUGHT_SPEED = 0.75  # of the speed without a teacher, whose predictions take the rest of the time
MUON_SPEED = 0.8  # of the speed with AdamW and learned positions; about
EVALUATES_FASTER = 2.5  # times, than training: there is no gradient
PATIENT_EPOCHS = 4  # a run that sees its text more often ends early if the model begins to memorise it
CLEARLY_WORSE = 0.045  # nats above the next smaller model: still larger ones are not considered
NEGLIGIBLE = 0.003  # nats, for which no larger model is worth its time
SHORTEST_CONTEXT = 16
CHOSEN = {  # if the user has given all of these, only the length of the run is left to choose
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
    loss: float  # expected, nats per character

    def as_pupil(self, text: Text) -> "Candidate":
        """The same model after the characters that the second of two runs sees. Its settings stay."""
        seen, parameters = int(law.PUPIL_SEES * self.seen), in_blocks(self.config)
        loss = law.expected_loss(text, parameters=parameters, seen=seen, optimizer=self.config.optim.name)
        return self._replace(seen=seen, loss=loss)

    def announced(self, text: Text, *, how: str) -> Expected:
        """What to say that it will reach; `how` as in law.announced."""
        return law.announced(text, self.loss, seen=self.seen, how=how)

    def describe(self, text: Text, *, how: str) -> str:
        model = self.config.model
        return f"{_millions(self.parameters)} ({model.n_layer} x {model.n_embd}) {self.announced(text, how=how).loss:.2f}"


class Choice(NamedTuple):
    """The settings of a run, how long it takes, and what to say of it."""

    config: Config
    seconds: float  # at most; the epochs in `config` may end the run earlier. A second run may take the rest of the time
    notices: list[tuple[str, str]]  # a label and a text each
    loss: float  # to expect, nats per character
    with_minutes: tuple[int, float] | None = None  # without Muon: the minutes for --minutes, and the loss to expect then


def chooses(given: Collection[str], *, minutes: float | None) -> bool:
    """Whether settings are left to choose by the time of the run: that of --minutes, or the default if no length is given."""
    return (minutes is not None or "train.max_steps" not in given) and not CHOSEN <= set(given)


def choose(
    config: Config,
    corpus: Corpus,
    *,
    given: Collection[str],
    seconds: float,
    muon: bool,
    processes: int = 1,
    teachers: Sequence[Teacher] = (),
) -> Choice:
    """Complete `config` for a run of so many `seconds`. What the user has `given`, as section.key, stays.

    `muon` chooses Muon, rotary positions and biases, which learn more; otherwise AdamW and learned positions. The models that
    are timed are as large as this machine can train in that time, so this takes a few seconds. Raises UserError if no model
    fits what was given.
    """
    text = text_of(corpus)
    names = ["optim.name=adamw", "model.positions=learned"]
    if muon:
        names = ["optim.name=muon", "model.positions=rotary", "model.bias=true"]
    shapes = _shapes(config, corpus, names, given=given)
    candidates = list(_candidates(shapes, corpus, text, given=given, seconds=seconds, processes=processes, teachers=teachers))
    one_run = processes > 1 or not muon or config.train.teachers or "train.pupil_minutes" in given
    if not one_run and seconds >= SHORTEST_TEACHING:
        taught = [candidate.as_pupil(text) for candidate in candidates]
        best = _best(taught)
        if best.seen >= law.PUPIL_SEES * law.TEACHING_EPOCHS * text.characters:
            return _two_runs(best, taught, corpus, text, given=given, seconds=seconds)
    best = _best(candidates)
    used = seconds
    if best.seen >= int(_useful(config, text, given=given)):  # the text has no more to give
        used = min(seconds, _duration(best, best.seen, best.speed))
    notices, how = _notices(best, candidates, text, seconds=used), best.config.optim.name
    with_minutes = None if muon or "optim.name" in given else _with_minutes(candidates, text, seconds=used)
    ends = _end(used, seconds, epochs=law.MAX_EPOCHS)
    return Choice(best.config, seconds, [*notices, *ends], best.announced(text, how=how).loss, with_minutes)


def _with_minutes(candidates: list[Candidate], text: Text, *, seconds: float) -> tuple[int, float]:
    """What --minutes would give in about `seconds`: the number of minutes, and the expected loss with Muon.

    A text that is short for the time gets two minutes or more, and with them two runs.
    """
    useful = law.longest_useful(text)
    is_short = max(candidate.seen for candidate in candidates) >= law.TEACHING_EPOCHS * text.characters
    minutes, losses = math.ceil(max(seconds, SHORTEST_TEACHING if is_short else 0) / 60), []
    for candidate in candidates:
        speed, evaluation = MUON_SPEED * candidate.speed, candidate.evaluation / MUON_SPEED
        seen = min(speed * _in_steps(60 * minutes, evaluation), useful) * (law.PUPIL_SEES if is_short else 1)
        loss = law.expected_loss(text, parameters=in_blocks(candidate.config), seen=seen, optimizer="muon")
        losses.append(law.announced(text, loss, seen=seen, how="two runs" if is_short else "muon").loss)
    return minutes, min(losses)


def _best(candidates: list[Candidate]) -> Candidate:
    """The smallest model of those with about the lowest loss."""
    lowest = min(candidate.loss for candidate in candidates)
    return next(candidate for candidate in candidates if candidate.loss <= lowest + NEGLIGIBLE)


def _two_runs(
    best: Candidate, candidates: list[Candidate], corpus: Corpus, text: Text, *, given: Collection[str], seconds: float
) -> Choice:
    """The model of `best` trained twice, the second time by learning from the first one too; the settings of the first run.

    Whether there is a second run depends on what the first one measures (`train.second_run_gap`).
    """
    most = min(law.ENOUGH_EPOCHS * text.characters, _useful(best.config, text, given=given))
    longest, timing = law.TEACHER_SHARE * seconds, min(TIMING_SECONDS, TIMING_SHARE * seconds) / 2
    seen = min(most, int(best.speed * _in_steps(longest, best.evaluation)))
    shaped = _complete(_with_batch(best.config, text, given=given, seen=seen), text, given=given, seen=seen, evaluations=1)
    if shaped.chars_per_step != best.config.chars_per_step and 4 * shaped.chars_per_step < timing * best.speed:  # of 4 steps
        best = best._replace(config=shaped, speed=training_speed(shaped, corpus, ()))
    first = min(longest, _duration(best, most, best.speed))
    second = min(seconds - longest, _duration(best, most, TAUGHT_SPEED * best.speed))
    seen = min(most, int(best.speed * _in_steps(longest, best.evaluation)))
    config = _complete(shaped, text, given=given, seen=seen, evaluations=_evaluations(first, best.evaluation))
    rest = [f"train.pupil_minutes={round((seconds - longest) / 60, 3)}", f"train.second_run_gap={law.SECOND_RUN_GAP}"]
    config = apply_overrides(config, _unless(given, [*rest, f"train.max_epochs={law.ENOUGH_EPOCHS}"]))
    epochs = best.seen / law.PUPIL_SEES / text.characters
    about = (
        "two runs",
        f"one run would see the text {epochs:.0f} times. If it begins to memorise the text, it ends after {clock(first)}, and "
        f"a model of the same shape learns from the text and from its predictions for {clock(second)}. Otherwise it goes on",
    )
    chosen = best._replace(config=config, seen=seen)
    notices = _notices(chosen, candidates, text, seconds=first, is_second=True)
    ends = _end(first + second, seconds, epochs=law.ENOUGH_EPOCHS)
    return Choice(config, longest, [about, *notices, *ends], chosen.announced(text, how="two runs").loss)


def _duration(candidate: Candidate, seen: float, speed: float) -> float:
    """The seconds of a run that sees at least so many characters, also if its speed is lower; a few more do no harm."""
    return 1.5 * STARTING_SECONDS + 1.25 * (seen / speed + (1 + MAX_EVALUATIONS) * candidate.evaluation) / IN_STEPS


def _evaluations(seconds: float, evaluation: float) -> int:
    """How many evaluations a run of so many `seconds` has, besides the one before the first step."""
    return max(1, min(MAX_EVALUATIONS, int(EVALUATION_SHARE * seconds / evaluation)))


def _in_steps(seconds: float, evaluation: float) -> float:
    """How much of the `seconds` of a run is for steps, if an evaluation takes so long."""
    evaluating = (1 + _evaluations(seconds, evaluation)) * evaluation  # the first one comes before the first step
    return max(0.3 * seconds, IN_STEPS * (seconds - STARTING_SECONDS) - evaluating)


def _end(used: float, seconds: float, *, epochs: int) -> Iterator[tuple[str, str]]:
    if used < seconds:
        enough = f"more than {epochs} passes over this text do not lower the loss"
        yield "note", f"training ends after about {clock(used)} of {clock(seconds)}: {enough}"


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
    longest = min(len(corpus.train) // 2, len(corpus.val) - 1, *contexts)  # that text and teachers allow
    for shape in shapes:
        useful = int(_useful(shape, text, given=given))
        parameters = blank_model(shape.model, corpus.tokenizer.vocab_size).parameter_count()
        if done:  # what was measured for a smaller model tells how long a larger one takes
            speed = done[-1].speed * (done[-1].parameters / parameters) ** SLOWER
        else:  # with a short context and a small batch; the first time of all includes what torch does once
            first = _with_context_and_batch(shape, text, longest=longest, given=given, seen=0)
            speed = processes * training_speed(first, corpus, teachers)
            deadline = time.perf_counter() + min(TIMING_SECONDS, TIMING_SHARE * seconds)
        work = len(validation_part(corpus.val, shape.train.eval_chars)) / EVALUATES_FASTER  # characters of training
        seen = min(int(speed * _in_steps(seconds, work / speed)), useful)
        shaped = _with_context_and_batch(shape, text, longest=longest, given=given, seen=seen)
        timing = max(STEADY_SECONDS, 3 * shaped.chars_per_step / speed)
        if shaped != first and timing < deadline - time.perf_counter():
            try:
                speed = processes * training_speed(shaped, corpus, teachers)
            except torch.OutOfMemoryError:  # of a GPU
                if done:
                    return
                raise
        evaluation = work / speed  # seconds
        seen = min(int(speed * _in_steps(seconds, evaluation)), useful)
        complete = _complete(shaped, text, given=given, seen=seen, evaluations=_evaluations(seconds, evaluation))
        loss = law.expected_loss(text, parameters=in_blocks(complete), seen=seen, optimizer=complete.optim.name)
        if done and loss > done[-1].loss + CLEARLY_WORSE and len(done) > 1:
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


def text_of(corpus: Corpus) -> Text:
    """What the law knows of a corpus."""
    mark, copying = mark_and_copying(corpus)
    return Text(len(corpus.train), _entropy(corpus), mark, corpus.tokenizer.vocab_size, copying)


def _entropy(corpus: Corpus) -> float:
    shares = corpus.counts[corpus.counts > 0] / corpus.counts.sum()
    return float(-(shares * np.log(shares)).sum())


def in_blocks(config: Config) -> int:
    """The parameters of the matrices in the blocks, which do the work of a step: 12 C^2 in each."""
    return 12 * config.model.n_layer * config.model.n_embd**2


def _with_context_and_batch(shape: Config, text: Text, *, longest: int, given: Collection[str], seen: int) -> Config:
    """`shape` with the context, up to the `longest` one, and the batch for a run that sees about so many characters."""
    wanted = law.context_for(text, n_embd=shape.model.n_embd, seen=seen, optimizer=shape.optim.name)
    context = max(SHORTEST_CONTEXT, min(wanted, longest))
    return _with_batch(apply_overrides(shape, _unless(given, [f"model.block_size={context}"])), text, given=given, seen=seen)


def _with_batch(config: Config, text: Text, *, given: Collection[str], seen: int) -> Config:
    """`config` with the batch for a run that sees so many characters; a multiple of train.chunks."""
    windows = round(_recipe(config, text, seen=seen).characters_per_step / config.model.block_size / config.train.accumulate)
    batch = _multiple(windows, of=max(1, config.train.chunks))
    return apply_overrides(config, _unless(given, [f"train.batch_size={batch}"]))


def _shapes(config: Config, corpus: Corpus, names: list[str], *, given: Collection[str]) -> Iterator[Config]:
    """`config` with optimizer and positions as in `names` and models of growing size, as far as what was given leaves a choice.

    Raises UserError if no model is possible.
    """
    seen, problem = [], None
    for n_layer, n_embd in law.SHAPES:
        heads = config.model.n_head if "model.n_head" in given else None
        width = config.model.n_embd if "model.n_embd" in given else _multiple(n_embd, of=2 * (heads or 1))
        changes = [f"model.n_layer={n_layer}", f"model.n_embd={width}", f"model.n_head={heads or _heads(width)}"]
        try:
            shaped = apply_overrides(config, _unless(given, [*names, *changes]))
            check_size(shaped.model, corpus.tokenizer.vocab_size)  # before a model is made
        except UserError as error:  # for example a width that is no multiple of the number of heads that was given
            problem = error
            continue
        if shaped.model not in seen:
            seen.append(shaped.model)
            yield shaped
    if not seen and problem is not None:
        raise problem


def _multiple(number: int, *, of: int) -> int:
    return of * max(1, round(number / of))


def _heads(width: int) -> int:
    """The number of heads for a width, of HEAD_SIZE channels each, or of a number of channels close to it."""
    possible = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads % 2 == 0]
    return min(possible or [1], key=lambda heads: abs(width // heads - HEAD_SIZE))


def _recipe(config: Config, text: Text, *, seen: int) -> law.Recipe:
    taught = bool(config.train.teachers)
    return law.recipe_for(text, parameters=in_blocks(config), seen=seen, optimizer=config.optim.name, taught=taught)


def _complete(config: Config, text: Text, *, given: Collection[str], seen: int, evaluations: int) -> Config:
    """`config` with what follows from the characters that are seen, besides context and batch: length, rate, regularization."""
    recipe = _recipe(config, text, seen=seen)
    steps = max(law.MIN_STEPS, seen // config.chars_per_step)
    interval = -(-steps // evaluations)  # rounded down, a few steps would be left for one more evaluation
    settings = {
        "model.dropout": recipe.dropout,
        "optim.weight_decay": recipe.weight_decay,
        "optim.learning_rate": recipe.learning_rate,
        "optim.momentum": recipe.momentum,
        "optim.warmup_steps": min(100, steps // 10),
        "train.max_steps": steps,
        "train.max_epochs": law.MAX_EPOCHS,
        "train.patience": 3 if seen > PATIENT_EPOCHS * text.characters else 0,
        "train.eval_interval": interval,
        "checkpoint.interval": interval,
    }
    return apply_overrides(config, _unless(given, [f"{key}={value}" for key, value in settings.items()]))


def _unless(given: Collection[str], settings: list[str]) -> list[str]:
    return [setting for setting in settings if setting.partition("=")[0] not in given]


def training_speed(config: Config, corpus: Corpus, teachers: Sequence[Teacher] = ()) -> float:
    """Characters a second of training `config` here, from the fastest of a few steps of a model that is then discarded."""
    config = apply_overrides(config, ["runtime.compile=off"])  # compiling takes longer than the choice may
    runtime = choose_runtime(config)
    model = GPT(config.model, corpus.tokenizer.vocab_size)
    trainer = Trainer(model, corpus.train, config, runtime=runtime, teachers=models_of(teachers))
    seconds: list[float] = []
    with ThreadWaiting(runtime):
        trainer.step()  # allocates memory
        while sum(seconds) < STEADY_SECONDS or (len(seconds) < 3 and sum(seconds) < 2 * STEADY_SECONDS):
            started = time.perf_counter()
            trainer.step()
            seconds.append(time.perf_counter() - started)
    return config.chars_per_step / min(seconds)


def _notices(
    best: Candidate, candidates: list[Candidate], text: Text, *, seconds: float, is_second: bool = False
) -> Iterator[tuple[str, str]]:
    """What was chosen, and the loss to expect: of the run, or of the second one."""
    config, model = best.config, best.config.model
    how, which = ("two runs", " of the second run") if is_second else (config.optim.name, "")
    epochs = config.train.max_steps * config.chars_per_step / text.characters
    yield (
        "chosen",
        f"{_millions(best.parameters)} parameters ({model.n_layer} layers, width {model.n_embd}, context {model.block_size}): "
        f"{clock(seconds)} at {best.speed:,.0f} characters a second see the text {epochs:.1f} times",
    )
    yield (
        "chosen",
        f"{OPTIMIZERS[config.optim.name].label}, rate {config.optim.learning_rate:g}; "
        f"weight decay {config.optim.weight_decay:g} and dropout {model.dropout:g} for {epochs:.1f} epochs; "
        f"{config.chars_per_step:,} characters in a step",
    )
    loss, low, high = best.announced(text, how=how)
    yield "expected", f"validation loss{which} {loss:z.2f} ({low:z.2f} to {high:z.2f}), an n-gram model has {text.mark:z.2f}"
    others = ", ".join(candidate.describe(text, how=how) for candidate in candidates if candidate.parameters != best.parameters)
    if others:
        yield "considered", others


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.1f}M" if parameters >= 950_000 else f"{parameters / 1e6:.2f}M"


def regularized(config: Config, corpus: Corpus, *, given: Collection[str]) -> tuple[Config, str]:
    """`config`, whose length was given, with weight decay and dropout for its epochs, and a line on it; empty if they stay."""
    seen = config.train.max_steps * config.chars_per_step
    text = Text(len(corpus.train), 0.0, mark=0.0, vocabulary=corpus.tokenizer.vocab_size)
    recipe = _recipe(config, text, seen=seen)
    settings = [f"optim.weight_decay={recipe.weight_decay:g}", f"model.dropout={recipe.dropout:g}"]
    changed = apply_overrides(config, _unless(given, settings))
    if changed == config:
        return config, ""
    regular = f"weight decay {changed.optim.weight_decay:g} and dropout {changed.model.dropout:g}"
    return changed, f"{regular}, since the run sees the text {seen / text.characters:.1f} times"
