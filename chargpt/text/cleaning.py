"""What `text --clean` takes out of a text from a PDF or a scan: page breaks, hyphens at line ends, ligatures."""

import re
import unicodedata
from collections import Counter

from chargpt.text.remains import REMAINS

PAGE_NUMBER = re.compile(r"(?:^|\n)[-–—\[ \t]*\d{1,4}[-–—\] \t]*\Z")
ENDS = ".!?:;…\"'”’»)]"  # what a paragraph may end with
LETTER = r"[^\W\d_]"
COMPOUND = re.compile(rf"(?<!{LETTER}){LETTER}+-{LETTER}+")
# The two parts of a word that a line end divides, what follows the word, and the rest of the space there.
DIVIDED = re.compile(rf"(?<!{LETTER})({LETTER}+)[-\u00ad\u2010]\n[ \t]*({LETTER}+)(\S*)[ \t]*\n?")


def clean_text(text: str) -> tuple[str, dict[str, int]]:
    """The clean `text`, and how many things of each kind were changed. NFKC replaces ligatures. The second part of a divided
    word goes to the line of the first; a word that is elsewhere written with a hyphen keeps it."""
    text, remains = turned_back(text.replace("\r\n", "\n").replace("\r", "\n"))
    if len(pages := text.split("\f")) > 1:  # a paragraph goes on behind a page that does not end with a sentence
        bodies = [body for page in pages if (body := PAGE_NUMBER.sub("", page.strip("\n")).rstrip())]
        text = "".join(body + "\n" * (1 + (body[-1] in ENDS)) for body in bodies[:-1]) + "".join(bodies[-1:]) + "\n"
    compounds, joined = {word.lower() for word in COMPOUND.findall(text)}, list[str]()

    def join(found: re.Match[str]) -> str:
        first, second, rest = found.groups()
        if not second[0].islower():
            return found[0]
        joined.append(f"{first}-{second}")
        return f"{joined[-1] if joined[-1].lower() in compounds else first + second}{rest}\n"

    text = DIVIDED.sub(join, text).replace("\u00ad", "")  # soft hyphens
    forms = sum(count for one, count in Counter(text).items() if unicodedata.normalize("NFKC", one) != one)
    counts = {"page breaks": len(pages) - 1, "hyphens at line ends": len(joined)}
    counts |= {"letters in special forms, such as \ufb01": forms} | {name: count for name, count in remains.items() if count}
    return unicodedata.normalize("NFKC", text), counts


def turned_back(text: str) -> tuple[str, dict[str, int]]:
    """The text that is meant, and how many of each of REMAINS were turned back. One may hide another: &lt;br&gt;."""
    counts = Counter({one.name: 0 for one in REMAINS})
    for one in REMAINS * 2:
        if found := one.found_in(text):
            ends = zip([*(match.end() for match in found)], [*(match.start() for match in found[1:]), len(text)])
            meant = [one.back(match[0]) + text[end:start] for match, (end, start) in zip(found, ends)]
            text = text[: found[0].start()] + "".join(meant)
            counts[one.name] += len(found)
    return text, counts
