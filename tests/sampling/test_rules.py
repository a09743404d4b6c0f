"""Each sampling rule keeps the ids that it should, and ids are drawn with the right probabilities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import choose, distribution, draw, keep_min_p, keep_top_k, keep_top_p


def seeded(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def log(*probs: float) -> torch.Tensor:
    return torch.tensor([probs]).log()


def kept(logits: torch.Tensor) -> list[bool]:
    return logits.isfinite().squeeze(0).tolist()


@pytest.mark.parametrize(
    ("k", "keeps"), [(1, [1, 0, 0, 0]), (2, [1, 1, 1, 0]), (3, [1, 1, 1, 0]), (4, [1, 1, 1, 1]), (9, [1, 1, 1, 1])]
)
def test_top_k_keeps_the_k_likeliest_and_their_equals(k, keeps):
    assert kept(keep_top_k(log(0.5, 0.2, 0.2, 0.1), k)) == keeps


@pytest.mark.parametrize(
    ("p", "keeps"),
    [(0.01, [0, 1, 0, 0]), (0.49, [0, 1, 0, 0]), (0.6, [0, 1, 1, 0]), (0.85, [1, 1, 1, 0]), (0.95, [1, 1, 1, 1])],
)
def test_top_p_keeps_the_fewest_that_reach_p(p, keeps):
    assert kept(keep_top_p(log(0.2, 0.5, 0.2001, 0.0999), p)) == keeps


@pytest.mark.parametrize(("p", "keeps"), [(0.1, [1, 1, 1, 1]), (0.3, [1, 1, 1, 0]), (0.5, [0, 1, 0, 0]), (1.0, [0, 1, 0, 0])])
def test_min_p_keeps_what_comes_near_the_likeliest(p, keeps):
    assert kept(keep_min_p(log(0.2, 0.5, 0.2, 0.1), p)) == keeps


def test_of_equals_the_nucleus_keeps_the_first_and_no_more_than_it_needs():
    assert kept(keep_top_p(torch.zeros(1, 100), 0.505)) == [True] * 51 + [False] * 49
    assert kept(keep_top_p(torch.zeros(1, 2), 0.5)) == [True, False]  # exactly 0.5 is enough


RULES = [
    SamplingOptions(temperature=0.7),
    SamplingOptions(top_k=3),
    SamplingOptions(top_p=0.6),
    SamplingOptions(min_p=0.2),
    SamplingOptions(temperature=1.5, top_k=9, top_p=0.9, min_p=0.02),
]


@pytest.mark.parametrize("sampling", RULES, ids=str)
def test_rows_of_a_batch_do_not_depend_on_one_another(sampling):
    logits = torch.randn(6, 12, generator=torch.Generator().manual_seed(3)) * torch.arange(1, 7)[:, None]
    apart = torch.cat([distribution(row[None], sampling) for row in logits])
    torch.testing.assert_close(distribution(logits, sampling), apart)
    alone = [choose(row[None], sampling, generators=seeded(i)).item() for i, row in enumerate(logits)]
    assert choose(logits, sampling, generators=seeded(*range(6))).tolist() == alone


def test_the_rows_own_generator_gives_one_number_and_it_decides():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(4))
    ours, again = seeded(7), torch.Generator().manual_seed(7)
    for temperature in (0.5, 1.0, 2.0):
        probs = (logits[0].double() / temperature).softmax(-1).tolist()
        for _ in range(20):
            left = 1 - float(torch.rand(1, dtype=torch.float64, generator=again))
            expected = next(token_id for token_id in range(50) if sum(probs[: token_id + 1]) >= left)
            assert choose(logits, SamplingOptions(temperature=temperature), generators=ours).item() == expected


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_extremes_of_the_generator_draw_no_impossible_id(monkeypatch, extreme, dtype):
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: torch.full(shape, extreme, dtype=torch.float64))
    probs = torch.tensor([[0.0, 0.1, 0.2, 0.0, 0.7, 0.0]], dtype=dtype) / 3
    assert draw(probs, seeded(1)).item() == (4 if extreme == 0 else 1)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=40), st.floats(1e-6, 1, exclude_max=True))
@settings(max_examples=100, deadline=None)
def test_the_nucleus_reaches_p_and_would_not_without_its_least(values, p):
    logits = torch.tensor([values])
    probs, mask = logits.double().softmax(-1), keep_top_p(logits, p).isfinite()
    assert probs[mask].sum() >= p - 1e-5
    assert probs[mask].sum() - probs[mask].min() < p + 1e-5
    assert mask.all() or probs[mask].min() >= probs[~mask].max()


def test_the_filters_follow_one_another_on_what_is_left():
    logits = log(0.4, 0.3, 0.2, 0.1)
    # Of the three likeliest (4/9, 3/9, 2/9), two make 0.75; by themselves 0.75 would have needed three.
    assert kept(distribution(logits, SamplingOptions(temperature=1, top_k=3, top_p=0.75)).log()) == [1, 1, 0, 0]
    torch.testing.assert_close(
        distribution(logits, SamplingOptions(temperature=1, top_k=2)), torch.tensor([[4 / 7, 3 / 7, 0, 0]])
    )
    # Temperature comes first: at 0.5 the probabilities are as 16, 9, 4, 1.
    assert kept(distribution(logits, SamplingOptions(temperature=0.5, min_p=0.5)).log()) == [1, 1, 0, 0]
    assert kept(distribution(logits, SamplingOptions(temperature=0.5, min_p=0.6)).log()) == [1, 0, 0, 0]


def test_what_is_drawn_has_the_distribution_it_should():
    probs, generators = torch.tensor([[0.5, 0.3, 0.2, 0.0]]), seeded(0)
    counts = torch.bincount(torch.cat([draw(probs, generators) for _ in range(4000)]), minlength=4)
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


def test_temperature_zero_chooses_the_most_likely_id_for_every_seed():
    logits = torch.randn(5, 11)
    assert choose(logits, SamplingOptions(temperature=0), generators=seeded(*range(5))).tolist() == logits.argmax(-1).tolist()
    equal = torch.zeros(20, 3)  # of equally likely ids, the first
    assert choose(equal, SamplingOptions(temperature=0), generators=seeded(*range(20))).tolist() == [0] * 20
