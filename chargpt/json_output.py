"""JSON on an output of a program: a line for each value, or all of them in one array."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from chargpt.formatting import escape_controls


def write_json(value: object, file: TextIO) -> None:
    """Write `value` as a line of JSON. Where a terminal would obey a character of it, all beyond ASCII are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    file.write((json.dumps(value) if file.isatty() and escape_controls(text) != text else text) + "\n")
    file.flush()


class _JsonArray:
    """A text stream that makes one array of its lines, of which each is a JSON value."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._mark = stream, "["

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, line: str) -> int:
        self._stream.write(self._mark + line)
        self._mark = ","
        return len(line)

    def end(self) -> None:
        """Nothing more comes."""
        self._stream.write("[]\n" if self._mark == "[" else "]\n")


@contextlib.contextmanager
def json_array(*, is_asked: bool) -> Iterator[None]:
    """Within this block, the JSON lines of standard output are one array if that `is_asked` for."""
    array = _JsonArray(sys.stdout)
    with contextlib.redirect_stdout(cast(TextIO, array)) if is_asked else contextlib.nullcontext():
        yield
    if is_asked:
        array.end()
