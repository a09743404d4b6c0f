"""The training program: what a run leaves behind, that resumed means identical, and what a mistake is told."""

import contextlib
import gc
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
import yaml
from helpers import TINY_FILE, Clock, after_each_piece, bits, last_step, logged, logged_without_speed
from safetensors.torch import load_file
from session_helpers import clock_of_steps, finish, opened, resume, resumed, written_report
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train
from chargpt.formatting import up_to_a_word
from chargpt.interrupt import Interrupt
from chargpt.planning import budget as time_budget
from chargpt.planning.budget import Budget
from chargpt.program import run_program
from chargpt.runs.checkpoint import newest
from chargpt.runs.load import find_checkpoint
from chargpt.runs.run import Run
from chargpt.session import session
from chargpt.session.due import Due
from chargpt.training.learning_rate import learning_rate
from chargpt.training.trainer import NotFinite, Trainer

LENGTH = "train.max_steps=40 train.eval_interval=20 checkpoint.interval=10 train.sample_length=20 runtime.threads=1"
TINY = ["--config", TINY_FILE, *LENGTH.split()]


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory) -> Path:
    """A folder with the run `run` of TINY alone, with the encoded text, and with what was printed."""
    folder = tmp_path_factory.mktemp("finished")
    with open(folder / "out.txt", "w") as out, contextlib.redirect_stdout(out):
        assert train.main([str(text), *TINY, "--run", f"{folder}/run", f"data.cache={folder}/cache"]) == 0
    return folder


@pytest.fixture
def command(text, tmp_path):
    """The words of train.py for a run of TINY in tmp_path/NAME; the cache of encoded texts goes there too."""
    return lambda *more, name="run": [str(text), *TINY, "--run", f"{tmp_path}/{name}", f"data.cache={tmp_path}/cache", *more]


@pytest.fixture
def trainer(command, tmp_path, finished):
    """Train on the small text into tmp_path/NAME. Without settings: a copy."""

    def run(*arguments: str, name: str = "run") -> int:
        if not arguments:
            shutil.copytree(finished / "run", tmp_path / name)
            shutil.copytree(finished / "cache", tmp_path / "cache", dirs_exist_ok=True)
            return 0
        return train.main(command(*arguments, name=name))

    return run


STEP_SECONDS = 0.1


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return clock_of_steps(monkeypatch, seconds=STEP_SECONDS)


def test_attention_is_drawn_on_request_and_changes_nothing_else(trainer, tmp_path):
    assert trainer(name="plain") == trainer("train.log_attention=true", name="drawn") == 0
    for name, steps in (("plain", []), ("drawn", [0, 20, 40])):
        events = EventAccumulator(str(tmp_path / name), size_guidance={"images": 0}).Reload()
        assert [image.step for tag in events.Tags()["images"] for image in events.Images(tag)] == steps
    assert bits(tmp_path / "plain") == bits(tmp_path / "drawn")
    assert logged_without_speed(tmp_path / "plain") == logged_without_speed(tmp_path / "drawn")


def test_a_run_is_what_the_design_says(finished):
    run = finished / "run"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["train"]["max_steps"] == 40 and config["model"]["n_embd"] == 32
    names = {name for line in logged(run) for name in line} - {"stage", "step"}
    evaluated = {"val/loss", "val/temperature", "val/bits_per_char", "best/val_loss", "novelty/longest_copy", "sample"}
    assert names == evaluated | {"train/loss", "lr", "grad_norm", "chars_per_second"}
    assert [line["step"] for line in logged(run) if "val/loss" in line] == [0, 20, 40]
    assert sorted(path.name for path in last_step(run).iterdir()) == ["model.safetensors", "state.json", "training.safetensors"]
    assert list(run.glob("events.out.tfevents.*"))
    assert [path.name for path in run.glob(".*")] == [".lock"]
    reached = newest(run)[0].state.progress
    losses = {line["step"]: line["val/loss"] for line in logged(run) if "val/loss" in line}
    assert reached.best_loss == min(losses.values()) < losses[0] - 0.5
    assert reached.best_step == min(losses, key=losses.get)
    weights = load_file(last_step(run) / "model.safetensors")
    assert all(torch.isfinite(w).all() for w in weights.values())
    out, details = ((finished / name).read_text(encoding="utf-8") for name in ("out.txt", "run/details.txt"))
    assert all(word in out for word in ("sea", "training", "parameters", "40 steps", "float", "validation loss", "sample.py"))
    assert all(word in details for word in ("vocabulary", "validation", "to beat", "rate", "threads", "dropout"))


