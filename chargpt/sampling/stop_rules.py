"""The text of a sample as it grows: ids become characters, until a stop text or the last line ends the sample."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from chargpt.errors import Message, Option
from chargpt.sampling.options import SamplingOptions
from chargpt.text.tokenizer import DecodeStream, Tokenizer

ATTEMPTS = 1000  # lines in a row that are removed, after which a sample of different lines ends


class Character(NamedTuple):
    """One character of a sample."""

    text: str
    log_probability: float  # in nats, under the model itself, before any sampling rule


def text_of(characters: Sequence[Character]) -> str:
    """The text of `characters`."""
    return "".join(character.text for character in characters)


def too_few_lines(samples: Sequence["StopRules"], options: SamplingOptions) -> Message | None:
    """A line for the user if one of the `samples` is to have different lines, and has too few; None if none has. One that a
    stop text ended has as many as were asked for."""
    worst = max(samples, key=lambda sample: sample.missing, default=None)
    if not options.unique or worst is None or not worst.missing:
        return None
    what = f"only {options.lines - worst.missing:,} of {options.lines:,} lines were written"
    if worst.attempts_left == 0:
        return Message(f"{what}, since the next {ATTEMPTS:,} were blank, banned or not new; raise ", Option("temperature"))
    return Message(f"{what}; raise ", Option("length"))


class StopRules:
    """The rules that end one sample. `push` takes ids and returns the characters that certainly belong to the sample.

    The first of the texts `stop` to appear ends the sample, and is part of it only with `keep_stop`; characters that may begin
    one are held back until the next ones decide. The sample also ends before the newline of the last of `lines` (0: no limit).

    `begun` is the last line of the prompt, which the sample continues. Lines in `excluded`, except empty ones and the rest of
    that line, are removed and not counted, and so are those with a banned word; each line is held back until it is complete.
    With `unique`, all lines are whole and
    begin with `begun`, which is added to all but the first; blank, repeated and incomplete ones are removed too, and the sample
    ends after ATTEMPTS lines in a row that were removed.
    """

    def __init__(
        self, tokenizer: Tokenizer, options: SamplingOptions, *, excluded: Container[str] | None = None, begun: str = ""
    ) -> None:
        self.stopped = False
        self.missing = options.lines  # that the sample may still have
        self._decoder, self._log_probability = DecodeStream(tokenizer), 0.0  # of ids that do not yet form a character
        self._stops, self._keep_stop = [*map(tokenizer.normalized, options.stop)], options.keep_stop
        self._unique, self._begun = options.unique, begun
        self._excluded: Container[str] = () if excluded is None else excluded
        self._in_lines = options.unique or bool(options.ban_word) or excluded is not None
        self._options, self._continues_line = options, begun != ""
        self.attempts_left = ATTEMPTS  # lines that may still be removed in a row
        self._held, self._line = list[Character](), list[Character]()  # what may begin a stop text; the line that has begun
        self._written, self._newline = set[str](), list[Character]()  # with `unique`: the lines, and what ends the last one

    def push(self, new: int, log_probability: float = 0.0) -> list[Character]:
        """Take the next id. Returns the characters that are now certain, often one; none after the end of the sample."""
        if self.stopped:
            return []
        self._log_probability += log_probability
        self._decode(self._decoder.push([new]))
        text = text_of(self._held)
        ends = [at + len(stop) * self._keep_stop for stop in self._stops if (at := text.find(stop)) >= 0]
        if not ends:
            return self._release(len(text) - max((_overlap(text, stop) for stop in self._stops), default=0))
        released = self._release(min(ends))
        released += [] if self.stopped or self._unique or self._is_removed(text_of(self._line)) else self._line
        self.stopped, self.missing = True, 0
        return released

    def finish(self) -> list[Character]:
        """No more ids will come. Returns the rest of the sample."""
        if self.stopped:
            return []
        self._decode(self._decoder.finish())
        released = self._release(len(self._held))
        return released if self.stopped or self._unique or self._is_removed(text_of(self._line)) else released + self._line

    def _decode(self, text: str) -> None:
        for character in text:
            self._held.append(Character(character, self._log_probability))
            self._log_probability = 0.0

    def _release(self, count: int) -> list[Character]:
        """What the first `count` characters that are held add to the sample."""
        certain, self._held, released = self._held[:count], self._held[count:], list[Character]()
        for character in certain:
            if character.text == "\n":
                released += self._end_line(character)
            else:
                (self._line if self._in_lines else released).append(character)
            if self.stopped:
                break
        return released

    def _is_removed(self, text: str) -> bool:
        """Whether a line with this `text` is no part of the sample."""
        if self._options.bans(self._begun * self._continues_line * (not self._unique) + text):
            return True
        if self._unique:
            return not text.strip() or text in self._written or text in self._excluded
        return bool(text) and not self._continues_line and text in self._excluded

    def _end_line(self, newline: Character) -> list[Character]:
        """What the line adds to the sample that `newline` ends."""
        line, self._line = self._line, []
        text = self._begun * self._unique + text_of(line)
        removed = self._is_removed(text)
        self._continues_line &= removed
        if removed:
            self.attempts_left -= 1
            self.stopped = self._unique and self.attempts_left == 0
            return []
        self.missing, self.attempts_left = self.missing - 1, ATTEMPTS
        self.stopped = self.missing == 0
        if not self._unique:
            return line if self.stopped else [*line, newline]
        begun = [Character(character, 0.0) for character in self._begun] if self._written else []
        released, self._newline = [*self._newline, *begun, *line], [newline]
        self._written.add(text)
        return released


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that could be the beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
