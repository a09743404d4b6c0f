"""Starting from other weights: the copy, which matches embeddings by character, and which run could be used."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import torch

from chargpt.model import GPT
from chargpt.runs.checkpoint import Checkpoint, read_state, steps
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.load import corpus_in_cache, restore_model, run_folders
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import UserError, shown
from chargpt.text.corpus import Corpus
from chargpt.text.tokenizer import Tokenizer

EMBEDDING = "token_embedding.weight"
# Share of the text's characters that a run must know.
COMMON = 0.98
# Times as many characters as the text has, that a run must have seen.
LONGER = 3
# Characters that a line lists.
LISTED = 20
# What stands before the name of a run in `train.start`. A start that comes with the program has its name alone there.
RUN = "run "


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`. A new character begins with the embedding of its nearest known one.

    Where no known character is near, it begins with that of the folded character, or with the mean of all. Returns a line that
    says what was done. Raises UserError if the two models differ in shape, or if one reads bytes and the other characters.
    """
    old, old_tokenizer, _ = restore_model(source)
    name = shown(source.path)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        raise UserError(f"{name}: one model reads bytes, the other characters; set data.vocabulary to what that run uses")
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{name}: its shape is different; of the model settings, change only model.dropout")
    weights = old.state_dict()
    rows = weights.pop(EMBEDDING)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == [EMBEDDING] and not unexpected
    if tokenizer.characters is None or old_tokenizer.characters is None:
        model.token_embedding.weight.copy_(rows)
        return "all 256 bytes"
    known = {character: i for i, character in enumerate(old_tokenizer.characters)}
    unknown = rows[-1] if old_tokenizer.folded else rows.mean(0)
    begins_at = {character: old_tokenizer.nearest(character) for character in tokenizer.characters if character not in known}
    for i, character in enumerate(tokenizer.characters):
        nearest = begins_at.get(character, character)
        model.token_embedding.weight[i] = unknown if nearest is None else rows[known[nearest]]
    if tokenizer.folded:
        model.token_embedding.weight[-1] = unknown
    common = len(tokenizer.characters) - len(begins_at)
    new = [f"{character} at {nearest}" if nearest else character for character, nearest in begins_at.items()]
    dropped = [character for character in old_tokenizer.characters if character not in set(tokenizer.characters)]
    return f"{common:,} characters in common{_listed('new', new)}{_listed('dropped', dropped)}"


def _listed(what: str, characters: list[str]) -> str:
    if not characters:
        return ""
    some = ", ".join(repr(character)[1:-1] for character in characters[:LISTED])
    return f"; {len(characters):,} {what}: {some}{' ...' if len(characters) > LISTED else ''}"


def name_of_start(source: Checkpoint) -> str:
    """The name of the start, or of the run, whose checkpoint this is."""
    return source.path.resolve().parent.name


class KnownRun(NamedTuple):
    """A run from which a training could start."""

    name: str
    read: int  # characters of distinct text that it has read


def runs_to_start_from(checkpoints: Path, corpus: Corpus, *, root: Path) -> list[KnownRun]:
    """The runs in `checkpoints` that know other text in the same script, those first that have read most distinct text.

    A run fits if it knows COMMON of the characters of `corpus`, and has seen LONGER times as much of another text. A run on an
    earlier version of this text does not: its training split may hold what is the validation split now. What cannot be read is
    not considered.
    """
    characters = corpus.tokenizer.characters
    if characters is None:
        return []
    counts = corpus.counts[: len(characters)]
    found = []
    for name, state in _states(checkpoints):
        known = set(state.tokenizer.characters or ())
        is_other = state.fingerprint != corpus.fingerprint and state.texts != corpus.texts
        is_other = is_other and not set(state.texts) & set(corpus.texts)
        share = sum(int(count) for character, count in zip(characters, counts) if character in known) / max(1, counts.sum())
        seen = state.progress.step * state.config.chars_per_step
        if share >= COMMON and seen >= LONGER * len(corpus.train) and is_other:
            own = corpus_in_cache(state.config, state.tokenizer, state.fingerprint, root=root)
            found.append(KnownRun(name, seen if own is None else min(seen, len(own.train))))
    return sorted(found, key=lambda run: -run.read)


def _states(checkpoints: Path) -> list[tuple[str, SavedState]]:
    """The names and newest states of all runs."""
    states = []
    for folder in run_folders(checkpoints):
        try:
            states += [(folder.name, read_state(path)) for path in steps(folder)[-1:]]
        except (OSError, CheckpointError):
            continue
    return states
