"""JSON files whose first line is the SHA-256 of all other lines (`tail -n +2 state.json | sha256sum`).

The checksum detects accidents: a flipped bit is noticed wherever it is. A hostile writer can compute it too, so reading is
bounded as well: in size, in the kind of file, and in the numbers it may contain.
"""

import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from chargpt.errors import UserError
from chargpt.terminal import shown

JSON_LIMIT = 8 << 20  # bytes; every character of Unicode fits as a vocabulary. Parsed JSON takes up to 25 times its size


class CheckpointError(UserError):
    """A checkpoint that cannot be written or cannot be trusted. The message names its path."""


class UnreadableError(CheckpointError):
    """A checkpoint that this user may not read. It may be whole, so nothing is used in its place."""


def seal(document: dict[str, Any], path: Path) -> bytes:
    """The content of a sealed file. Raises CheckpointError, naming `path`, when it is too large to be read again."""
    body = json.dumps(document, indent=1, allow_nan=False).encode()[2:] + b"\n"  # the first line holds the opening brace
    if len(body) > JSON_LIMIT:
        raise CheckpointError(f"{shown(path)}: {len(body):,} bytes of JSON, more than {JSON_LIMIT:,}; use a smaller vocabulary")
    return _first_line(body) + body


def unseal(path: Path) -> dict[str, Any]:
    """The document in a sealed file, without its checksum. Raises CheckpointError."""
    data = read_bounded(path, limit=JSON_LIMIT + len(_first_line(b"")))
    body = data[len(_first_line(b"")) :]
    if data != _first_line(body) + body:
        raise CheckpointError(f"{shown(path)}: damaged, its checksum differs")
    try:
        document = json.loads(data, parse_float=_finite, parse_constant=_finite)  # an object: the first line opens it
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{shown(path)}: not valid JSON ({str(error):.200})") from error
    del document["sha256"]
    return document


def read_bounded(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. It is read once, so what is checked is what is used.

    Raises CheckpointError; UnreadableError if this user may not read the file.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{shown(path)}: not a regular file")
            if status.st_size > limit:
                raise CheckpointError(f"{shown(path)}: {status.st_size:,} bytes, more than expected")
            return file.read(status.st_size)
    except OSError as error:
        if isinstance(error, PermissionError) and not os.path.isdir(path):  # Windows opens no folder
            what_to_do = "make it readable for this user, for example with chmod u+r, or ask its owner"
            raise UnreadableError(f"{shown(path)}: {error.strerror}; {what_to_do}") from error
        raise CheckpointError(f"{shown(path)}: {error.strerror}") from error


def _first_line(body: bytes) -> bytes:
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode()


def _open_without_waiting(path: str, flags: int) -> int:
    """Neither a link to /dev/zero nor a pipe without a writer may block the reader. Windows has neither flag."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"the number {literal:.20}")
    return value
