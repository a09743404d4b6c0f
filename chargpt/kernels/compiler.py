"""Compiles the C sources of this package for this CPU when they are first needed, and loads them."""

import ctypes
import errno
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from chargpt.files import publish_file
from chargpt.project import user_cache_folder
from chargpt.terminal import one_line, shown

COMPILERS = ("cc", "gcc", "clang")
# The first that the compiler accepts is used: clang for ARM has only the second, and some compilers neither.
NATIVE = (("-march=native",), ("-mcpu=native",), ())
INSTALL = (  # of Linux, the first whose program exists
    ("apt", "sudo apt install gcc"),
    ("dnf", "sudo dnf install gcc"),
    ("pacman", "sudo pacman -S gcc"),
    ("zypper", "sudo zypper install gcc"),
    ("apk", "sudo apk add gcc musl-dev"),
)
ELSEWHERE = {"Darwin": "xcode-select --install", "Windows": "winget install BrechtSanders.WinLibs.POSIX.UCRT"}
SECONDS = 120  # after which a compiler is given up
SET_CACHE = "; set XDG_CACHE_HOME to a folder that can be written" if sys.platform == "linux" else ""


class Unavailable(Exception):
    """A kernel cannot be compiled or loaded on this machine. The message is the reason, on one line."""


def load(source: Path, *, flags: tuple[str, ...], link: tuple[str, ...], cache: Path | None = None) -> ctypes.CDLL:
    """The library of `source`, from `cache` or compiled for this CPU with `flags` and `link`.

    Without a `cache`, it is kept in the user's folder for caches or, if that cannot be written, in a folder for this user alone
    in that for temporary files. Raises Unavailable where there is no compiler, where no folder can be written, or where the
    source does not compile.
    """
    caches = [_user_folder, _private_folder] if cache is None else [lambda: cache]
    try:
        return ctypes.CDLL(str(_library(source, flags, link, caches)))
    except subprocess.CalledProcessError as error:
        raise Unavailable(one_line(f"{Path(error.cmd[0]).name}: {_first_error(error.stderr)}")) from error
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        what = str(error)
        if isinstance(error, OSError) and error.filename:
            what = f"{shown(error.filename)}: {error.strerror}" + (SET_CACHE if cache is None else "")
        raise Unavailable(one_line(what)) from error


def how_to_install() -> str:
    """How to install a C compiler on this system."""
    command = ELSEWHERE.get(platform.system()) or next((line for program, line in INSTALL if shutil.which(program)), None)
    return "install gcc or clang" if command is None else f"to install one: {command}"


def check_sizes(kernel: ctypes.CDLL, **structures: type[ctypes.Structure]) -> None:
    """Assert that each structure has the size that the function of the given name in the library returns."""
    for name, structure in structures.items():
        function = kernel[name]
        function.restype = ctypes.c_size_t
        assert function() == ctypes.sizeof(structure), (name, function(), ctypes.sizeof(structure))


def _user_folder() -> Path:
    """The folder of the project among the user's caches. Raises OSError if the user has no home folder."""
    try:
        return user_cache_folder() / "chargpt"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, str(error), "~") from None


def _private_folder() -> Path:
    """A folder among the temporary files that only this user may write. Raises OSError where there is none.

    Anybody may write beside it, and a library is code: the folder must belong to this user, and be closed to all others.
    """
    if not hasattr(os, "getuid"):
        raise PermissionError("this system has no owners of files")
    folder = Path(tempfile.gettempdir()) / f"chargpt-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(errno.EACCES, "open to other users", str(folder)) from None
    return folder


def _library(source: Path, flags: tuple[str, ...], link: tuple[str, ...], caches: Sequence[Callable[[], Path]]) -> Path:
    """The compiled source, in the first of the `caches` that has it or can be written.

    Raises OSError or subprocess.SubprocessError where it cannot be compiled or kept.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError(f"no C compiler found; {how_to_install()}")
    native, macros = _target(compiler, flags)
    key = hashlib.sha256(b"\0".join((source.read_bytes(), " ".join((*native, *flags, "", *link)).encode(), macros)))
    name, data = f"{source.stem}-{key.hexdigest()[:32]}.so", b""
    problems: list[OSError] = []
    for folder in caches:
        try:
            library = folder() / name
            record = library.with_suffix(".sha256")
            if _is_intact(library, record):
                return library
            data = data or _compiled(compiler, source, (*native, *flags), link)
            library.parent.mkdir(parents=True, exist_ok=True)
            publish_file(record, hashlib.sha256(data).hexdigest().encode() + b"\n")
            publish_file(library, data)
            return library
        except OSError as error:
            problems.append(error)
    raise problems[0]


def _target(compiler: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
    """The flags of NATIVE that the compiler accepts, and the macros that it predefines with them.

    The macros name the compiler, its version, and every instruction set of this CPU.
    """
    for native in NATIVE:
        try:
            return native, _run(compiler, *native, *flags, "-dM", "-E", "-x", "c", os.devnull)
        except subprocess.CalledProcessError as error:
            refused = error
    raise refused


def _is_intact(library: Path, record: Path) -> bool:
    """Whether the library has the SHA-256 in `record`. To load a truncated one would end the process by SIGBUS."""
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest().encode() == record.read_bytes().strip()
    except OSError:
        return False


def _compiled(compiler: str, source: Path, flags: tuple[str, ...], link: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        object_file, library = Path(folder) / "code.o", Path(folder) / "code.so"
        _run(compiler, *flags, "-fPIC", "-c", str(source), "-o", str(object_file))
        _run(compiler, "-shared", str(object_file), "-o", str(library), *link)
        return library.read_bytes()


def _run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, timeout=SECONDS).stdout


def _first_error(output: bytes) -> str:
    """The line of a compiler's output that says most."""
    lines = output.decode("utf-8", "replace").splitlines() or ["it failed without a message"]
    return next((line for line in lines if "error" in line), lines[-1]).strip()[:200]
