"""The text on which an export is compared with its run."""

from pathlib import Path

import numpy as np
import torch

from chargpt.runs.load import corpus_in_cache, without_cache
from chargpt.sampling.decoder import first_id, stream
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.rules import Sampling


def reference_text(loaded: LoadedModel, *, root: Path, length: int) -> tuple[np.ndarray, str]:
    """At most `length` ids of the run's validation text, (n,) int64, n >= 2, and where they come from, in words.

    If the encoded text is no longer in the cache in `root`, the model writes a text instead.
    """
    config = without_cache(loaded.config)  # a run from elsewhere must not choose what is read here
    corpus = corpus_in_cache(config, loaded.tokenizer, loaded.fingerprint, root=root)
    if corpus is not None and len(corpus.val) > 1:
        ids = np.asarray(corpus.val[:length], np.int64)
        return ids, f"the first {len(ids):,} {_unit(loaded)} of the validation text"
    prompt = torch.tensor([[first_id(loaded.tokenizer)]])
    generator = torch.Generator().manual_seed(0)
    length = min(length, 2 * loaded.model.config.block_size)
    written = stream(
        loaded.model,
        prompt,
        length,
        Sampling(temperature=1.0),
        generator=generator,
        never_sampled=loaded.tokenizer.never_sampled,
    )
    ids = np.array([int(id) for id in written], np.int64)
    return ids, f"{len(ids):,} {_unit(loaded)} that the model wrote, because its text is not in the cache"


def _unit(loaded: LoadedModel) -> str:
    return "bytes" if loaded.tokenizer.characters is None else "characters"
