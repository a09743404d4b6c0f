"""The samples of a model in training: the same start and the same random numbers each time, so that they can be compared."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch

from chargpt.config import ModelConfig
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.runs.model_shape import parameter_count
from chargpt.sampling.c_texts import FASTER_THAN_GPU, c_engine, c_writer
from chargpt.sampling.items import sampled_items
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.torch_texts import torch_writer
from chargpt.sampling.writer import Writer
from chargpt.text.items import end_in
from chargpt.text.tokenizer import Tokenizer

MAX_ITEMS = 8  # of a sample at most


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
        self._labels, self._tokenizer, self._config = labels, tokenizer, config
        self._options = SamplingOptions(length=length, seed=seed)
        is_in_c = device.type == "cpu" or parameter_count(config, tokenizer.vocab_size) < FASTER_THAN_GPU
        self._kernel = c_engine(config)[0] if length and is_in_c else None

    def write(self, model: GPT, interrupt: Interrupt, *, most: int = sys.maxsize) -> str:
        """A sample by `model`, whose weights are float32; empty if the length is 0. A signal cuts it short.

        It has at most `most` characters: the beginning of a whole one. decode.c copies the weights. Where there is no memory
        for a copy, torch writes the sample.
        """
        options = replace(self._options, length=min(most, self._options.limit))
        if not options.limit:
            return ""
        was_training = model.training
        model.eval()
        try:
            if self._kernel is not None:
                weights = {name: parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}
                try:
                    return self._text(c_writer(weights, self._config, kernel=self._kernel), options, interrupt)
                except MemoryError:
                    self._kernel = None
            return self._text(torch_writer(model), options, interrupt)
        finally:
            model.train(was_training)

    def _text(self, writer: Writer, options: SamplingOptions, interrupt: Interrupt) -> str:
        generator, seed = TextGenerator(writer=writer, tokenizer=self._tokenizer, options=options), options.seed or 0
        if not self._labels:
            pieces = itertools.takewhile(lambda _: not interrupt.came_here, generator.write([[]], [seed]))
            return "".join(text_of(characters) for (characters,) in pieces)
        labels = list(itertools.islice(itertools.cycle(self._labels), MAX_ITEMS))
        lines = sampled_items(generator, labels, range(seed, seed + MAX_ITEMS))
        return ("\n" if end_in(self._tokenizer) == "\n" else "\n\n").join(lines)[: options.limit]
