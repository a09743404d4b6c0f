"""Text from a model: which characters it may write, when a sample ends, several samples at a time."""

from collections.abc import Container, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from chargpt.canonical import canonical
from chargpt.errors import Given, Message, Option, UserError, short
from chargpt.sampling.options import SamplingOptions, TextKeywords
from chargpt.sampling.rules import RandomNumbers
from chargpt.sampling.stop_rules import Character, StopRules, too_few_lines
from chargpt.sampling.writer import Writer
from chargpt.text.tokenizer import Tokenizer

Ids = Sequence[int]

BATCH = 32  # lines or items made at a time, since their number decides which ones follow from a seed; see Writer.at_once


@dataclass(frozen=True, kw_only=True)
class TextGenerator:
    """A model with all the settings of its text. Raises UserError for a setting that its vocabulary cannot satisfy."""

    writer: Writer
    tokenizer: Tokenizer
    options: SamplingOptions  # lengths are in ids: characters, or bytes if the tokenizer's ids are bytes
    excluded: Container[str] | None = None  # lines that are removed from a sample

    def __post_init__(self) -> None:
        self.stop_rules([])  # checks the stop texts
        forbidden = self._forbidden()
        if len(forbidden) == self.tokenizer.vocab_size:
            raise UserError(Option("ban"), ": no character is left to write; ban less, or allow more")
        if self.options.lines and self._newline <= forbidden:
            what = "this model writes no newlines; use "
            raise UserError(Given("lines", self.options.lines, ", but "), what, Option("length"))
        for name in ("unique", "ban_word"):
            if getattr(self.options, name) and not self.options.lines:
                raise UserError(Option(name), ": removes lines; say how many lines to write, with ", Option("lines", 20))

    def changed(self, **options: Unpack[TextKeywords]) -> "TextGenerator":
        """The same model with other options."""
        return replace(self, options=replace(self.options, **options))

    def write(
        self, prompts: Sequence[Ids], seeds: Ids, samples: Sequence[StopRules] = ()
    ) -> Generator[list[list[Character]], None, None]:
        """Continue the ids of `prompts` of one length, each with its own seed, together, until every sample has ended.

        An empty prompt starts a text: the model continues a newline (see `first_id`) that is not part of the text. Each item is
        a list with the new characters of each sample (see `StopRules`); the last item holds what was held back. `samples` are
        the `stop_rules` of the prompts, for a caller who asks them how their samples have ended.
        """
        samples = samples or [self.stop_rules(prompt) for prompt in prompts]
        if self.options.unique and any(self._last_line(prompt) for prompt in prompts):
            for i, (prompt, seed, sample) in enumerate(zip(prompts, seeds, samples)):
                for characters in self._write_lines(prompt, seed, sample):
                    yield [characters if other == i else [] for other in range(len(prompts))]
            return
        for made in self._steps(prompts, seeds, self.options.limit):
            yield [[character for step in steps for character in sample.push(*step)] for sample, steps in zip(samples, made)]
            if all(sample.stopped for sample in samples):
                return
        yield [sample.finish() for sample in samples]

    def _write_lines(self, prompt: Ids, seed: int, sample: StopRules) -> Iterator[list[Character]]:
        """The different lines of one `sample`, each of which continues the ids `prompt`, as the first line does. Lines are made
        BATCH at a time, the first of them by `seed`, the others by seeds that are drawn from it."""
        newline, random, first = self._newline, RandomNumbers(seed), [seed]
        left = self.options.limit
        while left > 0 and not sample.stopped:
            batch = first + random.below(2**62, min(BATCH, self.options.lines) - len(first))
            first, lines = [], [list[tuple[int, float]]() for _ in batch]
            for made in self._steps([prompt] * len(batch), batch, left):
                yield []
                for line, steps in zip(lines, made):
                    if not (line and line[-1][0] in newline):
                        end = next((i for i, (new, _) in enumerate(steps, 1) if new in newline), len(steps))
                        line += steps[:end]
                if all(line[-1][0] in newline for line in lines):
                    break
            released: list[Character] = []
            for line in lines:
                released += [character for step in line[:left] for character in sample.push(*step)]
                left = max(0, left - len(line))
            yield released

    def _steps(self, prompts: Sequence[Ids], seeds: Ids, length: int) -> Iterator[list[list[tuple[int, float]]]]:
        """For each of the `prompts` of one length, the next ids with their log-probabilities, up to `length` in all."""
        ids = [list(prompt) or [self.tokenizer.first_id] for prompt in prompts]
        never = sorted(self._forbidden())
        for piece in self.writer.pieces(ids, length, self.options, seeds=seeds, never_sampled=never):
            yield [list(zip(new, values)) for new, values in zip(piece.ids.T.tolist(), piece.log_probabilities.T.tolist())]

    def continuations(self, prompts: Sequence[Ids], seeds: Ids) -> tuple[list[list[Character]], Message | None]:
        """The whole samples that continue the ids `prompts`, of any lengths, each with its own seed; see `too_few_lines`.
        Prompts of one length are continued together, as many at a time as the writer takes."""
        written: list[list[Character]] = [[] for _ in prompts]
        samples = list(map(self.stop_rules, prompts))
        by_length: dict[int, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(i)
        size = self.writer.at_once
        for same in by_length.values():
            for batch in (same[start : start + size] for start in range(0, len(same), size)):
                for added in self.write([prompts[i] for i in batch], [seeds[i] for i in batch], [samples[i] for i in batch]):
                    for i, characters in zip(batch, added):
                        written[i] += characters
        return written, too_few_lines(samples, self.options)

    def stop_rules(self, prompt: Ids) -> StopRules:
        """What ends a sample that continues the ids `prompt`. A stop text has the form that the model writes: for example, it
        is in lower case if its training text was."""
        stops = [self.tokenizer.decode(self._writable("stop", text)) for text in self.options.stop]
        options = replace(self.options, stop=stops)
        return StopRules(self.tokenizer, options, excluded=self.excluded, begun=self._last_line(prompt))

    def _last_line(self, prompt: Ids) -> str:
        """The line of the ids `prompt` that a sample continues; empty if the sample begins a line."""
        return self.tokenizer.decode(list(prompt)).rpartition("\n")[2]

    @property
    def _newline(self) -> set[int]:
        return set(self.tokenizer.encode_known("\n")[0].tolist())

    def _forbidden(self) -> set[int]:
        """The ids that are never written."""
        allow, ban = self.options.allow, self.options.ban
        for name, characters in (("allow", allow), ("ban", ban)):
            if characters and self.tokenizer.characters is None and not characters.isascii():
                what = "this model writes single bytes; use English letters, digits and signs (ASCII)"
                raise UserError(Given(name, characters, ", but "), what)
        if ban == "":
            raise UserError(Given("ban", ""), "give the characters never to be written, such as ", Option("ban", "#@"))
        banned = [self.tokenizer.encode_known(one)[0].tolist() for one in canonical(ban or "")]
        forbidden = {*self.tokenizer.never_sampled, *(ids[0] for ids in banned if len(ids) == 1)}
        if allow is None:
            return forbidden
        return forbidden | {*range(self.tokenizer.vocab_size)} - {*self._writable("allow", allow)}

    def _writable(self, name: str, text: str) -> list[int]:
        """The ids of `text`. Raises UserError if the model cannot write it."""
        ids, unknown = self.tokenizer.encode_known(text)
        if not text or unknown or set(ids.tolist()) & set(self.tokenizer.never_sampled):
            what = f"this model cannot write {short(unknown or text)}; use characters of its training text"
            raise UserError(Given(name, text, ", but "), what)
        return ids.tolist()
