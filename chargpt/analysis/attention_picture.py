"""A picture of the attention of all heads, for TensorBoard."""

import numpy as np
from torch import Tensor

COLOUR = np.array([31, 95, 191])  # the accent of page.css; a weight of 1 has it, a weight of 0 is white
WIDTH, GAP = 128, 4  # pixels: the most that a head takes, and between two of them


def attention_picture(weights: Tensor) -> np.ndarray:
    """All heads of weights (n_layer, n_head, T, T) as one picture (height, width, 3), uint8: a row for each layer.

    A row of a head is a character, and a column is what it attends to. The shade is the square root of the weight; of weights
    that share a pixel, the largest.
    """
    n_layer, n_head, T, _ = weights.shape
    width = min(T, WIDTH)
    levels = shrunk(shrunk(weights.sqrt().float().cpu().numpy(), -2, width), -1, width)
    cell = width + GAP
    picture = np.zeros((n_layer * cell + GAP, n_head * cell + GAP), np.float32)
    grey = np.ones_like(picture, bool)
    for layer in range(n_layer):
        for head in range(n_head):
            rows, columns = (slice(GAP + i * cell, GAP + i * cell + width) for i in (layer, head))
            picture[rows, columns] = levels[layer, head]
            grey[rows, columns] = False
    shaded = 255 - picture[..., None] * (255 - COLOUR)
    return np.where(grey[..., None], 200, shaded).round().astype(np.uint8)


def shrunk(levels: np.ndarray, axis: int, width: int) -> np.ndarray:
    """The largest of each of `width` groups along an axis."""
    starts = (np.arange(width) * levels.shape[axis] + width - 1) // width
    return np.maximum.reduceat(levels, starts, axis=axis)
