"""What is known of this machine without torch: whether torch may find a GPU, and how many threads it would use."""

import contextlib
import ctypes
import functools
import importlib.util
import math
import os
import platform
import re
import sys
from pathlib import Path

DRIVERS = ("nvcuda.dll", "amdhip64.dll") if os.name == "nt" else ("libcuda.so.1",)
AMD = Path("/dev/kfd")  # the driver of AMD's GPUs on Linux
OMP_PAUSE_SOFT = 1  # of OpenMP 5.0: settings, such as the number of threads, stay
CPU_INFO = Path("/proc/cpuinfo")  # on Linux
GROUPS = Path("/sys/fs/cgroup")  # on Linux, of this process in a container
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def may_have_gpu() -> bool:
    """Whether `auto` may find another device than the CPU. If not, torch need not be asked."""
    torch = importlib.util.find_spec("torch")  # imports nothing
    if torch is None or torch.origin is None:
        return False
    version = Path(torch.origin).with_name("version.py")
    try:
        is_for_gpus = re.search(r"^(cuda|hip)\b[^=]*= *['\"]", version.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return True
    for driver in DRIVERS if is_for_gpus else ():
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(driver))
    return bool(is_for_gpus) and AMD.exists()


def core_count() -> int:
    """The processor cores that this process may use, where Linux tells; elsewhere the threads that they can run at once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    threads = os.sched_getaffinity(0)
    try:
        cores = len({Path(TOPOLOGY.format(thread)).read_text() for thread in threads})
    except OSError:
        cores = len(threads)
    return min(cores, quota() or cores)


def quota(groups: Path = GROUPS) -> int:
    """The processor cores whose time a container may use, rounded up; 0 without a limit."""
    for limit, period in (("cpu.max", ""), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            used, of, *_ = " ".join((groups / file).read_text() for file in filter(None, (limit, period))).split()
            return max(0, math.ceil(int(used) / int(of)))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return 0


@functools.cache
def processor_name() -> str:
    """That of the processor, by which two machines that share a folder are told apart; empty if the system does not tell."""
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@functools.cache
def prepare_forks() -> None:
    """From now on, a child that is forked while this process computes nothing computes as this process does.

    It has none of the threads of OpenMP, in which torch and C code compute: gcc's would wait for them for ever, so they
    end before; LLVM's forgets how many there shall be.
    """
    threads = 0

    def before() -> None:
        nonlocal threads
        if torch := sys.modules.get("torch"):
            threads = torch.get_num_threads()
        pause = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)  # none where no OpenMP is loaded
        if pause is not None:
            pause(OMP_PAUSE_SOFT)

    def in_child() -> None:
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=in_child)
