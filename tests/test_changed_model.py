"""model.py is the model: who changes it gets the training, texts, losses and checkpoints of the changed one, or a line.

Each experiment is made on a copy of the sources, as a reader of docs/change-the-model.md makes it, in a process of its own.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Programs

import train
from chargpt.errors import UserError
from chargpt.model import GPT

ROOT = Path(__file__).parents[1]
COPIED = ("model.py", "train.py", "sample.py", "pyproject.toml", "chargpt", "configs")
SMALL = {
    "model": "n_layer=2 n_head=2 n_embd=32 block_size=16".split(),
    "train": "batch_size=4 max_steps=8 eval_interval=4 sample_length=20".split(),
}
SETTINGS = [f"{section}.{word}" for section, words in SMALL.items() for word in words]
SETTINGS += ["checkpoint.interval=2", "runtime.threads=1", "optim.warmup_steps=2"]

PAGE = ROOT / "docs" / "change-the-model.md"


def of_page(heading: str) -> dict[str, str]:
    """What the page tells its reader to replace in model.py, and by what, below a heading that begins so."""
    (section,) = re.findall(rf"^## {heading}.*?(?=^## )", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    changes = {}
    for block in re.findall(r"^```diff\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        before, after = ([line[1:] for line in block.splitlines() if line[0] in signs] for signs in (" -", " +"))
        changes["\n".join(before)] = "\n".join(after)
    assert changes
    return changes


ACTIVATION, QK_NORM, SWIGLU = of_page("An activation"), of_page("QK-norm"), of_page("SwiGLU")
NORMED = "q, k = (F.rms_norm(x, x.shape[-1:]) for x in (q, k))"
BEFORE_ROTATION = "        if rotary is not None:\n            q, k = rotate"
HEADS, INITIAL = "        self.n_head = config.n_head\n", "        self._initialise()\n"
GAINS = {
    HEADS: f"{HEADS}        self.gain = nn.Parameter(torch.ones(config.n_embd // config.n_head))\n",
    BEFORE_ROTATION: f"        {NORMED.replace('x.shape[-1:])', 'x.shape[-1:]) * self.gain')}\n{BEFORE_ROTATION}",
}
UNTIED = {
    INITIAL: f"        self.head = nn.Linear(config.n_embd, vocab_size, bias=False)\n{INITIAL}",
    "F.linear(self.norm(x), self.token_embedding.weight)": "self.head(self.norm(x))",
}
BIGRAMS = {
    INITIAL: f"        self.pairs = nn.Embedding(64, config.n_embd)\n{INITIAL}",
    "x, table = self.token_embedding(idx),": "x = self.token_embedding(idx) + self.pairs((idx + 7 * idx.roll(1, 1)) % 64)\n"
    "        x, table = x,",
}
EXPERIMENTS = {"silu": ACTIVATION, "qk-norm": QK_NORM, "swiglu": SWIGLU, "gains": GAINS, "untied": UNTIED, "bigrams": BIGRAMS}
OWN_NORM = "class LayerNorm(nn.RMSNorm):\n    def __init__(self, width, bias):\n        super().__init__(width)"
EXPERIMENTS["rms-norm"] = {"class LayerNorm(nn.LayerNorm):": f"{OWN_NORM}\n\n\nclass Unused(nn.LayerNorm):"}
NAMES = [pytest.param(name, marks=[pytest.mark.nightly] * (name != "gains")) for name in EXPERIMENTS]


def copy_of_sources(folder: Path, changes: dict[str, str]) -> Path:
    """A copy of the project with these passages of model.py replaced."""
    for path in (ROOT / name for name in COPIED):
        if path.is_dir():
            shutil.copytree(path, folder / path.name)  # with what Python has compiled
        else:
            shutil.copy(path, folder)
    change(folder, changes)
    return folder


def change(folder: Path, changes: dict[str, str]) -> None:
    source, when = (folder / "model.py").read_text(encoding="utf-8"), (folder / "model.py").stat().st_mtime
    for passage, new in changes.items():
        assert passage in source, f"model.py has no {passage!r} any more: so has the page of the docs"
        source = source.replace(passage, new)
    (folder / "model.py").write_text(source, encoding="utf-8")
    os.utime(folder / "model.py", (when + 1, when + 1))  # Python compiles a file of the same size and second no second time


HEAD = """
import contextlib, hashlib, io, json, os, pathlib, signal, sys, time
import torch
from session import set_up
set_up(root=pathlib.Path.cwd(), precision=None, step=None)
torch.set_num_threads(1)
import chargpt, train, sample
from chargpt.__main__ import main as verb
from chargpt.errors import UserError
RUNS, found = pathlib.Path("checkpoints"), {}

