"""Describes a run: its settings before it starts, and what to expect once its speed is known.

`python -m chargpt text TEXT` prints the same without training, from the same functions.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from chargpt.config import Config
from chargpt.runs.run import Run
from chargpt.terminal import shown
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus
from chargpt.text.report import examine
from chargpt.training.evaluation import validation_part
from chargpt.training.options import parse_options
from chargpt.training.progress_bar import clock
from chargpt.training.runtime import choose_runtime
from chargpt.training.startup import new_model
from chargpt.training.trainer import Trainer


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 layer, 2 layers."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def describe(trainer: Trainer, corpus: Corpus, run: Run | None) -> list[str]:
    """Every choice that was made for the user, a line each; for a new run, or none, with the report on its text."""
    config, model = trainer.config, trainer.config.model
    lines = corpus.describe()
    if run is None or run.saved is None:
        lines += examine(corpus)
    evaluated = len(validation_part(corpus.val, config.train.eval_chars)) - 1
    if evaluated < len(corpus.val) - 1:
        lines.append(f"evaluated   on the first {evaluated:,} characters of the validation part; train.eval_chars=0 uses all")
    epochs = config.train.max_steps * config.chars_per_step / len(corpus.train)
    lines += [
        f"model       {trainer.model.parameter_count():,} parameters: {plural(model.n_layer, 'layer')}, "
        f"{plural(model.n_head, 'head')}, width {model.n_embd}, context {model.block_size}, {model.positions} positions, "
        f"dropout {model.dropout:g}",
        f"machine     {trainer.runtime.describe()}",
        f"training    {plural(config.train.max_steps, 'step')} of {config.chars_per_step:,} characters, {epochs:.1f} epochs; "
        f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule",
    ]
    if run is not None:
        lines.append(
            f"run         {shown(run.folder)}   (curves: python -m tensorboard.main --logdir {shown(run.folder.parent)})"
        )
    return lines


def estimate(trainer: Trainer, corpus: Corpus) -> str:
    """How long the training takes, from a few steps without updates: to be shown before the first evaluation."""
    config, step = trainer.config, seconds_per_step(trainer)
    left = config.train.max_steps - trainer.progress.step
    # An evaluation computes no gradient, which is two thirds of a step.
    evaluated = len(validation_part(corpus.val, config.train.eval_chars)) / config.chars_per_step
    total = step * (left + (1 + left // config.train.eval_interval) * evaluated / 3)
    return f"{1000 * step:.1f} ms a step, {clock(total)} for {plural(left, 'step')} and their evaluations"


def seconds_per_step(trainer: Trainer) -> float:
    """The time of a step, from the fastest of a few gradients that are discarded; takes some seconds at most."""
    seconds: list[float] = []
    while len(seconds) < 4 and sum(seconds) < 3:
        started = time.perf_counter()
        trainer.rehearse()
        seconds.append(time.perf_counter() - started)
    return min(seconds) * trainer.config.train.accumulate


def outlook(corpus: EncodedText, config: Config, *, parameters: int, characters_per_second: float) -> str:
    """A line on what that many parameters, trained as `config` says, mean for this text and this machine."""
    epochs = config.train.max_steps * config.chars_per_step / len(corpus.train)
    minutes = config.train.max_steps * config.chars_per_step / characters_per_second / 60
    per_character = 37 * config.model.n_layer * config.model.n_embd + 3 * corpus.tokenizer.vocab_size
    memory = 16 * parameters + 4 * config.train.batch_size * config.model.block_size * per_character
    expected = _overfitting(epochs, parameters / len(corpus.train))
    cost = f"about {clock(60 * minutes)} and {max(memory, 1e8) / 1e9:.1f} GB"
    return f"outlook     {epochs:.1f} epochs for {parameters:,} parameters: {expected}; {cost}"


def _overfitting(epochs: float, parameters_per_character: float) -> str:
    """What to expect of so many epochs.

    Up to 4 epochs are nearly as good as new text; beyond about 16 they teach little (Muennighoff et al. 2023, arXiv
    2305.16264), and a model with more parameters than characters then learns the text by heart.
    """
    if epochs < 1:
        return "the run will not see all of the text; more steps would help"
    if epochs <= 4:
        return "no overfitting expected"
    if epochs <= 16 or parameters_per_character < 1:
        return "little overfitting expected; watch val/loss"
    return "overfitting expected: the best checkpoint will be an early one; use more text, more weight decay or a smaller model"


def main(argv: Sequence[str]) -> int:
    """`python -m chargpt text`: what a text is like, and what to expect of a model trained on it."""
    root = Path(__file__).parents[2]
    options = parse_options(argv, program="python -m chargpt text")
    model, corpus, config = new_model(options, root=root)
    trainer = Trainer(model, corpus.train, config, runtime=choose_runtime(config))
    print(*describe(trainer, corpus, None), sep="\n", flush=True)
    speed, parameters = config.chars_per_step / seconds_per_step(trainer), model.parameter_count()
    print(outlook(corpus, config, parameters=parameters, characters_per_second=speed))
    return 0
