"""Write text with a trained model: run in, text out.

The steps: read the options, load the best checkpoint of a run, encode the prompt, let the model continue it, and print the
result. The text goes to standard output as it is made; everything else goes to standard error.
"""

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chargpt.sampling.options import parse_options
from chargpt.terminal import UserError, one_line, run_program

CHECKPOINTS = Path(__file__).resolve().parent / "checkpoints"


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    # Importing torch takes a second or two; --help and a mistyped option are answered before.
    from chargpt.config import RuntimeConfig
    from chargpt.sampling.interactive import interact
    from chargpt.sampling.known_lines import known_lines
    from chargpt.sampling.loaded_model import load_model
    from chargpt.sampling.printing import LEGEND, JsonPrinter, SurprisePrinter, TextPrinter, print_samples
    from chargpt.sampling.prompt import encode_prompt, read_prompt
    from chargpt.sampling.rules import Sampling
    from chargpt.sampling.text_generator import TextGenerator

    with named_options():
        device = RuntimeConfig(device=options.device).device
        rules = fields_of(Sampling, options)
        samplings = [Sampling(temperature=temperature, **rules) for temperature in options.temperatures]
    loaded, warnings = load_model(options.run, CHECKPOINTS, device=device)
    for warning in warnings:
        say(f"warning: {one_line(warning)}")
    prompt = encode_prompt(read_prompt(options.prompt, options.prompt_file), loaded.tokenizer, unknown=options.unknown)
    excluded = (
        known_lines(loaded.fingerprint, loaded.config.data, loaded.tokenizer, root=CHECKPOINTS.parent)
        if options.unseen
        else None
    )
    with named_options():
        generator = loaded.text_generator(samplings[0], excluded=excluded, **fields_of(TextGenerator, options))
    say(f"{loaded.describe()}; {' / '.join(map(Sampling.describe, samplings))}, seed {options.seed}")
    if options.surprise:
        say(LEGEND)
    printer = (JsonPrinter if options.json else SurprisePrinter if options.surprise else TextPrinter)(sys.stdout)
    if options.interactive:
        interact(generator, prompt, printer=printer, unknown=options.unknown, seed=options.seed)
        return 0

    seeds = range(options.seed, options.seed + options.samples)
    facts = {"run": loaded.run, "step": loaded.step}
    started = time.monotonic()
    made = print_samples(generator, samplings, prompt, seeds, printer=printer, facts=facts)
    seconds = time.monotonic() - started
    say(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    return 0


def fields_of(kind: type, options: argparse.Namespace) -> dict[str, Any]:
    """The options that are fields of the dataclass `kind`."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(kind) if field.name in options}


@contextlib.contextmanager
def named_options() -> Iterator[None]:
    """Turn a ValueError that begins with a field's name into a UserError that begins with the option's name."""
    try:
        yield
    except ValueError as error:
        field, _, problem = str(error).partition(":")
        raise UserError(f"--{field.replace('_', '-')}:{problem}") from None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_program(main))
