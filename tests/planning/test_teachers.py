"""A model learns from other models' predictions as from the text, and the run says which ones and finds them again."""

import copy
import dataclasses
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import TINY_FILE, apply_overrides, bits, last_step, publish_run

import train
from chargpt.config import Config, TrainConfig, apply, difference
from chargpt.device import choose_device
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import step_kernel
from chargpt.model import GPT, GPTConfig
from chargpt.planning.law import STUDENT_DECAY
from chargpt.planning.teachers import another_run
from chargpt.runs.checkpoint import newest, steps
from chargpt.runs.load import find_checkpoint, find_run, restore_model
from chargpt.runs.run import Run, new_folder
from chargpt.session import result
from chargpt.session.session import Session
from chargpt.terminal import UserError
from chargpt.training.distillation import SHARE, DistillationLoss, digest
from chargpt.training.runtime import Runtime, choose_runtime
from chargpt.training.trainer import Trainer
from chargpt.yaml_settings import read_yaml

SHAPE = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8)
RUNTIME = Runtime(device=choose_device("cpu"), precision=torch.float32, threads=1)
VOCAB = 7
TINY = [
    "--config",
    TINY_FILE,
    *"train.max_steps=20 train.eval_interval=10 checkpoint.interval=10 train.sample_length=0 runtime.threads=1".split(),
]


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
    model, teachers = new_model(0), [new_model(1), new_model(2, positions="rotary", n_layer=1)]
    found = DistillationLoss(model, teachers, runtime=RUNTIME)(*batch)
    idx, targets = batch
    mean = (teachers[0](idx).double().softmax(-1) + teachers[1](idx).double().softmax(-1)) / 2
    target = SHARE * mean + (1 - SHARE) * F.one_hot(targets, VOCAB)
    assert found.item() == pytest.approx(-(target * model(idx).double().log_softmax(-1)).sum(-1).mean().item(), abs=1e-6)


def test_a_model_that_is_its_own_teacher_learns_from_the_text_alone(batch):
    """Nothing is to be learned from equal predictions, so the rest of the gradient is that of the plain loss."""
    model = new_model(0)
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
        return dataclasses.replace(RUNTIME, step=step_kernel(torch.float32) if request.param else None)
    except Unavailable as reason:
        pytest.skip(f"needs a C compiler: {reason}")


def losses_with(*teachers: GPT, runtime: Runtime) -> list[float]:
    """Of three steps of a model of width 32."""
    ids = np.random.default_rng(0).integers(0, VOCAB, 500).astype(np.uint16)
    shape = dataclasses.replace(SHAPE, n_embd=32)
    config = Config(model=shape, train=TrainConfig(batch_size=4, teachers="run" + ",run" * (len(teachers) - 1)))
    trainer = Trainer(new_model(0, n_embd=32), ids, config, runtime=runtime, teachers=teachers)
    return [trainer.step().loss for _ in range(3)]


def test_the_teachers_of_a_trainer_predict_without_dropout(runtime):
    with_dropout, without = (new_model(1, n_embd=32, dropout=dropout).train() for dropout in (0.0, 0.5))
    assert losses_with(with_dropout, runtime=runtime) == losses_with(without, runtime=runtime)


def test_a_kernel_computes_the_predictions_of_the_teachers_that_it_supports(runtime):
    """The second one has another shape, which it does not support; torch gives the same losses."""
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


def resume(folder, *settings: str) -> int:
    return train.main(["--resume", "--run", str(folder), f"data.cache={folder.parent}/cache", *settings])


def test_a_run_names_its_teachers_in_full_and_repeats(taught, monkeypatch):
    folder = taught.folder
    found = [str(last_step(folder / name).resolve()) for name in "ab"]
    monkeypatch.chdir(folder)
    assert taught("train.teachers=./a,./b", name="first") == 0
    details = (folder / "first" / "details.txt").read_text(encoding="utf-8")
    assert "\nteachers " in details and all(f"{name}/step-" in details for name in "ab")
    settings = folder / "first" / "config.yaml"
    assert apply(Config(), read_yaml(settings), where="test").train.teachers == ",".join(found)
    monkeypatch.chdir(folder.parent)
    assert taught(f"train.teachers={','.join(found)}", name="second") == 0
    assert taught(name="plain") == 0
    assert bits(folder / "first") == bits(folder / "second") != bits(folder / "plain")


