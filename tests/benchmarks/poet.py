"""What a person with a short text gets: the default, one and two minutes, and a start from another run.

    python tests/benchmarks/poet.py TEXT [TEXT ...] [--init-from RUN] [--seeds 1,2,3] [--ways default,1,2,start] [SETTING ...]

Each training is a whole process, as a person types it, one after the other. The loss is that of the best checkpoint, which
sample.py uses. The seconds are those of the process, import of torch and report included. RUN has to be one on another text.
The table is Markdown. SETTINGs such as runtime.threads=1 are for every training.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
WAYS = {"default": [], "1": ["--minutes", "1"], "2": ["--minutes", "2"], "start": ["--init-from"]}


class Result(NamedTuple):
    """How a training ended."""

    loss: float  # of the best checkpoint, nats per character
    start: float | None  # before the first step, of a run from a start
    mark: float  # of an n-gram model
    seconds: float


def train(text: Path, words: list[str], *, seed: int, settings: list[str]) -> Result:
    """Train in a process of its own, in a folder that is then removed."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, str(ROOT / "train.py"), str(text), *words, "--run", str(run), f"train.seed={seed}"]
        started = time.perf_counter()
        done = subprocess.run([*command, f"data.cache={folder}/cache", *settings], capture_output=True, text=True)
        seconds = time.perf_counter() - started
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
        said = re.sub(r"\s+", " ", done.stdout)
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        losses = [values["val/loss"] for line in lines if "val/loss" in (values := json.loads(line))]
        mark = float(re.search(r"n-gram model\D*([\d.]+)", said)[1])
        shutil.rmtree(run)
        start = losses[0] if "--init-from" in words else None
        return Result(min(losses), start, mark, seconds)


def row(text: Path, way: str, results: list[Result]) -> str:
    """A line of the table."""
    losses = ", ".join(f"{result.loss:.3f}" for result in results)
    mean = statistics.mean(result.loss for result in results)
    starts = [result.start for result in results if result.start is not None]
    start = f"{statistics.mean(starts):.3f}" if starts else ""
    seconds = statistics.median(result.seconds for result in results)
    cells = text.stem, f"{text.stat().st_size:,}", way, start, f"{mean:.3f}", losses, f"{results[0].mark:.2f}"
    return f"| {' | '.join(cells)} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="TEXT", help="texts, and settings as section.key=value")
    parser.add_argument("--init-from", metavar="RUN", help="a run on another text; without it, no training starts from one")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--ways", default="default,1,2,start", help=f"some of {', '.join(WAYS)}")
    options = parser.parse_intermixed_args()
    texts = [Path(word) for word in options.words if "=" not in word]
    settings = [word for word in options.words if "=" in word]
    ways = [way for way in options.ways.split(",") if way != "start" or options.init_from]
    print("| text | bytes | training | start | loss, mean | losses | n-gram | seconds |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for text in texts:
        for way in ways:
            words = WAYS[way] + ([options.init_from] if way == "start" else [])
            results = [train(text, words, seed=int(seed), settings=settings) for seed in options.seeds.split(",")]
            print(row(text, way, results), flush=True)


if __name__ == "__main__":
    main()
