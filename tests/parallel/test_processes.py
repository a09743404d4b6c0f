"""Several processes train one run alike; whichever of them dies, stops or errs, all end, and one of them says why."""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from helpers import TINY_FILE, bits, logged_without_speed
from parallel.jobs import Ended, JobServer

SETTINGS = [
    "--config",
    TINY_FILE,
    *(
        "train.max_steps=24 train.eval_interval=12 train.batch_size=12 checkpoint.interval=4 checkpoint.keep=100 "
        "train.log_interval=3 train.sample_length=10 train.accumulate=2 model.dropout=0.1 runtime.threads=1"
    ).split(),
]
OPTIMIZERS = ("adamw", "muon")


class Runs:
    """Runs on one text, by name."""

    def __init__(self, server: JobServer, text: Path, folder: Path) -> None:
        self.server, self.text, self.folder = server, text, folder

    def begin(self, name: str, size: int, *settings: str, **job) -> Ended:
        return self.server.run(size, str(self.text), *SETTINGS, *settings, *self.place(name), **job)

    def resume(self, name: str, size: int, *settings: str, **job) -> Ended:
        return self.server.run(size, "--resume", *settings, *self.place(name), **job)

    def place(self, name: str) -> list[str]:
        return ["--run", str(self.folder / name), f"data.cache={self.folder}/cache"]

    def result(self, name: str) -> tuple:
        """Weights, optimizer state and everything logged."""
        return bits(self.folder / name), logged_without_speed(self.folder / name)

    def losses(self, name: str) -> list[float]:
        return [row["val/loss"] for row in logged_without_speed(self.folder / name) if "val/loss" in row]

    def has_saved(self, name: str, step: int):
        return (self.folder / name / f"step-{step:08d}").exists


@pytest.fixture(scope="module")
def runs(server, text, tmp_path_factory) -> Runs:
    """With a finished run of two processes for each optimizer."""
    runs = Runs(server, text, tmp_path_factory.mktemp("runs"))
    for optimizer in OPTIMIZERS:
        assert runs.begin(optimizer, 2, f"optim.name={optimizer}").codes == [0, 0]
    return runs


@pytest.mark.parametrize(("optimizer", "size"), [("adamw", 2), ("muon", 3)])
def test_all_processes_have_the_same_weights_and_repeat_their_bits(runs, optimizer, size):
    name = f"{optimizer}-{size}"
    ended = runs.begin(name, size, f"optim.name={optimizer}")
    assert ended.codes == [0] * size and ended.errors == []
    assert "done" in ended.out[0] and not any(ended.out[1:])  # the first process alone prints
    assert f"processes   {size} on 1 machine; each computes {12 // size} windows of a batch" in ended.out[0]
    assert len(set(ended.weights)) == 1 and ended.weights[0].count("\n") >= 6
    assert runs.begin(f"{name}-again", size, f"optim.name={optimizer}").weights == ended.weights
    assert runs.result(f"{name}-again") == runs.result(name)


def test_without_dropout_several_processes_compute_what_one_does(runs):
    """The same batch, gradient and evaluation, but for rounding."""
    settings = ("model.dropout=0", "runtime.precision=float32", "train.max_steps=4", "train.eval_interval=1")
    for size in (1, 2, 3):
        assert runs.begin(f"plain-{size}", size, *settings).codes == [0] * size
    one, two, three = (runs.losses(f"plain-{size}") for size in (1, 2, 3))
    assert len(one) == 5 and one == pytest.approx(two, rel=1e-5) and one == pytest.approx(three, rel=1e-5)
    assert one[0] == two[0] == three[0]  # an evaluation is shared, and its sum is the same


