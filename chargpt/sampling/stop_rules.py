"""The text of a sample as it grows: ids become characters, until a stop text or the last line ends the sample."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from chargpt.errors import Message, Option
from chargpt.text.tokenizer import Tokenizer

ATTEMPTS = 1000  # lines in a row that are not new, after which `UniqueLines` ends a sample


class Character(NamedTuple):
    """One character of a sample."""

    text: str
    log_probability: float  # in nats, under the model itself, before any sampling rule


def text_of(characters: Sequence[Character]) -> str:
    """The text of `characters`."""
    return "".join(character.text for character in characters)


def too_few_lines(samples: Sequence[Sequence[Character]], *, lines: int, length: int) -> Message | None:
    """A line for the user if one of the `samples`, of different lines, has less than `lines`; None if none has."""
    fewest = min((text_of(sample).count("\n") + bool(sample) for sample in samples), default=lines)
    if fewest >= lines:
        return None
    limit = f"{ATTEMPTS:,} lines in a row that were not new, or {length:,} characters"
    what = f"{fewest:,} of {lines:,} lines: the model had no more new ones ({limit}); raise "
    return Message(what, Option("temperature"), " or ", Option("length"))


class StopRules:
    """The rules that end one sample. `push` takes ids and returns the characters that certainly belong to the sample.

    The first of the `stops` to appear ends the sample, and is part of it only with `keep_stop`. The sample also ends before the
    newline of the last of `lines` lines (0: no limit). Characters that may begin a stop text are held back until the next ones
    decide. Lines in `excluded` are removed and not counted, except empty ones; each line is held back until it is complete.
    With `continues_line`, the first line of the sample completes a line of the prompt and is never removed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        keep_stop: bool = False,
        lines: int = 0,
        excluded: Container[str] | None = None,
        continues_line: bool = False,
    ) -> None:
        assert all(stops), "an empty stop text would end every sample at once"
        self.stopped = False
        self._decoder = tokenizer.stream()
        self._log_probability = 0.0  # of ids that do not yet form a character
        self._stops, self._keep_stop = stops, keep_stop
        self._lines_left = lines
        self._excluded, self._continues_line = excluded, continues_line
        self._held: list[Character] = []

    def push(self, new: int, log_probability: float = 0.0) -> list[Character]:
        """Take the next id. Returns the characters that are now certain, often one; none after the end of the sample."""
        if self.stopped:
            return []
        self._log_probability += log_probability
        self._decode(self._decoder.push([new]))
        if self._excluded is not None and self._held and self._held[-1].text == "\n":
            self._remove_line(len(self._held) - 1)
        text = text_of(self._held)
        ends = [at + len(stop) * self._keep_stop for stop in self._stops if (at := text.find(stop)) >= 0]
        if self._lines_left and text.count("\n") >= self._lines_left:
            ends.append([at for at, c in enumerate(text) if c == "\n"][self._lines_left - 1])
        if ends:
            self.stopped = True
            return self._release(min(ends))
        certain = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        return self._release(certain if self._excluded is None else min(certain, text.rfind("\n") + 1))

    def finish(self) -> list[Character]:
        """No more ids will come. Returns the rest of the sample."""
        if self.stopped:
            return []
        self._decode(self._decoder.finish())
        if self._excluded is not None:
            self._remove_line(len(self._held))
        return self._release(len(self._held))

    def _decode(self, text: str) -> None:
        for character in text:
            self._held.append(Character(character, self._log_probability))
            self._log_probability = 0.0

    def _remove_line(self, end: int) -> None:
        """Remove the held line that ends at index `end`, with its newline, if it is excluded."""
        text = "".join(character.text for character in self._held[:end])
        start = text.rfind("\n") + 1
        if not self._continues_line and text[start:] and text[start:] in (self._excluded or ()):
            del self._held[start:]
        self._continues_line = False

    def _release(self, count: int) -> list[Character]:
        released, self._held = self._held[:count], self._held[count:]
        if self._lines_left:
            self._lines_left -= sum(character.text == "\n" for character in released)
        return released


class UniqueLines:
    """The rules that end a sample of whole lines, none of which occurs twice. Used as a `StopRules`.

    A line is removed if it is blank, has been written before, or is in `excluded`. The sample ends with `lines` lines, or after
    ATTEMPTS lines in a row that were removed. A line that is not complete when the sample ends is removed too.
    """

    def __init__(self, rules: StopRules, *, lines: int, excluded: Container[str] | None = None, begun: str = "") -> None:
        """`rules` end the sample at a stop text.

        `begun` is the last line of the prompt: the ids continue it in each line. It is added to each line but the first.
        """
        self.stopped = False
        self._rules = rules
        self._lines_left, self._attempts_left = lines, ATTEMPTS
        self._excluded: Container[str] = () if excluded is None else excluded
        self._begun = begun
        self._written: set[str] = set()
        self._line: list[Character] = []
        self._newline: list[Character] = []  # what ends the last line that was kept; released with the next one

    def push(self, new: int, log_probability: float = 0.0) -> list[Character]:
        """Take the next id. Returns the line that it completes, unless that is removed."""
        released: list[Character] = []
        for character in [] if self.stopped else self._rules.push(new, log_probability):
            if character.text != "\n":
                self._line.append(character)
            elif not self.stopped:
                released += self._end_line(character)
        self.stopped |= self._rules.stopped
        return released

    def finish(self) -> list[Character]:
        """No more ids will come. Nothing is left to release."""
        return []

    def _end_line(self, newline: Character) -> list[Character]:
        text = self._begun + "".join(character.text for character in self._line)
        removed = not text.strip() or text in self._written or text in self._excluded
        line, self._line = self._line, []
        if removed:
            self._attempts_left -= 1
            self.stopped = self._attempts_left == 0
            return []
        begun = [Character(character, 0.0) for character in self._begun] if self._written else []
        released = self._newline + begun + line
        self._written.add(text)
        self._newline, self._attempts_left = [newline], ATTEMPTS
        self._lines_left -= 1
        self.stopped = self._lines_left == 0
        return released


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that could be the beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
