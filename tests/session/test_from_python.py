"""`chargpt.train` trains as train.py does, in a process of its own, and a mistake is an exception."""

import _thread
import dataclasses
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers import SHORT_RUN, bits, wait_for

import chargpt
import train
from chargpt.errors import IN_PYTHON, UserError
from chargpt.files import FolderLock
from chargpt.planning.cli import TrainOptions
from chargpt.runs.checkpoint import has_steps, steps
from chargpt.session import python_process
from chargpt.session.training import options_for

LONG = "The sea is calm tonight. " * 400
CUT = f"'{LONG[:196]}..."
ROOT = Path(chargpt.__file__).parents[1]
SETTINGS = dict(setting.split("=") for setting in SHORT_RUN if "=" in setting) | {"runtime.precision": "float32"}


@pytest.fixture
def beside(programs, monkeypatch) -> None:
    """What trains is a process that shares the import of torch with others."""
    monkeypatch.setattr(python_process, "start", lambda *given, stderr, python: programs.beside(*given, stderr=stderr))


def test_the_run_is_the_one_of_the_program_and_is_returned(text, tmp_path, capsys, pytestconfig):
    own = {"data.cache": tmp_path / "cache", "runtime.step": pytestconfig.getoption("step") or "auto"}
    model = chargpt.train(text, run=tmp_path / "ours", config="tiny", settings={**SETTINGS, **own})
    out = capsys.readouterr().out
    assert "step 12/12: " in out and "done " in out and "error" not in out
    assert (model.run, model.step) == ("ours", 12) and len(model.generate(length=5)) == 5
    settings = [f"{key}={value}" for key, value in {**SETTINGS, **own}.items()]
    assert train.main([str(text), "--run", f"{tmp_path}/theirs", "--config", "tiny", *settings]) == 0
    assert bits(tmp_path / "ours") == bits(tmp_path / "theirs")
    wait_for(lambda: (tmp_path / "ours" / "report.html").is_file())
    says = "a run of this name exists; continue it with chargpt.train.resume=True, run=.* such as .* overwrite=True"
    with pytest.raises(UserError) as error:
        train.main(TrainOptions(texts=[str(text)], run=str(tmp_path / "ours")))
    assert re.search(says, IN_PYTHON(error.value))


