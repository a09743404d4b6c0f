"""The device is chosen by the machine, and a missing one is a user's mistake."""

import pytest
import torch

from chargpt.device import choose_device
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
