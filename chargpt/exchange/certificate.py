"""The certificate of an export: its program computes what the run computes, on a real text, at every position."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chargpt.exchange.export import ExportOptions
from chargpt.runs.load import corpus_in_cache, without_cache
from chargpt.sampling.decoder import stream
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.prompt import first_id
from chargpt.sampling.rules import Sampling
from chargpt.terminal import UserError

# Characters of greedy text that are compared.
GREEDY = 100
# The bound as a share of the largest logit: float32 has 7 digits, and a model adds up thousands of products.
ROUNDING = 1e-5

LogitsOf = Callable[[np.ndarray], np.ndarray]  # ids (B, T) int64 -> logits (B, T, V), or logarithms of probabilities
LastOf = Callable[[np.ndarray], np.ndarray]  # ids (T,) int64 -> those after the last one, (V,)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What was compared, and the result."""

    target: str  # the program and its version
    text: str  # what the logits were compared on
    largest: float  # difference of logits
    bound: float  # what it may be
    greedy: int  # characters of greedy text that are equal
    quantity: str = "logits"

    def describe(self) -> str:
        """One line: a sentence without its full stop."""
        return (
            f"{self.target}: {self.quantity} on {self.text} differ by at most {self.largest:.1e} (bound {self.bound:.1e}), "
            f"and {self.greedy} characters of greedy text are equal"
        )


@torch.inference_mode()
def certify(
    loaded: LoadedModel,
    logits_of: LogitsOf,
    options: ExportOptions,
    *,
    target: str,
    tolerance: float = ROUNDING,
    longest: int | None = None,
    log_probabilities: bool = False,
    last_of: LastOf | None = None,
) -> Certificate:
    """Compare the logits of a loaded export with those of the run; with `log_probabilities`, their logarithms of probabilities.

    The bound is `tolerance` times the largest logit, at least `tolerance` times 10. `longest` is the longest text that the
    target takes (None: block_size). `last_of` is for a target that computes each position by itself. Raises UserError if the
    bound is exceeded, or if greedy texts differ where the run's choice is not a matter of rounding.
    """
    longest = longest or loaded.model.config.block_size
    last_of = last_of or (lambda ids: logits_of(ids[None])[0, -1])
    largest, scale = 0.0, 10.0
    for window in windows(options.ids, longest):
        expected = loaded.model(torch.from_numpy(window))
        scale = max(scale, expected.abs().max().item())
        if log_probabilities:
            expected = expected.log_softmax(dim=-1)
        found = torch.from_numpy(np.asarray(logits_of(window), np.float32))
        if found.shape != expected.shape:
            raise UserError(f"{target}: logits of shape {tuple(found.shape)}, not {tuple(expected.shape)}; nothing was written")
        difference = (found - expected).abs().max().item()
        largest = max(largest, difference if difference == difference else float("inf"))
    bound = tolerance * scale
    if largest > bound:
        raise UserError(f"{target}: logits differ by {largest:.1e}, more than {bound:.1e}; nothing was written")
    return Certificate(
        target=target,
        text=options.ids_from,
        largest=largest,
        bound=bound,
        greedy=equal_greedy(loaded, last_of, options.ids, target=target, longest=longest, bound=bound),
        quantity="log-probabilities" if log_probabilities else "logits",
    )


def windows(ids: np.ndarray, longest: int) -> list[np.ndarray]:
    """`ids` cut into windows (1, T) of `longest`, and two windows (2, T) of different texts and half that length."""
    cut = [ids[None, start : start + longest] for start in range(0, len(ids), longest)]
    half = min(len(ids), longest) // 2
    return [*cut, np.stack((ids[:half], ids[-half:]))] if half else cut


def equal_greedy(loaded: LoadedModel, last_of: LastOf, ids: np.ndarray, *, target: str, longest: int, bound: float) -> int:
    """How many characters of greedy text are the same, up to GREEDY, in a text of at most `longest`.

    The comparison ends early where two characters are equally likely within `bound`. Raises UserError for any other difference.
    """
    text = ids[: max(1, longest // 2)]
    length = min(GREEDY, longest - len(text))
    forbidden = list(loaded.tokenizer.never_sampled)
    for made in range(length):
        expected = loaded.model(torch.from_numpy(text[None]))[0, -1]
        found = torch.from_numpy(np.array(last_of(text), np.float32))
        ours, theirs = (_most_likely(logits, forbidden) for logits in (expected, found))
        if ours != theirs:
            if (expected[ours] - expected[theirs]).item() <= 2 * bound:
                return made
            raise UserError(f"{target}: the greedy text differs after {made} characters; nothing was written")
        text = np.append(text, ours)
    return length


def _most_likely(logits: Tensor, forbidden: Sequence[int]) -> int:
    return int(logits.index_fill(0, torch.tensor(forbidden, dtype=torch.long), float("-inf")).argmax())


def reference_text(loaded: LoadedModel, *, root: Path, length: int) -> tuple[np.ndarray, str]:
    """At most `length` ids of the run's validation text, (n,) int64, n >= 2, and where they come from, in words.

    If the encoded text is no longer in the cache in `root`, the model writes a text instead.
    """
    config = without_cache(loaded.config)  # a run from elsewhere must not choose what is read here
    corpus = corpus_in_cache(config, loaded.tokenizer, loaded.fingerprint, root=root)
    if corpus is not None and len(corpus.val) > 1:
        ids = np.asarray(corpus.val[:length], np.int64)
        return ids, f"the first {len(ids):,} {_unit(loaded)} of the validation text"
    prompt = torch.tensor([[first_id(loaded.tokenizer)]])
    generator = torch.Generator().manual_seed(0)
    length = min(length, 2 * loaded.model.config.block_size)
    written = stream(
        loaded.model,
        prompt,
        length,
        Sampling(temperature=1.0),
        generator=generator,
        never_sampled=loaded.tokenizer.never_sampled,
    )
    ids = np.array([int(i) for i in written], np.int64)
    return ids, f"{len(ids):,} {_unit(loaded)} that the model wrote, because its text is not in the cache"


def _unit(loaded: LoadedModel) -> str:
    return "bytes" if loaded.tokenizer.characters is None else "characters"
