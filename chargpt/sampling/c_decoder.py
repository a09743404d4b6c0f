"""The decoder that uses decode.c. For a seed it gives the text of the decoder in PyTorch, up to float32's rounding."""

import ctypes
import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from chargpt.config import ModelConfig
from chargpt.device import one_thread
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.decode import RULES, load_kernel, supports
from chargpt.model import GPT, GPTConfig
from chargpt.sampling.c_texts import CTexts, Stored, Weights
from chargpt.sampling.decoder import Decoder, Piece
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stored_weights import pack


def choose_decoder(
    device: torch.device, config: ModelConfig | GPTConfig, *, precision: str = "float32"
) -> tuple[Callable[..., Decoder], str]:
    """The fastest decoder for a model of this shape on `device`, and its name for the user.

    The decoder is for a model whose weights are rounded to `precision`, see `round_weights`.
    """
    if device.type != "cpu" or not supports(config):
        return Decoder, str(device)
    try:
        return functools.partial(CDecoder, kernel=load_kernel(), precision=precision), f"{device} (compiled)"
    except Unavailable as reason:
        return Decoder, f"{device} (not compiled: {reason})"


class CDecoder(Decoder):
    """The decoder in C: `kernel` computes and samples many characters in a call. The model is on the CPU, in float32.

    Its weights, if they are rounded to `precision` (see `round_weights`), are stored and read in as few bytes.
    """

    def __init__(
        self, model: GPT, batch_size: int, *, overflow: str = "refill", kernel: ctypes.CDLL, precision: str = "float32"
    ) -> None:
        super().__init__(model, batch_size, overflow=overflow)
        config, tokens = model.config, model.token_embedding.weight
        assert tokens.is_cpu and tokens.dtype == torch.float32, (tokens.device, tokens.dtype)
        assert supports(config), config
        threads = torch.get_num_threads()
        with one_thread():
            table = model.position_table(config.block_size).detach().contiguous().numpy()
            self._texts = CTexts(
                _weights(model, table, precision=precision),
                config,
                len(tokens),
                batch_size,
                kernel=kernel,
                precision=precision,
                threads=threads,
            )

    def read(self, new: Tensor) -> Tensor:
        start, ids = self.place(new)
        return torch.from_numpy(self._texts.read(start, ids.numpy()))

    def write(
        self,
        new: Tensor,
        limit: int,
        sampling: SamplingOptions,
        *,
        generators: Sequence[torch.Generator],
        forbidden: Tensor,
        penalty: Tensor | None = None,
    ) -> Piece:
        if penalty is not None or not sampling.rules_in_use().keys() <= RULES:
            return super().write(new, limit, sampling, generators=generators, forbidden=forbidden, penalty=penalty)

        def uniform(n: int) -> np.ndarray:
            numbers = torch.empty(n, len(new), dtype=torch.float64)
            for text, generator in zip(numbers.unbind(dim=1), generators):
                text.uniform_(generator=generator)  # the numbers that n draws of one row would take
            return numbers.numpy()

        start, ids = self.place(new)
        limit = min(limit, self.model.config.block_size - self.length + 1)
        made = self._texts.write(start, ids.numpy(), limit, sampling, uniform=uniform, forbidden=forbidden.numpy())
        piece = Piece(*map(torch.from_numpy, made))
        read = piece.ids[:-1].T  # the last ids are not in the cache yet
        self.window = torch.cat((self.window, read), dim=1)
        self.length += read.size(1)
        return piece


def _weights(model: GPT, table: np.ndarray, *, precision: str) -> Weights:
    """The weights of `model`, in the same memory."""
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def numbers(name: str) -> np.ndarray | None:
        return tensors[name].numpy() if name in tensors else None

    def matrix(name: str) -> Stored:
        packed, scales = pack(tensors[name], precision)
        stored = packed.view(torch.int16) if packed.dtype == torch.bfloat16 else packed
        return stored.numpy(), None if scales is None else scales.numpy()

    return Weights(numbers, matrix, table)
