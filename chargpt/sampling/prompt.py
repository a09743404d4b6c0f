"""The prompt: reading it, and turning it into ids."""

import sys
from pathlib import Path

from chargpt.terminal import UserError, one_line, plural
from chargpt.text.tokenizer import Tokenizer


def read_prompt(text: str, file: str | None) -> str:
    """The content of `file` (UTF-8; - is standard input), or `text` if no file is given. Raises UserError.

    Standard input is read only when it is asked for: reading an idle one would block.
    """
    if file is None:
        return text
    name = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; give a text file, or - for standard input") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: byte {error.start} is not UTF-8; save it as UTF-8") from None


def encode_prompt(text: str, tokenizer: Tokenizer, *, unknown: str) -> list[int]:
    """The ids of `text`. For characters that the model does not know, `unknown` is "error" (UserError) or "skip".

    Skipped characters are listed on standard error.
    """
    if unknown == "error":
        return tokenizer.encode(text).tolist()
    ids, skipped = tokenizer.encode_known(text)
    if skipped:
        distinct = "".join(dict.fromkeys(skipped))
        count = plural(len(skipped), "character")
        print(f"skipped {count} that the model has never seen: {one_line(distinct)}", file=sys.stderr)
    return ids.tolist()
