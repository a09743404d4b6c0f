"""The interactive mode: the user types text, and the model continues it; or types messages, and it answers."""

import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from chargpt.canonical import stored_as
from chargpt.errors import Shell, UserError, nearest, what_to_do
from chargpt.files import write_synced
from chargpt.formatting import plural, shown
from chargpt.interrupt import Interrupt
from chargpt.option_table import check, typed, whole
from chargpt.project import shell_word
from chargpt.sampling.cli import SampleOptions
from chargpt.sampling.loaded_model import LoadedModel, listed_labels
from chargpt.sampling.options import read_escapes
from chargpt.sampling.printing import TextPrinter
from chargpt.sampling.prompt import encode_prompt
from chargpt.sampling.stop_rules import Character, text_of
from chargpt.sampling.text_generator import TextGenerator
from chargpt.screen import log
from chargpt.text.facts import TRAIN_SAMPLE, sample
from chargpt.text.item_stream import end_in, item_prompt

HINT = "type text for the model to continue, and press Enter; /help lists the commands, exit leaves"
CHAT_HINT = "you are {0!r}, the model is {1!r}; type a message and press Enter; /help lists the commands, exit leaves"
TEXT_HELP = """TEXT            add TEXT to the text so far, and let the model continue it; \\n is a newline
Enter alone     let the model write more"""
CHAT_HELP = """TEXT            say TEXT, and let the model answer
Enter alone     let the model say more"""
HELP = """/undo           take back the last turn: what you typed and what the model wrote
/new [TEXT]     begin a new text; /undo brings the old one back
/temperature X  0 takes the most likely character, 1 is the model as trained, more is more random
/length N       write at most N characters in a turn
/seed N         the next turn draws from seed N, the one after it from N + 1
/save FILE      write the text so far to a new file
/help           this list
/quit           leave (exit, quit and Ctrl-D too); the text is lost unless you save it
//TEXT          the same as TEXT, for a text that begins with /
Ctrl-C          stop the text that is being written"""
COMMANDS = ("/undo", "/new", "/temperature", "/length", "/seed", "/save", "/help", "/quit")
SPELLING = Shell("/")  # of the options that are commands here
INTERRUPTED = "the text is not saved: /save FILE saves it; to leave without saving, press Ctrl-C again or type exit"
TAIL = 60  # characters of the text that are shown after /undo
LAST_WORD = re.compile(r"[^\W\d_]+$")
SPEAKER = re.compile(r"(?m)^(?:<([^<>\n]{1,40})>|([^\s:<>][^:\n]{0,39}):) ")  # before a message: `Ben: ` or `<ben> `
SPOKEN = 10  # a text is a conversation if more than one line in this many begins with a name
MAX_NAMES, MAX_NAMED = 50, 8  # of the most frequent ones; those that a message lists


class Chat(NamedTuple):
    """What is before each message of a conversation."""

    you: str  # before what is typed
    model: str  # before what the model answers
    ends: list[str]  # each of them ends an answer: a newline, and what is before the message of another


