r"""Remains of other formats in a text, which are rarely meant: \n as two characters, &amp;, <br />. Another one is a row."""

import contextlib
import html
import math
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

MOST_BETWEEN = 3000  # characters of a text for each remainder of a kind, at most: one, or fewer, may be meant
TAG = r"</?[a-zA-Z][^<>\n]*>"
# A tag that is closed, and what is between: no other tag.
TAGGED = r"(?i)<(p|div|i|b|em|strong|u|span|a|font)(?:\s[^<>\n]*)?>(?:[^<]|<(?![a-z/]))*</\1>\n?"
BLOCKS = ("p", "div")  # of these, those that end a line

# How programs write characters: by a number, or by the bytes of UTF-8; white space; quotes, which in LaTeX are accents.
_ESCAPE = r"\\(?:u[\da-fA-F]{4}|x[\da-fA-F]{2}|u\{[\da-fA-F]{2,6}\}|U000[\da-fA-F]{5}|[23][0-7]{2})"
ESCAPED = rf"(?<![\\'\"])(?:{_ESCAPE})+|(?<=['\"])(?:{_ESCAPE})+(?!['\"\\])"
SPACES = {r"\r": "", r"\n": "\n", r"\t": "\t"}
WHITE = r"(?<=[\w.,;:!?…”’»)])(?:(?:\\r)?\\n)+(?=[\w“‘«(—*_#>\n-]|\\?\"\w|\Z)|(?<=[.,;:!?)])\\t(?=[A-Z\d“])"
QUOTED = r"""\\"(?:[^"\\\n]|\\')+\\"(?!\w)|(?<=[a-z])\\'(?=(?:[dmst]|ll|re|ve)\b)"""
DOUBLED = r"""(?<=\w)''(?=\w)|(?<![\w"])""(?=\w)|(?<=[\w.,!?])""(?!["\w])"""
ENTITY = r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#[xX][\da-fA-F]{2,5});|&(?:amp|quot|nbsp|lt|gt|#\d{2,6})\b"
IN_MAILS = (  # =C1 after a letter is no capital, but a bond and a ring of SMILES
    r"(?:=[C-F][\dA-F](?:=[89AB][\dA-F])+)+|(?<=[a-zA-Z ,'])=[EF][\dA-F](?=[a-z\s,.;:?!])"
    r"|(?<=[ ,'])=[CD][\dA-F](?=[a-z])|(?<=[^\s=])=(?:20)?\n"
)
UNSEEN, DIVIDED = "\u00ad(?!\n)|[\u200b\u2060\ufeff]", "(?<=[^\\W\\d_])[-\u00ad\u2010]\n[ \t]*(?=[^\\W\\d_A-Z])"


class Remainder(NamedTuple):
    """What another format leaves in a text."""

    name: str  # an example
    begins: str  # how it begins, which is found faster than the pattern
    pattern: str
    meant: str  # what it stands for
    back: Callable[[str], str]  # what one stands for
    between: float = MOST_BETWEEN

    def found_in(self, text: str) -> list[re.Match[str]]:
        """Where it is in a text; nowhere if it is so rare that it may be meant."""
        found, pattern = list[re.Match[str]](), re.compile(self.pattern)
        for begins in re.finditer(self.begins, text):
            at = begins.start()
            if not (found and at < found[-1].end()) and (match := pattern.match(text, at)):
                found.append(match)
        return found if found and len(found) * self.between >= max(len(text), 2 * self.between) else []


def _read_as(name: str, meant: str, encodings: tuple[str, ...], begins: str, pattern: str) -> Remainder:
    """A row for bytes of UTF-8 read as the characters of the first encoding that fits; {0} in its pattern is each byte
    of a character but the first."""
    chars = [[bytes([byte]).decode(one, "ignore") or chr(byte) for byte in range(128, 256)] for one in encodings]
    further = re.escape("".join(char for of_one in chars for char in of_one[:64]))

    def put_together(found: str) -> str:
        for of_one in chars:
            with contextlib.suppress(ValueError):
                return bytes(128 + of_one.index(one) if one > "\x7f" else ord(one) for one in found).decode()
        return found

    return Remainder(name, begins, pattern.format(f"[{further}]"), meant, put_together, math.inf)


