"""What a training will be like, before its first step: its text, its model, its time, its memory, and what to expect."""

import time
from collections.abc import Callable
from typing import NamedTuple

from chargpt.config import Config, apply_overrides
from chargpt.planning.candidates import in_blocks
from chargpt.planning.clock import longest_run
from chargpt.planning.law import MAX_EPOCHS, Text, regularization
from chargpt.terminal import LABEL, Notice, clock, plural, shown
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus
from chargpt.text.report import NOT_CHECKED, NOTHING_ODD, examine
from chargpt.training.evaluation import validation_part
from chargpt.training.optimizers import OPTIMIZERS
from chargpt.training.thread_waiting import ThreadWaiting
from chargpt.training.trainer import Trainer

# Epochs^2 times parameters for each character, from which on the loss of a run with the recommended regularization is more than
# 0.3 nats lower on training text than on validation text.
MEMORISED = 15_000


class StepTimes(NamedTuple):
    """What a step spends its time on, in seconds."""

    gradient: float  # of all micro-batches
    update: float  # of the weights

    @property
    def step(self) -> float:
        return self.gradient + self.update


def describe_text(corpus: Corpus) -> list[Notice]:
    """How long the text is, its vocabulary, its split, and notes on how it was read."""
    return [_noticed(line) for line in corpus.describe()]


def examine_text(corpus: Corpus) -> list[Notice]:
    """What is odd about the text, and the loss to beat. Takes seconds for a long text."""
    return [_noticed(line) for line in examine(corpus)]


def _noticed(line: str) -> Notice:
    """A line with a label as a notice: a detail, unless it is for everybody."""
    label, text = line[:LABEL].rstrip(), line[LABEL:]
    is_odd = label == "odd" and not text.startswith((NOTHING_ODD, NOT_CHECKED))
    return Notice(label, text, "line" if label in ("warning", "note") or is_odd else "detail")


def describe_training(trainer: Trainer, corpus: Corpus, *, seconds: float | None, steps: int | None = None) -> list[Notice]:
    """The model, the machine and the length of a training that begins or continues, how long it takes and what to expect.

    `seconds` is its time limit, if it has one, and `steps` how many are expected to fit, if that is known. Times a few steps,
    which are discarded, unless the training is finished.
    """
    config, model = trainer.config, trainer.config.model
    notices = []
    evaluated = len(validation_part(corpus.val, config.train.eval_chars)) - 1
    if evaluated < len(corpus.val) - 1:
        some = f"on the first {evaluated:,} characters of the validation part; train.eval_chars=0 uses all"
        notices.append(Notice("evaluated", some, "detail"))
    most = f", at most {config.train.max_epochs:g} epochs" if config.train.max_epochs else ""
    length = f"as many steps as fit into {clock(seconds or 0)}{most}, each"
    if seconds is None:
        length = plural(config.train.max_steps, "step")
    epochs = "" if seconds else f", {config.train.max_steps * config.chars_per_step / len(corpus.train):.1f} epochs"
    size = f"{trainer.model.parameter_count():,} parameters: {plural(model.n_layer, 'layer')}"
    shape = f"width {model.n_embd}, context {model.block_size}, {model.positions} positions"
    notices += [
        Notice("model", f"{size}, {plural(model.n_head, 'head')}, {shape}, dropout {model.dropout:g}", "detail"),
        Notice("model", f"{size}, {shape}; {OPTIMIZERS[config.optim.name].label}", "summary"),
        Notice("machine", trainer.runtime.describe(), "detail"),
        Notice(
            "training",
            f"{length} of {config.chars_per_step:,} characters{epochs}; "
            f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule",
            "detail",
        ),
    ]
    if config.train.teachers:
        notices.append(Notice("teachers", ", ".join(map(shown, config.train.teacher_names)), "detail"))
    if not trainer.is_finished:
        times = step_times(trainer)
        notices.append(Notice("estimate", estimate(trainer, corpus, times, seconds=seconds), "detail"))
        notices.append(Notice("training", _training_in_brief(trainer, corpus, times, seconds=seconds), "summary"))
        steps = steps or _rest(trainer, corpus, times, seconds=seconds)[0] + trainer.progress.step
        whole = apply_overrides(config, [f"train.max_steps={steps}"])
        speed, parameters = config.chars_per_step / times.step, trainer.model.parameter_count()
        known = outlook(corpus, whole, parameters=parameters, characters_per_second=speed)
        notices.append(Notice("outlook", known, "detail"))
    if trainer.runtime.slower:
        notices.append(Notice("slower", trainer.runtime.slower))
    return notices


def _training_in_brief(trainer: Trainer, corpus: Corpus, times: StepTimes, *, seconds: float | None) -> str:
    config, machine = trainer.config, trainer.runtime.describe()
    steps, duration = _rest(trainer, corpus, times, seconds=seconds)
    if seconds is not None and steps < longest_run(config, characters=len(corpus.train)) - trainer.progress.step:
        return f"{clock(seconds)}, about {plural(steps, 'step')} on {machine}"
    epochs = steps * config.chars_per_step / len(corpus.train)
    return f"{plural(steps, 'step')}, {epochs:.1f} epochs, about {clock(duration)} on {machine}"


