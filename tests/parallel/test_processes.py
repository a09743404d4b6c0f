"""Several processes give the bits of one; whichever of them dies, stops or errs, all end, and one of them says why."""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from helpers import bits, logged_without_speed
from parallel.jobs import Ended, JobServer

SETTINGS = [
    "--config",
    "tiny",
    "train.max_steps=24",
    "train.eval_interval=12",
    "checkpoint.interval=4",
    "checkpoint.keep=100",
    "train.log_interval=3",
    "train.sample_length=10",
    "train.accumulate=2",
    "train.chunks=4",
    "model.dropout=0.1",
    "runtime.threads=1",
]
OPTIMIZERS = ("adamw", "muon")
# For runs whose bits are compared: gradients in bfloat16 add up almost exactly in float32, so their order would rarely show.
FLOAT32 = "runtime.precision=float32"


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

    def has_saved(self, name: str, step: int):
        return (self.folder / name / f"step-{step:08d}").exists


@pytest.fixture(scope="module")
def runs(server, text, tmp_path_factory) -> Runs:
    """With a finished run of one process for each optimizer, in float32."""
    runs = Runs(server, text, tmp_path_factory.mktemp("runs"))
    for optimizer in OPTIMIZERS:
        assert runs.begin(optimizer, 1, f"optim.name={optimizer}", FLOAT32).codes == [0]
    return runs


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [2, 4])
def test_any_number_of_processes_gives_the_same_bits(runs, optimizer, size):
    name = f"{optimizer}-{size}"
    ended = runs.begin(name, size, f"optim.name={optimizer}", FLOAT32)
    assert ended.codes == [0] * size and ended.errors == []
    assert runs.result(name) == runs.result(optimizer)
    assert "done" in ended.out[0] and not any(ended.out[1:])  # the first process alone prints


def test_items_have_the_same_bits(runs):
    settings = ("data.items=line", "data.label=file", "optim.name=muon", FLOAT32)
    assert runs.begin("items-1", 1, *settings).codes == [0]
    assert runs.begin("items-2", 2, *settings).codes == [0] * 2
    assert runs.result("items-2") == runs.result("items-1") != runs.result("muon")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_adaptation_has_the_same_bits(runs, optimizer):
    """The other processes begin with no weights, and the optimizer keeps those that they get from the first one."""
    settings = ("--init-from", str(runs.folder / "muon"), f"optim.name={optimizer}", "optim.start_decay=5", FLOAT32)
    for size in (1, 2):
        assert runs.begin(f"adapted-{optimizer}-{size}", size, *settings).codes == [0] * size
    assert runs.result(f"adapted-{optimizer}-2") == runs.result(f"adapted-{optimizer}-1")
    assert runs.begin(f"free-{optimizer}", 1, *settings, "optim.start_decay=0").codes == [0]
    assert runs.result(f"free-{optimizer}")[0] != runs.result(f"adapted-{optimizer}-1")[0]


def test_a_plain_all_reduce_gives_other_bits(runs):
    """The control: the comparison above can fail."""
    assert runs.begin("control", 4, "optim.name=adamw", FLOAT32, control=True).codes == [0] * 4
    assert runs.result("control")[0] != runs.result("adamw")[0]


