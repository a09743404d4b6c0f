"""Describes a run: its settings before it starts, and what to expect once its speed is known.

`python -m chargpt text TEXT` prints the same without training, from the same functions.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from chargpt.config import Config, apply_overrides
from chargpt.planning.candidates import in_blocks
from chargpt.planning.cli import TrainOptions, parse_text_options
from chargpt.planning.law import MAX_EPOCHS, Text, regularization
from chargpt.planning.teachers import load_teachers, pupil_folder
from chargpt.project import project_root
from chargpt.runs.run import DETAILS, Run
from chargpt.session.notices import Notices
from chargpt.session.processes import Training
from chargpt.session.start import longest_run, new_model
from chargpt.terminal import LABEL, clock, one_line, plural, say, shown, wrapped
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus
from chargpt.text.report import NOT_CHECKED, NOTHING_ODD, examine
from chargpt.training.evaluation import validation_part
from chargpt.training.optimizers import OPTIMIZERS
from chargpt.training.runtime import choose_runtime
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


def print_choices(training: Training, notices: Notices) -> None:
    """Say what will be trained, and unless the training is finished, how long it takes. A new run keeps it in details.txt."""
    trainer, corpus, run, seconds = training
    for line in describe(trainer, corpus, run, seconds):
        label, text = line[:LABEL].rstrip(), line[LABEL:]
        is_odd = label == "odd" and not text.startswith((NOTHING_ODD, NOT_CHECKED))
        (notices.say if label in ("warning", "note") or is_odd else notices.detail)(label, text)
    if trainer.runtime.slower:
        notices.later("slower", trainer.runtime.slower)
    notices.summary("model", _model_in_brief(trainer))
    if not trainer.is_finished:
        times = step_times(trainer)
        notices.detail("estimate", estimate(trainer, corpus, times, seconds=seconds))
        notices.summary("training", _training_in_brief(trainer, corpus, times, seconds=seconds))
    notices.release()
    for problem in (run.write_config(trainer.config), run.write_details(notices.lines) if run.saved is None else None):
        if problem:
            notices.say("warning", problem)
    every_choice = f"{DETAILS} there" if run.saved is None else "--verbose"
    curves = f"python -m tensorboard.main --logdir {shown(run.folder.parent)}"
    notices.summary("run", f"{shown(run.folder)}   (every choice: {every_choice}; curves: {curves})")


def _model_in_brief(trainer: Trainer) -> str:
    model, optimizer = trainer.config.model, OPTIMIZERS[trainer.config.optim.name].label
    shape = f"{plural(model.n_layer, 'layer')}, width {model.n_embd}, context {model.block_size}"
    return f"{trainer.model.parameter_count():,} parameters: {shape}, {model.positions} positions; {optimizer}"


def _training_in_brief(trainer: Trainer, corpus: Corpus, times: StepTimes, *, seconds: float | None) -> str:
    config, machine = trainer.config, trainer.runtime.describe()
    steps, duration = _rest(trainer, corpus, times, seconds=seconds)
    if seconds is not None and steps < longest_run(config, characters=len(corpus.train)) - trainer.progress.step:
        return f"{clock(seconds)}, about {plural(steps, 'step')} on {machine}"
    epochs = steps * config.chars_per_step / len(corpus.train)
    return f"{plural(steps, 'step')}, {epochs:.1f} epochs, about {clock(duration)} on {machine}"


def describe(trainer: Trainer, corpus: Corpus, run: Run | None, seconds: float | None = None) -> list[str]:
    """Every choice that was made for the user, a line each.

    For a new run, or none, they include the report on the text; not for the second of two runs, as the first has printed it.
    `seconds` is the time limit of the training, if it has one.
    """
    config, model = trainer.config, trainer.config.model
    lines = corpus.describe()
    teachers = [Path(name).parent for name in config.train.teacher_names]
    is_second = run is not None and run.folder.resolve() in map(pupil_folder, teachers)
    if not is_second and (run is None or run.saved is None):
        lines += examine(corpus)
    evaluated = len(validation_part(corpus.val, config.train.eval_chars)) - 1
    if evaluated < len(corpus.val) - 1:
        lines.append(f"evaluated   on the first {evaluated:,} characters of the validation part; train.eval_chars=0 uses all")
    most = f", at most {config.train.max_epochs:g} epochs" if config.train.max_epochs else ""
    length = f"as many steps as fit into {clock(seconds or 0)}{most}, each"
    if seconds is None:
        length = plural(config.train.max_steps, "step")
    epochs = "" if seconds else f", {config.train.max_steps * config.chars_per_step / len(corpus.train):.1f} epochs"
    lines += [
        f"model       {trainer.model.parameter_count():,} parameters: {plural(model.n_layer, 'layer')}, "
        f"{plural(model.n_head, 'head')}, width {model.n_embd}, context {model.block_size}, {model.positions} positions, "
        f"dropout {model.dropout:g}",
        f"machine     {trainer.runtime.describe()}",
        f"training    {length} of {config.chars_per_step:,} characters{epochs}; "
        f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule",
    ]
    if config.train.teachers:
        lines.append(f"teachers    {', '.join(map(shown, config.train.teacher_names))}")
    if run is not None:
        lines.append(
            f"run         {shown(run.folder)}   (curves: python -m tensorboard.main --logdir {shown(run.folder.parent)})"
        )
    return lines


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


def look_ahead(options: TrainOptions, *, root: Path) -> int:
    """--dry-run and --find-lr: what a training would be like; neither makes a run. Returns the exit code. Raises UserError."""
    if options.dry_run:
        return preview(options, root=root)
    from chargpt.session.rate_finder import find_learning_rate  # and what draws its curve

    return find_learning_rate(options, root=root)


def preview(options: TrainOptions, *, root: Path) -> int:
    """Print what a training would begin with and what to expect of it. Makes no run. Returns the exit code."""
    model, corpus, config, minutes, has_length = new_model(options, root=root)
    teachers = load_teachers(config, corpus.tokenizer)
    trainer = Trainer(model, corpus.train, config, runtime=choose_runtime(config), teachers=teachers)
    seconds = None if minutes is None else 60 * minutes
    for line in describe(trainer, corpus, None, seconds):
        print(wrapped(one_line(line)), flush=True)
    if trainer.runtime.slower:
        say("slower", trainer.runtime.slower)
    times, parameters = step_times(trainer), model.parameter_count()
    if seconds is not None and not has_length:
        most = longest_run(config, characters=len(corpus.train))
        config = apply_overrides(config, [f"train.max_steps={min(most, steps_in(seconds, config, corpus, times))}"])
    speed = config.chars_per_step / times.step
    say("outlook", outlook(corpus, config, parameters=parameters, characters_per_second=speed))
    return 0


def main(argv: Sequence[str]) -> int:
    """`python -m chargpt text`: what a text is like, and what to expect of a model trained on it."""
    return preview(parse_text_options(argv), root=project_root())
