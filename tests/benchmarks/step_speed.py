"""How much faster training and evaluation are with steps compiled from C than with torch's, and what a teacher costs.

    python tests/benchmarks/step_speed.py TEXT [--seconds S]

For each shape, precision and optimizer, two trainings take turns, and for each shape and precision two evaluations, so that a
machine whose speed drifts treats both alike. It prints rows of docs/lab/results/speed.jsonl, and takes an idle machine.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.config import Config  # noqa: E402
from chargpt.launch import keep_freed_memory, let_threads_sleep  # noqa: E402
from chargpt.settings import COMMAND_LINE, apply  # noqa: E402

let_threads_sleep()  # as train.py does, before torch is imported
import torch  # noqa: E402

from chargpt.model import GPT  # noqa: E402
from chargpt.planning.cli import settings_in  # noqa: E402
from chargpt.text.corpus import Corpus, load_corpus  # noqa: E402
from chargpt.training.evaluation import evaluate_at  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

# Name; layers, heads, width; windows, context.
SHAPES = (
    ("0.1M (2/2/64, 16 x 128)", 2, 2, 64, 16, 128),
    ("0.35M (3/3/96, 8 x 256)", 3, 3, 96, 8, 256),
    ("0.8M (4/4/128, 12 x 64)", 4, 4, 128, 12, 64),
    ("2.2M (5/6/192, 8 x 128)", 5, 6, 192, 8, 128),
    ("10.65M (6/6/384, 8 x 256)", 6, 6, 384, 8, 256),
)
ROUNDS = 5
WARM_UP = 3  # steps that are not counted
EVALUATED = 4_097  # characters


def apply_words(config: Config, words: list[str]) -> Config:
    """`config` with the settings of section.key=value words."""
    return apply(config, settings_in(words), where=COMMAND_LINE)


def trainer(corpus: Corpus, shape: Sequence, *, has_teacher: bool = False, **settings: str) -> Trainer:
    """A training of this shape; with a teacher, of the same shape."""
    _, layers, heads, width, windows, context = shape
    model = {"n_layer": layers, "n_head": heads, "n_embd": width, "block_size": context}
    settings = {f"model.{key}": value for key, value in model.items()} | settings
    fixed = {"train.batch_size": windows, "train.max_steps": 10**6, "runtime.device": "cpu"}
    config = apply_words(Config(), [f"{key}={value}" for key, value in (settings | fixed).items()])
    gpt, *teachers = (GPT(config.model, corpus.tokenizer.vocab_size) for _ in range(1 + has_teacher))
    return Trainer(gpt, corpus.train, config, runtime=choose_runtime(config), teachers=teachers)


def in_turns(works: dict[str, Callable[[], object]], seconds: float) -> tuple[dict[str, float], float]:
    """The seconds that each work takes, in ROUNDS turns of so many `seconds` in all; and the ratio of the first to the second."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for name, work in [*works.items()] * ROUNDS:
        times: list[float] = []
        while sum(times) < seconds / (2 * ROUNDS) or len(times) < WARM_UP + 2:
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        found[name].append(statistics.median(times[WARM_UP:]))
    first, second = found.values()
    return {name: statistics.median(times) for name, times in found.items()}, statistics.median(
        before / after for before, after in zip(first, second)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row (default: 10)")
    options = parser.parse_args()
    corpus = load_corpus([options.text], Config().data, root=ROOT, block_size=256)
    keep_freed_memory()  # as train.py does
    for precision in ("bfloat16", "float32"):
        for shape in SHAPES:
            row = {"shape": shape[0], "precision": precision, "threads": torch.get_num_threads()}
            for optimizer in ("adamw", "muon"):
                chosen = {"runtime.precision": precision, "optim.name": optimizer}
                trainers = {step: trainer(corpus, shape, **chosen, **{"runtime.step": step}) for step in ("torch", "native")}
                seconds, ratio = in_turns({step: one.step for step, one in trainers.items()}, options.seconds)
                speeds = {step: round(trainers[step].config.chars_per_step / time) for step, time in seconds.items()}
                about = {"table": "native-step", **row, "optimizer": optimizer}
                print(json.dumps(about | speeds | {"ratio": round(ratio, 2)}), flush=True)
            one, ids = trainers["native"], corpus.val[:EVALUATED]
            student = trainer(corpus, shape, has_teacher=True, **chosen, **{"runtime.step": "native"})
            seconds, ratio = in_turns({"alone": one.step, "with_a_teacher": student.step}, options.seconds)
            speeds = {name: round(one.config.chars_per_step / time) for name, time in seconds.items()}
            print(json.dumps({"table": "native-student", **row} | speeds | {"ratio": round(ratio, 2)}), flush=True)
            works = {
                "torch": partial(evaluate_at, (1.0,), one.weights.working, ids),
                "native": partial(evaluate_at, (1.0,), one.weights.working, ids, kernel=one.kernel),
            }
            seconds, ratio = in_turns(works, options.seconds)
            speeds = {step: round(len(ids) / time) for step, time in seconds.items()}
            print(json.dumps({"table": "native-evaluation", **row} | speeds | {"ratio": round(ratio, 2)}), flush=True)


if __name__ == "__main__":
    main()
