"""The texts that can be named instead of a path: two that are part of Python, and Shakespeare."""

import hashlib
import sysconfig
import urllib.request
from collections import Counter
from pathlib import Path

from chargpt.files import publish_file
from chargpt.project import data_folder
from chargpt.terminal import UserError, shown
from chargpt.text.sources import Source, walk

DEFAULT = "python-docs"
NAMES = (DEFAULT, "python-source", "shakespeare")
SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NOT_LIBRARY_SOURCE = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
MAX_DOWNLOAD = 2**24  # bytes


def named_corpus(name: str, *, root: Path) -> list[Source]:
    """The sources of the corpus `name`, one of NAMES. Raises UserError if it is not available."""
    if name == "python-docs":
        return [Source(label=name, content=_python_docs())]
    if name == "python-source":
        library = Path(sysconfig.get_path("stdlib"))
        files = walk(library, skipped=Counter(), skipped_folders=NOT_LIBRARY_SOURCE)
        return [Source(label=str(path), path=path, in_folder=True) for path in files if path.suffix == ".py"]
    return [_shakespeare(_shakespeare_path(root))]


def needs_download(name: str, *, root: Path) -> bool:
    """Whether `named_corpus` would read the corpus from the network."""
    return name == "shakespeare" and not _shakespeare_path(root).exists()


def _shakespeare_path(root: Path) -> Path:
    return data_folder(root) / "shakespeare.txt"


def _python_docs() -> bytes:
    try:
        from pydoc_data.topics import topics  # large, and some distributions remove it
    except ImportError:
        raise UserError("python-docs: this Python has no pydoc_data; give a text file") from None
    return "\n\n".join(topics.values()).encode()


def _shakespeare(path: Path) -> Source:
    """Andrej Karpathy's selection of 1.1 MB, downloaded once and checked."""
    if not path.exists():
        _download(path)
    if not _is_shakespeare(path.read_bytes()):
        raise UserError(f"{shown(path)}: not the Shakespeare text, by its SHA-256; delete it to download it again")
    return Source(label=shown(path), path=path)


def _download(path: Path) -> None:
    """Save the Shakespeare text as `path`. Raises UserError, and then saves nothing."""
    try:
        with urllib.request.urlopen(SHAKESPEARE_URL, timeout=20) as answer:
            content = answer.read(MAX_DOWNLOAD)
    except OSError as error:
        reason = f"{SHAKESPEARE_URL} cannot be read ({getattr(error, 'reason', error)})"
        raise UserError(f"shakespeare: {reason}; download that file elsewhere and save it as {shown(path)}") from None
    if not _is_shakespeare(content):  # for example the login page of a network
        reason = f"{SHAKESPEARE_URL} gave another text, by its SHA-256"
        raise UserError(f"shakespeare: {reason}; download that file elsewhere and save it as {shown(path)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        publish_file(path, content)
    except OSError as error:
        reason = f"cannot be saved as {shown(path)} ({error.strerror})"
        raise UserError(f"shakespeare: {reason}; download it yourself and give the file") from None


def _is_shakespeare(content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == SHAKESPEARE_SHA256
