"""The text of a sample as it grows: ids become characters, until a stop text or the last line ends it."""

from collections.abc import Sequence
from typing import NamedTuple

from chargpt.tokenizer import Tokenizer


class Character(NamedTuple):
    """One character of a sample."""

    text: str
    log_probability: float  # in nats, by the model itself, whatever the sampling


class Continuation:
    """One sample. Feed it ids; it gives back what is certain to belong to the sample, as early as it is certain.

    The first of the `stops` to appear ends the sample and is not part of it, and so does the end of the last of `lines`
    lines (0 is any number). What could be the beginning of a stop text is held back until the next characters decide.
    """

    def __init__(self, tokenizer: Tokenizer, *, stops: Sequence[str] = (), lines: int = 0) -> None:
        assert all(stops), "an empty text would stop every sample before it began"
        self.stopped = False
        self._decoder = tokenizer.stream()
        self._log_probability = 0.0  # of ids that are not yet a character
        self._stops = stops
        self._lines_left = lines
        self._held: list[Character] = []

    def push(self, id: int, log_probability: float = 0.0) -> list[Character]:
        """Take the next id; the characters that it made certain, often one. None once stopped."""
        if self.stopped:
            return []
        self._log_probability += log_probability
        self._decode(self._decoder.push([id]))
        text = "".join(character.text for character in self._held)
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if self._lines_left and text.count("\n") >= self._lines_left:
            ends.append([at for at, c in enumerate(text) if c == "\n"][self._lines_left - 1])
        if ends:
            self.stopped = True
            return self._release(min(ends))
        return self._release(len(text) - max((_overlap(text, stop) for stop in self._stops), default=0))

    def finish(self) -> list[Character]:
        """No more ids will come: the rest of the text."""
        if self.stopped:
            return []
        self._decode(self._decoder.finish())
        return self._release(len(self._held))

    def _decode(self, text: str) -> None:
        for character in text:
            self._held.append(Character(character, self._log_probability))
            self._log_probability = 0.0

    def _release(self, count: int) -> list[Character]:
        released, self._held = self._held[:count], self._held[count:]
        if self._lines_left:
            self._lines_left -= sum(character.text == "\n" for character in released)
        return released


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
