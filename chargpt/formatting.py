"""Words for a person: counts, times, paths, and text from elsewhere without what commands a terminal."""

import re
import unicodedata
from pathlib import Path

# What can command a terminal or reorder its text: C0 except tab and newline, DEL, C1, line and paragraph separators,
# bidirectional overrides and isolates, deprecated format characters, interlinear annotation, tags. Marks and joiners that
# scripts need are not among them.
CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]")
MAX_LISTED = 40  # characters that a message lists


def escape_controls(text: str) -> str:
    """`text` with control characters as escapes such as \\x1b; tab and newline stay: for what is printed on several lines."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: object) -> str:
    """`text` on a single line with control characters escaped, so that a file name cannot imitate a message."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 layer, 2 layers."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def distinct(characters: str) -> str:
    """Each of `characters` once, separated by spaces, the first ones if there are many."""
    found = [*dict.fromkeys(characters)]
    return " ".join(found[:MAX_LISTED] + ["..."] * (len(found) > MAX_LISTED))


def up_to_a_word(sample: str) -> str:
    """A sample without its last word, in whose middle it may end, unless it has no other."""
    return re.sub(r"(?<=\S)\s+\w{1,30}\Z", "", sample)


def shown(path: str | Path) -> str:
    """`path` as a person would type it: relative to the working folder if it is inside."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def columns(text: str) -> int:
    """The columns that `text` takes in a terminal: two for a wide character, none for a mark above or below another one."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "FW") for c in text)


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
