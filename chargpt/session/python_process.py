"""A process of this project beside the present one, which no Ctrl-C of the terminal reaches."""

import subprocess
import sys
from typing import Any

from chargpt.project import PACKAGE

# Its own sys.path begins with the folder of the package, whatever is in the current folder.
CODE = "import sys; sys.path.insert(0, sys.argv[2]); from {} import run; run(*sys.argv[3:])"


def start(module: str, *arguments: str, stderr: int, python: str | None = None) -> "subprocess.Popen[str]":
    """Call `run(*arguments)` of a module in a new process of `python`, with pipes to it and from it. Raises OSError."""
    form: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr, "encoding": "utf-8"}
    if sys.platform == "win32":
        form["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        form["process_group"] = 0
    words = [python or sys.executable or "", "-c", CODE.format(module), module, str(PACKAGE.parent), *arguments]
    return subprocess.Popen(words, errors="replace", **form)
