"""The page of `python -m chargpt attention`: its data for attention.html.j2 and attention.js."""

import base64
import zlib

import numpy as np
from torch import Tensor

from chargpt.analysis.characters import shown_character
from chargpt.analysis.heads import MIN_CHARACTERS, MIN_SCORE, MIN_TIMES, PATTERNS, Heads
from chargpt.pages.page import page, render, source

LEVELS = 255  # a weight w is stored as the whole number nearest to LEVELS * sqrt(w), which keeps small weights apart


def attention_page(heads: Heads, *, about: str, place: str) -> str:
    """The page for the attention of all heads on a text. The page shows weights from 8 bits each: at most 0.004 off.

    `about` describes the model, and `place` the text.
    """
    labels = sorted(set(heads.characters))
    number = {character: i for i, character in enumerate(labels)}
    n_layer, n_head = heads.weights.shape[:2]
    names = [[heads.name(layer, head) for head in range(n_head)] for layer in range(n_layer)]
    data = {
        "layers": n_layer,
        "heads": n_head,
        "characters": [number[character] for character in heads.characters],
        "labels": [shown_character(character) for character in labels],
        "first": heads.most_telling(),
        "names": names,
    }
    body = render(
        "attention.html.j2",
        about=about,
        place=place,
        heads=heads,
        names=names,
        places=np.ndindex(n_layer, n_head),
        patterns=PATTERNS,
        least_characters=MIN_CHARACTERS,
        least_score=MIN_SCORE,
        least_times=f"{MIN_TIMES:g}",
    )
    packed = {"facts": data, "weights": base64.b64encode(pack(heads.weights)).decode()}
    return page("Attention", body=body, style=source("attention.css"), script=source("attention.js"), data=packed)


def pack(weights: Tensor) -> bytes:
    """The weights on and below the diagonal, row by row and head by head, as one byte each, compressed by zlib."""
    rows, columns = np.tril_indices(weights.shape[-1])
    return zlib.compress(np.rint(LEVELS * weights.sqrt().numpy()[:, :, rows, columns]).astype(np.uint8).tobytes())
