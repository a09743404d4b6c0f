"""Arithmetic with the same result, to the bit, on every machine, in every library and for every number of threads.

A decompressor has to compute the probabilities of the compressor exactly. Floating-point sums depend on the order of addition,
which differs between libraries, processors and batch sizes, so no sum here ever rounds. The factors of every product of
matrices are first rounded to so few bits that each product and each sum of products fits the 53 bits of a float64. An exact
sum has the same value in any order, so any library may compute it, with or without fused multiply-add.

Everything else is one float64 operation at a time: addition, multiplication, division, square root and comparison, which IEEE
754 defines to the bit. The exponential and the error function are made of these. chargpt/kernels/exact.c does the same in C.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
import torch
from torch import Tensor

# Numbers are not told apart below this: the largest of a row counts as at least this much.
SMALLEST = 2.0**-64
# The bits of a float64 that hold its exponent.
EXPONENT = 0x7FF0000000000000
# Adding and subtracting this rounds to a whole number, ties to even.
NEAREST = 1.5 * 2.0**52
# Bits of a factor: it fits a float32 as well.
MAX_BITS = 22
# Arguments of the exponential below this count as this.
LOWEST = -60.0
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
TAYLOR = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)
# Coefficients of the error function: Abramowitz and Stegun, 7.1.26.
ERROR_FUNCTION = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
# The epsilon of LayerNorm.
EPSILON = 1e-5


def product_bits(terms: int) -> int:
    """The bits to which `rounded` must round both factors of a product that sums `terms` terms, so that the sum is exact.

    A factor is then a whole number of at most 2^(bits + 1) units, so the sum has at most terms * 2^(2 bits + 2) <= 2^53.
    """
    return min(MAX_BITS, (53 - (terms - 1).bit_length()) // 2 - 1)


def sum_bits(terms: int) -> int:
    """The bits to which `rounded` must round `terms` terms, so that their sum is exact."""
    return 51 - (terms - 1).bit_length()


def unit_of(x: Tensor, bits: int) -> Tensor:
    """The unit of each row of x (..., N), a power of two, (..., 1): 2^-bits of the largest power of two in the row."""
    largest = x.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST)
    return (largest.view(torch.int64) & EXPONENT).view(torch.float64) * 2.0**-bits


def rounded(x: Tensor, bits: int) -> Tensor:
    """Each row of x (..., N) rounded to whole multiples of its `unit_of`, ties to even."""
    shift = unit_of(x, bits) * NEAREST
    return (x + shift) - shift


def exponential(x: Tensor) -> Tensor:
    """e^x for x <= 0, to about nine digits."""
    x = x.clamp(min=LOWEST)
    n = (x * LOG2_E + NEAREST) - NEAREST
    r = x - n * LN_2
    p = torch.full_like(x, TAYLOR[0])
    for coefficient in TAYLOR[1:]:
        p = p * r + coefficient
    return p * ((n.to(torch.int64) + 1023) << 52).view(torch.float64)


def gelu(x: Tensor) -> Tensor:
    """x times the standard normal distribution function of x, to about 1e-7."""
    z = x.abs() * math.sqrt(0.5)
    t = 1.0 / (z * 0.3275911 + 1.0)
    p = torch.full_like(x, ERROR_FUNCTION[0])
    for coefficient in ERROR_FUNCTION[1:]:
        p = p * t + coefficient
    tail = p * t * exponential(-(z * z)) * 0.5
    return x * torch.where(x < 0, tail, 1.0 - tail)


def norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """LayerNorm of each row of x (..., C)."""
    C = x.size(-1)
    x = rounded(x, sum_bits(C))
    centred = rounded(x - x.sum(dim=-1, keepdim=True) / C, product_bits(C))
    variance = (centred * centred).sum(dim=-1, keepdim=True) / C
    y = centred / (variance + EPSILON).sqrt() * weight
    return y if bias is None else y + bias


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """model.py's `rotate` of x (..., T, d) by table (2, T, d / 2)."""
    cos, sin = table
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def turns(length: int, width: int) -> Tensor:
    """cos and sin of position * 10000^(-2 i / width), (2, length, (width + 1) // 2), for i from 0.

    Libraries differ in the last bit of sines and powers. So those of position 1 come from decimal arithmetic, and those of the
    other positions from multiplying complex numbers.
    """
    with localcontext() as context:
        context.prec = 40
        angles = [Decimal(10000) ** (Decimal(-2 * i) / width) for i in range((width + 1) // 2)]
        cos, sin = (np.array([float(_series(angle, first)) for angle in angles]) for first in (0, 1))
    table = np.stack((np.ones_like(cos), np.zeros_like(cos)))[:, None]  # (2, positions so far, .)
    while table.shape[1] < length:
        c, s = table
        table = np.concatenate((table, np.stack((c * cos - s * sin, s * cos + c * sin))), axis=1)
        cos, sin = cos * cos - sin * sin, sin * cos + cos * sin
    return torch.from_numpy(np.ascontiguousarray(table[:, :length]))


def _series(x: Decimal, first: int) -> Decimal:
    """The Taylor series of the cosine (first = 0) or of the sine (first = 1) of x, for |x| <= 1."""
    term = total = x**first if first else Decimal(1)
    for n in range(first + 1, 40, 2):
        term = -term * x * x / (n * (n + 1))
        total += term
    return total
