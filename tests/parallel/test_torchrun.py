"""The same under torchrun itself: restarts after kills, two machines, and a cable that is unplugged."""

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
from programs import Programs

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SETTINGS = ["--config", "tiny", "train.log_interval=5", "train.sample_length=10", "train.accumulate=2", "train.chunks=8"]
SETTINGS += ["model.dropout=0.1", "runtime.threads=1", "runtime.precision=float32"]
HERE = {**os.environ, "OMP_NUM_THREADS": "1"}


def program(text: Path, folder: Path, name: str, *settings: str) -> list[str]:
    place = ["--run", f"{folder}/{name}", f"data.cache={folder}/cache"]
    return [str(ROOT / "train.py"), str(text), *SETTINGS, *settings, *place]


def result(folder: Path, name: str) -> tuple:
    return bits(folder / name), logged_without_speed(folder / name)


def whole_run(programs: Programs, text: Path, folder: Path, *settings: str) -> tuple:
    """What one process computes, without torchrun."""
    done = programs.run("train", *program(text, folder, "whole", *settings)[1:], timeout=300)
    assert done.returncode == 0, done.stderr
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


def test_two_processes_of_torchrun_give_the_bits_of_one(programs, text, tmp_path, pytestconfig):
    step = f"runtime.step={pytestconfig.getoption('step') or 'auto'}"  # torchrun's processes do not know the option
    settings = ("train.max_steps=12", "train.eval_interval=6", "checkpoint.interval=6", step)
    command = ["--standalone", "--nproc-per-node", "2", "--", *program(text, tmp_path, "run", *settings)]
    done = subprocess.run([*TORCHRUN, *command], env=HERE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert result(tmp_path, "run") == whole_run(programs, text, tmp_path, *settings)


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs the /proc of Linux to find the processes")
def test_torchrun_restarts_a_run_that_lost_a_process(programs, text, tmp_path):
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
        os.kill(workers[1], signal.SIGKILL)
        assert process.wait(timeout=60) == 0, log.read_text()
    printed = log.read_text()
    assert "error: rank 1 on " in printed and "has ended without a message" in printed and "resumed" in printed
    assert not any(is_alive(pid) for pid in workers)
    assert result(tmp_path, "run") == whole_run(programs, text, tmp_path, *settings)


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_200_steps_on_1_2_4_and_8_processes_are_the_same_bits(programs, text, tmp_path, optimizer):
    settings = (f"optim.name={optimizer}", "train.max_steps=200", "train.eval_interval=50", "train.batch_size=16")
    expected = whole_run(programs, text, tmp_path, *settings)
    for size in (2, 4, 8):
        command = ["--standalone", "--nproc-per-node", str(size), "--", *program(text, tmp_path, f"run-{size}", *settings)]
        subprocess.run([*TORCHRUN, *command], env=HERE, check=True, capture_output=True)
        assert result(tmp_path, f"run-{size}") == expected, size


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 4])
def test_25_kills_at_random_moments_change_nothing(programs, text, tmp_path, size):
    settings = ("optim.name=muon", "train.max_steps=400", "train.eval_interval=100", "checkpoint.interval=5")
    expected = whole_run(programs, text, tmp_path, *settings)
    command = ["--standalone", "--nproc-per-node", str(size), "--max-restarts", "100", "--"]
    died, name = 0, ""
    for attempt in range(10):  # a run may end before its 25 kills
        if died < 25:
            name = f"run-{attempt}"
            words = [*command, *program(text, tmp_path, name, *settings)]
            draw = random.Random(100 * size + attempt)
            died += run_with_kills(words, size, kills=25 - died, draw=draw, run=tmp_path / name)
            assert result(tmp_path, name) == expected
    print(f"{died} processes killed of {size} at a time, the last in {name}")
    assert died >= 25


@pytest.mark.nightly
def test_two_machines_and_a_cable_that_is_unplugged(programs, text, tmp_path):
    settings = ("optim.name=muon", "train.max_steps=600", "train.eval_interval=100", "checkpoint.interval=10")
    expected = whole_run(programs, text, tmp_path, *settings)
    words = program(text, tmp_path, "run", *settings, "runtime.timeout=5")

    def start(words: list[str]) -> list[subprocess.Popen]:
        logs = [open(tmp_path / f"log-{number}", "w") for number in range(2)]
        commands = [[*machines.torchrun(number, TORCHRUN, 2), *words] for number in range(2)]
        return [subprocess.Popen(c, env=HERE, stdout=log, stderr=subprocess.STDOUT) for c, log in zip(commands, logs)]

    with two_machines() as machines:
        processes = start(words)
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "step-00000050").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        machines.connect(up=False)
        cut = time.monotonic()
        codes = [process.wait(timeout=120) for process in processes]
        print(f"both machines ended {time.monotonic() - cut:.1f} s after the cut")
        printed = [(tmp_path / f"log-{number}").read_text() for number in range(2)]
        assert 0 not in codes
        for text_of_one in printed:
            errors = [line for line in text_of_one.splitlines() if line.startswith("error: ")]
            assert len(errors) == 1 and "gave no answer in 5 seconds" in errors[0], text_of_one[-3000:]
        machines.connect(up=True)
        resumed = [str(ROOT / "train.py"), "--resume", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
        codes = [process.wait(timeout=240) for process in start(resumed)]
        assert codes == [0, 0], (tmp_path / "log-0").read_text()[-3000:]
    assert result(tmp_path, "run") == expected
