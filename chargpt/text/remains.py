r"""Remains of other formats in a text, which are rarely meant: \n as two characters, &amp;, <br />. Another one is a row."""

import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

MOST_BETWEEN = 3000  # characters of a text for each remainder of a kind, at most: one, or fewer, may be meant

TAG = r"</?[a-zA-Z][^<>\n]*>"
# A tag that is closed, and what is between: no other tag.
TAGGED = r"(?i)<(p|div|i|b|em|strong|u|span|a|font)(?:\s[^<>\n]*)?>(?:[^<]|<(?![a-z/]))*</\1>\n?"
BLOCKS = ("p", "div")  # of these, those that end a line


# Bytes of UTF-8 read as characters of Latin-1, or of Windows, which has others in place of 32 controls: of letters and marks
# that are often met. Three bytes may be an end such as é and a quote, so there are several times three, or they begin with â.
BY_WINDOWS = {character: byte for byte in range(128, 160) if (character := bytes([byte]).decode("cp1252", "ignore"))}
_FIRST, _NEXT = "[Â-ÅÎ-Ñ×-Ùà-ð]", f"[\x80-\xbf{''.join(BY_WINDOWS)}]"
AS_BYTES = rf"(?:[Â-ÅÎ-Ñ×-Ù]{_NEXT}|â[\x80-\x84€‚ƒ„]{_NEXT}|(?:[à-ï]{_NEXT}{{2}}){{2,}}|ð{_NEXT}{{3}})+"


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


def _put_together(found: str) -> str:
    try:
        return bytes(BY_WINDOWS.get(one, ord(one)) for one in found).decode()
    except UnicodeDecodeError:
        return found


def _from_mail(found: str) -> str:
    if found[1:2] <= "9":
        return " " * (found > "=\n")
    return bytes.fromhex(found.replace("=", "")).decode("utf-8" if len(found) > 3 else "latin-1", "replace")


def _untagged(found: str) -> str:
    text = re.sub(TAG, "", found)
    return f"{text}\n" if found[1:].lower().startswith(BLOCKS) and not text.endswith("\n") else text


REMAINS = (
    Remainder("Ã©", _FIRST + _NEXT, AS_BYTES, "é, in UTF-8 read as Latin-1", _put_together, math.inf),
    Remainder(
        r"\n", r"\\", r"(?<=[\w.,;:!?…”’»)])(?:(?:\\r)?\\n)+(?=[\w“‘«(—-])", "a line end", lambda one: "\n" * one.count(r"\n")
    ),
    Remainder(
        r"\u00e9", r"\\u", r"(?<!['\"\\])(?:\\u[\da-fA-F]{4})+", "é, as JSON writes it", lambda one: str(json.loads(f'"{one}"'))
    ),
    Remainder("&amp;", "&", r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#[xX][\da-fA-F]{2,5});", "&, as HTML writes it", html.unescape),
    Remainder("<br />", "<", r"(?i)<br\s*/?>\n?", "a line end of HTML", lambda _: "\n"),
    Remainder("<b>", "<", TAGGED, "a tag of HTML", _untagged),
    Remainder(
        "=C3=A9",
        "=",
        r"(?:=[C-F][\dA-F](?:=[89AB][\dA-F])+)+|(?<=[a-zA-Z ,'])=[C-F][\dA-F](?=[a-z\s,.;:?!])|(?<=[^\s=])=(?:20)?\n",
        "é, as mails write it",
        _from_mail,
    ),
    Remainder("%C3%A9", "%", r"(?:%[C-F][\dA-F](?:%[89AB][\dA-F])+)+", "é, as links write it", unquote),
)


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
