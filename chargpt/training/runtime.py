"""What a run computes with: device, precision, threads, compiled or not. Chosen once and recorded in every checkpoint."""

import contextlib
import copy
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from chargpt.config import Config, RuntimeConfig
from chargpt.device import choose_device, choose_precision, memory_free, why_not_cuda, why_not_cudnn
from chargpt.errors import Option, UserError
from chargpt.formatting import one_line, plural
from chargpt.kernels.attention import PANEL, FusedAttention, supports
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import StepKernel, is_faster
from chargpt.kernels.step import fits as fits_step
from chargpt.kernels.step import supports as supports_step
from chargpt.model import GPT
from chargpt.processor import quota
from chargpt.standard import CHANGED, has_standard_attention, is_standard
from chargpt.training.group import Group

# Seconds that compiling takes, about: on an H200, 11 to 30 for a whole model, of which blocks and update take 0.6. And the
# share of the time of recorded steps that it saves: 0.14 of the kernels of a small step, and 0.19 to 0.4 before gpu.py.
COMPILING_SECONDS, COMPILED_SAVES = 15.0, 0.15
WORTH = 4  # compiling is worth its time if it saves this many times as much


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The machine as this run uses it."""

    device: torch.device
    precision: torch.dtype
    threads: int
    attention: FusedAttention | None = None  # a faster equal of model.py's on a CPU, if there is one
    step: StepKernel | None = None  # computes gradients and validation losses, if torch does not
    compile: bool = False
    processes: int = 1  # that train together
    fewer_kernels: bool = False  # whether gpu.py has faster equals of parts of model.py
    slower: str = ""  # why this is slower than it could be on this machine, and what to do
    tf32: bool = False  # whether a GPU may use it for products in float32
    deterministic: bool = False  # whether a GPU gives the same bits each time

    @property
    def runs_ahead(self) -> bool:
        """Whether the host goes on while the device computes. torch's Metal has no update that a number on it decides."""
        return self.device.type not in ("cpu", "mps")

    @property
    def name(self) -> str:
        """That of the GPU, or the kind of another device."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def describe(self) -> str:
        """One line for the user."""
        in_c = "steps" if self.step else "attention" if self.attention else ""
        compiled = [f"{in_c} compiled from C"] * bool(in_c) + ["compiled"] * self.compile
        return ", ".join([self.name, str(self.precision).removeprefix("torch."), plural(self.threads, "thread"), *compiled])

    def environment(self) -> dict[str, str | int | bool]:
        """Everything that must be equal for a resumed run to be equal to the bit."""
        driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)
        cuda = f"{torch.version.cuda or torch.version.hip}, driver {driver()}"
        of_gpu: dict[str, str | int | bool] = {"cuda": cuda, "deterministic": self.deterministic}
        own = "of gpu.py" if self.fewer_kernels else "plain"
        return {
            "torch": torch.__version__,
            "device": self.name,
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            "precision": "tf32" if self.tf32 else str(self.precision).removeprefix("torch."),
            "threads": self.threads,
            "processes": self.processes,
            "attention": own if self.attention is None else f"compiled {self.attention.build}",
            "step": "torch" if self.step is None else f"native {self.step.build}",
            "compile": self.compile,
            **(of_gpu if self.device.type == "cuda" else {}),
        }

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """In this block, torch computes gradients, with these threads, in float32 by default, and in equal bits if asked to."""
        threads, dtype, products = torch.get_num_threads(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(torch.float32)
        is_full = self.runs_ahead and not self.tf32
        torch.set_float32_matmul_precision("highest" if is_full else "high")  # of no effect on a CPU
        # Asked first: to set it, even to what it is, torch imports its compiler, which takes seconds.
        changes = self.deterministic and self.device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
        if changes:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which torch asks for
            torch.use_deterministic_algorithms(True)
        try:
            with torch.enable_grad():
                yield
        finally:
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(products)
            if changes:
                torch.use_deterministic_algorithms(False)

    def has_memory_for(self, ids: np.ndarray) -> bool:
        """Whether the device is a GPU with free memory for a whole text and much more."""
        return self.device.type == "cuda" and 8 * len(ids) < (memory_free(self.device) or 0)

    def quicken(self, model: GPT) -> None:
        """Let `model`, which training calls, compute by what is faster than parts of model.py, and equal."""
        if self.fewer_kernels and has_standard_attention(model.config):
            from chargpt.gpu import quicken

            quicken(model, is_standard=is_standard(model.config, dropout=model.config.dropout))
        if self.attention is not None and supports(model.config):
            for block in model.blocks:
                block.attn.fused = self.attention

    def compiled(self, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        """`model` as training calls it, also with teachers: if that was chosen, torch compiles its blocks, all to one code."""
        if not self.compile:
            return model
        # Evaluations call the model itself.
        model = copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})
        for gpt in (module for module in model.modules() if isinstance(module, GPT)):
            for block in gpt.blocks:
                block.compile(fullgraph=True, dynamic=False)  # without CUDA graphs of its own: graphs.py records them
        return model


def is_worth_compiling(seconds: float) -> bool:
    """Whether a run with so many seconds of steps on a GPU is compiled, unless the user decides it."""
    return COMPILED_SAVES * seconds >= WORTH * COMPILING_SECONDS


def may_be_in_c(config: Config) -> bool:
    """Whether the steps of a run with these settings are compiled from C on a CPU, where that is possible."""
    return _is_small_enough(config) and supports_step(config.model)


def _is_small_enough(config: Config) -> bool:
    """Whether steps in C would be faster than torch's, if model.py computes what C does."""
    is_fast = config.runtime.step != "torch" and is_faster(config.model, threads=config.runtime.threads)
    return is_fast and fits_step(config.model)


