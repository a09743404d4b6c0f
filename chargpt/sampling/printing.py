"""How samples, items and the next characters are printed: as text, or as JSON lines."""

import io
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TextIO

from chargpt.errors import Message
from chargpt.formatting import escape_controls
from chargpt.json_lines import write_json
from chargpt.sampling.cli import SampleOptions
from chargpt.sampling.item_writer import known_items
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.stop_rules import Character, text_of, too_few_lines
from chargpt.sampling.text_generator import TextGenerator
from chargpt.screen import log

DIVIDER = "-" * 15
QUICK_TO_READ = 2**24  # ids of a training text up to which its items are compared with new ones without being asked
NOT_IN_CACHE = "since the program has no copy of the training text of this run"
MAGENTA = "\033[35m{}\033[0m"  # legible on a dark and on a light background; does not reach beyond its text


class TextPrinter:
    """Prints the prompt and the continuation of each sample, and a line of dashes between samples.

    A terminal gets control characters as escapes, so that a text cannot command it. A file or pipe gets the exact text.
    With `coloured`, what the model writes has another colour than the prompt.
    """

    def __init__(self, file: TextIO, *, coloured: bool = False) -> None:
        self._file, self._is_terminal, self._made, self._divider = file, file.isatty(), MAGENTA if coloured else "{}", ""

    def begin(self, prompt: str, *, heading: str = "") -> None:
        """Begin a sample. `heading`, unless empty, is printed after the dashes."""
        self.prompt(f"{DIVIDER} {heading}\n" if heading else self._divider)
        self.prompt(prompt)
        self._divider = DIVIDER + "\n"

    def prompt(self, text: str, layout: str = "{}") -> None:
        """Print text that the model continues."""
        if text:
            self._file.write(layout.format(escape_controls(text) if self._is_terminal else text))
            self._file.flush()

    def add(self, characters: Sequence[Character]) -> None:
        """Print the next characters of the sample at once."""
        self.prompt(text_of(characters), self._made)

    def end(self) -> None:
        """End the sample."""
        self.prompt("\n")


def print_next(found: Sequence[tuple[str, float]], file: TextIO, *, facts: Mapping[str, Any] | None) -> None:
    """Print characters and their probabilities: a line for each, or with `facts` one JSON object that begins with them."""
    if facts is not None:
        following = [{"text": text, "probability": round(chance, 6)} for text, chance in found]
        write_json({**facts, "next": following}, file)
        return
    for text, chance in found:
        file.write(f"{escape_controls(repr(text)):<8} {chance:7.2%}\n")


def print_samples(
    options: SampleOptions,
    loaded: LoadedModel,
    generator: TextGenerator,
    prompt: Sequence[int],
    file: TextIO,
    *,
    stop: Callable[[], bool],
) -> None:
    """Write the samples that the options ask for to `file`, each the continuation of the ids `prompt`, and how fast they were
    made to standard error. A JSON object has the log-probability (nats) of each character.

    Samples are made in batches, of which the first text is printed while they are made. When `stop()` becomes true,
    what there is of the batch is printed, and no more are begun.
    """
    echo, first, made, size = generator.tokenizer.decode(prompt), options.sampling.seed or 0, 0, generator.writer.at_once
    started, printer = time.perf_counter(), TextPrinter(io.StringIO() if options.json else file)
    problem: Message | None = None
    for sampling, start in itertools.product(options.samplings, range(0, options.samples, size)):
        heading = f"temperature {sampling.temperature:g}" if len(options.samplings) > 1 else ""
        seeds = range(first, first + options.samples)[start : start + size]
        samples, rules = [list[Character]() for _ in seeds], [generator.stop_rules(prompt) for _ in seeds]
        printer.begin(echo, heading=heading)
        with closing(replace(generator, options=sampling).write([prompt] * len(seeds), seeds, rules)) as writing:
            for pieces in writing:
                printer.add(pieces[0])
                for sample, piece in zip(samples, pieces):
                    sample += piece
                if stop():
                    break
        printer.end()
        for sample in samples[1:]:
            printer.begin(echo, heading=heading)
            printer.add(sample)
            printer.end()
        for seed, sample in zip(seeds, samples) if options.json else ():
            chances = [round(character.log_probability, 6) + 0.0 for character in sample]  # 0.0 instead of -0.0
            about = {"run": loaded.run, "step": loaded.step, **sampling.rules(), "seed": seed, "prompt": echo}
            write_json({**about, "text": text_of(sample), "log_probabilities": chances}, file)
        made += sum(map(len, samples))
        if stop():
            break
        problem = problem or too_few_lines(rules, generator.options)
    seconds = time.perf_counter() - started
    log(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    if stop():
        log("stopped")
    elif problem:
        log(problem)


def print_items(options: SampleOptions, loaded: LoadedModel, beginning: str, file: TextIO, *, stop: Callable[[], bool]) -> None:
    """Write the items that the options ask for to `file`, and a table to standard error. Raises UserError. When `stop()`
    becomes true, no more items are made."""
    wanted, corpus = options.sampling, loaded.find_corpus()
    if corpus is None and wanted.label is not None:
        log(f"--label: used unchecked, {NOT_IN_CACHE}")
    started, writer = time.perf_counter(), loaded.item_writer(wanted, beginning=beginning)
    for item in writer:
        if not options.json:
            text = f"{item.label}\t{item.text}" if item.label and wanted.label is None else item.text
            file.write((escape_controls(text) if file.isatty() else text) + "\n" * (1 + ("\n" in item.text)))
            file.flush()
        if stop():
            break
    seconds, written = time.perf_counter() - started, len(writer.written)
    known = writer.known or (known_items(corpus) if corpus is not None and len(corpus.train) <= QUICK_TO_READ else None)
    for item, loss in zip(writer.written, loaded.item_losses(writer.written).tolist()) if options.json else ():
        value: dict[str, object] = {"label": item.label} if item.label else {}
        value |= {"item": item.text, "log_probability": round(-loss, 4), "bits": round(loss / math.log(2), 4)}
        value |= {} if known is None else {"new": item.text not in known}
        write_json(value, file)
    file.flush()
    rejected = f"; rejected: {writer.why}" if writer.refused else ""
    log(f"written   {written:>7,}  of {wanted.items:,} wanted, in {seconds:.1f} s{rejected}")
    log(f"unique    {writer.unique:>7,}  {writer.unique / max(1, written):6.1%} of the written items")
    if known is not None:
        new = writer.new(known)
        log(f"new       {new:>7,}  {new / max(1, written):6.1%} of the written items (not in the training text)")
    elif corpus is None:
        log(f"new       not known, {NOT_IN_CACHE}")
    if not stop() and writer.problem:
        log(writer.problem)
