"""The script of a page in Node.js, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")


def run_script(page: str, code: str, *, script: str = "") -> Any:
    """What the JavaScript `code` returns after the script of `page`, whose names it sees. See dom.js.

    `script` is the beginning of the attributes of its <script> tag, as a regular expression.
    """
    question = json.dumps({"page": page, "script": script, "code": code})
    command = ["node", str(Path(__file__).with_name("dom.js"))]
    done = subprocess.run(command, input=question.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
