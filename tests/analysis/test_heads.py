"""Measures of heads equal their definitions, a head is named after the pattern that it follows; a picture shows all heads."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pages.test_attention_page import random_weights

from chargpt.analysis.heads import (
    MIN_CHARACTERS,
    PATTERNS,
    Heads,
    measure_heads,
    open_brackets,
    pattern_masks,
)
from chargpt.session.tensorboard import COLOUR, GAP, WIDTH, attention_picture

NO_TEXT = {"characters": "", "weights": torch.zeros(2, 2, 0, 0)}
TEXT = 'He said "ab (cd) ab"\nan\'t [ab]\n'


@given(st.text("ab\n(\"')”“", min_size=1, max_size=24))
def test_measures_equal_their_definitions(text):
    T, weights = len(text), random_weights(len(text))
    facts, masks = measure_heads(weights, text), pattern_masks(text)
    w = weights[1, 2].double().tolist()
    later = range(1, T) if T > 1 else [0]
    entropy = sum(-sum(p * math.log2(p) for p in w[t] if p) for t in later) / len(later)
    distance = sum(sum(p * (t - s) for s, p in enumerate(w[t])) for t in later) / len(later)
    assert facts.entropy[1, 2] == pytest.approx(entropy, abs=1e-5) and facts.distance[1, 2] == pytest.approx(distance, abs=1e-5)
    for name, mask in masks.items():
        pointing = [t for t in range(T) if mask[t].any()]
        assert (name in facts.scores) == (len(pointing) >= MIN_CHARACTERS)
        if name in facts.scores:
            score = sum(sum(p for p, here in zip(w[t], mask[t]) if here) for t in pointing) / len(pointing)
            assert facts.scores[name][1, 2] == pytest.approx(score, abs=1e-5)
            chance = sum(mask[t].sum() / (t + 1) for t in pointing) / len(pointing)
            assert facts.chance[name] == pytest.approx(chance)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_head_that_follows_a_pattern_has_its_name(name):
    mask = torch.from_numpy(pattern_masks(TEXT)[name]).float()
    mask[~mask.bool().any(dim=1), 0] = 1
    facts = measure_heads((mask / mask.sum(dim=1, keepdim=True))[None, None], TEXT)
    assert facts.scores[name][0, 0] == pytest.approx(1) and facts.name(0, 0) == name


def test_a_head_is_named_only_after_a_pattern_that_it_follows_more_than_by_chance():
    for score, chance, name in ((0.5, 0.4, ""), (0.5, 0.2, "same"), (0.25, 0.01, "")):
        zeros = np.zeros((1, 1))
        facts = Heads(**NO_TEXT, entropy=zeros, distance=zeros, scores={"same": zeros + score}, chance={"same": chance})
        assert facts.name(0, 0) == name


@pytest.mark.parametrize(
    "text, places",
    [
        ("a(b)c", [-1, -1, 1, 1, -1]),
        ("([x)]", [-1, 0, 1, 0, -1]),  # what is not closed ends with the bracket around it
        ('"a" b', [-1, 0, 0, -1, -1]),
        ("don't 'x' y", [-1] * 7 + [6, 6, -1, -1]),
        ("“it’s” x", [-1, 0, 0, 0, 0, 0, -1, -1]),
        ("(a\n\nb)", [-1, 0, 0, -1, -1, -1]),  # an empty line closes everything
        ("「中」", [-1, 0, 0]),
    ],
)
def test_brackets_and_quotes_are_matched(text, places):
    assert open_brackets(text).tolist() == places


@pytest.mark.parametrize(
    "same, expected",
    [
        ([[0.1, 0.5], [0.6, 0.2]], (1, 0, "same")),
        ([[0.1, 0.2], [0.1, 0.12]], (0, 1, "same")),  # below what gives a name, but four times as much as by chance
        ([[0.06, 0.09], [0.07, 0.05]], (0, 1, "previous")),  # no other pattern is clear: the one that looks most there
    ],
)
def test_the_most_telling_head_has_the_strongest_pattern_beyond_its_neighbour(same, expected):
    scores = {"itself": [[0.0, 0.1], [0.0, 0.9]], "previous": [[0.7, 0.95], [0.1, 0.1]], "same": same}
    arrays = {name: np.array(values) for name, values in scores.items()}
    none = {**NO_TEXT, "entropy": np.zeros((2, 2)), "distance": np.zeros((2, 2))}
    assert Heads(**none, scores=arrays, chance=dict.fromkeys(arrays, 0.05)).most_telling() == expected
    assert Heads(**none, scores={}, chance={}).most_telling() == (0, 0, "")


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
