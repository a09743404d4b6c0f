"""What the faster ways of writing cost: the loss of each `--precision`, and of `--overflow refill` against `exact`.

    python tests/benchmarks/sample_quality.py TEXT RUN [RUN ...] [--cycles N]

The losses are of the last tenth of TEXT, in nats per character. With each precision, it is the validation loss, in windows that
begin without context. Past the context, refill predicts with a half to a full context and exact with a full one. Both predict the
same characters: whole cycles of refill, spread evenly. The error is the standard error of the difference's mean over cycles.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from chargpt.sampling.loaded_model import load_model  # noqa: E402
from chargpt.sampling.precision import PRECISIONS  # noqa: E402
from chargpt.sampling.surprisal import surprisals  # noqa: E402
from model import GPT  # noqa: E402


@torch.inference_mode()
def losses(model: GPT, windows: Tensor, first: int) -> Tensor:
    """The losses of the predictions from `first` on in windows (B, T + 1), (B, T - first)."""
    logits = model(windows[:, :-1])[:, first:]
    return F.cross_entropy(logits.transpose(1, 2), windows[:, 1 + first :], reduction="none")


def refill_against_exact(model: GPT, ids: Tensor, cycles: int) -> tuple[float, float, float]:
    """The mean losses of refill and exact, and the standard error of their difference."""
    T = model.config.block_size
    half = max(1, T // 2)
    pairs = []
    for end in torch.linspace(2 * T, len(ids) - 1, cycles).long().tolist():
        refill = losses(model, ids[end - T : end + 1][None], half - 1)[0]  # after half, half + 1, ... T ids
        exact = losses(model, ids[end - len(refill) + 1 - T : end + 1].unfold(0, T + 1, 1), T - 1)[:, 0]
        pairs.append((refill.mean().item(), exact.mean().item()))
    refill, exact = np.array(pairs).T
    return refill.mean(), exact.mean(), (refill - exact).std() / math.sqrt(cycles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--cycles", type=int, default=500)
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    print("| run | loss | " + " | ".join(f"{name}, more" for name in PRECISIONS[1:]) + " | exact | refill, more | error |")
    print("|---|---|---|---|---|---|---|")
    for run in arguments.runs:
        values = []
        for precision in PRECISIONS:
            loaded, _ = load_model(run, ROOT / "checkpoints", device="cpu", precision=precision)
            ids = np.array(loaded.tokenizer.encode_known(text[len(text) * 9 // 10 :])[0], np.int64)
            parts = surprisals(loaded.model, [ids], stride=loaded.model.config.block_size)
            values.append(sum(part.sum(dtype=np.float64) for part in parts) / (len(ids) - 1))
            if precision == "float32":
                refill, exact, error = refill_against_exact(loaded.model, torch.from_numpy(ids), arguments.cycles)
        more = " | ".join(f"{value - values[0]:+.5f}" for value in values[1:])
        print(f"| {run} | {values[0]:.4f} | {more} | {exact:.4f} | {refill - exact:+.4f} | {error:.4f} |", flush=True)


if __name__ == "__main__":
    main()
