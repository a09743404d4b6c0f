"""The device is chosen by the machine, and a missing one is a user's mistake. Threads are limited for a while only."""

import re

import pytest
import torch

from chargpt.config import Config, RuntimeConfig
from chargpt.device import choose_device, choose_precision, one_thread, why_not_cuda
from chargpt.terminal import UserError
from chargpt.training.runtime import choose_runtime


def test_auto_takes_what_the_machine_has():
    expected = (
        "cuda" if torch.cuda.is_available() and not why_not_cuda(0) else "mps" if torch.backends.mps.is_available() else "cpu"
    )
    assert choose_device("auto").type == expected
    assert choose_device("cpu") == torch.device("cpu")


def test_a_device_that_the_machine_lacks_is_one_line_that_says_what_to_do():
    with pytest.raises(UserError, match="'cuda:99' given, but torch sees . CUDA devices; use --device cpu"):
        choose_device("cuda:99")
    if not torch.backends.mps.is_available():
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
        assert choose_device("auto").type in ("cpu", "mps")
        with pytest.raises(UserError, match=f"'cuda' given, but {why}; use --device cpu"):
            choose_device("cuda")
        chosen = choose_runtime(Config(runtime=RuntimeConfig(device="auto", threads=1)))
        assert re.fullmatch(f"{why}; until then the CPU is used", chosen.slower) or chosen.device.type == "mps"
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
