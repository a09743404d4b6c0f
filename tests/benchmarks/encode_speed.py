"""How fast a text is encoded, and how much memory that takes, compared with nanoGPT.

    python tests/benchmarks/encode_speed.py TEXT [TEXT ...] [--gigabytes 1 4] [--rounds 3] [--folder DIR]

Creates files of that size by repeating each TEXT, in a temporary folder. Each measurement is a new process that imports torch
first. Ours encodes the file into an empty cache, until the ids are on the disk (fsync included), then starts a second time; the
file itself is in the page cache. nanoGPT (read, sorted(set), a list of ids, numpy, tofile, as in its
data/shakespeare_char/prepare.py) needs about twelve times the size of the text in memory, so it encodes only the beginning.
The two alternate; the table shows medians.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NANOGPT_BYTES = 64_000_000


def measure_ours(path: Path, cache: Path) -> dict[str, float]:
    """Seconds to encode, seconds to start again, and the peak memory beyond that of importing torch."""
    sys.path.insert(0, str(ROOT))
    import torch  # noqa: F401

    from chargpt.config import DataConfig
    from chargpt.text.corpus import load_corpus

    _forget_peak()
    before = _peak()
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        corpus = load_corpus([str(path)], DataConfig(cache=str(cache)), root=ROOT, block_size=64)
        seconds.append(time.perf_counter() - started)
    assert corpus.characters > 0
    return {"seconds": seconds[0], "again": seconds[1], "memory": _peak() - before}


def measure_nanogpt(path: Path, folder: Path) -> dict[str, float]:
    """The same for nanoGPT, without a second start."""
    import numpy as np
    import torch  # noqa: F401

    _forget_peak()
    before, started = _peak(), time.perf_counter()
    with open(path, encoding="utf-8") as file:
        data = file.read()
    stoi = {ch: i for i, ch in enumerate(sorted(set(data)))}
    n = len(data)
    for name, part in (("train.bin", data[: int(n * 0.9)]), ("val.bin", data[int(n * 0.9) :])):
        np.array([stoi[c] for c in part], dtype=np.uint16).tofile(folder / name)
    return {"seconds": time.perf_counter() - started, "memory": _peak() - before}


def _peak() -> int:
    """The peak memory in bytes since `_forget_peak`."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def make_file(source: Path, path: Path, size: int) -> int:
    """Write whole copies of `source`, about `size` bytes. Returns the number of bytes."""
    block = source.read_bytes()
    block *= max(1, 2**24 // len(block))
    with open(path, "wb") as file:
        for _ in range(max(1, size // len(block))):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())  # otherwise the system writes it during the measurement
    return path.stat().st_size


def in_process(what: str, path: Path, folder: Path) -> dict[str, float]:
    """One measurement in a new process. Its files are removed."""
    folder.mkdir()
    command = [sys.executable, __file__, "--measure", what, str(path), str(folder)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    shutil.rmtree(folder)
    return result


def compare(source: Path, size: int, rounds: int, folder: Path) -> None:
    """Print a line for ours and one for nanoGPT on a file of `size` bytes."""
    whole, piece = folder / "whole.txt", folder / "slice.txt"
    bytes_of = {"ours": make_file(source, whole, size), "nanogpt": make_file(source, piece, min(size, NANOGPT_BYTES))}
    results: dict[str, list[dict[str, float]]] = {"ours": [], "nanogpt": []}
    for _ in range(rounds):
        time.sleep(3)  # a file that was written just now has no signature (see Source.signature)
        results["ours"].append(in_process("ours", whole, folder / "cache"))
        results["nanogpt"].append(in_process("nanogpt", piece, folder / "cache"))
    for what, runs in results.items():
        rates = sorted(bytes_of[what] / run["seconds"] / 1e6 for run in runs)
        memory = max(run["memory"] for run in runs) / 1e6
        again = f", second start {statistics.median(run['again'] for run in runs):.4f} s" if what == "ours" else ""
        print(
            f"{source.name:<20} {what:<8} {bytes_of[what] / 1e9:5.2f} GB {statistics.median(rates):7.0f} MB/s "
            f"({rates[0]:.0f} to {rates[-1]:.0f}), peak {memory:6.0f} MB above torch{again}",
            flush=True,
        )
    whole.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXT")
    parser.add_argument("--gigabytes", nargs="+", type=float, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary folder is made")
    parser.add_argument("--measure", choices=("ours", "nanogpt"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure = {"ours": measure_ours, "nanogpt": measure_nanogpt}[arguments.measure]
        print(json.dumps(measure(*arguments.texts)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for gigabytes in arguments.gigabytes:
            for text in arguments.texts:
                compare(text, int(gigabytes * 1e9), arguments.rounds, Path(folder))


if __name__ == "__main__":
    main()
