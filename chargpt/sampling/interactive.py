"""The interactive mode: the user types text, and the model continues it."""

import sys
from contextlib import closing

from chargpt.interrupt import Interrupt
from chargpt.sampling.printing import TextPrinter, text_of
from chargpt.sampling.prompt import encode_prompt
from chargpt.sampling.stop_rules import Character
from chargpt.sampling.text_generator import TextGenerator
from chargpt.terminal import UserError, one_line, wrapped

HINT = "type text for the model to continue, and press Enter; /help lists the commands, /quit leaves"
HELP = """TEXT        add TEXT to the text so far, and let the model continue it; \\n is a newline
Enter alone let the model write more
/new [TEXT] begin a new text
/help       this list
/quit       leave (Ctrl-D too); nothing is saved
//TEXT      the same as TEXT, for a text that begins with /
Ctrl-C      stop the text that is being written"""
INTERRUPTED = "\nnothing is saved; Ctrl-C again, Ctrl-D or /quit leaves"


class Session:
    """The text so far, which the user and the model extend in turns. Turn N draws from seed `seed` + N - 1."""

    def __init__(self, generator: TextGenerator, *, printer: TextPrinter, unknown: str, seed: int) -> None:
        """`unknown` is that of `encode_prompt`."""
        self._generator, self._printer = generator, printer
        self._unknown = unknown
        self._seed = seed
        self._text: list[int] = []  # ids

    def run(self, prompt: list[int]) -> int:
        """Continue the ids `prompt`, unless empty, then what is typed on standard input. Returns the exit code."""
        _say(HINT)
        if prompt:
            self._continue(prompt)
        interrupted = False
        while True:
            try:
                line = _read_line()
                if line is None or not self._take(line):
                    return 0
                interrupted = False
            except UserError as error:
                _say(f"error: {one_line(error)}")
            except KeyboardInterrupt:
                if interrupted:
                    _say("\nstopped")
                    return 130
                interrupted = True
                _say(INTERRUPTED)

    def _take(self, line: str) -> bool:
        """Do what a typed line asks for. Returns False to leave. Raises UserError."""
        command, _, rest = line.partition(" ")
        if line.startswith("/") and not line.startswith("//"):
            if command not in ("/new", "/help", "/quit"):
                raise UserError(f"{command}: no such command; type /help for a list, or // for a text that begins with /")
            if command == "/help":
                _say(HELP)
            if command == "/new":
                ids = self._encode(rest)
                self._text = []
                if ids:
                    self._continue(ids)
            return command != "/quit"
        self._continue(self._encode(line.removeprefix("/") if line.startswith("//") else line))
        return True

    def _encode(self, typed: str) -> list[int]:
        return encode_prompt(typed.replace("\\n", "\n"), self._generator.tokenizer, unknown=self._unknown)

    def _continue(self, typed: list[int]) -> None:
        """Add the ids `typed` to the text, and let the model continue it until it ends or Ctrl-C."""
        tokenizer, made = self._generator.tokenizer, list[Character]()
        self._text += typed
        with Interrupt(notice="") as interrupt:
            self._printer.prompt(tokenizer.decode(typed))
            with closing(self._generator.write(self._text, [self._seed])) as writing:
                for (characters,) in writing:
                    self._printer.add(characters)
                    made += characters
                    if interrupt():
                        break
            self._printer.end()
        self._seed += 1
        self._text += tokenizer.encode_known(text_of(made))[0].tolist()


def _read_line() -> str | None:
    """The next line of standard input without its newline; None at the end."""
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        _say("")
        return None
    return line.removesuffix("\n")


def _say(text: str) -> None:
    lines = [wrapped(line, sys.stderr) for line in text.split("\n")]
    print("\n".join(lines), file=sys.stderr, flush=True)
