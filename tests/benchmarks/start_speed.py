"""How long a person waits for the first loss: from the command to the line "step 0", beside another commit.

    python tests/benchmarks/start_speed.py TEXT [--base COMMIT] [--runs 5]

Three ways, each alternating with the other commit: with an encoded text and known speeds, as on most days; with an encoded
text on a machine whose speeds are not known; and with a text that was never read. Use an idle machine. `import torch` alone is
timed beside them. Prints the medians, in seconds.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.planning.speeds import speeds_file  # noqa: E402

WAYS = ("known speeds", "unknown speeds", "new text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--base", default="57c2bbcf")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    speeds = speeds_file().read_bytes() if speeds_file().exists() else None
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base")
        subprocess.run(["git", "worktree", "add", "-q", "--detach", base, options.base], cwd=ROOT, check=True)
        try:
            took = measured({"base": base, "now": ROOT}, options.text, Path(folder), runs=options.runs)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=ROOT, check=True)
            if speeds is not None:
                speeds_file().write_bytes(speeds)
    print(json.dumps({name: round(statistics.median(seconds), 2) for name, seconds in took.items()}, indent=1))


def measured(trees: dict[str, Path], text: Path, folder: Path, *, runs: int) -> dict[str, list[float]]:
    """The seconds of every way, in every tree, and of `import torch`."""
    took: dict[str, list[float]] = {}
    for tree in trees.values():  # compiles C, and encodes the text; to its end, so that the speeds are known
        train(tree, text, folder, "--minutes", "0.3", to_its_end=True)
    for run, way, (name, tree) in itertools.product(range(runs), WAYS, trees.items()):
        kept = speeds_file().read_bytes()
        copy = folder / f"{run} {name}.txt"
        if way == "unknown speeds":
            speeds_file().unlink()
        if way == "new text":
            copy.write_text(f"{run} {name}\n{text.read_text(encoding='utf-8')}", encoding="utf-8")
        took.setdefault(f"{way}, {name}", []).append(train(tree, copy if way == "new text" else text, folder))
        speeds_file().write_bytes(kept)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        took.setdefault("import torch", []).append(time.perf_counter() - began)
    return took


def train(tree: Path, text: Path, folder: Path, *words: str, to_its_end: bool = False) -> float:
    """The seconds from the command to the line "step 0"."""
    run = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, "train.py", str(text), "--run", f"{run}/run", f"data.cache={folder}/cache"]
    began = time.perf_counter()
    with subprocess.Popen([*command, *words], cwd=tree, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        if not any(line.startswith(("step 0", "model 1 of")) for line in lines):
            raise SystemExit(f"{tree}: ended before step 0")
        seconds = time.perf_counter() - began
        if to_its_end:
            list(lines)
        else:
            process.kill()
    return seconds


if __name__ == "__main__":
    main()
