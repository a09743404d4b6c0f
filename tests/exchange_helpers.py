"""What the tests of exports and imports call: small models with random weights, biases included, and a comparison with them."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import random_weights, saved_state

from chargpt.exchange.export import ExportOptions
from chargpt.model import POSITIONS, GPTConfig
from chargpt.runs.checkpoint import publish
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.tokenizer import Tokenizer

VOCABULARIES = {
    "characters": Tokenizer("\n \\abcdefgh中😀"),
    "bytes": Tokenizer(None),
    "folded": Tokenizer("\n abcdefgh", folded=True),
}
# By day, every kind of positions, every vocabulary, with and without biases.
KINDS = enumerate(itertools.product(POSITIONS, [False, True], VOCABULARIES))
EACH_KIND = pytest.mark.parametrize(
    ("positions", "bias", "vocabulary"), [pytest.param(*kind, marks=[pytest.mark.nightly] * (i % 5 > 0)) for i, kind in KINDS]
)


def publish_model(folder: Path, *, tokenizer: Tokenizer, spread: float = 0.1, **shape: object) -> Path:
    """A run with random weights everywhere, at step 500."""
    config = GPTConfig(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 24, "bias": True, **shape})
    weights = random_weights(500, shape=config, tokenizer=tokenizer)
    weights = {name: tensor + spread * torch.randn(tensor.shape) for name, tensor in weights.items()}
    folder.mkdir(parents=True)
    state = saved_state(500, shape=config, tokenizer=tokenizer, texts=["/secret/poems.txt"])
    publish(folder, weights=weights, training={}, state=state)
    return folder


def options_of(loaded: LoadedModel, **changes: object) -> ExportOptions:
    """The options of an export."""
    return ExportOptions(**{"name": loaded.run, "texts": ["poems.txt"], **changes})


def ids_of(loaded: LoadedModel, length: int = 60) -> np.ndarray:
    """Random ids, (length,) int64, whose text is UTF-8."""
    top = 128 if loaded.tokenizer.characters is None else loaded.model.vocab_size - loaded.tokenizer.folded
    return np.random.default_rng(0).integers(0, top, length)


@torch.inference_mode()
def check_same(
    loaded: LoadedModel,
    logits_of: Callable[[np.ndarray], np.ndarray],
    *,
    tolerance: float = 1e-5,
    longest: int | None = None,
    log_probabilities: bool = False,
) -> None:
    """An export computes what its run does: the same logits at every position, and the same greedy text.

    `logits_of` maps ids (B, T), T at most `longest` (None: the context), to logits (B, T, V), or to their logarithms of
    probabilities. Logits may differ by `tolerance` times the largest one, which counts as at least 10: float32 has 7 digits,
    and a model adds up thousands of products. Greedy texts may differ from where two characters are as likely within that.
    """
    longest, ids, bound = longest or loaded.model.config.block_size, ids_of(loaded), 10 * tolerance
    half = min(len(ids), longest) // 2
    windows = [ids[None, start : start + longest] for start in range(0, len(ids), longest)]
    for window in [*windows, np.stack((ids[:half], ids[-half:]))]:
        expected = loaded.model(torch.from_numpy(window))
        bound = max(bound, tolerance * expected.abs().max().item())
        expected = expected.log_softmax(dim=-1) if log_probabilities else expected
        found = torch.from_numpy(np.array(logits_of(window), np.float32))
        assert found.shape == expected.shape
        assert (found - expected).abs().max().item() <= bound  # false for what is no number
    text = ids[:half]
    for _ in range(longest - half):
        expected = loaded.model(torch.from_numpy(text[None]))[0, -1]
        found = torch.from_numpy(np.array(logits_of(text[None])[0, -1], np.float32))
        for logits in (expected, found):
            logits[list(loaded.tokenizer.never_sampled)] = float("-inf")
        if expected.argmax() != found.argmax():
            assert expected.max() - expected[found.argmax()] <= 2 * bound
            return
        text = np.append(text, expected.argmax().item())