def _unescaped(found: str) -> str:
    written = found.split("\\")[1:]
    numbers = [int(one, 8) if one.isdecimal() and len(one) == 3 else int(one.strip("uUx{}"), 16) for one in written]
    with contextlib.suppress(ValueError):
        return bytes(numbers).decode() if len(numbers) > 1 else chr(numbers[0])
    units = b"".join(chr(number).encode("utf-16-le", "surrogatepass") for number in numbers)
    return units.decode("utf-16-le", "replace")


def _from_mail(found: str) -> str:
    if found[1:2] <= "9":
        return " " * (found > "=\n")
    return bytes.fromhex(found.replace("=", "")).decode("utf-8" if len(found) > 3 else "latin-1", "replace")


def _untagged(found: str) -> str:
    text = re.sub(TAG, "", found)
    return f"{text}\n" if found[1:].lower().startswith(BLOCKS) and not text.endswith("\n") else text


REMAINS = (
    # Bytes of UTF-8 read as the characters of another encoding. Three bytes may be an end such as é and a quote, so there are
    # several times three, or they begin with â.
    _read_as(
        *("Ã©", "é, in UTF-8 read as Latin-1", ("cp1252", "latin-1"), "[Â-ÅÎ-Ñ×-Ùà-ð]"),
        "(?:[Â-ÅÎ-Ñ×-Ù]{0}|â[\x80-\x84€‚ƒ„]{0}|(?:[à-ï]{0}{{2}}){{2,}}|ð{0}{{3}})+",
    ),
    _read_as("Р°", "а, in UTF-8 read as Windows-1251", ("cp1251",), "[РС]", "[РС]{0}(?:[ ,.-]{{0,2}}[РС]{0}){{3,}}"),
    _read_as("√©", "é, in UTF-8 read as Mac Roman", ("mac_roman",), "[¬√ƒ≈‚]", "(?:[¬√ƒ≈]{0}|‚Ä{0})+"),
    _read_as("├⌐", "é, in UTF-8 read as a text of DOS", ("cp437", "cp850"), "[├╨╤ΓÔ]", "(?:[├╨╤]{0}|[ΓÔ]Ç{0})+"),
    Remainder("U+00AD", "[\u00ad\u200b\u2060\ufeff]", UNSEEN, "what divides words and is not seen", lambda _: "", math.inf),
    Remainder("ESC[1m", "\x1b", r"\x1b(?:\[[\d;?]*[A-Za-z]|\][^\x07\n]*\x07)", "a colour of a terminal", lambda _: ""),
    Remainder("_^H", ".\x08", ".\x08", "bold or underlined, as terminals write it", lambda _: ""),
    Remainder(r"\n", r"\\", WHITE, "a line end", lambda one: re.sub(r"\\.", lambda found: SPACES[found[0]], one)),
    Remainder(r"\u00e9", r"\\", ESCAPED, "é, as programs write it", _unescaped),
    Remainder(r"\"", r"\\", QUOTED, "a quote, as programs write it", lambda one: one.replace("\\", "")),
    Remainder("''", "''|\"\"", DOUBLED, "a quote, as tables and databases write it", lambda one: one[0]),
    Remainder("&amp;", "&", ENTITY, "&, as HTML writes it", html.unescape),
    Remainder("<br />", "<", r"(?i)<br\s*/?>\n?", "a line end of HTML", lambda _: "\n"),
    Remainder("<b>", "<", TAGGED, "a tag of HTML", _untagged),
    Remainder("=C3=A9", "=", IN_MAILS, "é, as mails write it", _from_mail),
    Remainder("%C3%A9", "%", r"(?:%[C-F][\dA-F](?:%[89AB][\dA-F])+)+", "é, as links write it", unquote),
)
# `clean_text` joins a divided word, since it knows the other words.
TOLD = (*REMAINS, Remainder(r"-\n", "[-\u00ad\u2010]\n", DIVIDED, "a line end that divides a word", str))
