"""Starting from another run's weights: which run could be used, and the copy, which matches embeddings by character."""

import dataclasses
from pathlib import Path

import torch

from chargpt.model import GPT
from chargpt.runs.checkpoint import Checkpoint, read_state, steps
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.load import restore_model
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import UserError, shown
from chargpt.text.corpus import Corpus
from chargpt.text.tokenizer import Tokenizer

EMBEDDING = "token_embedding.weight"
MAX_RUNS = 20  # runs whose states are read: the newest
COMMON = 0.98  # share of the text's characters that the run must know
LONGER = 3  # times as many characters as the text has: the run must have seen this many


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`. Characters that are new to it keep their initial embeddings.

    Returns a line that says what was done. Raises UserError if the two models differ in shape, or if one reads bytes and the
    other characters.
    """
    old, old_tokenizer, _ = restore_model(source)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        raise UserError(
            f"{shown(source.path)}: one model reads bytes, the other characters; set data.vocabulary to what that run uses"
        )
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{shown(source.path)}: its shape is different; of the model settings, change only model.dropout")
    weights = old.state_dict()
    rows = weights.pop(EMBEDDING)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == [EMBEDDING] and not unexpected
    if tokenizer.characters is None:
        model.token_embedding.weight.copy_(rows)
        return f"{shown(source.path)}, all 256 bytes"
    assert old_tokenizer.characters is not None
    old_ids = {character: i for i, character in enumerate(old_tokenizer.characters)}
    shared = [character for character in tokenizer.characters if character in old_ids]
    new_ids = [i for i, character in enumerate(tokenizer.characters) if character in old_ids]
    model.token_embedding.weight[new_ids] = rows[[old_ids[character] for character in shared]]
    added = [character for character in tokenizer.characters if character not in old_ids]
    dropped = [character for character in old_tokenizer.characters if character not in set(tokenizer.characters)]
    return f"{shown(source.path)}, {len(shared):,} characters in common{_listed('new', added)}{_listed('dropped', dropped)}"


def _listed(what: str, characters: list[str]) -> str:
    if not characters:
        return ""
    some = " ".join(repr(character)[1:-1] for character in characters[:20])
    return f"; {len(characters):,} {what}: {some}{' ...' if len(characters) > 20 else ''}"


def run_to_start_from(checkpoints: Path, corpus: Corpus) -> str | None:
    """The name of the run in `checkpoints` that knows most of other text in the same script, None if there is none.

    A run fits if it knows COMMON of the characters of `corpus`, and has seen LONGER times as much of another text. A run on an
    earlier version of this text does not: its training split may hold what is the validation split now. What cannot be read is
    not considered.
    """
    characters = corpus.tokenizer.characters
    if characters is None or not checkpoints.is_dir():
        return None
    counts = corpus.counts[: len(characters)]
    found: dict[str, int] = {}
    for name, state in _states(checkpoints):
        known = set(state.tokenizer.characters or ())
        is_other = state.fingerprint != corpus.fingerprint and state.texts != corpus.texts
        is_other = is_other and not set(state.texts) & set(corpus.texts)
        share = sum(int(count) for character, count in zip(characters, counts) if character in known) / max(1, counts.sum())
        seen = state.progress.step * state.config.chars_per_step
        if share >= COMMON and seen >= LONGER * len(corpus.train) and is_other:
            found[name] = seen
    return max(found, key=found.__getitem__, default=None)


def _states(checkpoints: Path) -> list[tuple[str, SavedState]]:
    """The names and newest states of the newest runs."""
    found = []
    for folder in checkpoints.iterdir():
        try:
            newest = steps(folder)[-1:]
            found += [(path.stat().st_mtime, path) for path in newest]
        except (OSError, CheckpointError):
            continue
    states = []
    for _, path in sorted(found, reverse=True)[:MAX_RUNS]:
        try:
            states.append((path.parent.name, read_state(path)))
        except (OSError, CheckpointError):
            continue
    return states