def test_evaluating_and_logging_never_change_what_is_learned(trainer, tmp_path):
    settings = ("model.dropout=0.1", "train.max_steps=22")
    assert trainer(*settings, name="a") == 0
    others = "train.eval_interval=7 train.log_interval=3 train.sample_length=0 checkpoint.interval=11".split()
    assert trainer(*settings, *others, name="b") == 0
    assert bits(tmp_path / "a") == bits(tmp_path / "b")


def test_the_seed_decides(trainer, tmp_path):
    for name, seed in (("a", 1337), ("b", 1337), ("c", 2)):
        assert trainer(f"train.seed={seed}", "train.max_steps=4", name=name) == 0
    assert bits(tmp_path / "a") == bits(tmp_path / "b") != bits(tmp_path / "c")


def test_a_finished_run_resumes_to_nothing_and_to_the_same_result(trainer, tmp_path, capsys):
    assert trainer("train.max_steps=120", "optim.learning_rate=0.02") == 0
    run = tmp_path / "run"
    before = {path: path.stat().st_mtime_ns for path in run.glob("step-*/*")}
    (first,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("result")]
    assert resume(run) == 0
    (again,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("result")]
    assert first == again and "n-gram" in first
    assert {path: path.stat().st_mtime_ns for path in run.glob("step-*/*")} == before
    assert resume(run, "train.max_steps=130") == 0
    assert last_step(run).name == "step-00000130"


def test_minutes_fit_the_schedule_into_the_time(trainer, tmp_path, capsys, clock, monkeypatch):
    monkeypatch.setattr(time_budget, "SETTLED_SECONDS", 0.5)  # so that a short run is planned several times
    settings = "train.max_steps=1000000 optim.warmup_steps=10 train.eval_interval=5000 train.log_interval=1".split()
    started = clock.now
    assert trainer("--minutes", "0.2", *settings) == 0
    assert 6 < clock.now - started <= 12  # a third may be kept back for what follows the last step
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    steps = config["train"]["max_steps"]
    assert 60 <= steps <= 120
    assert int(last_step(tmp_path / "run").name[5:13]) == steps
    rates = [line["lr"] for line in logged(tmp_path / "run") if "lr" in line]
    falling = rates[rates.index(max(rates)) :]
    assert falling == sorted(falling, reverse=True) and falling[-1] < 0.1 * falling[0]
    assert capsys.readouterr().out.count("\nspeed ") <= 1  # it is as planned, though the length was fitted several times


@pytest.mark.parametrize(("words", "most"), [([], 2), (["--minutes", "0.4"], 9)])
def test_what_is_told_of_the_speed_is_told_again_only_when_it_changes(trainer, capsys, clock, monkeypatch, words, most):
    """Without a time limit, two disturbances of the same kind are told once. The plan has told that a step takes 0.1 s."""
    monkeypatch.setattr(time_budget, "SETTLED_SECONDS", 0.5)
    advance = Trainer.advance

    def disturbed(trainer: Trainer) -> None:
        clock.now += 0.4 * (20 <= trainer.progress.step % 80 < 40)
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", disturbed)
    assert trainer("train.max_steps=140", "train.eval_interval=5000", "train.log_interval=1", *words) == 0
    found = re.findall("(?m)^(speed|slow) +([0-9.]+) ms a step", capsys.readouterr().out)
    assert ("slow", "500.0") in found and len(found) <= most