def test_an_evaluation_in_several_batches_is_shared(runs, text, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text(text.read_text() * 40)  # 48,000 characters of it are for validation: three batches
    settings = [*SETTINGS, "train.max_steps=2", "train.eval_interval=1"]
    for size in (1, 2):
        assert runs.server.run(size, str(long), *settings, *runs.place(f"long-{size}")).codes == [0] * size
    assert runs.result("long-1") == runs.result("long-2")


def test_bfloat16_is_shared_as_it_is_computed_with(runs):
    for size in (1, 2):
        often = ("train.max_steps=6", "train.eval_interval=3", "checkpoint.interval=100", "train.sample_length=100")
        settings = ("runtime.precision=bfloat16", "optim.name=muon", "optim.learning_rate=0.05", *often)
        assert runs.begin(f"bfloat16-{size}", size, *settings).codes == [0] * size
    assert runs.result("bfloat16-1") == runs.result("bfloat16-2")


def test_killed_stopped_and_resumed_on_4_2_1_and_4_processes(runs):
    """kill -9 of the last rank of 4, SIGTERM to the last of 2, kill -9 of one process, and 4 to the end."""
    ended = runs.begin("moved", 4, "optim.name=muon", FLOAT32, when=runs.has_saved("moved", 4), victim=3)
    assert -signal.SIGKILL in ended.codes and 0 not in ended.codes and ended.seconds < 60
    (line,) = ended.errors
    assert line.startswith("error: rank 3 on ") and "has ended without a message" in line and "--resume" in line
    ended = runs.resume("moved", 2, when=runs.has_saved("moved", 12), victim=1, number=signal.SIGTERM)
    assert ended.codes == [128 + signal.SIGTERM] * 2 and ended.errors == [] and "stopped" in ended.out[0]
    assert runs.resume("moved", 1, when=runs.has_saved("moved", 20)).codes == [-signal.SIGKILL]
    assert runs.resume("moved", 4).codes == [0] * 4
    assert runs.result("moved") == runs.result("muon")


def test_two_processes_read_the_copies_of_a_teacher_that_is_gone(runs):
    assert runs.begin("teacher", 1, "train.max_steps=4").codes == [0]
    settings = ("train.max_steps=4", f"train.teachers={runs.folder}/teacher")
    assert runs.begin("student", 2, *settings).codes == [0, 0]
    shutil.rmtree(runs.folder / "teacher")
    assert runs.resume("student", 2, "train.max_steps=6").codes == [0, 0]


def test_ctrl_c_while_the_run_begins_is_one_word(runs, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # the first process waits for text that does not come
    output = runs.server.folder / "output-1.2"

    def waits() -> bool:
        return output.exists() and "waiting for the text" in output.read_text()

    ended = runs.server.run(2, "-", *SETTINGS, *runs.place("early"), stdin=str(pipe), when=waits, number=signal.SIGINT)
    os.close(end)
    assert ended.codes[0] == 130 and ended.codes[1] != 0 and ended.err[0] == "stopped\n" and ended.errors == []


def test_a_process_that_torchrun_starts_again_continues_its_run(runs):
    settings = ("optim.name=adamw", FLOAT32)
    ended = runs.begin("again", 2, *settings, when=runs.has_saved("again", 8), victim=random.Random(0).randrange(2))
    assert 0 not in ended.codes
    ended = runs.begin("again", 2, *settings, restarts=1, begun=True)
    assert ended.codes == [0, 0] and "resumed" in ended.out[0]
    assert runs.result("again") == runs.result("adamw")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["train.batch_size=9"], "train.batch_size: 9 given; use 8 or 12: a multiple of train.chunks"),
        (["train.chunks=1"], "--nproc-per-node: 2 processes in all, for a run with train.chunks=1"),
        (["train.chunks=3"], "train.chunks: 3 given; use a power of two"),
        (["train.steps=9"], "train.steps: no such key"),
        (["--find-lr"], "--find-lr: works in one process"),
        (["no-such-text.txt"], "no-such-text.txt"),
        (["model.block_size=20000"], "characters"),
    ],
)
def test_a_mistake_is_one_line_and_ends_all_processes(runs, settings, says):
    ended = runs.begin("mistaken", 2, *settings)
    assert len(ended.errors) == 1 and says in ended.errors[0], ended.err
    assert ended.codes[0] == 2 and not (runs.folder / "mistaken").exists()


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        (["train.seed=5"], [], "settings: train.seed=5 on rank 0 and not given on rank 1"),
        ([], ["--dry-run"], "--dry-run: not given on rank 0 and given on rank 1"),
        (["--dry-run"], [], "--dry-run: given on rank 0 and not given on rank 1"),
        (["--minutes", "3"], ["--minutes", "5"], "--minutes: 3.0 on rank 0 and 5.0 on rank 1"),
        ([], ["more.txt"], "TEXT: "),
        (["--resume"], [], "--resume: given on rank 0 and not given on rank 1"),
    ],
)
def test_other_options_of_another_process_are_one_line_at_once(runs, first, last, says):
    place = runs.place("other")
    ended = runs.server.run(2, *first, *place, last=[*last, *place])
    assert len(ended.errors) == 1 and says in ended.errors[0], ended.err
    assert "give every process the same options" in ended.errors[0] and ended.seconds < 100
    assert ended.codes[0] == 2 and 0 not in ended.codes and not (runs.folder / "other").exists()


