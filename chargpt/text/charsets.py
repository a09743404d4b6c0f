"""Character sets: byte-order marks, and the most likely encoding of a text that the given encoding cannot decode."""

import codecs
import unicodedata
from pathlib import Path

from chargpt.errors import Message, Option, UserError, Words
from chargpt.text.formats import binary_format
from chargpt.text.source_bytes import Source

MARKS = (  # UTF-32 before UTF-16, because the mark of UTF-16-LE is the beginning of that of UTF-32-LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The most common characters beyond ASCII in texts of each encoding. Several encodings may decode the same bytes without an
# error; these characters tell which one is right.
CERTAIN = 4  # characters beyond ASCII that are valid UTF-8: other encodings give this many only by design
SAMPLE = 8192  # bytes at the beginning of a file
MAX_NUL_SHARE = 1 / 4  # of a text
WIDE = {
    "utf-32-le": (1, 2, 3),
    "utf-32-be": (0, 1, 2),
    "utf-16-le": (1, 3),
    "utf-16-be": (0, 2),
}  # bytes of 4 that are mostly 0
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


def why_not_utf8(head: bytes, *, path: Path | None = None) -> Words | None:
    """What a file is that begins with `head`, has no byte-order mark and is not UTF-8 text; None if it may be.

    A file in UTF-16 or of zeros can be valid UTF-8: NUL is a character.
    """
    if what := binary_format(head, path=path):
        return what
    sample = head[:SAMPLE]
    if sample.count(0) <= len(sample) * MAX_NUL_SHARE:
        return None
    if guess := likely_encoding(sample):
        return Message(f"it reads as {guess}, so add ", Option("data.encoding", guess))
    return "most of it is NUL bytes, so it is not text; give a text file"


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
    before, rest = around[: offset - start], around[offset - start :]
    first_bytes = rest[:2]
    if start:
        around = around[around.find(b"\n") + 1 :]  # do not begin inside a character
    if what := binary_format(head, path=source.path):
        return UserError(f"{source.label}: {what}")
    where = f"{source.label}: byte {offset:,} (line {lines:,}) is not {encoding}"
    if encoding == "utf-8" and first_bytes[:1] == b"\xed" and first_bytes[1:] >= b"\xa0":
        what = f"{where}, but half of a surrogate pair, as CESU-8 has them; convert the file to UTF-8, or set "
        return UserError(what, Option("data.vocabulary", "bytes"))
    if encoding == "utf-8" and (damage := _damage(before, rest)):
        return UserError(f"{where}, although the text before it is: {damage}")
    guess = "utf-8" if encoding != "utf-8" and _is_utf8(around) else likely_encoding(around)
    if guess == codecs.lookup(encoding).name:
        return UserError(f"{where}, although it reads as such: it is damaged there, or cut off; copy it again")
    if guess:
        return UserError(f"{where}; it reads as {guess}, so add ", Option("data.encoding", guess))
    if b"\0" in around:
        return UserError(f"{where}, and it contains NUL bytes, so it is probably not text; give a text file")
    what = f"{where}; name its encoding in data.encoding, correct that byte, or set "
    return UserError(what, Option("data.vocabulary", "bytes"))


def _damage(before: bytes, rest: bytes) -> str:
    """What happened to a text in UTF-8 that is valid up to `rest`, and what to do; empty if it may be in another encoding."""
    beyond = sum(not c.isascii() for c in before.decode("utf-8", "ignore"))
    try:
        rest.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start == 0 and error.reason == "unexpected end of data"
    if beyond and is_cut:
        return "the file ends inside a character, so it was cut; copy it again, or remove its last line"
    if beyond >= CERTAIN:
        return "the file is damaged there, or joined from files in different encodings; copy it again, or correct that line"
    return ""


def _is_utf8(sample: bytes) -> bool:
    """Whether `sample`, which may end inside a character, is text in UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample


def likely_encoding(sample: bytes) -> str | None:
    """The most likely encoding of `sample`, a part of a text that is not UTF-8; None if no encoding fits."""
    zeros = [sample[i::4].count(0) * 4 / max(1, len(sample)) for i in range(4)]
    for encoding, high_bytes in WIDE.items():
        others = [share for i, share in enumerate(zeros) if i not in high_bytes]
        if min(zeros[i] for i in high_bytes) > 1 / 4 and max(others) < 1 / 8:
            return encoding
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
