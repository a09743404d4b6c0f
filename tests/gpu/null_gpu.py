"""torch's CUDA build on a machine without a GPU: null_driver.c, compiled, in place of the driver.

    python tests/gpu/null_gpu.py train.py poems.txt --config gpu train.max_steps=20
    NULLGPU_MB=3000 NULLGPU_MAJOR=7 NULLGPU_MINOR=5 python tests/gpu/null_gpu.py train.py poems.txt --minutes 1 --dry-run

What is real: planning, autograd, torch's allocator, Triton and inductor, the recording of CUDA graphs, and the processor's time
for all of it. What is not: every number of the card and its time. cuDNN is absent.

It needs Linux, a C compiler, and a torch whose torch.version.cuda is not None: `pip install -r requirements.txt pytest
pytest-xdist hypothesis` in an environment of its own, some 5 GB. Then `python -m pytest -m gpu`.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

NAMES = "kernels products fills copies staged waits graphs recorded forbidden collectives".split()  # as in null_driver.c
# What CUDA's headers take from its compiler's, which pip does not install.
MACROS = """
#define __device_builtin__
#define __host__
#define __device__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
"""


def why_not() -> str:
    """Why there is no null GPU here, and how to get it; empty if there is."""
    from torch import version

    if not sys.platform.startswith("linux") or version.cuda is None:
        return "needs the CUDA build of torch, on Linux: pip install torch, in an environment of its own, some 5 GB"
    if Path("/dev/nvidiactl").exists():
        return "there is a real GPU, which the tests see with: -m gpu"
    headers = list(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/driver_types.h"))
    if not headers or shutil.which("cc") is None:
        return "needs a C compiler (cc) and the headers of the package nvidia-cuda-runtime"
    return ""


def build(folder: Path) -> Path:
    """The driver, compiled into `folder`."""
    (header,) = Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/driver_types.h")
    (folder / "crt").mkdir(parents=True)
    (folder / "crt" / "host_defines.h").write_text(MACROS)
    library, source = folder / "libcuda.so.1", Path(__file__).with_name("null_driver.c")
    flags = ["-O1", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f"-I{folder}", f"-I{header.parent}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), "-ldl", "-lpthread"], check=True)
    (folder / "libcuda.so").symlink_to(library.name)
    return library


def environment(library: Path, **variables: str) -> dict[str, str]:
    """The variables with which a program has the null GPU, and caches of its own."""
    visible = {"CUDA_VISIBLE_DEVICES": "0,1"}  # conftest.py may have hidden them
    own = {"TRITON_LIBCUDA_PATH": "", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    folders = {name: str(library.parent / folder) for name, folder in own.items()}
    return {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", **visible, **folders, **variables}


def read() -> dict[str, int]:
    """What a program with the null GPU has called since the last time."""
    numbers, driver = (ctypes.c_long * len(NAMES))(), ctypes.CDLL("libcuda.so.1")
    driver.nullgpu_read(numbers)
    driver.nullgpu_clear()
    return {name: number for name, number in zip(NAMES, numbers) if number}


if __name__ == "__main__":
    if why_not():
        sys.exit(why_not())
    with tempfile.TemporaryDirectory() as made, contextlib.suppress(KeyboardInterrupt):
        sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env=environment(build(Path(made) / "null"))).returncode)
