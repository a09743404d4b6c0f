"""A training under way: what it consists of, how it begins, how it is saved, and how it is picked up again."""

import dataclasses
import fcntl
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from chargpt.config import Config, apply_overrides, difference, to_dict, to_yaml
from chargpt.runs.checkpoint import (
    TRAINING,
    Checkpoint,
    CheckpointError,
    check_tensors,
    mark_best,
    newest,
    prune,
    publish,
    remove_orphans,
    steps,
)
from chargpt.runs.load import check_size, expected_weights, find_run, restore_model, settings_of
from chargpt.runs.start_from import transplant
from chargpt.terminal import UserError, one_line, shown
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.optimizers import Optimizer, kind_of
from chargpt.training.runtime import WORTH_COMPILING, Runtime, choose_runtime
from chargpt.training.weights import Weights
from model import GPT

# A resumed run may change how it goes on, never what it has been: these decide the model or which text a step reads.
FIXED = ("model.", "data.", "train.seed", "train.batch_size", "train.accumulate", "optim.name")

# What a run that died before its first checkpoint leaves in its folder.
LEFT_BEHIND = re.compile(r"config\.yaml|metrics\.jsonl|events\.out\.tfevents\..*|\..*\.tmp-\d+")


@dataclass
class Progress:
    """Where a run stands. With weights and optimizer, everything that the rest of the run depends on."""

    step: int = 0
    evaluated: int | None = None  # the step of the last evaluation
    val_loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    loss_sum: float = 0.0  # of the steps since the last log
    loss_count: int = 0
    skipped: list[int] = dataclasses.field(default_factory=list)  # steps whose loss was not finite, each one a rollback


