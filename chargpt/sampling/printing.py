"""How samples are shown: as text, plain or coloured by surprise, or as JSON lines."""

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TextIO

from chargpt.sampling.decoder import Sampling
from chargpt.sampling.stop_rules import Character
from chargpt.sampling.text_generator import Writer

DIVIDER = "-" * 15
TOGETHER = 32  # samples made in one batch: most of what batching gains, at a bounded memory
BITS = (0.5, 2.0, 4.0)
STYLES = ("2", "0", "33", "31")  # a terminal's dim, plain, yellow, red
LEGEND = "surprise: dim below 0.5 bits, plain below 2, yellow below 4, red from 4 on"


def plain(characters: Sequence[Character]) -> str:
    """The text of `characters`."""
    return "".join(character.text for character in characters)


def coloured(characters: Sequence[Character]) -> str:
    """The text of `characters`, in a terminal's colours for how little the model expected each."""
    return "".join(f"\033[{_style(character.log_probability)}m{character.text}\033[0m" for character in characters)


def _style(log_probability: float) -> str:
    return STYLES[bisect_right(BITS, -log_probability / math.log(2))]


class TextPrinter:
    """Each sample as its prompt and its continuation, on a line of its own; a line of dashes between samples."""

    def __init__(self, file: TextIO, *, paint: Callable[[Sequence[Character]], str]) -> None:
        self._file = file
        self._paint = paint
        self._divider = ""

    def begin(self, prompt: str, *, heading: str, facts: Mapping[str, Any]) -> None:
        """A sample begins. A `heading`, unless empty, stands beside the dashes; `facts` are for JSON."""
        if heading:
            self._divider = f"{DIVIDER} {heading}\n"
        self._write(self._divider + prompt)
        self._divider = DIVIDER + "\n"

    def add(self, characters: Sequence[Character]) -> None:
        """The sample goes on, visibly at once."""
        self._write(self._paint(characters))

    def end(self) -> None:
        """The sample is whole."""
        self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._file.write(text)
            self._file.flush()


class JsonPrinter:
    """Each sample as an object on a line: `facts`, prompt, text, and the log-probability (nats) of each character of text."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, prompt: str, *, heading: str, facts: Mapping[str, Any]) -> None:
        """A sample begins. The `facts` come first in its object, `heading` is for readers of text."""
        self._sample = {**facts, "prompt": prompt}
        self._characters: list[Character] = []

    def add(self, characters: Sequence[Character]) -> None:
        """The sample goes on."""
        self._characters.extend(characters)

    def end(self) -> None:
        """The sample is whole: its line is written."""
        log_probabilities = [round(character.log_probability, 6) for character in self._characters]
        sample = {**self._sample, "text": plain(self._characters), "log_probabilities": log_probabilities}
        self._file.write(json.dumps(sample, ensure_ascii=False) + "\n")
        self._file.flush()


def print_samples(
    writer: Writer,
    samplings: Sequence[Sampling],
    prompt: Sequence[int],
    seeds: Sequence[int],
    *,
    printer: TextPrinter | JsonPrinter,
    facts: Mapping[str, Any],
) -> int:
    """Print the continuation of the ids `prompt` for each sampling and seed; how many characters were made.

    Samples are made together, and the first of a batch is printed while they are.
    """
    echo, made = writer.tokenizer.decode(prompt), 0
    for sampling, start in itertools.product(samplings, range(0, len(seeds), TOGETHER)):
        heading = f"temperature {sampling.temperature:g}" if len(samplings) > 1 else ""
        batch = seeds[start : start + TOGETHER]
        about = [{**facts, **asdict(sampling), "seed": seed} for seed in batch]
        samples: list[list[Character]] = [[] for _ in batch]
        printer.begin(echo, heading=heading, facts=about[0])
        for pieces in replace(writer, sampling=sampling).write(prompt, batch):
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
