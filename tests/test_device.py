"""The device is chosen by the machine, and a missing one is a user's mistake. Threads are limited for a while only."""

import pytest
import torch

from chargpt.device import choose_device, choose_precision, one_thread
from chargpt.terminal import UserError


def test_auto_takes_what_the_machine_has():
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto").type == expected
    assert choose_device("cpu") == torch.device("cpu")


def test_a_device_that_the_machine_lacks_is_one_line_that_says_what_to_do():
    with pytest.raises(UserError, match="cuda:99 given, but torch sees . CUDA devices; use --device cpu"):
        choose_device("cuda:99")
    if not torch.backends.mps.is_available():
        with pytest.raises(UserError, match="no Metal device; use --device cpu"):
            choose_device("mps")


@pytest.mark.parametrize(
    "device, capability, precision",
    [
        ("cuda", (7, 5), torch.float32),
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
