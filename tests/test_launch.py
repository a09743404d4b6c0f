"""Before torch is imported: signals, missing packages, several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import SHORT_RUN, publish_run

import sample
import train
from chargpt.program import run_program

ROOT = Path(__file__).parents[1]
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"


def run(words: list[str], folder: Path, *, first: str = NO_TORCH) -> subprocess.CompletedProcess:
    """What Python does with these words, when it has run the code `first`, which is written into `folder`."""
    (folder / "sitecustomize.py").write_text(first)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


NEW_RUN = ("--run", "a-run-that-no-test-makes")  # for a run that exists, a training ends before it imports torch


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize(
    "program, module",
    [
        (["train.py", *NEW_RUN], "torch"),
        (["-m", "chargpt", "train", *NEW_RUN], "torch"),
        (["sample.py", "nobody"], "chargpt.sampling.loaded_model"),
        (["-m", "chargpt", "score", "nobody"], "torch"),
    ],
)
def test_ctrl_c_during_the_imports_is_one_line(program, module, tmp_path):
    interrupts = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = run(program, tmp_path, first=interrupts)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_a_missing_package_is_one_line_that_names_the_interpreter(tmp_path):
    done = run(["train.py", *NEW_RUN], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: torch: not installed for ")
    assert "pip install" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_of_a_run_gets_the_number_of_a_closed_standard_stream(closed, tmp_path):
    """Messages for standard error would be written into it, also by child processes."""
    code = (
        "import subprocess, sys; from chargpt.program import run_program;"
        "child = lambda: subprocess.run(['sh', '-c', 'exec 5<&0 6>&1 7>&2']).returncode;"
        "sys.exit(run_program(lambda: open(sys.argv[1], 'w').fileno() < 3 or child()))"
    )
    command = f'"{sys.executable}" -c "{code}" {tmp_path}/file {closed}'
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("streams", ["2>/dev/full", pytest.param(">&- 2>&-", marks=pytest.mark.nightly)])
def test_a_mistake_whose_message_cannot_be_written_has_its_exit_code(streams):
    command = f"{sys.executable} train.py --no-such-option {streams}"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_messages_that_cannot_be_written_stop_neither_training_nor_sampling(text, tmp_path, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        run, cache = ["--run", f"{tmp_path}/run"], f"data.cache={tmp_path}/cache"
        assert run_program(lambda: train.main([str(text), *SHORT_RUN, *run, cache])) == 0
        assert "\ndone " in capsys.readouterr().out
        assert run_program(lambda: sample.main([f"{tmp_path}/run", "--length", "20", "--seed", "1"])) == 0
        written = capsys.readouterr().out
        monkeypatch.undo()
    assert sample.main([f"{tmp_path}/run", "--length", "20", "--seed", "1"]) == 0
    assert written == capsys.readouterr().out and len(written) > 20


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("stream, code", [("stderr", 0), ("stdout", 2)])
def test_a_verb_whose_messages_cannot_be_written_prints_its_result(programs, tmp_path, stream, code):
    run = publish_run(tmp_path / "run")
    (tmp_path / "a.txt").write_text("abc def\n" * 9)
    with open("/dev/full", "wb") as full:
        streams = {stream: full.fileno()}
        done = programs.run("chargpt.__main__", "score", str(run), str(tmp_path / "a.txt"), "--device", "cpu", **streams)
    assert done.returncode == code
    if stream == "stderr":
        assert b"a.txt" in done.stdout
    else:
        assert done.stderr.count(b"error: ") == done.stderr.count(b"\nerror: standard output: No space left") == 1


@pytest.mark.parametrize(
    "words, says",
    [
        (["train.py", "--batch_size=3"], "--batch_size: no such option; did you mean train.batch_size?"),
        (["train.py", "train.max_steps=five"], "command line: train.max_steps: 'five' given; use a whole number"),
        (["sample.py", "--lenght", "5"], "--lenght: no such option; did you mean --length?"),
    ],
)
def test_a_mistyped_option_is_reported_without_torch(words, says, tmp_path):
    done = run(words, tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {says}") and done.stderr.count("\n") == 1


def test_a_run_imports_what_it_needs_when_it_needs_it(programs, text, tmp_path):
    """torch's compiler takes as long to import as torch itself; pictures and pages are for the end of a run."""
    code = f"""
import sys, train
from chargpt.session import follower
from chargpt.training.trainer import Trainer
from session import no_report
follower.start = no_report
found, advance = [], Trainer.advance
def step(trainer):
    found.append(sys.modules.keys() & {{"PIL", "jinja2"}})
    return advance(trainer)
Trainer.advance = step
words = ["--run", {str(tmp_path / "run")!r}, {f"data.cache={tmp_path}/cache"!r}, "--config", "tiny"]
train.main([{str(text)!r}, *words, "train.max_steps=2"])
print(*found[0], *(sys.modules.keys() & {{"torch._dynamo", "torch._inductor", "sympy"}}))
"""
    done = programs.run(code=code, anew=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == b"", (done.stdout, done.stderr)


@pytest.mark.parametrize(
    "given, running, spins",
    [
        ({}, 1, "10000"),
        ({}, 1 + os.cpu_count(), "1000"),
        ({}, "not Linux", "10000"),
        ({"GOMP_SPINCOUNT": "7"}, 1, "7"),
        ({"OMP_WAIT_POLICY": "active"}, 1, "None"),
    ],
)
def test_threads_of_a_training_sleep_soon_unless_the_user_decides(given, running, spins, tmp_path):
    """OpenMP reads its variables when torch is imported, so they are set by then."""
    (tmp_path / "torch.py").write_text("import os\nspins = os.environ.get('GOMP_SPINCOUNT')\n")
    (tmp_path / "program.py").write_text("import torch\ndef main():\n    print(torch.spins)\n")
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | given
    (tmp_path / "loadavg").write_text(f"0.1 0.2 0.3 {running}/77 22875\n")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; from chargpt import launch; "
    code += f"launch.RUNNING = {str(tmp_path / 'loadavg')!r}; launch.launch('program', trains=True)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{spins}\n"), done.stderr
