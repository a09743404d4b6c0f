"""The prompt: reading it, and turning it into ids."""

import sys
from pathlib import Path

from chargpt.errors import UserError
from chargpt.formatting import distinct
from chargpt.screen import log
from chargpt.text.tokenizer import Tokenizer


def read_prompt(text: str, file: str | None) -> str:
    """The content of `file` (UTF-8; - is standard input), or `text` if no file is given. Raises UserError."""
    if file is None:
        return text
    name = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; give the name of a text file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: byte {error.start} is not UTF-8; convert the text to UTF-8") from None


def encode_prompt(text: str, tokenizer: Tokenizer, *, unknown: str) -> list[int]:
    """The ids of `text`. For characters that the model has never seen, `unknown` is "error" (UserError) or "skip". A message on
    standard error lists those that are left out, and those that are read as the folded character."""
    ids, skipped = (tokenizer.encode(text), "") if unknown == "error" else tokenizer.encode_known(text)
    if skipped:
        log(f"left out, since the model has never seen them: {distinct(skipped)}")
    if folded := tokenizer.folded_in(text):
        log(f"read as one unknown character, since they are rare in the training text, or not in it: {distinct(folded)}")
    return ids.tolist()
