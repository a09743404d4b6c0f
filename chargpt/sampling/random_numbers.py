"""The random numbers of torch's generator on a CPU, without torch: the Mersenne Twister, seeded as torch seeds it."""

import random
from collections.abc import Iterable

import numpy as np

WORDS = 624  # of 32 bits, in the state of the Mersenne Twister (Matsumoto and Nishimura 1998)
SEEDING = 1812433253  # the multiplier of init_genrand, by which one word of a seed becomes a state


class RandomNumbers:
    """The numbers of `torch.Generator().manual_seed(seed)`."""

    def __init__(self, seed: int) -> None:
        word = seed % 2**32
        state = [word]
        for i in range(1, WORDS):
            word = (SEEDING * (word ^ word >> 30) + i) % 2**32
            state.append(word)
        self._twister = random.Random()
        self._twister.setstate((3, (*state, WORDS), None))

    def uniform(self, count: int) -> np.ndarray:
        """As `torch.rand(count, dtype=torch.float64)`: uniform in [0, 1), float64, (count,)."""
        return np.array([(number & (2**53 - 1)) * 2.0**-53 for number in self._numbers(count)])

    def below(self, limit: int, count: int) -> list[int]:
        """As `torch.randint(limit, (count,))`, for a limit of 2^32 or more."""
        return [number % limit for number in self._numbers(count)]

    def _numbers(self, count: int) -> Iterable[int]:
        """Whole numbers of 64 bits, each from two words, the higher one first."""
        draw = self._twister.getrandbits
        return (draw(32) << 32 | draw(32) for _ in range(count))
