"""Maps of attention heads as pictures inside a page: each a PNG of one colour, more opaque where a head attends more."""

import base64
import io

import numpy as np
from PIL import Image
from torch import Tensor

from chargpt.analysis.heads import shrunk

COLOUR = (66, 128, 226)  # between the accents of page.css for light and for dark screens
WIDTHS = (128, 64, 32)  # pixels of a map; the largest that fits is taken
LEVELS = 16  # of opacity


def head_maps(weights: Tensor, *, most_bytes: int) -> list[list[str]]:
    """For each layer and head of weights (n_layer, n_head, T, T), its map as a data: URL; none if they exceed `most_bytes`."""
    for width in WIDTHS:
        maps = [[_url(head, width) for head in layer] for layer in weights.sqrt().float().cpu().numpy()]
        if sum(len(url) for layer in maps for url in layer) <= most_bytes:
            return maps
    return []


def _url(levels: np.ndarray, width: int) -> str:
    """The map of one head, (T, T) from 0 to 1, at most `width` pixels wide."""
    width = min(width, len(levels))
    small = shrunk(shrunk(levels, 0, width), 1, width)
    picture = Image.fromarray(np.rint((LEVELS - 1) * small.clip(0, 1)).astype(np.uint8), "P")
    picture.putpalette(COLOUR * LEVELS)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True, transparency=bytes(255 * i // (LEVELS - 1) for i in range(LEVELS)))
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
