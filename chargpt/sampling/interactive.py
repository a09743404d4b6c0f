"""The interactive mode: the user types text, and the model continues it."""

import itertools
import sys
from collections.abc import Iterator

from chargpt.sampling.printing import TextPrinter, text_of
from chargpt.sampling.prompt import encode_prompt
from chargpt.sampling.stop_rules import Character
from chargpt.sampling.text_generator import TextGenerator
from chargpt.terminal import UserError, one_line


def interact(generator: TextGenerator, prompt: list[int], *, printer: TextPrinter, unknown: str, seed: int) -> None:
    """Continue the ids `prompt`, unless empty, then each line of standard input. An empty line continues the text so far.

    The Nth text uses seed `seed` + N - 1. Ctrl-C ends the text that is being written. `unknown` is that of `encode_prompt`.
    """
    tokenizer = generator.tokenizer
    text: list[int] = []
    for turn, typed in enumerate(itertools.chain([prompt] if prompt else [], _typed_lines(generator, unknown))):
        text = typed or text
        made: list[Character] = []
        try:
            printer.write(tokenizer.decode(typed))
            for (characters,) in generator.write(text, [seed + turn]):
                printer.add(characters)
                made += characters
        except KeyboardInterrupt:
            pass
        printer.end()
        ids, _ = tokenizer.encode_known(text_of(made))
        text = text + ids.tolist()


def _typed_lines(generator: TextGenerator, unknown: str) -> Iterator[list[int]]:
    """The ids of each line of standard input that can be encoded. A typed \\n is a newline."""
    while True:
        try:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return
            yield encode_prompt(line.removesuffix("\n").replace("\\n", "\n"), generator.tokenizer, unknown=unknown)
        except UserError as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
        except KeyboardInterrupt:
            print("\nCtrl-D leaves", file=sys.stderr)
