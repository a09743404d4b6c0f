"""How samples are printed: as text, or as JSON lines."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TextIO

from chargpt.errors import Message, Option
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import ATTEMPTS, Character
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.terminal import escape_controls, json_line

DIVIDER = "-" * 15
MAGENTA = "\033[35m{}\033[0m"  # legible on a dark and on a light background; does not reach beyond its text


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


class TextPrinter:
    """Prints the prompt and the continuation of each sample, and a line of dashes between samples.

    A terminal gets control characters as escapes, so that a text cannot command it. A file or pipe gets the exact text.
    """

    def __init__(self, file: TextIO, *, coloured: bool = False) -> None:
        """With `coloured`, what the model writes has another colour than the prompt."""
        self._file, self._coloured = file, coloured
        self._is_terminal = file.isatty()
        self._divider = ""

    def begin(self, prompt: str, *, heading: str = "", facts: Mapping[str, Any] | None = None) -> None:
        """Begin a sample. `heading`, unless empty, is printed after the dashes. `facts` are not printed."""
        if heading:
            self._divider = f"{DIVIDER} {heading}\n"
        self._write(self._divider)
        self.prompt(prompt)
        self._divider = DIVIDER + "\n"

    def add(self, characters: Sequence[Character]) -> None:
        """Print the next characters of the sample at once."""
        text = self._shown(text_of(characters))
        self._write(MAGENTA.format(text) if text and self._coloured else text)

    def end(self) -> None:
        """End the sample."""
        self._write("\n")

    def prompt(self, text: str) -> None:
        """Print text that the model continues."""
        self._write(self._shown(text))

    def _write(self, text: str) -> None:
        if text:
            self._file.write(text)
            self._file.flush()

    def _shown(self, text: str) -> str:
        return escape_controls(text) if self._is_terminal else text


class JsonPrinter:
    """Prints each sample as a JSON object on one line.

    The object holds the `facts`, the prompt, the text, and the log-probability (nats) of each character of the text.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, prompt: str, *, heading: str = "", facts: Mapping[str, Any] | None = None) -> None:
        """Begin a sample. The object begins with `facts`. `heading` is not printed."""
        self._sample = {**(facts or {}), "prompt": prompt}
        self._characters: list[Character] = []

    def add(self, characters: Sequence[Character]) -> None:
        """Collect the next characters of the sample."""
        self._characters.extend(characters)

    def end(self) -> None:
        """Print the sample."""
        log_probabilities = [round(character.log_probability, 6) + 0.0 for character in self._characters]  # 0.0 instead of -0.0
        sample = {**self._sample, "text": text_of(self._characters), "log_probabilities": log_probabilities}
        self._file.write(json_line(sample, self._file) + "\n")
        self._file.flush()


def print_next(found: Sequence[tuple[str, float]], file: TextIO, *, facts: Mapping[str, Any] | None) -> None:
    """Print characters and their probabilities: a line for each, or with `facts` one JSON object that begins with them."""
    if facts is not None:
        following = [{"text": text, "probability": round(chance, 6)} for text, chance in found]
        file.write(json_line({**facts, "next": following}, file) + "\n")
        return
    for text, chance in found:
        file.write(f"{escape_controls(repr(text)):<8} {chance:7.2%}\n")


def print_samples(
    generator: TextGenerator,
    samplings: Sequence[SamplingOptions],
    prompt: Sequence[int],
    seeds: Sequence[int],
    *,
    printer: TextPrinter | JsonPrinter,
    facts: Mapping[str, Any],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[int, Message | None]:
    """Print the continuation of the ids `prompt` for each sampling and seed.

    Returns the number of characters made, and a line for the user if there are too few lines; see `too_few_lines`.

    Samples are made in batches of BATCH. The first sample of a batch is printed while the batch is made. When `stop()` becomes
    true, what there is of the samples of the batch is printed, and no more are begun.
    """
    echo, made = generator.tokenizer.decode(prompt), 0
    problem: Message | None = None
    for sampling, start in itertools.product(samplings, range(0, len(seeds), BATCH)):
        heading = f"temperature {sampling.temperature:g}" if len(samplings) > 1 else ""
        batch = seeds[start : start + BATCH]
        about = [{**facts, **sampling.rules(), "seed": seed} for seed in batch]
        samples: list[list[Character]] = [[] for _ in batch]
        printer.begin(echo, heading=heading, facts=about[0])
        with closing(replace(generator, options=sampling).write(prompt, batch)) as writing:
            for pieces in writing:
                printer.add(pieces[0])
                for sample, piece in zip(samples, pieces):
                    sample += piece
                if stop():
                    break
        printer.end()
        for i in range(1, len(batch)):
            printer.begin(echo, heading=heading, facts=about[i])
            printer.add(samples[i])
            printer.end()
        made += sum(map(len, samples))
        if stop():
            break
        if generator.options.unique:
            problem = problem or too_few_lines(samples, lines=generator.options.lines, length=generator.options.limit)
    return made, problem
