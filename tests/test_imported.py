"""What is imported for a task, in lines of this project: of a training, little is needed to take a step."""

import json
from collections import Counter

from programs import Programs

# The most lines that a whole training imports of each package, and, under no name, of the modules beside the packages and
# train.py: the text is new and its time is limited, so all of them have work to do.
MOST = {
    "": 2_750,
    "kernels": 590,
    "text": 3_550,
    "runs": 1_470,
    "training": 1_495,
    "planning": 2_265,
    "sampling": 840,
    "session": 1_080,
}
# What it does not meet: another run, several processes, a mistake, the program that writes, and texts that are not plain UTF-8.
NOT_MET = (
    *("aliases", "gpu", "training.parallel", "session.resuming", "sampling.loaded_model", "sampling.cli"),
    *(f"runs.{name}" for name in ("load", "beginning")),
    *(f"text.{name}" for name in ("records", "messages", "json_records", "table_rows", "character_encodings", "cleaning")),
    *(f"text.{name}" for name in ("corpora", "item_stream", "labels")),
)
COUNTED = """
import json, sys
lines = {}
for name, module in list(sys.modules.items()):
    if name.split(".")[0] in ("chargpt", "train") and (path := getattr(module, "__file__", None)):
        lines[name] = len(open(path, encoding="utf-8").readlines())
print(json.dumps(lines))
"""
STEP = """
import numpy as np, torch
from chargpt.config import Config, ModelConfig, RuntimeConfig, TrainConfig
from chargpt.model import GPT, GPTConfig
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer
shape = dict(n_layer=1, n_head=2, n_embd=32, block_size=8)
config = Config(model=ModelConfig(**shape), train=TrainConfig(batch_size=4, max_steps=3), runtime=RuntimeConfig(threads=1))
trainer = Trainer(GPT(GPTConfig(**shape), 7), np.arange(200) % 7, config, runtime=choose_runtime(config))
trainer.step()
"""
WHOLE = """
import os
from pathlib import Path
from chargpt.planning import speeds
from chargpt.session import follower
from session import no_report
speeds.speeds_file = lambda: Path(os.devnull, "speeds.json")
follower.start = no_report
import train
assert train.main(ARGUMENTS) == 0
"""


def imported(programs: Programs, code: str) -> dict[str, int]:
    """The lines of each module of this project that a process has imported which runs this code."""
    done = programs.run(code=code + COUNTED, anew=True)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


def test_a_step_needs_no_screen_no_options_no_schema_and_few_lines(programs):
    lines = imported(programs, STEP)
    others = {"screen", "parser", "aliases", "program", "settings", "runs.checkpoint_schema", "runs.checkpoint"}
    assert not lines.keys() & {f"chargpt.{name}" for name in others}
    assert sum(lines.values()) <= 3_520


def test_a_training_imports_no_page_and_no_analysis_and_only_what_it_takes(programs, text, tmp_path):
    words = ["--minutes", "0.02", "--start", "none", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    arguments = [str(text), *words]
    lines = imported(programs, WHOLE.replace("ARGUMENTS", repr(arguments)))
    assert not [name for name in lines if name.startswith(("chargpt.pages", "chargpt.analysis", "chargpt.commands"))]
    assert not lines.keys() & {f"chargpt.{name}" for name in NOT_MET}
    packages = Counter[str]()
    for name, count in lines.items():
        packages[name.split(".")[1] if name.count(".") > 1 else ""] += count
    assert all(packages[name] <= most for name, most in MOST.items()), packages