class Lock:
    """Keeps other processes from writing the same run, for as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{shown(folder)}: another process is training this run; wait for it, or stop it") from None

    def __del__(self) -> None:
        os.close(self.folder)


@dataclass
class Run:
    """The folder of a training, its settings, and the objects made from them."""

    folder: Path
    texts: list[str]
    config: Config
    runtime: Runtime
    corpus: Corpus
    weights: Weights
    optimizer: Optimizer
    progress: Progress
    lock: "Lock"
    saved: tuple[Progress, Config] | None = None  # what the newest checkpoint holds

    @property
    def model(self) -> GPT:
        """The model in float32, as it is saved; `weights.working` is the one to compute with."""
        return self.weights.model

    @property
    def chars_per_step(self) -> int:
        return self.config.chars_per_step


def begin(
    texts: list[str],
    config: Config,
    *,
    name: str | None,
    checkpoints: Path,
    vocabulary: Tokenizer | None,
    source: Checkpoint | None,
    suit: Callable[[Config, Corpus], Config] = lambda config, corpus: config,
) -> Run:
    """A run at step 0. `vocabulary` and `source`, weights to start from, may come from another run; `suit` may change the
    settings when the text is known.

    Raises UserError if a run of that name exists.
    """
    corpus = load_corpus(texts, config.data, root=checkpoints.parent, block_size=config.model.block_size, tokenizer=vocabulary)
    check_size(config.model, corpus.tokenizer.vocab_size)
    config = suit(config, corpus)
    worth_compiling = config.train.max_steps * config.chars_per_step >= WORTH_COMPILING
    runtime = choose_runtime(config.runtime, worth_compiling=worth_compiling)
    folder = _new_folder(corpus.name if name is None else name, checkpoints)
    torch.manual_seed(config.train.seed)
    model = GPT(config.model, corpus.tokenizer.vocab_size)
    if source is not None:
        for line in transplant(source, model, corpus.tokenizer):
            say("begun from", line)
    model.to(runtime.device)
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    remove_orphans(folder)
    texts = [_absolute(text) for text in texts]
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, val_text=_absolute(config.data.val_text)))
    weights = Weights(model, runtime.precision, kind=kind_of, attention=runtime.attention)
    return Run(folder, texts, config, runtime, corpus, weights, Optimizer(weights, config.optim), Progress(), lock)


def _absolute(text: str) -> str:
    """A path that holds from any folder; `-` and names of corpora stay as they are."""
    return text if text in ("", "-") or not os.path.exists(text) else str(Path(text).resolve())


def folder_of(name: str, checkpoints: Path) -> Path:
    """Where a run of that name goes: a name with a slash is a path, any other a folder in `checkpoints`.

    Raises UserError for a name that is none.
    """
    if name in ("", ".", "..") or not name.isprintable() or Path(name).name in ("", ".."):
        raise UserError(f"--run: {name!r} given; use a name such as poems, or a path such as /tmp/poems")
    return Path(name) if "/" in name else checkpoints / name


def _new_folder(name: str, checkpoints: Path) -> Path:
    """The same for a new run. Raises UserError if it already holds a run or anything else."""
    folder = folder_of(name, checkpoints)
    if folder.is_dir() and steps(folder):
        raise UserError(f"{shown(folder)}: a run of this name exists; go on with it by --resume, or name another by --run NAME")
    if folder.is_dir() and any(not LEFT_BEHIND.fullmatch(path.name) for path in folder.iterdir()):
        raise UserError(f"{shown(folder)}: a folder that is not a run; name another by --run NAME")
    return folder


def resume(name: str | None, settings: list[str], *, checkpoints: Path) -> Run:
    """The run as its newest valid checkpoint left it. Raises UserError when it cannot go on as the same run."""
    folder = find_run(name, checkpoints)
    lock = Lock(folder)
    remove_orphans(folder)
    checkpoint, warnings = newest(folder, expected=expected_weights)
    for warning in warnings:
        say("warning", one_line(warning))
    model, tokenizer, saved = restore_model(checkpoint)
    # Where texts are cached is this machine's affair, and nothing that a run from elsewhere may decide.
    saved = dataclasses.replace(saved, data=dataclasses.replace(saved.data, cache=""))
    config = apply_overrides(saved, settings)
    for change in difference(saved, config):
        if change.startswith(FIXED) and not change.startswith("data.cache"):
            raise UserError(f"{change}: cannot change in a run that has begun; start a new one with --run NAME")
        say("changed", change)
    state = checkpoint.state
    if config.train.max_steps < checkpoint.step:
        raise UserError(
            f"train.max_steps: {config.train.max_steps:,} given; the run stands at step {checkpoint.step:,} already"
        )
    corpus = corpus_of(checkpoint, config, tokenizer, root=checkpoints.parent)
    runtime = choose_runtime(config.runtime, worth_compiling=state["environment"].get("compile") is True)
    model.to(runtime.device)
    weights = Weights(model, runtime.precision, kind=kind_of, attention=runtime.attention)
    run = Run(folder, state["texts"], config, runtime, corpus, weights, Optimizer(weights, config.optim), Progress(), lock)
    restore_training(run, checkpoint)
    say_what_differs(state["environment"], runtime)
    say("resumed", f"{shown(checkpoint.path)}, {config.train.max_steps - run.progress.step:,} steps to go")
    return run


def corpus_of(checkpoint: Checkpoint, config: Config, tokenizer: Tokenizer, *, root: Path) -> Corpus:
    """The corpus that a run was trained on. Raises UserError if its text is no longer the same."""
    _check_origin(checkpoint, config)
    texts, fingerprint = checkpoint.state["texts"], checkpoint.state.get("fingerprint")
    if "-" not in texts:
        corpus = load_corpus(texts, config.data, root=root, block_size=config.model.block_size, tokenizer=tokenizer)
    else:  # standard input is gone; what it held may still be there, encoded
        corpus = cached_corpus(texts, config.data, root=root, fingerprint=str(fingerprint))
    if corpus is None or corpus.fingerprint != fingerprint or corpus.tokenizer.to_json() != tokenizer.to_json():
        run = shown(checkpoint.path.parent)
        raise UserError(
            f"{run}: its text has changed or is gone since the run began; restore it, or start a new run with --run NAME"
        )
    return corpus


def _check_origin(checkpoint: Checkpoint, config: Config) -> None:
    """Raise CheckpointError unless the state names an environment, and texts that can be read without waiting for ever."""
    texts, environment = checkpoint.state.get("texts"), checkpoint.state.get("environment")
    if not isinstance(environment, dict) or not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise CheckpointError(f"{shown(checkpoint.path)}: does not say what it was trained on; use another checkpoint")
    for path in map(Path, [*texts, config.data.val_text]):
        if "\0" not in str(path) and path.exists() and not (path.is_file() or path.is_dir()):
            raise CheckpointError(
                f"{shown(checkpoint.path)}: was trained on {shown(path)}, which is no file; use another checkpoint"
            )


def restore_training(run: Run, checkpoint: Checkpoint) -> None:
    """Put optimizer and progress back as the checkpoint has them."""
    run.progress = _read_progress(checkpoint)
    check_tensors(checkpoint.training, run.optimizer.tensors(), where=shown(checkpoint.path / TRAINING))
    run.optimizer.load(checkpoint.training)
    run.saved = (dataclasses.replace(run.progress), settings_of(checkpoint))
    if run.progress.best_step == checkpoint.step:  # a crash may have come between the checkpoint and this mark
        mark_best(checkpoint.path, run.progress.best_loss)


def _read_progress(checkpoint: Checkpoint) -> Progress:
    """The progress in a checkpoint's state. Raises CheckpointError if somebody else has written it."""
    whole, number = (int, type(None)), (int, float, type(None))
    allowed = {
        "step": int,
        "evaluated": whole,
        "val_loss": number,
        "best_loss": number,
        "best_step": whole,
        "loss_sum": (int, float),
        "loss_count": int,
        "skipped": list,
    }
    found = checkpoint.state.get("progress")
    if (
        not isinstance(found, dict)
        or found.keys() != allowed.keys()
        or not all(isinstance(found[name], kind) for name, kind in allowed.items())
        or not all(isinstance(step, int) for step in found["skipped"])
        or found["step"] != checkpoint.step
    ):
        raise CheckpointError(f"{shown(checkpoint.path)}: its progress is not that of a run; use another checkpoint")
    return Progress(**found)


