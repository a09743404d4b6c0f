"""Values as lines of JSON on standard output, for other programs; or as one array."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TextIO, cast

from chargpt.formatting import escape_controls
from chargpt.program import Stream


def write_json(value: object, file: TextIO | None = None) -> None:
    """Write `value` as a line of JSON (default: to standard output). For a terminal that would obey it, in ASCII alone."""
    text, file = json.dumps(value, ensure_ascii=False), file or sys.stdout
    file.write((json.dumps(value) if file.isatty() and escape_controls(text) != text else text) + "\n")
    file.flush()


class JsonArray(Stream):
    """Makes one array of its lines, of which each is a JSON value."""

    mark = "["

    def write(self, line: str) -> int:
        self._stream.write(self.mark + line)
        self.mark = ","
        return len(line)


@contextlib.contextmanager
def json_array(*, is_asked: bool) -> Iterator[None]:
    """Within this block, the JSON lines of standard output are one array if that `is_asked` for."""
    array = JsonArray(sys.stdout)
    with contextlib.redirect_stdout(cast(TextIO, array)) if is_asked else contextlib.nullcontext():
        yield
    if is_asked:
        sys.stdout.write("[]\n" if array.mark == "[" else "]\n")
