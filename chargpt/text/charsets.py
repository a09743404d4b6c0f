"""Character sets: byte-order marks, and the most likely encoding of a text that the given encoding cannot decode."""

import codecs
import unicodedata

from chargpt.terminal import UserError
from chargpt.text.formats import binary_format
from chargpt.text.sources import Source

MARKS = (  # UTF-32 before UTF-16, because the mark of UTF-16-LE is the beginning of that of UTF-32-LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The most common characters beyond ASCII in texts of each encoding. Several encodings may decode the same bytes without an
# error; these characters tell which one is right.
WESTERN = {  # languages in Latin letters, where most letters are ASCII
    "cp1252": "éèàçêôûîâùäöüßñáíóúãõåæøëïœ’‘“”–—…«»£€°½",
    "cp1250": "ąęłśżźćńóěščřžýáíéúůďťňőű„”–",
    "cp1254": "ışğüöçİâ’“”",
}
OTHER = {
    "gb18030": "的一是不了人我在有他这中大来上国，。",
    "big5": "的一是不了人我在有他這中大來上國，。",
    "shift_jis": "のにはをたがでてとしれさある、。",
    "euc_jp": "のにはをたがでてとしれさある、。",
    "euc_kr": "이다는에의가을를은하고지도로",
    "cp1251": "оеаинтсрвл",
    "koi8_r": "оеаинтсрвл",
    "cp1253": "αοιετσνηυρ",
}


def byte_order_mark(head: bytes) -> tuple[bytes, str]:
    """The byte-order mark at the beginning of `head` and the encoding that it names; (b"", "utf-8") if there is none."""
    return next(((mark, encoding) for mark, encoding in MARKS if head.startswith(mark)), (b"", "utf-8"))


def undecodable(source: Source, offset: int, encoding: str) -> UserError:
    """The error for a text that cannot be decoded at byte `offset`: the line, and which encoding would work."""
    with source.open() as file:
        head, lines = file.read(512), 1
        file.seek(0)
        while (left := offset - file.tell()) > 0:
            lines += file.read(min(2**20, left)).count(b"\n")
        start = max(0, offset - 2**18)
        file.seek(start)
        around = file.read(2**19)
    if start:
        around = around[around.find(b"\n") + 1 :]  # do not begin inside a character
    if what := binary_format(head):
        return UserError(f"{source.label}: {what}")
    where = f"{source.label}: byte {offset:,} (line {lines:,}) is not {encoding}"
    guess = likely_encoding(around)
    if guess:
        return UserError(f"{where}; it reads as {guess}, so add data.encoding={guess}")
    if b"\0" in around:
        return UserError(f"{where}, and it contains NUL bytes, so it is probably not text; give a text file")
    return UserError(f"{where}; name its encoding in data.encoding, correct that byte, or set data.vocabulary=bytes")


def likely_encoding(sample: bytes) -> str | None:
    """The most likely encoding of `sample`, a part of a text that is not UTF-8; None if no encoding fits."""
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) > len(sample) / 8:
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    if 0 in sample:
        return None
    best = max([*WESTERN, *OTHER], key=lambda encoding: _plausibility(sample, encoding))
    return best if _plausibility(sample, best) > 0 else None


def _plausibility(sample: bytes, encoding: str) -> float:
    """The share of common characters among those beyond ASCII; 0 if decoding fails or gives control characters."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)  # the sample may end inside a character
    except UnicodeDecodeError:
        return 0.0
    beyond = [c for c in text if not c.isascii()]
    if not beyond or any(unicodedata.category(c) in ("Cc", "Cn", "Co") for c in beyond):
        return 0.0
    if encoding in WESTERN and len(beyond) > sum(map(str.isalpha, text)) / 2:
        return 0.0
    return sum(c in (WESTERN | OTHER)[encoding] for c in beyond) / len(beyond)
