"""How cost grows: speed, share of the floor and memory, over parameters, context, vocabulary, batch and length of the text.

    python tests/benchmarks/growth.py run RESULTS [--only KIND ...] [--seconds S] [--budget S] [--processor]
    python tests/benchmarks/growth.py picture RESULTS FILE

Kinds: parameters, context, vocabulary, batch (each as training and as writing one text), and text (a start and a few steps of
train.py on a generated text of so many MB). Each point is a process of its own, so that its peak memory is its own. RESULTS gets
a JSON object for each point as soon as it is measured; a second call goes on with the points that are not in it. `--budget` ends
a call after so many seconds, before the next point. With `--processor`, times are processor seconds of one thread: on a machine
that other programs use too, these change less. `picture` draws the results, which needs matplotlib. The
formula for memory is that of the `estimate` in details.txt, and what a process with torch takes without a model is left out
of the measured memory.
"""

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from machine_speed import (  # noqa: E402
    Size,
    limits,
    machine_name,
    product_speed,
    runtime_for,
    sampling_floor,
    sampling_speed,
    training_floor,
    training_flop,
    training_seconds,
)

from chargpt.launch import keep_freed_memory  # noqa: E402
from chargpt.model import GPT, GPTConfig  # noqa: E402
from chargpt.planning.memory import memory_needed  # noqa: E402

CPU = torch.device("cpu")
# Layers, heads, width: the parameters are those of 65 characters and a context of 128 or 256.
SHAPES = {
    "0.1M": (2, 2, 64),
    "0.8M": (4, 4, 128),
    "3M": (4, 4, 256),
    "10M": (6, 6, 384),
    "30M": (10, 8, 512),
    "85M": (12, 12, 768),
}
CONTEXTS = (64, 256, 1024, 2048)
VOCABULARIES = (65, 1000, 6257, 20000)
BATCHES = (1, 4, 16, 64, 256)
MEGABYTES = (0.1, 1, 10, 100, 1000, 4000)
TEXTS = (1, 8, 32, 256)  # written at once
SLOW = 30.0  # seconds; a training step with so many operations is left out


def points() -> list[dict]:
    """Every point, in the order in which they are measured. The middle of all is 0.8M parameters, 2,048 characters a step."""
    small, base = SHAPES["0.8M"], {"context": 128, "vocabulary": 65, "batch": 16}
    found = []
    for name, shape in SHAPES.items():
        found.append({"kind": "parameters", "what": name, "shape": shape, **base})
    for context in CONTEXTS:
        found.append(
            {
                "kind": "context",
                "what": f"{context:,}",
                "shape": small,
                **base,
                "context": context,
                "batch": max(1, 2048 // context),
            }
        )
    for vocabulary in VOCABULARIES:
        found.append({"kind": "vocabulary", "what": f"{vocabulary:,}", "shape": small, **base, "vocabulary": vocabulary})
    for batch in BATCHES:
        found.append({"kind": "batch", "what": str(batch), "shape": small, **base, "batch": batch})
    training = [{"task": "training", **point} for point in found]
    writing = [{"task": "writing", **point, "batch": 1} for point in found if point["kind"] != "batch"]
    writing += [
        {"task": "writing", "kind": "batch", "what": str(texts), "shape": small, **base, "batch": texts} for texts in TEXTS
    ]
    texts = [{"task": "text", "kind": "text", "what": f"{megabytes:g} MB", "megabytes": megabytes} for megabytes in MEGABYTES]
    return training + writing + texts


def peak_memory() -> float:
    """The most memory that this process has had, in MB. (On Linux, getrusage also counts the process that started this one.)"""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def size_of(point: dict) -> Size:
    layers, heads, width = point["shape"]
    model = GPTConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=point["context"])
    return Size(model=model, batch_size=point["batch"], vocab_size=point["vocabulary"])


def measure_training(point: dict, seconds: float) -> dict:
    size = size_of(point)
    shape = {"batch_size": size.batch_size, "vocab_size": size.vocab_size}
    expected = training_flop(size.model, **shape) / product_speed(torch.float32, CPU, seconds=0.2) / 1e9
    if expected > SLOW:
        return {"left_out": f"products of {expected:.0f} s a step"}
    config, runtime = runtime_for(size, CPU)
    without = peak_memory()
    step = training_seconds(size, config, runtime, seconds=seconds, least=3 if expected < 2 else 1)
    memory = peak_memory() - without  # before the floor, whose matrices would count
    floor = training_floor(size.model, **shape, dtype=runtime.precision, device=CPU, seconds=seconds / 20)
    parameters = GPT(size.model, size.vocab_size).parameter_count()
    formula = memory_needed(config, parameters=parameters, vocab_size=size.vocab_size) / 1e6
    return {
        "parameters": parameters,
        "seconds": step,
        "rate": size.characters / step,
        "share": floor.seconds / step,
        "memory": memory,
        "formula": formula,
    }


def measure_writing(point: dict, seconds: float) -> dict:
    size = size_of(point)
    without = peak_memory()
    model = GPT(size.model, size.vocab_size).eval()
    rate = sampling_speed(model, size.batch_size, seconds=seconds)
    memory = peak_memory() - without
    gflops = product_speed(torch.float32, CPU, seconds=0.2)
    least = sampling_floor(
        size.model, size.batch_size, vocab_size=size.vocab_size, device=CPU, gflops=gflops, seconds=seconds / 4
    )
    parameters = model.parameter_count()
    return {"parameters": parameters, "rate": rate, "share": rate * least / size.batch_size, "memory": memory}


