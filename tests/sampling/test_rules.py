"""Each sampling rule keeps the ids that it should, and ids are drawn with the right probabilities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_values import VALUES

from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import RandomNumbers, draw, min_p, probabilities, temperature, top_k, top_p
from chargpt.sampling.writer import distribution

TEXT = np.zeros((1, 1), np.int64)


def log(*probs: float) -> np.ndarray:
    return np.log(np.array([probs], np.float32))


def kept(logits: np.ndarray) -> list[bool]:
    return np.isfinite(logits)[0].tolist()


def after(logits: np.ndarray, **values: float) -> np.ndarray:
    """The probabilities after these rules."""
    return distribution(logits, SamplingOptions(**values).rules_in_use(), np.repeat(TEXT, len(logits), axis=0))


K_LIKELIEST = {1: [1, 0, 0, 0], 2: [1, 1, 1, 0], 3: [1, 1, 1, 0], 4: [1, 1, 1, 1], 9: [1, 1, 1, 1]}  # and their equals
FEWEST = {0.01: [0, 1, 0, 0], 0.49: [0, 1, 0, 0], 0.6: [0, 1, 1, 0], 0.85: [1, 1, 1, 0], 0.95: [1, 1, 1, 1]}
NEAR_THE_BEST = {0.1: [1, 1, 1, 1], 0.3: [1, 1, 1, 0], 0.5: [0, 1, 0, 0], 1.0: [0, 1, 0, 0]}


@pytest.mark.parametrize(
    ("rule", "probs", "keeps"),
    [
        (top_k, (0.5, 0.2, 0.2, 0.1), K_LIKELIEST),
        (top_p, (0.2, 0.5, 0.2001, 0.0999), FEWEST),
        (min_p, (0.2, 0.5, 0.2, 0.1), NEAR_THE_BEST),
        (temperature, (0.2, 0.4, 0.4), {0: [0, 1, 0]}),  # the first of the likeliest
    ],
)
def test_each_rule_keeps_the_ids_that_it_should(rule, probs, keeps):
    assert {value: kept(rule(log(*probs), value, TEXT)) for value in keeps} == keeps


def test_of_equals_the_nucleus_keeps_the_first_and_no_more_than_it_needs():
    assert kept(top_p(np.zeros((1, 100), np.float32), 0.505, TEXT)) == [True] * 51 + [False] * 49
    assert kept(top_p(np.zeros((1, 2), np.float32), 0.5, TEXT)) == [True, False]  # exactly 0.5 is enough


ENDS = [{"temperature": 1e-9}, {"temperature": 1e-320}, {"top_k": 1}, {"top_p": 1e-320}, {"min_p": 1}]
OTHER_ENDS = [{"top_k": 12}, {"top_k": 10**9}, {"top_p": 1.0}, {"min_p": 1e-30}, {"repetition_penalty": 1}]
LOGITS = np.random.default_rng(3).standard_normal((6, 12), np.float32) * np.arange(1, 7, dtype=np.float32)[:, None]


@pytest.mark.parametrize(("one", "other"), [*((e, {"temperature": 0}) for e in ENDS), *((e, {}) for e in OTHER_ENDS)], ids=str)
def test_every_rule_at_its_end_is_greedy_and_at_the_other_end_off(one, other):
    np.testing.assert_array_equal(after(LOGITS, **one), after(LOGITS, **other))


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_any_rules_leave_an_id_and_rows_of_a_batch_do_not_depend_on_one_another(values):
    apart = np.concatenate([after(row[None], **values) for row in LOGITS])
    np.testing.assert_allclose(apart.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(after(LOGITS, **values), apart, rtol=1e-6)
    uniform = RandomNumbers(1).uniform(6)
    alone = [draw(row[None], number[None]).item() for row, number in zip(apart, uniform)]
    assert draw(apart, uniform).tolist() == alone


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_extremes_of_the_numbers_draw_no_impossible_id(extreme, dtype):
    probs = np.array([[0.0, 0.1, 0.2, 0.0, 0.7, 0.0]], dtype) / 3
    assert draw(probs, np.array([extreme])).item() == (4 if extreme == 0 else 1)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=40), st.floats(1e-6, 1, exclude_max=True))
def test_the_nucleus_reaches_p_and_would_not_without_its_least(values, p):
    logits = np.array([values], np.float32)
    probs, mask = probabilities(logits.astype(np.float64)), np.isfinite(top_p(logits, p, TEXT))
    assert probs[mask].sum() >= p - 1e-5
    assert probs[mask].sum() - probs[mask].min() < p + 1e-5
    assert mask.all() or probs[mask].min() >= probs[~mask].max()


def test_the_filters_follow_one_another_on_what_is_left():
    logits = log(0.4, 0.3, 0.2, 0.1)
    # Of the three likeliest (4/9, 3/9, 2/9), two make 0.75; by themselves 0.75 would have needed three.
    assert (after(logits, temperature=1, top_k=3, top_p=0.75) > 0).tolist() == [[1, 1, 0, 0]]
    np.testing.assert_allclose(after(logits, temperature=1, top_k=2), [[4 / 7, 3 / 7, 0, 0]], rtol=1e-6)
    # Temperature comes first: at 0.5 the probabilities are as 16, 9, 4, 1.
    assert (after(logits, temperature=0.5, min_p=0.5) > 0).tolist() == [[1, 1, 0, 0]]
    assert (after(logits, temperature=0.5, min_p=0.6) > 0).tolist() == [[1, 0, 0, 0]]


def test_what_is_drawn_has_the_distribution_it_should():
    probs = np.repeat(np.array([[0.5, 0.3, 0.2, 0.0]]), 4000, axis=0)
    counts = np.bincount(draw(probs, RandomNumbers(0).uniform(4000)), minlength=4)
    expected = 4000 * probs[0, :3]
    chi_square = ((counts[:3] - expected) ** 2 / expected).sum()
    assert counts[3] == 0 and chi_square < 13.8  # 0.1 % point, two degrees of freedom


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-1.0, math.nan, math.inf]),
        ("top_k", [-1]),
        ("top_p", [0.0, 1.01, math.nan]),
        ("min_p", [-0.1, 1.1, math.nan]),
        ("repetition_penalty", [0.9, math.inf, math.nan]),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(field, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^--{field.replace('_', '-')}: .* given; use "):
            SamplingOptions(**{field: value})
