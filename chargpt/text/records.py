"""What the readers of JSON and of tables share: the lines of a text that comes in pieces, and a text with its labels."""

from collections.abc import Iterable, Iterator, Sequence

from chargpt.errors import UserError

MAX_LINE = 2**28  # characters, which must fit into memory


def decoded(pieces: Iterable[bytes | str]) -> Iterator[str]:
    """The same pieces as str; bytes are ASCII, or whole characters of UTF-8."""
    return (piece if isinstance(piece, str) else piece.decode() for piece in pieces)


def lines_in(pieces: Iterable[str], label: str) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends; the last one is empty if the text ends with a line end.

    Only \\n ends a line. `label` names the text in errors. Raises UserError for a line that may not fit into memory.
    """
    held: list[str] = []
    for piece in pieces:
        first, *others = piece.split("\n")
        held.append(first)
        if sum(map(len, held)) > MAX_LINE:
            raise UserError(f"{label}: a line is longer than {MAX_LINE:,} characters; split it")
        for other in others:
            yield "".join(held)
            held = [other]
    yield "".join(held)


def labelled(text: str, labels: Sequence[str]) -> str:
    """A text with its `labels` before it, if there are any: joined by commas, each as one line, and a tab after the last."""
    return f"{','.join(' '.join(label.split()) for label in labels)}\t{text}" if labels else text
