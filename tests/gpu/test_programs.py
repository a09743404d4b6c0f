"""Trainings, samples and sweeps on a GPU: what they ask of it, and that they run to their end.

Where there is no GPU, they run on one that computes nothing, which also counts: null_gpu.py says what is real there, and what
it needs. What a real one computes is in test_numbers.py.
"""

import json
import random
import re

import pytest
import torch
from gpu.conftest import PROGRAMS

pytestmark = pytest.mark.gpu
TINY = "model.n_layer=1 model.n_embd=32 model.n_head=2 model.block_size=16 train.batch_size=4 train.max_steps=6".split()
STEPS = 8  # as in programs.py


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> dict[str, str]:
    """A text, and a list of items with labels."""
    folder, chance = tmp_path_factory.mktemp("texts"), random.Random(1)
    words = [[chance.choice("the cat sat on a mat and dog ran home".split()) for _ in range(8)] for _ in range(2000)]
    (folder / "text.txt").write_text("\n".join(map(" ".join, words)), encoding="utf-8")
    rows = "".join(f"{chance.choice('xy')}\t{''.join(line[:2])}\n" for line in words)
    (folder / "items.tsv").write_text(f"kind\tname\n{rows}", encoding="utf-8")
    return {"text": str(folder / "text.txt"), "items": str(folder / "items.tsv")}


def test_a_step_is_a_graph_for_each_gradient_and_one_for_the_update(returned):
    """A few calls, no wait, and the copies of the batch and of the numbers, for every kind of training."""
    for name, (counts, evaluation) in returned("steps").items():
        assert evaluation["waits"] == 1, name
        gradients = 3 if name == "accumulated" else 1
        assert counts.pop("graphs") == STEPS * (gradients + 1), name
        assert counts.pop("kernels") <= STEPS * (1 + 2 * gradients) and counts.pop("copies") == STEPS * (1 + gradients), name
        assert not counts, name


def test_a_compiled_step_is_the_same(returned):
    counts, _ = returned("compiled")
    assert counts == {"kernels": 3 * STEPS, "copies": 2 * STEPS, "graphs": 2 * STEPS}


def test_a_small_step_and_a_character_have_few_kernels(returned):
    """A card takes the same time for each. A step had 621, with teachers 1,095, and a character 201 and 118."""
    most = {"step": 440, "step with three teachers": 690, "character, rotary": 125, "character, learned": 105}
    found = returned("nodes")
    assert found.keys() == most.keys() and all(50 < found[name] < most[name] for name in most), found


def test_the_memory_that_is_told_is_that_which_is_allocated(returned):
    found = returned("memory")
    assert len(found) == 5 and all(1 / 1.3 < ratio < 1.3 for ratio in found.values()), found


def test_a_character_is_one_graph_and_no_wait(returned):
    for name, written, counts in returned("characters"):
        assert counts["graphs"] == written and counts["waits"] <= 3 and counts["kernels"] + counts["copies"] <= 30, name


@pytest.mark.parametrize("megabytes, most", [(200, 32), (20_000, 256)])
def test_as_many_texts_are_written_at_once_as_fit(null_run, megabytes, most):
    texts, taken = json.loads(null_run(str(PROGRAMS), "at_once", str(megabytes)).splitlines()[-1])
    assert most / 4 < texts <= most and taken < megabytes << 20


def test_a_run_is_trained_resumed_and_read(run, texts, tmp_path):
    name = str(tmp_path / "run")
    said = run("train.py", texts["text"], "--run", name, "--device", "cuda", *TINY)
    name_of_gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "Null GPU"
    assert re.search(f"{name_of_gpu}, (bfloat16|float16)", said) and "warning" not in said.lower()
    assert "resumed" in run("train.py", "--resume", "--run", name, "train.max_steps=9")
    assert ", cuda;" in run("sample.py", name, "--device", "cuda", "--length", "100", "--samples", "3", "--top-k", "3")
    assert ", cpu (compiled);" in run("sample.py", name, "--length", "100", "--samples", "40")
    assert "parameters, cuda\n" in run("-m", "chargpt", "score", name, texts["text"])


@pytest.mark.parametrize(
    "kind, words",
    {
        "items": ["--items", "name", "--label", "kind"],
        "start": ["--start", "english"],
        "stages": ["--minutes", "0.3", "train.teachers=2", *TINY[:4]],
        "sweep": ["--find-lr"],
        "step of the host": ["train.on_nonfinite=rollback", "optim.name=muon"],
    }.items(),
)
def test_it_trains(run, texts, tmp_path, kind, words):
    given = TINY[-1:] if kind == "start" else TINY if kind != "stages" else []
    said = run("train.py", texts["items" if kind == "items" else "text"], "--run", str(tmp_path / kind), *words, *given)
    assert {"stages": "model 3 of 3", "sweep": "suggested"}.get(kind, "done ") in said


def test_an_old_card_multiplies_in_float16_and_a_small_one_computes_fewer_windows_at_once(null_run, texts, tmp_path):
    words = ["train.py", texts["text"], "--device", "cuda", *TINY]
    said = null_run(*words, "--run", str(tmp_path / "old"), NULLGPU_MAJOR="7", NULLGPU_MINOR="5")
    assert "Null GPU, float16" in said
    words += ["train.batch_size=1024", "model.block_size=64", "train.max_steps=3", "train.log_interval=1"]
    said = null_run(*words, "--run", str(tmp_path / "small"), NULLGPU_MB="100")
    assert "too little for 1,024 sequences at once, so steps now compute 512 at a time" in said and "done " in said
    said = null_run(*words, "--run", str(tmp_path / "none"), NULLGPU_MB="10", fails=True)
    assert "error: memory: there is not enough" in said


def test_a_card_without_kernels_or_with_a_failure_ends_in_a_line_and_one_without_cudnn_goes_on(null_run, texts, tmp_path):
    """cuDNN is absent here, and PyTorch takes its attention from capability 9.0 on."""
    words, cuda = ["train.py", texts["text"], *TINY, "--run"], ["--device", "cuda"]
    for device, says in ((cuda, "cannot compute on Null GPU"), ([], "until then the CPU is used")):
        assert says in null_run(*words, str(tmp_path / "old"), *device, NULLGPU_LAUNCHES="0", fails=bool(device))
    said = null_run(*words, str(tmp_path / "broken"), *cuda, NULLGPU_LAUNCHES="300", NULLGPU_ERROR="700", fails=True)
    assert re.search(r"error: GPU: it has failed \(.*\); start again, a training with --resume", said)
    assert "Traceback" not in said
    said = null_run(*words, str(tmp_path / "new"), *cuda, NULLGPU_MAJOR="9")
    assert "slower      cuDNN cannot compute attention here" in said and "done " in said
    null_run("sample.py", str(tmp_path / "new"), *cuda, NULLGPU_MAJOR="9")


def test_two_processes_train_on_two_cards(null_run, texts, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--", "train.py"]
    named = ["--run", str(tmp_path / "run")]
    said = null_run(*launcher, texts["text"], *named, *TINY, NULLGPU_COUNT="2")
    assert "2 on 1 machine; each computes 2 of the 4 sequences of a step" in said and "done " in said
    assert "resumed" in null_run(*launcher, "--resume", *named, "train.max_steps=9", NULLGPU_COUNT="2")
    said = null_run(*launcher, texts["text"], "--run", str(tmp_path / "one"), "--device", "cuda", *TINY, fails=True)
    assert "error: GPUs: each of the 2 processes needs one, and this machine has 1; start fewer with --nproc-per-node 1" in said
