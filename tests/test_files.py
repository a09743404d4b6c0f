"""Files appear whole or not at all, and one process at a time holds the lock of a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.files import LOCK_NAME, lock_folder

ROOT = Path(__file__).parent.parent
HOLD = """
import sys
from pathlib import Path
from chargpt.files import lock_folder
lock = lock_folder(Path(sys.argv[1]), wait=True)
print("locked", flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen:
    """A process that holds the lock until its standard input closes."""
    command = [sys.executable, "-c", HOLD, folder]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_locked_folder_can_be_locked_again_when_its_process_ends(tmp_path):
    process = holder(tmp_path)
    with pytest.raises(BlockingIOError):
        lock_folder(tmp_path, wait=False)
    process.kill()
    process.communicate()
    with lock_folder(tmp_path, wait=True):
        with pytest.raises(BlockingIOError):
            lock_folder(tmp_path, wait=False)
    lock_folder(tmp_path, wait=False).release()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_a_lock_that_is_deleted_is_released(tmp_path):
    lock = lock_folder(tmp_path, wait=False)
    del lock
    lock_folder(tmp_path, wait=False).release()


def test_a_link_in_place_of_the_lock_file_is_neither_followed_nor_emptied(tmp_path):
    (tmp_path / "precious").write_text("content")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="a symbolic link, not a lock file"):
        lock_folder(tmp_path, wait=False)
    (tmp_path / LOCK_NAME).unlink()
    (tmp_path / LOCK_NAME).hardlink_to(tmp_path / "precious")
    lock_folder(tmp_path, wait=False).release()
    assert (tmp_path / "precious").read_text() == "content"


HIDDEN = """
import os, sys
from pathlib import Path
for name in ("fcntl", "resource", "termios", "grp", "pwd"):
    sys.modules[name] = None
for name in ("posix_fadvise", "O_DIRECTORY", "O_NOFOLLOW", "mkfifo", "sync"):
    if hasattr(os, name):
        delattr(os, name)
from chargpt.config import DataConfig
from chargpt.text.corpus import load_corpus
config = DataConfig(cache=sys.argv[2], val_fraction=0.5)
for _ in range(2):
    print(load_corpus([sys.argv[1]], config, root=Path(), block_size=4).fingerprint)
"""


def test_a_text_is_encoded_without_anything_that_only_posix_has(tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone")
    command = [sys.executable, "-c", HIDDEN, tmp_path / "text.txt", tmp_path / "cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0 and len(set(result.stdout.split())) == 1, result.stderr
