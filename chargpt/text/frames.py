"""What stands around a text and is none of it: the header and the licence of Project Gutenberg, and what a site repeats."""

import re
from collections import Counter
from collections.abc import Iterable

from chargpt.text.source import Source, decoded

# The lines, or blocks of them, between which the text of a book stands: Project Gutenberg's in newer and older files, those of
# its like in Japan, and any in capitals. What is between a mark that begins and the next one, if that ends, is text.
MARK = re.compile(
    r"(?im)^[ \t]*(?=\S)(?:(?P<begins>\*\*\* ?START OF (?:TH(?:E|IS) )?PROJECT GUTENBERG[^*]*\*\*\*.*"
    r"|[*=~# -]{2,}(?-i:START|BEGIN(?:NING)?) OF .*)"
    r"|(?P<both>(?:\*+ ?START\*+ ?THE SMALL PRINT(?s:.){,30000}?^)?\*+ ?END\*? ?THE SMALL PRINT.*"
    r"|-{20,}\r?\n【テキスト中に現れる記号について】(?s:.){,3000}?\n-{20,})"
    r"|(?P<ends>[* \t]*(?:The )?(?:End|Ende|Fin|Fine|Fim|Einde|Slut|Loppu)\b.{,20}\bPro[jk]e[ck]t Gutenberg"
    r"|[*=~# -]{2,}(?-i:END) OF |底本：))"
)
OF_A_BOOK = re.compile(r"(?i)Gutenberg|SMALL PRINT|【|底本")  # in a mark, beside which others are text
BOOK = re.compile(r"(?i)\s*.{0,40}Project Gutenberg(?:'s)? e?-?(?:text|book)")  # how one may begin without a mark
LONGEST, SHORTEST = 100, 20  # lines in which files may repeat something, but for its numbers; its characters
FEWEST, SHARED, MOST = 3, 0.8, 2**26  # files of a folder that repeat it, their share of all, and the bytes of all


class Frames:
    """What is around the texts of some files: each has its own, or what the files of a folder repeat."""

    def __init__(self, sources: Iterable[Source], *, encoding: str) -> None:
        """`encoding` is that of the files that are not in UTF-8."""
        files, self._encoding = [source for source in sources if source.in_folder], encoding
        is_read = len(files) >= FEWEST and sum(source.size or MOST for source in files) <= MOST
        texts = (decoded(b"".join(source.chunks(MOST)), encoding) for source in files * is_read)
        sides = [*zip(*([{*map(_key, edge[:LONGEST])} for edge in _edges(text)] for text in texts))]
        often, counts = max(FEWEST, SHARED * len(files)), [Counter(line for edge in side for line in edge) for side in sides]
        self._repeated = [{"", *(line for line in side if side[line] >= often)} for side in counts] or [{""}, {""}]

    def may_be_around(self, head: bytes) -> bool:
        """Whether a file that begins with `head` may have a frame."""
        text = decoded(head, self._encoding)
        return any(len(side) > 1 for side in self._repeated) or bool(BOOK.match(text) or MARK.search(text))

    def body(self, text: str) -> tuple[int, str]:
        """Where the text proper begins, and this text; all of it if it has no frame. A file may hold several books; one that
        begins or ends without a mark is the longest part between those that it has."""
        marks = [*MARK.finditer(text)]
        of_book = [mark for mark in marks if OF_A_BOOK.search(mark[0])]
        marks, is_book = of_book or marks, bool(of_book or BOOK.match(text))
        parts = [(a, b) for a, b in zip([None, *marks], [*marks, None]) if not a or a.lastgroup != "ends"]
        whole = [(a, b) for a, b in parts if a and b and b.lastgroup != "begins"]
        bodies = [text[a.end() if a else 0 : b.start() if b else len(text)].strip("\r\n") for a, b in whole or parts * is_book]
        bodies = bodies if whole else sorted(bodies, key=len)[-1:]
        return (text.index(bodies[0]), "\n\n".join(bodies) + "\n") if marks and bodies else self._unrepeated(text)

    def _unrepeated(self, text: str) -> tuple[int, str]:
        """The same for what files repeat."""
        edges, (lines, _) = zip(self._repeated, _edges(text)), _edges(text)
        first, last = (next((n for n, line in enumerate(edge) if _key(line) not in repeated), 0) for repeated, edge in edges)
        around = [*lines[:first], *lines[len(lines) - last :]]
        kept = lines[first : len(lines) - last] if sum(len(line.strip()) for line in around) >= SHORTEST else lines
        return sum(map(len, lines[:first])) * (kept is not lines), "".join(kept)


def _edges(text: str) -> tuple[list[str], list[str]]:
    """The lines of a text, from the first one on and from the last one."""
    lines = text.splitlines(keepends=True)
    return lines, lines[::-1]


def _key(line: str) -> str:
    """A line as it is compared with those of other files."""
    return re.sub(r"\d+", "0", line.strip())
