"""The samples of a model in training: the same start and the same random numbers each time, so that they can be compared."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch

from chargpt.config import ModelConfig
from chargpt.device import evaluating
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.sampling.c_texts import FASTER_THAN_GPU, c_engine, c_writer
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.writer import Writer
from chargpt.text.tokenizer import Tokenizer

MAX_ITEMS = 8  # of a sample at most


@dataclass
class SampleWriter:
    """Writes samples by models of one shape. Their random numbers are not those of the training."""

    tokenizer: Tokenizer
    config: ModelConfig
    _: KW_ONLY
    device: torch.device
    length: int  # characters of a sample
    seed: int
    labels: Sequence[str] = ()  # with some, the sample is items of these labels in turn; a label "" is an item without one

    def __post_init__(self) -> None:
        is_in_c = self.device.type == "cpu" or parameter_count(self.config, self.tokenizer.vocab_size) < FASTER_THAN_GPU
        self._kernel = c_engine(self.config)[0] if self.length and is_in_c else None

    def write(self, model: GPT, interrupt: Interrupt, *, most: int = sys.maxsize) -> str:
        """A sample by `model`, whose weights are float32; empty if the length is 0. A signal cuts it short.

        It has at most `most` characters: the beginning of a whole one. decode.c copies the weights. Where there is no memory
        for a copy, torch writes the sample.
        """
        if not self.length:
            return ""
        options = SamplingOptions(length=min(most, self.length), seed=self.seed)
        with evaluating(model):
            if self._kernel is not None:
                weights = {name: parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}
                try:
                    return self._text(c_writer(weights, self.config, kernel=self._kernel), options, interrupt)
                except MemoryError:
                    self._kernel = None
            from chargpt.sampling.torch_texts import torch_writer

            return self._text(torch_writer(model), options, interrupt)

    def _text(self, writer: Writer, options: SamplingOptions, interrupt: Interrupt) -> str:
        tokenizer, seed, made = self.tokenizer, self.seed, list[int]()
        if not self.labels:
            never, pieces = tokenizer.never_sampled, writer.pieces
            for new, _ in pieces([[tokenizer.first_id]], options.limit, options, seeds=[seed], never_sampled=never):
                if interrupt.came_here:
                    break
                made += new[:, 0].tolist()
            return tokenizer.decode(made)
        from chargpt.sampling.item_writer import sampled_items
        from chargpt.sampling.text_generator import TextGenerator
        from chargpt.text.item_stream import end_in

        generator = TextGenerator(writer=writer, tokenizer=tokenizer, options=options)
        labels = list(itertools.islice(itertools.cycle(self.labels), MAX_ITEMS))
        lines = sampled_items(generator, labels, range(seed, seed + MAX_ITEMS))
        return ("\n" if end_in(tokenizer) == "\n" else "\n\n").join(lines)[: options.limit]