def test_the_second_model_has_its_own_time_after_that_of_the_first(trainer, monkeypatch, clock, capsys):
    """What the first one does not use is for the second, which has twice as much."""
    ends, begin = [], Budget.begin

    def observed(budget: Budget, *given: int, **more: int) -> None:
        ends.extend([(clock.now, clock.now + budget.left)] * (given[1] > 0))  # a model, not a budget that is made
        begin(budget, *given, **more)

    monkeypatch.setattr(Budget, "begin", observed)
    started = clock.now
    assert trainer("train.teachers=1", "--minutes", "0.075") == 0
    (_, first), (began, second) = ends
    assert first == pytest.approx(started + 1.5) and second == pytest.approx(first + 3)
    assert began > started and began + 1.5 < clock.now <= second
    told = re.findall(r"(?m)^training +model \d of 2: for (\d+:\d\d)", capsys.readouterr().out)
    assert told == ["0:02", f"0:0{round(second - began)}"], "each is told its own time"


def fails(arguments: list[str], capsys) -> str:
    assert run_program(lambda: train.main(arguments)) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), captured.err
    assert "Traceback" not in captured.out
    gc.collect()  # the lock of the run that failed
    return lines[0]


WRONG = {
    "a text that is missing": (["{tmp}/missing.txt"], ["missing.txt", "no such file"]),
    "a text too short": (["{tmp}/short.txt"], ["short", "give a text of a few thousand characters"]),
    "a config that is a folder": (["{text}", "--config", "{tmp}/folder"], ["folder"]),
    "resume with a text": (["{text}", "--resume"], ["run", "no run"]),
    "a NUL in the name": (["{tmp}/a\0b.txt"], ["a\\x00b.txt"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_mistake_gets_one_line(name, tmp_path, text, capsys):
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "folder").mkdir()
    arguments, words = WRONG[name]
    arguments = [a.format(tmp=tmp_path, text=text) for a in arguments]
    place = [] if "--run" in arguments else ["--run", f"{tmp_path}/run"]
    place += [] if "--resume" in arguments else [f"data.cache={tmp_path}/cache"]
    line = fails([*arguments, *place], capsys)
    assert all(word in line for word in words) and not (tmp_path / "run").exists()


def test_a_run_that_exists_is_never_overwritten_and_what_it_has_been_cannot_change(trainer, command, tmp_path, capsys):
    assert trainer() == 0
    before = bits(tmp_path / "run")
    capsys.readouterr()
    line = fails(command(), capsys)
    assert "continue it with python train.py --resume --run" in line and "or choose another --run NAME, such as" in line
    assert line.endswith("/run-2, or replace it with --overwrite")
    fixed = "model.n_layer=3 train.seed=5 train.batch_size=2 train.accumulate=3 data.val_fraction=0.2 train.max_steps=30"
    for setting in fixed.split():
        assert setting.split("=")[0] in fails(["--resume", "--run", f"{tmp_path}/run", setting], capsys)
    assert bits(tmp_path / "run") == before


def test_a_run_goes_on_with_the_text_that_it_began_with(tmp_path, text, capsys):
    """As long as the cache has it; the one that is there now may begin another run."""
    copy, whole = tmp_path / "copy.txt", text.read_text(encoding="utf-8") + "The stone is edited.\n"  # in no other cache
    copy.write_text(whole, encoding="utf-8")
    begun, longer = ["--run", f"{tmp_path}/begun"], ["train.max_steps=8", f"data.cache={tmp_path}/cache"]
    assert train.main([str(copy), *TINY, *begun, *longer, "train.max_steps=4"]) == 0
    for change in ("whole", "edited", "a new character", "gone"):
        shutil.copytree(tmp_path / "begun", run := tmp_path / change)
        if change == "gone":
            copy.unlink()
        elif change != "whole":
            copy.write_text(whole + "A last line.\n" + "żółw" * (change == "a new character"), encoding="utf-8")
        for words in ([], [str(copy)] * (change != "gone")):  # the text of the run is the same if it is given again
            capsys.readouterr()
            assert train.main([*words, "--resume", "--run", str(run), *longer]) == 0
            said = " ".join(capsys.readouterr().out.split())
            assert ("the run goes on with the text that it began with" in said and "--init-from" in said) == (change != "whole")
        assert bits(run) == bits(tmp_path / "whole")
        if change != "whole":
            (tmp_path / "cache").rename(tmp_path / "away")
            said = fails(["--resume", "--run", str(run), *longer], capsys)
            assert "not there any more" in said if change == "gone" else "it has changed" in said and "--init-from" in said
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            (tmp_path / "away").rename(tmp_path / "cache")


def test_a_validation_text_that_has_moved_is_given_again_and_no_other_one(tmp_path, text, capsys):
    """The setting is saved: the run is then continued without it."""
    first, moved, other = (tmp_path / name for name in ("val.txt", "moved.txt", "other.txt"))
    first.write_text(text.read_text()[:300])
    other.write_text(text.read_text()[300:600])
    run, cache = ["--resume", "--run", f"{tmp_path}/run"], f"data.cache={tmp_path}/cache"
    assert train.main([str(text), *TINY, *run[1:], cache, f"data.val_text={first}"]) == 0
    first.rename(moved)
    capsys.readouterr()
    fails([*run, cache, f"data.val_text={other}"], capsys)
    assert train.main([*run, cache, "train.max_steps=40"]) == 0 and "val.txt: it is not there" in capsys.readouterr().out
    assert train.main([*run, cache, f"data.val_text={moved}", "train.max_steps=41"]) == 0
    assert last_step(tmp_path / "run").name == "step-00000041"


def test_a_run_that_does_not_fit_into_memory_now_is_not_continued(trainer, tmp_path, capsys, monkeypatch):
    assert trainer() == 0
    monkeypatch.setattr("chargpt.planning.memory.memory_free", lambda device: 1000)
    capsys.readouterr()
    line = fails(["--resume", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache", "train.max_steps=50"], capsys)
    assert line.startswith("error: memory: training needs about") and "batch_size" not in line  # which cannot change


def test_patience_ends_a_run_that_gets_no_better_and_begins_again_with_another_length(trainer, tmp_path, capsys):
    """After step 20 the rate is too small to change a weight, so that no loss is better than that of step 20."""
    assert trainer("train.max_steps=20", "train.eval_interval=10") == 0
    run, nothing_learned = tmp_path / "run", ("train.patience=3", "optim.learning_rate=1e-30", "optim.schedule=cosine")
    assert resume(run, "train.max_steps=300", *nothing_learned) == 0
    evaluated = {line["step"]: line["val/loss"] for line in logged(run) if "val/loss" in line}
    assert list(evaluated) == [0, 10, 20, 30, 40, 50] and evaluated[20] == evaluated[50] < evaluated[10]
    assert "ended early, at step 50, since the loss was no lower in 3 evaluations" in capsys.readouterr().out
    assert newest(run)[0].state.progress.best_step == 20
    assert resume(run) == 0 and last_step(run).name == "step-00000050"
    for _ in range(2):  # with a new length, patience begins again; to say the same length again changes nothing
        assert resume(run, "train.max_steps=400") == 0
        assert last_step(run).name == "step-00000080"
    assert resume(run, "train.patience=0", "train.max_steps=150") == 0
    assert last_step(run).name == "step-00000150"


def test_a_run_that_patience_ends_has_the_same_mean_after_a_kill_or_a_signal(trainer, command, tmp_path, monkeypatch):
    """With a rate that is far too high, no loss is better than the first one. The loss of the end is that of the mean."""
    given = ["train.max_steps=60", "train.patience=2", "train.eval_interval=20", "checkpoint.interval=20"]
    given += ["optim.average_fraction=0.9", "optim.schedule=cosine", "optim.learning_rate=4", "optim.warmup_steps=0"]
    assert trainer(*given, name="whole") == 0
    losses = {line["step"]: line["val/loss"] for line in logged(tmp_path / "whole") if "val/loss" in line}
    state = find_checkpoint(f"{tmp_path}/whole/{last_step(tmp_path / 'whole').name}", tmp_path)[0].state
    assert list(losses) == [0, 20, 40] and state.progress.val_loss == losses[40] and state.is_finished
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "step-00000040")
    with Interrupt() as interrupt, monkeypatch.context() as patch:
        real = Trainer.take_mean
        patch.setattr(Trainer, "take_mean", lambda trainer: (signal.raise_signal(signal.SIGINT), real(trainer))[1])
        stopped = opened(command(*given, name="stopped"))
        assert train.train(stopped, interrupt) == 130 and not stopped.trainer.is_finished
    del stopped
    gc.collect()  # the lock of the run
    for name in ("killed", "stopped"):
        assert resume(tmp_path / name) == 0
        assert bits(tmp_path / name) == bits(tmp_path / "whole")
        assert logged_without_speed(tmp_path / name)[-1] == logged_without_speed(tmp_path / "whole")[-1]


def poison(trainer: Trainer, *, step: int, value: float, where: str) -> None:
    """Make the loss, or one gradient, of a step by torch not finite, in its last chunk."""
    chunk = iter(range(1, 10**9))

    def due() -> bool:
        return trainer.progress.step == step and next(chunk) == trainer.config.train.accumulate

    if where == "loss":
        trainer.weights.working.register_forward_hook(
            lambda module, inputs, out: out * value if module.training and due() else out
        )
    else:
        trainer.weights.working.norm.weight.register_hook(lambda gradient: gradient * value if due() else gradient)


@pytest.mark.parametrize(("where", "value"), [("loss", float("nan")), ("gradient", float("inf"))])
def test_a_poisoned_step_is_never_applied(command, tmp_path, capsys, where, value):
    given = ("train.accumulate=2", "runtime.step=torch")
    training = opened(command(*given))
    poison(training.trainer, step=7, value=value, where=where)
    assert finish(training) == 3
    assert training.trainer.progress.step == 7
    poisoned = {name: weight.clone() for name, weight in training.trainer.model.state_dict().items()}
    clean = opened(command(*given, name="clean")).trainer
    for _ in range(7):
        clean.step()
    assert all(torch.equal(weight, poisoned[name]) for name, weight in clean.model.state_dict().items())
    assert last_step(tmp_path / "run").name == "step-00000000"
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "step 8" in error and "step-00000000" in error


def test_rollback_goes_on_without_the_batch_at_half_the_rate(command, tmp_path, capsys):
    training = opened(command("train.on_nonfinite=rollback", "train.log_interval=1", "runtime.step=torch"))
    poison(training.trainer, step=26, value=float("nan"), where="loss")
    assert finish(training) == 0
    assert "rollback    training failed at step 27" in capsys.readouterr().out
    assert training.trainer.progress.skipped == [26]
    rates = {line["step"]: line["lr"] for line in logged(tmp_path / "run") if "lr" in line}
    assert sorted(rates) == [step for step in range(1, 41) if step != 27]
    undisturbed = {step: learning_rate(step - 1, training.trainer.config.optim, training.trainer.length) for step in rates}
    assert all(rates[step] == undisturbed[step] * (0.5 if step > 20 else 1) for step in rates)


def test_fine_tuning_keeps_the_shape_and_another_run_may_give_the_vocabulary(trainer, command, tmp_path, text, capsys):
    assert trainer(name="source") == 0
    capsys.readouterr()
    source = ("--init-from", f"{tmp_path}/source")
    assert "the size and form of this model are fixed" in fails(command(*source, "model.n_layer=1"), capsys)
    assert "nobody" in fails(command("--init-from", "nobody"), capsys)
    assert trainer(*source, "model.dropout=0.1") == 0
    few = tmp_path / "few.txt"
    few.write_text("the sea " * 200)
    arguments = [*TINY, "--vocab-from", f"{tmp_path}/source", f"data.cache={tmp_path}/cache"]
    run = opened([str(few), *arguments, "--run", f"{tmp_path}/few"])
    assert run.corpus.tokenizer.characters == "".join(sorted(set(text.read_text())))
    few.write_text("the sea Ω " * 200)
    capsys.readouterr()
    assert "U+03A9" in fails([str(few), *arguments, "--run", f"{tmp_path}/unknown"], capsys)


def test_a_reader_that_leaves_costs_nothing(programs, command, tmp_path):
    """As `train.py TEXT | head` and, with `| tee log`, a Ctrl-C: the signal ends tee as well."""
    with programs.start("train", *command()) as training:
        training.stdout.readline()
        training.stdout.close()
        assert training.wait() == 0
        assert training.stderr.read() == b""
    assert last_step(tmp_path / "run").name == "step-00000040"


def test_without_a_reader_a_mistake_and_a_failure_keep_their_exit_codes(programs, command):
    diverges = ["optim.learning_rate=1e30", "optim.warmup_steps=0"]
    for given, code in ((["train.max_steps=many"], 2), (diverges, 3), ([], 2)):  # the last: there is such a run
        with programs.start("train", *command(*given)) as training:
            training.stdout.close()
            assert training.wait() == code
            assert training.stderr.read().startswith(b"error: ")


def test_a_second_signal_ends_at_once(programs, command):
    settings = "train.max_steps=100000 train.eval_interval=100000 train.sample_length=0 train.accumulate=20000".split()
    with programs.start("train", *command(*settings)) as training:
        while not training.stdout.readline().startswith(b"step 0/"):
            pass
        time.sleep(0.3)  # a step of 20,000 batches is under way, too long to wait for
        training.send_signal(signal.SIGINT)
        assert b"stopping" in training.stderr.readline() + training.stderr.readline()
        training.send_signal(signal.SIGINT)
        assert training.wait(timeout=5) == 130


def test_a_run_that_is_over_goes_on_for_the_minutes_it_is_given(trainer, tmp_path, clock):
    assert trainer() == 0
    assert resume(tmp_path / "run", "--minutes", "0.03") == 0
    assert int(last_step(tmp_path / "run").name[5:13]) > 44
    assert trainer("--minutes", "0.03", "train.max_steps=1", name="short") == 0
    assert int(last_step(tmp_path / "short").name[5:13]) > 4


def test_too_little_memory_is_one_line(capsys):
    assert run_program(lambda: torch.empty(10**17)) == 2
    assert run_program(lambda: bytearray(10**17)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith("error: memory: ") and "batch" in line for line in lines)
    assert f"{4 * 10**17} bytes" in lines[0]  # no number is cut
    with pytest.raises(RuntimeError, match="shape"):  # any other mistake is ours, and keeps its traceback
        run_program(lambda: torch.ones(2) @ torch.ones(3, 3))


@pytest.mark.nightly  # importing torch's compiler takes seconds
def test_where_torch_cannot_compile_a_run_is_told_so(programs, command, tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path), "CXX": "none"}
    done = programs.run("train", *command("runtime.compile=on"), environment=environment)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(b"error: runtime.compile: ") and b"compiler" in done.stderr


@pytest.mark.parametrize("place", ["Run.__init__", "make_trainer", "SampleWriter", "Session.describe_run"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_leaves_a_run_that_goes_on(trainer, tmp_path, monkeypatch, place, number):
    """And no folder with a lock alone."""
    owner, _, name = place.rpartition(".")
    owner = getattr(session, owner) if owner == "Session" else Run if owner else session
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **more: (real(*given, **more), signal.raise_signal(number))[0])
    assert trainer("model.n_layer=1") == 128 + number and last_step(tmp_path / "run").name == "step-00000000"
    monkeypatch.undo()
    assert resume(tmp_path / "run") == 0


def test_a_run_stopped_before_it_was_evaluated_leaves_the_one_that_it_replaces(trainer, command, tmp_path):
    assert trainer() == 0
    before, interrupt = bits(tmp_path / "run"), Interrupt()
    session = opened(command("--overwrite", "train.seed=2"))
    interrupt.signal = signal.SIGINT  # before the first step
    assert finish(session, interrupt) == 130
    assert bits(tmp_path / "run") == before and last_step(tmp_path / "run.new").name == "step-00000000"


def test_a_changed_setting_survives_a_kill_and_a_rollback_says_which_checkpoint_it_skips(trainer, tmp_path, capsys):
    assert trainer() == 0
    folder, interrupt = tmp_path / "run", Interrupt()
    interrupt.signal = signal.SIGINT  # before the first step
    session = resumed(folder, "train.max_steps=60")
    assert finish(session, interrupt) == 130
    assert last_step(folder).name == "step-00000040.2"
    capsys.readouterr()
    (last_step(folder) / "state.json").write_text("damaged meanwhile")
    session.roll_back(NotFinite("the loss is nan", step=40))
    assert session.run.checkpoint.name == "step-00000040" and "skipped" in capsys.readouterr().out
    shutil.rmtree(last_step(folder))
    del session  # and the lock of the run
    gc.collect()
    assert resume(folder, "train.max_steps=60") == 0
    assert last_step(folder).name == "step-00000060"


def test_standard_input_resumes_from_its_encoding(programs, text, tmp_path):
    place = ["--run", f"{tmp_path}/run"]
    with open(text, "rb") as typed:
        words = ["-", *TINY, *place, f"data.cache={tmp_path}/cache", "train.max_steps=4"]
        assert programs.run("train", *words, stdin=typed.fileno()).returncode == 0
    for steps in (6, 8):  # the run remembers where its encoded text is, every time
        assert train.main(["--resume", *place, f"train.max_steps={steps}"]) == 0
        assert last_step(tmp_path / "run").name == f"step-{steps:08}"


def test_a_link_in_a_run_leads_nowhere(trainer, tmp_path):
    assert trainer() == 0
    log, canary = tmp_path / "run" / "metrics.jsonl", tmp_path / "canary"
    canary.write_text("mine")
    log.unlink()
    log.symlink_to(canary)
    assert resume(tmp_path / "run", "train.max_steps=45") == 0 and canary.read_text() == "mine"


@pytest.mark.parametrize("where", ["evaluation", "sample"])
def test_a_signal_stops_an_evaluation_and_a_sample(command, tmp_path, monkeypatch, where):
    training = opened(command("train.sample_length=100000", "runtime.step=torch"))
    interrupt, pieces = Interrupt(), []

    def stop(*_: object) -> None:
        interrupt.signal = signal.SIGINT

    if where == "evaluation":
        training.trainer.weights.working.norm.register_forward_hook(stop)
    else:
        after_each_piece(monkeypatch, stop)
    after_each_piece(monkeypatch, lambda: pieces.append(1))
    assert finish(training, interrupt) == 130
    assert len(pieces) == (where == "sample")
    assert training.trainer.progress.evaluated is None and last_step(tmp_path / "run").name == "step-00000000"


def test_a_signal_after_the_decision_not_to_save_loses_nothing(command, tmp_path, monkeypatch):
    """It is for the next step: the run never ends with a step that is not saved."""
    session, interrupt, decide = opened(command()), Interrupt(), Due.save.fget

    def decide_before_a_signal(due: Due) -> bool:
        decided = decide(due)
        if due.progress.step == 7:
            assert not decided or interrupt.signal
            interrupt.signal = signal.SIGINT
        return decided

    monkeypatch.setattr(Due, "save", property(decide_before_a_signal))
    assert finish(session, interrupt) == 130
    assert last_step(tmp_path / "run").name == f"step-{session.trainer.progress.step:08}" == "step-00000008"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_that_are_not_finite_are_not_saved_and_the_advice_is_not_what_the_run_does(
    precision, trainer, command, tmp_path, capsys
):
    given = [f"runtime.precision={precision}", "runtime.step=torch"]
    to_save = ("optim.learning_rate=1e39", "optim.warmup_steps=0", "checkpoint.interval=1", "train.eval_interval=40")
    assert trainer(*to_save, *given) == 3
    errors = [capsys.readouterr().err]
    assert last_step(tmp_path / "run").name == "step-00000000" and "--resume --run" in errors[0]
    for how in ("stop", "rollback"):
        training = opened(command(f"train.on_nonfinite={how}", *given, name=how))
        training.trainer.model.norm.weight.data.fill_(float("nan"))
        training.trainer.weights.refresh()
        assert finish(training) == 3
        errors.append(capsys.readouterr().err)
        assert "training failed at step 0: the validation loss" in errors[-1] and "nothing is saved yet" in errors[-1]
    for error in errors:
        assert error.startswith("error: training failed at step ") and error.count("\n") == 1
        assert "a lower optim.learning_rate" in error
        assert ("runtime.precision=float32" in error) == (precision != "float32")


def test_the_sample_at_the_end_is_that_of_the_best_checkpoint(trainer, tmp_path, capsys):
    assert trainer("optim.learning_rate=3", "optim.warmup_steps=0") == 0
    best = newest(tmp_path / "run")[0].state.progress.best_step
    samples = {line["step"]: line["sample"] for line in logged(tmp_path / "run") if "sample" in line}
    expected = up_to_a_word(samples[best]).strip()
    assert best < 40 and expected != samples[40].strip()
    assert f"\n{expected}\n" in capsys.readouterr().out
    (tmp_path / "run" / "metrics.jsonl").unlink()  # the run has kept it
    assert resume(tmp_path / "run") == 0
    assert f"\n{expected}\n" in capsys.readouterr().out


def test_a_run_on_all_of_the_text_has_no_validation_loss_and_its_last_checkpoint_counts(trainer, command, tmp_path, capsys):
    """It is killed and resumed to the same bits, and every command that needs new text says so or leaves it out."""
    given = ("data.val_fraction=0", "train.patience=1", "checkpoint.keep=9")
    assert trainer(*given) == 0
    out = capsys.readouterr().out
    assert "without a validation loss; training loss" in out and "n-gram" not in out
    assert "all of the text is for training" in out
    rows = logged(tmp_path / "run")
    assert not any("val/loss" in row for row in rows)
    assert [row["step"] for row in rows if "sample" in row] == [0, 1, 2, 5, 10, 20, 40]
    checkpoint, warnings = find_checkpoint(f"{tmp_path}/run", tmp_path)
    assert checkpoint.step == 40 and not warnings and checkpoint.state.progress.best_loss is None
    assert checkpoint.state.progress.best_sample == rows[-1]["sample"]
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    for path in list((tmp_path / "killed").glob("step-*")):
        if path.name > "step-00000020":
            shutil.rmtree(path)
    assert finish(resumed(tmp_path / "killed")) == 0
    assert bits(tmp_path / "killed") == bits(tmp_path / "run")
    page = written_report(tmp_path / "run")
    assert "all of the text was for training" in page and "no validation loss" in page
    assert trainer(*given, "train.teachers=1", name="taught") == 0
    assert find_checkpoint(f"{tmp_path}/taught", tmp_path)[0].state.stage.number == 2
    assert "data.val_fraction: 0" in fails(command(*given, "data.items=line", name="items"), capsys)
