"""--continue: one command begins a run, goes on or says that it is finished, with the bits of one that never stopped."""

from pathlib import Path

import pytest
from helpers import TINY_FILE
from session_helpers import stopped_after

import train
from chargpt.errors import UserError
from chargpt.runs.checkpoint import newest

NAMES, LAST = ("whole", "run"), "step-00000030/model.safetensors"


@pytest.fixture
def command(text, tmp_path):
    """The same command, with a run of this name: its exit code, or that of the SIGTERM that comes after step `stop`."""

    def trained(name: str, *words: str, stop: int = 0, on: Path = text) -> int:
        with stopped_after(stop):
            here = ["--run", str(tmp_path / name), f"data.cache={tmp_path}/cache", "runtime.threads=1", "train.sample_length=0"]
            return train.main([str(on), "--config", TINY_FILE, "train.max_steps=30", "--continue", *here, *words])

    return trained


@pytest.mark.parametrize("words", [[], ["train.teachers=1", "train.seed=3", "model.dropout=0.1"]])
def test_the_same_command_goes_on_until_the_run_is_finished(words, command, tmp_path, capsys):
    assert command("whole", *words) == 0
    codes = [command("run", *words, stop=stop) for stop in (7, 19, 0, 0)]
    assert codes == [143, 143, 0, 0] if not words or "teachers" not in words[0] else codes[-2:] == [0, 0]
    ends = [sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob(LAST)) for name in NAMES]
    assert ends[0] == ends[1] != []
    for path in ends[0]:
        assert len({(tmp_path / name / path).read_bytes() for name in NAMES}) == 1, path


def test_a_changed_command_changes_the_run_or_says_why_not(command, tmp_path, capsys):
    assert command("run") == 0
    assert command("run", "train.max_steps=40") == 0  # the later one of a setting counts
    assert newest(tmp_path / "run")[0].step == 40
    with pytest.raises(UserError, match="model.n_layer: .*cannot change in a run that has begun"):
        command("run", "model.n_layer=1")
    with pytest.raises(UserError, match="--resume: cannot be used with"):
        command("run", "--resume")


def test_another_text_is_refused_and_one_that_is_gone_is_not_missed(command, text, tmp_path, capsys, monkeypatch):
    own = tmp_path / "own.txt"
    own.write_bytes(text.read_bytes())
    assert command("run", on=own) == 0
    own.write_text("another text, of the same length or not\n" * 90)
    other = own.with_name("other.txt")
    other.write_text("another text, of the same length or not\n" * 90)
    assert command("run", on=own) == 0
    assert "has changed since the run began" in "".join(capsys.readouterr()), "the run goes on with its copy"
    monkeypatch.chdir(own.parent)
    own.unlink()
    assert command("run", on=Path(own.name)) == 0
    assert "is not there any more" in "".join(capsys.readouterr())
    with pytest.raises(UserError, match="other.txt given, but the run '.*' was trained on another text"):
        command("run", on=other)
