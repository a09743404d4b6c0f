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

from chargpt.config import Config, DataConfig, apply, apply_overrides, to_dict
from chargpt.errors import Option, UserError
from chargpt.parallel.group import Group
from chargpt.planning.cli import TrainOptions
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.terminal import Notice
from chargpt.text.corpus import Corpus, absolute_paths, cached_corpus, load_corpus

# Options and settings that are paths, which may differ from machine to machine.
PATHS = ("texts", "config", "run", "init_from", "vocab_from")
PATH_SETTINGS = ("data.cache=", "data.val_text=")


class Decisions(NamedTuple):
    """What the first process decides, and the others begin with."""

    state: SavedState
    saved: Config | None  # the settings in the checkpoint that is resumed, before any were changed; None for a new run
    worth_compiling: bool
    seconds: float | None  # the time limit from the start of the program; None: no limit
    teachers_at: str = ""  # the folder of the run's own copies of its teachers; empty where train.teachers is read
    is_extended: bool = False  # by --minutes, with --resume


def publish_decisions(group: Group, decisions: Decisions) -> None:
    """Tell the other processes what to begin with."""
    if group.size > 1:
        saved = decisions.saved and to_dict(decisions.saved)
        group.publish("decisions", json.dumps([decisions.state.to_json(), saved, *decisions[2:]]))


def read_decisions(group: Group) -> Decisions:
    """What the first process has published. Waits for it."""
    state, saved, *rest = json.loads(group.read("decisions"))
    return Decisions(SavedState.from_json(state), saved and apply(Config(), saved, where="decisions"), *rest)


def data_of_machine(decisions: Decisions, options: TrainOptions) -> DataConfig:
    """The settings of the text, with the paths that this machine has for them."""
    own = [setting for setting in options.settings if setting.startswith(PATH_SETTINGS)]
    return absolute_paths(apply_overrides(decisions.state.config, own).data)


def corpus_of_machine(decisions: Decisions, options: TrainOptions, *, root: Path, group: Group) -> Corpus | None:
    """The corpus, encoded by the first process of each machine; None in the others, which find it in the cache afterwards."""
    if group.local_rank:
        return None
    state, data = decisions.state, data_of_machine(decisions, options)
    texts, block_size = options.texts or state.texts, state.config.model.block_size
    return load_corpus(texts, data, root=root, block_size=block_size, tokenizer=state.tokenizer)


def corpus_of_others(decisions: Decisions, options: TrainOptions, *, root: Path) -> Corpus:
    """The corpus that the first process of this machine has encoded. Raises UserError."""
    state, data = decisions.state, data_of_machine(decisions, options)
    corpus = cached_corpus(state.texts, data, root=root, fingerprint=state.fingerprint)
    if corpus is None:
        raise UserError("data.cache: the first process of this machine has encoded the text, but the others do not find it")
    return corpus


def compare_options(options: TrainOptions, group: Group) -> None:
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
        what = f"--nproc-per-node: {group.size} processes in all, for a run with "
        raise UserError(what, Option("train.chunks", chunks), f"; use {chunks}, or a smaller power of two")


def compare(group: Group, fingerprint: str, environment: Mapping[str, str | int | bool]) -> list[Notice]:
    """Raise UserError unless all machines have the same text; warnings if they differ otherwise. An empty fingerprint agrees.

    Call it after encoding the text: it waits for all processes.
    """
    mine = [fingerprint, environment]
    machines = [json.loads(text) for text in group.meet("machine", json.dumps(mine))]
    (fingerprint, first), warnings = machines[0], []
    for rank, (other, theirs) in enumerate(machines):
        if other not in ("", fingerprint):
            raise UserError(f"TEXT: rank {rank} has another text than rank 0; give every machine the same one")
        if theirs != first:
            changes = [f"{key} {value} -> {theirs[key]}" for key, value in first.items() if theirs[key] != value]
            what = f"rank {rank} differs from rank 0 ({', '.join(changes)}): other processes would give other bits"
            warnings.append(Notice("warning", what))
    return warnings
