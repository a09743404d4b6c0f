"""What several test files do with sessions: make the one that train.py makes, and train it to its end."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers import Clock

import train
from chargpt.interrupt import Interrupt
from chargpt.pages.follow import Following
from chargpt.planning import budget, speeds
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import Opening, make_plan
from chargpt.project import project_root
from chargpt.session.session import Session
from chargpt.training.group import Group
from chargpt.training.trainer import Trainer


@contextlib.contextmanager
def stopped_after(step: int) -> Iterator[None]:
    """A SIGTERM comes after this step of a model; none after step 0."""
    advance = Session.advance

    def advanced(session: Session) -> None:
        advance(session)
        if session.trainer.progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "advance", advanced)
        yield


def clock_of_steps(monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> Clock:
    """The clock of a machine on which a step takes this many seconds, and everything else no time."""
    clock, advance = Clock(), Trainer.advance

    def advance_in_time(trainer: Trainer) -> None:
        clock.sleep(seconds)
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", advance_in_time)
    for module in (train, budget, speeds):
        monkeypatch.setattr(module, "time", clock)
    return clock


def opened(words: Sequence[str], *, root: Path | None = None) -> Session:
    """The session that train.py makes of these words of a command line."""
    options, where = parse_options(words), {"root": root or project_root(), "group": Group()}
    return train.open_session(train.planned(options, started=time.perf_counter(), **where), options, **where)


def planned(text: Path, folder: Path, *words: str) -> Opening:
    """What train.py plans for a run on one thread in this folder, which also has the cache."""
    place = ["--run", f"{folder}/run", f"data.cache={folder}/cache", "runtime.threads=1"]
    return make_plan(parse_options([str(text), *place, *words]), root=project_root())


def trained(text: Path, folder: Path, *words: str) -> Path:
    """The folder of a run that train.py has made of these words; the encoded text is in the cache beside it."""
    assert train.main([str(text), *words, "--run", str(folder), f"data.cache={folder.parent}/cache"]) == 0
    return folder


def resume(folder: Path, *words: str) -> int:
    """The exit code of train.py that continues this run."""
    return train.main(["--resume", "--run", str(folder), f"data.cache={folder.parent}/cache", *words])


def resumed(folder: Path, *settings: str) -> Session:
    """The session that continues the run in `folder`; its text is in the cache beside it."""
    return opened(["--resume", "--run", str(folder), f"data.cache={folder.parent}/cache", *settings])


def written_report(run: Path) -> str:
    """The page of a complete run, as the process writes it that a training starts."""
    assert Following(folder=str(run), home=str(run), device="cpu", text={}, opens=False).write_complete() == ""
    return (run / "report.html").read_text(encoding="utf-8")


def finish(session: Session, interrupt: Interrupt | None = None) -> int:
    """Train to the end; the exit code."""
    with interrupt or Interrupt() as interrupt:
        return train.train(session, interrupt)
