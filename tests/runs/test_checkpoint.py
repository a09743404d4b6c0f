"""What is saved comes back to the bit, and nothing else is accepted in its place."""

import errno
import hashlib
import json
import os
import random
import shutil
import stat
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from helpers import random_weights, saved_state
from torch import Tensor

from chargpt.errors import NotWritten
from chargpt.formatting import one_line
from chargpt.runs import checkpoint
from chargpt.runs.checkpoint_schema import JSON_LIMIT, CheckpointError
from chargpt.text.tokenizer import Tokenizer

FILES = ("model.safetensors", "training.safetensors", "state.json")


def tensors_at(step: int) -> dict[str, dict[str, Tensor]]:
    """Weights and optimizer state that differ from step to step."""
    generator = torch.Generator().manual_seed(step)
    weights = {name: torch.randn(t.shape, generator=generator) for name, t in random_weights(step).items()}
    moments = {f"moment.{name}": torch.randn(t.shape, generator=generator) for name, t in weights.items()}
    return {"weights": weights, "training": moments}


def save(run: Path, step: int, *, best_step: int | None = None) -> Path:
    return checkpoint.publish(run, **tensors_at(step), state=saved_state(step, best_step=best_step))


def names(run: Path) -> list[str]:
    return [path.name for path in checkpoint.steps(run)]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def same(found: dict[str, Tensor], given: dict[str, Tensor]) -> bool:
    return found.keys() == given.keys() and all(
        found[n].dtype == given[n].dtype and found[n].shape == given[n].shape and torch.equal(found[n], given[n]) for n in given
    )


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = save(tmp_path, 500)
    loaded = checkpoint.load(path)
    assert path.name == "step-00000500" and sorted(os.listdir(path)) == sorted(FILES)
    assert (loaded.path, loaded.step, loaded.state) == (path, 500, saved_state(500))
    assert same(loaded.weights, tensors_at(500)["weights"]) and same(loaded.training, tensors_at(500)["training"])
    first, rest = (path / "state.json").read_bytes().split(b"\n", 1)  # others can check the sums
    document = json.loads(first + rest)
    assert document["sha256"] == hashlib.sha256(rest).hexdigest()
    for name, fingerprint in document["files"].items():
        data = (path / name).read_bytes()
        assert fingerprint == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    odd = {'\u00e9.\u4e2d"': torch.randn(2, 0, 3), "b": torch.randn(()), "a": torch.randn(3, 2).T}
    again = checkpoint.publish(tmp_path, weights=random_weights(1), training=odd, state=saved_state(10**15 - 1))
    assert same(checkpoint.load(again).training, odd)  # in the bytes that the library writes, with what transformers needs
    written = {name: tensor.contiguous() for name, tensor in odd.items()}
    assert (again / "training.safetensors").read_bytes() == safetensors.torch.save(written, {"format": "pt"})


@pytest.mark.parametrize("seed", range(15))
def test_the_newest_and_the_best_whole_checkpoints_are_kept_and_found(tmp_path: Path, seed: int) -> None:
    """Steps are saved, some of them again and some as the best one, and then damaged, beside a list of what there should be."""
    chance, keep, expected, step = random.Random(seed), 1 + seed % 3, list[Path](), 0
    for number in range(9):
        step += chance.choice([0, 10, 10])
        best_step = step if number == 0 or chance.random() < 0.3 else best_step  # noqa: F821
        expected.append(save(tmp_path, step, best_step=best_step))
        assert checkpoint.prune(expected[-1], keep, best_step=best_step) == []
        best_path = [path for path in expected if f"-{best_step:08d}" in path.name][-1]
        expected = [path for path in expected if path in (best_path, *expected[-keep:])]
        assert checkpoint.steps(tmp_path) == expected
    damage_of = {path: chance.choice((*FILES, None)) for path in expected[1:]}
    for path, file in damage_of.items():
        damage(path / file) if file else None
    whole = [path for path in expected if not damage_of.get(path)]
    found, lines = checkpoint.newest(tmp_path)
    assert found.path == whole[-1] and same(found.training, tensors_at(found.step)["training"])
    skipped = reversed(expected[expected.index(whole[-1]) + 1 :])
    assert [line.partition(":")[0] for line in lines] == [f"skipped {path}/{damage_of[path]}" for path in skipped]
    found, lines = checkpoint.best(tmp_path)
    for path in reversed(expected):  # the newest one whose state is whole names the best one
        if damage_of.get(path) == "state.json":
            continue
        step = checkpoint.read_state(path).progress.best_step
        named = [one for one in expected if f"-{step:08d}" in one.name and one <= path][-1:]
        usable = [one for one in (*named, path) if damage_of.get(one) in (None, "training.safetensors")]  # to write text with
        if usable:
            break
    assert (found.path, found.training) == (usable[0], {}) and len({*lines}) == len(lines)
    assert ("using the newest checkpoint instead" in str(lines)) == (usable[0] not in named)


def test_damaged_later_checkpoints_do_not_push_out_good_ones(tmp_path: Path) -> None:
    for step in (100, 200, 300, 400):
        damage(save(tmp_path, step) / "state.json") if step > 100 else save(tmp_path, step)
    path = save(tmp_path, 150)
    assert checkpoint.prune(path, 2, best_step=150) == []
    assert names(tmp_path)[:2] == ["step-00000100", "step-00000150"]
    found, lines = checkpoint.newest(tmp_path)
    assert found.step == 150 and len(lines) == 3


