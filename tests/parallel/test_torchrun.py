"""The same under torchrun itself: restarts after kills."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import bits, logged_without_speed

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
