"""The process that writes a report follows the run in its share of the time; whatever happens to it, the run loses nothing."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import Clock, bits, wait_for

import train
from chargpt.notices import Kind
from chargpt.pages import follow
from chargpt.pages.follow import Following
from chargpt.runs.run import Run
from chargpt.session import follower, python_process
from chargpt.session.follower import Follower

WORDS = ["--config", "tiny", "train.max_steps=12", "train.eval_interval=6", "train.sample_length=20", "runtime.threads=1"]


def following(run: Path, **changes: object) -> Following:
    return Following(**{"folder": str(run), "home": str(run), "device": "cpu", "text": {}, "opens": False, **changes})


def page_of(run: Path) -> str:
    """What is in its report now; empty if there is none."""
    with contextlib.suppress(OSError):
        return (run / "report.html").read_text(encoding="utf-8")
    return ""


def log(run: Path, step: int) -> None:
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"stage": 1, "step": step, "val/loss": 2.0, "sample": f"sample{step}"}) + "\n")


@pytest.fixture
def real(monkeypatch):
    """The report is written by a process of its own, as outside of the tests."""
    monkeypatch.setattr(follower, "start", python_process.start)


@pytest.mark.parametrize("name", ["mine", "lion"])
def test_the_page_follows_the_log_reads_itself_again_and_moves_with_the_run(name, run, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "LOOKS", 0.01)
    monkeypatch.setattr(follow, "SHARE", 1e9)
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    new, home, ended = tmp_path / "mine.new", tmp_path / "mine", threading.Event()
    os.symlink(run, new)
    (run / "report.html").unlink(missing_ok=True)
    thread = threading.Thread(target=following(new, home=str(home), opens=True).while_training, args=[ended])
    thread.start()
    try:
        for step in (5, 6):
            log(run, step)
            wait_for(lambda: f"sample{step}" in page_of(run))  # noqa: B023
            assert 'http-equiv="refresh"' in page_of(run) and "at the end of the training" in page_of(run)
        assert opened == []
        new.rename(tmp_path / name)  # it has taken the place of another run, or a person has renamed it
        log(run, 7)
        wait_for(lambda: opened or name != home.name)
        log(run, 8)
        wait_for(lambda: "sample8" in page_of(run))
    finally:
        ended.set()
        thread.join()
        (run / "metrics.jsonl").unlink()
    assert opened == [(home / "report.html").resolve().as_uri()] * (name == home.name)


class Ended(threading.Event):
    """The end of a training of so many seconds, by a clock of its own. The log grows all the time."""

    def __init__(self, clock: Clock, seconds: float, run: Path) -> None:
        super().__init__()
        self.clock, self.end, self.run = clock, clock.now + seconds, run

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.sleep(timeout)
        log(self.run, int(self.clock.now))
        return self.clock.now >= self.end


@pytest.mark.parametrize("page", [0.02, 2.0])
def test_it_works_for_a_hundredth_of_the_time(page, tmp_path, monkeypatch):
    clock, pages = Clock(), []

    def write(self: Following, *, refresh: int) -> None:
        pages.append(clock.now)
        clock.worked += page

    monkeypatch.setattr(follow, "time", clock)
    monkeypatch.setattr(Following, "write_logged", write)
    following(tmp_path).while_training(Ended(clock, 3600, tmp_path))
    assert 36 - page - 1 <= clock.worked <= 36 + page and pages[0] - 1000 == pytest.approx(10, abs=1.1)


@pytest.mark.parametrize("trouble", ["a folder in its place", "no run"])
def test_a_page_that_cannot_be_written_has_a_reason(trouble, run, tmp_path):
    place = tmp_path if trouble == "no run" else run
    (run / "report.html").unlink(missing_ok=True)
    if trouble != "no run":
        (run / "report.html").mkdir()
    try:
        assert following(place).write_complete().strip()
        assert not list(run.glob(".*tmp*"))
    finally:
        (run / "report.html").rmdir() if trouble != "no run" else None


@pytest.fixture
def forked(programs, monkeypatch):
    """The same, where the process shares an import of torch with other programs."""
    monkeypatch.setattr(follower, "start", programs.beside)


def test_a_training_ends_with_its_page_which_costs_it_nothing(forked, text, tmp_path, capsys, monkeypatch):
    words = [str(text), *WORDS, f"data.cache={tmp_path}/cache"]
    assert train.main([*words, "--run", f"{tmp_path}/run"]) == 0
    assert f"\nreport      {tmp_path}/run/report.html\nsample " in capsys.readouterr().out
    assert "What it copies" in page_of(tmp_path / "run") and 'http-equiv="refresh"' not in page_of(tmp_path / "run")
    monkeypatch.setattr(follower, "start", python_process.start)
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    assert train.main([*words, "--run", f"{tmp_path}/other"]) == 0
    warning = "other/report.html: not written (No such file or directory); the run is complete without it\n"
    assert warning in " ".join(capsys.readouterr().out.split(" ")) and page_of(tmp_path / "other") == ""
    assert bits(tmp_path / "run") == bits(tmp_path / "other")


@pytest.mark.parametrize("program", [None, "", "/bin/false", "/dev/null"])
def test_a_process_that_cannot_start_or_dies_is_one_warning(program, real, tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(sys, "executable", program)
    kind, said, _ = Follower(Run(tmp_path / "run"), corpus, device="cpu", opens=False).finish(left=9)
    assert kind is Kind.WARNING and "report.html: not written" in said and "\n" not in said


def test_a_signal_leaves_the_page_to_its_process(forked, run, corpus, capfd, monkeypatch):
    (run / "report.html").unlink(missing_ok=True)
    writing = Follower(Run(run), corpus, device="cpu", opens=False)
    at_first_look = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr("chargpt.session.follower.time", at_first_look)
    kind, said, _ = writing.finish(left=9)
    assert kind is Kind.REPORT and "What it copies" not in page_of(run) and capfd.readouterr().err == ""
    wait_for(lambda: "What it copies" in page_of(run))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals of POSIX")
def test_it_ends_with_a_page_that_stays_when_the_training_is_killed(run):
    (run / "report.html").unlink(missing_ok=True)
    asked = json.dumps(dataclasses.asdict(following(run)))
    code = f"""
import os, signal, subprocess
from chargpt.session.python_process import start
print(start("chargpt.pages.follow", {asked!r}, stderr=subprocess.DEVNULL).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(follow.__file__).parents[2])

    def is_gone() -> bool:
        try:
            return "Z" in Path(f"/proc/{int(killed.stdout)}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True

    assert killed.returncode == -signal.SIGKILL
    wait_for(is_gone)
    assert "at the end of the training" in page_of(run) and 'http-equiv="refresh"' not in page_of(run)
