"""Where texts come from: files, folders, standard input and named corpora."""

import fnmatch
import hashlib
import pydoc_data.topics
import sys
import sysconfig
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chargpt.errors import UserError, shown

SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NAMED = ("python-docs", "python-source", "shakespeare")


@dataclass(frozen=True)
class Inputs:
    name: str
    documents: list[tuple[str, bytes]]  # label, content
    skipped: int = 0


def find(texts: Sequence[str], *, pattern: str, root: Path) -> Inputs:
    texts = list(texts) or ["python-docs"]
    if texts == ["-"]:
        return Inputs("stdin", [("standard input", sys.stdin.buffer.read())])
    documents: list[tuple[str, bytes]] = []
    skipped = 0
    for text in texts:
        path = Path(text)
        if text in NAMED and not path.exists():
            documents += named(text, root)
        elif path.is_dir():
            found, passed = folder(path, pattern)
            documents += found
            skipped += passed
        elif path.exists():
            documents.append((shown(path), path.read_bytes()))
        else:
            raise UserError(f"{text}: no such file or folder; give a text file, a folder, - or one of {', '.join(NAMED)}")
    name = texts[0] if texts[0] in NAMED else Path(texts[0]).resolve().name.split(".")[0]
    return Inputs(name or "text", documents, skipped)


def folder(path: Path, pattern: str) -> tuple[list[tuple[str, bytes]], int]:
    visible = [p for p in sorted(path.rglob("*")) if p.is_file() and not any(x.startswith(".") for x in p.relative_to(path).parts)]
    matching = [p for p in visible if fnmatch.fnmatch(p.name, pattern)]
    contents = [(shown(p), p.read_bytes()) for p in matching]
    kept = [(label, data) for label, data in contents if b"\0" not in data[:8192]]
    if not kept:
        raise UserError(f"{shown(path)}: no {pattern} files in this folder; set data.pattern")
    return kept, len(contents) - len(kept)


def named(name: str, root: Path) -> list[tuple[str, bytes]]:
    if name == "python-docs":
        return [("python-docs", "\n\n".join(pydoc_data.topics.topics.values()).encode())]
    if name == "python-source":
        library = Path(sysconfig.get_path("stdlib"))
        files = [
            p
            for p in sorted(library.rglob("*.py"))
            if not {"site-packages", "test", "tests", "idle_test"} & set(p.relative_to(library).parts)
        ]
        return [(str(p), p.read_bytes()) for p in files]
    path = root / "data" / "shakespeare.txt"
    if not path.exists():
        try:
            with urllib.request.urlopen(SHAKESPEARE, timeout=20) as answer:
                data = answer.read(10_000_000)
        except OSError as error:
            raise UserError(f"shakespeare: {SHAKESPEARE} could not be read ({error}); put the file at {shown(path)}") from None
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHAKESPEARE_SHA256:
        raise UserError(f"{shown(path)}: not the Shakespeare text (its SHA-256 differs); delete it and start again")
    return [(shown(path), data)]