def test_a_run_with_teachers_may_have_a_comma_in_its_path_and_reports_on_its_text(taught):
    assert taught(f"train.teachers={taught.folder}/a", name="with, comma") == 0
    assert "\nto beat " in (taught.folder / "with, comma" / "details.txt").read_text(encoding="utf-8")


def test_a_stopped_run_goes_on_with_its_teachers_to_the_same_bits(taught):
    folder = taught.folder
    assert taught(f"train.teachers={folder}/a", name="whole") == 0
    shutil.copytree(folder / "whole", folder / "stopped")
    shutil.rmtree(last_step(folder / "stopped"))
    assert last_step(folder / "stopped").name == "step-00000010"
    assert resume(folder / "stopped") == 0
    assert bits(folder / "stopped") == bits(folder / "whole")


def copies(run: Path) -> list[Path]:
    """The folders in which a run keeps its teachers."""
    return list(run.glob("teachers-*"))


def test_other_weights_of_a_teacher_change_no_run_that_has_begun(taught, capsys):
    folder = taught.folder
    assert taught("train.seed=1", name="again") == 0
    words = [f"train.teachers={folder}/again", "train.max_steps=30"]
    assert taught(*words, name="fooled") == 0
    expected = bits(folder / "fooled")
    shutil.rmtree(last_step(folder / "fooled"))
    shutil.rmtree(folder / "again")
    assert taught("train.seed=3", name="again") == 0
    capsys.readouterr()
    assert resume(folder / "fooled") == 0
    assert bits(folder / "fooled") == expected and "the environment has changed" not in capsys.readouterr().out
    assert resume(folder / "fooled", "train.max_steps=40", f"train.teachers={folder}/again") == 0
    assert re.search(r"the environment has changed \(teachers [0-9a-f]{12} ->\s+[0-9a-f]{12}\)", capsys.readouterr().out)
    assert len(copies(folder / "fooled")) == 2


def test_a_teacher_that_is_trained_further_prunes_nothing_that_its_student_needs(taught, tmp_path):
    """The student also moves to another folder, and is killed between its copies and its first checkpoint."""
    folder = taught.folder
    assert taught(name="old") == 0
    words = [f"train.teachers={folder}/old", "train.max_steps=30"]
    assert taught(*words, name="student") == 0
    expected = bits(folder / "student")
    for name in ("student", "cache"):
        shutil.copytree(folder / name, tmp_path / name)
    shutil.rmtree(last_step(tmp_path / "student"))
    assert resume(folder / "old", "train.max_steps=60", "checkpoint.keep=2") == 0
    assert not (folder / "old" / "step-00000020").exists()
    assert resume(tmp_path / "student") == 0
    assert bits(tmp_path / "student") == expected
    killed = folder / "killed"
    (killed / ".teachers-0123456789ab.tmp-999999").mkdir(parents=True)
    shutil.copytree(copies(tmp_path / "student")[0], killed / copies(tmp_path / "student")[0].name)
    assert taught(*words, name="killed") == 0
    assert not list(killed.glob(".teachers*"))


def test_a_damaged_copy_of_a_teacher_is_a_warning_and_its_original_is_read(taught, capsys):
    folder = taught.folder
    assert taught(f"train.teachers={folder}/a,{folder}/b", name="damaged") == 0
    assert resume(folder / "damaged", "train.max_steps=30") == 0
    assert "warning" not in capsys.readouterr().out
    weights = copies(folder / "damaged")[0] / "2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert resume(folder / "damaged", "train.max_steps=40") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "damaged, its checksum differs" in said and "is read instead" in said and "has changed" not in said


def test_a_run_that_an_earlier_version_began_gets_its_copies_when_it_is_resumed(taught):
    folder = taught.folder
    assert taught(f"train.teachers={folder}/a", name="before") == 0
    shutil.rmtree(copies(folder / "before")[0])
    assert resume(folder / "before", "train.max_steps=30") == 0
    assert len(copies(folder / "before")) == 1


