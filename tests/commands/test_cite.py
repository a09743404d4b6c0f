"""What a paper says of a run is true of it, and a run of which nothing is missing comes out the same to the bit."""

import shlex
import shutil
from pathlib import Path

import pytest
from helpers import publish_run, saved_state

import train
from chargpt.__main__ import main
from chargpt.runs.checkpoint import newest
from chargpt.runs.checkpoint_schema import NO_TEXT
from chargpt.runs.repeat import missing, models_in
from chargpt.runs.stage import Length, Models, Stage

TINY = (
    "--config tiny train.max_steps=12 train.eval_interval=6 checkpoint.interval=6 checkpoint.keep=3 runtime.threads=1".split()
)


@pytest.mark.parametrize("more", [[], ["train.teachers=1", "model.dropout=0.1", "train.seed=5"]])
def test_a_run_that_lacks_nothing_is_made_again_to_the_bit(more, text, session_root, tmp_path, capsys):
    assert train.main([str(text), *TINY, *more, f"data.cache={tmp_path}/cache", "--run", f"{tmp_path}/run"]) == 0
    capsys.readouterr()
    assert main(["cite", f"{tmp_path}/run"]) == 0
    said = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if not line.startswith("model"))
    state = newest(tmp_path / "run", training=False)[0].state
    assert said["missing"].startswith("nothing: ") and state.fingerprint in said["text"] and "12" in said["cite"]
    words = shlex.split(said["again"])[2:]
    words = [{"TEXT": str(text), "NEW": f"{tmp_path}/again"}.get(word, word) for word in words]
    assert train.main(words) == 0
    for path in (tmp_path / "run").rglob("step-*/model.safetensors"):
        assert (tmp_path / "again" / path.relative_to(tmp_path / "run")).read_bytes() == path.read_bytes()
    assert "does not make the same run" not in capsys.readouterr().out
    shutil.rmtree(max((tmp_path / "run").rglob("step-*12"), key=lambda path: len(path.parts)))  # that of the last model
    assert train.main([*words[:-1], f"{tmp_path}/third", "--dry-run"]) == 0
    assert "config.yaml does not make the same run: it goes on" in capsys.readouterr().out.replace("\n", " ")


LEARNED_BY = ["train.max_steps=20", "optim.grad_clip=0.01", "train.log_interval=3", "train.max_steps=12"]
COMPUTED_BY = ["runtime.precision=bfloat16", "runtime.step=torch", "runtime.threads=2"]


@pytest.mark.parametrize("change", LEARNED_BY + COMPUTED_BY)
def test_a_run_that_was_changed_lacks_something_where_it_matters(change, text, session_root, tmp_path):
    run, cache = tmp_path / "run", f"data.cache={tmp_path}/cache"
    assert train.main([str(text), *TINY, cache, "--run", str(run)]) == 0
    shutil.rmtree(run / "step-00000012")
    assert train.main(["--resume", "--run", str(run), cache, change]) == 0
    assert train.main([str(text), "--config", str(run / "config.yaml"), "--run", f"{tmp_path}/again"]) == 0
    first, again = (newest(folder)[0].weights for folder in (run, tmp_path / "again"))
    assert bool(missing(models_in(run), run)) == any((first[name] != again[name]).any() for name in first)


@pytest.mark.parametrize("option", ["--start", "--init-from"])
def test_settings_without_the_weights_that_a_run_began_with_say_so(option, text, session_root, tmp_path, capsys):
    begun = [option, "english" if option == "--start" else str(publish_run(tmp_path / "old"))]
    few = ["train.max_steps=1", "train.eval_chars=100", "train.sample_length=0", f"data.cache={tmp_path}/cache"]
    assert train.main([str(text), *begun, *few, "--run", f"{tmp_path}/run"]) == 0
    capsys.readouterr()
    again = [str(text), "--config", f"{tmp_path}/run/config.yaml", "--run", f"{tmp_path}/again", "--dry-run"]
    for more, says in (([], True), (begun, False)):
        assert train.main([*again, *more]) == 0
        assert ("it began with other weights; add " in capsys.readouterr().out.replace("\n", " ")) == says
    for is_renamed in [False] + [True] * (option == "--init-from"):
        if is_renamed:
            assert main(["rename", begun[1], f"{tmp_path}/new"]) == 0
        assert train.main(again) == 0
        assert main(["cite", f"{tmp_path}/run"]) == 0
        said = capsys.readouterr().out.replace("\n", " ")
        assert (f" {option}" in said, "has another name or is gone" in said) == (not is_renamed, is_renamed)


def test_what_cannot_be_repeated_is_named():
    def state(step=9, number=1, count=1, steps=9, since=0, changed=0, **changes):
        length = Length(steps=steps, warmup=1, interval=3, since=since)
        return saved_state(
            step,
            **{"fingerprint": "f" * 64, **changes},
            stage=Stage(number=number, models=Models(count=count), length=length, changed=changed),
        )

    for models, says in (
        ([state()], None),
        ([state(since=4)], "the number of steps was changed"),
        ([state(changed=4)], "its settings, its time or what computes it was changed"),
        ([state(step=5)], "it goes on"),
        ([state(count=2), state(number=2, count=2, steps=9)], None),
        ([state(count=2), state(step=7, number=2, count=2, steps=7)], "a later model took as many steps as its time"),
        ([state(fingerprint=NO_TEXT)], "its text"),
    ):
        assert [what[: len(says or "")] for what in missing(models, Path())] == [says] * (says is not None), models


def test_an_imported_run_has_no_text(tmp_path, capsys):
    publish_run(tmp_path / "run", fingerprint=NO_TEXT)
    assert main(["cite", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("none; it was imported without one") == 2  # also in the line to cite
