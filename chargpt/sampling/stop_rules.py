"""The text of a sample as it grows: ids become characters, until a stop text or the last line ends it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from chargpt.text.tokenizer import Tokenizer


class Character(NamedTuple):
    """One character of a sample."""

    text: str
    log_probability: float  # in nats, by the model itself, whatever the sampling


class Continuation:
    """One sample. Feed it ids; it gives back what is certain to belong to the sample, as early as it is certain.

    The first of the `stops` to appear ends the sample and is not part of it, and so does the end of the last of `lines`
    lines (0 is any number). What could be the beginning of a stop text is held back until the next characters decide.
    Lines to `leave_out` are no part of it and are not counted, save empty ones; each line is then held back until it is whole.
    A sample that `goes_on` with a line that the prompt began keeps the rest of it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        lines: int = 0,
        leave_out: Callable[[str], bool] | None = None,
        goes_on: bool = False,
    ) -> None:
        assert all(stops), "an empty text would stop every sample before it began"
        self.stopped = False
        self._decoder = tokenizer.stream()
        self._log_probability = 0.0  # of ids that are not yet a character
        self._stops = stops
        self._lines_left = lines
        self._leave_out, self._goes_on = leave_out, goes_on
        self._held: list[Character] = []

    def push(self, id: int, log_probability: float = 0.0) -> list[Character]:
        """Take the next id; the characters that it made certain, often one. None once stopped."""
        if self.stopped:
            return []
        self._log_probability += log_probability
        self._decode(self._decoder.push([id]))
        if self._leave_out and self._held and self._held[-1].text == "\n":
            self._drop_line(len(self._held) - 1)
        text = "".join(character.text for character in self._held)
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if self._lines_left and text.count("\n") >= self._lines_left:
            ends.append([at for at, c in enumerate(text) if c == "\n"][self._lines_left - 1])
        if ends:
            self.stopped = True
            return self._release(min(ends))
        certain = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        return self._release(min(certain, text.rfind("\n") + 1) if self._leave_out else certain)

    def finish(self) -> list[Character]:
        """No more ids will come: the rest of the text."""
        if self.stopped:
            return []
        self._decode(self._decoder.finish())
        if self._leave_out:
            self._drop_line(len(self._held))
        return self._release(len(self._held))

    def _decode(self, text: str) -> None:
        for character in text:
            self._held.append(Character(character, self._log_probability))
            self._log_probability = 0.0

    def _drop_line(self, end: int) -> None:
        """Let go of the held line that ends at `end`, and of its end, if it is to be left out."""
        text = "".join(character.text for character in self._held[:end])
        start = text.rfind("\n") + 1
        if not self._goes_on and text[start:] and self._leave_out(text[start:]):
            del self._held[start:]
        self._goes_on = False

    def _release(self, count: int) -> list[Character]:
        released, self._held = self._held[:count], self._held[count:]
        if self._lines_left:
            self._lines_left -= sum(character.text == "\n" for character in released)
        return released


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
