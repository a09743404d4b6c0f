"""The simulated clock of tests/benchmarks/regret.py, on which choices and recipes are compared."""

import random

from benchmarks import regret

from chargpt.runs.load import find_checkpoint


def test_a_training_on_the_simulated_clock_ends_with_the_same_weights_whatever_this_machine_does(tmp_path, monkeypatch):
    text, random_words = tmp_path / "text.txt", random.Random(5)
    text.write_text(" ".join("".join(random_words.choices("etaoin", k=4)) for _ in range(600)), encoding="utf-8")
    monkeypatch.setattr(regret, "SPEED", 3_000)
    ends = []
    for run in ("idle", "later"):
        words = [str(text), f"data.cache={tmp_path / 'cache' / run}", "runtime.threads=1", "train.sample_length=0"]
        words += ["--start=none", "--minutes=0.05", f"--run={tmp_path / run}"]
        with regret.simulated():
            regret.trained(words, regret.planned(words), tmp_path / run, following="")
        checkpoint, _ = find_checkpoint(str(tmp_path / run), tmp_path / run)
        ends.append({name: weights.tobytes() for name, weights in checkpoint.stored_weights.items()})
    assert checkpoint.state.progress.step > 0 and ends[0] == ends[1]
