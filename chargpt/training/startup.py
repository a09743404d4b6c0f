"""How a training begins: a new run from settings and a text, or a run that continues where it stopped."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import torch

from chargpt.config import Config, apply_overrides, difference, to_dict
from chargpt.runs.checkpoint import TRAINING, Checkpoint, check_tensors
from chargpt.runs.load import corpus_of, find_checkpoint, find_run, without_cache
from chargpt.runs.model_shape import blank_model, check_size
from chargpt.runs.run import Run, new_folder
from chargpt.runs.start_from import start_from
from chargpt.terminal import UserError, say, shown
from chargpt.text.corpus import Corpus, absolute_paths, load_corpus
from chargpt.training.options import TrainOptions
from chargpt.training.progress_bar import clock
from chargpt.training.recipes import adapt_to_text, load_settings
from chargpt.training.runtime import WORTH_COMPILING, Runtime, choose_runtime
from chargpt.training.time_budget import SETTLING_STEPS
from chargpt.training.trainer import Trainer, TrainerState
from model import GPT

# A resumed run may not change these: they decide the model, or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "optim.name")
MINUTES_WORTH_COMPILING = 3  # with less time, compiling for a GPU takes too large a part of it; a guess, not measured


class Training(NamedTuple):
    """The objects of a training."""

    trainer: Trainer
    corpus: Corpus
    run: Run


def new_run(options: TrainOptions, *, root: Path) -> Training:
    """A run at step 0. Raises UserError, also if a run of that name exists."""
    model, corpus, config = new_model(options, root=root)
    worth_compiling = config.train.max_steps * config.chars_per_step >= WORTH_COMPILING
    runtime = choose_runtime(config, worth_compiling=worth_compiling)
    name = corpus.name if options.run is None else options.run
    run = Run(new_folder(name, root / "checkpoints"))
    new_folder(name, root / "checkpoints")  # again, now that it is locked: another process may have finished it meanwhile
    return Training(Trainer(model, corpus.train, config, runtime=runtime), corpus, run)


def new_model(options: TrainOptions, *, root: Path) -> tuple[GPT, Corpus, Config]:
    """The model that a new run starts with, its text and its settings. Raises UserError."""
    source = None if options.init_from is None else _checkpoint_of(options.init_from, root)
    vocabulary = None if options.vocab_from is None else _checkpoint_of(options.vocab_from, root).state.tokenizer
    shape = None if source is None else to_dict(source.state.config)["model"]
    config, file = load_settings(
        options.config, options.settings, presets=root / "configs", model=shape, model_from=options.init_from or ""
    )
    corpus = load_corpus(options.texts, config.data, root=root, block_size=config.model.block_size, tokenizer=vocabulary)
    config = _adapted(config, corpus, options)
    torch.manual_seed(config.train.seed)
    model = GPT(config.model, corpus.tokenizer.vocab_size)
    if source is not None:
        say("start from", start_from(source, model, corpus.tokenizer))
    say("settings", shown(file) + "".join(f", {setting}" for setting in options.settings))
    return model, corpus, config


def _adapted(config: Config, corpus: Corpus, options: TrainOptions) -> Config:
    """The settings for this text and this much time."""
    check_size(config.model, corpus.tokenizer.vocab_size)
    given = options.given
    if options.minutes is not None:
        given.add("train.max_steps")
        if options.minutes < MINUTES_WORTH_COMPILING and config.runtime.compile == "auto":
            config = apply_overrides(config, ["runtime.compile=off"])
    if options.config is None:  # the user has chosen no preset
        size = {"characters": len(corpus.train), "vocab_size": corpus.tokenizer.vocab_size}
        config, chosen = adapt_to_text(config, **size, given=given)
        if chosen:
            say("chosen", chosen)
    config = dataclasses.replace(config, data=absolute_paths(config.data))  # so that a run finds its text from any folder
    return _long_enough(config, step=0, seconds=options.minutes)


def resume_run(options: TrainOptions, *, root: Path) -> Training:
    """A run as its newest valid checkpoint left it. Raises UserError if it cannot continue as the same run."""
    run = Run(find_run(options.run, root / "checkpoints"))
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        say("warning", warning)
    config = _resumed_config(checkpoint, options)
    given = "data.cache" in options.given
    corpus = corpus_of(checkpoint, config if given else without_cache(config), root=root)
    environment = checkpoint.state.environment
    runtime = choose_runtime(config, worth_compiling=environment.get("compile") is True)
    model = blank_model(config.model, corpus.tokenizer.vocab_size)  # its weights come with the rest of the state
    trainer = Trainer(model, corpus.train, config, runtime=runtime)
    check_tensors(checkpoint.training, trainer.state().optimizer, where=shown(checkpoint.path / TRAINING))
    trainer.load(TrainerState(checkpoint.weights, checkpoint.training, checkpoint.state.progress))
    _say_what_differs(environment, runtime)
    seconds = time_limit(options, run)
    rest = f"{config.train.max_steps - checkpoint.step:,} steps" if seconds is None else clock(seconds)
    say("resumed", f"{shown(checkpoint.path)}, {rest} to go")
    return Training(trainer, corpus, run)


def _resumed_config(checkpoint: Checkpoint, options: TrainOptions) -> Config:
    """The run's settings with those that the user changes. Raises UserError for a change that makes it another run."""
    saved = checkpoint.state.config
    if options.minutes is not None or "train.max_steps" in options.given:  # --minutes had chosen it for another length
        saved = apply_overrides(saved, ["train.min_evaluations=0"])
    config = apply_overrides(saved, options.settings)
    for change in difference(saved, config):
        if change.startswith(FIXED) and not change.startswith("data.cache"):
            raise UserError(f"{change}: cannot change in a run that has begun; start a new one with --run NAME")
        say("changed", change)
    if config.train.max_steps < checkpoint.step:
        raise UserError(f"train.max_steps: {config.train.max_steps:,} given; the run is already at step {checkpoint.step:,}")
    seconds = checkpoint.state.seconds_left if options.minutes is None else 60 * options.minutes
    return _long_enough(config, step=checkpoint.step, seconds=seconds)


