"""A penalty on repeated passages.

A penalty on every character that has appeared, as used for tokens (CTRL, arXiv 1909.05858), would penalise the whole alphabet
at character level. Here the penalty applies only to a character that would extend a passage already in the text, and it grows
with the length of the passage (after DRY, oobabooga/text-generation-webui pull request 5677).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 1024  # the last characters of a text that are searched for repetitions
FREE = 10  # characters that may repeat without penalty: words, names, ends of lines


class Repetition:
    """The last WINDOW characters of B texts, and how many characters before each position match the end of the text."""

    def __init__(self, prompt: Tensor) -> None:
        """`prompt`: ids (B, T)."""
        self.ids = prompt[:, :0]
        self.matched = prompt[:, :0]  # how many characters up to each position equal those up to the end, (B, T)
        for ids in prompt[:, -WINDOW:].unbind(dim=1):
            self.append(ids)

    def append(self, ids: Tensor) -> None:
        """Append one id to each text, (B,)."""
        end = torch.zeros_like(ids).unsqueeze(1)  # the end is not compared with itself
        grown = (F.pad(self.matched, (1, 0))[:, : self.ids.size(1)] + 1) * (self.ids == ids.unsqueeze(1))
        self.ids = torch.cat((self.ids, ids.unsqueeze(1)), dim=1)[:, -WINDOW:]
        self.matched = torch.cat((grown, end), dim=1)[:, -WINDOW:]

    def excess(self, vocab_size: int) -> Tensor:
        """For each id, the length above FREE of the longest repetition that the id would extend, (B, vocab_size)."""
        matched = self.matched[:, :-1]
        within = torch.arange(1, matched.size(1) + 1, device=matched.device)  # what is left of a passage in the window
        excess = (matched.minimum(within) + 1 - FREE).clamp_min(0)
        none = torch.zeros(len(self.ids), vocab_size, dtype=excess.dtype, device=excess.device)
        return none.scatter_reduce(1, self.ids[:, 1:], excess, "amax")
