"""How the programs talk to a person: user errors and exit codes, notices, and the option parser.

Every user error is one line, `error: where: what; what to do`, with exit code 2 and no traceback.
"""

import argparse
import contextlib
import difflib
import errno
import io
import json
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TextIO

from chargpt.aliases import alias
from chargpt.errors import Message, Option, UserError, Words, what_to_do
from chargpt.project import is_checkout

# Numbers as a person may type them, on the command line and in YAML: in decimal, 1_000 for 1000, no leading zeros.
WHOLE_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
NUMBER = re.compile(rf"({WHOLE_NUMBER.pattern}(\.[0-9]*)?|[+-]?\.[0-9]+)([eE][+-]?[0-9]+)?")
LIBRARY = re.compile(r"\.so\b|\.dylib\b|DLL")  # in the error of a package whose compiled part cannot be loaded
OUT_OF_MEMORY = re.compile(r"out of memory|(can't|tried to) allocate")  # in a RuntimeError of torch
DIM, PLAIN = "\x1b[2m", "\x1b[0m"  # of a terminal
LABEL = 12  # width of the first column of a notice
BAR = "{percentage:3.0f}%|{bar}| {remaining} left{postfix}"  # in tqdm's terms
MIN_WIDTH = 30  # of a terminal in which lines are wrapped


# How much a notice matters: see `Notice`.
Kind = Literal["line", "detail"]


class Notice(NamedTuple):
    """A line for the user, as a value: who decides does not print.

    Everybody sees a `line`. A `detail` is for those who ask: --verbose, --dry-run, and details.txt of a run, which has all.
    """

    label: str  # at most 11 characters
    text: Words
    kind: Kind = "line"


# What can command a terminal or reorder its text: C0 except tab and newline, DEL, C1, line and paragraph separators,
# bidirectional overrides and isolates, deprecated format characters, interlinear annotation, tags. Marks and joiners that
# scripts need are not among them.
CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]")


def escape_controls(text: str) -> str:
    """`text` with control characters shown as escapes such as \\x1b; tab and newline stay.

    Call it for everything from a text, a model or a checkpoint that is printed to a terminal on several lines (samples, text
    reports); use `one_line` for messages.
    """
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_line(value: object, file: TextIO) -> str:
    """`value` as JSON for `file`: where a terminal would obey a character of it, all beyond ASCII are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if file.isatty() and escape_controls(text) != text else text


def one_line(text: object) -> str:
    """`text` on a single line with control characters escaped, so that a file name cannot imitate a message."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 layer, 2 layers."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def up_to_a_word(sample: str) -> str:
    """A sample without its last word, in whose middle it may end, unless it has no other."""
    return re.sub(r"(?<=\S)\s+\w{1,30}\Z", "", sample)


def shown(path: str | Path) -> str:
    """`path` as a person would type it: relative to the working folder if it is inside."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal that `stream` writes to; 0 if it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # ValueError: it has no file descriptor
        return 0


def wrapped(line: str, stream: TextIO | None = None) -> str:
    """`line`, broken between words to the width of the terminal if `stream` (default: standard output) is one.

    The lines that follow are indented to the second column of a notice.
    """
    width = terminal_width(sys.stdout if stream is None else stream)
    if width < MIN_WIDTH:
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * LABEL, break_long_words=False, break_on_hyphens=False)


def columns(text: str) -> int:
    """The columns that `text` takes in a terminal: two for a wide character, none for a mark above or below another one."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "FW") for c in text)


def notice_line(label: str, text: str) -> str:
    """A notice in two columns, a label of at most 11 characters and what it is about, without control characters."""
    return wrapped(f"{label:<{LABEL}}{one_line(text)}")


