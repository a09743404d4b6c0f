"""The device to compute on, and the precision (dtype) that training uses there."""

import contextlib
import functools
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt.config import DEVICES
from chargpt.errors import Given, Option, UserError

# Of Linux: what can be used without swapping.
MEMINFO = Path("/proc/meminfo")
# The kinds of devices that copy from pinned memory of the host while it goes on; torch keeps that memory until then. Metal also
# copies from other memory so, which torch may have freed by then (pytorch #139550, #189690).
COPY_AHEAD = ("cuda",)
CUDNN_ATTENTION_FROM = (9, 0)  # the capability of the first cards on which torch takes the attention of cuDNN
# tf32: float32 whose products a GPU computes from fewer digits.
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is CUDA if that works, or else the CPU. Raises UserError for one that cannot compute."""
    if not isinstance(name, str) or not DEVICES.fullmatch(name):
        raise UserError(Given("device", name), "use auto, cpu, cuda, cuda:N or mps")
    if name == "auto":
        if torch.cuda.is_available() and not why_not_cuda(0):
            return torch.device("cuda")
        return torch.device("cpu")
    device, why = torch.device(name), ""
    if device.type == "mps" and not torch.backends.mps.is_available():
        why = "this machine has no Metal device"
    elif device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        why = f"torch sees {torch.cuda.device_count()} CUDA devices"
    elif device.type == "cuda":
        why = why_not_cuda(device.index or 0)
    if why:
        raise UserError(Given("device", name, ", but "), f"{why}; use ", Option("device", "cpu"))
    return device


@functools.cache
def why_not_cuda(index: int) -> str:
    """Why PyTorch cannot compute on a GPU that it sees, for example since it has no code for an old one; empty if it can."""
    try:
        with warnings.catch_warnings():  # torch says the same in fourteen lines
            warnings.simplefilter("ignore")
            name = torch.cuda.get_device_name(index)
            torch.ones(1, device=f"cuda:{index}").add_(1).item()
            why_not_cudnn(index)
    except torch.OutOfMemoryError:
        return ""  # it computes for others
    except (RuntimeError, AssertionError) as error:
        why, name = str(error).partition("\n")[0][:120], locals().get("name", "the GPU")
        return f"PyTorch {torch.__version__} cannot compute on {name} ({why}), see pytorch.org for one that can"
    return ""


@functools.cache
def why_not_cudnn(index: int) -> str:
    """Why a GPU that takes cuDNN's attention cannot have it: from then on, this process has torch's own. Empty if it can."""
    if torch.cuda.get_device_capability(index) < CUDNN_ATTENTION_FROM:
        return ""
    x = torch.ones(1, 1, 16, 32, dtype=torch.bfloat16, device=f"cuda:{index}", requires_grad=True)
    try:
        torch.autograd.grad(F.scaled_dot_product_attention(x, x, x, is_causal=True).sum(), x)[0].tolist()
    except torch.OutOfMemoryError:
        return ""
    except RuntimeError as error:
        torch.backends.cuda.enable_cudnn_sdp(False)
        return str(error).partition("\n")[0][:120]
    return ""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype that `runtime.precision` means on `device`: with `auto` what is known to be fast there, or else float32."""
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    return cpu_precision() if device.type == "cpu" else torch.float32


def cpu_precision() -> torch.dtype:
    """What `auto` means on this processor: bfloat16 if it has instructions for it, otherwise float32."""
    is_supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return torch.bfloat16 if is_supported else torch.float32


def send(values: Tensor, device: torch.device, *, place: Tensor | None = None) -> Tensor:
    """`values` of the host on `device`, in `place` if there is one. For a CUDA GPU, the host does not wait for the copy."""
    ahead = device.type in COPY_AHEAD
    source = values.pin_memory() if ahead else values
    return source.to(device, non_blocking=ahead) if place is None else place.copy_(source, non_blocking=ahead)


def memory_free(device: torch.device) -> int | None:
    """The bytes that are free for a training on a CUDA GPU, or on a CPU with Linux. None where it is not known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # what torch keeps to use again
        return torch.cuda.mem_get_info(device)[0] + cached
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, `model` is in evaluation mode; then its mode is what it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes with one thread inside. Several wait for one another: on a busy machine, for tenths of a second."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
