"""A model learns from other models' predictions as from the text, and the run says which ones and finds them again."""

import copy
import dataclasses
import gc
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import TINY_FILE, bits, last_step, publish_run
from session_helpers import resume

import train
from chargpt.config import Config, TrainConfig
from chargpt.device import choose_device
from chargpt.errors import UserError
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import StepKernel
from chargpt.model import GPT, GPTConfig
from chargpt.planning.teachers import keep_teachers, teachers_of_stage
from chargpt.runs.checkpoint import newest
from chargpt.runs.models import restore_model
from chargpt.runs.stage import Length, Stage
from chargpt.training.distillation import SHARE, DistillationLoss
from chargpt.training.evaluation import digest
from chargpt.training.runtime import Runtime
from chargpt.training.trainer import Trainer

SHAPE = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8)
RUNTIME = Runtime(device=choose_device("cpu"), precision=torch.float32, threads=1)
VOCAB = 7
LENGTH = "train.max_steps=20 train.eval_interval=10 checkpoint.interval=10 train.sample_length=0 runtime.threads=1"
TINY = ["--config", TINY_FILE, *LENGTH.split()]


def new_model(seed: int, **changes: object) -> GPT:
    torch.manual_seed(seed)
    return GPT(dataclasses.replace(SHAPE, **changes), VOCAB)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    return ids[:, :-1], ids[:, 1:]


def gradient(loss: torch.Tensor, model: GPT) -> torch.Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def test_the_loss_is_the_cross_entropy_with_the_text_and_the_mean_prediction(batch):
    """Nothing is to be learned from equal predictions: then the rest of the gradient is that of the plain loss."""
    model, teachers = new_model(0), [new_model(1), new_model(2, positions="rotary", n_layer=1)]
    found = DistillationLoss(model, teachers, runtime=RUNTIME)(*batch)
    idx, targets = batch
    mean = (teachers[0](idx).double().softmax(-1) + teachers[1](idx).double().softmax(-1)) / 2
    target = SHARE * mean + (1 - SHARE) * F.one_hot(targets, VOCAB)
    assert found.item() == pytest.approx(-(target * model(idx).double().log_softmax(-1)).sum(-1).mean().item(), abs=1e-6)
    taught = gradient(DistillationLoss(model, [copy.deepcopy(model)], runtime=RUNTIME)(*batch), model)
    torch.testing.assert_close(taught, (1 - SHARE) * gradient(model(*batch), model), rtol=1e-4, atol=1e-7)


def test_teachers_compute_without_dropout_and_do_not_change(batch):
    model, teacher = new_model(0), new_model(1, dropout=0.5).train()
    before = copy.deepcopy(teacher.state_dict())
    taught = DistillationLoss(model, [teacher], runtime=RUNTIME)
    losses = {taught(*batch).item() for _ in range(3)}
    gradient(taught(*batch), model)
    assert len(losses) == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.fixture(scope="module", params=[False, True], ids=["by torch", "by a kernel"])
def runtime(request) -> Runtime:
    """For models of width 32."""
    try:
        return dataclasses.replace(RUNTIME, step=StepKernel(torch.float32) if request.param else None)
    except Unavailable as reason:
        pytest.skip(f"needs a C compiler: {reason}")


def losses_with(*teachers: GPT, runtime: Runtime) -> list[float]:
    """Of three steps of a model of width 32."""
    ids = np.random.default_rng(0).integers(0, VOCAB, 500).astype(np.uint16)
    shape = dataclasses.replace(SHAPE, n_embd=32)
    config = Config(model=shape, train=TrainConfig(batch_size=4))
    trainer = Trainer(new_model(0, n_embd=32), ids, config, runtime=runtime, teachers=teachers)
    return [trainer.step().loss for _ in range(3)]


def test_a_kernel_computes_the_predictions_of_the_teachers_that_it_supports(runtime):
    """Without dropout. The second one has another shape, which it does not support; torch gives the same losses."""
    with_dropout, without = (new_model(1, n_embd=32, dropout=dropout).train() for dropout in (0.0, 0.5))
    assert losses_with(with_dropout, runtime=runtime) == losses_with(without, runtime=runtime)
    teachers = [new_model(1, n_embd=32, positions="rotary", n_layer=3, block_size=16), new_model(2)]
    found = losses_with(*teachers, runtime=runtime)
    assert found == pytest.approx(losses_with(*teachers, runtime=RUNTIME), abs=1e-6)
    assert found != pytest.approx(losses_with(teachers[0], runtime=RUNTIME), abs=1e-4)


@pytest.fixture(scope="module")
def taught(text, tmp_path_factory):
    """Train on the small text into a folder with two runs to learn from, `a` and `b`."""
    folder = tmp_path_factory.mktemp("taught")

    def run(*words: str, name: str) -> int:
        return train.main([str(text), *TINY, "--run", f"{folder}/{name}", f"data.cache={folder}/cache", *words])

    run.folder, run.text = folder, text
    assert run("train.seed=1", name="a") == run("train.seed=2", "model.n_layer=1", name="b") == 0
    return run


