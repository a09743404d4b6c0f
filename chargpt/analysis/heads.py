"""What the heads of a model attend to: measures of each head, and the pattern that it follows.

A pattern says for each character which earlier ones it points to. Its score for a head is the share of the attention that goes
there, averaged over the characters for which the pattern points to any. Its score by chance is that of a head that attends to
all characters alike. Patterns other than the first two leave out the previous character, which is a pattern of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chargpt.analysis.characters import characters_of
from chargpt.runs.models import attention_of
from chargpt.sampling.loaded_model import LoadedModel

PATTERNS = {  # name: what it points to
    "itself": "the character itself",
    "previous": "the character before",
    "line start": "the first character of its line, and the newline before that",
    "same": "all earlier copies of the character",
    "after same": "what followed each earlier copy of the character (an induction head, arXiv 2209.11895)",
    "bracket": "the innermost bracket or quote that is open, or that the character closes",
}
PAIRS = dict(zip(")]}>”’»」』》）】", "([{<“‘«「『《（【"))
STRAIGHT = "\"'"  # quotes that open and close with the same character
MIN_CHARACTERS = 8  # for which a pattern points to something; with fewer, it is not measured
# A head is named after a pattern with at least this score, which is so many times that of uniform attention.
MIN_SCORE, MIN_TIMES = 0.3, 2.0


@dataclass(frozen=True, kw_only=True)
class Heads:
    """The attention of all heads on one text of T characters, and measures of it: arrays (n_layer, n_head), float64."""

    characters: Sequence[str]
    weights: Tensor  # (n_layer, n_head, T, T), float32
    entropy: np.ndarray  # bits, averaged over the characters from the second on
    distance: np.ndarray  # characters back, the mean weighted by attention, averaged likewise
    scores: dict[str, np.ndarray]  # of each pattern that the text has
    chance: dict[str, float]  # the score of uniform attention

    def name(self, layer: int, head: int) -> str:
        """The pattern that the head follows; empty if none stands out."""
        scores = {pattern: values[layer, head] for pattern, values in self.scores.items()}
        fitting = [p for p, score in scores.items() if score >= max(MIN_SCORE, MIN_TIMES * self.chance[p])]
        return max(fitting, key=lambda pattern: scores[pattern], default="")

    def most_telling(self) -> tuple[int, int, str]:
        """The layer and the head that a reader sees first, and its pattern: the one with the score the most above chance.

        The character before counts only where no other pattern has MIN_TIMES the score of chance. On a text too short for any
        pattern, it is the first head, without one.
        """
        gains = {
            (*divmod(int(scores.argmax()), scores.shape[1]), name): float(scores.max()) - self.chance[name]
            for name, scores in sorted(self.scores.items())
            if name != "itself"
        }
        clear = {place: gain for place, gain in gains.items() if gain >= (MIN_TIMES - 1) * self.chance[place[2]]}
        telling = {place: gain for place, gain in clear.items() if place[2] != "previous"} or clear
        return max(telling, key=lambda place: telling[place], default=(0, 0, ""))


@torch.inference_mode()
def measure_attention(loaded: LoadedModel, ids: np.ndarray) -> Heads:
    """The attention of all heads on `ids` (T,), at most block_size."""
    idx = torch.from_numpy(ids).to(loaded.model.token_embedding.weight.device)
    return measure_heads(attention_of(loaded.model, idx[None])[:, 0].float().cpu(), characters_of(ids, loaded.tokenizer))


def measure_heads(weights: Tensor, characters: Sequence[str]) -> Heads:
    """The heads with these attention weights (n_layer, n_head, T, T) on a text of T `characters`."""
    T = len(characters)
    rows = torch.arange(T)
    back = (rows[:, None] - rows).clamp(min=0).to(weights.dtype)  # (T, T)
    masks = {name: torch.from_numpy(mask) for name, mask in pattern_masks(characters).items()}
    pointing = {name: mask.any(dim=1) for name, mask in masks.items()}
    masks = {name: mask for name, mask in masks.items() if pointing[name].sum() >= MIN_CHARACTERS}
    chance = {name: (mask.sum(dim=1) / (rows + 1).double())[pointing[name]].mean().item() for name, mask in masks.items()}
    entropy, distance = [], []
    scores: dict[str, list[Tensor]] = {name: [] for name in masks}
    for layer in weights:  # (h, T, T); one at a time bounds the memory
        later = slice(min(1, T - 1), None)
        entropy.append(-torch.special.xlogy(layer, layer).sum(dim=-1)[:, later].double().mean(dim=1) / np.log(2))
        distance.append((layer * back).sum(dim=-1)[:, later].double().mean(dim=1))
        for name, mask in masks.items():
            share = torch.where(mask, layer, 0).sum(dim=-1)
            scores[name].append(share[:, pointing[name]].double().mean(dim=1))
    return Heads(
        characters=characters,
        weights=weights,
        entropy=torch.stack(entropy).numpy(),
        distance=torch.stack(distance).numpy(),
        scores={name: torch.stack(values).numpy() for name, values in scores.items()},
        chance=chance,
    )


def pattern_masks(characters: Sequence[str]) -> dict[str, np.ndarray]:
    """For each pattern, where it points: (T, T), True at [t, s] if character t points to character s."""
    T = len(characters)
    _, ids = np.unique(list(characters), return_inverse=True)
    t, s = np.arange(T)[:, None], np.arange(T)
    earlier = s < t - 1
    same = ids[:, None] == ids
    after_same = np.zeros_like(same)
    after_same[:, 1:] = same[:, :-1]
    is_first = np.array(["\n", *characters[:-1]]) == "\n"  # of its line; a newline belongs to the line that it ends
    start, bracket = np.maximum.accumulate(np.where(is_first, s, 0))[:, None], open_brackets(characters)[:, None]
    return {
        "itself": (s == t) & (t > 0),
        "previous": s == t - 1,
        "line start": ((s == start) | (s == start - 1)) & earlier,
        "same": same & earlier,
        "after same": after_same & earlier,
        "bracket": (s == bracket) & earlier,
    }


def open_brackets(characters: Sequence[str]) -> np.ndarray:
    """For each character, the place of the innermost bracket or quote that is open before it, -1 if there is none, (T,).

    For one that closes a bracket or quote, the place of that. Apostrophes are not quotes: ' opens only after a character that
    is not alphanumeric, and closes only before one. An empty line closes everything.
    """
    places: list[int] = []
    stack: list[tuple[int, str]] = []  # place and character of what is open
    for place, character in enumerate(characters):
        before = characters[place - 1] if place else "\n"
        after = characters[place + 1] if place + 1 < len(characters) else "\n"
        if character == before == "\n":
            stack = []
        opener = PAIRS.get(character, character if character in STRAIGHT else None)
        closes = opener is not None and any(opener == c for _, c in stack)
        if closes and not (character in "'’" and after.isalnum()):
            while stack[-1][1] != opener:
                stack.pop()
            places.append(stack.pop()[0])
            continue
        places.append(stack[-1][0] if stack else -1)
        is_quote = character == '"' or character == "'" and not before.isalnum() and not after.isspace()
        if is_quote or character in PAIRS.values():
            stack.append((place, character))
    return np.array(places, np.int64)


def shrunk(levels: np.ndarray, axis: int, width: int) -> np.ndarray:
    """The largest of each of `width` groups of neighbours along an axis."""
    starts = (np.arange(width) * levels.shape[axis] + width - 1) // width
    return np.maximum.reduceat(levels, starts, axis=axis)
