"""The cache survives damage, kills, full disks and several processes."""

import json
import resource

import pytest
from text_helpers import encoding_process, entries_in, text_of, write

from chargpt.terminal import UserError
from chargpt.text.cache import Cache

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
    corpus, (name, damage) = load(write(tmp_path / "text.txt", "the sea and the stone")), DAMAGE[how]
    file, cache = tmp_path / ".cache" / corpus.fingerprint / name, Cache(tmp_path / ".cache")
    for content in (damage(file.read_bytes()), None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert cache.open(corpus.fingerprint) is None and text_of(load(tmp_path / "text.txt")) == "the sea and the stone"


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
        with pytest.raises(UserError, match="cache: File too large; set data.cache to another folder, or choose"):
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
    with pytest.raises(UserError, match="file.*: .*; set data.cache to another folder, or check the path"):
        load(tmp_path / "text.txt", cache=str(tmp_path / "file" / ".cache"))