def test_teachers_serve_several_trainers_in_bfloat16(taught):
    """`--find-lr` makes a trainer for each rate. A trainer must not change the teachers that it is given."""
    checkpoint, _ = find_checkpoint("a", taught.folder)
    teacher = restore_model(checkpoint)[0]
    before = digest([teacher])
    words = ["runtime.device=cpu", "runtime.precision=bfloat16", f"train.teachers={checkpoint.path}"]
    config = dataclasses.replace(apply_overrides(checkpoint.state.config, words), model=teacher.config)
    ids = np.arange(500, dtype=np.uint16) % 5
    for _ in range(2):
        trainer = Trainer(copy.deepcopy(teacher), ids, config, runtime=choose_runtime(config), teachers=[teacher])
        trainer.step()
        assert trainer.environment["teachers"] == before


def test_a_teacher_that_is_gone_with_its_copy_is_one_line_and_another_may_be_given(taught, capsys):
    folder = taught.folder
    shutil.copytree(folder / "a", folder / "gone")
    assert taught(f"train.teachers={folder}/gone", name="orphan") == 0
    shutil.rmtree(folder / "gone")
    assert resume(folder / "orphan", "train.max_steps=25") == 0
    shutil.rmtree(copies(folder / "orphan")[0])
    with pytest.raises(UserError, match="train.teachers: .*gone.*: it is not there any more; give the run"):
        resume(folder / "orphan", "train.max_steps=30")
    assert resume(folder / "orphan", "train.max_steps=30", f"train.teachers={folder}/a") == 0
    assert "changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, problem",
    [
        (["train.teachers=nobody"], "nobody: no run of that name or path"),
        (
            ["train.teachers={a}", "model.block_size=64"],
            "its context is 32, and that of the new model 64; use model.block_size=32",
        ),
        (["train.teachers={a}", "data.lowercase=true"], "it has another vocabulary; use runs on the same text"),
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
    words = [
        str(longer),
        *TINY,
        "--run",
        f"{tmp_path}/run",
        f"data.cache={tmp_path}/cache",
        f"train.teachers={taught.folder}/a",
    ]
    assert train.main(words) == 0
    assert "a teacher trained on another text" in capsys.readouterr().out


@pytest.fixture(scope="module")
def two_runs(taught):
    """The folder of a run that learned from another one, made by one command."""
    regularized = ["model.dropout=0.1", "optim.weight_decay=0.9", "train.patience=1000"]
    assert taught("train.student_minutes=0.02", *regularized, name="both") == 0
    return taught.folder / "both"


def test_one_command_trains_a_teacher_and_a_model_that_learns_from_it(two_runs):
    teacher = two_runs.with_name("both-teacher")
    config = apply(Config(), read_yaml(two_runs / "config.yaml"), where="test")
    assert config.train.teachers == str(last_step(teacher).resolve()) and config.train.student_minutes == 0
    assert config.model.dropout == 0 and config.train.seed == 1338 and config.train.patience == 0
    assert config.optim.weight_decay == STUDENT_DECAY
    assert last_step(teacher).name == "step-00000020"


def test_a_teacher_that_is_resumed_goes_on_to_the_second_run_once(two_runs, tmp_path, capsys):
    for part in ("both-teacher", "both"):
        shutil.copytree(two_runs.with_name(part), tmp_path / part)
    shutil.copytree(two_runs.with_name("cache"), tmp_path / "cache")
    done = bits(tmp_path / "both")
    assert resume(tmp_path / "both-teacher") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert bits(tmp_path / "both") == done and "second run" not in said
    assert "both exists; if it is not complete, continue it with --resume --run" in said and "then learns" not in said
    shutil.rmtree(tmp_path / "both")
    shutil.rmtree(last_step(tmp_path / "both-teacher"))  # as if it had been killed before
    assert resume(tmp_path / "both-teacher") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert last_step(tmp_path / "both") and "second run" in said
    assert "this is the first one; a model of the same shape then learns from it" in said


@pytest.fixture(scope="module")
def four_runs(taught):
    """The folder of a run that learned from three others, made by one command."""
    assert taught("train.student_minutes=0.02", "train.student_teachers=3", "model.dropout=0.1", name="many") == 0
    return taught.folder / "many"


def test_one_command_trains_several_teachers_with_seeds_of_their_own(four_runs):
    teachers = [four_runs.with_name(f"many-teacher{end}") for end in ("", "2", "3")]
    config = apply(Config(), read_yaml(four_runs / "config.yaml"), where="test")
    assert config.train.teacher_names == [str(last_step(teacher).resolve()) for teacher in teachers]
    assert (config.train.student_minutes, config.train.student_teachers, config.model.dropout) == (0, 1, 0)
    assert not four_runs.with_name("many-teacher4").exists()
    read = [apply(Config(), read_yaml(folder / "config.yaml"), where="test") for folder in teachers]
    assert [each.train.seed for each in [*read, config]] == [1337, 1338, 1339, 1340]
    assert all(difference(read[0], each) == difference(read[0], another_run(read[0], number=i)) for i, each in enumerate(read))
    assert len({str(bits(folder)) for folder in teachers}) == 3


@pytest.mark.parametrize("ended", [1, 3])
def test_a_command_that_was_killed_between_its_runs_trains_the_same_others(four_runs, tmp_path, ended):
    """By the name of the first or the last teacher that has ended, or by that of the run."""
    names = ["many-teacher", "many-teacher2", "many-teacher3"][:ended]
    for name in {names[0], names[-1], "many"}:
        for part in names:
            shutil.copytree(four_runs.with_name(part), tmp_path / name / part)
        shutil.copytree(four_runs.with_name("cache"), tmp_path / name / "cache")
        assert resume(tmp_path / name / name) == 0
        for part in ("many-teacher", "many-teacher2", "many-teacher3"):
            assert bits(tmp_path / name / part) == bits(four_runs.with_name(part))
        config = apply(Config(), read_yaml(tmp_path / name / "many" / "config.yaml"), where="test")
        assert config.train.seed == 1340 and len(config.train.teacher_names) == 3


def test_a_second_teacher_that_was_killed_goes_on_to_the_third(four_runs, tmp_path, capsys):
    shutil.copytree(four_runs.with_name("many-teacher"), tmp_path / "many-teacher")
    shutil.copytree(four_runs.with_name("many-teacher2"), tmp_path / "many")  # which had not been renamed
    shutil.copytree(four_runs.with_name("cache"), tmp_path / "cache")
    shutil.rmtree(last_step(tmp_path / "many"))  # nor ended
    assert resume(tmp_path / "many") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "this is number 2 of 3 like it; a model of the same shape then learns from them" in said
    assert "number 3 of 3 like" in said
    for part in ("many-teacher2", "many-teacher3"):
        assert bits(tmp_path / part) == bits(four_runs.with_name(part))


def commanded(said: str) -> Path:
    """The run that a note says to continue."""
    return Path(re.search(r"--resume --run (\S+?)[:;]?(?: |$)", said)[1])


def copies_of(four_runs: Path, folder: Path, *ends: str) -> None:
    """Copy the teachers whose names end so, and the cache of the text."""
    for name in [*(f"many-teacher{end}" for end in ends), "cache"]:
        shutil.copytree(four_runs.with_name(name), folder / name)


@pytest.mark.parametrize(("parts", "name"), [(["", "3"], "many-teacher2"), (["3", "2"], "many-teacher")])
def test_a_teacher_without_those_before_it_says_what_to_do(four_runs, tmp_path, capsys, parts, name):
    copies_of(four_runs, tmp_path, *parts)
    last = tmp_path / f"many-teacher{parts[-1]}"
    assert resume(last) == 0
    assert f"rename this folder to {name}, and then --resume --run {name}" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "many").exists()
    last.rename(tmp_path / name)
    assert resume(tmp_path / name) == 0
    config = apply(Config(), read_yaml(tmp_path / "many" / "config.yaml"), where="test")
    assert len(set(config.train.teacher_names)) == 3 and last_step(tmp_path / "many")
    assert len({str(bits(tmp_path / f"many-teacher{end}")) for end in ("", "2", "3")}) == 3, "each has a seed of its own"


