"""What repeats in a growing text.

A penalty on every character seen before, as for tokens (CTRL, arXiv 1909.05858), would at character level punish the whole
alphabet. What should not repeat is a run of text: the penalty falls on the character that would lengthen a passage which
has stood in the text already, the more the longer it is (after DRY, oobabooga/text-generation-webui pull request 5677).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 1024  # characters looked back on
FREE = 10  # characters that may repeat without penalty: words, names, endings of lines


class Repetition:
    """The last WINDOW characters of B texts, and how far each place in them agrees with the end of its text."""

    def __init__(self, prompt: Tensor) -> None:
        """`prompt`: ids (B, T)."""
        self.ids = prompt[:, :0]
        self.agreement = prompt[:, :0]  # characters up to each place that equal those up to the end, (B, T)
        for ids in prompt[:, -WINDOW:].unbind(dim=1):
            self.append(ids)

    def append(self, ids: Tensor) -> None:
        """Add one id to each text, (B,)."""
        end = torch.zeros_like(ids).unsqueeze(1)  # the new end is no place to agree with yet
        grown = (F.pad(self.agreement, (1, 0))[:, : self.ids.size(1)] + 1) * (self.ids == ids.unsqueeze(1))
        self.ids = torch.cat((self.ids, ids.unsqueeze(1)), dim=1)[:, -WINDOW:]
        self.agreement = torch.cat((grown, end), dim=1)[:, -WINDOW:]

    def excess(self, vocab_size: int) -> Tensor:
        """By how many characters the longest repetition that an id would lengthen exceeds FREE, (B, vocab_size)."""
        excess = (self.agreement[:, :-1] + 1 - FREE).clamp_min(0)
        none = torch.zeros(len(self.ids), vocab_size, dtype=excess.dtype, device=excess.device)
        return none.scatter_reduce(1, self.ids[:, 1:], excess, "amax")
