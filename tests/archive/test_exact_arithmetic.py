"""The arithmetic is close to the true functions, and its sums are exact in any order."""

import math

import numpy as np
import pytest
import torch

from chargpt.archive.exact_arithmetic import exponential, gelu, norm, product_bits, rounded, sum_bits, turns, unit_of
from chargpt.model import rotary_table, sinusoids


def rows(*shape: int, spread: float = 3.0) -> torch.Tensor:
    """Numbers of very different sizes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return x * torch.exp(spread * torch.randn(*shape, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("bits", [5, 22, 40])
def test_rows_are_rounded_to_whole_units(bits):
    x = rows(50, 33)
    y, unit = rounded(x, bits), unit_of(x, bits)
    whole = y / unit
    assert torch.equal(whole, whole.round()) and whole.abs().amax() <= 2 ** (bits + 1)
    assert ((y - x).abs() <= unit / 2).all()
    largest = x.abs().amax(dim=1, keepdim=True)
    assert ((unit * 2**bits <= largest) & (largest < unit * 2 ** (bits + 1))).all()
    assert torch.equal(rounded(torch.zeros(2, 3, dtype=torch.float64), bits), torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("terms", [1, 2, 3, 32, 100, 128, 1000, 8192])
def test_a_product_is_the_same_in_any_order(terms):
    bits = product_bits(terms)
    a, b = rounded(rows(4, terms), bits), rounded(rows(5, terms, spread=1.0), bits)
    order = torch.randperm(terms, generator=torch.Generator().manual_seed(1))
    expected = torch.tensor([[math.fsum((x * y).tolist()) for y in b] for x in a], dtype=torch.float64)
    assert torch.equal(a @ b.T, expected) and torch.equal(a[:, order] @ b[:, order].T, expected)
    worst = rounded(torch.full((1, terms), 1.9999999999, dtype=torch.float64), bits)  # all numbers as large as they can be
    assert (worst @ worst.T).item() == math.fsum((worst * worst)[0].tolist())
    assert 2 * (bits + 1) + math.ceil(math.log2(terms)) <= 53
    x = rounded(rows(3, terms), sum_bits(terms))
    assert x.sum(dim=1).tolist() == [math.fsum(row) for row in x.tolist()]


def test_the_functions_are_close_to_the_true_ones():
    x = torch.linspace(-59, 0, 20_001, dtype=torch.float64)
    torch.testing.assert_close(exponential(x), x.exp(), rtol=1e-7, atol=0)
    assert exponential(torch.tensor([0.0, -1e300], dtype=torch.float64)).tolist() == [
        1.0,
        exponential(x[:0].new_tensor([-60.0])).item(),
    ]
    x = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(x), rtol=0, atol=1e-6)
    x, w, b = rows(9, 48, spread=1.0), rows(48, spread=0.1), rows(48, spread=0.1)
    torch.testing.assert_close(norm(x, w, b), torch.nn.functional.layer_norm(x, (48,), w, b), rtol=0, atol=1e-5)
    torch.testing.assert_close(norm(x, w, None), torch.nn.functional.layer_norm(x, (48,), w), rtol=0, atol=1e-5)


def test_powers_of_two_are_exact():
    """The exponential of the reference is one function of its bits: no library decides its last one."""
    x = -np.arange(0, 40, 0.37)
    n = np.rint(x * 1.4426950408889634)
    r = x - n * 0.6931471805599453
    p = np.full_like(x, 1 / 5040)
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        p = p * r + coefficient
    assert exponential(torch.from_numpy(x)).tolist() == np.ldexp(p, n.astype(int)).tolist()


@pytest.mark.parametrize("width", [2, 5, 16])
def test_turns_are_those_of_the_model(width):
    cos, sin = turns(70, width)
    table = sinusoids(70, width)
    torch.testing.assert_close(sin.float(), table[:, 0::2], rtol=0, atol=2e-7)
    torch.testing.assert_close(cos.float()[:, : width // 2], table[:, 1::2], rtol=0, atol=2e-7)
    if width % 2 == 0:
        torch.testing.assert_close(turns(70, width).float(), rotary_table(70, width), rtol=0, atol=2e-7)