def _long_enough(config: Config, *, step: int, seconds: float | None) -> Config:
    """With a time limit: a run long enough to measure the speed, whatever its preset says."""
    if seconds is None:
        return config
    steps = max(step + SETTLING_STEPS + 1, config.train.max_steps)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=steps))


def time_limit(options: TrainOptions, run: Run) -> float | None:
    """The seconds that the run may take from the start of the program; None if there is no limit.

    A run that was killed before --minutes could fix its length has the rest of that time.
    """
    if options.minutes is None:
        length_given = "train.max_steps" in options.given
        return run.saved.seconds_left if run.saved and not length_given else None
    return 60 * options.minutes - min(2.0, 0.6 * options.minutes)  # the rest passes before the start and after the end


def roll_back(trainer: Trainer, run: Run, *, without: int) -> Path:
    """Return to the newest valid checkpoint, to continue at half the rate and without the batch of step `without`."""
    skipped = [*trainer.progress.skipped, without]
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        say("warning", warning)
    trainer.load(TrainerState(checkpoint.weights, checkpoint.training, checkpoint.state.progress))
    trainer.progress.skipped = skipped
    return checkpoint.path


def _checkpoint_of(name: str, root: Path) -> Checkpoint:
    checkpoint, warnings = find_checkpoint(name, root / "checkpoints")
    for warning in warnings:
        say("warning", warning)
    return checkpoint


def _say_what_differs(before: dict[str, str | int | bool], runtime: Runtime) -> None:
    """Warn, in one line, if the run cannot continue with the same bits here."""
    changes = [
        f"{key} {before.get(key)} -> {value}" for key, value in runtime.environment().items() if before.get(key) != value
    ]
    if changes:
        say("warning", f"the environment has changed ({', '.join(changes)}): the run continues, but not with the same bits")
