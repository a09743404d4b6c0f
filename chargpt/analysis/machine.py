"""The limits of a machine: matrix products, copies and reads, as fast as torch does them on a device."""

import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

LEAST_GROUP = 1e-3  # seconds; calls that take less are timed in groups, so that reading the clock costs nothing
SIDE = {"cpu": 1024}  # of the square matrices that are multiplied; elsewhere, GPU_SIDE
GPU_SIDE = 8192
NUMBERS = 2**26  # float32 numbers that are copied or read, 256 MB


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if device.type == "mps":
        torch.mps.synchronize()


def seconds_per_call(work: Callable[[], object], device: torch.device, *, seconds: float = 0.1, least: int = 5) -> float:
    """The median time of a call of `work`: of `least` groups of calls, and for `seconds`; of slow calls, fewer groups."""

    def group(calls: int) -> float:
        synchronise(device)
        started = time.perf_counter()
        for _ in range(calls):
            work()
        synchronise(device)
        return time.perf_counter() - started

    calls, times = 1, [group(1)]
    if times[0] < 4 * seconds:  # the first call also prepares memory and code
        times = [group(calls)]
    while times[0] < LEAST_GROUP:
        calls *= 2
        times = [group(calls)]
    while sum(times) < seconds or (len(times) < least and sum(times) < 4 * seconds):
        times.append(group(calls))
    return statistics.median(times) / calls


def product_speed(dtype: torch.dtype, device: torch.device, *, side: int | None = None, seconds: float = 1.0) -> float:
    """GFLOP/s of a product of two square matrices, `side` numbers wide."""
    side = side or SIDE.get(device.type, GPU_SIDE)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds_per_call(lambda: a @ b, device, seconds=seconds) / 1e9


def copy_speed(device: torch.device, *, numbers: int = NUMBERS, seconds: float = 1.0) -> float:
    """GB/s, read plus written, of copying `numbers` float32 numbers."""
    a = torch.ones(numbers, device=device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / seconds_per_call(lambda: b.copy_(a), device, seconds=seconds) / 1e9


def read_speed(device: torch.device, *, numbers: int = NUMBERS, seconds: float = 1.0) -> float:
    """GB/s of reading `numbers` float32 numbers, which are summed. Few of them fit into a cache and are read faster."""
    a = torch.ones(numbers, device=device)
    return a.nbytes / seconds_per_call(a.sum, device, seconds=seconds) / 1e9


def limits(device: torch.device, *, seconds: float = 1.0) -> str:
    """A line with the limits of the machine: it is printed beside tables of speeds, which move with them."""
    products = [
        f"{name} {three_digits(product_speed(dtype, device, seconds=seconds))} GFLOP/s"
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    ]
    copies, reads = (three_digits(speed(device, seconds=seconds)) for speed in (copy_speed, read_speed))
    return f"products in {', '.join(products)}; copies {copies} GB/s, reads {reads} GB/s"


def three_digits(number: float) -> str:
    """A speed above 0, rounded to three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def machine_name(device: torch.device) -> str:
    """The name of the processor, with the number of threads, or of the GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    information = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE) if information.is_file() else None
    processor = found[1].strip() if found else platform.processor() or platform.machine()
    if device.type != "cpu":
        return f"{processor}, {device.type}"
    threads = torch.get_num_threads()
    return f"{processor} ({torch.backends.cpu.get_cpu_capability()}), {threads} thread{'s' * (threads != 1)}"
