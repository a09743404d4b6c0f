"""A page without a browser: its elements, and its script in Node.js."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")


class Elements(HTMLParser):
    """The elements of a page in their order: the tag, the attributes and the text of each."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.all: list[SimpleNamespace] = []
        self._open: list[SimpleNamespace] = []
        self.feed(content)

    @property
    def tags(self) -> list[str]:
        return [element.tag for element in self.all]

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.all.append(SimpleNamespace(tag=tag, attributes=dict(attrs), text=""))
        if tag not in ("meta", "br", "img", "link"):  # which have no end
            self._open.append(self.all[-1])

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass


def run_script(page: str, code: str, *, script: str = "") -> Any:
    """What the JavaScript `code` returns after the script of `page`, whose names it sees. See dom.js.

    `script` is the beginning of the attributes of its <script> tag, as a regular expression.
    """
    question = json.dumps({"page": page, "script": script, "code": code})
    command = ["node", str(Path(__file__).with_name("dom.js"))]
    done = subprocess.run(command, input=question.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
