"""The same under torchrun itself: restarts after kills, and two machines."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import bits, last_step, logged_without_speed
from parallel.machines import two_machines

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SETTINGS = ["--config", "tiny", "train.log_interval=5", "train.sample_length=10", "train.batch_size=12"]
SETTINGS += ["model.dropout=0.1", "runtime.threads=1", "runtime.precision=float32"]
HERE = {**os.environ, "OMP_NUM_THREADS": "1"}


def program(text: Path, folder: Path, name: str, *settings: str) -> list[str]:
    place = ["--run", f"{folder}/{name}", f"data.cache={folder}/cache"]
    return [str(ROOT / "train.py"), str(text), *SETTINGS, *settings, *place]


def result(folder: Path, name: str) -> tuple:
    return bits(folder / name), logged_without_speed(folder / name)


def whole_run(text: Path, folder: Path, size: int, *settings: str) -> tuple:
    """What as many processes compute without a disturbance."""
    command = ["--standalone", "--nproc-per-node", str(size), "--", *program(text, folder, "whole", *settings)]
    done = subprocess.run([*TORCHRUN, *command], env=HERE, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return result(folder, "whole")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and ") Z " not in status.read_text()


def wait_for_a_checkpoint(run: Path, process: subprocess.Popen) -> None:
    """Wait until the run has a new checkpoint, or has ended."""
    before, deadline = last_step(run) if run.is_dir() and any(run.glob("step-*")) else None, time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if run.is_dir() and any(run.glob("step-*")) and last_step(run) != before:
            return
        time.sleep(0.01)


def run_with_kills(command: list[str], size: int, *, kills: int, draw: random.Random, run: Path) -> int:
    """Run torchrun, and kill -9 a random one of its processes at a random moment, so many times; the number that died.

    Every other time, at most, the moment is in the start of the processes; otherwise it comes after a checkpoint.
    """
    seen, died, log = set(), 0, run.with_name("log")
    with open(log, "w") as output:
        process = subprocess.Popen([*TORCHRUN, *command], env=HERE, stdout=output, stderr=subprocess.STDOUT)
        try:
            while died < kills and process.poll() is None:
                time.sleep(0.02)
                workers = [pid for pid in children(process.pid) if pid not in seen]
                if len(workers) < size:
                    continue
                seen |= set(workers)
                if draw.random() < 0.7:
                    wait_for_a_checkpoint(run, process)
                    time.sleep(draw.uniform(0, 0.5))
                else:
                    time.sleep(draw.uniform(0, 4))
                victim = draw.choice(workers)
                if process.poll() is None and is_alive(victim):
                    os.kill(victim, signal.SIGKILL)
                    died += 1
            assert process.wait(timeout=240) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait()
    time.sleep(0.2)
    assert not [pid for pid in seen if is_alive(pid)]
    return died


def test_two_processes_of_torchrun_train_a_run(text, tmp_path, pytestconfig):
    step = f"runtime.step={pytestconfig.getoption('step') or 'auto'}"  # torchrun's processes do not know the option
    whole_run(text, tmp_path, 2, "train.max_steps=12", "train.eval_interval=6", "checkpoint.interval=6", step)
    assert last_step(tmp_path / "whole").name == "step-00000012"


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs the /proc of Linux to find the processes")
@pytest.mark.parametrize("victim", [0, 1])
def test_torchrun_restarts_a_run_that_lost_a_process(text, tmp_path, victim):
    settings = ("train.max_steps=30", "train.eval_interval=15", "checkpoint.interval=5")
    command = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "--"]
    command += program(text, tmp_path, "run", *settings)
    log, saved = tmp_path / "log", tmp_path / "run" / "step-00000010"
    with open(log, "w") as output:
        process = subprocess.Popen([*TORCHRUN, *command], env=HERE, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not saved.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        workers = children(process.pid)
        os.kill(workers[victim], signal.SIGKILL)
        assert process.wait(timeout=90) == 0, log.read_text()
    assert "resumed" in log.read_text() and not any(is_alive(pid) for pid in workers)
    assert result(tmp_path, "run") == whole_run(text, tmp_path, 2, *settings)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3])
def test_10_kills_at_random_moments_change_nothing(text, tmp_path, size):
    settings = ("optim.name=muon", "train.max_steps=400", "train.eval_interval=100", "checkpoint.interval=5")
    expected = whole_run(text, tmp_path, size, *settings)
    command = ["--standalone", "--nproc-per-node", str(size), "--max-restarts", "100", "--"]
    died, name = 0, ""
    for attempt in range(5):  # a run may end before its kills
        if died < 10:
            name = f"run-{attempt}"
            words = [*command, *program(text, tmp_path, name, *settings)]
            draw = random.Random(100 * size + attempt)
            died += run_with_kills(words, size, kills=10 - died, draw=draw, run=tmp_path / name)
            assert result(tmp_path, name) == expected
    print(f"{died} processes killed of {size} at a time, the last in {name}")
    assert died >= 10


@pytest.mark.nightly
def test_two_machines_give_the_bits_of_one_with_as_many_processes(text, tmp_path):
    settings = ("optim.name=muon", "train.max_steps=60", "train.eval_interval=30", "checkpoint.interval=30")
    expected = whole_run(text, tmp_path, 2, *settings)
    words = program(text, tmp_path, "run", *settings)
    with two_machines() as machines, contextlib.ExitStack() as stack:
        logs = [stack.enter_context(open(tmp_path / f"log-{number}", "w")) for number in range(2)]
        commands = [[*machines.torchrun(number, TORCHRUN, 1), *words] for number in range(2)]
        processes = [subprocess.Popen(c, env=HERE, stdout=log, stderr=subprocess.STDOUT) for c, log in zip(commands, logs)]
        codes = [process.wait(timeout=240) for process in processes]
    assert codes == [0, 0], (tmp_path / "log-0").read_text()[-3000:] + (tmp_path / "log-1").read_text()[-3000:]
    assert "processes   2 on 2 machines" in (tmp_path / "log-0").read_text()
    assert result(tmp_path, "run") == expected
