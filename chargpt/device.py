"""The device to compute on, and the precision (dtype) that training uses there."""

import contextlib
from collections.abc import Iterator

import torch

from chargpt.config import DEVICES
from chargpt.errors import Given, Option, UserError

# Not float16: training has no scaled loss, so small gradients would become 0 without an error.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(name: str) -> torch.device:
    """`auto` takes CUDA, then MPS, then the CPU. Raises UserError for a device that this machine lacks, and for no device."""
    if not isinstance(name, str) or not DEVICES.fullmatch(name):
        raise UserError(Given("device", name), "use auto, cpu, cuda, cuda:N or mps")
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "mps" and not torch.backends.mps.is_available():
        given = Given("device", name, ", but ", shown=name)
        raise UserError(given, "this machine has no Metal device; use ", Option("device", "cpu"))
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        given = Given("device", name, ", but ", shown=name)
        raise UserError(given, f"torch sees {torch.cuda.device_count()} CUDA devices; use ", Option("device", "cpu"))
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype that `runtime.precision` means on `device`: one of DTYPES, or with `auto` what is fast there.

    For float32 on a GPU, training/runtime.py lets products use TF32.
    """
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float32
    return cpu_precision() if device.type == "cpu" else torch.float32


def cpu_precision() -> torch.dtype:
    """What `auto` means on this processor: bfloat16 if it has instructions for it, otherwise float32."""
    is_supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return torch.bfloat16 if is_supported else torch.float32


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes with one thread inside.

    Copies of weights are fast enough with one. Several wait for one another: for milliseconds on an idle machine, for tenths
    of a second beside other programs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
