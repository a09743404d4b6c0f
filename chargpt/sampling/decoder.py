"""The decoder: a trained model that continues texts, character by character, with a key/value cache."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chargpt.model import GPT
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.repetition import Repetition
from chargpt.sampling.rules import NEVER, choose


class Piece(NamedTuple):
    """The next n characters of B texts."""

    ids: Tensor  # (n, B)
    log_probabilities: Tensor  # of each id under the model itself, before any sampling rule, in nats, (n, B)


class Decoder:
    """A model and the state of B growing texts.

    Up to block_size characters, the cache makes the cost of a character independent of the length of the text. Beyond that,
    the definition is that of GPT.generate: the model reads the last block_size characters, starting at position 0. Every
    character then has a new position and a shorter past, so no cached key or value is valid. `overflow` selects what happens:
    `refill` drops half of a full window and reads the rest again, which reads about two characters for each one written but
    forgets half of the context each time; `exact` reads the whole window again for each new character.
    """

    def __init__(self, model: GPT, batch_size: int, *, overflow: str = "refill") -> None:
        self.model = model
        self.overflow = overflow
        self.length = 0  # characters of the window that are in the cache
        self.window = torch.empty(batch_size, 0, dtype=torch.long, device=model.token_embedding.weight.device)

    def place(self, new: Tensor) -> tuple[int, Tensor]:
        """Append ids `new` (B, T), T <= block_size. Returns the position to read from and the ids to read from there."""
        block_size = self.model.config.block_size
        start, ids = self.length, new
        self.window = torch.cat((self.window, new), dim=1)[:, -block_size:]
        if start + new.size(1) > block_size:
            if self.overflow == "refill":
                self.window = self.window[:, -max(1, block_size // 2) :]
            start, ids = 0, self.window
        self.length = start + ids.size(1)
        return start, ids

    def read(self, new: Tensor) -> Tensor:
        """Append ids `new` (B, T), T <= block_size. Returns the logits (B, V) of the next character."""
        start, ids = self.place(new)
        if start == 0:
            self.cache = self.model.new_cache(len(ids))
        return self.model(ids, cache=self.cache)[:, -1].float()

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
        """Append ids `new` (B, T), T <= block_size, and choose from 1 to `limit` ids that follow. The last one is not appended.

        `forbidden` are ids that are never chosen. `penalty` (B, V) is subtracted from the logits; with it, one id is chosen.
        """
        logits = self.read(new)
        adjusted = logits.index_fill(-1, forbidden, NEVER)
        ids = choose(adjusted if penalty is None else adjusted - penalty, sampling, generators=generators)
        log_probabilities = logits.log_softmax(dim=-1).gather(-1, ids.unsqueeze(-1))  # (B, 1)
        return Piece(ids.unsqueeze(0), log_probabilities.T)


@torch.inference_mode()
def pieces(
    decoder: Decoder,
    prompt: Tensor,
    length: int,
    sampling: SamplingOptions,
    *,
    generator: torch.Generator | Sequence[torch.Generator],
    never_sampled: Sequence[int] = (),
) -> Iterator[Piece]:
    """Continue each row of ids `prompt` (B, T), T > 0, by `length` ids, and yield them as they are made.

    `decoder` is a new one for B texts. `generator` is a list with one generator per row, or one generator for a single row.
    The generators advance, so the next call continues their random numbers. `never_sampled` are ids that are never chosen; at
    least one id must remain. The model returns to its training or evaluation mode at the end.
    """
    model = decoder.model
    generators = [generator] if isinstance(generator, torch.Generator) else generator
    assert len(generators) == len(prompt) and prompt.size(1) > 0, (len(generators), prompt.shape)
    forbidden = torch.tensor(never_sampled, dtype=torch.long, device=prompt.device)
    repetition = Repetition(prompt) if sampling.repetition_penalty > 1 else None
    was_training = model.training
    if was_training:  # otherwise there is nothing to do; visiting every module takes as long as writing twenty characters
        model.eval()
    try:
        new = prompt[:, -model.config.block_size :]
        while length > 0:
            penalty = math.log(sampling.repetition_penalty) * repetition.excess(model.vocab_size) if repetition else None
            piece = decoder.write(new, length, sampling, generators=generators, forbidden=forbidden, penalty=penalty)
            yield piece
            length -= len(piece.ids)
            new = piece.ids[-1:].T
            if repetition:
                repetition.append(piece.ids[0])
    finally:
        if was_training:
            model.train()


def stream(
    model: GPT,
    prompt: Tensor,
    length: int,
    sampling: SamplingOptions,
    *,
    decoder: Callable[..., Decoder] = Decoder,
    overflow: str = "refill",
    **options: Any,
) -> Iterator[Tensor]:
    """The ids (B,) that `pieces` makes with a new `decoder`, one step at a time. `options` are those of `pieces`."""
    with torch.inference_mode():
        new = decoder(model, len(prompt), overflow=overflow)
    return (ids for piece in pieces(new, prompt, length, sampling, **options) for ids in piece.ids)


@dataclass(frozen=True)
class ModelWriter:
    """A model in torch and a class of decoders, as a `Writer`."""

    model: GPT
    decoder: Callable[..., Decoder] = Decoder

    def pieces(
        self,
        prompts: Sequence[Sequence[int]],
        length: int,
        options: SamplingOptions,
        *,
        seeds: Sequence[int],
        never_sampled: Sequence[int],
    ) -> Iterator[Piece]:
        prompt = torch.tensor(prompts, device=self.model.token_embedding.weight.device)  # (B, T)
        with torch.inference_mode():
            decoder = self.decoder(self.model, len(seeds), overflow=options.overflow)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return pieces(decoder, prompt, length, options, generator=generators, never_sampled=never_sampled)
