"""What is done to a text, and to a prompt, before it is encoded: line ends, case, Unicode normal form."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from chargpt.config import DataConfig, NormalForm

MAX_HELD = 2**16  # characters that `safe_cut` looks back over
# The last character that neither combines with the one before it nor decides whether a Greek sigma ends a word: such as the
# second of two plain letters or digits, for a sigma before or after them sees one of the two.
LAST_CUT = re.compile(r"(?s).*([ \t\r\u4e00-\u9fff]|(?<!\r)\n|(?<=[0-9A-Za-z])[0-9A-Za-z])")


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
        """An index i near the end, or 0, with apply(text[:i]) + apply(text[i:] + more) == apply(text + more) for any `more`."""
        return found.start(1) if (found := LAST_CUT.match(text, max(0, len(text) - MAX_HELD))) else 0
