"""The experiments behind chargpt/planning/law.py: what a model of some size learns from so many characters of a text.

    python tests/benchmarks/recipes.py run PLAN RESULTS [--jobs N]

PLAN is a text file with an experiment in each line: a text, the characters of its beginning to use (0: all), the characters
to see in training, layers x width, windows x context of a batch, and settings that differ from BASE:

    data/shakespeare.txt  100000  2800000  4x128  16x128  model.dropout=0.1

RESULTS gets a JSON object for each experiment, as soon as it has ended; a second call goes on with the experiments that are
not in it. Budgets are characters, not seconds, so that results do not depend on the machine or on what else it does. Each job
uses one thread, so on a CPU as many jobs as there are cores are fastest. Losses are over the whole validation split.

    python tests/benchmarks/recipes.py rows RESULTS    the results as rows for docs/lab/results/experiments.jsonl
    python tests/benchmarks/recipes.py fit [ROWS]      the constants of chargpt/planning/law.py, from such rows
"""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from chargpt.config import Config  # noqa: E402
from chargpt.launch import keep_freed_memory  # noqa: E402
from chargpt.planning.cli import settings_in  # noqa: E402
from chargpt.planning.law import HEAD_SIZE, Text, recipe_for  # noqa: E402
from chargpt.settings import COMMAND_LINE, apply  # noqa: E402
from chargpt.text.corpus import load_corpus  # noqa: E402
from chargpt.training.evaluation import evaluate  # noqa: E402
from chargpt.training.initialisation import initial_model  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

BASE = ["optim.name=muon", "optim.learning_rate=4e-3", "optim.momentum=0.9", "model.positions=rotary", "runtime.threads=1"]
ROWS = ROOT / "docs" / "lab" / "results" / "experiments.jsonl"
# the rows to which the law is fitted
LAW_TABLE = "law"
POINTS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # parts of a run after which it is evaluated


def apply_words(config: Config, words: list[str]) -> Config:
    """`config` with the settings of section.key=value words."""
    return apply(config, settings_in(words), where=COMMAND_LINE)


def experiment(line: str, folder: str) -> dict:
    """Run the experiment of a line of the plan, and return its result."""
    keep_freed_memory()  # as train.py does
    torch.set_num_threads(1)
    name, first, *_ = line.split()
    text = Path(folder, f"{Path(name).stem}-{first}.txt")
    if not text.exists():
        whole = Path(name).read_text(encoding="utf-8")
        part = whole[: int(first) or None]
        aside = text.with_suffix(f".{os.getpid()}")
        aside.write_text(part, encoding="utf-8")
        os.replace(aside, text)
    config = config_of(line, f"data.cache={folder}/cache")
    corpus = load_corpus([str(text)], config.data, root=ROOT, block_size=config.model.block_size)
    torch.manual_seed(config.train.seed)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    trainer = Trainer(model, corpus.train, config, runtime=choose_runtime(config))
    started, points, train_loss = time.process_time(), [], []
    steps = config.train.max_steps
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
        "baseline": round(corpus.facts.ngram_loss * corpus.facts.copying, 4),
        "parameters": model.parameter_count(),
        "seen": trainer.progress.step * config.chars_per_step,
        "points": points,
        "train_loss": round(sum(train_loss) / len(train_loss), 4),
        "seconds": round(time.process_time() - started, 1),
    }


def config_of(line: str, *more: str) -> Config:
    """The settings of an experiment; `more` are further ones."""
    _, _, chars, shape, batch, *settings = line.split()
    (layers, width), (windows, context) = shape.split("x"), batch.split("x")
    sizes = [f"model.n_layer={layers}", f"model.n_embd={width}", f"model.n_head={int(width) // HEAD_SIZE}"]
    sizes += [f"train.batch_size={windows}", f"model.block_size={context}"]
    steps = int(chars) // (int(windows) * int(context))
    length = [f"train.max_steps={steps}", f"optim.warmup_steps={min(100, steps // 10)}"]
    return apply_words(Config(), [*BASE, *sizes, *length, *settings, *more])


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


def rows(results: Path) -> None:
    """Print the results as rows of docs/lab/results/experiments.jsonl; the commit and the machine are for the reader to add."""
    for result in results_of(results):
        if "failed" not in result:
            name, first, _, shape, batch, *settings = result["experiment"].split()
            row = {
                "table": LAW_TABLE,
                "threads": 1,
                "torch": torch.__version__,
                "text": Path(name).stem + ("" if first == "0" else f", first {int(first):,}"),
                "characters": result["train"],
                "baseline": result["baseline"],
                "shape": shape,
                "batch": batch,
                "seen": result["seen"],
                "settings": " ".join(settings),
            }
            losses = [loss for _, loss in result["points"]]
            row |= dict(zip(("loss_at_50", "loss_at_70", "loss_at_90"), losses[1:-1:2]))
            print(json.dumps({**row, "loss": losses[-1], "train_loss": result["train_loss"]}, ensure_ascii=False))


class Row(NamedTuple):
    """A run that the fit uses."""

    text: str
    characters: int  # of the training split
    baseline: float  # loss of an n-gram model that also copies, nats per character
    in_blocks: int  # parameters
    seen: int  # characters
    loss: float
    is_adamw: bool


