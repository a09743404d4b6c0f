"""The samples of a model in training: the same start and the same random numbers each time, so that they can be compared."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from chargpt.config import ModelConfig
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.sampling.c_decoder import choose_decoder
from chargpt.sampling.decoder import Decoder, ModelWriter, stream
from chargpt.sampling.items import sampled_items
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.prompt import first_id
from chargpt.sampling.text_generator import TextGenerator
from chargpt.text.items import end_in
from chargpt.text.tokenizer import Tokenizer

SAMPLING = SamplingOptions(temperature=0.8)
# Items of a sample at most.
MAX_ITEMS = 8


class SampleWriter:
    """Writes samples of `length` characters by models of one shape. Their random numbers are not those of the training."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: ModelConfig,
        *,
        device: torch.device,
        length: int,
        seed: int,
        labels: Sequence[str] = (),
    ) -> None:
        """With `labels`, the sample is items of these labels in turn; a label "" is an item without one."""
        self._labels = labels
        self._tokenizer, self._device, self._length, self._seed = tokenizer, device, length, seed
        self._decoder: Callable[..., Decoder] = Decoder
        if length:
            self._decoder, _ = choose_decoder(device, config)  # compiles decode.c when it is first used on this machine

    def write(self, model: GPT, interrupt: Interrupt) -> str:
        """A sample by `model`, whose weights are float32; empty if the length is 0. A signal cuts it short.

        The compiled decoder copies the weights. Where there is no memory for a copy, PyTorch's decoder writes the sample.
        """
        if not self._length:
            return ""
        try:
            return self._text(model, interrupt)
        except MemoryError:
            self._decoder = Decoder
            return self._text(model, interrupt)

    def _text(self, model: GPT, interrupt: Interrupt) -> str:
        if self._labels:
            return self._items(model)
        prompt = torch.tensor([[first_id(self._tokenizer)]], device=self._device)
        ids = stream(
            model,
            prompt,
            self._length,
            SAMPLING,
            decoder=self._decoder,
            generator=torch.Generator().manual_seed(self._seed),
            never_sampled=self._tokenizer.never_sampled,
        )
        return self._tokenizer.decode(int(new) for new in itertools.takewhile(lambda _: not interrupt.came_here, ids))

    def _items(self, model: GPT) -> str:
        """Items, one after the other, in at most `length` characters."""
        writer = ModelWriter(model, self._decoder)
        generator = TextGenerator(writer=writer, tokenizer=self._tokenizer, options=replace(SAMPLING, length=self._length))
        labels = list(itertools.islice(itertools.cycle(self._labels), MAX_ITEMS))
        lines = sampled_items(generator, labels, range(self._seed, self._seed + MAX_ITEMS))
        return ("\n" if end_in(self._tokenizer) == "\n" else "\n\n").join(lines)[: self._length]
