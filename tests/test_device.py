"""The device is chosen by the machine, and a missing one is a user's mistake. Threads are limited for a while only."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chargpt import device
from chargpt.config import Config, RuntimeConfig
from chargpt.device import choose_device, choose_precision, one_thread, send, why_not_cuda
from chargpt.errors import UserError
from chargpt.training.runtime import choose_runtime

ROOT = Path(__file__).parents[1]


class Recorded(Tensor):
    """A tensor of which nothing is computed: `calls` are the methods that were called, and whether they let the host go on."""

    @classmethod
    def __torch_function__(cls, function, types, given=(), options=None):
        calls = next(one.calls for one in given if isinstance(one, cls))
        calls.append((function.__name__, (options or {}).get("non_blocking", False)))
        return given[0]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", ["cpu", "cuda", "cuda:1", "mps", "xpu", "meta"])
def test_a_copy_that_does_not_wait_is_from_pinned_memory_to_cuda_alone(kind, in_place):
    """Others read memory that may be freed by then, and give other numbers without a word."""
    values = torch.ones(3).as_subclass(Recorded)
    values.calls = []
    send(values, torch.device(kind), place=torch.zeros(3) if in_place else None)
    copied = "copy_" if in_place else "to"
    assert values.calls == ([("pin_memory", False), (copied, True)] if kind[:4] == "cuda" else [(copied, False)])


def test_nothing_else_decides_that_a_copy_does_not_wait():
    modules = [*Path(device.__file__).parent.rglob("*.py"), *(ROOT / name for name in ("model.py", "sample.py", "train.py"))]
    assert [path.name for path in modules if "non_blocking" in path.read_text(encoding="utf-8")] == ["device.py"]


@pytest.mark.parametrize("has_metal", [False, True])
def test_auto_takes_what_the_machine_has_and_metal_only_if_it_is_asked_for(monkeypatch, has_metal):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_metal)
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() and not why_not_cuda(0) else "cpu")
    assert choose_device("cpu") == torch.device("cpu")
    if has_metal:
        assert choose_device("mps") == torch.device("mps")


def test_a_device_that_the_machine_lacks_is_one_line_that_says_what_to_do(monkeypatch):
    with pytest.raises(UserError, match="'cuda:99' given, but torch sees . CUDA devices; use --device cpu"):
        choose_device("cuda:99")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match="no Metal device; use --device cpu"):
        choose_device("mps")


def test_a_gpu_that_torch_cannot_compute_on_is_not_taken(monkeypatch):
    def fails(*given: object, **options: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla P100")
    monkeypatch.setattr(torch, "ones", fails)
    why_not_cuda.cache_clear()
    why = "PyTorch .* cannot compute on Tesla P100 .CUDA error: no kernel image is available .*see pytorch.org for one that can"
    try:
        assert choose_device("auto").type == "cpu"
        with pytest.raises(UserError, match=f"'cuda' given, but {why}; use --device cpu"):
            choose_device("cuda")
        chosen = choose_runtime(Config(runtime=RuntimeConfig(device="auto", threads=1)))
        assert re.fullmatch(f"{why}; until then the CPU is used", chosen.slower)
    finally:
        why_not_cuda.cache_clear()


@pytest.mark.parametrize(
    "device, capability, precision",
    [
        ("cuda", (7, 5), torch.float16),
        ("cuda", (8, 0), torch.bfloat16),
        ("cuda", (9, 4), torch.bfloat16),
        ("mps", None, torch.float32),
    ],
)
def test_the_precision_of_a_gpu_is_decided_by_what_torch_tells(monkeypatch, device, capability, precision):
    """ROCm, too, is CUDA for torch: (9, 4) is an MI300."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision("auto", torch.device(device)) == precision
    assert choose_precision("bfloat16", torch.device(device)) == torch.bfloat16


def test_one_thread_lasts_until_the_end_of_the_block_or_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
