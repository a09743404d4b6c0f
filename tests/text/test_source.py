"""A change of a text is noticed, and a text that did not change is not read again."""

import gzip
import lzma
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from text_helpers import aged, entries_in, text_of, write

from chargpt.errors import UserError
from chargpt.text import source
from chargpt.text.source import Source, Sources


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_second_start_does_not_read_the_text_again_and_an_edit_that_keeps_size_and_time_is_seen(load, tmp_path):
    path = aged(tmp_path / "text.txt", "the sea and the stone\n" * 100_000)
    first, before, times = load(path), bytes_read(), path.stat().st_mtime_ns
    second = load(path)
    assert bytes_read() - before < 100_000 and second.describe() == first.describe()
    assert second.fingerprint == first.fingerprint and np.array_equal(second.train, first.train)
    path.write_text("the sea and the store\n" * 100_000)
    os.utime(path, ns=(times, times))
    third = load(aged(path))
    assert third.fingerprint != first.fingerprint and text_of(third).startswith("the sea and the store")


RACY = 2_000_000_000


@pytest.mark.parametrize("age", [-5, 0, 1, RACY - 1, RACY, 2 * RACY])
def test_a_file_that_was_changed_just_now_is_not_trusted(age, tmp_path, monkeypatch):
    """By the later one of its two times, of which only one can be set."""
    path = write(tmp_path / "text.txt", "the sea")
    monkeypatch.setattr(source, "RACY_NS", RACY)
    stat, one = path.stat(), Source(label="text", path=path)
    for later in (stat.st_ctime_ns, stat.st_ctime_ns + 10**12):
        os.utime(path, ns=(later, later))
        now = max(later, path.stat().st_ctime_ns) + age
        monkeypatch.setattr(time, "time_ns", lambda: now)
        assert (one.signature() is None) == (Sources(train=[one], val=[], notes=[]).signature() is None) == (age < RACY)


def test_edits_in_quick_succession_are_seen(load, tmp_path):
    for word in ("stone", "store", "stone", "shore"):
        assert text_of(load(write(tmp_path / "text.txt", f"the sea and the {word}"))) == f"the sea and the {word}"
    assert len(entries_in(tmp_path / ".cache")) == 3


def test_a_text_that_grows_while_it_is_read_is_an_error_not_a_mixture(load, tmp_path):
    path = aged(tmp_path / "text.txt", b"the sea and the stone\n" * 1_000_000)
    stop = threading.Event()

    def grow() -> None:
        with open(path, "ab", buffering=0) as file:
            time.sleep(0.01)  # the reading has begun
            while not stop.wait(0.001):
                file.write(b"and more\n")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(UserError, match="text.txt: changed while it was read"):
            load(path)
    finally:
        stop.set()
        writer.join()
    assert not entries_in(tmp_path / ".cache")


def test_a_file_that_grows_faster_than_it_is_read_comes_to_an_end(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"the sea ")
    read = b""
    for chunk in Source(label="text", path=path).chunks(4):
        read += chunk
        with open(path, "ab") as file:
            file.write(b"and more")
    assert read == b"the sea "


def test_an_archive_bomb_ends_early_and_leaves_nothing(load, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "BOMB_SIZE", 2**24)
    for name, pack in (("bomb.txt.gz", gzip.compress), ("bomb.xz", lzma.compress)):
        with pytest.raises(UserError, match=f"{name}: unpacks to more than 200 times its size; unpack it yourself"):
            load(write(tmp_path / name, pack(b"a" * 2**22) * 30))
    assert sum(file.stat().st_size for file in (tmp_path / ".cache").rglob("*")) < 10_000
