"""exact.c gives the same bits on other families of processors, emulated by QEMU, and at every level of optimization.

The compilers are Debian's packages gcc-aarch64-linux-gnu and so on, with the libc6-dev-*-cross that they recommend.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from chargpt.kernels.compiler import EXACT

SOURCE = Path(__file__).with_name("drive_exact.c")
FAMILIES = {"aarch64": "aarch64", "riscv64": "riscv64", "s390x, big-endian": "s390x", "powerpc64le": "ppc64le"}


def compiled(compiler: str, folder: Path, *flags: str) -> Path:
    """The driver as a program."""
    program = folder / "drive"
    command = [compiler, *EXACT.flags, *flags, "-Wno-psabi", str(SOURCE), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "cannot find" in done.stderr:
        pytest.skip(f"needs a C library for {compiler}: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr[-2000:]
    return program


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    """What this processor prints, with its own instructions."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    printed = output(str(compiled(compiler, tmp_path_factory.mktemp("native"), "-march=native")))
    assert int(printed.split()[0]) > 50 and " results " in printed
    return printed


@pytest.mark.parametrize("level", ["-O0", pytest.param("-O2", marks=pytest.mark.nightly)])
def test_no_level_of_optimization_changes_a_bit(expected, tmp_path, level):
    assert output(str(compiled(shutil.which("gcc") or shutil.which("cc"), tmp_path, level))) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_another_processor_gives_the_same_bits(expected, tmp_path, family, level):
    prefix = {"ppc64le": "powerpc64le"}.get(family, family)
    compiler, emulator = shutil.which(f"{prefix}-linux-gnu-gcc"), shutil.which(f"qemu-{family}")
    if compiler is None or emulator is None:
        pytest.skip(f"needs {prefix}-linux-gnu-gcc and qemu-{family} (Debian: gcc-{prefix}-linux-gnu, qemu-user)")
    assert output(emulator, str(compiled(compiler, tmp_path, level, "-static"))) == expected
