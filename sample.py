"""Write text with a trained model: run in, text out.

The steps: read the options, load the best checkpoint of a run, encode the prompt, let the model continue it, and print the
result. The text goes to standard output as it is made; everything else goes to standard error.
"""

if __name__ == "__main__":  # imports this file as a module, runs its main() and exits
    from chargpt.launch import launch

    launch("sample")

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chargpt.errors import Option
from chargpt.interrupt import Interrupt, ending_at_once
from chargpt.project import project_root
from chargpt.sampling.options import SampleOptions, parse_options
from chargpt.terminal import best_effort_messages, enable_colours, log, wants_colours

if TYPE_CHECKING:  # --help and a mistyped option are answered before anything else is imported
    from chargpt.sampling.interactive import Chat
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.sampling.text_generator import TextGenerator


class Writing(NamedTuple):
    """What writes the text."""

    loaded: "LoadedModel"
    generator: "TextGenerator"
    prompt: list[int]  # ids
    is_items: bool  # whether it writes items
    before: Sequence[int]  # ids before what is typed, with --interactive on items
    chat: "Chat | None"  # with --chat


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    with best_effort_messages():  # the text is what counts
        return write(options)


def write(options: SampleOptions) -> int:
    """Do what the options ask for, and return the exit code. Raises UserError."""
    with Interrupt(notice="") as interrupt:
        with ending_at_once():  # until the text begins, there is nothing to finish
            writing = prepare(options)
        rules = " / ".join(sampling.describe() for sampling in options.samplings)
        log(f"{writing.loaded.describe()}; {rules}, seed {options.sampling.seed}")
        if options.next:
            from chargpt.sampling.printing import print_next

            loaded, prompt = writing.loaded, writing.prompt
            found = loaded.next_after(prompt, options.next)
            facts = {"run": loaded.run, "step": loaded.step, "prompt": loaded.tokenizer.decode(prompt)}
            print_next(found, sys.stdout, facts=facts if options.json else None)
            return interrupt.exit_code
        if writing.is_items and not options.interactive:
            from chargpt.sampling.printing import print_items

            beginning = writing.loaded.tokenizer.decode(writing.prompt)
            print_items(options, writing.loaded, beginning, sys.stdout, stop=lambda: interrupt.came_here)
            return interrupt.exit_code
        if not options.interactive:
            write_samples(options, writing, interrupt)
            return interrupt.exit_code
    from chargpt.sampling.interactive import Session
    from chargpt.sampling.printing import TextPrinter

    if coloured := wants_colours(sys.stdout):
        enable_colours()
    printer, seed = TextPrinter(sys.stdout, coloured=coloured), options.sampling.seed or 0
    more: dict[str, Any] = {"before": writing.before, "chat": writing.chat}
    session = Session(writing.generator, printer=printer, unknown=options.sampling.unknown, seed=seed, **more)
    return session.run(writing.prompt)


def prepare(options: SampleOptions) -> Writing:
    """The model, and how it writes. Raises UserError."""
    from chargpt.sampling.loaded_model import load_model
    from chargpt.sampling.prompt import encode_prompt, read_prompt

    checkpoints = project_root() / "checkpoints"
    loaded, warnings = load_model(
        options.run, checkpoints, start=options.start, device=options.device, precision=options.precision
    )
    for warning in warnings:
        log(f"warning: {warning}")
    is_items, changes = loaded.writes_items(next(iter(options.of_items), ""), of_text=options.of_text), dict[str, Any]()
    before: list[int] = []
    chat = None
    if options.chat:
        from chargpt.sampling.interactive import chat_of

        chat = chat_of(options, loaded, loaded.find_corpus())
        changes["stop"] = [*chat.ends, *options.sampling.stop]
    if is_items and options.interactive:
        from chargpt.sampling.interactive import beginning_of_items

        before, changes["stop"] = beginning_of_items(options, loaded)
    if is_items:
        changes["unique"] = False
    prompt = encode_prompt(read_prompt(options.prompt, options.prompt_file), loaded.tokenizer, unknown=options.sampling.unknown)
    excluded = None
    if options.unseen:
        corpus = loaded.corpus(Option("unseen"))
        excluded = frozenset(corpus.tokenizer.decode(corpus.train).split("\n"))
    generator = loaded.text_generator(options.sampling.changed(**changes), excluded=excluded)
    return Writing(loaded, generator, prompt, is_items, before, chat)


def write_samples(options: SampleOptions, writing: Writing, interrupt: Interrupt) -> None:
    """Print the samples until they are complete or a signal comes, and then how fast they were made."""
    from chargpt.sampling.printing import print_samples

    loaded, generator, prompt, *_ = writing
    first = options.sampling.seed or 0
    seeds = range(first, first + options.samples)
    facts = {"run": loaded.run, "step": loaded.step} if options.json else None
    started = time.perf_counter()
    made, problem = print_samples(
        generator, options.samplings, prompt, seeds, file=sys.stdout, facts=facts, stop=lambda: interrupt.came_here
    )
    seconds = time.perf_counter() - started
    log(f"{made:,} characters in {seconds:.1f} s, {made / seconds:,.0f} a second")
    if interrupt.came_here:
        log("stopped")
    elif problem:
        log(problem)