def test_a_student_that_has_learned_nothing_says_so_where_it_is_used(tmp_path):
    publish_run(tmp_path / "many", steps=(0,))
    assert find_checkpoint("many", tmp_path)[1] == [], "of a model that was imported, for example"
    publish_run(tmp_path / "many-teacher")
    _, (warning,) = find_checkpoint("many", tmp_path)
    assert "at step 0 and has learned nothing yet; continue it with --resume --run" in str(warning) and "many-teacher" in str(
        warning
    )


def test_a_run_that_is_named_by_a_point_goes_on_like_any_other(four_runs, tmp_path, monkeypatch, capsys):
    """In the folder of a teacher that has not ended."""
    copies_of(four_runs, tmp_path, "")
    shutil.rmtree(last_step(tmp_path / "many-teacher"))
    monkeypatch.chdir(tmp_path / "many-teacher")
    assert train.main(["--resume", "--run", ".", f"data.cache={tmp_path}/cache"]) == 0
    assert "rename" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    for part in ("many-teacher", "many-teacher2", "many-teacher3"):
        assert bits(tmp_path / part) == bits(four_runs.with_name(part))


def test_a_student_learns_from_the_runs_that_ended_if_fewer_are_wanted_then(four_runs, tmp_path):
    copies_of(four_runs, tmp_path, "", "2")
    assert resume(tmp_path / "many", "train.student_teachers=1") == 0
    config = apply(Config(), read_yaml(tmp_path / "many" / "config.yaml"), where="test")
    assert len(config.train.teacher_names) == 2 and config.train.seed == 1337 + 2


