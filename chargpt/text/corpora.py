"""The corpora that have a name: what comes with Python, and one that is downloaded once."""

import hashlib
import sysconfig
import urllib.request
from collections import Counter
from pathlib import Path

from chargpt.errors import UserError
from chargpt.files import publish_file
from chargpt.formatting import shown
from chargpt.text.source import DEFAULT, PYTHON_SOURCE, SHAKESPEARE, Source, files_below

SHAKESPEARE_FILE = Path("data", "shakespeare.txt")  # in the root of the project
SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NOT_LIBRARY_SOURCE = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
MAX_DOWNLOAD = 2**24  # bytes


def named_corpus(name: str, *, root: Path) -> list[Source]:
    """The sources of the corpus `name`, one of NAMES. Raises UserError if it is not available."""
    if name == SHAKESPEARE:
        return [_shakespeare(root / SHAKESPEARE_FILE)]
    if name == PYTHON_SOURCE:
        files = files_below(Path(sysconfig.get_path("stdlib")), Counter(), without=NOT_LIBRARY_SOURCE)
        return [Source(label=str(path), path=path, in_folder=True) for path in files if path.suffix == ".py"]
    try:
        from pydoc_data.topics import topics  # large, and some distributions remove it
    except ImportError:
        raise UserError(f"{DEFAULT}: this Python comes without its documentation (pydoc_data); give a text file") from None
    return [Source(label=DEFAULT, content="\n\n".join(topics.values()).encode())]


def needs_download(name: str, *, root: Path) -> bool:
    """Whether `named_corpus` would read the corpus from the network."""
    return name == SHAKESPEARE and not (root / SHAKESPEARE_FILE).exists()


def _shakespeare(path: Path) -> Source:
    """Andrej Karpathy's selection of 1.1 MB, downloaded once and checked. Raises UserError, and then saves nothing."""
    reason = f"{shown(path)} is another text, by its SHA-256: delete it to download it again"
    try:
        if not path.exists():
            reason = f"{SHAKESPEARE_URL} gave another text, by its SHA-256"  # for example the login page of a network
            with urllib.request.urlopen(SHAKESPEARE_URL, timeout=20) as answer:
                content = answer.read(MAX_DOWNLOAD)
            if hashlib.sha256(content).hexdigest() == SHAKESPEARE_SHA256:
                path.parent.mkdir(parents=True, exist_ok=True)
                publish_file(path, content)
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == SHAKESPEARE_SHA256:
            return Source(label=shown(path), path=path)
    except OSError as error:
        what = "the download failed, perhaps because this computer is offline"
        what = what if error.filename in (None, SHAKESPEARE_URL) else str(error.filename)
        reason = f"{what}: {getattr(error, 'reason', error.strerror or error)}"
    raise UserError(f"shakespeare: {reason}; download {SHAKESPEARE_URL} elsewhere, and save it as {shown(path)}")