def test_an_evaluation_in_several_batches_is_shared(runs, text, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text(text.read_text() * 40)  # 48,000 characters of it are for validation: three batches
    for size in (1, 2):
        settings = [*SETTINGS, "train.max_steps=1", "train.eval_interval=1", *runs.place(f"long-{size}")]
        assert runs.server.run(size, str(long), *settings).codes == [0] * size
    assert runs.losses("long-1")[0] == runs.losses("long-2")[0]


@pytest.mark.parametrize("settings", [["data.items=line", "data.label=file"], ["runtime.precision=bfloat16"]], ids=str)
def test_items_and_bfloat16_have_the_same_weights_everywhere(runs, settings, request):
    ended = runs.begin(f"kind-{settings[0]}", 3, "optim.name=muon", *settings)
    assert ended.codes == [0] * 3 and len(set(ended.weights)) == 1


@pytest.mark.parametrize("optimizer", ["muon"])
def test_all_processes_pull_towards_the_weights_of_the_first(runs, optimizer):
    settings = ("--init-from", str(runs.folder / "muon"), f"optim.name={optimizer}", "optim.start_decay=5")
    ended = runs.begin(f"adapted-{optimizer}", 2, *settings, when=runs.has_saved(f"adapted-{optimizer}", 12))
    assert 0 not in ended.codes
    ended = runs.resume(f"adapted-{optimizer}", 2)
    assert ended.codes == [0, 0] and len(set(ended.weights)) == 1
    assert runs.begin(f"whole-{optimizer}", 2, *settings).codes == [0, 0]
    assert runs.result(f"whole-{optimizer}") == runs.result(f"adapted-{optimizer}")


@pytest.mark.parametrize("optimizer", ["muon"])
def test_killed_stopped_and_resumed_is_the_same_bits(runs, optimizer):
    """kill -9 of the last process, SIGTERM to the last one, kill -9 of the first one, and on to the end."""
    name = f"moved-{optimizer}"
    ended = runs.begin(name, 2, f"optim.name={optimizer}", when=runs.has_saved(name, 4), victim=1)
    assert ended.codes[1] == -signal.SIGKILL and ended.codes[0] != 0
    assert all("another process is lost" in line and "--resume" in line for line in ended.errors)
    ended = runs.resume(name, 2, when=runs.has_saved(name, 12), victim=1, number=signal.SIGTERM)
    assert ended.codes == [128 + signal.SIGTERM] * 2 and ended.errors == []
    assert "stopped" in ended.out[0] and "saving this step" in ended.err[0] + ended.err[1]
    ended = runs.resume(name, 2, when=runs.has_saved(name, 20))
    assert ended.codes[0] == -signal.SIGKILL and ended.codes[1] != 0 and ended.errors == []
    assert runs.resume(name, 2).codes == [0, 0]
    assert runs.result(name) == runs.result(optimizer)


def test_another_number_of_processes_is_told(runs):
    assert runs.begin("told", 2, "train.max_steps=4").codes == [0, 0]
    ended = runs.resume("told", 3, "train.max_steps=6")
    assert ended.codes == [0] * 3 and ended.out[0].count("processes 2 -> 3") == 1 and "not with the same bits" in ended.out[0]
    ended = runs.resume("told", 1, "train.max_steps=8")
    assert ended.codes == [0] and "processes 3 -> 1" in ended.out[0]
    assert "environment" not in runs.resume("told", 1, "train.max_steps=9").out[0]
    ended = runs.resume("told", 5, "train.max_steps=10")
    assert len(ended.errors) == 1 and "12 given for 5 processes" in ended.errors[0]


def test_two_processes_read_the_copies_of_a_teacher_that_is_gone(runs):
    assert runs.begin("teacher", 1, "train.max_steps=4").codes == [0]
    settings = ("train.max_steps=4", "--teacher", f"{runs.folder}/teacher")
    assert runs.begin("student", 2, *settings).codes == [0, 0]
    shutil.rmtree(runs.folder / "teacher")
    assert runs.resume("student", 2, "train.max_steps=6").codes == [0, 0]


def test_ctrl_c_while_the_run_begins_is_one_word(runs, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # the first process waits for text that does not come
    times = iter(range(10**6))
    ended = runs.server.run(
        2, "-", *SETTINGS, *runs.place("early"), stdin=str(pipe), when=lambda: next(times) > 2000, number=signal.SIGINT
    )
    os.close(end)
    assert ended.codes[0] == 130 and ended.codes[1] != 0 and ended.err[0] == "stopped\n" and ended.errors == []


def test_a_process_that_torchrun_starts_again_continues_its_run(runs):
    ended = runs.begin("again", 2, when=runs.has_saved("again", 8), victim=random.Random(0).randrange(2))
    assert 0 not in ended.codes
    ended = runs.begin("again", 2, restarts=1, saved=True)
    assert ended.codes == [0, 0] and "resumed" in ended.out[0]
    assert runs.result("again") == runs.result("adamw")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["train.batch_size=9"], "train.batch_size: 9 given for 2 processes; use 8 or 10"),
        (["--find-lr"], "--find-lr: works in one process"),
        (["model.block_size=20000"], "characters"),
    ],
)
def test_a_mistake_is_one_line_and_ends_all_processes(runs, settings, says):
    ended = runs.begin("mistaken", 2, *settings)
    assert len(ended.errors) == 1 and says in ended.errors[0], ended.err
    assert ended.codes[0] == 2 and ended.codes[1] != 0 and not (runs.folder / "mistaken").exists()


