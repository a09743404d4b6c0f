"""A user who may not read a text, or not write a folder: one line that names the file, and nothing half written.

Root may do everything, so as root the programs give up their capabilities, and are then bound by permissions as any user is.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import publish_run
from programs import Ended, Programs
from session import make_root

from chargpt.project import user_cache_folder

NOBODY = 65534
CACHE = str(user_cache_folder())  # of compiled C: a folder of the user who runs the tests
WORDS = ["--config", "tiny", "train.max_steps=2", "train.sample_length=0", "runtime.threads=1"]
# Linux: capset(header of version 3 for this process, no effective, permitted and inheritable capabilities).
DROP = "import ctypes; assert not ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())\n"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or (IS_ROOT and sys.platform != "linux"), reason="needs the users of POSIX, and as root Linux"
)


@pytest.fixture
def folder(text, tmp_path) -> Iterator[Path]:
    """A folder that may not be written, with a text, a folder `mine` that may be written, and one `theirs` that may not."""
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(text, folder / "sea.txt")
    for name in ("root", "mine", "theirs"):
        (folder / name).mkdir()
    make_root(folder / "root" / "project")
    (folder / "theirs").chmod(0o555)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    for path in folder.rglob("*"):  # so that pytest can remove them
        path.chmod(0o755)


@pytest.fixture
def run(programs: Programs, folder: Path) -> Callable[..., Ended]:
    """Runs MODULE.main with arguments as a user without privileges."""

    def run(module: str, *words: str) -> Ended:
        code = f"import importlib, pathlib\nfrom chargpt import project\nmain = importlib.import_module({module!r}).main\n"
        code += f"project.SOURCE = pathlib.Path({str(folder / 'root' / 'project')!r})\n"
        code += DROP if IS_ROOT else ""
        code += f"main({list(map(str, words))!r})\n"
        return programs.run(
            code=code, folder=folder, environment={**os.environ, "HOME": str(folder / "theirs"), "XDG_CACHE_HOME": CACHE}
        )

    return run


def is_one_line(ended: Ended, *says: str) -> bool:
    (line,) = ended.stderr.decode().splitlines()
    return ended.returncode == 2 and line.startswith("error: ") and all(part in line for part in says) and ".tmp-" not in line


def test_what_may_not_be_read_or_written_is_one_line(run, folder):
    folder.chmod(0o755)
    (folder / "secret.txt").write_text("x")
    (folder / "secret.txt").chmod(0)
    (folder / "closed").mkdir()
    (folder / "closed").chmod(0)
    place = ["--run", folder / "mine/run", f"data.cache={folder}/mine/cache"]
    assert is_one_line(run("train", "secret.txt", *WORDS, *place), "secret.txt: Permission denied; give a file")
    assert is_one_line(run("train", "closed", *WORDS, *place), "closed: Permission denied")
    assert is_one_line(run("train", "closed/x.txt", *WORDS, *place), "closed/x.txt: Permission denied")
    assert is_one_line(run("train", "sea.txt", "--config", "secret.txt", *place), "secret.txt: Permission denied")
    no_cache = ["--run", folder / "mine/run", f"data.cache={folder}/theirs/cache"]
    assert is_one_line(
        run("train", "sea.txt", *WORDS, *no_cache),
        "theirs/cache: Permission denied; set data.cache",
    )
    no_run = ["--run", folder / "theirs/run", f"data.cache={folder}/mine/cache"]
    assert is_one_line(run("train", "sea.txt", *WORDS, *no_run), "theirs/run: Permission denied")
    assert not (folder / "mine/run").exists()


def test_a_run_of_another_user_is_read_and_not_continued(run, folder):
    folder.chmod(0o755)
    publish_run(folder / "run").chmod(0o555)
    folder.chmod(0o555)
    ended = run("sample", folder / "run", "--length", "5", "--seed", "1")
    assert ended.returncode == 0 and len(ended.stdout) >= 5, ended.stderr
    assert is_one_line(run("train", "--resume", "--run", folder / "run"), "run/.lock: Permission denied")
    ended = run("chargpt.commands.export", folder / "run", "--to", "safetensors")
    assert b"error: run.safetensors: not written (Permission denied)" in ended.stderr and ended.returncode == 2
    assert not [path for path in folder.rglob("*") if ".tmp-" in path.name]


def test_an_unreadable_checkpoint_or_run_is_named(run, folder):
    folder.chmod(0o755)
    publish_run(folder / "run", steps=(500, 600))
    (folder / "run/step-00000500/model.safetensors").chmod(0)
    where = "step-00000500/model.safetensors: Permission denied; make it readable"
    assert is_one_line(run("sample", folder / "run", "--length", "5"), where)
    (folder / "run").chmod(0)
    assert is_one_line(run("sample", folder / "run"), "run: Permission denied; give the folder of a run")


def test_an_unreadable_checkpoint_is_not_damaged_so_the_run_is_not_trained_again_from_an_older_one(run, folder):
    place = ["--run", folder / "mine/run", f"data.cache={folder}/mine/cache"]
    assert run("train", "sea.txt", *WORDS, *place, "checkpoint.interval=1").returncode == 0
    newest = folder / "mine/run/step-00000002"
    for hidden in (newest / "state.json", newest / "training.safetensors", newest):
        before = sorted(path.name for path in newest.parent.iterdir() if path.name.startswith("step-"))
        mode = hidden.stat().st_mode
        hidden.chmod(0)
        ended = run("train", "--resume", *place, "train.max_steps=4")
        hidden.chmod(mode)
        (line,) = ended.stderr.decode().splitlines()
        assert ended.returncode == 2 and "step-00000002" in line and "Permission denied; make it readable" in line, line
        assert sorted(path.name for path in newest.parent.iterdir() if path.name.startswith("step-")) == before
    assert run("train", "--resume", *place, "train.max_steps=4").returncode == 0


def test_names_that_may_not_be_replaced_cost_a_warning_or_nothing(run, folder):
    """In a folder with the sticky bit, such as /tmp, a rename over a file of another user fails."""
    place = ["--run", folder / "mine/run", f"data.cache={folder}/mine/cache"]
    assert run("train", "sea.txt", *WORDS, *place).returncode == 0
    if not IS_ROOT:
        pytest.skip("needs root, to give files to another user")
    for name in ("", "config.yaml", "metrics.jsonl", "step-00000000"):
        os.chown(folder / "mine/run" / name, NOBODY, NOBODY)
    (folder / "mine/run").chmod(0o1777)
    ended = run("train", "--resume", *place, "train.max_steps=4", "checkpoint.keep=2", "train.eval_interval=1")
    said = " ".join(ended.stdout.decode().split())
    assert ended.returncode == 0 and "done" in said
    for name, what in (("config.yaml", "not written"), ("step-00000000", "not removed")):
        assert f"{name}: {what} (Operation not permitted)" in said
    assert "no more losses are recorded (Operation not permitted)" in said and "tmp-" not in said
