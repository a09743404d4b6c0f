"""Files appear whole or not at all, and what dead processes left is recognised."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.files import (
    LOCK_NAME,
    FolderLock,
    publish_file,
    publishing,
    remove_left_behind,
    write_synced,
)
from chargpt.program import problem_of

ROOT = Path(__file__).parent.parent
HOLD = """
import sys
from pathlib import Path
from chargpt.files import FolderLock
lock = FolderLock(Path(sys.argv[1]), wait=True)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_published_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "config.yaml"
    for content in (b"one", b"two"):
        publish_file(target, content)
        assert target.read_bytes() == content and os.listdir(tmp_path) == ["config.yaml"]


def test_a_failure_leaves_the_old_file(tmp_path):
    target = tmp_path / "config.yaml"
    publish_file(target, b"old")
    with pytest.raises(RuntimeError), publishing(target) as path:
        write_synced(path, b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["config.yaml"]


def test_a_full_disk_is_said_of_the_file_and_leaves_none(tmp_path, monkeypatch):
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for write in (publish_file, write_synced):
        with pytest.raises(OSError) as error:
            write(tmp_path / "page.html", b"text")
        assert write is write_synced or error.value.filename == str(tmp_path / "page.html")
        assert os.listdir(tmp_path) == []


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "config.yaml").symlink_to("precious")
    publish_file(tmp_path / "config.yaml", b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine" and not (tmp_path / "config.yaml").is_symlink()


def test_a_folder_is_published_as_a_whole_and_never_over_another(tmp_path):
    for attempt in range(2):
        try:
            with publishing(tmp_path / "step") as path:
                path.mkdir()
                write_synced(path / "file", b"x" * (attempt + 1))
        except OSError:
            assert attempt == 1
    assert (tmp_path / "step" / "file").read_bytes() == b"x" and os.listdir(tmp_path) == ["step"]


def test_an_existing_file_is_never_written_to(tmp_path):
    write_synced(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        write_synced(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"


def test_only_what_dead_processes_left_of_known_names_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f".best.json.tmp-{dead.pid}", f".notes.tmp-{dead.pid}", f".best.json.tmp-{os.getppid()}", "best.json"):
        (tmp_path / name).write_bytes(b"")
    remove_left_behind(tmp_path, re.compile(r"best\.json"))
    assert sorted(os.listdir(tmp_path)) == sorted([f".notes.tmp-{dead.pid}", f".best.json.tmp-{os.getppid()}", "best.json"])


@pytest.mark.parametrize(("error", "lives"), [(None, True), (PermissionError, True), (ProcessLookupError, False)])
def test_what_a_living_process_writes_stays_whoever_its_user_is(error, lives, tmp_path, monkeypatch):
    """The system refuses to signal a process of another user, which shows that it lives."""

    def kill(pid: int, number: int) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(os, "kill", kill)
    (tmp_path / f".a.tmp-{os.getpid() + 1}").touch()
    remove_left_behind(tmp_path, re.compile("a"))
    assert bool(os.listdir(tmp_path)) == lives


def holder(folder: Path) -> subprocess.Popen:
    """A process that holds the lock until its standard input closes."""
    command = [sys.executable, "-c", HOLD, folder]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_locked_folder_can_be_locked_again_when_its_process_ends(tmp_path):
    process = holder(tmp_path)
    with pytest.raises(BlockingIOError):
        FolderLock(tmp_path, wait=False)
    process.kill()
    process.communicate()
    with FolderLock(tmp_path, wait=True):
        with pytest.raises(BlockingIOError):
            FolderLock(tmp_path, wait=False)
    FolderLock(tmp_path, wait=False).release()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


@pytest.mark.skipif(os.name == "nt", reason="another call locks there")
@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP", "EINVAL"])
def test_a_disk_that_cannot_lock_files_is_told_by_the_place_whatever_its_number(tmp_path, monkeypatch, number):
    def refused(*_: object) -> None:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(OSError) as caught:
        FolderLock(tmp_path, wait=True)
    told = str(problem_of(caught.value))
    assert told.startswith(f"{tmp_path}: No locks available; its disk cannot lock files, as some network disks cannot")


def test_a_link_in_place_of_the_lock_file_is_neither_followed_nor_emptied(tmp_path):
    (tmp_path / "precious").write_text("content")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="a symbolic link, not a lock file"):
        FolderLock(tmp_path, wait=False)
    (tmp_path / LOCK_NAME).unlink()
    (tmp_path / LOCK_NAME).hardlink_to(tmp_path / "precious")
    FolderLock(tmp_path, wait=False).release()
    assert (tmp_path / "precious").read_text() == "content"


def test_an_error_names_the_file_itself_not_the_hidden_one_beside_it(tmp_path):
    for make in (lambda path: publish_file(path, b""), lambda path: path.mkdir(parents=True) or publish_file(path, b"")):
        with pytest.raises(OSError) as error:
            make(tmp_path / "absent" / "file")
        assert error.value.filename == str(tmp_path / "absent" / "file") and ".tmp-" not in str(error.value)