def says(main, words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main(words)
        except UserError as error:
            code = f"{out.write(str(error)) and 2}"
    return code, out.getvalue()

def bits(run):
    return hashlib.sha256((RUNS / run / "step-00000008" / "model.safetensors").read_bytes()).hexdigest()
"""
KILLED = """
child = os.fork()
if child == 0:
    os._exit(says(train.main, [TEXT, "--run", "killed", *SETTINGS])[0])
while not (RUNS / "killed" / "step-00000004").exists() and os.waitpid(child, os.WNOHANG) == (0, 0):
    time.sleep(0.01)
with contextlib.suppress(ProcessLookupError):
    os.kill(child, signal.SIGKILL)
with contextlib.suppress(ChildProcessError):
    os.waitpid(child, 0)
"""
WORK = """
found["train"] = says(train.main, [TEXT, "--run", "whole", *SETTINGS])
if (RUNS / "killed").exists():
    found["resume"] = says(train.main, ["--resume", "--run", "killed"])
    found["same bits"] = bits("whole") == bits("killed")
found["sample"] = says(sample.main, ["whole", "--length", "30", "--seed", "1", "--temperature", "0"])
model = chargpt.load("whole")
text = open(TEXT).read()[:17]
ids = torch.tensor([model.tokenizer.encode(text).tolist()])
with torch.no_grad():
    found["losses"] = model.score(text), float(model.model(ids[:, :-1], ids[:, 1:]))
    written = model.model.generate(ids[:, :1], 15, temperature=0)[0].tolist()
found["texts"] = model.generate(text[:1], length=15, temperature=0), model.tokenizer.decode(written)
found["attention"] = list(model.attention("the sea").shape)
for target in ("html", "hf", "safetensors"):
    found[target] = says(verb, ["export", "whole", "--to", target, f"out-{target}", "--force"])
found["runs"] = says(verb, ["runs"])
found["val loss"] = model.val_loss
print(json.dumps(found))
"""


def outcome(programs: Programs, folder: Path, text: Path, code: str) -> Any:
    """What the code prints last, run with the project in `folder`."""
    given = f"TEXT, SETTINGS = {str(text)!r}, {SETTINGS!r}"
    done = programs.run(code=f"{HEAD}{given}\n{code}", anew=True, folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict) -> None:
    """That all numbers are of the model that model.py has now."""
    assert found["train"][0] == 0 and "model.py computes something else than the C code" in found["train"][1]
    assert found["sample"][0] == 0 and "model.py computes something else" in found["sample"][1]
    assert found["losses"][0] == pytest.approx(found["losses"][1], abs=1e-5)
    assert found["texts"][0] == found["texts"][1]
    assert found["attention"] == [2, 2, 7, 7] and "whole" in found["runs"][1]
    for target in ("html", "hf"):
        assert found[target][0] == "2" and "model.py computes something else; use --to safetensors" in found[target][1]
    assert found["safetensors"][0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_trains_resumes_writes_and_is_scored_as_it_is(name, programs, text, tmp_path):
    found = outcome(programs, copy_of_sources(tmp_path, EXPERIMENTS[name]), text, KILLED + WORK)
    check(found)
    assert found["resume"][0] == 0 and found["same bits"]


KEPT = """
said = says(verb, ["export", "whole", "--to", "safetensors"])
found = pathlib.Path("whole.safetensors").read_bytes()
of_page = found.replace(b"model_source", b"model_so____").replace(b"model_loss", b"model_lo__")  # it writes neither
pathlib.Path("page.safetensors").write_bytes(of_page)
print(json.dumps(said))
"""
SAID = """
pathlib.Path("short.txt").write_text(open(TEXT).read()[:1500])
begun = ["short.txt", "--start", "english", "--dry-run", "runtime.threads=1"]
found = [says(sample.main, ["whole", "--length", "9"]), says(train.main, RESUME), says(train.main, begun)]
found += [says(sample.main, [f"{name}.safetensors", "--length", "9"]) for name in ("whole", "page")]
found += [says(verb, [name, "whole"]) for name in ("cite", "runs", "report")]
print(json.dumps([*found, "what is measured on its model" in pathlib.Path("report.html").read_text(encoding="utf-8")]))
"""


def test_another_model_py_is_told_and_a_comment_is_not(programs, text, tmp_path):
    """Of a run of the unchanged model: with the same numbers, nothing is said; with others, one line."""
    folder = copy_of_sources(tmp_path, {})
    first = outcome(programs, folder, text, WORK)
    assert first["train"][0] == first["hf"][0] == 0 and "something else" not in json.dumps(first)
    assert outcome(programs, folder, text, KEPT)[0] == 0
    longer = SAID.replace("RESUME", '["--resume", "train.max_steps=10"]')
    line = "model.py computes something else with these weights than the one that trained them"
    change(folder, {'"""A character-level GPT': '# A comment.\n"""A character-level GPT'})
    *said, is_left_out = outcome(programs, folder, text, longer)
    assert line not in json.dumps(said) and not is_left_out
    change(folder, ACTIVATION)
    *said, (_, cited), _, (code, _), is_left_out = outcome(programs, folder, text, longer)
    assert "missing   another model.py trained it" in cited
    assert all(code == 0 and line in each for code, each in said) and code == 0 and is_left_out
    change(folder, {after: before for before, after in ACTIVATION.items()} | SWIGLU)
    again = SAID.replace("RESUME", '["--resume"]')
    *said, (_, cited), (_, listed), (code, _), is_left_out = outcome(programs, folder, text, again)
    for refused, each in said:
        assert refused == "2" and "trained by another model.py, with other weights" in each and "\n" not in each
    assert code == 0 and is_left_out
    own = first["runs"][1].splitlines()[1].split()[2]  # number of parameters
    assert listed.splitlines()[1].split()[2] == own and f"GPT of {own} parameters" in cited


def with_a_mask(gpt: GPT) -> None:
    gpt.register_buffer("mask", torch.ones(4))


def with_halves(gpt: GPT) -> None:
    gpt.counts = torch.nn.Parameter(torch.ones(4, dtype=torch.int64), requires_grad=False)


def without_embedding(gpt: GPT) -> None:
    del gpt.token_embedding


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (with_a_mask, "mask is saved, but is no parameter"),
        (with_halves, "counts is int64, and weights are saved in float32"),
        (without_embedding, "its GPT has no token_embedding"),
    ],
)
def test_weights_that_could_not_be_read_again_are_refused_before_the_first_step(more, said, text, tmp_path, monkeypatch):
    first = GPT.__init__
    monkeypatch.setattr(GPT, "__init__", lambda self, *given: (first(self, *given), more(self)) and None)
    with pytest.raises(UserError, match=f"model.py: {said}"):
        train.main([str(text), "--run", str(tmp_path / "run"), "--config", "tiny", f"data.cache={tmp_path}/cache"])
    assert not list(tmp_path.glob("run/step-*"))


@pytest.mark.parametrize(
    "other", [lambda found: (0, found), lambda found: torch.nn.functional.pad(found, (0, 31)) if found.dim() else found]
)
def test_a_forward_pass_with_other_results_is_refused_before_the_first_step(other, text, tmp_path, monkeypatch):
    forward = GPT.forward
    monkeypatch.setattr(GPT, "forward", lambda self, *given: other(forward(self, *given)))
    with pytest.raises(UserError, match="model.py: forward.* must return the .* alone"):
        train.main([str(text), "--run", str(tmp_path / "run"), "--config", "tiny", f"data.cache={tmp_path}/cache"])
