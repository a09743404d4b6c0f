"""Finds the library of a C source for this processor: in the package, in a cache, or compiled when it is first needed.

A wheel brings the libraries in chargpt/kernels/lib, where chargpt/kernels/build.py has written them. Elsewhere the C compiler
of the machine is used, or the one of the Python package ziglang. Only the latter compiles for a browser, too: `load_web`.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from chargpt.formatting import one_line, shown
from chargpt.project import SET_HOME, user_cache_folder

HERE = Path(__file__).parent
PACKAGED = HERE / "lib"  # libraries of a wheel; a checkout has none
# The sets of instructions for which a source can be compiled on x86-64, in the order in which processors got them: each one
# needs those before it. processor.c finds those of this processor. Others have "baseline" alone, which on ARM has NEON.
INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "avx2": ("avx2", "fma"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx512bf16": ("avx512bf16", "bmi2"),
}
# The same of WebAssembly. Every browser of today has the first set; "relaxed" multiplies and adds in one instruction.
WEB_INSTRUCTIONS: dict[str, tuple[str, ...]] = {"simd": ("simd128", "bulk_memory"), "relaxed": ("relaxed_simd",)}
WEB_TARGET = "wasm32-wasi"
WEB_LINK = ("-nostdlib", "-Wl,--no-entry", "-Wl,--export-dynamic", "-Wl,--export=__heap_base", "-Wl,--import-symbols")
# On Windows, only clang: gcc does not align the vectors on its stack there (its bug 54412).
COMPILERS = ("clang",) if os.name == "nt" else ("cc", "gcc", "clang")
ZIGLANG = "ziglang"  # a Python package with a C compiler for every system, based on clang
OPTIONS, SHARED = () if os.name == "nt" else ("-fPIC", "-pthread", "-lm"), ("-shared",)
# Of libraries, by a part of a system's name; others: .so
SUFFIXES = {"windows": ".dll", "darwin": ".dylib", "macos": ".dylib", "wasm": ".wasm"}
HOW_TO_INSTALL = f"to install one: pip install {ZIGLANG}"  # on any system, without administrator's rights
SECONDS = 300  # time limit of one call of a compiler; the first call of ziglang takes a minute


class Unavailable(Exception):
    """A kernel cannot be compiled or loaded on this machine. The message is the reason, on one line."""


@functools.cache
def _all_sources() -> bytes:
    """The SHA-256 of the C code of this folder, any of which another file may include."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(HERE.glob("*.[ch]")))).digest()


@dataclass(frozen=True)
class Source:
    """A C source, the flags of its compiler, and the names of the instruction sets that it is compiled for."""

    path: Path
    flags: tuple[str, ...]
    instructions: tuple[str, ...] = ("baseline", "avx2", "avx512")

    def name(self, instructions: str, *compiler: str) -> str:
        """The name of a library of this source, without its suffix. It depends on all that decides what the library computes.

        `compiler` identifies the compiler; libraries in the package do without it.
        """
        words = (*self.flags, "", *_features(instructions), "", *compiler)
        key = hashlib.sha256(b"\0".join((self.path.read_bytes(), _all_sources(), " ".join(words).encode())))
        return f"{self.path.stem}-{instructions}-{key.hexdigest()[:16]}"


@dataclass(frozen=True)
class Compiler:
    """A C compiler."""

    command: tuple[str, ...]  # which may name a target
    version: str = ""
    is_zig: bool = False

    def compile(
        self, source: Source, instructions: str, path: Path, *, options: Sequence[str] = OPTIONS, link: Sequence[str] = SHARED
    ) -> None:
        """Write the library of `source`; without `link`, a program. Raises OSError or subprocess.SubprocessError."""
        features = _features(instructions)
        chosen = tuple(f"-m{name}" for name in features)
        linked: tuple[str, ...] = ()
        if self.is_zig:  # without -mcpu, it chooses the instructions of this machine; its C library needs none of them
            chosen, linked = ("+".join(("-mcpu=baseline", *features)),), ("-mcpu=baseline", "-s")
        with tempfile.TemporaryDirectory() as folder:
            compiled = str(Path(folder) / "code.o")
            self._run(*source.flags, *chosen, *options, "-c", str(source.path), "-o", compiled)
            self._run(*linked, *link, compiled, "-o", str(path), *options)

    def _run(self, *arguments: str) -> None:
        subprocess.run((*self.command, *arguments), capture_output=True, check=True, timeout=SECONDS)


def _source(name: str, *flags: str, **given: tuple[str, ...]) -> Source:
    return Source(HERE / f"{name}.c", ("-O3", "-std=gnu11", *flags), **given)


PROCESSOR = _source("processor", instructions=("baseline",))
# A loop of a product takes a few lines of a processor's cache of instructions: one line more was 5 to 10 % slower beside other
# programs. GCC's choice of the variables that count it can leave a vector in memory: 3 to 10 % of a step (GCC 12, AVX-512).
PRODUCTS = ("-falign-loops=64", "-fno-ivopts")
STEP_FLOAT32 = _source("step_float32", *PRODUCTS)
STEP_BFLOAT16 = _source("step_bfloat16", *PRODUCTS, instructions=("avx512bf16",))
# The part of -ffast-math that lets the compiler reorder sums, without what makes single operations less exact.
REORDER = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-ffinite-math-only")
DECODE = _source("decode", *REORDER)
SOURCES = (PROCESSOR, STEP_FLOAT32, STEP_BFLOAT16, DECODE)
LEARN = _source("learn", "-ffp-contract=fast", instructions=tuple(WEB_INSTRUCTIONS))  # for a browser