def test_a_batch_that_is_chosen_is_a_multiple_of_the_processes(runs, text):
    ended = runs.server.run(3, str(text), "--minutes", "0.05", "train.eval_interval=100", *runs.place("chosen"))
    assert ended.codes == [0] * 3, ended.err


def test_a_dry_run_describes_what_the_processes_would_do(runs):
    ended = runs.begin("dry", 2, "--dry-run")
    assert ended.codes == [0, 0] and "training" in ended.out[0] and not (runs.folder / "dry").exists()


def test_the_models_of_a_run_follow_each_other_in_all_processes(runs):
    assert runs.begin("staged", 2, "train.teachers=1").codes == [0, 0]
    whole = bits(runs.folder / "staged" / "stage-2"), logged_without_speed(runs.folder / "staged")
    for path in (runs.folder / "staged" / "stage-2").glob("step-*"):
        if path.name != "step-00000000":
            shutil.rmtree(path)
    assert runs.resume("staged", 2).codes == [0, 0]
    assert (bits(runs.folder / "staged" / "stage-2"), logged_without_speed(runs.folder / "staged")) == whole


def test_a_loss_that_is_not_finite_is_one_line_and_code_3(runs):
    settings = ("optim.learning_rate=1e30", "optim.warmup_steps=0", "train.eval_interval=24")
    ended = runs.begin("diverged", 2, *settings)
    assert 3 in ended.codes and set(ended.codes) <= {3, -signal.SIGTERM} and len(ended.errors) == 1
    ended = runs.begin("rolled-back", 2, *settings, "train.on_nonfinite=rollback")
    assert 3 in ended.codes and ended.out[0].count("\nrollback ") == 3 and len(ended.errors) == 1


def test_a_full_disk_of_the_first_process_is_one_line(runs):
    limited = runs.begin("full", 2, limit_files=60_000)
    assert limited.codes[0] == 2 and limited.codes[1] != 0 and len(limited.errors) == 1
    assert "not saved" in limited.errors[0]


def test_minutes_are_those_of_the_first_process(runs):
    ended = runs.begin("timed", 2, "--minutes", "0.05", "train.max_steps=100000", "checkpoint.keep=2")
    assert ended.codes == [0, 0] and "done" in ended.out[0]
    # Once its length is fixed, a run that torchrun starts again keeps it.
    before = runs.result("timed")
    ended = runs.begin("timed", 2, "--minutes", "0.05", "train.max_steps=100000", restarts=1, saved=True)
    assert ended.codes == [0, 0] and runs.result("timed") == before


def test_a_text_that_can_be_read_only_once_is_read_by_one_process(runs, tmp_path):
    ended = runs.server.run(2, "-", *SETTINGS, "train.max_steps=4", *runs.place("piped"), stdin=str(runs.text))
    assert ended.codes == [0, 0]
    ended = runs.resume("piped", 2, "train.max_steps=8")
    assert ended.codes == [0, 0], ended.err