@pytest.fixture(scope="module")
def student(taught):
    """The folder of a run that learned from `a` and `b`."""
    assert taught("--teacher", f"{taught.folder}/a", "--teacher", f"{taught.folder}/b", name="student") == 0
    return taught.folder / "student"


def test_a_run_keeps_the_weights_of_its_teachers_and_repeats(taught, student, monkeypatch):
    details = (student / "details.txt").read_text(encoding="utf-8")
    assert "\nteachers " in details and all(f"{name}/step-" in details for name in "ab")
    assert {path.name for path in student.glob("teacher-*")} == {"teacher-1", "teacher-2"}
    for number, name in enumerate("ab", 1):
        files = [path / "model.safetensors" for path in (student / f"teacher-{number}", last_step(taught.folder / name))]
        assert files[0].read_bytes() == files[1].read_bytes()
    monkeypatch.chdir(taught.folder)
    assert taught("--teacher", "./a", "--teacher", "b/", name="with, comma") == 0
    assert taught(name="plain") == 0
    assert bits(taught.folder / "with, comma") == bits(student) != bits(taught.folder / "plain")


def test_a_stopped_run_goes_on_with_its_teachers_to_the_same_bits_wherever_it_and_they_are(taught, student, tmp_path, capsys):
    for name in ("student", "cache"):
        shutil.copytree(taught.folder / name, tmp_path / name)
    shutil.rmtree(last_step(tmp_path / "student"))
    assert resume(tmp_path / "student") == 0 and bits(tmp_path / "student") == bits(student)
    assert "has changed" not in capsys.readouterr().out


def test_more_than_nine_teachers_are_found_in_their_order(tmp_path):
    """As the digest of all of them asks for it: teacher-10 comes after teacher-9, not after teacher-1."""
    runs = [publish_run(tmp_path / f"run-{number}", steps=(number,)) for number in range(1, 13)]
    teachers, run = [newest(run, training=False)[0] for run in runs], tmp_path / "run"
    run.mkdir()
    keep_teachers(teachers, run)
    digest_of_all = digest([restore_model(teacher) for teacher in teachers])
    teachers_of_stage(run, Stage(length=Length.of(Config())), digest_of_all=digest_of_all)  # raises no UserError


def test_copies_that_a_crash_left_are_replaced_and_another_folder_is_left_alone(taught, student):
    killed, words = taught.folder / "killed", ["--teacher", f"{taught.folder}/a", "--teacher", f"{taught.folder}/b"]
    (killed / ".teacher-2.tmp-999999").mkdir(parents=True)
    for number in (1, 3):  # of another command
        shutil.copytree(student / "teacher-2", killed / f"teacher-{number}")
    assert taught(*words, name="killed") == 0 and bits(killed) == bits(student)
    assert not list(killed.glob(".teacher*"))
    (taught.folder / "other" / "teacher-1").mkdir(parents=True)
    (taught.folder / "other" / "teacher-1" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="teacher-1: exists, but the teacher's copy gets this name; rename it"):
        taught(name="other")
    assert (taught.folder / "other" / "teacher-1" / "notes.txt").is_file()


def test_a_teacher_that_is_damaged_or_gone_is_one_line(taught, student, tmp_path):
    for name in ("student", "cache"):
        shutil.copytree(taught.folder / name, tmp_path / name)
    weights = tmp_path / "student" / "teacher-2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    with pytest.raises(UserError, match="teacher-2/model.safetensors: damaged"):
        resume(tmp_path / "student", "train.max_steps=30")
    for number in (2, 1):
        shutil.rmtree(tmp_path / "student" / f"teacher-{number}")
        with pytest.raises(UserError, match="student: its folders teacher-1, .* are gone or have changed; put the original"):
            resume(tmp_path / "student", "train.max_steps=30")
        gc.collect()  # the lock of the run


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--teacher", "nobody"], "nobody: no run of that name or path"),
        (
            ["--teacher", "{a}", "model.block_size=64"],
            "only 32 characters at once, and the new model 64; use model.block_size=32",
        ),
        (["--teacher", "{a}", "data.lowercase=true"], "its vocabulary is not that of your text; use a run on this text"),
        (["--teacher", "{a}", "train.teachers=1"], "train.teachers: 1 given, but it cannot be used with --start, "),
        (["--init-from", "{a}", "train.teachers=2"], "train.teachers: 2 given, but it cannot"),
    ],
)
def test_a_teacher_that_does_not_fit_is_one_line_and_leaves_no_run(taught, words, problem):
    with pytest.raises(UserError) as error:
        taught(*(word.format(a=taught.folder / "a") for word in words), name="wrong")
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert not list((taught.folder / "wrong").glob("step-*"))


def test_a_teacher_of_another_text_is_a_warning(taught, tmp_path, text, capsys):
    longer = tmp_path / "longer.txt"
    longer.write_text(text.read_text(encoding="utf-8") * 2, encoding="utf-8")
    words = [str(longer), *TINY, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    assert train.main([*words, "--teacher", f"{taught.folder}/a"]) == 0
    assert "this teacher learned from another text" in capsys.readouterr().out
