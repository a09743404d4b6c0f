"""Write text with a trained model: run in, text out.

The steps: read the options, load the best checkpoint of a run, encode the prompt, let the model continue it, and print the
result. The text goes to standard output as it is made; everything else goes to standard error.
"""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    from chargpt.launch import launch

    launch("sample")

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from chargpt.errors import Option
from chargpt.interrupt import Interrupt, ending_at_once
from chargpt.json_lines import json_array
from chargpt.notices import Kind
from chargpt.program import best_effort_messages
from chargpt.project import project_root
from chargpt.sampling.cli import SampleOptions, parse_options
from chargpt.screen import is_coloured, log

if TYPE_CHECKING:  # --help and a mistyped option are answered before anything else is imported
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.sampling.text_generator import TextGenerator


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    with best_effort_messages():  # the text is what counts
        return write(options)


def write(options: SampleOptions) -> int:
    """Do what the options ask for, and return the exit code. Raises UserError."""
    with Interrupt(notice="") as interrupt:
        with ending_at_once():  # until the text begins, there is nothing to finish
            loaded, generator, prompt, is_items, more = prepare(options)
        rules = " / ".join(sampling.describe() for sampling in options.samplings)
        texts = options.sampling.items if is_items and not options.types else options.samples
        log(f"{loaded.describe(texts)}; {rules}, seed {options.sampling.seed}")
        from chargpt.sampling.printing import TextPrinter, print_items, print_next, print_samples

        beginning, stop = loaded.tokenizer.decode(prompt), lambda: interrupt.came_here
        if not options.types:
            with json_array(is_asked=options.json_array):
                if options.next:
                    facts = {"run": loaded.run, "step": loaded.step, "prompt": beginning} if options.json else None
                    print_next(loaded.next_after(prompt, options.next), sys.stdout, facts=facts)
                elif is_items:
                    print_items(options, loaded, beginning, sys.stdout, stop=stop)
                else:
                    print_samples(options, loaded, generator, prompt, sys.stdout, stop=stop)
            return interrupt.exit_code
    from chargpt.sampling.interactive import Session

    printer = TextPrinter(sys.stdout, coloured=is_coloured(sys.stdout))
    return Session(generator, printer=printer, **more).run(prompt)


def prepare(options: SampleOptions) -> "tuple[LoadedModel, TextGenerator, list[int], bool, dict[str, Any]]":
    """The model, what writes with it, the ids of the prompt, whether it writes items, and what a `Session` takes besides.

    Raises UserError.
    """
    from chargpt.sampling.loaded_model import load_model
    from chargpt.sampling.prompt import encode_prompt, read_prompt

    checkpoints = project_root() / "checkpoints"
    loaded, warnings = load_model(
        options.run, checkpoints, start=options.start, device=options.device, precision=options.precision
    )
    for warning in warnings:
        log(warning, Kind.WARNING)
    is_items = loaded.writes_items(next(iter(options.of_items), ""), of_text=options.of_text)
    sampling, more = options.sampling.for_one() if is_items else options.sampling, dict[str, Any]()
    if options.types:
        from chargpt.sampling.interactive import beginning_of_items, chat_of

        if options.chat:
            more["chat"] = chat_of(options, loaded)
            sampling = dataclasses.replace(sampling, stop=[*more["chat"].ends, *sampling.stop])
        elif is_items:
            more["before"], stop = beginning_of_items(options, loaded)
            sampling = dataclasses.replace(sampling, stop=stop)
    prompt = encode_prompt(read_prompt(options.prompt, options.prompt_file), loaded.tokenizer, unknown=options.sampling.unknown)
    excluded = None
    if options.unseen:
        corpus = loaded.corpus(Option("unseen"))
        excluded = frozenset(corpus.tokenizer.decode(corpus.train).split("\n"))
    generator = loaded.text_generator(sampling, excluded=excluded, texts=options.samples)
    return loaded, generator, prompt, is_items, more
