"""The most likely character encoding of a text that the given encoding cannot decode."""

import codecs
import re
import unicodedata

from chargpt.errors import UserError
from chargpt.text.advice import Advice, advice_on
from chargpt.text.formats import binary_format
from chargpt.text.source import SAMPLE, Source

CERTAIN = 4  # characters beyond ASCII that are valid UTF-8: other encodings give this many only by design
NEAR = 2**18  # bytes before and behind a fault
ALL_BYTES = bytes(range(256))
WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # text in them holds many zeros
MAX_ODD, MAX_BLOCKS = 0.01, 8  # of a text in them: the share of characters that no text has, and blocks of 256 characters
SHOWN = 40  # characters of a text as an encoding reads it
# Characters beyond ASCII that are frequent in some languages, and the encodings of texts in them, the most frequent one first.
# Several encodings may decode the same bytes without an error; these characters tell which one is right. A list is no longer
# than it has to be: with more characters, texts in other languages would have them too.
WESTERN, CENTRAL = "cp1252 cp850 cp437 mac_roman", "cp1250 cp852 iso8859_2"
LANGUAGES = (
    ("éèàêçôûîùâëïœ", WESTERN),
    ("äöüß", WESTERN),
    ("áéíóúñü¿¡", WESTERN),
    ("ãçáéíóúâêõà", WESTERN),
    ("èàùòéì", WESTERN),
    ("åäöæøé", WESTERN),
    ("áéíóúýþæöð", WESTERN),
    ("ąęłśżźćńó", CENTRAL),
    ("ěščřžýáíéúůťďňľô", CENTRAL),
    ("áéíóöőúüű", CENTRAL),
    ("ăâîșțşţ", CENTRAL),
    ("čćžšđ", CENTRAL),
    ("ışğüöçİâ", "cp1254 cp857"),
    ("ąčęėįšųūž", "cp1257"),
    ("āēīūčģķļņšž", "cp1257"),
    ("õäöü", "cp1257"),
    ("ơưăâđêô\u0300\u0301\u0303\u0309\u0323", "cp1258"),
    ("оеаинтсрвлмы", "cp1251 koi8_r cp866 iso8859_5 mac_cyrillic"),
    ("оаинтсрвлмії", "cp1251 koi8_u"),
    ("αοιετσνηυρκς", "cp1253 cp737 iso8859_7"),
    ("יוהלאתמברנש", "cp1255 cp862"),
    ("اليمنورتبةعدسفكهی", "cp1256 iso8859_6 cp720"),
    ("านรอกเงมยลวดสตะปบ่้ัี", "cp874"),
    ("的一是不了人我在有他这中大来上国个们说到子，。", "gb18030"),
    ("的一是不了人我在有他這中大來上國個們說到子，。", "big5"),
    ("のにはをたがでてとしれさあるいう、。", "shift_jis euc_jp"),
    ("이다는에의가을를은하고지도로", "euc_kr"),
)
COMMON = "’‘“”„–—…«»°€"  # in texts of all languages
UNLIKELY = frozenset({"Cc", "Cn", "Co", "Lm", "No", "Sk", "Sm", "So"})  # categories
RARER = 0.01  # how much less likely an encoding is than the one before it in its row, as a share of characters
LIKELY = 0.2  # share of frequent characters, less those that are wrong, above which an encoding is named


def is_utf8(source: Source, *, given: str) -> bool:
    """Whether a text has characters beyond ASCII, all of them UTF-8, for which the encoding that is `given` is an error: a text
    in another encoding is valid UTF-8 by chance only if it is short, and some characters have two bytes."""
    decoder, more = codecs.getincrementaldecoder("utf-8")(), 0  # bytes than characters
    try:
        for chunk in source.chunks(NEAR):
            more += 0 if chunk.isascii() else len(chunk) - len(decoder.decode(chunk))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return more >= (1 if len(ALL_BYTES.decode(given, "replace")) == len(ALL_BYTES) else CERTAIN)


