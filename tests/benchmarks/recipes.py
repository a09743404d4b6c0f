"""The experiments behind chargpt/training/recipes.py: what a model of some size learns from so many characters of a text.

    python tests/benchmarks/recipes.py run PLAN RESULTS [--jobs N]

PLAN is a text file with an experiment in each line: a text, the characters of its beginning to use (0: all), the characters
to see in training, layers x width, windows x context of a batch, and settings that differ from BASE:

    data/shakespeare.txt  100000  2800000  4x128  16x128  model.dropout=0.1

RESULTS gets a JSON object for each experiment, as soon as it has ended; a second call goes on with the experiments that are
not in it. Budgets are characters, not seconds, so that results do not depend on the machine or on what else it does. Each job
uses one thread, so on a CPU as many jobs as there are cores are fastest. Losses are over the whole validation part.
"""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.config import Config, apply_overrides  # noqa: E402
from chargpt.text.corpus import load_corpus  # noqa: E402
from chargpt.text.report import mark_to_beat  # noqa: E402
from chargpt.training.evaluation import evaluate  # noqa: E402
from chargpt.training.recipes import HEAD_SIZE  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402
from model import GPT  # noqa: E402

BASE = ["optim.name=muon", "optim.learning_rate=4e-3", "optim.momentum=0.9", "model.positions=rotary", "runtime.threads=1"]
POINTS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # parts of a run after which it is evaluated


def experiment(line: str, folder: str) -> dict:
    """Run the experiment of a line of the plan, and return its result."""
    torch.set_num_threads(1)
    name, first, chars, shape, batch, *settings = line.split()
    (layers, width), (windows, context) = shape.split("x"), batch.split("x")
    text = Path(folder, f"{Path(name).stem}-{first}.txt")
    if not text.exists():
        whole = Path(name).read_text(encoding="utf-8")
        part = whole[: int(first) or None]
        aside = text.with_suffix(f".{os.getpid()}")
        aside.write_text(part, encoding="utf-8")
        os.replace(aside, text)
    sizes = [f"model.n_layer={layers}", f"model.n_embd={width}", f"model.n_head={int(width) // HEAD_SIZE}"]
    sizes += [f"train.batch_size={windows}", f"model.block_size={context}", f"data.cache={folder}/cache"]
    steps = int(chars) // (int(windows) * int(context))
    length = [f"train.max_steps={steps}", f"optim.warmup_steps={min(100, steps // 10)}"]
    config = apply_overrides(Config(), [*BASE, *sizes, *length, *settings])
    corpus = load_corpus([str(text)], config.data, root=ROOT, block_size=config.model.block_size)
    torch.manual_seed(config.train.seed)
    model = GPT(config.model, corpus.tokenizer.vocab_size)
    trainer = Trainer(model, corpus.train, config, runtime=choose_runtime(config))
    started, points, train_loss = time.process_time(), [], []
    due = {max(1, round(steps * part)) for part in POINTS}
    while not trainer.is_finished:
        step = trainer.step()
        if trainer.progress.step > steps * 0.95:
            train_loss.append(step.loss)
        if trainer.progress.step in due:
            loss = evaluate(trainer.weights.working, corpus.val)
            points.append([trainer.progress.step * config.chars_per_step, round(loss, 4)])
    return {
        "experiment": line,
        "train": len(corpus.train),
        "vocabulary": corpus.tokenizer.vocab_size,
        "mark": round(mark_to_beat(corpus), 4),
        "parameters": model.parameter_count(),
        "seen": steps * config.chars_per_step,
        "points": points,
        "train_loss": round(sum(train_loss) / len(train_loss), 4),
        "seconds": round(time.process_time() - started, 1),
    }


def lines_of(plan: Path) -> list[str]:
    """The experiments of a plan, in its order."""
    lines = (" ".join(line.partition("#")[0].split()) for line in plan.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def results_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def run(plan: Path, results: Path, jobs: int) -> None:
    """Run what is in the plan and not in the results. The plan may grow meanwhile."""
    folder = results.with_suffix(".texts")
    folder.mkdir(exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool:
        running: dict = {}
        while True:
            done = {result["experiment"] for result in results_of(results)} | set(running.values())
            todo = [line for line in lines_of(plan) if line not in done]
            for line in todo[: jobs - len(running)]:
                running[pool.submit(experiment, line, str(folder))] = line
            if not running:
                return
            ended, _ = wait(running, return_when="FIRST_COMPLETED")
            for future in ended:
                line = running.pop(future)
                try:
                    result = future.result()
                except Exception as problem:
                    result = {"experiment": line, "failed": f"{type(problem).__name__}: {problem}"}
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
                print(line, result.get("parameters"), result.get("points", result.get("failed")), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    parts = commands.add_parser("run", help="run the experiments of a plan that have no result yet")
    parts.add_argument("plan", type=Path)
    parts.add_argument("results", type=Path)
    parts.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    options = parser.parse_args()
    run(options.plan, options.results, options.jobs)


if __name__ == "__main__":
    main()
