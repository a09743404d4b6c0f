"""Several processes train one run alike; whichever of them dies, stops or errs, all end, and one of them says why."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import TINY_FILE, bits, logged_without_speed
from parallel.jobs import Ended, JobServer

LENGTH = "train.max_steps=24 train.eval_interval=6 checkpoint.interval=2 checkpoint.keep=100 train.log_interval=3"
SETTINGS = ["--config", TINY_FILE, *LENGTH.split(), "train.batch_size=12", "train.sample_length=10", "runtime.threads=1"]
SETTINGS += ["train.accumulate=2", "model.dropout=0.1", "optim.name=muon"]


class Runs:
    """Runs on one text, by name."""

    def __init__(self, server: JobServer, text: Path, folder: Path) -> None:
        self.server, self.text, self.folder = server, text, folder

    def begin(self, name: str, size: int, *settings: str, text: Path | str = "", **job) -> Ended:
        return self.server.run(size, str(text or self.text), *SETTINGS, *settings, *self.place(name), **job)

    def resume(self, name: str, size: int, *settings: str, **job) -> Ended:
        return self.server.run(size, "--resume", *settings, *self.place(name), **job)

    def place(self, name: str) -> list[str]:
        return ["--run", str(self.folder / name), f"data.cache={self.folder}/cache"]

    def result(self, name: str) -> tuple:
        """Weights, optimizer state and everything logged."""
        return bits(self.folder / name), logged_without_speed(self.folder / name)

    def losses(self, name: str) -> list[float]:
        return [row["val/loss"] for row in logged_without_speed(self.folder / name) if "val/loss" in row]

    def saves(self, name: str) -> Callable[[], bool]:
        """Whether the run has saved a checkpoint since this call."""
        before = len(self.checkpoints(name))
        return lambda: len(self.checkpoints(name)) > before

    def checkpoints(self, name: str) -> list[Path]:
        return list((self.folder / name).glob("step-*"))


@pytest.fixture(scope="module")
def runs(server, text, tmp_path_factory) -> Runs:
    """With `whole`, a finished run of two processes."""
    runs = Runs(server, text, tmp_path_factory.mktemp("runs"))
    assert runs.begin("whole", 2).codes == [0, 0]
    return runs


def test_all_processes_have_the_same_weights_and_repeat_their_bits_on_any_machines(runs):
    ended = runs.begin("again", 2, machines=2)
    assert ended.codes == [0, 0] and ended.errors == []
    assert "done" in ended.out[0] and not ended.out[1]  # the first process alone prints
    assert "processes   2 on 2 machines; each computes 6 of the 12 sequences of a step" in ended.out[0]
    assert len(set(ended.weights)) == 1 and ended.weights[0].count("\n") >= 6
    assert runs.result("again") == runs.result("whole")


def test_without_dropout_several_processes_compute_what_one_does(runs, tmp_path):
    """The same batch, gradient and evaluation, but for rounding. An evaluation has three batches, and its sum is the same."""
    long = tmp_path / "long.txt"
    long.write_text(runs.text.read_text() * 5)
    settings = (
        "model.dropout=0",
        "runtime.precision=float32",
        "train.max_steps=3",
        "train.eval_interval=1",
        "optim.name=adamw",
        "data.val_fraction=0.8",
    )
    for size in (1, 3):
        assert runs.begin(f"plain-{size}", size, *settings, text=long).codes == [0] * size
    one, three = (runs.losses(f"plain-{size}") for size in (1, 3))
    assert len(one) == 4 and one == pytest.approx(three, rel=1e-5) and one[0] == three[0]


def test_items_and_bfloat16_have_the_same_weights_everywhere(runs):
    settings = ("data.items=line", "data.label=file", "runtime.precision=bfloat16")
    ended = runs.begin("items", 2, "train.max_steps=3", *settings)
    assert ended.codes == [0, 0] and len(set(ended.weights)) == 1


def test_all_processes_decay_towards_the_weights_of_the_first(runs):
    """Also when the run goes on: the state of the optimizer has these weights."""
    constant = "optim.start_decay=5 optim.final_fraction=1 optim.warmup_steps=0".split()
    settings = ["--init-from", str(runs.folder / "whole"), *constant]
    assert runs.begin("adapted", 2, *settings, "train.max_steps=4").codes == [0, 0]
    ended = runs.resume("adapted", 2, "train.max_steps=6")
    assert ended.codes == [0, 0] and len(set(ended.weights)) == 1
    assert runs.begin("not stopped", 2, *settings, "train.max_steps=6").codes == [0, 0]
    assert bits(runs.folder / "adapted") == bits(runs.folder / "not stopped")


def test_killed_stopped_and_resumed_is_the_same_bits(runs):
    """kill -9 of the last process, SIGTERM to the last one, kill -9 of the first one, and a restart by torchrun to the end."""
    ended = runs.begin("moved", 2, when=runs.saves("moved"), victim=1)
    assert ended.codes[1] == -signal.SIGKILL and ended.codes[0] != 0 and ended.has_saved
    assert all("another process is lost" in line and "--resume" in line for line in ended.errors)
    ended = runs.resume("moved", 2, when=runs.saves("moved"), victim=1, number=signal.SIGTERM)
    assert ended.codes == [128 + signal.SIGTERM] * 2 and ended.errors == []
    assert "stopped" in ended.out[0] and "saving this step" in ended.err[0] + ended.err[1]
    ended = runs.resume("moved", 2, when=runs.saves("moved"))
    assert ended.codes[0] == -signal.SIGKILL and ended.codes[1] != 0 and ended.errors == []
    ended = runs.begin("moved", 2, restarts=1, saved=True)
    assert ended.codes == [0, 0] and "resumed" in ended.out[0]
    assert runs.result("moved") == runs.result("whole")


def test_another_number_of_processes_is_told(runs):
    shutil.copytree(runs.folder / "whole", runs.folder / "told")
    ended = runs.resume("told", 3, "train.max_steps=25")
    assert ended.codes == [0] * 3 and ended.out[0].count("processes 2 -> 3") == 1
    assert "so the losses from here on may differ slightly" in ended.out[0]


def test_two_processes_read_the_copies_of_a_teacher_that_is_gone(runs):
    shutil.copytree(runs.folder / "whole", runs.folder / "teacher")
    assert runs.begin("student", 2, "train.max_steps=2", "--teacher", f"{runs.folder}/teacher").codes == [0, 0]
    shutil.rmtree(runs.folder / "teacher")
    assert runs.resume("student", 2, "train.max_steps=3").codes == [0, 0]


def test_ctrl_c_while_the_run_begins_is_one_word(runs, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)  # the first process waits for text that does not come
    times = iter(range(10**6))
    job = {"stdin": f"{tmp_path}/pipe", "when": lambda: next(times) > 800, "number": signal.SIGINT}
    ended = runs.begin("early", 2, text="-", **job)
    os.close(end)
    assert ended.codes[0] == 130 and ended.codes[1] != 0 and ended.err[0] == "stopped\n" and ended.errors == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["train.batch_size=9"], "9 given, which 2 processes cannot share equally; use 8 or 10"),
        (["--find-lr"], "in one process"),
    ],
)
def test_a_mistake_is_one_line_and_ends_all_processes(runs, settings, says):
    ended = runs.begin("mistaken", 2, *settings)
    assert len(ended.errors) == 1 and says in ended.errors[0], ended.err
    assert ended.codes[0] == 2 and ended.codes[1] != 0 and not (runs.folder / "mistaken").exists() and not ended.has_saved


def test_a_dry_run_describes_what_the_processes_would_do(runs):
    ended = runs.begin("dry", 2, "--dry-run")
    assert ended.codes == [0, 0] and "training" in ended.out[0] and not (runs.folder / "dry").exists()


def test_the_models_of_a_run_follow_each_other_in_all_processes_and_one_reads_a_text_that_can_be_read_only_once(runs):
    words = ("train.teachers=1", "train.max_steps=4")
    assert runs.begin("staged", 2, *words, text="-", stdin=str(runs.text)).codes == [0, 0]
    place = runs.folder / "staged" / "stage-2"
    whole = bits(place), logged_without_speed(runs.folder / "staged")
    for path in place.glob("step-*"):
        if path.name != "step-00000000":
            shutil.rmtree(path)
    assert runs.resume("staged", 2).codes == [0, 0]
    assert (bits(place), logged_without_speed(runs.folder / "staged")) == whole


def test_a_loss_that_is_not_finite_is_one_line_and_code_3_after_three_rollbacks(runs):
    settings = ("optim.learning_rate=1e30", "optim.warmup_steps=0", "train.on_nonfinite=rollback")
    ended = runs.begin("diverged", 2, *settings)
    assert 3 in ended.codes and set(ended.codes) <= {3, -signal.SIGTERM} and len(ended.errors) == 1
    assert ended.out[0].count("\nrollback ") == 3


def test_a_full_disk_of_the_first_process_is_one_line(runs):
    limited = runs.begin("full", 2, limit_files=60_000)
    assert limited.codes[0] == 2 and limited.codes[1] != 0 and len(limited.errors) == 1
    assert "not saved" in limited.errors[0]


def test_minutes_are_those_of_the_first_process(runs):
    words = ("--minutes", "0.01", "train.max_steps=100000", "train.eval_interval=1000", "checkpoint.interval=1000")
    ended = runs.begin("timed", 2, *words)
    assert ended.codes == [0, 0] and "done" in ended.out[0]
    # Once its length is fixed, a run that torchrun starts again keeps it.
    before = runs.result("timed")
    assert runs.begin("timed", 2, *words, restarts=1, saved=True).codes == [0, 0] and runs.result("timed") == before
