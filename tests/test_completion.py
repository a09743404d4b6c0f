"""Completion in a shell: what may follow on a line, without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete", reason="needs argcomplete")
ROOT = Path(__file__).parents[1]


def completed(line: str, folder: Path) -> set[str]:
    """What the shell is told for a line of an installed `chargpt`."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    code = f"import pathlib; from chargpt import project; project.SOURCE = pathlib.Path({str(folder)!r})\n"
    code += "from chargpt.__main__ import main; main([])"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "out"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, timeout=60)
    return {word.strip() for word in (folder / "out").read_text().split("\n")}


def test_verbs_options_settings_and_runs_are_completed(tmp_path):
    (tmp_path / "checkpoints" / "poems").mkdir(parents=True)
    (tmp_path / "poems.txt").touch()
    assert completed("chargpt sa", tmp_path) == {"sample"}
    assert {"--temperature", "--top-k"} <= completed("chargpt sample poems --t", tmp_path)
    assert completed("chargpt sample po", tmp_path) == completed("chargpt score po", tmp_path) == {"poems"}
    assert completed("chargpt train --resume --run p", tmp_path) == {"poems"}
    assert completed("chargpt train train.max_s", tmp_path) == {"train.max_steps="}
    assert completed("chargpt train poems.t", tmp_path) == {"poems.txt"}
