"""The engine in PyTorch: for every device, and for a CPU without a C compiler."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from chargpt.model import GPT
from chargpt.sampling.writer import Texts, Writer


def torch_writer(model: GPT) -> Writer:
    """What writes with `model`, which is in evaluation mode."""
    return Writer(partial(TorchTexts, model), model.config.block_size)


class TorchTexts(Texts):
    """Texts in a cache of the model."""

    def __init__(self, model: GPT, texts: int) -> None:
        self._model, self._texts = model, texts

    def read(self, start: int, ids: np.ndarray) -> np.ndarray:
        device = self._model.token_embedding.weight.device
        return self.logits(start, torch.from_numpy(np.ascontiguousarray(ids)).to(device)).float().cpu().numpy()

    @torch.inference_mode()
    def logits(self, start: int, ids: Tensor) -> Tensor:
        """Those of the next character, (B, V), after `ids` (B, T) at positions from `start`."""
        if start == 0:
            self._cache = self._model.new_cache(self._texts)
        return self._model(ids, cache=self._cache)[:, -1]
