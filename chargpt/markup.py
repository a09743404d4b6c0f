"""Untrusted text in an HTML page, as text or as data of a script, and the hashes that allow its own script and style."""

import base64
import hashlib
import html
import json
import unicodedata

from chargpt.formatting import escape_controls

HIDDEN = ("Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # categories of Unicode: marks of direction, private and unassigned characters
JOINERS = "\u200c\u200d"  # not visible either, but scripts and emoji need them


def escape(text: object) -> str:
    """`text` for the body of a page or an attribute in quotes, with every character `visible`."""
    return html.escape(visible(text))


def visible(text: object) -> str:
    """`text` with what reorders text or cannot be seen as an escape such as \\u202e. It is not yet safe in HTML."""
    return "".join(c if is_shown(c) else c.encode("unicode_escape").decode() for c in escape_controls(str(text)))


def is_shown(character: str) -> bool:
    """Whether a page can show a character that is no control character as it is."""
    return character in JOINERS or unicodedata.category(character) not in HIDDEN


def as_json(value: object) -> str:
    """`value` as JSON in ASCII, without the characters that mean something in HTML: it is safe inside a <script> element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def allowed(content: str) -> str:
    """The source expression of a Content-Security-Policy that allows an inline script or style with this content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
