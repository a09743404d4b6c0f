"""A training in a process of its own is an object: it tells its progress to any thread or task, and ends as it should.

The process is one that tells what the test says, since it is about the parent; test_from_python.py has real ones.
"""

import _thread
import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import publish_run, wait_for

import chargpt
from chargpt.session import python_process, training
from chargpt.session.training import LATEST

ROOT = Path(chargpt.__file__).parents[1]
TELLING = """
import json, os, sys, threading
def tell(*record): print("\x1e" + json.dumps(record), flush=True)
def progress(step, **more): tell("progress", {"step": step, "of": 9, **more})
def until_stopped(): sys.stdin.read(1), tell("saved", RUN), sys.exit(130)
RUN = sys.argv[1]
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return publish_run(tmp_path / "run", steps=(500, 600))


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch, run: Path) -> Callable[[str], None]:
    """From now on, a training is a process that does this."""

    def starts(code: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        words = [sys.executable, "-S", "-c", TELLING + code, str(run)]
        monkeypatch.setattr(python_process, "start", lambda *_, **__: subprocess.Popen(words, encoding="utf-8", **pipes))

    return starts


TWO = "progress(1); progress(2, val_loss=1.5, evaluated=2)\n"


def test_progress_is_given_once_and_the_result_is_the_run(telling, run):
    telling(TWO + "tell('saved', RUN)")
    with chargpt.start() as begun:
        assert [now.step for now in begun] == [1, 2] and [*begun] == []
    assert not begun.is_running and begun.progress.val_loss == 1.5 and begun.run == run
    assert begun.result().step == 500


async def by_loop(begun: chargpt.Training) -> None:
    async for _ in begun:
        pass


async def by_result(begun: chargpt.Training) -> None:
    await begun


@pytest.mark.parametrize("waits", [by_loop, by_result])
def test_a_task_that_is_cancelled_stops_the_training(waits, telling):
    telling(TWO + "until_stopped()")

    async def main() -> chargpt.LoadedModel:
        begun = chargpt.start()
        task = asyncio.create_task(waits(begun))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await begun

    assert asyncio.run(main()).step == 500


def test_any_thread_may_stop_it_and_all_of_two_trainings_tell_their_own(telling):
    telling(TWO + "until_stopped()")
    first, second = chargpt.start(), chargpt.start()
    steps: list[int] = []
    reader = threading.Thread(target=lambda: steps.extend(now.step for now in first))
    reader.start()
    models = [None, None]
    stoppers = [threading.Thread(target=lambda i=i: models.__setitem__(i, first.stop())) for i in range(2)]
    for thread in stoppers:
        thread.start()
    for thread in [*stoppers, reader]:
        thread.join(30)
    assert [model.step for model in models] == [500, 500] and steps == [1, 2]
    assert second.is_running and next(second).step == 1
    assert second.stop().step == 500


def test_an_error_of_the_consumer_or_nobody_left_to_look_stops_it(telling):
    telling("progress(1); until_stopped()")
    with pytest.raises(ZeroDivisionError), chargpt.start() as begun:
        for now in begun:
            1 / (now.step - 1)
    assert not begun.is_running
    begun = chargpt.start()
    child, _ = begun._heard.child, next(begun)
    del begun
    gc.collect()
    assert child.wait(30) == 130


def test_an_interrupt_stops_it_and_a_second_one_ends_it_at_once(telling, run, capsys):
    for code, ends in (("until_stopped()", 500), ("sys.stdin.read(1); tell('log', 'x'); threading.Event().wait(60)", None)):
        telling(f"tell('log', 'begun'); tell('saved', RUN); {code}")

        def interrupt(times=1 if ends else 2) -> None:
            for word in ("begun", "x")[:times]:
                wait_for(lambda word=word: word in "".join(shown))
                _thread.interrupt_main()

        shown: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training.Printed, "lines", lambda _, text: shown.append(text))
            thread = threading.Thread(target=interrupt)
            thread.start()
            if ends:
                assert chargpt.train().step == ends
            else:
                with pytest.raises(KeyboardInterrupt):
                    chargpt.train()
            thread.join(30)


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("tell('error', 'RunExists', 'step 5: use another'); sys.exit(2)", chargpt.RunExists, "^step 5: use another$"),
        ("tell('error', 'NoSpace', 'a: no space left'); sys.exit(2)", chargpt.NoSpace, "^a: no space left$"),
        ("tell('error', 'NotFinite', 'nan'); tell('saved', 'a'); sys.exit(3)", chargpt.NotFinite, r"chargpt\.load\('a'\)$"),
        ("print('lost'); os.kill(os.getpid(), 9)", chargpt.Failed, "ended with code -?9; its last words: lost$"),
        ("print(end='cut' + chr(30) + '[\"saved\"'); sys.exit(1)", chargpt.Failed, "code 1; its last words: cut$"),
        *(
            (ended, chargpt.Stopped, "stopped before anything was saved")
            for ended in ("sys.exit(130)", "os.kill(os.getpid(), 2)")
        ),
    ],
)
def test_how_a_training_fails_is_an_exception_of_the_loop_and_of_the_result(code, error, says, telling):
    telling(TWO + code)
    begun, steps = chargpt.start(), []
    try:
        steps += [now.step for now in begun]
    except error:
        steps.append("raised")
    assert steps == ([1, 2] if error is chargpt.Stopped else []) or steps == ["raised"]
    for end in (begun.result, begun.stop):
        with pytest.raises(error, match=says):
            end()


def test_what_is_told_is_shown_in_the_way_that_was_asked_for(telling, capsys, monkeypatch):
    sample = "\nThe sea\n  is calm\n"
    first, last = f"tell('lines', {sample!r}); tell('notice', 'WARNING', 'odd'); ", "print('words'); tell('log', 'a')"
    telling(f"{first}{TWO}{last}; tell('saved', RUN)")
    records, log = list[logging.LogRecord](), logging.getLogger("chargpt")
    monkeypatch.setattr(log, "isEnabledFor", lambda level: level >= logging.INFO)
    monkeypatch.setattr(log, "handle", records.append)
    chargpt.start().result()
    assert capsys.readouterr().out == "" and not records
    chargpt.start(show="log").result()
    told = [(record.levelname, record.getMessage()) for record in records]
    line = "step 2/9: val loss 1.500 (2.164 bits/char)"
    lines = [("INFO", "The sea"), ("INFO", "  is calm"), ("WARNING", "warning: odd"), ("INFO", line), ("INFO", "words")]
    assert told == [*lines, ("INFO", "a")] and capsys.readouterr().out == ""
    chargpt.train()
    assert capsys.readouterr().out == f"{sample}\nwarning     odd\n{line}\nwords\na\n"
    with pytest.raises(ValueError, match="show='quiet': use one of nothing, log, bar"):
        chargpt.train(show="quiet")


def test_a_screen_that_fails_and_records_that_nobody_takes_do_not_hold_it_up(telling, monkeypatch):
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w") if Path("/dev/full").exists() else sys.stdout)
    telling(f"for i in range({LATEST + 5}): progress(i); tell('log', 'x' * 100)\ntell('saved', RUN)")
    begun = chargpt.start(show="bar")
    assert begun.result().step == 500 and len([*begun]) == LATEST


@pytest.mark.parametrize(
    ("frozen", "program", "named", "taken"),
    [
        (False, "/venv/bin/python3.12", "/app", "/venv/bin/python3.12"),
        (False, "/usr/bin/uwsgi", "/usr/bin/uwsgi", None),
        (False, "/usr/bin/uwsgi", "/usr/bin/python3", "/usr/bin/python3"),
        (False, "", "", None),
        (True, "/app/mypython", "/app/mypython", None),
        (True, "/app/poet", "/usr/bin/python3", "/usr/bin/python3"),
    ],
)
def test_a_program_that_has_python_inside_is_told_to_name_one(frozen, program, named, taken, monkeypatch):
    import multiprocessing.spawn

    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(multiprocessing.spawn, "get_executable", lambda: named)
    if taken:
        assert training.interpreter() == taken
    else:
        with pytest.raises(ValueError, match="multiprocessing.set_executable"):
            chargpt.train()


def test_a_fork_of_the_parent_stops_nothing(telling):
    telling(TWO + "until_stopped()")
    begun = chargpt.start()
    begun._heard.abandon(pid=-1)
    assert begun.is_running and begun.stop().step == 500


def test_a_warning_points_to_the_line_of_the_caller(telling, run):
    (run / "step-00000500" / "state.json").write_text("damaged")
    telling("tell('saved', RUN)")
    for called, says in (
        (lambda: chargpt.load(run), "newest checkpoint instead"),
        (chargpt.train, "newest checkpoint instead"),
        (lambda: chargpt.load(run).score(["abc", ""]), "their losses are nan"),
    ):
        with pytest.warns(UserWarning) as warned:
            called()
        assert says in str(warned[-1].message)
        assert {each.filename for each in warned} == {__file__}


def test_a_notebook_without_widgets_gets_plain_lines_and_no_warning():
    """Plain lines, since its standard error is no terminal; a bar of text would be one line of it for each drawing."""
    code = """
import sys, types
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(config={"IPKernelApp": {}}))
sys.modules["ipykernel.zmqshell"] = types.ModuleType("zmqshell")  # by one of the two, tqdm knows a notebook
sys.modules["ipywidgets"] = None  # as where it is not installed
from chargpt.session.training import Printed
print(Printed().bar_width)
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")
