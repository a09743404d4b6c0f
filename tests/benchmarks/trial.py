"""The law of an adaptation: what a start reaches on a text, by what its trial has shown (chargpt/planning/trial.py).

    python tests/benchmarks/trial.py measure START SEEN TEXT...   rows for docs/lab/results/trial.jsonl, on standard output
    python tests/benchmarks/trial.py both MINUTES TEXT...         the same: what is expected of both ways, and what they reach
    python tests/benchmarks/trial.py fit ROWS                     the constants, and what they say of each row

The first row has the trial of START on a text and the loss after an adaptation that sees so many characters, with the program's
settings but for the time. Both ways are trained on the simulated clock of regret.py. So other programs may run beside it.
"""

import contextlib
import dataclasses
import io
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import regret  # noqa: E402

from chargpt.config import Config  # noqa: E402
from chargpt.planning import law, trial  # noqa: E402
from chargpt.planning.adaptation import EPOCHS, STEP_CHARACTERS, STEPS, adapt, begun, distance_of  # noqa: E402
from chargpt.planning.chosen_for_time import Job, Verdict, in_blocks, multiple  # noqa: E402
from chargpt.planning.cli import TrainOptions  # noqa: E402
from chargpt.planning.initial_settings import Asked  # noqa: E402
from chargpt.project import NO_START  # noqa: E402
from chargpt.runs.load import load_start  # noqa: E402
from chargpt.settings import Settings, Source  # noqa: E402
from chargpt.text.corpus import load_corpus  # noqa: E402
from chargpt.training.evaluation import evaluate, validation_split  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

JUDGED = 20_000  # characters of the validation split
ROBUST = 0.05  # see fit_comparison
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


def both(minutes: float, path: str) -> dict[str, object]:
    """The row of a text: the losses with the start that the trial prefers, and from nothing."""
    tried = dict[float, str]()
    given, name = [path, "runtime.threads=1", "train.sample_length=0", f"--minutes={minutes:g}"], Path(path).stem
    try_starts, expected_loss = trial.try_starts, trial.expected_loss

    def try_seen(asked: Asked, job: Job, *, expected: float) -> Verdict:
        row.update(characters=job.corpus.characters, expected_nothing=expected)
        return try_starts(asked, job, expected=expected)

    def expect(found: trial.Trial, *more: Any) -> float:
        tried[loss := expected_loss(found, *more)] = found.start
        return loss

    row: dict[str, object] = {"table": "trial-both", "text": name, "minutes": minutes}
    with tempfile.TemporaryDirectory() as folder, regret.simulated(), contextlib.redirect_stdout(io.StringIO()):
        given += [f"data.cache={folder}/cache"]
        with mock.patch.object(trial, "try_starts", try_seen), mock.patch.object(trial, "expected_loss", expect):
            regret.planned([*given, f"--run={folder}/plan"])
        row |= {"start": tried[min(tried)], "expected_loss": min(tried)}
        for way, start in (("loss", tried[min(tried)]), ("nothing", NO_START)):
            words, run = [*given, f"--start={start}", f"--run={folder}/{way}"], Path(folder, way)
            row[way] = regret.trained(words, regret.planned(words), run, following="")["loss"]
    return row


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


def fit_comparison(rows: list[dict]) -> None:
    """Print what is to be added to GAIN, and LENGTH, such that the comparison of both ways is right: fitted to the rows whose
    expectations are those of the first fit. An error of more than ROBUST counts by its size, not by its square."""
    real = np.log([row["loss"] / row["nothing"] for row in rows])
    said = np.log([row["expected_loss"] / row["expected_nothing"] for row in rows])
    parts = np.stack([np.ones(len(rows)), np.log([0.9 * row["characters"] / trial.AS_LONG for row in rows])], axis=1)

    def fitted(some: np.ndarray) -> np.ndarray:
        weights, found = np.ones(some.sum()), np.zeros(2)
        for _ in range(200):
            root = np.sqrt(weights)
            found = np.linalg.lstsq(parts[some] * root[:, None], (real - said)[some] * root, rcond=None)[0]
            weights = np.minimum(1.0, ROBUST / np.maximum(1e-9, abs(real - said - parts @ found)[some]))
        return found

    names = np.array([row["text"] for row in rows])
    lost = {"before": 0.0, "now": 0.0, "a start for all": 0.0, "none for all": 0.0}
    for row, part, ratio in zip(rows, parts, said):
        without = ratio + part @ fitted(names != row["text"])
        ways = {"before": ratio < math.log(0.92), "now": without < 0, "a start for all": True, "none for all": False}
        for rule, pays in ways.items():
            lost[rule] += (row["loss"] if pays else row["nothing"]) - min(row["loss"], row["nothing"])
    print("added to GAIN, and LENGTH =", ", ".join(f"{number:.3f}" for number in fitted(names != "")))
    print(
        f"above the better way, of {len(rows)} (now: fitted to the other texts):",
        {k: round(v / len(rows), 4) for k, v in lost.items()},
    )


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "measure":
        for path in words[2:]:
            print(json.dumps(measure(words[0], int(words[1]), path)), flush=True)
    elif kind == "both":
        for path in words[1:]:
            print(json.dumps(both(float(words[0]), path)), flush=True)
    else:
        read = [json.loads(line) for line in Path(words[0]).read_text().splitlines()]
        fit([row for row in read if row["table"] == "trial-fit"])
        fit_comparison([row for row in read if row["table"] in ("trial-both", "trial-held") and row.get("is_trained")])
