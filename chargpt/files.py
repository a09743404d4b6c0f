"""Files that appear whole or not at all: write aside, sync, rename, sync the folder.

This is the usual recipe for crash safety ("All File Systems Are Not Created Equal", OSDI 2014). What is being written has a
hidden name beside its target, `.NAME.tmp-PID`, so that the files of a killed process can be recognised and removed.
"""

import errno
import io
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

ASIDE_NAME = re.compile(r"\.(?P<target>.+)\.tmp-(?P<pid>[0-9]{1,9})")
LOCK_NAME = ".lock"
# Names that Windows keeps for devices, and characters that it does not allow or that separate folders there.
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(\..*)?", re.IGNORECASE)
FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
MAX_BUFFERED = 2**20  # bytes that are collected before they are written
WINDOWS = os.name == "nt"
BUSY_SECONDS = 2.0  # for which a scanner or an indexer may hold a new file on Windows


def aside(path: Path) -> Path:
    """The hidden name beside `path` for what this process writes or removes."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def is_portable(name: str) -> bool:
    """Whether every system allows `name` for a file and keeps it as it is. Windows drops a dot or a space at the end."""
    return not (RESERVED.fullmatch(name) or FORBIDDEN.search(name) or name.endswith((".", " ")))


def portable(name: str) -> str:
    """`name`, changed as little as possible so that `is_portable` holds; empty if nothing is left."""
    name = FORBIDDEN.sub("-", name).rstrip(". ")
    return RESERVED.sub(r"\1-text\2", name) if RESERVED.fullmatch(name) else name


@contextmanager
def publishing(target: Path) -> Iterator[Path]:
    """A path to write to, a file or a folder, that becomes `target` when the block, which syncs it, ends without an error. An
    existing file or link is replaced. Raises OSError, with the name `target`; the unfinished file is removed."""
    path = aside(target)
    try:
        discard(path)
        yield path
        _rename(path, target)
        sync_folder(target.parent)
    except OSError as error:
        if error.filename == str(path):
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        discard(path)


def _rename(path: Path, target: Path) -> None:
    """os.replace. Windows refuses while a virus scanner or an indexer reads what was just written: it is tried again."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return os.replace(path, target)
        except PermissionError:
            if not WINDOWS or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def publish_file(target: Path, data: bytes) -> None:
    """Write `data` to `target` so that a crash leaves the old content or the new one. Raises OSError that names it."""
    try:
        with publishing(target) as path:
            write_synced(path, data)
    except OSError as error:
        error.filename = error.filename or str(target)  # a full disk has no name
        raise


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a new file and wait until it is on the disk. Raises OSError, also when the file exists; no part of it is left."""
    write_pieces_synced(path, [data])


def write_pieces_synced(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """`write_synced` for data that is made while it is written. Small pieces are written together."""
    binary = getattr(os, "O_BINARY", 0)  # without it, Windows writes each newline as two bytes
    file, is_whole = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | binary, 0o666), False
    try:
        small = bytearray()
        for piece in pieces:
            if len(small) + len(piece) <= MAX_BUFFERED:
                small += piece
                continue
            _write(file, small)
            _write(file, piece)
            small = bytearray()
        _write(file, small)
        os.fsync(file)
        is_whole = True
    finally:
        os.close(file)
        if not is_whole:
            discard(path)


def _write(file: int, data: bytes | bytearray | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


class SyncedFile(io.BufferedWriter):
    """A new, large file that is on the disk when it closes. Raises OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "xb"))

    def close(self) -> None:
        """Write what is buffered, and wait until all of it is on the disk."""
        try:
            if not self.closed:
                self.flush()
                os.fsync(self.fileno())
        finally:
            super().close()


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to the disk; otherwise a power cut may undo a rename."""
    if WINDOWS:  # it cannot open a folder, and NTFS keeps a journal of its names
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder; PostgreSQL's fsync_fname ignores this too
            raise
    finally:
        os.close(folder)


def discard(path: Path) -> None:
    """Remove a file or a folder with its content. Never raises."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.unlink(path)


def remove_left_behind(folder: Path, targets: re.Pattern) -> None:
    """Remove what dead processes left unfinished of these `targets` in `folder`, whose lock the caller holds."""
    for name in os.listdir(folder):
        match = ASIDE_NAME.fullmatch(name)
        if match and targets.fullmatch(match["target"]) and not _is_another_process(int(match["pid"])):
            discard(folder / name)


def _is_another_process(pid: int) -> bool:
    """Whether a living process other than this one has the id `pid`."""
    if WINDOWS:  # os.kill would end the process. The lock shows that no other one writes here
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives and belongs to another user
        return True
    return pid != os.getpid()


LOOK = 0.1  # seconds: more than it takes to see whether a folder is locked


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder. Makes no file, and never keeps another process from locking it."""
    if not (folder / LOCK_NAME).is_file():
        return False
    try:
        FolderLock(folder, wait=False).release()
    except BlockingIOError:
        return True
    except OSError:  # a folder of another user, who alone may write it
        return False
    return False


class FolderLock(AbstractContextManager["FolderLock"]):
    """Keeps other processes from locking a folder until it is released or deleted, or the process ends. Without `wait`, raises
    BlockingIOError while another process holds it. Raises OSError if its file cannot be made."""

    def __init__(self, folder: Path, *, wait: bool) -> None:
        import filelock  # reading a run needs no lock

        path = folder / LOCK_NAME
        if path.is_symlink():
            raise OSError(errno.ELOOP, "a symbolic link, not a lock file; delete it", str(path))
        self._lock = filelock.FileLock(path, thread_local=False)
        try:
            self._lock.acquire(timeout=-1 if wait else LOOK, poll_interval=LOOK / 4)
        except filelock.Timeout:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", str(folder)) from None
        except OSError as error:
            if error.filename:
                raise
            # Systems have many numbers for it.
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(folder)) from None

    def release(self, *_: object) -> None:
        """Let other processes lock the folder. The lock file stays."""
        self._lock.release()

    __exit__ = release