def test_a_run_that_exists_is_not_overwritten_and_not_resumed_on_too_many_processes(runs):
    assert "a run of this name exists" in runs.begin("adamw", 2).errors[0]
    assert "a run of this name exists" in runs.begin("adamw", 2, restarts=1).errors[0]  # torchrun tries again after any error
    settings = ("train.chunks=1", "train.max_steps=4")
    assert runs.begin("one-chunk", 1, *settings).codes == [0]
    ended = runs.resume("one-chunk", 2)
    assert len(ended.errors) == 1 and "for a run with train.chunks=1" in ended.errors[0]


def test_a_dry_run_describes_what_the_processes_would_do(runs):
    ended = runs.begin("dry", 2, "--dry-run")
    assert ended.codes == [0, 0] and "training" in ended.out[0] and not (runs.folder / "dry").exists()
    ended = runs.begin("dry", 2, "--dry-run", "train.student_minutes=1")
    assert len(ended.errors) == 1 and "two runs are made by one process" in ended.errors[0]


def test_a_loss_that_is_not_finite_is_one_line_and_code_3(runs):
    settings = ("optim.learning_rate=1e30", "optim.warmup_steps=0", "train.eval_interval=24")
    ended = runs.begin("diverged", 2, *settings)
    assert 3 in ended.codes and set(ended.codes) <= {3, -signal.SIGTERM} and len(ended.errors) == 1
    ended = runs.begin("rolled-back", 2, *settings, "train.on_nonfinite=rollback")
    assert 3 in ended.codes and ended.out[0].count("\nrollback ") == 3 and len(ended.errors) == 1
    assert runs.begin("rolled-back-1", 1, *settings, "train.on_nonfinite=rollback").codes == [3]
    assert runs.result("rolled-back") == runs.result("rolled-back-1")


def test_a_full_disk_of_the_first_process_is_one_line(runs):
    limited = runs.begin("full", 2, "optim.name=adamw", "train.chunks=2", limit_files=60_000)
    assert limited.codes[0] == 2 and limited.codes[1] != 0 and len(limited.errors) == 1
    assert "not saved" in limited.errors[0]


def test_minutes_are_those_of_the_first_process(runs):
    ended = runs.begin("timed", 2, "--minutes", "0.05", "train.max_steps=100000", "checkpoint.keep=2")
    assert ended.codes == [0, 0] and "done" in ended.out[0]
    # Once its length is fixed, a run that torchrun starts again keeps it.
    before = runs.result("timed")
    ended = runs.begin("timed", 2, "--minutes", "0.05", "train.max_steps=100000", restarts=1, begun=True)
    assert ended.codes == [0, 0] and runs.result("timed") == before


def test_a_text_that_can_be_read_only_once_is_read_by_one_process(runs, tmp_path):
    ended = runs.server.run(2, "-", *SETTINGS, "train.max_steps=4", *runs.place("piped"), stdin=str(runs.text))
    assert ended.codes == [0, 0]
    ended = runs.resume("piped", 2, "train.max_steps=8")
    assert ended.codes == [0, 0], ended.err