def chat_of(options: SampleOptions, loaded: LoadedModel) -> Chat:
    """The conversation that the options ask for, with the names of the training text if it is known. Raises UserError."""
    if loaded.config.data.items:
        raise UserError(f"--chat: the run {loaded.run!r} was trained on a list of items, not a conversation; leave out --chat")
    corpus = loaded.find_corpus()
    text = "" if corpus is None else corpus.tokenizer.decode(sample(corpus.train, TRAIN_SAMPLE))
    found = [(one[1] or one[2], one[0]) for one in SPEAKER.finditer(text)]
    marks, counts = dict(found), Counter(name for name, _ in found)
    names = [name for name, count in counts.most_common(MAX_NAMES) if count > 1]
    is_spoken = SPOKEN * sum(counts[name] for name in names) > text.count("\n")
    if corpus is not None and not is_spoken and not (names and options.as_ and options.with_):
        what = f"--chat: the training text of {loaded.run} is no conversation, with lines such as 'Ben: hello'; "
        raise UserError(what, "to continue what you type, use --interactive")
    as_, with_ = (name and stored_as(name, names) for name in (options.as_, options.with_))
    left = [name for name in names if name not in (as_, with_)]
    other = left[0] if len(names) == 2 and len(left) == 1 else None
    given = {"--as": as_ or other, "--with": with_ or other}
    listed = ", ".join(f"{shell_word(name)} ({counts[name]:,} lines)" for name in names[:MAX_NAMED])
    for option, name in given.items():
        if name is None:
            what = f"the training text has {listed}" if names else "the program has no copy of the training text"
            raise UserError(f"--chat: {option} is not given, and {what}; add --as YOUR_NAME --with OTHER_NAME")
        if names and name not in counts:
            raise UserError(f"{option}: {name!r} given, but {nearest(name, names, otherwise=f'use one of {listed}')}")
    you, model = (marks.get(name or "", f"{name}: ") for name in given.values())
    if you == model:
        raise UserError(f"--with: {options.with_!r} given, the same as --as; give another")
    return Chat(you, model, [f"\n{mark}" for mark in dict.fromkeys([you, *(marks[name] for name in names)]) if mark != model])


def beginning_of_items(options: SampleOptions, loaded: LoadedModel) -> tuple[list[int], list[str]]:
    """The ids before an item, and what ends it. Raises UserError without a label where there are some."""
    labels, tokenizer = loaded.labels(options.sampling.label), loaded.tokenizer
    if len(labels) > 1:
        raise UserError(f"--interactive: needs the label of what you type; add --label with one of {listed_labels(labels)}")
    return tokenizer.encode(item_prompt(tokenizer, next(iter(labels), ""))).tolist(), [end_in(tokenizer)]


