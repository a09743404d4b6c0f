"""The most likely character encoding of a text that the given encoding cannot decode."""

import codecs
import contextlib
import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from chargpt.errors import UserError
from chargpt.text.advice import Advice, advice_on
from chargpt.text.markup import command_for
from chargpt.text.not_text import binary_format
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
    ("éèêëïñçüöäáíóâôàåãø£§©®±½¼", WESTERN),  # in English
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
    ("的一是不了人我在有他这中大来上国个们说到子就着也得里她那去没看天下年起可要家道好，。？！“”", "gb18030"),
    ("的一是不了人我在有他這中大來上國個們說到子就著也得裡她那去沒看天下年起可要家道好，。？！", "big5"),
    ("のにはをたがでてとしれさあるいう、。", "shift_jis euc_jp"),
    ("이다는에의가을를은하고지도로", "euc_kr"),
)
# A character beyond U+FFFF as two, which are in UTF-8, and what writes it as one.
HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
MEND = "import sys; s = 'surrogatepass'; print(open(sys.argv[1], errors=s).read().encode('utf16', s).decode('utf16'), end='')"
COMMON = "’‘“”„–—…«»°€"  # in texts of all languages
UNLIKELY = frozenset({"Cc", "Cn", "Co", "Lm", "No", "Sk", "Sm", "So"})  # categories
RARER = 0.01  # how much less likely an encoding is than the one before it in its row, as a share of characters
# Share of frequent characters, less wrong ones: above it, one is named; below it, a given one that is so much less is in doubt.
LIKELY, SURE, CLEARLY = 0.2, 0.65, 0.2


def encoding_of(source: Source, *, given: str) -> tuple[str, str]:
    """The encoding of a text that need not be in UTF-8, and what is to be said of it. It is UTF-8 if all its characters beyond
    ASCII are: in another encoding, a text is so by chance only if it is short, and some characters have two bytes. Or else it
    is the most likely one of those that are `given`, divided by commas."""
    decoder, more, lines = codecs.getincrementaldecoder("utf-8")(), 0, b""  # more bytes than characters
    with contextlib.suppress(UnicodeDecodeError):
        for chunk in source.chunks(NEAR):
            if not chunk.isascii():
                lines += b"\n".join(line for line in chunk.split(b"\n") if not line.isascii())[: SAMPLE - len(lines)]
                more += len(chunk) - len(decoder.decode(chunk))
        decoder.decode(b"", final=True)
        if more >= (1 if all(len(ALL_BYTES.decode(one, "replace")) == len(ALL_BYTES) for one in given.split(",")) else CERTAIN):
            return "utf-8", f"utf-8, which it is, and not as {given}"
    likelihood, encoding = max(_likelihoods(lines, given.split(",")), key=itemgetter(0))
    best, guess = max(_likelihoods(lines), key=itemgetter(0)) if likelihood < SURE and 0 not in lines else (0.0, "")
    if best < max(LIKELY, likelihood + CLEARLY) or _decoded(lines, guess) == _decoded(lines, encoding):
        return encoding, f"{encoding}, the likeliest of {given}" * ("," in given)
    return encoding, f"{encoding}, but perhaps it is {guess}; data.encoding={given},{guess} reads each file as the likelier one"


class Fault:
    """A byte that the encoding of a text cannot decode, and what is near it."""

    def __init__(self, source: Source, offset: int, encoding: str, *, given: str) -> None:
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
        self.command = HALVES.match(self._around, self._at) and command_for(MEND, source)
        self.encoding, self.guess = codecs.lookup(encoding).name, likely_encoding(self._around)
        if encoding != "utf-8" and not self.has_nul and _decoded(self._around, "utf-8") is not None:
            self.guess = "utf-8"
        self.setting = self.guess if "utf-8" in (given, self.guess) else f"{given},{self.guess}"

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
    Advice(lambda it: it.command, ", but CESU-8, as Oracle and old Java write; the same in UTF-8: {n}"),
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
        *("; perhaps it is {n}, which reads “{it.words}”; if that is right, add ", "data.encoding", "{it.setting}"),
        ", which leaves files in UTF-8 as they are",
    ),
    Advice(lambda it: it.has_nul, ", and it contains NUL bytes, so it is probably not text; give a text file"),
    Advice(lambda _: True, "; name its encoding in data.encoding, correct that byte, or set ", "data.vocabulary", "bytes"),
)