def test_a_second_teacher_ends_as_one_if_fewer_are_wanted_meanwhile(four_runs, tmp_path):
    copies_of(four_runs, tmp_path, "", "2")
    (tmp_path / "many-teacher2").rename(tmp_path / "many")  # which had not been renamed
    shutil.rmtree(last_step(tmp_path / "many"))  # nor ended
    assert resume(tmp_path / "many", "train.student_teachers=1") == 0
    assert bits(tmp_path / "many-teacher2") == bits(four_runs.with_name("many-teacher2"))
    config = apply(Config(), read_yaml(tmp_path / "many" / "config.yaml"), where="test")
    assert [Path(name).parent.name for name in config.train.teacher_names] == ["many-teacher", "many-teacher2"]


@pytest.mark.parametrize(("end", "is_same_text"), [("2", True), ("3", False)])
def test_a_run_of_another_command_does_not_teach_by_its_name(taught, four_runs, tmp_path, capsys, end, is_same_text):
    """It was made while the command was stopped. Its folder is renamed, as the note says, and the command continued.

    On the same text, it is a single run; on another text, the first of two.
    """
    copies_of(four_runs, tmp_path, "", *(["2"] if end == "3" else []))
    other = tmp_path / "other.txt"
    other.write_bytes(taught.text.read_bytes() if is_same_text else b"another text " * 500)
    words = [*TINY, f"data.cache={tmp_path}/cache", *([] if is_same_text else ["train.student_minutes=0.02"])]
    assert train.main([str(other), *words, f"--run={tmp_path}/single"]) == 0
    (tmp_path / ("single" if is_same_text else "single-teacher")).rename(tmp_path / f"many-teacher{end}")
    capsys.readouterr()
    assert resume(tmp_path / "many") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"many-teacher{end} is a run of another command; rename that folder, and then --resume --run" in said
    assert not (tmp_path / "many").exists()
    (tmp_path / f"many-teacher{end}").rename(tmp_path / "mine")
    assert resume(commanded(said)) == 0
    assert bits(tmp_path / "many-teacher3") == bits(four_runs.with_name("many-teacher3")) and last_step(tmp_path / "many")


def test_a_teacher_without_a_good_checkpoint_is_trained_again(four_runs, tmp_path, capsys):
    copies_of(four_runs, tmp_path, "", "2", "3")
    for step in steps(tmp_path / "many-teacher2"):
        (step / "model.safetensors").write_bytes(b"x")
    assert resume(tmp_path / "many") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "many-teacher2: no checkpoint can be used" in said and "remove that folder, and then --resume --run" in said
    assert not (tmp_path / "many").exists()
    shutil.rmtree(tmp_path / "many-teacher2")
    assert resume(commanded(said)) == 0
    assert bits(tmp_path / "many-teacher2") == bits(four_runs.with_name("many-teacher2")) and last_step(tmp_path / "many")


def test_a_first_teacher_that_is_damaged_gets_another_one_in_its_place(four_runs, tmp_path, capsys):
    copies_of(four_runs, tmp_path, "", "2")
    for step in steps(tmp_path / "many-teacher"):
        (step / "model.safetensors").write_bytes(b"x")
    assert resume(tmp_path / "many-teacher2") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "remove that folder, rename " in said and "many-teacher2 to many-teacher, and then --resume --run" in said
    shutil.rmtree(tmp_path / "many-teacher")
    (tmp_path / "many-teacher2").rename(tmp_path / "many-teacher")
    assert resume(commanded(said)) == 0
    assert last_step(tmp_path / "many") and len({str(bits(tmp_path / f"many-teacher{end}")) for end in ("", "2", "3")}) == 3


