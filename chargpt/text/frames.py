"""What stands around a text and is none of it: the header and the licence of Project Gutenberg, and what a site repeats."""

import re
from collections import Counter
from collections.abc import Iterable

from chargpt.text.source import Source

_BOOK = r"(?:TH(?:E|IS) )?PROJECT GUTENBERG"
# The lines between which the text of a book stands, in newer and in older files; and those of any other file, in capitals.
BEGINS = re.compile(
    rf"(?im)^\*\*\* ?START OF {_BOOK}[^*]*\*\*\*.*|^\*END\*? ?THE SMALL PRINT.*|^[*=~# -]{{2,}}(?-i:START|BEGIN(?:NING)?) OF .*"
)
ENDS = re.compile(
    rf"(?im)^\*\*\* ?END OF {_BOOK}|^(?:The )?End of {_BOOK}|^[*=~# -]{{2,}}(?-i:END) OF |^\*\*\*START\*\*THE SMALL PRINT"
)
GUTENBERG = re.compile(r"(?i)\s*.{0,40}Project Gutenberg(?:'s)? e?-?(?:text|book)")  # how a book may begin without BEGINS
EDGE, LONGEST, SHORTEST = 2**13, 12, 20  # characters, and lines in which files may repeat something; its characters
FEWEST, SHARED, MOST = 3, 0.8, 2**26  # files of a folder that repeat it, their share of all, and the bytes of all


class Frames:
    """What is around the texts of some files: each has its own, or what the files of a folder repeat."""

    def __init__(self, sources: Iterable[Source]) -> None:
        files = [source for source in sources if source.in_folder]
        is_read = len(files) >= FEWEST and sum(source.size or MOST for source in files) <= MOST
        sides = [*zip(*(_edges(b"".join(source.chunks(MOST)).decode("utf-8", "ignore")) for source in files * is_read))]
        often, counts = max(FEWEST, SHARED * len(files)), [Counter(line for edge in side for line in {*edge}) for side in sides]
        self._repeated = [{line for line, count in side.items() if count >= often} for side in counts]

    def may_be_around(self, head: bytes) -> bool:
        """Whether a file that begins with `head` may have a frame."""
        text = head.decode("utf-8", "ignore")
        return any(self._repeated) or BEGINS.search(text) is not None or GUTENBERG.match(text.lstrip("\ufeff")) is not None

    def body(self, text: str) -> tuple[int, str]:
        """Where the text proper begins, and this text; all of it if it has no frame. A file may hold several books."""
        begins, bodies = [*BEGINS.finditer(text)], list[tuple[int, int]]()
        starts = [begin.end() for begin in begins] or [0] * bool(GUTENBERG.match(text.lstrip("\ufeff")))
        for start, following in zip(starts, [*(begin.start() for begin in begins[1:]), len(text)]):
            end = ENDS.search(text, start, following)
            if end or (begins and _BOOK[-9:] in text[:start].upper()):
                bodies.append((start, end.start() if end else following))
        inside = [text[start:end].strip("\r\n") for start, end in bodies]
        return (text.index(inside[0], bodies[0][0]), "\n\n".join(inside) + "\n") if inside else self._unrepeated(text)

    def _unrepeated(self, text: str) -> tuple[int, str]:
        """The same for what files repeat."""
        lines, first, last = text.splitlines(keepends=True), 0, 0
        for repeated, edge in zip(self._repeated, (lines, lines[::-1])):
            first, last = last, next((n for n, line in enumerate(edge) if line.strip() and line.strip() not in repeated), 0)
        around = [*lines[:first], *lines[len(lines) - last :]]
        kept = lines[first : len(lines) - last] if sum(len(line.strip()) for line in around) >= SHORTEST else lines
        return sum(map(len, lines[:first])) * (kept is not lines), "".join(kept)


def _edges(text: str) -> tuple[list[str], list[str]]:
    """The first and the last lines that are not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[:LONGEST], lines[-LONGEST:]