def undecodable(source: Source, offset: int | None, encoding: str, *, given: str) -> UserError:
    """The error for a text that cannot be decoded at byte `offset`, or looks like another encoding (None) than is `given`."""
    if what := binary_format(next(source.chunks(SAMPLE), b""), path=source.path):
        return UserError(f"{source.label}: {what}")
    fault = Fault(source, offset or 0, encoding, given=given)
    place = "" if offset is None else f"byte {offset:,} (line {fault.line:,}) is "
    return UserError(f"{source.label}: {place}not {encoding}", next(advice_on(fault, ADVICE)))


def likely_encoding(sample: bytes) -> str | None:
    """The most likely encoding of `sample`, a part of a text that is not UTF-8; None if no encoding fits."""
    sample = sample[: 2 * SAMPLE]
    if 0 in sample:
        return next((encoding for encoding in WIDE if _is_wide_text(sample, encoding)), None)
    likelihood, best = max(_likelihoods(sample), key=itemgetter(0))
    return best if likelihood > LIKELY else None


def _likelihoods(sample: bytes, encodings: Sequence[str] = ()) -> Iterator[tuple[float, str]]:
    """How likely it is that `sample` is a text of each of LANGUAGES in one of the `encodings`, or in one of its own."""
    read = functools.cache(lambda encoding: _Beyond.of(_decoded(sample, encoding) or ""))
    for letters, own in LANGUAGES:
        for rank, encoding in enumerate(encodings or own.split()):
            yield read(encoding).likelihood(letters) - RARER * rank, encoding


def _is_wide_text(sample: bytes, encoding: str) -> bool:
    """Whether `sample` is text in one of WIDE. Token ids, for example, give characters that no text has."""
    text = _decoded(sample, encoding) or ""
    odd = sum(unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\t\n\r\f" for c in text)
    blocks = {min(ord(c), 0xFFFF) >> 8 for c in text}  # of 256 characters, of which a language needs few, but for these two
    blocks = {0x4E if 0x30 <= block < 0xA0 else 0xAC if 0xAC <= block < 0xD8 else block for block in blocks}
    return bool(text) and odd <= MAX_ODD * len(text) and len(blocks) <= MAX_BLOCKS


class _Beyond(NamedTuple):
    """What is beyond ASCII in a text."""

    counts: Counter[str]  # of its characters
    is_mostly_ascii: bool  # as in all languages with Latin letters
    capitals: int  # after small letters
    joined: int  # letters beside one of ASCII

    @classmethod
    def of(cls, text: str) -> "_Beyond":
        """What is in `text`."""
        counts = Counter({one: count for one, count in Counter(text).items() if not one.isascii()})
        words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
        pairs = [(a, b) for word in words for a, b in zip(word, word[1:])]
        capitals = sum(a.islower() and b.isupper() for a, b in pairs)
        joined = sum(a.isascii() != b.isascii() for a, b in pairs)
        return cls(counts, 2 * counts.total() <= sum(map(str.isalpha, text)), capitals, joined)

    def likelihood(self, letters: str) -> float:
        """The share of these characters that are frequent in a language with these letters, less those that are in no text,
        capitals after small letters and, in another alphabet, letters of words in two; -1 for a text in another language."""
        is_latin, total = unicodedata.name(letters[0]).startswith("LATIN"), self.counts.total()
        if not total or (is_latin and not self.is_mostly_ascii):
            return -1.0
        wrong = self.capitals + self.joined * ("ɐ" < letters[0] < "\u0700")
        usual, share = {*letters, *COMMON}, -2 * wrong
        for one, count in self.counts.items():
            is_usual = one in usual or one.lower() in letters
            share += count * (is_usual - 2 * (one in "ªº" or (not is_usual and unicodedata.category(one) in UNLIKELY)))
        return share / total


def _decoded(sample: bytes, encoding: str) -> str | None:
    """The text of `sample`, which may end inside a character; None if `encoding` cannot decode it."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeError:  # also of UTF-16 that has no byte-order mark
        return None
