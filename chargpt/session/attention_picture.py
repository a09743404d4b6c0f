"""A picture of what all heads of a model attend to, which train.log_attention puts into TensorBoard."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.model import GPT
from chargpt.runs.models import attention_of

MAX_DRAWN = 256  # characters of the picture
COLOUR = np.array([31, 95, 191])  # of a weight of 1, the accent of base.css; a weight of 0 is white
WIDTH, GAP = 128, 4  # pixels that a head takes at most, and between two heads


def draw_attention(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The `attention_picture` of all heads on the first of `ids` (T,), at most MAX_DRAWN. The mode of the model stays."""
    length = min(len(ids), model.config.block_size, MAX_DRAWN)
    idx = torch.from_numpy(ids[:length].astype(np.int64)).to(model.token_embedding.weight.device)
    was_training = model.training
    model.eval()
    try:
        return attention_picture(attention_of(model, idx[None])[:, 0])
    finally:
        model.train(was_training)


def attention_picture(weights: Tensor) -> np.ndarray:
    """All heads of weights (n_layer, n_head, T, T) as one picture (height, width, 3), uint8: a row for each layer.

    A row of a head is a character, and a column is what it attends to. The shade is the square root of the weight; of weights
    that share a pixel, the largest.
    """
    n_layer, n_head, T, _ = weights.shape
    width = min(T, WIDTH)
    levels = F.adaptive_max_pool2d(weights.sqrt().float().cpu(), width).numpy()
    gap, side = (GAP, 0), width + GAP
    cells = np.pad(levels, ((0, 0), (0, 0), gap, gap), constant_values=np.nan)  # nan: between the heads
    picture = np.pad(cells.swapaxes(1, 2).reshape(n_layer * side, n_head * side), (0, GAP), constant_values=np.nan)
    shaded = 255 - picture[..., None] * (255 - COLOUR)
    return np.nan_to_num(shaded, nan=200).round().astype(np.uint8)
