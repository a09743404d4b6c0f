"""The law of an adaptation: what a start reaches on a text, by what its trial has shown (chargpt/planning/trial.py).

    python tests/benchmarks/trial.py measure START SEEN TEXT...   rows for docs/lab/results/trial.jsonl, on standard output
    python tests/benchmarks/trial.py fit ROWS                     the constants, and what they say of each row

A row has the trial of START on a text and the loss after an adaptation that sees so many characters, with the program's settings
but for the time: it counts characters, so other programs may run beside it.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.config import Config  # noqa: E402
from chargpt.planning import law, trial  # noqa: E402
from chargpt.planning.adaptation import EPOCHS, STEP_CHARACTERS, STEPS, adapt, begun, distance_of  # noqa: E402
from chargpt.planning.chosen_for_time import Job, in_blocks, multiple  # noqa: E402
from chargpt.planning.cli import TrainOptions  # noqa: E402
from chargpt.planning.initial_settings import Asked  # noqa: E402
from chargpt.runs.load import load_start  # noqa: E402
from chargpt.settings import Settings, Source  # noqa: E402
from chargpt.text.corpus import load_corpus  # noqa: E402
from chargpt.training.evaluation import evaluate, validation_split  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

JUDGED = 20_000  # characters of the validation split
LONG = 150_000  # characters that a row must have seen to be fitted: those after fewer are on their way


def measure(name: str, seen: int, path: str) -> dict[str, object]:
    """The row of a text."""
    corpus = load_corpus([path], Config().data, root=ROOT, block_size=8)
    (found,), start = trial.trials_of(corpus, Config().runtime, [name], load_start, enough=0.0), load_start(name)
    job = Job(corpus, math.inf)
    text = job.text
    shape = dataclasses.replace(start.state.config.model, dropout=0.0)
    characters = min(STEP_CHARACTERS[1], max(STEP_CHARACTERS[0], EPOCHS * len(corpus.train) / STEPS))
    batch = multiple(characters / shape.block_size, of=1)
    config = Config(model=shape)
    optim = dataclasses.replace(config.optim, name="muon", learning_rate=1.0)
    train = dataclasses.replace(config.train, batch_size=batch, max_steps=max(1, seen // (batch * shape.block_size)))
    given = dict.fromkeys(("train.max_steps", "train.batch_size", "optim.name"), Source.USER)
    settings = Settings(dataclasses.replace(config, optim=optim, train=train), given)
    distance = distance_of(start, found.before)
    config = adapt(settings, job, Asked(TrainOptions(), settings), distance=distance).values
    runtime = choose_runtime(config)
    with runtime.applied():
        trainer = Trainer(begun(start, corpus)[0], corpus.train, config, runtime=runtime)
        while not trainer.is_finished:
            trainer.step()
        loss = evaluate(trainer.model, validation_split(corpus.evaluation_ids, JUDGED))
        trainer.release()
    row: dict[str, object] = {"table": "trial-fit", "text": Path(path).stem, "characters": text.characters, "start": name}
    row |= {"before": found.before, "after": found.after, "ngram": text.ngram_loss * text.copying}
    seen = train.max_steps * config.chars_per_step
    expected = law.expected_loss(text, parameters=in_blocks(config), seen=seen, optimizer=config.optim.name)
    return row | {"seen": seen, "law": expected, "loss": loss}


def fit(rows: list[dict]) -> None:
    """Print GAIN and POWER, fitted by least squares, and the error of each row."""
    ahead = np.array([math.log(row["after"] / row["ngram"]) for row in rows])
    gain = np.log([row["loss"] / row["law"] for row in rows])
    parts, is_long = np.stack([np.ones(len(rows)), ahead], axis=1), np.array([row["seen"] >= LONG for row in rows])
    found = np.linalg.lstsq(parts[is_long], gain[is_long], rcond=None)[0]
    errors = parts @ found - gain
    print(
        "GAIN, POWER =", ", ".join(f"{number:.3f}" for number in found), f"; error {np.sqrt(np.mean(errors[is_long] ** 2)):.1%}"
    )
    for row, error in zip(rows, errors):
        expected = min(row["after"], row["loss"] * math.exp(error))
        print(f"{row['text']:20} {row['start']:8} {row['seen']:9,} {row['loss']:.3f} expected {expected:.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        for path in sys.argv[4:]:
            print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), path)), flush=True)
    else:
        read = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]
        fit([row for row in read if row["table"] == "trial-fit"])