def choose_runtime(
    config: Config, environment: Mapping[str, str | int | bool] | None = None, *, group: Group = Group()
) -> Runtime:
    """Resolve every `auto` for this machine and model. Changes nothing in this process: `Runtime.applied` does.

    `environment` is that of a saved run, or of a new one whether it is worth compiling: a run that was compiled stays so where
    that is possible, and if torch made its steps, torch makes the next ones.
    """
    known, asked, slower = environment or {}, config.runtime, list[str]()
    device = group.device(choose_device(asked.device))
    precision = choose_precision(asked.precision, device)
    if precision == torch.float16 and device.type != "cuda":
        what = f"runtime.precision: float16 given, which needs a CUDA GPU, but the device is {device.type}; use "
        raise UserError(what, Option("runtime.precision", "auto"))
    compiled = _choose_compiled(asked, device, known, slower)
    # The kernels in C are for the CPU; model.py's own attention does everything else.
    attention = _choose_attention(config, precision, slower) if device.type == "cpu" and not compiled else None
    if asked.device == "auto" and device.type == "cpu" and torch.cuda.is_available():
        slower.append(f"{why_not_cuda(0)}; until then the CPU is used")
    if device.type == "cuda" and (trouble := why_not_cudnn(device.index or 0)):
        slower.append(f"cuDNN cannot compute attention here, so PyTorch's own is used ({trouble}); install torch again")
    may_follow = attention is not None and known.get("step") != "torch"
    step = _choose_step(config, device, precision, slower, compiled=compiled, may_follow=may_follow)
    return Runtime(
        device=device,
        precision=precision,
        threads=asked.threads or min(torch.get_num_threads(), quota() or sys.maxsize),
        attention=attention,
        step=step,
        compile=compiled,
        processes=group.size,
        fewer_kernels=device.type == "cuda" and asked.attention == "auto" and has_standard_attention(config.model),
        slower=slower[-1] if slower else "",
        tf32=asked.precision == "tf32",
        deterministic=asked.deterministic,
    )


def _choose_compiled(
    asked: RuntimeConfig, device: torch.device, known: Mapping[str, str | int | bool], slower: list[str]
) -> bool:
    """Whether torch compiles the model. If it cannot, `slower` gets the reason, or a UserError is raised."""
    compiled = asked.compile == "on" or asked.compile == "auto" and device.type == "cuda" and known.get("compile") is True
    trouble = _why_not_compile(device) if compiled else ""
    if trouble and asked.compile == "on":
        what = f"runtime.compile: on given, but torch cannot compile here ({trouble}); install what is missing, or leave it out"
        raise UserError(what)
    slower += [f"torch cannot compile here, so steps take longer: {trouble}"] * bool(trouble)
    return compiled and not trouble


def _choose_attention(config: Config, precision: torch.dtype, slower: list[str]) -> FusedAttention | None:
    """The attention in C, if there is one on this CPU; `slower` gets the reason if there is none."""
    if config.runtime.attention != "auto" or not supports(config.model):
        return None
    try:
        return FusedAttention(precision)
    except Unavailable as reason:
        slower.append(f"attention is not compiled, so steps take longer: {reason}")
        return None


def _choose_step(
    config: Config, device: torch.device, precision: torch.dtype, slower: list[str], *, compiled: bool, may_follow: bool
) -> StepKernel | None:
    """The steps in C, if they are asked for, or are faster and `may_follow` the attention. `slower` gets the reason if not.
    Raises UserError if they are asked for and impossible."""
    is_native, on_cpu = config.runtime.step == "native", device.type == "cpu" and not compiled
    if on_cpu and _is_small_enough(config) and not supports_step(config.model):
        slower.append(f"{CHANGED}, so PyTorch takes the steps, which is slower")
    if is_native and not (on_cpu and supports_step(config.model)):
        needs = "runtime.compile=off" if compiled else f"a model.n_embd that is a multiple of {PANEL}"
        needs = f"it needs {'a CPU' if device.type != 'cpu' else needs}"
        raise _not_native(CHANGED if on_cpu and fits_step(config.model) else needs)
    if not (is_native or may_follow and may_be_in_c(config)):
        return None
    try:
        return StepKernel(precision)
    except Unavailable as reason:
        if is_native:
            raise _not_native(f"it cannot be compiled here ({reason})") from None
        slower.append(f"steps are not compiled from C, so they take longer: {reason}")
        return None


def _not_native(why: str) -> UserError:
    return UserError(f"runtime.step: native given, but {why}; use ", Option("runtime.step", "auto"))


def _why_not_compile(device: torch.device) -> str:
    """torch's error when it compiles a small function, for example that there is no C compiler; empty if it can."""
    try:
        torch.compile(lambda x: x * x + 1, dynamic=False)(torch.ones(8, device=device))
    except Exception as problem:  # no kind of failure here may end a run
        return one_line(" ".join(str(problem).split())[:200]) or type(problem).__name__
    return ""
