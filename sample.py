"""Write text with a trained model: run in, text out.

The steps: read the options, load the best checkpoint of a run, encode the prompt, let the model continue it, and print the
result. The text goes to standard output as it is made; everything else goes to standard error.
"""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    import _signal  # needs no file

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `launch` sets a handler, Ctrl-C is no traceback
    from chargpt.launch import launch

    launch("sample")

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import Any

from chargpt.interrupt import Interrupt, ending_at_once
from chargpt.project import project_root
from chargpt.sampling.options import parse_options
from chargpt.terminal import UserError, best_effort_messages, enable_colours, one_line, wants_colours, wrapped


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    with best_effort_messages():  # the text is what counts
        return write(options)


def write(options: argparse.Namespace) -> int:
    """Do what the options ask for, and return the exit code. Raises UserError."""
    with Interrupt(notice="") as interrupt:
        with ending_at_once():  # until the text begins, there is nothing to finish
            loaded, generator, samplings, prompt = prepare(options)
        say(f"{loaded.describe()}; {' / '.join(sampling.describe() for sampling in samplings)}, seed {options.seed}")
        if not options.interactive:
            write_samples(options, loaded, generator, samplings, prompt, interrupt)
            return interrupt.exit_code
    from chargpt.sampling.interactive import Session

    session = Session(generator, printer=new_printer(options), unknown=options.unknown, seed=options.seed)
    return session.run(prompt)


def prepare(options: argparse.Namespace) -> tuple[Any, Any, list[Any], list[int]]:
    """The LoadedModel, TextGenerator, Samplings and ids of the prompt that the options ask for. Raises UserError."""
    # Importing torch takes a second or two; --help and a mistyped option are answered before.
    from chargpt.config import RuntimeConfig
    from chargpt.device import choose_device
    from chargpt.sampling.known_lines import known_lines
    from chargpt.sampling.loaded_model import load_model
    from chargpt.sampling.prompt import encode_prompt, read_prompt
    from chargpt.sampling.rules import Sampling
    from chargpt.sampling.text_generator import TextGenerator

    with named_options():
        name = RuntimeConfig(device=options.device).device
    device, root = choose_device(name), project_root()
    with named_options():
        rules = fields_of(Sampling, options)
        samplings = [Sampling(temperature=temperature, **rules) for temperature in options.temperatures]
    loaded, warnings = load_model(options.run, root / "checkpoints", device=str(device), precision=options.precision)
    for warning in warnings:
        say(f"warning: {one_line(warning)}")
    prompt = encode_prompt(read_prompt(options.prompt, options.prompt_file), loaded.tokenizer, unknown=options.unknown)
    excluded = None
    if options.unseen:
        excluded = known_lines(loaded.fingerprint, loaded.config, loaded.tokenizer, root=root)
    with named_options():
        generator = loaded.text_generator(samplings[0], excluded=excluded, **fields_of(TextGenerator, options))
    return loaded, generator, samplings, prompt


def write_samples(
    options: argparse.Namespace, loaded: Any, generator: Any, samplings: list[Any], prompt: list[int], interrupt: Interrupt
) -> None:
    """Print the samples until they are complete or a signal comes, and then how fast they were made."""
    from chargpt.sampling.printing import print_samples

    seeds = range(options.seed, options.seed + options.samples)
    facts = {"run": loaded.run, "step": loaded.step}
    started = time.perf_counter()
    made, problem = print_samples(
        generator, samplings, prompt, seeds, printer=new_printer(options), facts=facts, stop=interrupt
    )
    seconds = time.perf_counter() - started
    say(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    if interrupt():
        say("stopped")
    elif problem:
        say(problem)


def new_printer(options: argparse.Namespace) -> Any:
    """The printer for standard output that the options ask for."""
    from chargpt.sampling.printing import LEGEND, NO_TERMINAL, JsonPrinter, ModelPrinter, SurprisePrinter, TextPrinter

    if options.json:
        return JsonPrinter(sys.stdout)
    if options.surprise:
        say(LEGEND if sys.stdout.isatty() else NO_TERMINAL)
        enable_colours()
        return SurprisePrinter(sys.stdout)
    if options.interactive and wants_colours(sys.stdout):
        enable_colours()
        return ModelPrinter(sys.stdout)
    return TextPrinter(sys.stdout)


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
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)