def roll_back(run: Run, step: int) -> Path:
    """Return to the newest valid checkpoint, to go on from there at half the rate and without the batch of `step`, which failed."""
    failed = [*run.progress.skipped, step]
    checkpoint, _ = newest(run.folder, expected=expected_weights)
    run.model.load_state_dict(checkpoint.weights)
    run.weights.refresh()
    restore_training(run, checkpoint)
    run.progress.skipped = failed
    return checkpoint.path


def say_what_differs(before: dict, runtime: Runtime) -> None:
    """Warn, in one line, that a run cannot go on to the same bits here."""
    changes = [
        f"{key} {before.get(key)} -> {value}" for key, value in runtime.environment().items() if before.get(key) != value
    ]
    if changes:
        say("warning", f"not the machine of before ({', '.join(changes)}): the run goes on, but not to the same bits")


def save(run: Run) -> None:
    """Publish a checkpoint of this step, mark it if it is the best, drop the oldest ones."""
    progress = run.progress
    state = {
        "config": to_dict(run.config),
        "tokenizer": run.corpus.tokenizer.to_json(),
        "texts": run.texts,
        "fingerprint": run.corpus.fingerprint,
        "progress": dataclasses.asdict(progress),
        "val_loss": progress.val_loss if progress.evaluated == progress.step else None,
        "environment": run.runtime.environment(),
    }
    path = publish(run.folder, progress.step, weights=run.model.state_dict(), training=run.optimizer.tensors(), state=state)
    if progress.best_step == progress.step:
        mark_best(path, progress.best_loss)
    run.saved = (dataclasses.replace(progress), run.config)
    for problem in prune(path, run.config.checkpoint.keep):
        say("warning", one_line(problem))


def write_config(run: Run) -> None:
    """The resolved settings, for people; a resumed run reads its checkpoint's."""
    aside = run.folder / f".config.yaml.tmp-{os.getpid()}"
    with open(aside, "x", encoding="utf-8") as file:
        file.write(to_yaml(run.config))
    os.replace(aside, run.folder / "config.yaml")  # whatever stands there, a link to elsewhere included


def say(what: str, text: str) -> None:
    """A line of what was decided, in two columns."""
    print(f"{what:<12}{text}", flush=True)
