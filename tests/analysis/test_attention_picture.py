"""Each head has its place in the picture, and a sharp weight stays visible when the picture is smaller than the map."""

import numpy as np
import torch

from chargpt.analysis.attention_picture import COLOUR, GAP, WIDTH, attention_picture


def test_each_head_has_its_place():
    weights = torch.zeros(2, 3, 5, 5)
    weights[1, 2, 4, 0] = 1
    weights[0, 0, 1, 1] = 0.25
    picture = attention_picture(weights)
    assert picture.shape == (2 * (5 + GAP) + GAP, 3 * (5 + GAP) + GAP, 3) and picture.dtype == np.uint8
    rows, columns = GAP + (5 + GAP) + 4, GAP + 2 * (5 + GAP)
    assert picture[rows, columns].tolist() == COLOUR.tolist()
    assert np.abs(picture[GAP + 1, GAP + 1] - (255 + COLOUR) / 2).max() <= 1
    assert picture[GAP, GAP].tolist() == [255] * 3 and picture[0, 0].tolist() == [200] * 3


def test_a_sharp_weight_survives_in_a_smaller_picture():
    weights = torch.zeros(1, 1, 1000, 1000)
    for t in range(0, 1000, 37):
        weights[0, 0, t, t // 2] = 1
    picture = attention_picture(weights)
    assert picture.shape[0] == WIDTH + 2 * GAP
    assert (picture == COLOUR).all(axis=-1).sum() >= 25
