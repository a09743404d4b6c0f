"""An export is published whole or not at all, and replaces nothing but an earlier export; what it needs is named."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.exchange.export import check_destination, publish
from chargpt.exchange.html import TEMPLATE
from chargpt.terminal import UserError

ROOT = Path(__file__).parent.parent.parent
signals = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")


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
    with pytest.raises(UserError, match="exists; choose another DIR, or replace it with --force"):
        publish(target, folder_of(config="new"), is_folder=True, force=False)
    publish(target, folder_of(config="new"), is_folder=True, force=True)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"config.json": "new"}
    assert os.listdir(tmp_path) == ["poems-hf"]


def test_force_never_replaces_a_file_that_no_export_wrote(tmp_path):
    for name, content in (("thesis.tex", b"years of work"), ("page.html", b"<!doctype html>\n<p>mine"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="no export wrote this file"):
            publish(tmp_path / name, lambda path: path.write_text("new"), is_folder=False, force=True)
        assert (tmp_path / name).read_bytes() == content


def test_force_never_replaces_a_folder_by_a_file_or_a_file_by_a_folder(tmp_path):
    (tmp_path / "page.html").write_bytes(TEMPLATE.read_bytes())
    (tmp_path / "folder").mkdir()
    for name, is_folder, problem in (("page.html", True, "not a folder"), ("folder", False, "not a file")):
        with pytest.raises(UserError, match=problem):
            check_destination(tmp_path / name, is_folder=is_folder, force=True)


@pytest.mark.parametrize("content", ["thesis.tex", "config.json/inner", ".git/config"])
def test_force_never_replaces_a_folder_with_other_files(tmp_path, content):
    file = tmp_path / "work" / content
    file.parent.mkdir(parents=True)
    file.write_text("years of work")
    with pytest.raises(UserError, match="which no export writes"):
        publish(tmp_path / "work", folder_of(config="new"), is_folder=True, force=True)
    assert file.read_text() == "years of work"


@pytest.mark.parametrize("name", ["absent/poems", "..", "."])
def test_a_destination_without_a_folder_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="its folder does not exist"):
        check_destination(Path(name), is_folder=True, force=False)


def test_a_destination_that_appears_meanwhile_stays(tmp_path):
    target = tmp_path / "poems.safetensors"

    def write(path: Path) -> None:
        path.write_text("ours")
        target.write_text("theirs")

    with pytest.raises(UserError, match="exists"):
        publish(target, write, is_folder=False, force=False)
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("512 requested and 0 written")])
def test_a_disk_that_is_full_is_one_line(tmp_path, error):
    """numpy raises errors without a number."""

    def write(path: Path) -> None:
        path.write_text("half")
        raise error

    with pytest.raises(UserError, match=r"poems: not written \((No space|512).*\); use a folder with free space"):
        publish(tmp_path / "poems", write, is_folder=False, force=False)
    assert os.listdir(tmp_path) == []


# Publishes in a child process that sends itself a signal at the n-th line of Python, for n up to where the child comes to its
# end. Prints each n after which the destination is neither as before nor as it should become, or after which anything else is
# left. After SIGKILL, the destination may be absent, and the next export removes the rest.
INTERRUPTED = """
import itertools, json, os, pathlib, signal, sys
from chargpt.exchange.export import PAGE, publish
from chargpt.files import SyncedFile, discard

folder, kind, before = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
number, again, every = map(int, sys.argv[4:])
target, is_folder = folder / "poems", kind == "folder"

def write(path, word="new"):
    if is_folder:
        os.mkdir(path)
        (path / "config.json").write_text(word)
        path = path / "model.safetensors"
    with SyncedFile(path) as file:
        file.write(memoryview(b"<!doctype html>" + PAGE + word.encode()))

def state():
    if not os.path.lexists(target):
        return "absent"
    names = sorted(os.listdir(target)) if is_folder else []
    contents = [(target / name).read_bytes() for name in names] if is_folder else [target.read_bytes()]
    words = {content[-3:].decode() for content in contents}
    return words.pop() if len(words) == 1 and names in ([], ["config.json", "model.safetensors"]) else "damaged"

def export(at):
    count = 0
    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.endswith(("export.py", "files.py", "<string>")):
            return None
        count += event == "line"
        if event == "line" and at and count in (at, at + again):
            os.kill(os.getpid(), number)
        return trace
    if os.fork() == 0:
        sys.settrace(trace)
        publish(target, write, is_folder=is_folder, force=True)
        sys.settrace(None)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])

codes = (-number,) if number == signal.SIGKILL else (-number, 128 + number)  # the first ones before anything is written
problems, code = [], None
for at in itertools.count(1, every):
    for name in os.listdir(folder):
        discard(folder / name)
    if before == "old":
        write(target, "old")
    code = export(at)
    if code == 0:
        break
    found = [code, state()]
    fine = code in codes and found[1] in ((before, "new") if number != signal.SIGKILL else (before, "new", "absent"))
    if number == signal.SIGKILL:
        export(0)
        fine = fine and state() == "new"
    rest = [name for name in os.listdir(folder) if name != "poems"]
    if not fine or rest:
        problems.append([at, *found, rest])
print(json.dumps([at, code, problems]))
"""


@signals
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize(
    ("before", "number", "again", "every"),
    [
        ("old", signal.SIGTERM, 0, 7),
        ("old", getattr(signal, "SIGKILL", 9), 0, 11),
        *(
            pytest.param(before, number, again, 1, marks=pytest.mark.nightly)
            for before in ("absent", "old")
            for number, again in ((2, 0), (15, 0), (9, 0), (15, 3))  # the last: another signal while the first one is handled
        ),
    ],
)
def test_a_signal_at_any_line_leaves_the_destination_whole_and_nothing_else(tmp_path, kind, before, number, again, every):
    arguments = [str(tmp_path), kind, before, str(int(number)), str(again), str(every)]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    lines, code, problems = json.loads(done.stdout)
    assert (code, problems) == (0, []) and lines > 60
