"""The text of samples as they grow: a model makes ids, ids become characters, a stop text ends a sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from chargpt.generate import Sampling, stream
from chargpt.tokenizer import Tokenizer
from model import GPT


class Continuation:
    """One sample. Feed it ids; it gives back text that is certain to belong to the sample, as early as it is certain.

    The first of the `stops` to appear ends the sample and is not part of it. What could be the beginning of one is held
    back until the next characters decide.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        assert all(stops), "an empty text would stop every sample before it began"
        self.stopped = False
        self._decoder = tokenizer.stream()
        self._stops = stops
        self._held = ""

    def push(self, id: int) -> str:
        """Take the next id; the text that it made certain, often one character. Nothing once stopped."""
        return "" if self.stopped else self._release(self._decoder.push([id]))

    def finish(self) -> str:
        """No more ids will come: the rest of the text."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.finish())
        rest, self._held = self._held, ""
        return text + rest

    def _release(self, new: str) -> str:
        text = self._held + new
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A model together with everything that says how it writes."""

    model: GPT
    tokenizer: Tokenizer
    sampling: Sampling
    length: int  # in ids: characters, or bytes where the tokenizer's ids are bytes
    stops: tuple[str, ...] = ()
    overflow: str = "exact"

    def write(self, prompt: Sequence[int], seeds: Sequence[int]) -> Iterator[list[str]]:
        """Continue the ids `prompt` once for each seed, all together, until each sample is as long as it gets.

        Yields, for each id made, what it added to each sample's text (see `Continuation`), and last what was held back.
        """
        samples = [Continuation(self.tokenizer, self.stops) for _ in seeds]
        rows = torch.tensor(prompt, device=self.model.token_embedding.weight.device).expand(len(seeds), -1)
        for ids in stream(
            self.model,
            rows,
            self.length,
            self.sampling,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            never_sampled=self.tokenizer.never_sampled,
            overflow=self.overflow,
        ):
            yield [sample.push(id) for sample, id in zip(samples, ids.tolist())]
            if all(sample.stopped for sample in samples):
                return
        yield [sample.finish() for sample in samples]