def load(source: Source, *, cache: Path | None = None) -> ctypes.CDLL:
    """The library of `source` with the best of its instructions that this processor has.

    What is compiled is kept in `cache`, by default in the user's folder for caches. Raises Unavailable if the source is for
    other processors, there is no compiler, the folder cannot be written, or the source does not compile.
    """
    sets = [*source.instructions]
    if sets != ["baseline"]:
        sets = [name for name in reversed(available_instructions(cache)) if name in sets]
    if not sets:
        raise Unavailable(f"needs a processor with {' and '.join(_features(source.instructions[0])[-2:])} instructions")
    with _reasons(cache):
        return ctypes.CDLL(str(_library(source, sets, cache)))


def load_web(*, cache: Path | None = None) -> dict[str, bytes]:
    """LEARN as WebAssembly, for each of its sets of instructions. Raises Unavailable as `load` does."""
    with _reasons(cache):
        return {name: _library(LEARN, [name], cache, WEB_TARGET).read_bytes() for name in LEARN.instructions}


@contextmanager
def _reasons(cache: Path | None) -> Iterator[None]:
    """Turns what may go wrong in `_library`, and in loading what it finds, into Unavailable."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise Unavailable(one_line(f"{Path(error.cmd[0]).name}: {_first_error(error.stderr)}")) from error
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        what = str(error)
        if isinstance(error, OSError) and error.filename:
            what = f"{shown(error.filename)}: {error.strerror}" + f"; {SET_HOME}" * (cache is None)
        raise Unavailable(one_line(what)) from error


def available_instructions(cache: Path | None = None) -> list[str]:
    """The sets of instructions that this processor has, the best one last. Raises Unavailable as `load` does."""
    level = load(PROCESSOR, cache=cache).instruction_level() if is_x86_64(platform.machine()) else 0
    return list(INSTRUCTIONS)[: 1 + level]


def declare(kernel: ctypes.CDLL, **functions: tuple[Any, ...]) -> None:
    """Give each function of the library its types: what it returns, then its arguments."""
    for name, (result, *arguments) in functions.items():
        function = getattr(kernel, name)
        function.restype, function.argtypes = result, arguments


def library_suffix(target: str | None = None) -> str:
    """How names of libraries end on a target of ziglang, such as aarch64-macos, or on this system."""
    system = target or platform.system().lower()
    return next((suffix for name, suffix in SUFFIXES.items() if name in system), ".so")


def compilers(target: str | None = None) -> list[Compiler]:
    """The C compiler of this machine, if it has one, and that of the package ziglang, if it is installed.

    Only the latter compiles for a `target`.
    """
    found = []
    program = next(filter(None, map(shutil.which, COMPILERS)), None)
    if program is not None and target is None:
        status = os.stat(program)
        found.append(Compiler((program,), f"{os.path.realpath(program)} {status.st_size} {status.st_mtime_ns}"))
    zig = importlib.util.find_spec(ZIGLANG)
    if zig is not None and zig.origin is not None:
        command = (sys.executable, "-m", ZIGLANG, "cc", *(("-target", target) if target else ()))
        found.append(Compiler(command, f"zig {os.stat(zig.origin).st_mtime_ns}", is_zig=True))
    return found


def is_x86_64(machine: str) -> bool:
    """Whether this is a name of the processors that have INSTRUCTIONS."""
    return machine.lower() in ("x86_64", "amd64")


def _features(instructions: str) -> tuple[str, ...]:
    """The compiler's names of a set of instructions and of those before it."""
    sets = INSTRUCTIONS if instructions in INSTRUCTIONS else WEB_INSTRUCTIONS
    names = list(sets)
    return tuple(feature for name in names[: names.index(instructions) + 1] for feature in sets[name])


def _library(source: Source, sets: Sequence[str], cache: Path | None, target: str | None = None) -> Path:
    """The library with the first of `sets` that the package or the cache has, or that a compiler of this machine can make.

    It is for this machine or for a `target`.

    Raises OSError, subprocess.SubprocessError, or RuntimeError for a user without a home folder.
    """
    for name in sets:
        library = PACKAGED / (source.name(name) + library_suffix(target))
        if library.is_file():
            return library
    found, problems = compilers(target), list[subprocess.CalledProcessError]()
    if not found:
        raise FileNotFoundError(f"no C compiler {f'for {target} ' if target else ''}found; {HOW_TO_INSTALL}")
    how: dict[str, Any] = {"options": (), "link": WEB_LINK} if target == WEB_TARGET else {}
    folder = user_cache_folder() / "chargpt" if cache is None else cache
    for compiler, name in product(found, sets):  # an old compiler does not know the newest instructions
        library = folder / (source.name(name, compiler.version) + library_suffix(target))
        record = library.with_suffix(".sha256")  # to load a truncated library would end the process by SIGBUS
        if record.is_file() and library.is_file() and record.read_bytes() == hashlib.sha256(library.read_bytes()).digest():
            return library
        with tempfile.TemporaryDirectory() as made:
            try:
                compiler.compile(source, name, path := Path(made) / f"code{library_suffix(target)}", **how)
            except subprocess.CalledProcessError as problem:
                problems.append(problem)
                continue
            from chargpt.files import publish_file  # needs filelock, which writing and the build of a wheel do without

            folder.mkdir(parents=True, exist_ok=True)
            publish_file(record, hashlib.sha256(data := path.read_bytes()).digest())
            publish_file(library, data)
            return library
    raise problems[0]


def _first_error(output: bytes) -> str:
    """The line of a compiler's output that says most."""
    lines = output.decode("utf-8", "replace").splitlines() or ["it failed without a message"]
    return next((line for line in lines if "error" in line), lines[-1]).strip()[:200]
