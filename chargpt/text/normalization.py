"""What is done to a text, and to a prompt, before it is encoded: line ends, case, Unicode normal form.

And what `text --clean` takes out of a text from a PDF or a scan: page breaks, hyphens at line ends, ligatures.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from chargpt.config import DataConfig, NormalForm
from chargpt.text.remains import turned_back

MAX_HELD = 2**16  # characters that `safe_cut` looks back over
# The last character that neither combines with the one before it nor decides whether a Greek sigma ends a word: such as the
# second of two plain letters or digits, for a sigma before or after them sees one of the two.
LAST_CUT = re.compile(r"(?s).*([ \t\r\u4e00-\u9fff]|(?<!\r)\n|(?<=[0-9A-Za-z])[0-9A-Za-z])")
PAGE_NUMBER = re.compile(r"(?:^|\n)[-–—\[ \t]*\d{1,4}[-–—\] \t]*\Z")
ENDS = ".!?:;…\"'”’»)]"  # what a paragraph may end with
LETTER = r"[^\W\d_]"
COMPOUND = re.compile(rf"(?<!{LETTER}){LETTER}+-{LETTER}+")
# The two parts of a word that a line end divides, what follows the word, and the rest of the space there.
DIVIDED = re.compile(rf"(?<!{LETTER})({LETTER}+)[-\u00ad\u2010]\n[ \t]*({LETTER}+)(\S*)[ \t]*\n?")


@dataclass(frozen=True, kw_only=True)
class TextNormalizer:
    """Changes a text before it becomes ids. Applied to training text and prompts alike."""

    newlines: Literal["keep", "fold"] = "keep"  # fold: \r\n and \r become \n
    normalize: NormalForm = "none"
    lowercase: bool = False

    @classmethod
    def of(cls, config: DataConfig) -> "TextNormalizer":
        """The normaliser that `config` asks for. data.newlines=auto is `keep` until a text is known to contain \\r."""
        newlines = "keep" if config.newlines == "auto" else config.newlines
        return cls(newlines=newlines, normalize=config.normalize, lowercase=config.lowercase)

    @property
    def is_identity(self) -> bool:
        """Whether every text stays as it is."""
        return self == TextNormalizer()

    def apply(self, text: str) -> str:
        """The normalised `text`."""
        if self.newlines == "fold":
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self.lowercase:
            text = text.lower()
        if self.normalize != "none":  # last, because lower() may produce text that is not normalised
            text = unicodedata.normalize(self.normalize, text)
        return text

    def apply_in_pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        """The normalised text of `pieces`, joined. The result does not depend on the cuts."""
        held = ""
        for piece in pieces:
            text = held + piece
            cut = self.safe_cut(text)
            yield self.apply(text[:cut])
            held = text[cut:]
        yield self.apply(held)

    def safe_cut(self, text: str) -> int:
        """An index i near the end of `text` with apply(text[:i]) + apply(text[i:] + more) == apply(text + more) for any `more`;
        0 when there is no such index near the end."""
        return found.start(1) if (found := LAST_CUT.match(text, max(0, len(text) - MAX_HELD))) else 0


def clean_text(text: str) -> tuple[str, dict[str, int]]:
    """The clean `text`, and how many things of each kind were changed. NFKC replaces ligatures. The second part of a divided
    word goes to the line of the first; a word that is elsewhere written with a hyphen keeps it."""
    text, remains = turned_back(text.replace("\r\n", "\n").replace("\r", "\n"))
    pages = text.split("\f")
    text = pages[0] if len(pages) == 1 else _joined(pages)
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


def _joined(pages: list[str]) -> str:
    """The `pages` without the numbers below them. A paragraph goes on behind a page that does not end with a sentence."""
    bodies = [body for page in pages if (body := PAGE_NUMBER.sub("", page.strip("\n")).rstrip())]
    return "".join(body + "\n" * (1 + (body[-1] in ENDS)) for body in bodies[:-1]) + "".join(bodies[-1:]) + "\n"
