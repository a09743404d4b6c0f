"""What several tests of the text package call."""

import time
from pathlib import Path

from programs import Program, Programs

from chargpt.text import source
from chargpt.text.corpus import Corpus

ROOT = Path(__file__).parent.parent
ENCODE = """
import sys
from pathlib import Path
from chargpt.config import DataConfig
from chargpt.text.corpus import load_corpus
corpus = load_corpus([sys.argv[1]], DataConfig(cache=sys.argv[2]), root=Path("."), block_size=64)
print(corpus.fingerprint)
"""


def text_of(corpus: Corpus) -> str:
    return corpus.tokenizer.decode(corpus.train) + corpus.tokenizer.decode(corpus.val)


def write(path: Path, content: bytes | str) -> Path:
    """`path`, with this content, in folders that exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def aged(path: Path, content: bytes | str | None = None) -> Path:
    """`path`, with `content`, once its times are old enough to be trusted (see Source.signature; RACY_NS is short in tests)."""
    if content is not None:
        write(path, content)
    while time.time_ns() - path.stat().st_ctime_ns < 1.2 * source.RACY_NS:
        time.sleep(0.01)
    return path


def entries_in(cache: Path) -> list[Path]:
    return [entry for entry in cache.iterdir() if entry.is_dir() and entry.name != "seen" and not entry.name.startswith(".")]


def encoding_process(programs: Programs, path: Path, cache: Path, *, before: str = "") -> Program:
    return programs.start(code=f"import sys\nsys.argv = {['', str(path), str(cache)]!r}\n{before}\n{ENCODE}")
