"""What the heads of a model do: how far and how widely each one looks, and how well it fits patterns that have a name.

A pattern says for each character which earlier ones it points to. Its score for a head is the share of the attention that goes
there, averaged over the characters for which the pattern points to any. Beside it stands the score of a head that attends to
all characters alike. The patterns other than the first two leave out the character before, which is a pattern of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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
MIN_CHARACTERS = 8  # for which a pattern must point to something, so that its score means something
MIN_SCORE, MIN_TIMES = 0.3, 2.0  # a head is named after a pattern with this score, and this many times that of chance


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """Measures of all heads on one text; arrays (n_layer, n_head), float64."""

    entropy: np.ndarray  # bits, averaged over the characters from the second on
    distance: np.ndarray  # characters back, the mean weighted by attention, averaged likewise
    scores: dict[str, np.ndarray]  # of each pattern that the text has
    chance: dict[str, float]  # the score of uniform attention

    def name(self, layer: int, head: int) -> str:
        """The pattern that the head follows; empty if none stands out."""
        scores = {pattern: values[layer, head] for pattern, values in self.scores.items()}
        fitting = [p for p, score in scores.items() if score >= max(MIN_SCORE, MIN_TIMES * self.chance[p])]
        return max(fitting, key=scores.get, default="")

    def most_telling(self) -> tuple[int, int]:
        """The layer and the head that a reader sees first: of those named after a pattern, the one with the highest score.

        The character before, and the character itself, count only where no head is named after another pattern. Without any
        named head, it is the one whose score is the most above that of chance.
        """
        layers, heads = self.entropy.shape
        every = [(layer, head) for layer in range(layers) for head in range(heads)]
        names = {place: name for place in every if (name := self.name(*place))}
        for wanted in ({*self.scores} - {"previous", "itself"}, {"previous"}):
            found = [place for place in every if names.get(place) in wanted]
            if found:
                return max(found, key=lambda place: self.scores[names[place]][place])
        gains = [scores - self.chance[name] for name, scores in self.scores.items() if name != "itself"]
        return max(every, key=lambda place: max((gain[place] for gain in gains), default=0.0))


def measure_heads(weights: Tensor, characters: Sequence[str]) -> HeadFacts:
    """The measures of the heads with these attention weights (n_layer, n_head, T, T) on a text of T `characters`."""
    T = len(characters)
    rows = torch.arange(T, device=weights.device)
    back = (rows[:, None] - rows).clamp(min=0).to(weights.dtype)  # (T, T)
    masks = {name: torch.from_numpy(mask).to(weights.device) for name, mask in pattern_masks(characters).items()}
    pointing = {name: mask.any(dim=1) for name, mask in masks.items()}
    masks = {name: mask for name, mask in masks.items() if pointing[name].sum() >= MIN_CHARACTERS}
    seen = (rows + 1).double()
    chance = {name: (mask.sum(dim=1) / seen)[pointing[name]].mean().item() for name, mask in masks.items()}
    entropy, distance = [], []
    scores: dict[str, list[Tensor]] = {name: [] for name in masks}
    for layer in weights:  # (h, T, T); one at a time bounds the memory
        later = slice(min(1, T - 1), None)
        entropy.append(-torch.special.xlogy(layer, layer).sum(dim=-1)[:, later].double().mean(dim=1) / np.log(2))
        distance.append((layer * back).sum(dim=-1)[:, later].double().mean(dim=1))
        for name, mask in masks.items():
            share = torch.where(mask, layer, 0).sum(dim=-1)
            scores[name].append(share[:, pointing[name]].double().mean(dim=1))
    return HeadFacts(
        entropy=torch.stack(entropy).cpu().numpy(),
        distance=torch.stack(distance).cpu().numpy(),
        scores={name: torch.stack(values).cpu().numpy() for name, values in scores.items()},
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
    start, bracket = line_starts(characters)[:, None], open_brackets(characters)[:, None]
    return {
        "itself": (s == t) & (t > 0),
        "previous": s == t - 1,
        "line start": ((s == start) | (s == start - 1)) & earlier,
        "same": same & earlier,
        "after same": after_same & earlier,
        "bracket": (s == bracket) & earlier,
    }


def line_starts(characters: Sequence[str]) -> np.ndarray:
    """For each character, the place of the first one of its line, (T,). A newline belongs to the line that it ends."""
    starts, start = [], 0
    for place, character in enumerate(characters):
        starts.append(start)
        if character == "\n":
            start = place + 1
    return np.array(starts, np.int64)


def open_brackets(characters: Sequence[str]) -> np.ndarray:
    """For each character, the place of the innermost bracket or quote that is open before it, -1 if there is none, (T,).

    For one that closes a bracket or quote, the place of that. An apostrophe is no quote: a single quote opens only after what
    is no letter or digit, and closes only before what is none. An empty line closes everything.
    """
    places, stack = [], []  # the stack holds (place, character) of what is open
    for place, character in enumerate(characters):
        before = characters[place - 1] if place else "\n"
        after = characters[place + 1] if place + 1 < len(characters) else "\n"
        if character == before == "\n":
            stack = []
        opener = PAIRS.get(character, character if character in STRAIGHT else None)
        closes = opener is not None and any(opener == c for _, c in stack)
        if character == "'" or character == "’":
            closes = closes and not after.isalnum()
        if closes:
            while stack[-1][1] != opener:
                stack.pop()
            places.append(stack.pop()[0])
            continue
        places.append(stack[-1][0] if stack else -1)
        if (
            character in PAIRS.values()
            or character == '"'
            or (character == "'" and not before.isalnum() and not after.isspace())
        ):
            stack.append((place, character))
    return np.array(places, np.int64)