def measure_text(point: dict, seconds: float) -> dict:
    """train.py on a new text, then again with the text encoded: processor seconds until the end of 10 steps, and memory."""
    steps, found = 10, {}
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(temporary, "text.txt")
        write_text(text, point["megabytes"])
        for name in ("new", "encoded"):
            settings = [f"train.max_steps={steps}", "train.sample_length=0", "train.eval_chars=10000", "runtime.threads=1"]
            command = [
                sys.executable,
                str(ROOT / "train.py"),
                str(text),
                "--run",
                f"{temporary}/{name}",
                f"data.cache={temporary}/cache",
            ]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            process = subprocess.run([*command, *settings], capture_output=True, text=True)
            assert process.returncode == 0, process.stderr
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[name] = {"processor": processor}
            if name == "new":
                found["memory_new"] = after.ru_maxrss * 1024 / 1e6
        found["memory"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6  # of the larger of the two
    return found


def write_text(path: Path, megabytes: float) -> None:
    """A text of words in lines, whose lines do not repeat."""
    draw, left = random.Random(0), int(megabytes * 1e6)
    words = ["".join(draw.choices("etaoinshrdlucmfwypvbgkjqxz", k=draw.randint(2, 9))) for _ in range(5000)]
    block = "".join(" ".join(draw.choices(words, k=9)) + "\n" for _ in range(16000))
    with path.open("w", encoding="ascii", newline="\n") as file:
        number = 0
        while left > 0:
            part = block[number % 1000 :][:left]
            file.write(part)
            left, number = left - len(part), number + 1


def measure(point: dict, seconds: float) -> dict:
    """The result of one point, in this process."""
    kinds = {"training": measure_training, "writing": measure_writing, "text": measure_text}
    return {**point, **kinds[point["task"]](point, seconds)}


def results_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def key(point: dict) -> tuple[str, str, str]:
    return point["task"], point["kind"], point["what"]


def run(results: Path, kinds: list[str], options: list[str], budget: float) -> None:
    """Measure what is not in the results, until the budget is spent."""
    end, done = time.monotonic() + budget, {key(result) for result in results_of(results)}
    if not done:
        subprocess.run([sys.executable, __file__, "limits", *options])
    for point in points():
        if key(point) in done or kinds and point["kind"] not in kinds:
            continue
        if time.monotonic() > end:
            return
        command = [sys.executable, __file__, "point", json.dumps(point), *options]
        process = subprocess.run(command, capture_output=True, text=True)
        result = json.loads(process.stdout) if process.returncode == 0 else {**point, "left_out": process.stderr.strip()[-200:]}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(*key(point), {name: value for name, value in result.items() if name not in point}, flush=True)


def picture(results: Path, file: Path) -> None:
    """Draw speed and share of the floor over each kind of growth, for training and for writing."""
    from matplotlib import pyplot

    rows = [row for row in results_of(results) if "rate" in row]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, places = pyplot.subplots(
        2, len(kinds), figsize=(3.2 * len(kinds), 5), sharey="row", layout="constrained", squeeze=False
    )
    for column, kind in enumerate(kinds):
        speeds, shares = places[:, column]
        for task, style in (("training", "o-"), ("writing", "s--")):
            found = [row for row in rows if (row["kind"], row["task"]) == (kind, task)]
            values = [row[kind] for row in found]
            speeds.plot(values, [row["rate"] for row in found], style, label=task)
            shares.plot(values, [100 * row["share"] for row in found], style, label=task)
        speeds.set_yscale("log")
        names = {row[kind]: row["what"] for row in rows if row["kind"] == kind}
        for part in (speeds, shares):
            part.set_xscale("log")
            part.set_xticks(list(names), list(names.values()))
            part.minorticks_off()
            part.grid(alpha=0.3)
        shares.axhline(60, color="grey", linewidth=1)
        shares.set_xlabel({"batch": "batch (windows, or texts)"}.get(kind, kind))
    places[1, 0].set_ylim(bottom=0, top=max(105, *(100 * row["share"] for row in rows)))
    places[0, 0].set_ylabel("characters a second")
    places[1, 0].set_ylabel("% of the floor, or of the limit")
    places[0, -1].legend()
    figure.savefig(file, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    parts = commands.add_parser("run", help="measure the points that have no result yet")
    parts.add_argument("results", type=Path)
    parts.add_argument(
        "--only", nargs="*", default=[], metavar="KIND", choices=("parameters", "context", "vocabulary", "batch", "text")
    )
    parts.add_argument("--seconds", type=float, default=2.0, help="for the steps of a point (default: 2)")
    parts.add_argument("--budget", type=float, default=1e9, help="seconds of a call")
    parts = commands.add_parser("picture", help="draw the results")
    parts.add_argument("results", type=Path)
    parts.add_argument("file", type=Path, help="its suffix decides the format")
    parts = commands.add_parser("point", help="measure one point, given as JSON, in this process")
    parts.add_argument("point", type=json.loads)
    parts.add_argument("--seconds", type=float, default=2.0)
    parts = commands.add_parser("limits", help="print the limits of the machine")
    parts.add_argument("--seconds", type=float, default=1.0)
    for part in commands.choices.values():
        part.add_argument("--processor", action="store_true", help="time by the processor seconds of one thread")
    options = parser.parse_args()
    if options.command in ("point", "limits") and options.processor:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time  # every clock of this process
    if options.command == "run":
        settings = ["--seconds", str(options.seconds), *["--processor"] * options.processor]
        run(options.results, options.only, settings, options.budget)
    elif options.command == "picture":
        picture(options.results, options.file)
    elif options.command == "limits":
        print(f"{machine_name(CPU)}, torch {torch.__version__}; {limits(CPU, seconds=options.seconds)}")
    else:
        keep_freed_memory()  # as train.py does
        print(json.dumps(measure(options.point, options.seconds)))


if __name__ == "__main__":
    main()
