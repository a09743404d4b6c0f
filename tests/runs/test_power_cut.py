"""A power cut after any sync of a training: the newest checkpoint is whole, and everything logged before it is there.

This file has no module of its own: it tests train.py, chargpt/session/journal.py and chargpt/runs together.
"""

import os
import stat
from pathlib import Path

import pytest
from helpers import SHORT_RUN, bits, logged_without_speed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train
from chargpt.runs.checkpoint import newest, steps


class Disk:
    """Copies a run at every sync of its folder, as a power cut then would leave it: what was not synced is lost.

    A file has the bytes of its last fsync, and a name exists from the next sync of its folder on.
    """

    def __init__(self, run: Path, copies: Path, patch: pytest.MonkeyPatch) -> None:
        self.run, self.copies, self.count = run, copies, 0
        self.files: dict[int, bytes] = {}  # by inode: the content at the last fsync
        self.names: dict[int, list[str]] = {}  # by inode: the names in a folder at its last fsync
        patch.setattr(os, "fsync", self.fsync)

    def fsync(self, file: int) -> None:
        status, path = os.fstat(file), f"/proc/self/fd/{file}"
        if stat.S_ISDIR(status.st_mode):
            self.names[status.st_ino] = os.listdir(path)
            if self.run.exists() and status.st_ino == self.run.stat().st_ino:
                self.count += 1
                self.copy(self.run, self.copies / f"cut-{self.count}")
        else:
            self.files[status.st_ino] = Path(path).read_bytes()

    def copy(self, folder: Path, target: Path) -> None:
        target.mkdir()
        for name in self.names.get(folder.stat().st_ino, []):
            path = folder / name
            if path.is_dir():
                self.copy(path, target / name)
            else:
                (target / name).write_bytes(self.files.get(path.stat().st_ino, b""))


def curve(run: Path) -> dict[int, float]:
    """The training loss by step, as TensorBoard reads it."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    logged = "train/loss" in events.Tags()["scalars"]
    return {point.step: point.value for point in events.Scalars("train/loss")} if logged else {}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc, to see what a descriptor refers to")
def test_a_power_cut_after_any_sync_loses_nothing_before_the_newest_checkpoint(text, tmp_path, monkeypatch):
    run, arguments = tmp_path / "run", [str(text), *SHORT_RUN, f"data.cache={tmp_path}/cache"]
    with monkeypatch.context() as patch:
        disk = Disk(run, tmp_path, patch)
        assert train.main([*arguments, "--run", str(run)]) == 0
    whole, losses, saved = logged_without_speed(run), curve(run), set()
    for number in range(1, disk.count + 1):
        after = tmp_path / f"cut-{number}"
        if not steps(after):
            continue
        found, skipped = newest(after)
        saved.add(found.step)
        assert skipped == []
        expected = [line for line in whole if line["step"] <= found.step]
        assert logged_without_speed(after)[: len(expected)] == expected, f"sync {number}"
        assert curve(after).items() >= {step: loss for step, loss in losses.items() if step <= found.step}.items()
    assert saved == {0, 3, 4, 6, 8, 9, 12}  # all checkpoints of the run
    middle = next(tmp_path / f"cut-{n}" for n in range(1, 99) if (tmp_path / f"cut-{n}" / "step-00000006").exists())
    assert train.main(["--resume", "--run", str(middle)]) == 0
    assert bits(middle) == bits(run) and logged_without_speed(middle) == whole and curve(middle) == losses
