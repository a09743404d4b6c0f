"""All C sources under the compiler's sanitizers, over odd shapes; step_bfloat16.c with emulated instructions."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EMULATION = HERE / "emulation"
# Each driver takes seconds to compile and to run.
pytestmark = [pytest.mark.nightly, pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])]


def compiler_with(sanitizer: str, folder: Path) -> list[str]:
    """A command that compiles for `sanitizer`. Skips where no compiler has it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [compiler, "-O1", "-g", "-std=gnu11", "-Wno-psabi", "-pthread"]
    command += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    for check in ([*command, str(source), "-o", str(program)], [str(program)]):
        if subprocess.run(check, capture_output=True, timeout=60).returncode:
            pytest.skip(f"needs a C compiler with -fsanitize={sanitizer}")
    return command


FLAGS = {  # which instructions the kernel is compiled for decides how many numbers it computes at once
    "float32": ["-DFLOAT32"],
    "float32, native": ["-DFLOAT32", "-march=native"],
    "float32, 16 lanes": ["-DFLOAT32", "-march=native", "-D__AVX512F__=1"],
    "bfloat16": ["-DBFLOAT16"],
}


CASES = [*itertools.product(["drive_attention.c", "drive_step.c"], FLAGS), ("drive_decode.c", "")]


@pytest.mark.parametrize(("driver", "flags"), CASES)
def test_there_is_no_fault_in_memory_arithmetic_or_threads(tmp_path, sanitizer, driver, flags):
    program = tmp_path / "drive"
    command = [*compiler_with(sanitizer, tmp_path), *FLAGS.get(flags, []), "-I", str(EMULATION), str(HERE / driver)]
    subprocess.run([*command, "-o", str(program), "-lm"], check=True, timeout=900)  # of a busy machine
    done = subprocess.run([str(program)], capture_output=True, timeout=900, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]
    assert int(done.stdout.split()[0]) > 50