def test_names_that_runs_need_which_follow_are_not_given_to_others(four_runs, tmp_path):
    copies_of(four_runs, tmp_path, "")
    for name in ("many", "many-teacher2", "many-teacher3"):
        ways = "continue with --resume --run many, or choose another --run NAME, such as many-2$"
        with pytest.raises(UserError, match=f"{name}: this name is for the runs that follow many-teacher, on .*; {ways}"):
            new_folder(f"{tmp_path}/{name}", tmp_path)
    assert new_folder(f"{tmp_path}/many-2", tmp_path) == tmp_path / "many-2"
    shutil.copytree(four_runs, tmp_path / "many")  # all runs are there
    assert new_folder(f"{tmp_path}/many-teacher2", tmp_path) == tmp_path / "many-teacher2"
    shutil.rmtree(tmp_path / "many")
    (tmp_path / "many-teacher").rename(tmp_path / "many")  # the first one has not ended
    with pytest.raises(UserError, match="many-teacher2: this name is for the runs that follow many, on"):
        new_folder(f"{tmp_path}/many-teacher2", tmp_path)


def test_a_run_of_another_command_is_not_taken_for_the_student(taught, four_runs, tmp_path, capsys):
    copies_of(four_runs, tmp_path, "", "2", "3")
    assert taught(name="other") == 0
    (taught.folder / "other").rename(tmp_path / "many")
    capsys.readouterr()
    assert resume(tmp_path / "many-teacher3") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "many is a run of another command; rename that folder, and then --resume --run" in said and "like it" not in said
    (tmp_path / "many").rename(tmp_path / "mine")
    assert resume(commanded(said)) == 0
    assert newest(tmp_path / "many")[0].state.config.train.teachers


def test_a_student_learns_from_as_many_runs_as_it_shall(taught, capsys):
    """Another run has the name of a second teacher."""
    assert taught(name="few-teacher2") == 0
    assert taught("train.student_minutes=0.02", name="few") == 0
    config = apply(Config(), read_yaml(taught.folder / "few" / "config.yaml"), where="test")
    assert config.train.teacher_names == [str(last_step(taught.folder / "few-teacher").resolve())]
    shutil.rmtree(taught.folder / "few")
    capsys.readouterr()
    assert resume(taught.folder / "few") == 0  # which is its teacher
    assert last_step(taught.folder / "few") and "few-teacher2" not in capsys.readouterr().out


def test_the_times_of_several_runs_follow_each_other(taught, monkeypatch):
    """A teacher after the first one has half of the time of the student, also if the first one was resumed."""
    sessions = []
    following = Session.next
    monkeypatch.setattr(Session, "next", lambda session: sessions.append(session) or following(session))
    words = ["--minutes", "0.1", "train.student_minutes=0.04", "train.student_teachers=3", "train.max_epochs=1"]
    assert taught(*words, name="timed") == 0
    assert [session.seconds for session in sessions] == pytest.approx([6, 1.2, 1.2, 2.4])
    assert np.diff([session.deadline for session in sessions]) == pytest.approx([1.2, 1.2, 2.4])


def test_a_run_that_no_student_follows_has_the_time_of_all(taught, monkeypatch):
    ended = []
    following = Session.next
    monkeypatch.setattr(Session, "next", lambda session: ended.append(session) or following(session))
    words = ["train.student_minutes=0.04", "train.student_teachers=3", "train.student_gap=50", "train.max_epochs=1"]
    assert taught("--minutes", "0.1", *words, name="alone") == 0
    assert len(ended) == 1 and ended[0].deadline - ended[0].started == pytest.approx(6 + 2 * 1.2 + 2.4)
    config = apply(Config(), read_yaml(taught.folder / "alone" / "config.yaml"), where="test")
    assert (config.train.student_minutes, config.train.student_teachers) == (0, 1), "of one run, as if nobody had given more"