def test_an_interrupt_saves_the_run_and_returns_it(text, tmp_path, capsys, beside):
    settings = {**SETTINGS, "train.max_steps": 100_000, "train.eval_interval": 100_000, "data.cache": str(tmp_path / "cache")}

    def interrupt() -> None:
        wait_for(lambda: has_steps(tmp_path / "run"), seconds=300)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    model = chargpt.train(text, run=tmp_path / "run", config="tiny", settings=settings)
    assert "saved; continue with: chargpt.train(resume=True, run=" in capsys.readouterr().out
    assert model.run == "run" and steps(tmp_path / "run")[-1].name < "step-00100000"


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals of POSIX")
def test_a_parent_that_is_gone_stops_the_training_after_saving(text, tmp_path):
    settings = {**SETTINGS, "train.max_steps": 10**6, "train.eval_interval": 10**6, "data.cache": str(tmp_path / "cache")}
    code = f"import chargpt; chargpt.train({str(text)!r}, run={str(tmp_path / 'run')!r}, config='tiny', settings={settings!r})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        for line in parent.stdout:
            if line.startswith("step 0/"):
                break
        parent.kill()
    FolderLock(tmp_path / "run", wait=True).release()  # the child has it until it has saved
    assert steps(tmp_path / "run")[-1].name < "step-01000000"


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("a\nb", {}, "'a\\nb': this is a text, not a path; write it to a file, and give the name"),
        (LONG, {}, f"{CUT}: this is a text, not a path; write it to a file"),
        (["a.txt", LONG], {}, f"{CUT}: this is a text, not a path"),
        (LONG, {"resume": True}, f"{CUT}: this is a text, not a path"),
        (None, {"settings": {"data.val_text": LONG}}, f"{CUT}: this is a text, not a path"),
        ("-", {}, "text='-': standard input is for the command line; use the path of a file"),
        (5, {}, "text=5: use a name or a path, in quotes, or a list of them"),
        ([b"a"], {}, "text=[b'a']: use a name or a path, in quotes, or a list of them"),
        ([], {}, "text=[]: the list is empty; give one path or more; without text=, python-docs is the text"),
        (None, {"minutes": -1}, "minutes=-1: use a number above 0"),
        (None, {"settings": {"max_iters": 3}}, "max_iters=3: not a setting; did you mean train.max_steps?"),
        (None, {"settings": {"tran.max_steps": 3}}, "settings: tran: no such section; did you mean train?"),
        (None, {"settings": {"device": "cpu"}}, "device=cpu: not a setting; did you mean runtime.device?"),
        (None, {"settings": {"dataset": "x"}}, "dataset=x: not a setting; did you mean text, the path of a text?"),
        (None, {"settings": {"train": {"max_steps": 3}}}, "settings: train={'max_steps': 3} given; use keys such as"),
        (None, {"settings": "train.max_steps=3"}, "settings='train.max_steps=3': use a dict, for example"),
        (None, {"resume": "poems"}, "resume='poems': use True or False; the argument run says which one"),
        (None, {"overwrite": "yes"}, "overwrite='yes': use True or False"),
        (
            None,
            {"overwrite": True, "resume": True},
            "resume: cannot be used with overwrite, since the run has its settings and weights already; leave out overwrite",
        ),
        (
            None,
            {"epochs": 1, "minutes": 1},
            "epochs: cannot be used with minutes, since each sets the length of the training; leave out minutes",
        ),
        (None, {"run": 5}, "run=5: use a name or a path"),
        (None, {"teacher": 3}, "teacher=3: use a name or a path, in quotes, or a list of them"),
        (None, {"device": 5}, "device=5: use auto, cpu, cuda, cuda:N or mps"),
        (None, {"settings": {"train.max_steps": None}}, "settings: train.max_steps=None given; use keys such as"),
        (None, {"run": "aux"}, "run='aux': Windows, a shell or this program reads such a name as something else; use"),
    ],
)
def test_a_mistake_is_an_exception_that_speaks_of_arguments(beside, tmp_path, monkeypatch, text, arguments, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        chargpt.train(text, **arguments)
    assert str(error.value).startswith(says) and "; " in f"{error.value}; " and "--" not in str(error.value)


def test_a_path_stays_a_path_and_settings_have_their_types(tmp_path):
    settings = {"optim.betas": (0.9, "0.95"), "model.bias": True, "data.cache": tmp_path, "train.max_steps": np.int64(5)}
    options = {"minutes": "1h30", "epochs": None, "init_from": None, "run": Path("a b"), "resume": False, "overwrite": True}
    texts = [tmp_path / "a.txt", "-odd.txt", "a=b.txt"]
    asked = options_for(texts, settings={**settings, "optim.learning_rate": "1e-3"}, device="cpu", **options)
    assert (asked.texts, asked.minutes, asked.run, asked.overwrite) == (list(map(str, texts)), 90, "a b", True)
    assert asked.settings == {
        "optim": {"betas": (0.9, 0.95), "learning_rate": 0.001},
        "model": {"bias": True},
        "data": {"cache": str(tmp_path)},
        "train": {"max_steps": 5},
        "runtime": {"device": "cpu"},
    }
    assert TrainOptions(**json.loads(json.dumps(dataclasses.asdict(asked)))) == asked  # what the child reads


def test_a_file_is_called_by_its_name_whatever_that_looks_like(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        train.main(TrainOptions(texts=["--resume --run TEXT.txt"], run=str(tmp_path / "run"), config="tiny"))
    assert IN_PYTHON(error.value).startswith("--resume --run TEXT.txt: no such file or folder")


def test_what_no_other_arguments_mend_is_no_mistake_of_the_caller(text, tmp_path, beside):
    """Neither a cache that cannot be written, nor a loss that is not finite; the last checkpoint is named once."""
    own = {**SETTINGS, "data.cache": str(tmp_path / "cache")}
    with pytest.raises(chargpt.NotWritten, match="cache.*: .*; set data.cache .*to another folder, or "):
        chargpt.train(text, run=tmp_path / "a", config="tiny", settings={**own, "data.cache": str(text / "cache")})
    lost = {"optim.learning_rate": 1e39, "optim.warmup_steps": 0, "train.eval_interval": 40, "checkpoint.interval": 1}
    with pytest.raises(chargpt.NotFinite) as failed:
        chargpt.train(text, run=tmp_path / "b", config="tiny", settings={**own, **lost})
    said = str(failed.value)
    assert said.startswith("training failed at step 1: ") and said.count("the last checkpoint, step-00000000, ") == 1
    assert said.count("last checkpoint") == said.count("step-0") == said.count("chargpt.load(") == 1 and "resume=True, " in said
    assert not isinstance(failed.value, ValueError) and chargpt.load(tmp_path / "b").step == 0
