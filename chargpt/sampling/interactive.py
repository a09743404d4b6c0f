"""Writing together: the user types, the model goes on."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence

from chargpt.sampling.stop_rules import Character
from chargpt.sampling.text_generator import Writer
from chargpt.terminal import UserError, one_line


def converse(
    writer: Writer,
    prompt: list[int],
    *,
    encode: Callable[[str], list[int]],
    seed: int,
    paint: Callable[[Sequence[Character]], str],
) -> None:
    """Continue the ids `prompt`, unless empty, then each line of standard input; an empty line continues the text so far.

    `encode` turns a line into ids, or raises a UserError for the user to read. The Nth text draws from seed `seed` + N - 1.
    Ctrl-C ends the text that is being written, nothing else.
    """
    text: list[int] = []
    for turn, typed in enumerate(itertools.chain([prompt] if prompt else [], _typed(encode))):
        text = typed or text
        made: list[Character] = []
        try:
            print(writer.tokenizer.decode(typed), end="", flush=True)
            for (characters,) in writer.write(text, [seed + turn]):
                print(paint(characters), end="", flush=True)
                made += characters
        except KeyboardInterrupt:
            pass
        print(flush=True)
        ids, _ = writer.tokenizer.encode_known("".join(character.text for character in made))
        text = text + ids.tolist()


def _typed(encode: Callable[[str], list[int]]) -> Iterator[list[int]]:
    """The ids of each line of standard input that can be encoded; a typed \\n is a newline."""
    while True:
        try:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return
            yield encode(line.removesuffix("\n").replace("\\n", "\n"))
        except UserError as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
        except KeyboardInterrupt:
            print("\nCtrl-D leaves", file=sys.stderr)