def test_the_name_of_a_student_finds_its_teacher_by_its_newest_valid_checkpoint(four_runs, tmp_path, capsys):
    for part in ("many-teacher", "many-teacher2", "many-teacher3"):
        shutil.copytree(four_runs.with_name(part), tmp_path / part)
    shutil.copytree(four_runs.with_name("cache"), tmp_path / "cache")
    (last_step(tmp_path / "many-teacher") / "state.json").write_text("{}")
    assert resume(tmp_path / "many") == 0
    assert last_step(tmp_path / "many") and "many-teacher3" in capsys.readouterr().out


def test_several_teachers_without_a_student_are_a_note(taught, capsys):
    assert taught("train.student_teachers=3", name="none") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "train.student_teachers=3 given, but only one run is made; for others, add train.student_minutes" in said


def test_names_that_several_teachers_need_are_checked_before_the_first(taught):
    assert taught(name="free-teacher2") == 0
    assert taught(name="free-2-teacher") == 0
    other = f"choose another --run NAME, such as {taught.folder}/free-2-2$"
    with pytest.raises(UserError, match=f"free: a run before it gets the name free-teacher2, which is taken; {other}"):
        taught("train.student_minutes=0.02", "train.student_teachers=2", name="free")
    assert not (taught.folder / "free").exists() and not (taught.folder / "free-teacher").exists()
    with pytest.raises(UserError, match="own-teacher3' given for two runs; use a name without -teacher"):
        taught("train.student_minutes=0.02", name="own-teacher3")
    for name in ("0", "10"):
        with pytest.raises(UserError, match=f"student_teachers: {name} given; use a whole number from 1 to 9"):
            taught(f"train.student_teachers={name}", name="wrong")


def test_two_runs_are_where_the_name_says_and_report_on_their_text_once(taught, monkeypatch, capsys):
    monkeypatch.chdir(taught.folder)
    words = [f"data.cache={taught.folder}/cache", "train.student_minutes=0.02", "train.max_steps=10"]
    assert train.main([str(taught.text), *TINY, "--run", "./near/", *words]) == 0
    assert last_step(taught.folder / "near") and last_step(taught.folder / "near-teacher")
    out = capsys.readouterr().out
    teacher, student = ((taught.folder / f"near{end}/details.txt").read_text("utf-8") for end in ("-teacher", ""))
    assert out.count("\nmodel ") == 2 and "\nto beat " in teacher and "\nto beat " not in student
    said = " ".join(out.split())
    assert "after this run, a model of the same shape learns from it" in said and "dropout 0, no patience and seed 1338" in said


@pytest.mark.parametrize(
    ("name", "words", "problem"),
    [
        ("my, folder/run", [], "two runs need a path without commas"),
        ("from", ["--init-from", "{folder}/a"], "given with --init-from"),
        ("from", ["--dry-run", "--init-from", "{folder}/a"], "given with --init-from"),
    ],
)
def test_a_setting_that_rules_out_two_runs_is_an_error_before_the_first(taught, name, words, problem):
    words = [word.format(folder=taught.folder) for word in words]
    with pytest.raises(UserError, match=problem):
        taught("train.student_minutes=0.02", *words, name=name)
    assert not list(taught.folder.glob("**/from-teacher")) and not list(taught.folder.glob("my*/*/step-*"))


def test_resuming_checks_a_new_teacher_too(taught):
    folder = taught.folder
    assert taught("model.block_size=8", name="short") == 0
    assert taught(f"train.teachers={folder}/a, {folder}/b", name="strict") == 0
    with pytest.raises(UserError, match="its context is 8, and that of the new model 32; use model.block_size=8"):
        resume(folder / "strict", "train.max_steps=30", f"train.teachers={folder}/short")
    with pytest.raises(UserError, match="its context is 8, and that of the new model"):
        taught(f"train.teachers={folder}/short", "--minutes", "0.1", "model.n_layer=1", name="chosen")


def test_for_a_second_run_that_has_not_begun_its_teacher_is_suggested(two_runs, tmp_path):
    shutil.copytree(two_runs.with_name("both-teacher"), tmp_path / "late-teacher")
    with pytest.raises(UserError, match="late: no run of that name or path; did you mean late-teacher"):
        find_run("late", tmp_path)


def test_a_report_names_teachers_without_the_folders_of_this_machine(two_runs):
    page = (two_runs / "report.html").read_text(encoding="utf-8")
    assert "both-teacher/step-00000020" in page and str(two_runs.parent) not in page


