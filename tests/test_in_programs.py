"""The programs of docs/in-programs.md run as they are written, with a small text and short trainings."""

import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import pytest
from helpers import TINY_FILE, publish_run

import chargpt
from chargpt.project import HOME

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "in-programs.md").read_text(encoding="utf-8")
PROGRAMS = {re.match(r"# (\w+)\.py", block)[1]: block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S)}
SHORT = {  # what is long, and what stands for it
    "minutes=10": f'config={TINY_FILE!r}, settings={{"train.max_steps": 12, "runtime.threads": 1}}',
    '"train.max_steps": 500': '"train.max_steps": 6',
    "(1e-3, 3e-3), (1, 2, 3)": "(3e-3,), (1, 2)",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poems.txt").write_text("The sea is calm tonight, the tide is full.\n" * 200)
    return tmp_path


@pytest.fixture
def program(home: Path) -> Callable[[str], ModuleType]:
    """A program of the page as a module."""

    def load(name: str) -> ModuleType:
        path = home / f"{name}.py"
        source = PROGRAMS[name]
        for long, short in SHORT.items():
            source = source.replace(long, short)
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def run_whole(name: str, home: Path, program: Callable[[str], ModuleType]) -> str:
    """What it prints as a program."""
    program(name)
    words, env = [sys.executable, home / f"{name}.py"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, input="", env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_server_of_the_standard_library_streams_and_says_what_is_wrong(program, home):
    publish_run(home / "checkpoints" / "poems")
    module = program("server")
    server = module.ThreadingHTTPServer(("127.0.0.1", 0), module.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for prompt, status in (("abc", 200), ("xyz", 400)):
            asked = http.client.HTTPConnection(*server.server_address, timeout=30)
            asked.request("GET", f"/?prompt={prompt}")
            answer = asked.getresponse()
            content = answer.read().decode()
            assert answer.status == status
            assert content.startswith("abc") and len(content) == 503 if status == 200 else "characters" in content
            asked.close()
    finally:
        server.shutdown()
        server.server_close()


def test_the_service_of_fastapi_streams_and_says_what_is_wrong(program, home):
    pytest.importorskip("fastapi")
    client = pytest.importorskip("fastapi.testclient")
    publish_run(home / "checkpoints" / "poems")
    app = client.TestClient(program("service").app)
    answer = app.get(f"/write?prompt={quote('abc')}&length=20")
    assert answer.status_code == 200 and answer.text.startswith("abc") and len(answer.text) == 23
    assert app.get("/write?length=-1").status_code == 400


@pytest.mark.nightly
def test_the_training_goes_on_until_the_button_is_pressed(program, home):
    module, button, seen = program("button"), threading.Event(), []
    module.train(lambda now: (seen.append(now.step), button.set()), button)
    assert seen == [0] and chargpt.runs("button")[0].state == "stopped"
    assert len(run_whole("button", home, program).splitlines()) > 1


@pytest.mark.nightly
def test_the_sweep_prints_a_table_and_writes_a_page(program, home):
    lines = run_whole("sweep", home, program).splitlines()
    assert re.fullmatch(r"rate 0.003 +[0-9]\.[0-9]{4} ± [0-9]\.[0-9]{4}  \(2 seeds\)", lines[0])
    assert lines[1:] == ["sweep.html"] and "mean of 2 seeds" in (home / "sweep.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_job_begins_goes_on_and_is_finished(program, home):
    for _ in range(2):
        assert run_whole("job", home, program).splitlines()[-1] == "finished 12 of 12"
    assert json.loads((home / "checkpoints" / "job" / "status.json").read_text())["state"] == "finished"
