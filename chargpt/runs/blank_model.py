"""A model of a shape, before it has weights."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from chargpt.config import ModelConfig
from chargpt.model import GPT, GPTConfig
from chargpt.standard import model_source

LOADED_SOURCE = model_source()  # of the model.py that was just imported; the file may be edited from now on


def gpt_config(shape: ModelConfig | GPTConfig) -> GPTConfig:
    """The config that a GPT of this shape is made with."""
    return GPTConfig(**vars(shape))


def blank_model(shape: ModelConfig | GPTConfig, vocab_size: int) -> GPT:
    """A float32 model whose weights are still to be loaded. Initial ones would cost seconds and change the random state."""
    with _WithoutInitialisation():
        return GPT(gpt_config(shape), vocab_size).float()  # whatever the default of the caller is


class _WithoutInitialisation(TorchFunctionMode):
    """Leaves new weights uninitialised. (torch's meta device would do as well, but takes more than a second to import.)"""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)
