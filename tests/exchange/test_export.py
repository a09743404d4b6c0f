"""An export is published whole or not at all, and replaces nothing but an earlier export; what it needs is named."""

import itertools
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from chargpt.errors import NotWritten, UserError
from chargpt.exchange.export import PAGE, check_destination, publish
from chargpt.exchange.html import TEMPLATE
from chargpt.files import discard, write_synced


def folder_of(**files: str):
    """A writer of a folder with these files."""

    def write(path: Path) -> None:
        path.mkdir()
        for name, content in files.items():
            (path / f"{name}.json").write_text(content)

    return write


@pytest.mark.parametrize("force", [False, True])
def test_a_failure_leaves_everything_as_it_was(tmp_path, force):
    target = tmp_path / "poems-hf"
    if force:
        publish(target, folder_of(config="old"), is_folder=True, force=False)

    def write(path: Path) -> None:
        folder_of(config="new")(path)
        raise UserError("the logits differ")

    with pytest.raises(UserError, match="differ"):
        publish(target, write, is_folder=True, force=force)
    assert os.listdir(tmp_path) == ["poems-hf"] * force
    assert not force or (target / "config.json").read_text() == "old"


def test_only_force_replaces_an_earlier_export(tmp_path):
    target = tmp_path / "poems-hf"
    publish(target, folder_of(config="old", more="x"), is_folder=True, force=False)
    with pytest.raises(UserError, match="exists; choose another name, or replace it with --force"):
        publish(target, folder_of(config="new"), is_folder=True, force=False)
    publish(target, folder_of(config="new"), is_folder=True, force=True)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"config.json": "new"}
    assert os.listdir(tmp_path) == ["poems-hf"]


@pytest.mark.parametrize(
    ("name", "content", "is_folder", "problem"),
    [
        ("thesis.tex", b"years of work", False, "this file is not an export"),
        ("page.html", b"<!doctype html>\n<p>mine", False, "this file is not an export"),
        ("empty", b"", False, "this file is not an export"),
        ("page.html", TEMPLATE.read_bytes(), True, "a file or a link"),
        ("work/config.json", b"{}", False, "a folder or a link"),
        ("work/thesis.tex", b"years of work", True, "which would be lost"),
        ("work/config.json/inner", b"years of work", True, "which would be lost"),
        ("work/.git/config", b"years of work", True, "which would be lost"),
    ],
)
def test_force_replaces_nothing_but_an_earlier_export_of_the_same_kind(tmp_path, name, content, is_folder, problem):
    file, target = tmp_path / name, tmp_path / Path(name).parts[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    with pytest.raises(UserError, match=problem):
        publish(target, folder_of(config="new") if is_folder else Path.touch, is_folder=is_folder, force=True)
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", ["absent/poems", "..", "."])
def test_a_destination_without_a_folder_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="give a new name, in a folder that exists"):
        check_destination(Path(name), is_folder=True, force=False)


def test_a_destination_that_appears_meanwhile_stays(tmp_path):
    target = tmp_path / "poems.safetensors"

    def write(path: Path) -> None:
        path.write_text("ours")
        target.write_text("theirs")

    with pytest.raises(UserError, match="exists"):
        publish(target, write, is_folder=False, force=False)
    assert target.read_text() == "theirs"


@pytest.mark.parametrize(
    ("error", "advice"),
    [(OSError(28, "No space left on device"), "free some"), (OSError("512 requested and 0 written"), "check")],
)
def test_a_disk_that_is_full_is_one_line(tmp_path, error, advice):
    """numpy raises errors without a number."""

    def write(path: Path) -> None:
        path.write_text("half")
        raise error

    with pytest.raises(NotWritten, match=rf"poems: not written \((No space|512).*\); write into another folder, or {advice}"):
        publish(tmp_path / "poems", write, is_folder=False, force=False)
    assert os.listdir(tmp_path) == []


def page_or_folder(path: Path, *, is_folder: bool, word: str = "new") -> None:
    """An export in which each file ends with this word."""
    if is_folder:
        path.mkdir()
        (path / "config.json").write_text(word)
        path = path / "model.safetensors"
    write_synced(path, b"<!doctype html>" + PAGE + word.encode())


def state_of(target: Path, *, is_folder: bool) -> str:
    """ "old" or "new" for a whole export, "absent", or "damaged"."""
    if not os.path.lexists(target):
        return "absent"
    files = sorted(target.iterdir()) if is_folder else [target]
    words = {file.read_bytes()[-3:].decode() for file in files}
    return words.pop() if len(words) == 1 and len(files) == (2 if is_folder else 1) else "damaged"


def export(target: Path, number: int, at: Collection[int], *, is_folder: bool) -> int:
    """The exit code of a process that publishes, and that gets the signal `number` before these lines of Python."""
    if (child := os.fork()) == 0:
        lines = itertools.count(1)

        def trace(frame, event, argument):
            if not frame.f_code.co_filename.endswith(("export.py", "files.py")):
                return None
            if event == "line" and next(lines) in at:
                os.kill(os.getpid(), number)
            return trace

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.settrace(trace)
        try:
            publish(target, lambda path: page_or_folder(path, is_folder=is_folder), is_folder=is_folder, force=True)
            os._exit(0)
        finally:
            os._exit(128 + number)  # before a handler is set, Ctrl-C is an exception
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


KILL = getattr(signal, "SIGKILL", 9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")
@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    ("before", "number", "again", "every"),
    [
        ("old", signal.SIGTERM, 0, 11),
        ("old", KILL, 0, 17),
        *(
            pytest.param(before, number, again, 1, marks=pytest.mark.nightly)
            for before in ("absent", "old")
            for number, again in ((2, 0), (15, 0), (KILL, 0), (15, 3))  # the last: another one while the first one is handled
        ),
    ],
)
def test_a_signal_at_any_line_leaves_the_destination_whole_and_nothing_else(tmp_path, is_folder, before, number, again, every):
    """After SIGKILL, the destination may be absent, and the next export removes what is left."""
    target = tmp_path / "poems"
    for at in itertools.count(1, every):
        for path in tmp_path.iterdir():
            discard(path)
        if before == "old":
            page_or_folder(target, is_folder=is_folder, word="old")
        code = export(target, number, (at, at + again), is_folder=is_folder)
        if code == 0:
            break
        found = state_of(target, is_folder=is_folder)
        if number == KILL:
            assert found in (before, "new", "absent") and code == -KILL, at
            assert export(target, KILL, (), is_folder=is_folder) == 0 and state_of(target, is_folder=is_folder) == "new"
        else:
            assert found in (before, "new") and code in (-number, 128 + number), at  # the first ones before anything is written
        assert [path.name for path in tmp_path.iterdir()] == ["poems"] * (number == KILL or found != "absent"), at
    assert state_of(target, is_folder=is_folder) == "new" and at > 60
