"""What continues texts: an engine, which holds B texts and computes, and the context that it reads, whatever the engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chargpt.sampling import rules
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import NEVER, WINDOW, RandomNumbers, draw, log_probabilities, probabilities


def distribution(logits: np.ndarray, in_use: Mapping[str, float], texts: np.ndarray) -> np.ndarray:
    """The probabilities (B, V) that characters are drawn from, after the rules in use: see `SamplingOptions.rules_in_use`."""
    for name, value in in_use.items():
        logits = getattr(rules, name)(logits, value, texts)
    return probabilities(logits)


class NewIds(NamedTuple):
    """The next n characters of B texts."""

    ids: np.ndarray  # (n, B), int64
    log_probabilities: np.ndarray  # of each id under the model itself, before any sampling rule, in nats, (n, B), float32


class Choice(NamedTuple):
    """How the next characters are chosen."""

    rules: Mapping[str, float]  # those that are not off, by name, in their order
    forbidden: np.ndarray  # ids that are never chosen, (n,), int64
    random: Sequence[RandomNumbers]  # of each text

    def uniform(self, count: int) -> np.ndarray:
        """The next numbers of each text, uniform in [0, 1), float64, (count, B)."""
        return np.ascontiguousarray(np.stack([numbers.uniform(count) for numbers in self.random], axis=1))


class Texts:
    """B texts in the memory of an engine, which has to `read`. An engine that chooses itself is faster."""

    def read(self, start: int, ids: np.ndarray) -> np.ndarray:
        """Read `ids` (B, T) at positions from `start`. Returns the logits (B, V) of the next character, float32."""
        raise NotImplementedError

    def write(self, start: int, texts: np.ndarray, count: int, limit: int, choice: Choice) -> NewIds:
        """Read the last `count` ids of `texts` (B, T) at positions from `start`, and choose from 1 to `limit` that follow. The
        last one is not read."""
        logits = self.read(start, texts[:, -count:])
        allowed = logits.copy()
        allowed[:, choice.forbidden] = NEVER
        ids = draw(distribution(allowed, choice.rules, texts), choice.uniform(1)[0])
        return NewIds(ids[None], np.take_along_axis(log_probabilities(logits), ids[:, None], axis=-1).T)


@dataclass(frozen=True)
class Writer:
    """A model that continues texts.

    Up to block_size characters, the cache of an engine makes the cost of a character independent of the length of the text.
    Beyond that, the definition is that of GPT.generate: the model reads the last block_size characters, starting at position 0.
    Every character then has a new position and a shorter past, so no cached key or value is valid. `overflow` selects what
    happens: `refill` drops half of a full context and reads the rest again, which reads about two characters for each one
    written but forgets half of the context each time; `exact` reads the whole context again for each new character.
    """

    new_texts: Callable[[int], Texts]  # for this many texts
    block_size: int
    at_once: int = 32  # texts that it is given at most: most of the gain of batching, with bounded memory

    def pieces(
        self,
        prompts: Sequence[Sequence[int]],
        length: int,
        options: SamplingOptions,
        *,
        seeds: Sequence[int],
        never_sampled: Sequence[int] = (),
    ) -> Iterator[NewIds]:
        """Continue the ids of B `prompts` of one length above 0 by `length` ids, each with the random numbers of its seed.
        `never_sampled` are ids that are never chosen; at least one must remain. The new ids come as they are made."""
        engine, size = self.new_texts(len(seeds)), self.block_size
        choice = Choice(options.rules_in_use(), np.array(never_sampled, np.int64), [RandomNumbers(seed) for seed in seeds])
        kept = max(size, WINDOW)
        texts = np.array(prompts, np.int64)[:, -kept:]  # (B, T)
        position, count = 0, min(texts.shape[1], size)  # where the next ids are read, and how many
        while length > 0:
            if position + count > size:
                position, count = 0, max(1, size // 2) if options.overflow == "refill" else size
            new = engine.write(position, texts, count, min(length, size - position - count + 1), choice)
            yield new
            length -= len(new.ids)
            position, count = position + count + len(new.ids) - 1, 1
            texts = np.concatenate((texts, new.ids.T), axis=1)[:, -kept:]
