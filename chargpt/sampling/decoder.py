"""From logits to the next character, and a stream of characters through the cache.

What is drawn: each row of a batch has a random generator of its own, and every character takes from it one exponential
number for each id of the vocabulary; the id with the largest probability / number wins. That is how torch.multinomial draws
one id (the "exponential race", or Gumbel-max: arXiv 1411.0030), so a row is what `GPT.generate` writes from the same
generator. It also means that a row does not depend on the rows beside it, and that a character depends on the seed and
its place in the stream, not on how its logits were computed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.sampling.repetition import Repetition
from chargpt.text.tokenizer import Tokenizer
from model import GPT

OVERFLOWS = ("exact", "refill")
NEVER = -math.inf


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next character is chosen. Applied in this order, each to what the one before left.

    Raises ValueError, beginning with the field's name, for a value that means nothing.
    """

    repetition_penalty: float = 1.0  # what a passage already written loses with each further character; 1 is off
    temperature: float = 0.8  # 0 takes the likeliest character; 1 is the model as trained
    top_k: int = 0  # keep the k likeliest; 0 keeps all
    top_p: float = 1.0  # keep the fewest characters whose probabilities reach p; 1 keeps all
    min_p: float = 0.0  # keep what is at least min_p times as likely as the likeliest; 0 keeps all

    def __post_init__(self) -> None:
        for name, allowed, use in (
            ("repetition_penalty", 1 <= self.repetition_penalty < math.inf, "a number of 1 (off) or more"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (always the likeliest) or a number above 0"),
            ("top_k", self.top_k >= 0, "a whole number of 0 (off) or more"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0 and up to 1 (off)"),
            ("min_p", 0 <= self.min_p <= 1, "a number from 0 (off) to 1"),
        ):
            if not allowed:
                raise ValueError(f"{name}: {getattr(self, name)} given; use {use}")

    def describe(self) -> str:
        """The temperature, and whatever else is on."""
        on = [field for field in fields(self) if field.name == "temperature" or getattr(self, field.name) != field.default]
        return ", ".join(f"{field.name.replace('_', ' ')} {getattr(self, field.name):g}" for field in on)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Rule out all but the k largest of each row of logits (B, V). What ties with the k-th stays too: no order is made up."""
    kth = logits.topk(min(k, logits.size(-1)), dim=-1).values[:, -1:]
    return logits.masked_fill(logits < kth, NEVER)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Rule out all but the fewest ids of each row of logits (B, V) whose probabilities sum to p or more.

    Nucleus sampling (arXiv 1904.09751). At least one id stays; of equally likely ones the lower id goes first.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.softmax(dim=-1).cumsum(dim=-1)
    before = F.pad(mass[:, :-1], (1, 0))  # the probability of everything likelier, (B, V)
    return logits.masked_fill((before >= p).gather(-1, order.argsort(dim=-1)), NEVER)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Rule out what is less than min_p times as likely as the likeliest of its row; logits (B, V). arXiv 2407.01082."""
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < min_p * probs.amax(dim=-1, keepdim=True), NEVER)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities (B, V) that `sampling`, at a temperature above 0, draws from; logits (B, V)."""
    # With the largest at 0 no temperature, however small, overflows; the softmax is the same.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(sampling.temperature, 1e-30)
    if sampling.top_k:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p:
        logits = keep_min_p(logits, sampling.min_p)
    return logits.softmax(dim=-1)


def draw(probs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """An id for each row of probs (B, V) by the row's own generator, (B,)."""
    V = probs.size(-1)
    noise = torch.stack([torch.empty(V, device=g.device).exponential_(generator=g) for g in generators]).to(probs.device)
    # A generator may give an exact 0, and 0 / 0 would let an impossible id win.
    return (probs / noise.clamp_min_(torch.finfo(noise.dtype).tiny)).argmax(dim=-1)


def choose(logits: Tensor, sampling: Sampling, *, generators: Sequence[torch.Generator]) -> Tensor:
    """The next id of each row of logits (B, V), (B,)."""
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    return draw(distribution(logits, sampling), generators)


class Piece(NamedTuple):
    """The next n characters of B texts."""

    ids: Tensor  # (n, B)
    log_probabilities: Tensor  # what the model itself thinks of them, whatever the settings, in nats, (n, B)


class Scribe:
    """A model at work on B growing texts: hand in what is new, and it goes on from there.

    Up to block_size the cache makes a character cost a character. Beyond it the definition is GPT.generate's: the model sees
    the last block_size characters, from position 0. Every kept character then has a new position and a shorter past, so no
    cached key or value holds, and `exact` reads the whole window again each time. `refill` is another, well-defined process:
    when the block is full, half of it is dropped and the rest read again, about two characters read for each written.
    """

    def __init__(self, model: GPT, batch_size: int, *, overflow: str = "exact") -> None:
        assert overflow in OVERFLOWS, overflow
        self.model = model
        self.overflow = overflow
        self.length = 0  # characters of the window that are in the cache
        self.window = torch.empty(batch_size, 0, dtype=torch.long, device=model.token_embedding.weight.device)

    def place(self, new: Tensor) -> tuple[int, Tensor]:
        """Append ids `new` (B, T), at most block_size of them: the position to read from, and the ids to read from there."""
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
        """Append ids `new` (B, T), at most block_size of them; the logits (B, V) of the next."""
        start, ids = self.place(new)
        if start == 0:
            self.cache = self.model.new_cache(len(ids))
        return self.model(ids, cache=self.cache)[:, -1].float()

    def write(
        self,
        new: Tensor,
        limit: int,
        sampling: Sampling,
        *,
        generators: Sequence[torch.Generator],
        forbidden: Tensor,
        penalty: Tensor | None = None,
    ) -> Piece:
        """Append ids `new` (B, T), at most block_size of them; from 1 up to `limit` ids that follow, not yet appended.

        `forbidden` are ids that must not come. `penalty` (B, V) is taken from the first logits; with it there is one id.
        """
        logits = self.read(new)
        adjusted = logits.index_fill(-1, forbidden, NEVER)
        ids = choose(adjusted if penalty is None else adjusted - penalty, sampling, generators=generators)
        log_probabilities = logits.log_softmax(dim=-1).gather(-1, ids.unsqueeze(-1))  # (B, 1)
        return Piece(ids.unsqueeze(0), log_probabilities.T)


@torch.inference_mode()
def pieces(
    model: GPT,
    prompt: Tensor,
    length: int,
    sampling: Sampling,
    *,
    generator: torch.Generator | Sequence[torch.Generator],
    never_sampled: Sequence[int] = (),
    overflow: str = "exact",
    scribe: Callable[..., Scribe] = Scribe,
) -> Iterator[Piece]:
    """Continue each row of ids `prompt` (B, T), T > 0, by `length` ids, yielding them as they are made.

    `generator` is one for each row, or the only one of a single row; they advance, so that the next call goes on drawing.
    `never_sampled` are ids that must not come, and not all there are. `overflow` says what happens past block_size, and
    `scribe` who does the work, see `Scribe`. The model is left in the mode it was found in.
    """
    generators = [generator] if isinstance(generator, torch.Generator) else generator
    assert len(generators) == len(prompt) and prompt.size(1) > 0, (len(generators), prompt.shape)
    forbidden = torch.tensor(never_sampled, dtype=torch.long, device=prompt.device)
    repetition = Repetition(prompt) if sampling.repetition_penalty > 1 else None
    vocab_size = model.token_embedding.num_embeddings
    was_training = model.training
    model.eval()
    try:
        writing = scribe(model, len(prompt), overflow=overflow)
        new = prompt[:, -model.config.block_size :]
        while length > 0:
            penalty = math.log(sampling.repetition_penalty) * repetition.excess(vocab_size) if repetition else None
            piece = writing.write(new, length, sampling, generators=generators, forbidden=forbidden, penalty=penalty)
            yield piece
            length -= len(piece.ids)
            new = piece.ids[-1:].T
            if repetition:
                repetition.append(piece.ids[0])
    finally:
        model.train(was_training)


def stream(model: GPT, prompt: Tensor, length: int, sampling: Sampling, **options: Any) -> Iterator[Tensor]:
    """The ids (B,) of `pieces`, which has the same arguments, one by one."""
    return (ids for piece in pieces(model, prompt, length, sampling, **options) for ids in piece.ids)


def first_id(tokenizer: Tokenizer) -> int:
    """Where a text with no prompt starts from: a newline, or the first character that may be sampled if there is none."""
    newline, _ = tokenizer.encode_known("\n")
    return next(int(id) for id in (*newline, *range(tokenizer.vocab_size)) if id not in tokenizer.never_sampled)
