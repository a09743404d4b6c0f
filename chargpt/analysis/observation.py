"""What an evaluation in training records about the model besides its loss: how much it copies, and what it attends to."""

import numpy as np
import torch

from chargpt.analysis.attention_picture import attention_picture
from chargpt.analysis.novelty import Novelty
from chargpt.config import TrainConfig
from chargpt.terminal import UserError
from chargpt.text.corpus import Corpus
from chargpt.text.suffix_array import SuffixIndex, open_index, open_or_make_index
from model import GPT

# Training makes the index of a text of up to this many characters, once, in about a second. For a longer one it is used if
# `python -m chargpt trace` has made it.
MAX_INDEXED = 2**21
MAX_DRAWN = 256  # characters of a picture


def observe(model: GPT, corpus: Corpus, config: TrainConfig, *, sample: str) -> dict[str, float | np.ndarray]:
    """The metrics of `model` at an evaluation: numbers and pictures (height, width, 3). Uses no random state.

    `novelty/longest_copy` is the length of the longest passage of `sample` that stands in the training text; it lacks without a
    sample or an index. `attention` is a picture of all heads at the start of the validation part, if the settings ask for it.
    """
    seen: dict[str, float | np.ndarray] = {}
    longest = longest_copy(corpus, sample)
    if longest is not None:
        seen["novelty/longest_copy"] = float(longest)
    if config.log_attention:
        seen["attention"] = draw_attention(model, corpus.val)
    return seen


def longest_copy(corpus: Corpus, text: str) -> int | None:
    """The length of the longest passage of `text` that stands in the training part; None if it has no index."""
    index = index_for_training(corpus) if text else None
    return None if index is None else Novelty([corpus.tokenizer.ids_of(text)], index).longest


def index_for_training(corpus: Corpus) -> SuffixIndex | None:
    """The index of the training part; None if there is none, making it would take long, or the cache cannot be written."""
    try:
        return open_or_make_index(corpus) if len(corpus.train) <= MAX_INDEXED else open_index(corpus)
    except UserError:  # a training does not need it
        return None


def draw_attention(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The picture of all heads on the first of `ids`, at most MAX_DRAWN."""
    length = min(len(ids), model.config.block_size, MAX_DRAWN)
    idx = torch.from_numpy(ids[:length].astype(np.int64)).to(model.token_embedding.weight.device)
    was_training = model.training
    model.eval()
    try:
        return attention_picture(model.attention(idx[None])[:, 0])
    finally:
        model.train(was_training)
