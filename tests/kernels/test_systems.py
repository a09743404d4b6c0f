"""The C sources on other systems: compiled by ziglang, and run by QEMU and by Wine over the shapes of the drivers.

Results agree with those of this machine's compiler and processor, which tests/kernels/test_attention.py and
tests/sampling/test_c_engine.py compare with the references. QEMU and Wine are Debian's packages qemu-user and wine.
"""

import functools
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from chargpt.kernels import compiler
from chargpt.kernels.build import build
from chargpt.kernels.compiler import DECODE, STEP_BFLOAT16, STEP_FLOAT32, Compiler, Source

pytestmark = pytest.mark.nightly

HERE = Path(__file__).parent
RUNNERS = {"aarch64-linux-musl": "qemu-aarch64", "x86_64-windows-gnu": "wine"}
# The first bytes of a library: ELF for ARM (at 18), Windows' MZ, and Mach-O for ARM.
FORMATS = {
    "aarch64-linux-gnu.2.28": (18, b"\xb7\x00"),
    "x86_64-windows-gnu": (0, b"MZ"),
    "aarch64-macos": (0, b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"),
}
DRIVERS = {  # the driver of a source, its flags, and how much its results may differ, absolutely and relatively
    "attention, float32": (STEP_FLOAT32, "drive_attention.c", ("-DFLOAT32",), 1e-4),
    "attention, bfloat16": (STEP_BFLOAT16, "drive_attention.c", (), 0.05),
    "step, float32": (STEP_FLOAT32, "drive_step.c", ("-DFLOAT32",), 1e-3),
    "step, bfloat16": (STEP_BFLOAT16, "drive_step.c", (), 0.05),
    "decode": (DECODE, "drive_decode.c", (), 1e-3),
}
CASES = [
    pytest.param(target, driver, instructions, id=f"{target}, {driver}, {instructions}")
    for target in RUNNERS
    for driver, (source, *_) in DRIVERS.items()
    for instructions in (source.instructions if compiler.is_x86_64(target.partition("-")[0]) else ("baseline",))
    if instructions in source.instructions
]


def zig() -> Compiler:
    """The compiler of the package ziglang; the test skips without it."""
    found = [one for one in compiler.compilers() if one.is_zig]
    if not found:
        pytest.skip("needs the package ziglang")
    return found[0]


def program(by: Compiler, driver: str, instructions: str, path: Path, *options: str) -> Path:
    """The driver, compiled as the library of its source is."""
    source, file, flags, _ = DRIVERS[driver]
    driver_source = Source(HERE / file, (*source.flags, *flags, "-Wno-psabi"), source.instructions)
    by.compile(driver_source, instructions, path, options=options, link=())
    return path


@functools.cache
def expected(driver: str, instructions: str, folder: Path) -> tuple[str, np.ndarray]:
    """What a driver prints and writes here, by the compiler of this machine."""
    return output([str(program(compiler.compilers()[0], driver, instructions, folder / "native", "-pthread", "-lm"))], folder)


def output(command: list[str], folder: Path, **environment: str) -> tuple[str, np.ndarray]:
    """What a program prints, and the results that it writes."""
    (folder / "results").write_bytes(b"")
    done = subprocess.run(
        [*command, "results"], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.strip(), np.fromfile(folder / "results", dtype=np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """For this machine's results, and for the files of Wine."""
    return tmp_path_factory.mktemp("systems")


@pytest.mark.parametrize("target, driver, instructions", CASES)
def test_another_system_gives_the_results_of_this_one(target, driver, instructions, folder, tmp_path):
    runner, tolerance, windows = shutil.which(RUNNERS[target]), DRIVERS[driver][-1], "windows" in target
    if runner is None:
        pytest.skip(f"needs {RUNNERS[target]} (Debian: qemu-user, wine)")
    if instructions not in compiler.available_instructions():
        pytest.skip(f"needs a processor with {' and '.join(compiler._features(instructions))}")
    for_target = Compiler((*zig().command, "-target", target), is_zig=True)
    path = tmp_path / f"drive{'.exe' * windows}"
    program(for_target, driver, instructions, path, *() if windows else ("-static", "-lm"))
    printed, results = output([runner, str(path)], tmp_path, WINEPREFIX=str(folder / "wine"), WINEDEBUG="-all")
    expected_printed, expected_results = expected(driver, instructions, folder)
    assert printed == expected_printed
    np.testing.assert_allclose(results, expected_results, rtol=tolerance, atol=tolerance)


def with_includes(path: Path) -> str:
    """The text of a source, and of all of ours that it includes."""
    text = path.read_text(encoding="utf-8")
    return text + "".join(with_includes(path.parent / name) for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE))


@pytest.mark.parametrize("target", FORMATS)
def test_the_libraries_of_a_wheel_are_compiled_for_its_system(target, tmp_path):
    zig()
    libraries = build(tmp_path, target)
    at, start = FORMATS[target]
    assert all(library.read_bytes()[at : at + len(start)] == start for library in libraries if library.suffix != ".wasm")
    assert len(libraries) == (10 if compiler.is_x86_64(target.partition("-")[0]) else 5)  # two of them for browsers
    assert sorted(tmp_path.iterdir()) == sorted(libraries)
    for source in compiler.SOURCES:
        names = re.findall(r"^EXPORT (?:const )?\w+ \*?(\w+)[ (]", with_includes(source.path), re.MULTILINE)
        for library in tmp_path.glob(f"{source.path.stem}-*"):
            assert names and all(name.encode() + b"\0" in library.read_bytes() for name in names), library.name


def test_the_libraries_of_this_machines_wheel_are_those_that_it_compiles(tmp_path, monkeypatch):
    """So a machine without a compiler computes the same bits from the wheel as this one."""
    if not compiler.compilers() or not compiler.is_x86_64(platform.machine()):
        pytest.skip("needs a C compiler, and instructions that x86-64 may lack")
    first, again = build(tmp_path / "first"), build(tmp_path / "again")
    assert [one.read_bytes() for one in first] == [one.read_bytes() for one in again]
