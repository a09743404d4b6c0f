"""The cache survives damage, kills, full disks and several processes."""

import contextlib
import io
import json
import os
import resource
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import encoding_process, entries_in, text_of, write

from chargpt.errors import NotWritten
from chargpt.text import cache, corpus
from chargpt.text.cache import Cache
from chargpt.text.ids import TextCounts
from chargpt.text.reading import TextReader
from chargpt.text.suffix_array import open_or_make_index

CHANGES = {"a reading while another one waits": "found", "a change while it is read": "not kept", "none": "kept"}


@pytest.mark.parametrize("what", CHANGES)
def test_a_reading_is_kept_only_of_files_that_stayed_as_they_were(what, load, tmp_path, monkeypatch):
    monkeypatch.setattr("chargpt.text.source.RACY_NS", 0)
    path, count, locked, read = write(tmp_path / "text.txt", "the sea and the stone"), corpus.count_characters, Cache.locked, []

    def counted(reader: TextReader) -> TextCounts:
        found = count(reader)
        read.append(found)
        if what.startswith("a change"):
            os.utime(path, ns=(len(read), len(read)))
        return found

    @contextlib.contextmanager
    def after_another(cache: Cache) -> Iterator[None]:
        if what.startswith("a reading") and not read:
            monkeypatch.setattr(Cache, "locked", locked)
            load(path)
        with locked(cache):
            yield

    monkeypatch.setattr(corpus, "count_characters", counted)
    monkeypatch.setattr(Cache, "locked", after_another)
    fingerprints = {load(path).fingerprint for _ in range(3)}
    is_kept = CHANGES[what] != "not kept"
    assert len(fingerprints) == 1 and len(read) == (1 if is_kept else 3)
    assert len([*(tmp_path / ".cache" / "seen").iterdir()]) == is_kept


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(1, 4), st.sampled_from([0, 0, 0, -1, 1]), st.integers(1, 3))
def test_numbers_on_disk_are_as_many_as_they_should_be_and_known_at_both_ends(tmp_path, numbers, limit, more, checked):
    path, array = tmp_path / "numbers", np.array(numbers, np.uint16)
    path.write_bytes(array.tobytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "CHECKED", checked)
        is_right = not more and all(number < limit for number in numbers[:checked] + numbers[-checked:])
        try:
            mapped = cache._mapped(path, len(numbers) + more, array.dtype, limit)
            assert is_right and mapped.tolist() == numbers and not (len(numbers) and mapped.flags.writeable)
        except ValueError:
            assert not is_right


DAMAGE = {  # a file of an entry, and what becomes of its content
    "ids that are cut": ("train.ids", lambda content: content[:-1]),
    "ids of another vocabulary": ("val.ids", lambda content: b"\xff" * len(content)),
    "counts that are cut": ("counts.int64", lambda content: content[:-1]),
    "an entry that is cut": ("entry.json", lambda content: content[:-1]),
    "a size as text": ("entry.json", lambda content: json.dumps(json.loads(content) | {"n_train": "10"}).encode()),
    "a negative size": ("entry.json", lambda content: json.dumps(json.loads(content) | {"n_train": -1}).encode()),
    "items that are none": ("entry.json", lambda content: json.dumps(json.loads(content) | {"items": 5}).encode()),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_not_used_and_made_anew(how, load, tmp_path):
    found, (name, damage) = load(write(tmp_path / "text.txt", "the sea and the stone")), DAMAGE[how]
    file, folder = tmp_path / ".cache" / found.fingerprint / name, Cache(tmp_path / ".cache")
    for content in (damage(file.read_bytes()), None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert folder.open(found.fingerprint) is None and text_of(load(tmp_path / "text.txt")) == "the sea and the stone"


def test_a_damaged_record_of_what_was_seen_is_ignored(tmp_path):
    (tmp_path / "seen").mkdir()
    for written in (b"\xff\xfe", b"..", b""):
        (tmp_path / "seen" / "request").write_bytes(written)
        assert Cache(tmp_path).find("request") is None


def test_killed_while_encoding_the_next_start_makes_it_whole(programs, load, tmp_path):
    path, cache = tmp_path / "text.txt", tmp_path / ".cache"
    path.write_bytes(b"the sea and the stone\n" * 1000)
    kill = "SyncedFile.close = lambda file: os.kill(os.getpid(), 9)"  # when the ids are written
    process = encoding_process(programs, path, cache, before=f"import os\nfrom chargpt.files import SyncedFile\n{kill}")
    process.communicate()
    assert process.returncode == -9 and list(cache.glob(".*.tmp-*")) and not entries_in(cache)
    corpus = load(path)
    assert corpus.characters == path.stat().st_size and not list(cache.glob(".*.tmp-*"))


def test_a_full_disk_is_a_line_and_leaves_nothing(load, tmp_path):
    (tmp_path / "text.txt").write_text("the sea and the stone\n" * 10_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # to a writer, a full disk
    try:
        with pytest.raises(NotWritten, match="cache: File too large; set data.cache .*to another folder, or choose"):
            load(tmp_path / "text.txt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not entries_in(tmp_path / ".cache") and load(tmp_path / "text.txt").characters == 220_000


def test_two_runs_that_start_at_once_share_one_encoding(programs, load, tmp_path):
    path, cache = tmp_path / "text.txt", tmp_path / ".cache"
    path.write_bytes(b"the sea and the stone\n" * 1000)
    with Cache(cache).locked():  # so that both come to the point where one has to wait
        processes = [encoding_process(programs, path, cache) for _ in range(2)]
        for process in processes:
            assert b"waiting until another run" in process.stderr.readline()
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] and len(entries_in(cache)) == 1


@pytest.mark.parametrize("racy", [0, 10**12])
def test_a_cache_that_cannot_be_written_to_says_so(load, tmp_path, monkeypatch, racy):
    """Also for a text that was not changed just now, which is looked for in the cache first."""
    monkeypatch.setattr("chargpt.text.source.RACY_NS", racy)
    (tmp_path / "text.txt").write_text("the sea and the stone")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritten, match="file.*: .*; set data.cache .*to another folder, or check the path"):
        load(tmp_path / "text.txt", cache=str(tmp_path / "file" / ".cache"))


def test_a_disk_that_cannot_map_files_is_read_into_memory(tmp_path, load, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    path = write(tmp_path / "a.txt", "the sea\n" * 20)
    wanted = text_of(load(path))
    monkeypatch.setattr(np, "memmap", refused)
    assert text_of(load(path)) == text_of(load(path, lowercase=True)) == wanted
    assert {*text_of(load(path, shuffle="lines")).split("\n")} == {*wanted.split("\n")}
    assert open_or_make_index(load(path)).count(load(path).train[:8].astype(np.int64)) > 9
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert text_of(load("-", lowercase=True)) == wanted
