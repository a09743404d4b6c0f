"""The engine of an exported page under Node.js, so that its logits and its text can be compared with PyTorch's."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from chargpt.terminal import UserError

SCRIPT = Path(__file__).with_name("page_check.js")
MAX_SECONDS = 600


def find_node() -> str | None:
    """The path of Node.js; None if it is not installed."""
    return shutil.which("node")


def run_engine(
    node: str, page: Path, windows: Sequence[Sequence[int]], *, vocab_size: int, length: int, engine: str = "WebAssembly"
) -> tuple[np.ndarray, list[int]]:
    """What the engine of `page` computes: logits, and `length` ids that greedily continue the first of `windows`.

    Each window has at most block_size ids. The logits, float32, have a row for each id of each window. `engine` is
    "WebAssembly" or "JavaScript", what browsers without WebAssembly use. Raises UserError if Node.js fails.
    """
    question = {
        "windows": [[int(id) for id in window] for window in windows],
        "prompt": [int(id) for id in windows[0]],
        "length": length,
        "webAssembly": engine == "WebAssembly",
    }
    # The page and its script are read by Node.js as files. Nothing that comes from the run is in the command.
    command = [node, "--max-old-space-size=8192", str(SCRIPT), str(page)]
    try:
        done = subprocess.run(command, input=json.dumps(question).encode(), capture_output=True, timeout=MAX_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{node}: {error}; remove it from PATH to export without this check") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise UserError(f"{node}: {' '.join(reason)}; remove it from PATH to export without this check")
    rows = sum(map(len, windows))
    logits = np.frombuffer(done.stdout, "<f4", rows * vocab_size).reshape(rows, vocab_size)
    return logits, np.frombuffer(done.stdout, "<i4", offset=logits.nbytes).tolist()
