"""Sampling rules: from the logits of a model to the next character. On arrays, without torch.

A rule is a function of logits (B, V), its value, and the texts so far (B, T), which returns new logits, float32, and leaves at
least one id. It has the name of its field in `SamplingOptions`, whose order is theirs, and works with every engine. decode.c
writes many characters in one call if its `Rules` have a field for each rule in use; otherwise it computes the logits, and the
next character is chosen here.

How a character is drawn: each text has its own random numbers. For every character there is one number u, uniform in [0, 1).
The probabilities are summed in the order of the ids, and the first id at which the sum reaches 1 - u is taken. It follows that
a text does not depend on the others of its batch, and that a character depends on the seed and its position in the stream, not
on how its logits were computed. `GPT.generate` draws in the same way.

Three files have copies of rules: decode.c of its `Rules`, torch_texts.py of its `RULES`, and chargpt/exchange/web/engine.js of
temperature and top-k. Tests compare them with this file.
"""

import math
import random

import numpy as np

NEVER = -math.inf  # the logit of an id that cannot be drawn
WINDOW = 1024  # the last characters of a text that are searched for repetitions
FREE = 10  # characters that may repeat without penalty: words, names, ends of lines


def repetition_penalty(logits: np.ndarray, penalty: float, texts: np.ndarray) -> np.ndarray:
    """Make each character of a repeated passage after the first FREE `penalty` times less likely.

    A penalty on every character that has appeared, as used for tokens (CTRL, arXiv 1909.05858), would penalise the whole
    alphabet at character level. Here it applies only to a character that would extend a passage already in the text, and it
    grows with the length of the passage (after DRY, oobabooga/text-generation-webui pull request 5677).
    """
    excess = np.zeros(logits.shape, np.float32)  # the length above FREE of the longest repetition that each id would extend
    for row, text in zip(excess, texts[:, -WINDOW:]):
        end = np.flatnonzero(text[:-1] == text[-1])  # where passages end that equal the end of the text
        length = 1
        while len(end):
            np.maximum.at(row, text[end + 1], max(0, length + 1 - FREE))
            end = end[end >= length]
            end = end[text[end - length] == text[-1 - length]]
            length += 1
    return logits - np.float32(math.log(penalty)) * excess


def temperature(logits: np.ndarray, degree: float, _: np.ndarray) -> np.ndarray:
    """Divide by the temperature. At 0, only the most likely id is left, the first of equals."""
    if degree == 0:
        only = np.full_like(logits, NEVER)
        np.put_along_axis(only, logits.argmax(axis=-1, keepdims=True), 0, axis=-1)
        return only
    # Subtracting the largest logit keeps very small temperatures from overflowing. The probabilities are the same.
    return (logits - logits.max(axis=-1, keepdims=True)) / np.float32(degree)


def top_k(logits: np.ndarray, k: int, _: np.ndarray) -> np.ndarray:
    """Keep the k largest, and what ties with the k-th."""
    place = logits.shape[-1] - min(k, logits.shape[-1])
    kth = np.partition(logits, place, axis=-1)[:, place, None]
    return np.where(logits < kth, np.float32(NEVER), logits)


def top_p(logits: np.ndarray, p: float, _: np.ndarray) -> np.ndarray:
    """Keep the fewest ids whose probabilities sum to p or more: nucleus sampling (arXiv 1904.09751). At least one id is kept.
    Of equally likely ids, the lower ones are kept first."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    mass = np.take_along_axis(probabilities(logits), order, axis=-1)
    before = np.pad(mass.cumsum(axis=-1)[:, :-1], ((0, 0), (1, 0)))  # the total probability of all more likely ids
    removed = np.zeros(logits.shape, bool)
    np.put_along_axis(removed, order, before >= np.float32(p), axis=-1)
    return np.where(removed, np.float32(NEVER), logits)


def min_p(logits: np.ndarray, share: float, _: np.ndarray) -> np.ndarray:
    """Keep ids at least `share` times as likely as the most likely one (arXiv 2407.01082)."""
    probs = probabilities(logits)
    return np.where(probs < np.float32(share) * probs.max(axis=-1, keepdims=True), np.float32(NEVER), logits)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def probabilities(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def draw(probs: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """An id of each row of probs (B, V), by its number in [0, 1) of `uniform` (B,), float64; returns (B,), int64."""
    cumulative = probs.astype(np.float64).cumsum(axis=-1)
    # 1 - u is above 0 and at most 1, so the sum reaches it at an id whose own probability is not 0.
    return (cumulative < (1 - uniform)[:, None] * cumulative[:, -1:]).sum(axis=-1)


class RandomNumbers:
    """The numbers of `torch.Generator().manual_seed(seed)` on a CPU: the Mersenne Twister, seeded as torch seeds it. NumPy has
    it too, but to import numpy.random takes a tenth of the time to the first character."""

    def __init__(self, seed: int) -> None:
        state = [seed % 2**32]  # 624 words of 32 bits (init_genrand, Matsumoto and Nishimura 1998)
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
        self._twister = random.Random()
        self._twister.setstate((3, (*state, 624), None))

    def uniform(self, count: int) -> np.ndarray:
        """As `torch.rand(count, dtype=torch.float64)`: uniform in [0, 1), float64, (count,)."""
        return np.array([(number & (2**53 - 1)) * 2.0**-53 for number in self._numbers(count)])

    def below(self, limit: int, count: int) -> list[int]:
        """As `torch.randint(limit, (count,))`, for a limit of 2^32 or more."""
        return [number % limit for number in self._numbers(count)]

    def _numbers(self, count: int) -> list[int]:
        """Whole numbers of 64 bits, each from two words, the higher one first."""
        draw = self._twister.getrandbits
        return [draw(32) << 32 | draw(32) for _ in range(count)]