def estimate(trainer: Trainer, corpus: Corpus, times: StepTimes, *, seconds: float | None = None) -> str:
    """How long the training takes, or how many steps fit into its `seconds`, if a step takes `times`."""
    config, step = trainer.config, f"{1000 * times.step:.1f} ms a step"
    if seconds is not None:
        steps = steps_in(seconds, config, corpus, times)
        if steps < longest_run(config, characters=len(corpus.train)):
            return f"{step}, about {plural(steps, 'step')} in {clock(seconds)}"
    steps, duration = _rest(trainer, corpus, times, seconds=seconds)
    return f"{step}, {clock(duration)} for {plural(steps, 'step')} and their evaluations"


def _rest(trainer: Trainer, corpus: Corpus, times: StepTimes, *, seconds: float | None) -> tuple[int, float]:
    """About how many steps are left, and how many seconds they take with evaluations, if the run has at most `seconds`."""
    config, left = trainer.config, trainer.config.train.max_steps - trainer.progress.step
    if seconds is not None:
        longest = longest_run(config, characters=len(corpus.train)) - trainer.progress.step
        left = max(1, min(longest, steps_in(seconds, config, corpus, times)))
    evaluation = _evaluation_seconds(config, corpus, times)
    return left, times.step * left + (1 + left // config.steps_between_evaluations) * evaluation


def steps_in(seconds: float, config: Config, corpus: Corpus, times: StepTimes) -> int:
    """About how many steps fit into a time, with evaluations."""
    evaluation = _evaluation_seconds(config, corpus, times)
    return max(1, int((seconds - evaluation) / (times.step + evaluation / config.train.eval_interval)))


def _evaluation_seconds(config: Config, corpus: Corpus, times: StepTimes) -> float:
    """About how long an evaluation takes: it computes the loss alone, which is a third of the work for its gradient."""
    steps = len(validation_part(corpus.val, config.train.eval_chars)) / config.chars_per_step
    return steps * times.gradient / 3


def step_times(trainer: Trainer) -> StepTimes:
    """The times of a step's parts, from the fastest of a few that are computed and discarded.

    This takes some seconds at most, and with compiling about a minute, which the first step then does not need.
    """
    gradients: list[float] = []
    updates: list[float] = []
    with ThreadWaiting(trainer.runtime):
        if trainer.runtime.compile:  # the first call compiles, the second one records CUDA graphs
            trainer.rehearse()
            trainer.rehearse()
        while _wants_another(gradients):
            gradients.append(_seconds(trainer.rehearse))
        while _wants_another(updates):
            updates.append(_seconds(trainer.rehearse_update))
    return StepTimes(min(gradients) * trainer.config.train.accumulate, min(updates))


def _wants_another(seconds: list[float]) -> bool:
    return len(seconds) < 2 and sum(seconds) < 3 or len(seconds) < 4 and sum(seconds) < 0.3


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def memory_needed(config: Config, *, parameters: int, vocab_size: int) -> int:
    """About how many bytes a training takes beyond torch: weights, gradient, optimizer, and what a step computes."""
    # Measured: 22 to 27 numbers for each layer and channel with attention compiled from C, 25 to 34 with torch's.
    per_character = 29 * config.model.n_layer * config.model.n_embd + 5 * vocab_size
    return 16 * parameters + 4 * config.train.batch_size * config.model.block_size * per_character


def outlook(corpus: EncodedText, config: Config, *, parameters: int, characters_per_second: float) -> str:
    """What that many parameters, trained as `config` says, mean for this text and this machine."""
    epochs = config.train.max_steps * config.chars_per_step / len(corpus.train)
    minutes = config.train.max_steps * config.chars_per_step / characters_per_second / 60
    memory = memory_needed(config, parameters=parameters, vocab_size=corpus.tokenizer.vocab_size)
    text = Text(len(corpus.train), 0.0, mark=0.0, vocabulary=corpus.tokenizer.vocab_size)
    expected = _overfitting(text, config, epochs=epochs, parameters=parameters)
    cost = f"about {clock(60 * minutes)} and {max(memory, 1e8) / 1e9:.1f} GB"
    return f"{epochs:.1f} epochs for {parameters:,} parameters: {expected}; {cost}"


def _overfitting(text: Text, config: Config, *, epochs: float, parameters: int) -> str:
    """What to expect of so many epochs, and what to use against it, other than what is set already.

    Up to 4 epochs are nearly as good as new text; beyond about 16 they teach little (Muennighoff et al. 2023, arXiv
    2305.16264), and a model with more parameters than characters then memorises the text.
    """
    if epochs < 1:
        return "the run will not see all of the text; more steps would help"
    if epochs <= 4:
        return "no overfitting expected"
    # The settings were chosen for about this length: what a somewhat shorter one does not need is not advised.
    seen, taught = 0.8 * epochs * text.characters, bool(config.train.teachers)
    parameters = min(parameters, in_blocks(config))  # as the choice counts them
    optimizer = config.optim.name
    decay, dropout = regularization(text, parameters=parameters, seen=seen, taught=taught, optimizer=optimizer)
    more = [f"optim.weight_decay={decay:g}"] if config.optim.weight_decay < decay else []
    more += [f"model.dropout={dropout:g}"] if config.model.dropout < dropout else []
    if not more and not taught and epochs**2 * parameters > MEMORISED * text.characters:
        return "the model will memorise parts of the text; sample.py uses the best checkpoint"
    if epochs <= 16 or parameters < text.characters or (epochs < MAX_EPOCHS + 1 and not more):
        return "little overfitting expected; watch val/loss"
    return f"overfitting expected: the best checkpoint will be an early one; use {', '.join([*more, 'a smaller model'])}"
