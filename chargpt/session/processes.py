"""How several processes begin one run: the first one decides and reads the run, the others follow.

Only the first process opens the folder of the run. It publishes the state, from which the others make the same objects; they
get weights and optimizer state from it. The text is encoded once on each machine.
"""

import dataclasses
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from chargpt.config import Config, apply, to_dict
from chargpt.parallel.group import Group
from chargpt.planning.cli import TrainOptions
from chargpt.planning.teachers import check_teachers, models_of, reopen_teachers
from chargpt.runs.model_shape import blank_model
from chargpt.runs.run import Run, SharedRun
from chargpt.runs.saved_state import SavedState
from chargpt.terminal import UserError, say
from chargpt.text.corpus import Corpus, cached_corpus, load_corpus
from chargpt.training.distillation import environment
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

# Options and settings that are paths, which may differ from machine to machine.
PATHS = ("texts", "config", "run", "init_from", "vocab_from")
PATH_SETTINGS = ("data.cache=", "data.val_text=", "train.teachers=")


class Training(NamedTuple):
    """The objects of a training."""

    trainer: Trainer
    corpus: Corpus
    run: Run
    seconds: float | None  # the time limit, from the start of the program


class Start(NamedTuple):
    """What the first process decides."""

    state: SavedState
    saved: Config | None  # the settings in the checkpoint that is resumed, before any were changed; None for a new run
    worth_compiling: bool
    teachers_at: str = ""  # the folder of the run's own copies of its teachers; empty where train.teachers is read


def publish_start(group: Group, start: Start) -> None:
    """Tell the other processes what to begin with."""
    if group.size > 1:
        saved = start.saved and to_dict(start.saved)
        group.publish("start", json.dumps([start.state.to_json(), saved, start.worth_compiling, start.teachers_at]))


def join_run(options: TrainOptions, *, root: Path, group: Group) -> Training:
    """The training that the first process has begun or resumed, without its time limit. Raises UserError."""
    data, saved, worth_compiling, teachers_at = json.loads(group.read("start"))
    state = SavedState.from_json(data)
    runtime = choose_runtime(state.config, worth_compiling=worth_compiling, group=group)
    corpus = None
    if group.local_rank == 0:  # on a machine of its own
        texts, config = options.texts or state.texts, state.config
        corpus = load_corpus(texts, config.data, root=root, block_size=config.model.block_size, tokenizer=state.tokenizer)
    copies = Path(teachers_at) if teachers_at else None
    opened, _ = reopen_teachers(state.config, copies=copies)
    check_teachers(opened, state.tokenizer, context=state.config.model.block_size)
    teachers = models_of(opened)
    compare(group, "" if corpus is None else corpus.fingerprint, environment(runtime, teachers))
    corpus = corpus or cached_corpus(state.texts, state.config.data, root=root, fingerprint=state.fingerprint)
    if corpus is None:
        raise UserError("data.cache: the first process of this machine has encoded the text, but the others do not find it")
    model = blank_model(state.config.model, state.tokenizer.vocab_size)
    trainer = Trainer(model, corpus.train, state.config, runtime=runtime, group=group, teachers=teachers)
    if saved is None:
        trainer.share_start()
        return Training(trainer, corpus, SharedRun(None), None)
    trainer.load(None)
    trainer.is_extended = options.resume and options.minutes is not None
    run = SharedRun(dataclasses.replace(state, config=apply(Config(), saved, where="start")))
    return Training(trainer, corpus, run, None)


def check_options(options: TrainOptions, group: Group) -> None:
    """Raise UserError, naming the first difference, unless all processes got the same options: those of rank 0 decide.

    On another machine than rank 0's, paths may differ; texts are compared by their content when they are read.
    """
    mine = [socket.gethostname(), _words_of(options, paths=True), _words_of(options, paths=False)]
    published = [json.loads(text) for text in group.meet("options", json.dumps(mine))]
    host, *firsts = published[0]
    for rank, (its_host, *others) in enumerate(published):
        first, other = (words[its_host != host] for words in (firsts, others))
        for name, words in first.items():
            if words != other[name]:
                what = {"texts": "TEXT", "settings": "settings"}.get(name, f"--{name.replace('_', '-')}")
                given = f"{_told(words, other[name])} on rank 0 and {_told(other[name], words)} on rank {rank}"
                raise UserError(f"{what}: {given}; give every process the same options")


def _words_of(options: TrainOptions, *, paths: bool) -> dict[str, list[str]]:
    """The options as words, by name, with or without `paths`. One that is not given has none."""
    words = {}
    for name, value in dataclasses.asdict(options).items():
        given = value if isinstance(value, list) else [] if value in (None, False) else [value]
        if paths or name not in PATHS:
            words[name] = [str(word) for word in given if paths or not str(word).startswith(PATH_SETTINGS)]
    return words


def _told(words: list[str], others: list[str]) -> str:
    """Those of `words` that are not among `others`; all if only their order differs."""
    own = [word for word in words if word not in others]
    if sorted(words) == sorted(others):
        own = words
    return {(): "not given", ("True",): "given"}.get(tuple(own), " ".join(own))


def check_processes(config: Config, group: Group) -> None:
    """Raise UserError unless the chunks of the batch can be shared evenly."""
    chunks = config.train.chunks
    if chunks % group.size:
        raise UserError(
            f"--nproc-per-node: {group.size} processes in all, for a run with train.chunks={chunks}; use {chunks}, or "
            "a smaller power of two"
        )


def compare(group: Group, fingerprint: str, environment: Mapping[str, str | int | bool]) -> None:
    """Raise UserError unless all machines have the same text; warn if they differ otherwise. An empty fingerprint agrees.

    Call it after encoding the text: it waits for all processes.
    """
    mine = [fingerprint, environment]
    all = [json.loads(text) for text in group.meet("machine", json.dumps(mine))]
    for rank, (other, theirs) in enumerate(all):
        if other not in ("", all[0][0]):
            raise UserError(f"TEXT: rank {rank} has another text than rank 0; give every machine the same one")
        if theirs != all[0][1]:
            changes = [f"{key} {value} -> {theirs[key]}" for key, value in all[0][1].items() if theirs[key] != value]
            say("warning", f"rank {rank} differs from rank 0 ({', '.join(changes)}): other processes would give other bits")