class Session:
    """The text so far, which the user and the model extend in turns. The seed of each turn is one more than that of the last. A
    turn has at most the length of the generator. It ends with a line if one ends in the last quarter of that length."""

    def __init__(
        self, generator: TextGenerator, *, printer: TextPrinter, before: Sequence[int] = (), chat: Chat | None = None
    ) -> None:
        """With ids `before`, each line typed begins a new text, after them. With a `chat`, each line typed is a message, and
        the model answers; `generator` then stops at its ends."""
        self._generator, self._printer, self._before, self._chat = generator, printer, list(before), chat
        self._text: list[int] = []  # ids
        self._earlier: list[list[int]] = []  # the text before each turn

    def run(self, prompt: list[int]) -> int:
        """Continue the ids `prompt`, unless empty, then what is typed on standard input. Returns the exit code."""
        log(HINT if self._chat is None else CHAT_HINT.format(*self._chat))
        if self._chat is not None:
            self._text = prompt
        elif prompt or self._before:
            self._continue(prompt, after=self._before)
        interrupted = False
        while True:
            try:
                print("> ", end="", file=sys.stderr, flush=True)
                if not (line := sys.stdin.readline()):
                    log("")
                if not line or not self._take(line.removesuffix("\n")):
                    return 0
                interrupted = False
            except UserError as error:
                log(f"error: {error}")
            except KeyboardInterrupt:
                log("")
                if interrupted:
                    log("stopped")
                    return 130
                interrupted = True
                log(INTERRUPTED)

    def _take(self, line: str) -> bool:
        """Do what a typed line asks for. Returns False to leave. Raises UserError."""
        if line.rstrip() in ("exit", "quit"):
            return False
        if not line.startswith("/") or line.startswith("//"):
            after, line = self._before or self._text, line.removeprefix("/")
            begun = LAST_WORD.search(self._generator.tokenizer.decode(after[-TAIL:]))
            if begun and self._chat is None:  # a turn may end in a word, which one types again
                line = line.removeprefix(begun[0])
            self._continue(self._encode(line, after=after), after=after)
            return True
        command, _, rest = line.partition(" ")
        if command not in COMMANDS:
            raise UserError(f"{command}: no such command; type /help for a list, or // for a text that begins with /")
        if rest.strip() and command in ("/undo", "/help", "/quit"):
            raise UserError(f"{command}: takes no value, but {rest.strip()!r} follows it; leave that out")
        if command == "/new":
            if rest:
                self._continue(self._encode(rest, after=self._before), after=self._before)
            elif self._text:
                self._begin_turn(self._before)
        elif command == "/undo":
            if not self._earlier:
                raise UserError("/undo: there is no turn to take back; type text first")
            self._text = self._earlier.pop()
            end = "…" * (len(self._text) > TAIL) + self._generator.tokenizer.decode(self._text[-TAIL:])
            log(f"the text now ends with: {end}" if self._text else "the text is now empty")
        elif command == "/save":
            self._save(rest.strip())
        elif command == "/help":
            for line in f"{TEXT_HELP if self._chat is None else CHAT_HELP}\n{HELP}".splitlines():
                log(line)
        elif command != "/quit":
            self._set(command.removeprefix("/"), rest.strip())
        return command != "/quit"

    def _set(self, name: str, value: str) -> None:
        """Change an option of the next turns, and print it; without a value, only print it."""
        try:
            if value and name == "length":
                check(name, typed(value), whole(1))
            given: dict[str, Any] = {name: typed(value)} if value else {}
            self._generator = self._generator.changed(**given)
        except UserError as error:
            raise UserError(SPELLING(error)) from None
        options = self._generator.options
        log(f"{name} {dict(temperature=f'{options.temperature:g}', length=f'{options.limit:,}', seed=options.seed)[name]}")

    def _save(self, name: str) -> None:
        """Write the text so far to a file that does not exist yet."""
        if not name or not self._text:
            raise UserError("/save: no file given, or no text yet; type text first, then /save FILE")
        text = self._generator.tokenizer.decode(self._text)
        try:
            path = Path(name).expanduser()
            write_synced(path, text.encode("utf-8", "surrogateescape"))
        except (OSError, ValueError, RuntimeError) as error:  # a null character; ~ of a user that does not exist
            why = getattr(error, "strerror", None) or error
            raise UserError(f"/save: {name!r} cannot be written ({why}); {what_to_do(error)}") from None
        log(f"{plural(len(text), 'character')} saved in {shown(path)}")

    def _encode(self, line: str, *, after: list[int]) -> list[int]:
        """The ids of what was typed; in a chat, those of a message, on a line of its own, and of the name before the answer."""
        if self._chat is not None:
            begins = self._generator.tokenizer.decode(after[-1:]) in ("", "\n")
            line = "\n" * (not begins) + (f"{self._chat.you}{line}\n" if line else "") + self._chat.model
        return encode_prompt(read_escapes(line), self._generator.tokenizer, unknown=self._generator.options.unknown)

    def _begin_turn(self, text: list[int]) -> None:
        """Go on from `text`, until /undo takes that back."""
        self._earlier.append(self._text)
        self._text = text

    def _continue(self, ids: list[int], *, after: list[int]) -> None:
        """Begin a turn with the `ids` that were typed `after` others; let the model continue them until it ends or Ctrl-C."""
        tokenizer, options, made = self._generator.tokenizer, self._generator.options, list[Character]()
        nearest, seed = math.inf if options.lines else options.limit - options.limit // 4, options.seed or 0
        self._begin_turn(after + ids)
        with Interrupt(notice="") as interrupt:
            self._printer.prompt(tokenizer.decode(ids) if self._chat is None else self._chat.model)
            with closing(self._generator.write([self._text], [seed])) as writing:
                for (characters,) in writing:
                    ends = (i for i, one in enumerate(characters, 1) if one.text == "\n" and len(made) + i >= nearest)
                    end = next(ends, None)  # of the turn
                    self._printer.add(characters[:end])
                    made += characters[:end]
                    if end is not None or interrupt.came_here:
                        break
            if not (made and made[-1].text == "\n"):
                self._printer.end()
        self._text = self._text + tokenizer.encode_known(text_of(made))[0].tolist()
        self._generator = self._generator.changed(seed=(seed + 1) % 2**63)
