"""A model that writes: which characters it may use, where a sample ends, many samples at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from chargpt.sampling.decoder import Sampling, Scribe, first_id, pieces
from chargpt.sampling.stop_rules import Character, Continuation
from chargpt.text.tokenizer import Tokenizer
from model import GPT


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A model together with everything that says how it writes.

    Raises ValueError, beginning with the field's name, for what this model's vocabulary can never fulfil.
    """

    model: GPT
    tokenizer: Tokenizer
    sampling: Sampling
    length: int  # in ids: characters, or bytes where the tokenizer's ids are bytes
    lines: int = 0  # a sample ends with its last line; 0 is any number of them
    stop: Sequence[str] = ()  # a sample ends before the first of these texts
    allow: str | None = None  # the only characters to write; None is all
    ban: str | None = None  # characters never to write
    overflow: str = "exact"
    leave_out: Callable[[str], bool] | None = None  # lines that are no part of a sample
    scribe: Callable[..., Scribe] = Scribe

    def __post_init__(self) -> None:
        self._stop_texts()
        forbidden = self._forbidden()
        if len(forbidden) == self.tokenizer.vocab_size:
            raise ValueError("ban: no character is left to write; ban less, or allow more")
        newline, _ = self.tokenizer.encode_known("\n")
        if self.lines and not set(newline.tolist()) - forbidden:
            raise ValueError(f"lines: {self.lines} given, but this model writes no newlines; use --length")

    def write(self, prompt: Sequence[int], seeds: Sequence[int]) -> Iterator[list[list[Character]]]:
        """Continue the ids `prompt` once for each seed, all together, until each sample is as long as it gets.

        No prompt at all is a text's beginning: the model goes on from a newline (see `first_id`) that is not part of the text.
        Yields, as it comes, what was added to each sample (see `Continuation`), and last what was held back.
        """
        begun = self.tokenizer.decode(list(prompt)).rpartition("\n")[2]
        rules = {"stops": self._stop_texts(), "lines": self.lines, "leave_out": self.leave_out, "goes_on": begun != ""}
        samples = [Continuation(self.tokenizer, **rules) for _ in seeds]
        start = torch.tensor(prompt or [first_id(self.tokenizer)], device=self.model.token_embedding.weight.device)
        for piece in pieces(
            self.model,
            start.expand(len(seeds), -1),
            self.length,
            self.sampling,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            never_sampled=sorted(self._forbidden()),
            overflow=self.overflow,
            scribe=self.scribe,
        ):
            made = zip(samples, piece.ids.T.tolist(), piece.log_probabilities.T.tolist())
            yield [[character for step in zip(ids, values) for character in sample.push(*step)] for sample, ids, values in made]
            if all(sample.stopped for sample in samples):
                return
        yield [sample.finish() for sample in samples]

    def _stop_texts(self) -> list[str]:
        """The stop texts as the model writes them: lower-cased, say, if its training text was."""
        return [self.tokenizer.decode(self._writable("stop", text)) for text in self.stop]

    def _forbidden(self) -> set[int]:
        """The ids never to write."""
        for field, characters in (("allow", self.allow), ("ban", self.ban)):
            if characters and self.tokenizer.characters is None and not characters.isascii():
                raise ValueError(f"{field}: {characters!r} given, but this model writes bytes; use ASCII characters")
        forbidden = set(self.tokenizer.never_sampled)
        if self.ban is not None:
            forbidden.update(self._writable("ban", self.ban))
        if self.allow is not None:
            forbidden.update(set(range(self.tokenizer.vocab_size)) - set(self._writable("allow", self.allow)))
        return forbidden

    def _writable(self, field: str, text: str) -> list[int]:
        """The ids of `text`, which must be a text that the model can write."""
        ids, unknown = self.tokenizer.encode_known(text)
        if not text or unknown or set(ids.tolist()) & set(self.tokenizer.never_sampled):
            raise ValueError(f"{field}: {text!r} given; use characters that this model can write")
        return ids.tolist()
