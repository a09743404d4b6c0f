"""A text from a PDF or a scan without its page breaks, its hyphens at line ends, and its ligatures."""

import re
import unicodedata
from collections import Counter

PAGE_NUMBER = re.compile(r"(?:^|\n)[-–—\[ \t]*\d{1,4}[-–—\] \t]*\Z")
ENDS = ".!?:;…\"'”’»)]"  # what a paragraph may end with
LETTER = r"[^\W\d_]"
COMPOUND = re.compile(rf"(?<!{LETTER}){LETTER}+-{LETTER}+")
# The two parts of a word that a line end divides, what follows the word, and the rest of the space there.
DIVIDED = re.compile(rf"(?<!{LETTER})({LETTER}+)[-\u00ad\u2010]\n[ \t]*({LETTER}+)(\S*)[ \t]*\n?")


def cleaned(text: str) -> tuple[str, dict[str, int]]:
    """The clean `text`, and how many things of each kind were changed. NFKC replaces ligatures, and characters like them.

    The second part of a divided word goes to the line of the first. A word that is elsewhere written with a hyphen keeps it.
    """
    pages = text.replace("\r\n", "\n").replace("\r", "\n").split("\f")
    text = pages[0] if len(pages) == 1 else _joined(pages)
    compounds = {word.lower() for word in COMPOUND.findall(text)}
    joined = 0

    def join(found: re.Match[str]) -> str:
        nonlocal joined
        first, second, rest = found.groups()
        if not second[0].islower():
            return found[0]
        joined += 1
        hyphen = "-" * (f"{first}-{second}".lower() in compounds)
        return f"{first}{hyphen}{second}{rest}\n"

    text = DIVIDED.sub(join, text).replace("\u00ad", "")  # soft hyphens
    forms = sum(count for one, count in Counter(text).items() if unicodedata.normalize("NFKC", one) != one)
    counts = {"page breaks": len(pages) - 1, "hyphens at line ends": joined, "ligatures and other forms of characters": forms}
    return unicodedata.normalize("NFKC", text), counts


def _joined(pages: list[str]) -> str:
    """The `pages` without the numbers below them. A paragraph goes on behind a page that does not end with a sentence."""
    text = ""
    for page in pages:
        if body := PAGE_NUMBER.sub("", page.strip("\n")).rstrip():
            between = "\n" if text[-1:] not in ENDS else "\n\n"
            text += between * bool(text) + body
    return text + "\n"
