"""How samples are printed: as text, as text coloured by surprise, or as JSON lines."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, TextIO

from chargpt.sampling.rules import Sampling
from chargpt.sampling.stop_rules import ATTEMPTS, Character
from chargpt.sampling.surprise import level
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.terminal import escape_controls, json_line

DIVIDER = "-" * 15
PLAIN = "0"
# The ANSI code of each level of surprise: dim, plain, yellow, red, and bold red.
STYLES = ("2", PLAIN, PLAIN, "33", "33", "31", "31", "1;31", "1;31")
# Magenta, legible on a dark and on a light background.
MODEL_STYLE = "35"
LEGEND = "surprise: dim below 0.5 bits, plain below 2, yellow below 4, red below 8, bold red from 8 on"
NO_TERMINAL = "--surprise: standard output is not a terminal, so it gets the text without colours; --json writes the numbers"


def text_of(characters: Sequence[Character]) -> str:
    """The text of `characters`."""
    return "".join(character.text for character in characters)


def too_few_lines(samples: Sequence[Sequence[Character]], *, lines: int, length: int) -> str:
    """A line for the user if one of the `samples`, of different lines, has less than `lines`; empty if none has."""
    fewest = min((text_of(sample).count("\n") + bool(sample) for sample in samples), default=lines)
    if fewest >= lines:
        return ""
    limit = f"{ATTEMPTS:,} lines in a row that were not new, or {length:,} characters"
    return f"{fewest:,} of {lines:,} lines: the model had no more new ones ({limit}); raise --temperature or --length"


class TextPrinter:
    """Prints the prompt and the continuation of each sample, and a line of dashes between samples.

    A terminal gets control characters as escapes, so that a text cannot command it. A file or pipe gets the exact text.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_terminal = file.isatty()
        self._divider = ""

    def begin(self, prompt: str, *, heading: str = "", facts: Mapping[str, Any] | None = None) -> None:
        """Begin a sample. `heading`, unless empty, is printed after the dashes. `facts` are not printed."""
        if heading:
            self._divider = f"{DIVIDER} {heading}\n"
        self._write(self._divider)
        self._write(self._shown(prompt))
        self._divider = DIVIDER + "\n"

    def add(self, characters: Sequence[Character]) -> None:
        """Print the next characters of the sample at once."""
        self._write(self._render(characters))

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

    def _render(self, characters: Sequence[Character]) -> str:
        return self._shown(text_of(characters))


class SurprisePrinter(TextPrinter):
    """A TextPrinter that colours each character, on a terminal, by how little the model expected it."""

    def _render(self, characters: Sequence[Character]) -> str:
        if not self._is_terminal:
            return super()._render(characters)
        return "".join(
            coloured(self._shown(character.text), level(-character.log_probability / math.log(2))) for character in characters
        )


class ModelPrinter(TextPrinter):
    """A TextPrinter that gives what the model writes, on a terminal, another colour than the prompt."""

    def _render(self, characters: Sequence[Character]) -> str:
        text = super()._render(characters)
        return styled(text, MODEL_STYLE) if text and self._is_terminal else text


def coloured(text: str, surprise: int) -> str:
    """`text` in the colour of a level of surprise; plain if it was not predicted."""
    return styled(text, STYLES[surprise] if surprise >= 0 else PLAIN)


def styled(text: str, style: str) -> str:
    """`text` in an ANSI style, which does not reach beyond it."""
    return f"\033[{style}m{text}\033[0m"


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


def print_samples(
    generator: TextGenerator,
    samplings: Sequence[Sampling],
    prompt: Sequence[int],
    seeds: Sequence[int],
    *,
    printer: TextPrinter | JsonPrinter,
    facts: Mapping[str, Any],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[int, str]:
    """Print the continuation of the ids `prompt` for each sampling and seed.

    Returns the number of characters made, and a line for the user if there are too few lines; see `too_few_lines`.

    Samples are made in batches of BATCH. The first sample of a batch is printed while the batch is made. When `stop()` becomes
    true, the samples of the batch are printed as far as they are made, and no more are begun.
    """
    echo, made, problem = generator.tokenizer.decode(prompt), 0, ""
    for sampling, start in itertools.product(samplings, range(0, len(seeds), BATCH)):
        heading = f"temperature {sampling.temperature:g}" if len(samplings) > 1 else ""
        batch = seeds[start : start + BATCH]
        about = [{**facts, **asdict(sampling), "seed": seed} for seed in batch]
        samples: list[list[Character]] = [[] for _ in batch]
        printer.begin(echo, heading=heading, facts=about[0])
        with closing(replace(generator, sampling=sampling).write(prompt, batch)) as writing:
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
        if generator.unique:
            problem = problem or too_few_lines(samples, lines=generator.lines, length=generator.length)
    return made, problem
