"""Compiles the C sources of this package for this CPU when they are first needed, and loads them."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from chargpt.files import publish_file


def load(source: Path, *, flags: tuple[str, ...], link: tuple[str, ...], cache: Path | None = None) -> ctypes.CDLL | None:
    """The library of `source`, from `cache` (default: ~/.cache/chargpt) or compiled with `flags` and linked with `link`.

    None where there is no compiler, where `cache` cannot be written, or where the source does not compile for this CPU.
    """
    try:
        return ctypes.CDLL(str(_library(source, flags, link, cache or Path.home() / ".cache" / "chargpt")))
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def check_sizes(kernel: ctypes.CDLL, **structures: type[ctypes.Structure]) -> None:
    """Assert that each structure has the size that the function of the given name in the library returns."""
    for name, structure in structures.items():
        function = kernel[name]
        function.restype = ctypes.c_size_t
        assert function() == ctypes.sizeof(structure), (name, function(), ctypes.sizeof(structure))


def _library(source: Path, flags: tuple[str, ...], link: tuple[str, ...], cache: Path) -> Path:
    """The compiled source. Raises OSError or subprocess.SubprocessError where it cannot be compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    # The predefined macros name the compiler, its version, and every instruction set of this CPU.
    macros = _run(compiler, *flags, "-dM", "-E", "-x", "c", os.devnull)
    key = hashlib.sha256(b"\0".join((source.read_bytes(), " ".join((*flags, "", *link)).encode(), macros)))
    library = cache / f"{source.stem}-{key.hexdigest()[:32]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            object_file, unpublished = Path(folder) / "code.o", Path(folder) / "code.so"
            _run(compiler, *flags, "-fPIC", "-c", str(source), "-o", str(object_file))
            _run(compiler, "-shared", str(object_file), "-o", str(unpublished), *link)
            publish_file(library, unpublished.read_bytes())
    return library


def _run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
