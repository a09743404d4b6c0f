"""The programs need nothing that only POSIX has, whatever the encoding of the locale and the names of the runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import SHORT_RUN, last_step

import sample
import train
from chargpt import files
from chargpt.errors import UserError
from chargpt.files import is_portable, portable, publish_file
from chargpt.runs.run import folder_of
from chargpt.text.sources import run_name

ROOT = Path(__file__).parent.parent
PROGRAMS = """
import sys
sys.path.append("tests")
from posix_hidden import hide
hide()
from session import set_up
set_up(root=ROOT, precision=None, step=None)
import chargpt.__main__, sample, train
run, tiny = ["--run", FOLDER + "/run"], ["--config", "tiny", "train.max_steps=4", "train.eval_interval=2", "runtime.threads=1"]
cache = "data.cache=" + FOLDER + "/cache"
assert train.main([TEXT, *tiny, *run, cache]) == 0
assert train.main(["--resume", *run, "train.max_steps=6", cache]) == 0
assert sample.main([FOLDER + "/run", "--length", "20"]) == 0
assert chargpt.__main__.main(["text", TEXT, *tiny, cache]) == 0
"""


def test_the_programs_run_without_anything_that_only_posix_has(programs, text, tmp_path, session_root):
    """But for torch, whose CUDA packages belong to the real system."""
    given = f"from pathlib import Path\nTEXT, FOLDER, ROOT = {str(text)!r}, {str(tmp_path)!r}, Path({str(session_root)!r})"
    done = programs.run(code=given + PROGRAMS, anew=True, environment={**os.environ, "PYTHONIOENCODING": "cp1252"})
    assert done.returncode == 0, done.stderr.decode()
    assert last_step(tmp_path / "run").name == "step-00000006"


def test_a_clock_as_coarse_as_that_of_windows_divides_by_no_zero(text, tmp_path, monkeypatch):
    """Before Python 3.13, time.monotonic stands still for 16 ms on Windows, in which a small model takes several steps."""
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() // 1000 * 1000)
    cache = f"data.cache={tmp_path}/cache"
    assert train.main([str(text), *SHORT_RUN, "--run", f"{tmp_path}/run", cache]) == 0
    assert train.main(["--resume", "--run", f"{tmp_path}/run", "--minutes", "0.02", cache]) == 0
    assert sample.main([f"{tmp_path}/run", "--length", "0"]) == 0


ENCODINGS = """
import sys
from chargpt.errors import UserError
from chargpt.program import run_program
def main():
    sys.stdout.write("中é\\n" + ascii(sys.stdin.readline()) + "\\n")
    raise UserError("Ω")
sys.exit(run_program(main))
"""


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8:strict"])
def test_what_is_read_and_printed_does_not_depend_on_the_locale(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", ENCODINGS]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input="é中\udc81\n".encode(errors="surrogateescape"), capture_output=True
    )
    assert (done.stdout.decode(), done.stderr.decode()) == ("中é\n'\\xe9\\u4e2d\\udc81\\n'\n", "error: Ω\n")


NOT_PORTABLE = ["aux", "CON", "nul.txt", "com1", "poems.", "poems ", "a:b", "a\\b", "what?"]


@pytest.mark.parametrize("name", NOT_PORTABLE)
def test_a_run_has_a_name_that_every_system_allows(name, tmp_path):
    assert not is_portable(name) and is_portable(portable(name))
    for given in (name, f"{tmp_path}/{name}"):
        with pytest.raises(UserError, match="reads such a name as something else; use a name such as"):
            folder_of(given, tmp_path)


def test_other_names_stay_as_they_are(tmp_path):
    for name in ("poems", "Poems", ".poems", "auxiliary", "my poems", "гимн", "中文", "v1.2"):
        assert is_portable(name) and portable(name) == name and folder_of(name, tmp_path) == tmp_path / name
    for path in (f"{tmp_path}/poems", "./poems", "poems/"):
        assert folder_of(path, Path("elsewhere")) == Path(path)


@pytest.mark.parametrize(
    "file, name",
    [
        ("nul.txt", "nul-text"),
        ("a:b.txt", "a-b"),
        ("poems..txt", "poems"),
        ("-x.txt", "x"),
        ("-.txt", "text"),
        ("step-00000010.txt", "step-00000010-text"),
        ("-step-00000010.txt", "step-00000010-text"),
        ("step-1.txt", "step-1"),
        ("été.txt", "été"),
        ("\udce4\udcb8\udcad.txt", "text"),
        ("a\x1bb.txt", "ab"),
        ("Café\u00a0noir\x01\udce9.txt", "Cafénoir"),
    ],
)
def test_the_default_name_of_a_run_is_made_portable(file, name):
    assert run_name([file]) == name


@pytest.mark.parametrize("failures, fails", [(3, False), (10**9, True)])
def test_on_windows_a_scanner_that_holds_a_new_file_delays_it(tmp_path, monkeypatch, failures, fails):
    calls, replace = [], os.replace

    def refuse(*given: Path) -> None:
        calls.append(given)
        if len(calls) <= failures:
            raise PermissionError(13, "in use by another process")
        replace(*given)

    monkeypatch.setattr(files, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr(os, "replace", refuse)
    for is_windows in (False, True):
        monkeypatch.setattr(files, "WINDOWS", is_windows)
        calls.clear()
        if fails or not is_windows:
            with pytest.raises(PermissionError):
                publish_file(tmp_path / "file", b"new")
        else:
            publish_file(tmp_path / "file", b"new")
        assert (len(calls) > 1) == is_windows and (tmp_path / "file").exists() == (is_windows and not fails)