def test_a_signal_that_ends_the_teacher_begins_no_second_run(taught):
    folder = taught.folder / "early"

    def stop() -> None:
        while not (folder / "step-00000010").exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=stop, daemon=True)
    watcher.start()
    assert taught("train.student_minutes=0.02", "train.max_steps=5000", name="early") == 130
    watcher.join()
    assert not (taught.folder / "early-teacher").exists()


def test_one_process_at_a_time_trains_a_teacher_or_the_run_that_it_teaches(taught):
    teacher = Run(taught.folder / "busy-teacher")
    with pytest.raises(UserError, match="busy-teacher: another process is training this run, which may need the name .*busy;"):
        taught(name="busy")
    del teacher
    second = Run(taught.folder / "idle")
    with pytest.raises(UserError, match="idle: another process is training this run; wait for it"):
        taught("train.student_minutes=0.02", name="idle")
    for name in ("idle-teacher", "idle-teacher3"):
        with pytest.raises(UserError, match=f"idle: another process is training this run, which may need the name .*{name};"):
            taught(name=name)
        assert not (taught.folder / name).exists(), "a refused command leaves nothing"
    del second
    third = Run(taught.folder / "busy-teacher3")
    with pytest.raises(UserError, match="busy-teacher3: another process is training this run, which may need the name .*busy;"):
        taught(name="busy")
    del third
    assert taught(name="busy") == 0


def test_a_run_is_renamed_with_its_lock_and_its_checkpoint(two_runs, tmp_path):
    shutil.copytree(two_runs, tmp_path / "old")
    run = Run(tmp_path / "old")
    checkpoint, _ = run.load_newest()
    run.rename(tmp_path / "new")
    assert run.checkpoint == tmp_path / "new" / checkpoint.path.name and run.checkpoint.is_dir()
    assert not (tmp_path / "old").exists()
    with pytest.raises(UserError, match="another process is training this run"):
        Run(tmp_path / "new")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    with pytest.raises(UserError, match="new: not renamed to taken"):
        run.rename(tmp_path / "taken")
    with pytest.raises(UserError, match="another process is training this run"):
        Run(tmp_path / "new")


def test_a_file_in_the_place_of_the_second_run_is_an_error_before_the_first(taught):
    (taught.folder / "taken").write_text("mine")
    with pytest.raises(UserError, match="taken: this is a file"):
        taught("train.student_minutes=0.02", name="taken")
    assert not (taught.folder / "taken-teacher").exists()


def test_a_run_that_was_killed_before_it_became_a_teacher_becomes_one(two_runs, tmp_path):
    """The same for a teacher that its user has renamed."""
    shutil.copytree(two_runs.with_name("both-teacher"), tmp_path / "mine")
    shutil.copytree(two_runs.with_name("cache"), tmp_path / "cache")
    before = bits(tmp_path / "mine")
    assert resume(tmp_path / "mine") == 0
    assert bits(tmp_path / "mine-teacher") == before
    teacher = newest(tmp_path / "mine")[0].state.config.train.teachers
    assert teacher == str(last_step(tmp_path / "mine-teacher").resolve())


def test_a_run_that_cannot_get_the_name_of_a_teacher_stays_and_says_what_to_do(two_runs, tmp_path, capsys):
    shutil.copytree(two_runs.with_name("both-teacher"), tmp_path / "mine")
    shutil.copytree(two_runs.with_name("cache"), tmp_path / "cache")
    (tmp_path / "mine-teacher").mkdir()
    (tmp_path / "mine-teacher" / "letters").write_text("keep")
    assert resume(tmp_path / "mine") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mine: not renamed to mine-teacher" in said and "rename this folder to mine-teacher" in said
    assert [path.name for path in (tmp_path / "mine-teacher").iterdir()] == ["letters"] and last_step(tmp_path / "mine")


def test_a_signal_after_the_teacher_begins_no_second_run_and_says_how(taught, monkeypatch, capsys):
    write_final_report = result.write_final_report

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return write_final_report(*arguments, **options)

    monkeypatch.setattr(result, "write_final_report", interrupted)
    assert taught("train.student_minutes=0.02", name="between") == 130
    assert not (taught.folder / "between").exists() and (taught.folder / "between-teacher").is_dir()
    out = " ".join(capsys.readouterr().out.split())
    assert "for the second run: python train.py --resume --run" in out and "between-teacher)" in out