def test_without_a_valid_checkpoint_the_error_says_why(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint; train"):
        checkpoint.newest(tmp_path)
    with pytest.raises(CheckpointError, match="nowhere: No such file or directory; give the folder of a run"):
        checkpoint.newest(tmp_path / "nowhere")
    damage(save(tmp_path, 100) / "model.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint can be used.*step-00000100.*damaged.*copy or train the run again"):
        checkpoint.newest(tmp_path)


def newest_time(run: Path) -> tuple[checkpoint.Checkpoint, list[str]]:
    """As the list of the runs reads: first when it was saved, and then the rest."""
    return checkpoint.newest_of(run, lambda path: (path / "state.json").read_bytes() and checkpoint.load(path))


@pytest.fixture(scope="module")
def written_meanwhile() -> Iterator[list[Path]]:
    """Put a run into this list: when a file of a checkpoint is opened next, steps 3 and 4 are saved first, and others removed.

    An audit hook of Python does so between the listing and the reading, as another process might.
    """
    runs: list[Path] = []

    def watch(event: str, arguments: tuple) -> None:
        if event == "open" and runs and str(runs[0]) in str(arguments[0]) and "step-" in str(arguments[0]):
            run = runs.pop()
            save(run, 3)
            checkpoint.prune(save(run, 4, best_step=3), keep=2, best_step=3)

    sys.addaudithook(watch)  # it stays for as long as this process lives
    yield runs
    runs.clear()


@pytest.mark.parametrize(("read", "step"), [(checkpoint.newest, 4), (newest_time, 4), (checkpoint.best, 3)])
def test_checkpoints_that_vanish_between_listing_and_reading_are_not_missed(tmp_path, written_meanwhile, read, step):
    save(tmp_path, 1)
    save(tmp_path, 2)
    written_meanwhile.append(tmp_path)
    found, lines = read(tmp_path)
    assert not written_meanwhile and names(tmp_path) == ["step-00000003", "step-00000004"]
    assert found.step == step and lines == []


def test_why_it_is_not_the_best_one_that_is_used_is_said_once(tmp_path: Path) -> None:
    paths = [save(tmp_path, 100), save(tmp_path, 200, best_step=100), save(tmp_path, 300, best_step=200)]
    (paths[2] / "training.safetensors").unlink()  # which writing text does not need, but training
    with pytest.raises(CheckpointError, match="training.safetensors: No such file"):
        checkpoint.load(paths[2])
    damage(paths[1] / "model.safetensors")
    found, lines = checkpoint.best(tmp_path)
    assert found.step == 300 and "step-00000200/model.safetensors: damaged" in lines[0] and len(lines) == 1
    shutil.rmtree(paths[1])
    found, lines = checkpoint.best(tmp_path)
    assert found.step == 300 and lines[0].endswith(
        "the best checkpoint, of step 200, is missing; using the newest checkpoint instead"
    )
    damage(paths[2] / "model.safetensors")
    found, lines = checkpoint.best(tmp_path)
    assert found.step == 100 and [line.count("step-00000300") for line in lines] == [1], "each problem is said once"


def test_differing_tensors_are_named(tmp_path: Path) -> None:
    a, b = torch.zeros(2), torch.zeros(2, 3)
    checkpoint.check_tensors({"a": a, "b": b.numpy()}, {"b": (2, 3), "a": [2]}, where="here")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.check_tensors(
            {"a": a.double(), "b": b, "c": a}, {"a": (2,), "b": (3, 2), "d": (2,), "e": (2,)}, where="here"
        )
    assert str(caught.value) == (
        "here: holds the weights of another model (a is float64 [2], not float32 [2], and 4 more differ); "
        "use another checkpoint, or copy this one again"
    )


def test_the_order_of_checkpoints_is_that_of_their_numbers(tmp_path: Path) -> None:
    ordered = ["step-99999999", "step-99999999.2", "step-99999999.10", "step-100000000"]
    for name in reversed(ordered):
        (tmp_path / name).mkdir()
    assert names(tmp_path) == ordered


def test_a_step_saved_again_is_the_newer_one_and_replaces_nothing(tmp_path: Path) -> None:
    first = save(tmp_path, 5)
    before = {path: path.read_bytes() for path in first.iterdir()}
    for seed in (6, 7):
        checkpoint.publish(tmp_path, **tensors_at(seed), state=saved_state(5))
    assert names(tmp_path) == ["step-00000005", "step-00000005.2", "step-00000005.3"]
    assert {path: path.read_bytes() for path in first.iterdir()} == before
    assert same(checkpoint.newest(tmp_path)[0].weights, tensors_at(7)["weights"])


def test_a_file_system_that_cannot_sync_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    assert checkpoint.prune(save(tmp_path, 1), 1, best_step=1) == []


def test_a_save_that_fails_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("file", "Not a directory"), ("loop", "Too many levels of"), ("gone", "No such file or directory")):
        with pytest.raises(NotWritten) as caught:
            save(tmp_path / name, 999)
        assert f"{tmp_path / name}/step-00000999: not saved ({why}" in one_line(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_state_too_large_to_read_back_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="its list of texts is too long, .*; give one folder"):
        checkpoint.publish(tmp_path, **tensors_at(1), state=saved_state(1, texts=["x" * JSON_LIMIT]))
    assert os.listdir(tmp_path) == []
    everything = "".join(chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs"))
    checkpoint.publish(tmp_path, **tensors_at(1), state=saved_state(1, tokenizer=Tokenizer(everything)))


def test_a_folder_renamed_to_another_step_is_skipped(tmp_path: Path) -> None:
    save(tmp_path, 40).rename(tmp_path / "step-999999999999999")
    save(tmp_path, 50)
    found, lines = checkpoint.newest(tmp_path)
    assert found.step == 50 and len(lines) == 1 and "has step 40, but its folder is named step-999999999999999" in lines[0]