class Fault:
    """A byte that the encoding of a text cannot decode, and what is near it."""

    def __init__(self, source: Source, offset: int, encoding: str) -> None:
        before, rest, self.line, at = b"", b"", 1, 0
        for chunk in source.chunks(NEAR):
            cut = max(0, offset - at)
            self.line += chunk.count(b"\n", 0, cut)
            before, rest, at = (before + chunk[:cut])[-NEAR:], rest + chunk[cut:], at + len(chunk)
            if len(rest) > NEAR:
                break
        beyond = sum(not c.isascii() for c in before.decode("utf-8", "ignore")) if encoding == "utf-8" else 0
        self.is_cut = beyond > 0 and _decoded(rest, "utf-8") == ""
        self.is_damage = beyond >= CERTAIN
        self.has_nul = 0 in before + rest
        # The beginning of a line is not inside a character.
        before = before[0 if self.has_nul else before.rfind(b"\n") + 1 :]
        self._around, self._at = before + rest, len(before)
        self.encoding, self.guess = codecs.lookup(encoding).name, likely_encoding(self._around)
        if encoding != "utf-8" and not self.has_nul and _decoded(self._around, "utf-8") is not None:
            self.guess = "utf-8"

    @property
    def words(self) -> str:
        """The words around the byte, or around the first character beyond ASCII after it, as the guess reads them."""
        read, start = (
            codecs.getincrementaldecoder(str(self.guess))("replace").decode(part)
            for part in (self._around, self._around[: self._at])
        )
        at = next((i for i in range(len(start), len(read)) if not read[i].isascii()), len(start))
        first, end = read.rfind("\n", 0, at) + 1, (read + "\n").index("\n", at)
        from_ = first if at - first < SHOWN - 10 else 1 + read.find(" ", at - SHOWN // 2, at) or at - SHOWN // 2
        words = " ".join(read[from_ : min(end, from_ + SHOWN)].split())
        return f"{'...' * (from_ > first)}{words}{'...' * (end > from_ + SHOWN)}"


ADVICE = (  # what is said of a fault: the first row that finds something
    Advice(lambda it: it.is_cut, ": the file was cut off in the middle of a character; copy it again, or remove its last line"),
    Advice(
        lambda it: it.is_damage,
        ", unlike the text before it: the file is damaged there, or joined from files in different encodings; copy it again, "
        "or correct that line",
    ),
    Advice(
        lambda it: it.guess == it.encoding, ", unlike the text around it: the file is damaged there, or cut off; copy it again"
    ),
    Advice(
        lambda it: it.guess,
        *("; perhaps it is {n}, which reads “{it.words}”; if that is right, add ", "data.encoding", "{n}"),
        ", which leaves files in UTF-8 as they are",
    ),
    Advice(lambda it: it.has_nul, ", and it contains NUL bytes, so it is probably not text; give a text file"),
    Advice(lambda _: True, "; name its encoding in data.encoding, correct that byte, or set ", "data.vocabulary", "bytes"),
)


def undecodable(source: Source, offset: int | None, encoding: str) -> UserError:
    """The error for a text that cannot be decoded at byte `offset`, or which looks like another encoding (None): the line, and
    which encoding may be right."""
    if what := binary_format(next(source.chunks(SAMPLE), b""), path=source.path):
        return UserError(f"{source.label}: {what}")
    fault = Fault(source, offset or 0, encoding)
    place = "" if offset is None else f"byte {offset:,} (line {fault.line:,}) is "
    return UserError(f"{source.label}: {place}not {encoding}", next(advice_on(fault, ADVICE)))


def likely_encoding(sample: bytes) -> str | None:
    """The most likely encoding of `sample`, a part of a text that is not UTF-8; None if no encoding fits."""
    sample = sample[: 2 * SAMPLE]
    if 0 in sample:
        return next((encoding for encoding in WIDE if _is_wide_text(sample, encoding)), None)
    likely = (
        (_likelihood(_decoded(sample, encoding) or "", letters) - RARER * rank, encoding)
        for letters, encodings in LANGUAGES
        for rank, encoding in enumerate(encodings.split())
    )
    likelihood, best = max(likely, key=lambda pair: pair[0])  # the first of equals
    return best if likelihood > LIKELY else None


def _is_wide_text(sample: bytes, encoding: str) -> bool:
    """Whether `sample` is text in one of WIDE. Token ids, for example, give characters that no text has."""
    text = _decoded(sample, encoding) or ""
    odd = sum(unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\t\n\r\f" for c in text)
    blocks = {min(ord(c), 0xFFFF) >> 8 for c in text}  # of 256 characters, of which a language needs few, but for these two
    blocks = {0x4E if 0x30 <= block < 0xA0 else 0xAC if 0xAC <= block < 0xD8 else block for block in blocks}
    return bool(text) and odd <= MAX_ODD * len(text) and len(blocks) <= MAX_BLOCKS


def _likelihood(text: str, letters: str) -> float:
    """The share of the characters beyond ASCII that are frequent in a language with these letters, less those that are in no
    text, and the capitals after small letters; -1 for a text that is not in this language."""
    beyond = [c for c in text if not c.isascii()]
    is_mostly_ascii = 2 * len(beyond) <= sum(map(str.isalpha, text))  # as in all languages with Latin letters
    if not beyond or (unicodedata.name(letters[0]).startswith("LATIN") and not is_mostly_ascii):
        return -1.0
    frequent = sum(c in letters or c.lower() in letters or c in COMMON for c in beyond)
    unlikely = sum(unicodedata.category(c) in UNLIKELY or c in "ªº" for c in beyond)
    words = (word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii())
    mixed = sum(a.islower() and b.isupper() for word in words for a, b in zip(word, word[1:]))
    return (frequent - 2 * unlikely - 2 * mixed) / len(beyond)


def _decoded(sample: bytes, encoding: str) -> str | None:
    """The text of `sample`, which may end inside a character; None if `encoding` cannot decode it."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None