def rows_of(file: Path) -> list[Row]:
    """The runs of the law's table with steps no larger than the recipe's.

    Of those that differ in their settings or batch alone, the best counts.
    """
    best: dict[tuple, Row] = {}
    for run in results_of(file):
        if run["table"] != LAW_TABLE:
            continue
        layers, width = map(int, run["shape"].split("x"))
        windows, context = map(int, run["batch"].split("x"))
        characters, seen, in_blocks = run["characters"], run["seen"], 12 * layers * width**2
        recipe = recipe_for(Text(characters, 0.0, 0.0), parameters=in_blocks, seen=seen, optimizer="muon")
        if windows * context > 1.5 * recipe.characters_per_step:
            continue
        row = Row(run["text"], characters, run["baseline"], in_blocks, seen, run["loss"], "adamw" in run["settings"])
        alike = (row.text, row.in_blocks, round(seen / characters, 1), row.is_adamw)
        best[alike] = min(best.get(alike, row), row, key=lambda row: row.loss)
    return list(best.values())


def law(constants: Tensor, n: Tensor, d: Tensor, text: Tensor) -> Tensor:
    """The loss relative to that of the n-gram model, as in chargpt/planning/law.py; `text` is the length of the text."""
    floor, size, size_power, seen, seen_power, repeats, useful, text_power, growth, _ = constants.exp()
    epochs = (d / text - 1).clamp(min=0)
    d = torch.where(d <= text, d, text * (1 + repeats * (1 - torch.exp(-epochs / repeats))))
    learned = seen * (n / 1e5) ** growth * (1e6 / d) ** seen_power
    n = 1 / (1 / n + 1 / (useful * text))
    return (text / 1e6).clamp(max=1) ** text_power * (floor + size * (1e5 / n) ** size_power + learned)


NAMES = ("FLOOR", "SIZE", "SIZE_POWER", "SEEN", "SEEN_POWER", "REPEATS", "MAX_USEFUL", "TEXT_POWER", "GROWTH", "ADAMW_SEES")
# Where the data say nothing; Hoffmann et al. 2022 for the powers.
PRIOR = (0.65, 0.12, 0.35, 0.18, 0.4, 15.0, 15.0, 0.05, 0.05, 0.4)
LOOSE = (0.1, 1.0, 0.5, 1.0, 0.3, 0.7, 0.7, 1.0, 1.0, 0.5)  # how far the logarithms of the constants may be from it


def fit(file: Path) -> None:
    """Print the constants with the least error, a factor for each text that the n-gram model does not explain, and residuals."""
    rows = rows_of(file)
    n, d, text, loss = (
        torch.tensor([value(row) for row in rows], dtype=torch.float64)
        for value in (lambda r: r.in_blocks, lambda r: r.seen, lambda r: r.characters, lambda r: r.loss / r.baseline)
    )
    adamw = torch.tensor([row.is_adamw for row in rows])
    texts = sorted({(row.text, row.characters) for row in rows})
    which = torch.tensor([texts.index((row.text, row.characters)) for row in rows])
    prior, loose = (torch.tensor(values, dtype=torch.float64) for values in (PRIOR, LOOSE))
    prior = prior.log()
    constants, factors = prior.clone().requires_grad_(), torch.zeros(len(texts), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([constants, factors], max_iter=3000, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def predicted() -> Tensor:
        return law(constants, n, torch.where(adamw, constants[-1].exp() * d, d), text) * factors.exp()[which]

    def objective() -> Tensor:
        optimizer.zero_grad()
        residuals = (predicted() / loss).log() / 0.01
        error = torch.nn.functional.huber_loss(residuals, torch.zeros_like(residuals), reduction="sum")
        error = error + (((constants - prior) / loose) ** 2).sum() + ((factors / 0.1) ** 2).sum()
        error.backward()
        return error

    optimizer.step(objective)
    with torch.no_grad():
        print(*(f"{name} = {value:.3g}" for name, value in zip(NAMES, constants.exp())), sep="\n")
        print(*(f"{name} ({count:,}): {value:.3f}" for (name, count), value in zip(texts, factors.exp())), sep="\n")
        for row, value in zip(rows, predicted() * torch.tensor([row.baseline for row in rows])):
            print(f"{row.text} {row.in_blocks:,} {row.seen:,}: {row.loss:.4f} expected {value:.4f}, {row.loss - value:+.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    parts = commands.add_parser("run", help="run the experiments of a plan that have no result yet")
    parts.add_argument("plan", type=Path)
    parts.add_argument("results", type=Path)
    parts.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    parts = commands.add_parser("rows", help="print results as rows of the laboratory")
    parts.add_argument("results", type=Path)
    parts = commands.add_parser("fit", help="fit the law to the rows of the laboratory")
    parts.add_argument("rows", type=Path, nargs="?", default=ROWS)
    options = parser.parse_args()
    if options.command == "run":
        run(options.plan, options.results, options.jobs)
    elif options.command == "rows":
        rows(options.results)
    else:
        fit(options.rows)


if __name__ == "__main__":
    main()