class Screen:
    """How a program tells its user: on a terminal, in the words of the command line."""

    def __init__(self) -> None:
        self._bar: Any = None  # of tqdm, while one is shown

    @property
    def bar_width(self) -> int:
        """The columns for a progress bar; 0 where there is none."""
        return terminal_width(sys.stderr)

    def spelled(self, words: Words) -> str:
        """`words` as the user of this screen writes them."""
        return str(words)

    def lines(self, text: str) -> None:
        """Print whole lines as they are, above the bar."""
        (print if self._bar is None else self._bar.write)(text)
        sys.stdout.flush()

    def sample(self, text: str, *, label: str = "") -> None:
        """Show the first two lines of a sample above a progress bar, dim; without a bar nothing, so that logs stay short."""
        if self.bar_width:
            lines = [one_line(line)[: self.bar_width - 5] for line in text.split("\n") if line.strip()][:2]
            shown = zip((label, ""), lines)
            self.lines("\n".join(f"{DIM}{first:>4} {line}{PLAIN}" for first, line in shown))

    def notice(self, label: str, text: Words) -> None:
        """Print a notice, see `notice_line`."""
        self.lines(notice_line(label, self.spelled(text)))

    def log(self, text: Words) -> None:
        """Print a message to standard error, on one line without control characters."""
        print(wrapped(one_line(text), sys.stderr), file=sys.stderr, flush=True)

    def error(self, text: Words) -> None:
        """Print the line that says why the program ends."""
        self.log(Message("error: ", text))

    def progress(self, step: int, total: int, numbers: str) -> None:
        """Draw the progress bar, `numbers` beside it."""
        if self._bar is None:
            self._bar = self.new_bar(
                initial=step, total=total, dynamic_ncols=True, mininterval=0.5, bar_format=BAR, postfix=numbers
            )
        bar = self._bar
        bar.set_postfix_str(numbers, refresh=False)
        if bar.total != total:
            bar.total = total
            bar.refresh()
        bar.update(step - bar.n)

    def new_bar(self, **settings: Any) -> Any:
        """A bar of tqdm."""
        from tqdm import tqdm

        return tqdm(**settings)

    def end_progress(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def saved(self, run: Path) -> None:
        """A checkpoint is in the folder `run`. Its path is among the notices."""


# The screen of this process, if it is not a terminal: a program sets it before it does anything else, and a library never does.
SCREEN: ContextVar[Screen] = ContextVar("SCREEN")
TERMINAL = Screen()


def screen() -> Screen:
    """How this process tells its user."""
    return SCREEN.get(TERMINAL)


def notice(label: str, text: Words) -> None:
    """Show a notice for the user; see `notice_line`."""
    screen().notice(label, text)


def log(text: Words) -> None:
    """Show a message beside the output of the program."""
    screen().log(text)


def run_program(main: Callable[[], int]) -> int:
    """Run `main` and return the exit code. A `UserError`, an `OSError` or lack of memory is one line and exit code 2."""
    _make_streams_safe()
    code = 0
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has closed the pipe
        pass
    except KeyboardInterrupt:
        code = 130
        with contextlib.suppress(OSError):
            print("stopped", file=sys.stderr)
    except Exception as error:
        code, message = 2, _output_message(error) or message_for(error)
        if message is None:
            raise
        with contextlib.suppress(OSError):
            screen().error(message)
    _drop_unwritable()
    return code


def _drop_unwritable() -> None:
    """Send what a standard stream cannot write to the null device: the interpreter's last flush would change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def message_for(error: BaseException) -> Words | None:
    """What to tell the user about an error that only the user can solve; None for any other error."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return _missing_package(error.name or "")
    if isinstance(error, ImportError) and LIBRARY.search(str(error)):
        return f"{error}; it is installed, but not loaded: free some memory, or install its package (such as torch) again"
    if isinstance(error, OSError):
        what = f"{shown(error.filename)}: {error.strerror}" if error.filename else str(error)
        return f"{what}; {what_to_do(error)}"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        detail = textwrap.shorten(str(error).partition("\n")[0], 200, placeholder=" ...") or "none left"
        smaller = "a smaller model, fewer samples, or in training a smaller train.batch_size with a larger train.accumulate"
        return f"memory: there is not enough ({detail}); use {smaller}"
    return None


def _output_message(error: Exception) -> str | None:
    """The message for a standard output that cannot be written; None for any other error."""
    if not isinstance(error, OSError) or error.filename or error.errno not in (errno.ENOSPC, errno.EIO):
        return None
    try:
        print(flush=True)  # the error does not say which file it is about; Python has dropped what it could not write
    except OSError as again:
        return f"standard output: {again.strerror}; send it to a file on another disk, or to a program that reads it"
    return None


def _missing_package(module: str) -> str | None:
    """The message for a package that this interpreter lacks; None if the module is one of ours."""
    package = module.partition(".")[0]
    if package in ("", "chargpt", "model", "train", "sample"):
        return None
    root = Path(__file__).resolve().parents[1]
    other = [path for path in (root / ".venv/bin/python", root / ".venv/Scripts/python.exe") if path.exists()]
    if other and not os.path.samefile(sys.prefix, root / ".venv"):
        return f"{package}: not installed for {sys.executable}; use {shown(other[0])} instead"
    wanted = "-r requirements.txt" if is_checkout() else "--upgrade chargpt"
    return f"{package}: not installed for {sys.executable}; run {sys.executable} -m pip install {wanted}"


def _make_streams_safe() -> None:
    """Let a program read and print any character in any locale, and run without standard streams.

    A closed one becomes the null device, and keeps its number, also in child processes. Otherwise messages would go into the
    next file that is opened. Without newline="\\n", Windows would write each newline as two characters, also into a file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, mode)  # at the lowest free number, which is its own
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)
        elif name != "stdin":
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def is_coloured(stream: TextIO) -> bool:
    """Whether colours that nobody has asked for may be written to `stream`: it is a terminal, and NO_COLOR is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.name == "nt":  # have an old console obey ANSI codes, as every other terminal does
        import colorama

        colorama.just_fix_windows_console()
    return True


class BestEffortStream:
    """A text stream that drops what cannot be written, because the reader has gone or the disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


@contextlib.contextmanager
def best_effort_output() -> Any:
    """Within this block, a closed terminal, a broken pipe or a full disk never ends the program."""
    with contextlib.redirect_stdout(BestEffortStream(sys.stdout)), contextlib.redirect_stderr(BestEffortStream(sys.stderr)):
        yield


def best_effort_messages() -> AbstractContextManager[object]:
    """Within this block, a standard error that cannot be written never ends the program; its standard output still can."""
    return contextlib.redirect_stderr(BestEffortStream(sys.stderr))


def _check_typed(words: Sequence[str]) -> None:
    """Raise UserError for `words` of a command with the dash or the quotes of a word processor, or quotes that a shell left."""
    for number, word in enumerate(words):
        if dash := re.match(r"[–—−‐‑]+(?=[^\W\d_])", word):
            option = Option(word[dash.end() :].partition("=")[0])
            raise UserError(f"{word}: begins with the dash of a word processor; type ", option)
        close = {"'": "'", "“": "”", "„": "“", "«": "»"}.get(word[:1], word)
        is_cut = not word.endswith(close) and any(other.endswith(close) for other in words[number + 1 :])
        if is_cut or re.fullmatch(r"[a-z]+\.[a-z_]+='.*'", word):
            raise UserError(f'{word}: quotes that this shell does not know; type double quotes: "..."')


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations. It raises UserError instead of printing its usage and leaving."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, exit_on_error=False, **settings)

    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """As in argparse. The error for a value of an option is a UserError with that option."""
        _check_typed([*map(str, arguments[0] if arguments and arguments[0] is not None else sys.argv[1:])])
        try:
            return super().parse_known_args(*arguments, **more)
        except argparse.ArgumentError as error:
            name = error.argument_name or ""
            where = Option(name[2:]) if re.fullmatch("--[a-z-]+", name) else name
            raise UserError(where, ": " * bool(name), self._what_to_do(error.message, name)) from None

    def error(self, message: str) -> NoReturn:
        _, unknown, words = message.partition("unrecognized arguments: -")
        if unknown:
            word = f"-{words.split(' ')[0]}"  # what follows may be values, or words that are right
            option = word.split("=")[0]
            is_typo = f"--{option.lstrip('-')}" in self._option_string_actions  # -minutes
            verb = re.split(r"[ /\\]", self.prog)[-1].strip("'\"").removesuffix(".py")
            if not is_typo and (ours := alias(option, program=verb)):  # of another program
                raise UserError(f"{option}: no such option; did you mean ", ours, "?")
            raise UserError(f"{word}: no such option; {self._nearest(option.lstrip('-'))}")
        raise UserError(self._what_to_do(message, ""))

    def _what_to_do(self, message: str, option: str) -> str:
        if option and message == "expected one argument":
            return f"{message}; if its value begins with a dash, write {option}=VALUE"
        return message if "; use " in message else f"{message}; see {self.prog} --help"

    def _nearest(self, word: str) -> str:
        known = sorted(option.removeprefix("--") for action in self._actions for option in action.option_strings)
        close = [option for option in known if word and option.startswith(word)]
        close = close[: None if len(word) == 1 else 1] or difflib.get_close_matches(word, known, n=1)
        return f"did you mean {' or '.join(f'--{option}' for option in close)}?" if close else f"see {self.prog} --help"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
