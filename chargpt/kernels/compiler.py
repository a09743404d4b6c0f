"""The C parts of this package, compiled for the CPU at hand when they are first needed."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def load(source: Path, *, flags: tuple[str, ...], link: tuple[str, ...], cache: Path | None = None) -> ctypes.CDLL | None:
    """`source`, compiled with `flags` and linked with `link` unless `cache` (default: ~/.cache/chargpt) has it.

    None where that cannot be done: no compiler, no place, or a CPU for which the source does not compile.
    """
    try:
        return ctypes.CDLL(str(_library(source, flags, link, cache or Path.home() / ".cache" / "chargpt")))
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def _library(source: Path, flags: tuple[str, ...], link: tuple[str, ...], cache: Path) -> Path:
    """The compiled source. Raises OSError or subprocess.SubprocessError when there is none and none can be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    # The macros that it predefines name the compiler, its version, and everything that this CPU can do.
    macros = _run(compiler, *flags, "-dM", "-E", "-x", "c", os.devnull)
    key = hashlib.sha256(b"\0".join((source.read_bytes(), " ".join((*flags, "", *link)).encode(), macros)))
    library = cache / f"{source.stem}-{key.hexdigest()[:32]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            machine_code, aside = Path(folder) / "code.o", Path(folder) / library.name
            _run(compiler, *flags, "-fPIC", "-c", str(source), "-o", str(machine_code))
            _run(compiler, "-shared", str(machine_code), "-o", str(aside), *link)
            aside.replace(library)
    return library


def _run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
