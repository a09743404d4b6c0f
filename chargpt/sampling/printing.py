"""How samples are printed: as text, as text coloured by surprise, or as JSON lines."""

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TextIO

from chargpt.sampling.rules import Sampling
from chargpt.sampling.stop_rules import Character
from chargpt.sampling.text_generator import TextGenerator

DIVIDER = "-" * 15
BATCH = 32  # samples made at a time: most of the gain of batching, with bounded memory
BITS = (0.5, 2.0, 4.0)
STYLES = ("2", "0", "33", "31")  # ANSI codes: dim, plain, yellow, red
LEGEND = "surprise: dim below 0.5 bits, plain below 2, yellow below 4, red from 4 on"


def text_of(characters: Sequence[Character]) -> str:
    """The text of `characters`."""
    return "".join(character.text for character in characters)


class TextPrinter:
    """Prints the prompt and the continuation of each sample, and a line of dashes between samples."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._divider = ""

    def begin(self, prompt: str, *, heading: str = "", facts: Mapping[str, Any] | None = None) -> None:
        """Begin a sample. `heading`, unless empty, is printed after the dashes. `facts` are not printed."""
        if heading:
            self._divider = f"{DIVIDER} {heading}\n"
        self.write(self._divider + prompt)
        self._divider = DIVIDER + "\n"

    def add(self, characters: Sequence[Character]) -> None:
        """Print the next characters of the sample at once."""
        self.write(self._render(characters))

    def end(self) -> None:
        """End the sample."""
        self.write("\n")

    def write(self, text: str) -> None:
        """Print text at once."""
        if text:
            self._file.write(text)
            self._file.flush()

    def _render(self, characters: Sequence[Character]) -> str:
        return text_of(characters)


class SurprisePrinter(TextPrinter):
    """A TextPrinter that colours each character by how little the model expected it."""

    def _render(self, characters: Sequence[Character]) -> str:
        return "".join(f"\033[{_style(character.log_probability)}m{character.text}\033[0m" for character in characters)


def _style(log_probability: float) -> str:
    return STYLES[bisect_right(BITS, -log_probability / math.log(2))]


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
        log_probabilities = [round(character.log_probability, 6) for character in self._characters]
        sample = {**self._sample, "text": text_of(self._characters), "log_probabilities": log_probabilities}
        self._file.write(json.dumps(sample, ensure_ascii=False) + "\n")
        self._file.flush()


def print_samples(
    generator: TextGenerator,
    samplings: Sequence[Sampling],
    prompt: Sequence[int],
    seeds: Sequence[int],
    *,
    printer: TextPrinter | JsonPrinter,
    facts: Mapping[str, Any],
) -> int:
    """Print the continuation of the ids `prompt` for each sampling and seed. Returns the number of characters made.

    Samples are made in batches of BATCH. The first sample of a batch is printed while the batch is made.
    """
    echo, made = generator.tokenizer.decode(prompt), 0
    for sampling, start in itertools.product(samplings, range(0, len(seeds), BATCH)):
        heading = f"temperature {sampling.temperature:g}" if len(samplings) > 1 else ""
        batch = seeds[start : start + BATCH]
        about = [{**facts, **asdict(sampling), "seed": seed} for seed in batch]
        samples: list[list[Character]] = [[] for _ in batch]
        printer.begin(echo, heading=heading, facts=about[0])
        for pieces in replace(generator, sampling=sampling).write(prompt, batch):
            printer.add(pieces[0])
            for sample, piece in zip(samples, pieces):
                sample += piece
        printer.end()
        for i in range(1, len(batch)):
            printer.begin(echo, heading=heading, facts=about[i])
            printer.add(samples[i])
            printer.end()
        made += sum(map(len, samples))
    return made
