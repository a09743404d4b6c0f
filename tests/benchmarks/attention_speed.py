"""How much faster training is with attention compiled from C than with torch's.

    python tests/benchmarks/attention_speed.py TEXT [--seconds S]

For each shape, two trainings take turns, two steps each, so that a machine whose speed drifts treats both alike. It takes an
idle machine.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.config import COMMAND_LINE, Config, apply  # noqa: E402
from chargpt.launch import keep_freed_memory  # noqa: E402
from chargpt.model import GPT  # noqa: E402
from chargpt.planning.cli import settings_in  # noqa: E402
from chargpt.text.corpus import Corpus, load_corpus  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.thread_spinning import ThreadSpinning  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

# Layers, heads, width; windows, context; optimizer, positions.
SHAPES = (
    (2, 2, 64, 16, 128, "muon", "rotary"),
    (3, 3, 96, 4, 128, "muon", "rotary"),
    (4, 4, 128, 16, 128, "muon", "rotary"),
    (4, 4, 128, 12, 64, "adamw", "learned"),
    (6, 6, 384, 8, 256, "adamw", "learned"),
)
IN_TURN = 2  # steps
WARM_UP = 4  # steps that are not counted


def apply_words(config: Config, words: list[str]) -> Config:
    """`config` with the settings of section.key=value words."""
    return apply(config, settings_in(words), where=COMMAND_LINE)


def trainer(corpus: Corpus, shape: tuple, attention: str) -> Trainer:
    layers, heads, width, windows, context, optimizer, positions = shape
    settings = {
        "model.n_layer": layers,
        "model.n_head": heads,
        "model.n_embd": width,
        "model.block_size": context,
        "model.positions": positions,
        "optim.name": optimizer,
        "train.batch_size": windows,
        "train.max_steps": 10**6,
        "runtime.attention": attention,
        "runtime.step": "torch",
    }
    config = apply_words(Config(), [f"{key}={value}" for key, value in settings.items()])
    model = GPT(config.model, corpus.tokenizer.vocab_size)
    return Trainer(model, corpus.train, config, runtime=choose_runtime(config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each shape (default: 20)")
    options = parser.parse_args()
    corpus = load_corpus([options.text], Config().data, root=ROOT, block_size=256)
    keep_freed_memory()  # as train.py does
    print("| layers x width, windows x context | optimizer, positions | torch's, ms a step | compiled, ms a step | ratio |")
    print("|---|---|---|---|---|")
    for shape in SHAPES:
        trainers = {attention: trainer(corpus, shape, attention) for attention in ("plain", "auto")}
        times: dict[str, list[float]] = {attention: [] for attention in trainers}
        with ThreadSpinning(trainers["auto"].runtime):
            while sum(map(sum, times.values())) < options.seconds or len(times["auto"]) < 2 * WARM_UP:
                for attention, one in trainers.items():
                    for _ in range(IN_TURN):
                        started = time.perf_counter()
                        one.step()
                        times[attention].append(time.perf_counter() - started)
        plain, compiled = (1000 * statistics.median(times[attention][WARM_UP:]) for attention in ("plain", "auto"))
        layers, _, width, windows, context, optimizer, positions = shape
        name = f"{layers} x {width}, {windows} x {context} | {optimizer}, {positions}"
        print(f"| {name} | {plain:.1f} | {compiled:.1f} | {plain / compiled:.2f} |", flush=True)


if __name__ == "__main__":
    main()
