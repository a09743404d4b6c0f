"""A picture of a head shows each weight where it is, and all pictures together stay within the size that is allowed."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from chargpt.pages.report_page import MAP_LEVELS, head_pictures


def opacity(url: str) -> np.ndarray:
    picture = Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))
    return np.asarray(picture.convert("RGBA"))[..., 3] / 255


def test_opacity_is_the_root_of_the_weight():
    torch.manual_seed(0)
    weights = torch.randn(2, 3, 20, 20).tril().masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(dim=-1)
    pictures = head_pictures(weights, most_bytes=10**6)
    assert [len(layer) for layer in pictures] == [3, 3]
    for layer in range(2):
        for head in range(3):
            assert np.abs(opacity(pictures[layer][head]) - weights[layer, head].sqrt().numpy()).max() <= 0.51 / (MAP_LEVELS - 1)


def test_pictures_shrink_until_they_fit():
    weights = torch.rand(2, 2, 100, 100)
    whole = head_pictures(weights, most_bytes=10**6)
    smaller = head_pictures(weights, most_bytes=sum(len(url) for layer in whole for url in layer) - 1)
    assert opacity(whole[0][0]).shape == (100, 100) and opacity(smaller[0][0]).shape == (64, 64)
    assert head_pictures(weights, most_bytes=10) == []
