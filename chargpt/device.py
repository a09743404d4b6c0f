"""Which device to compute on, and with how many threads. The precision is chosen in training/runtime.py."""

import contextlib
from collections.abc import Iterator

import torch

from chargpt.terminal import UserError


def choose_device(name: str) -> torch.device:
    """`auto` takes CUDA, then MPS, then the CPU. Raises UserError for a device that this machine lacks."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("--device: mps given, but this machine has no Metal device; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device: {name} given, but torch sees {torch.cuda.device_count()} CUDA devices; use --device cpu")
    return device


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
