"""Checkpoints: published whole or not at all, and checked completely before they are used.

    RUN/step-00000500/         (step-00000500.2 when a resumed run saves the same step again)
        model.safetensors      the weights alone, readable by anyone
        training.safetensors   the optimizer's state
        state.json             the saved state (checkpoint_schema.py), and the size and SHA-256 of the two files above
    RUN/best.json              the name of the best checkpoint, and its validation loss
    RUN/stage-2/               the same of a second model of the run, which learns from the first one or is another teacher
    RUN/teacher-1/             the weights of another run, from which this one learns: a checkpoint without an optimizer's state

Checksums protect against accidents, not against a hostile writer, who can compute them. Against a hostile folder there are
bounds on everything that is read, formats that cannot hold code, a strict schema, and a check of every tensor against the
model. One process writes a run; any number may read it meanwhile.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import safetensors.numpy

from chargpt.config import MAX_TEACHERS
from chargpt.errors import what_to_do
from chargpt.files import aside, discard, publishing, sync_folder, write_pieces_synced, write_synced
from chargpt.runs.checkpoint_schema import (
    FORMAT,
    JSON_LIMIT,
    CheckpointError,
    DamagedError,
    NotSaved,
    OtherModelError,
    SavedState,
    UnreadableError,
    check_format,
    put_back,
    read_bounded,
    seal,
    unseal,
)
from chargpt.runs.model_shape import MAX_NUMBERS
from chargpt.standard import model_source
from chargpt.terminal import shown

if TYPE_CHECKING:  # reading a checkpoint needs no torch
    from torch import Tensor

WEIGHTS, TRAINING, STATE, BEST = "model.safetensors", "training.safetensors", "state.json", "best.json"
KEPT = ".safetensors"  # how the name of a model in one file ends: see kept.py
# text/sources.py recognises a run by such a folder with a STATE.
STEP_NAME = re.compile(r"step-([0-9]{8,15})(?:\.([0-9]{1,9}))?")
STAGE = re.compile(r"stage-([2-9]|10)")
TRAINING_LIMIT = 8  # times the size of the weights; AdamW's two moments take 2, and the weights of the beginning 1

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has passed every check. Torch is imported only if its tensors are asked for."""

    path: Path
    stored_weights: dict[str, np.ndarray]
    stored_training: dict[str, np.ndarray]  # empty when only the weights were read
    state: SavedState

    @cached_property
    def weights(self) -> "dict[str, Tensor]":
        """On the CPU, in the same memory."""
        return _as_tensors(self.stored_weights)

    @cached_property
    def training(self) -> "dict[str, Tensor]":
        """On the CPU, in the same memory."""
        return _as_tensors(self.stored_training)

    @property
    def step(self) -> int:
        return self.state.progress.step


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> "dict[str, Tensor]":
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def publish(
    run: Path,
    *,
    weights: "Mapping[str, Tensor]",
    training: "Mapping[str, Tensor]",
    state: SavedState,
    name: str | None = None,
) -> Path:
    """Write a checkpoint of `run` and return its folder, which appears complete or not at all. All tensors are float32.

    `name` is that of the folder; None: a new one for this step. Existing checkpoints are not touched. Raises CheckpointError if
    a tensor is not finite, or if the disk is full, read-only or gone.
    """
    path = _free_name(run, state.progress.step) if name is None else run / name
    tensors = {WEIGHTS: weights, TRAINING: training}
    for file, content in tensors.items():
        for key, tensor in content.items():
            if not tensor.isfinite().all():
                what = f"not saved, since training failed ({key:.80} is not finite)"
                raise CheckpointError(f"{shown(path / file)}: {what}; add a lower optim.learning_rate=NUMBER to the command")
    with _publishing(path) as folder:
        os.mkdir(folder)
        files = {file: _write_tensors(folder / file, content) for file, content in tensors.items()}
        write_synced(folder / STATE, seal({"format": FORMAT, "files": files, "state": state.to_json()}, path / STATE))
        sync_folder(folder)
    return path


def stage_folder(run: Path, stage: int) -> Path:
    """Where the checkpoints of a model of `run` are; it is the first one, the second and so on."""
    return run if stage <= 1 else run / f"stage-{stage}"


def newest_stage(run: Path, *, learned: bool = False) -> int:
    """The newest model of `run` that has a checkpoint; if it is to have `learned`, one after step 0. 1 if there is none.

    Raises CheckpointError if a folder cannot be listed.
    """
    for stage in range(MAX_TEACHERS + 1, 1, -1):
        folder = stage_folder(run, stage)
        if folder.is_dir() and any(_order(path)[0] or not learned for path in steps(folder)):
            return stage
    return 1


def run_of(path: Path) -> Path:
    """The folder of the run to which a checkpoint belongs; of a model that was kept in a file, that file."""
    return path if path.suffix == KEPT and path.name != WEIGHTS else run_of_stage(path.parent)


def run_of_stage(folder: Path) -> Path:
    """The folder of the run whose model has its checkpoints in `folder`."""
    return folder.parent if STAGE.fullmatch(folder.name) and has_steps(folder.parent) else folder


def mark_best(path: Path, loss: float | None) -> None:
    """Record that the published checkpoint `path` is the best one of its run; `loss` is None if it was not evaluated."""
    target, stage = path.parent / BEST, STAGE.fullmatch(path.parent.name)
    data = seal({"stage": int(stage[1]) if stage else 1, "checkpoint": path.name, "val/loss": loss}, target)
    with _publishing(target) as file:
        write_synced(file, data)


def prune(path: Path, keep: int) -> list[str]:
    """Remove older checkpoints of the run once `path` is published. The newest `keep` up to `path` and the best one stay.

    Checkpoints after `path` (damaged ones that were skipped on resuming) are neither counted nor removed. Never raises;
    returns a line for each problem.
    """
    assert keep >= 1
    try:
        best_name = _best_name(path.parent)
        older = [old for old in steps(path.parent) if _order(old) < _order(path)]
    except CheckpointError as error:
        return [f"no old checkpoint removed: {_reason(error)}"]  # nothing is removed while the best one is unknown
    return _remove([old for old in older[: max(0, len(older) - (keep - 1))] if old.name != best_name], path.parent)


def keep_best_weights(folder: Path) -> list[str]:
    """Of a model whose training has ended, keep the best checkpoint, without its optimizer's state. Never raises.

    Returns a line for each problem.
    """
    try:
        if len(found := steps(folder)) == 1 and not (found[0] / TRAINING).exists():
            return []
        kept, problems = best(folder)
        if problems:
            mark_best(kept.path, kept.state.progress.val_loss)
        (kept.path / TRAINING).unlink(missing_ok=True)
    except (CheckpointError, OSError) as error:
        return [f"{shown(folder)}: older checkpoints not removed ({_reason(error)})"]
    return _remove([path for path in found if path != kept.path], folder)


def _remove(paths: Sequence[Path], folder: Path) -> list[str]:
    """Remove checkpoints from `folder`, each whole or not at all. Returns a line for each problem."""
    problems, removed = [], []
    for path in paths:
        try:
            os.rename(path, aside(path))
            removed.append(aside(path))
        except OSError as error:
            problems.append(f"{shown(path)}: not removed ({error.strerror}); remove it by hand")
    try:
        sync_folder(folder)  # or a power cut might bring back a name whose files are gone
    except OSError as error:
        return [*problems, f"{shown(folder)}: old checkpoints not removed ({error.strerror}); resuming removes them"]
    for path in removed:
        discard(path)
    return problems


def steps(run: Path) -> list[Path]:
    """The checkpoint folders of `run`, oldest first, unchecked. Raises CheckpointError if `run` cannot be listed."""
    try:
        names = os.listdir(run)
    except OSError as error:
        raise CheckpointError(f"{shown(run)}: {error.strerror}; give the folder of a run that you may read") from error
    return sorted((run / name for name in names if STEP_NAME.fullmatch(name)), key=_order)


def has_steps(folder: Path) -> bool:
    """Whether `folder` exists and holds checkpoints. Raises CheckpointError if it cannot be listed."""
    return folder.is_dir() and bool(steps(folder))


def newest(run: Path, *, training: bool = True) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint of `run` that passes every check, and a line for each newer one that does not: see `newest_of`."""
    return newest_of(run, lambda path: load(path, training=training))


def newest_of(run: Path, read: Callable[[Path], T]) -> tuple[T, list[str]]:
    """What `read` makes of the newest checkpoint of `run` for which it raises nothing, and a line for each newer one.

    Another process may write the run and remove old checkpoints meanwhile: then the new ones are read. Raises CheckpointError
    when there is none, and UnreadableError or OtherModelError for one that is whole.
    """
    tried: set[Path] = set()
    reasons: list[str] = []
    while untried := [path for path in reversed(steps(run)) if path not in tried]:
        for path in untried:
            tried.add(path)
            try:
                return read(path), [f"skipped {reason}" for reason in reasons]
            except (UnreadableError, OtherModelError):
                raise
            except (CheckpointError, OSError) as error:
                if os.path.lexists(path):
                    reasons.append(_reason(error))
    if not reasons:
        raise CheckpointError(f"{shown(run)}: holds no checkpoint; train it first, or name another run")
    raise CheckpointError(f"{shown(run)}: no checkpoint can be used ({'; '.join(reasons[:3])}); copy or train the run again")


def _reason(error: Exception) -> str:
    """What went wrong, without what to do: the program does it."""
    return str(getattr(error, "reason", error))


def best(run: Path) -> tuple[Checkpoint, list[str]]:
    """The best checkpoint by `checkpoint.best`, weights only; otherwise the newest, with lines that say why.

    Raises CheckpointError when there is none, and UnreadableError or OtherModelError for one that is whole.
    """
    try:
        while name := _best_name(run):
            try:
                return load(run / name, training=False), []
            except CheckpointError:
                if os.path.lexists(run / name) or name == _best_name(run):
                    raise  # otherwise another process has found a better one meanwhile, and removed this one
        reason = f"{shown(run / BEST)}: missing"
    except (UnreadableError, OtherModelError):
        raise
    except CheckpointError as error:
        reason = _reason(error)
    checkpoint, skipped = newest(run, training=False)
    return checkpoint, [
        f"{reason}; using the newest checkpoint instead",
        *(line for line in skipped if line != f"skipped {reason}"),
    ]


def check_tensors(found: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], *, where: str) -> None:
    """Raise CheckpointError, naming the first one, unless `found`, of torch or numpy, are float32 tensors of these shapes."""
    have = {name: f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for name, tensor in found.items()}
    need = {name: f"float32 {list(shape)}" for name, shape in shapes.items()}
    wrong = [name for name in sorted(have.keys() | need.keys()) if have.get(name) != need.get(name)]
    if wrong:
        first = f"{wrong[0]:.80} is {have.get(wrong[0], 'missing')}, not {need.get(wrong[0], 'there')}"
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise DamagedError(f"{where}: holds the weights of another model ({first}{more})")


def check_weights(found: Mapping[str, Any], state: SavedState, *, where: str) -> None:
    """Raise CheckpointError unless `found` are weights of the model that model.py makes for this state."""
    try:
        check_tensors(found, state.weight_shapes(), where=where)
    except DamagedError:
        if state.model_source == model_source():
            raise
        raise OtherModelError(f"{where}: trained by another model.py, with other weights; {put_back(state)}") from None


def numbers_in(path: Path) -> int:
    """How many numbers the weights in the checkpoint folder `path` are. None is read. Raises OSError or ValueError."""
    try:
        with safetensors.safe_open(path / WEIGHTS, framework="numpy") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
    except safetensors.SafetensorError as error:
        raise ValueError(f"{shown(path / WEIGHTS)}: not a safetensors file") from error


def _order(path: Path) -> tuple[int, int]:
    """Step and attempt: the position of a checkpoint among those of its run."""
    match = STEP_NAME.fullmatch(path.name)
    assert match is not None, path
    step, attempt = match.groups()
    return int(step), int(attempt or 1)


def _free_name(run: Path, step: int) -> Path:
    """The folder for a new checkpoint. A step that exists gets a new name, since a folder cannot be replaced atomically."""
    path, attempt = run / f"step-{step:08d}", 1
    while os.path.lexists(path):
        attempt += 1
        path = run / f"step-{step:08d}.{attempt}"
    return path


def _best_name(run: Path) -> str | None:
    """The folder name in best.json, None if there is no such file. Raises CheckpointError if it cannot be trusted."""
    path = run / BEST
    if not os.path.lexists(path):
        return None
    name = unseal(path).get("checkpoint")
    if not isinstance(name, str) or not STEP_NAME.fullmatch(name):
        raise DamagedError(f"{shown(path)}: damaged, since it names no checkpoint")
    return name


@contextmanager
def _publishing(target: Path) -> Iterator[Path]:
    """`files.publishing`, with an error that says what to do."""
    try:
        with publishing(target) as path:
            yield path
    except OSError as error:
        what = f"{shown(target)}: not saved ({error.strerror}), but earlier checkpoints are unchanged; {what_to_do(error)}"
        raise NotSaved(what) from error


def file_pieces(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """A safetensors file of float32 tensors: the length of a JSON header as 8 bytes, the header, each tensor; little-endian.

    The writer of the library makes two copies of all tensors before it writes the first byte.
    """
    import torch

    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in sorted(tensors):
        assert tensors[name].dtype == torch.float32, name
        start, end = end, end + tensors[name].nbytes
        described[name] = {"dtype": "F32", "shape": [*tensors[name].shape], "data_offsets": [start, end]}
    header = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    yield len(header).to_bytes(8, "little") + header
    for name in sorted(tensors):
        yield tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> dict[str, Any]:
    """Write a safetensors file, with one tensor at a time in memory besides those given. Returns its fingerprint."""
    digest, size = hashlib.sha256(), 0

    def pieces() -> Iterator[bytes | memoryview]:
        nonlocal size
        for piece in file_pieces(tensors, {"format": "pt"}):
            digest.update(piece)
            size += len(piece)
            yield piece

    write_pieces_synced(path, pieces())
    return {"bytes": size, "sha256": digest.hexdigest()}


def load(path: Path, *, training: bool = True) -> Checkpoint:
    """Read the checkpoint in the folder `path`; without `training`, only its weights and state.

    Raises CheckpointError unless the checksums are right, the state is valid, the weights fit it, and all numbers are finite.
    """
    state, files = read_state(path)
    step = _order(path)[0] if STEP_NAME.fullmatch(path.name) else state.progress.step
    if state.progress.step != step:
        raise DamagedError(f"{shown(path / STATE)}: has step {state.progress.step:,}, but its folder is named {path.name:.40}")
    is_ours = state.model_source == model_source()
    weight_bytes = 4 * (state.parameters if is_ours else MAX_NUMBERS)
    weights = _unpack(path / WEIGHTS, files, limit=weight_bytes + JSON_LIMIT)
    check_weights(weights, state, where=shown(path / WEIGHTS))
    moments = _unpack(path / TRAINING, files, limit=TRAINING_LIMIT * weight_bytes + JSON_LIMIT) if training else {}
    return Checkpoint(path, weights, moments, state)


def read_state(path: Path) -> tuple[SavedState, dict[str, Any]]:
    """The state in the checkpoint folder `path`, and the fingerprints of its tensor files. Raises CheckpointError."""
    path = path / STATE
    document = unseal(path)
    check_format(document.get("format"), path)
    try:
        state = SavedState.from_json(document.get("state"))
    except Exception as error:  # any kind of invalid state is reported in the same way
        raise DamagedError(f"{shown(path)}: cannot be used ({str(error):.200})") from error
    if not isinstance(document.get("files"), dict):
        raise DamagedError(f"{shown(path)}: damaged, it names no files")
    return state, document["files"]


def _unpack(path: Path, files: dict[str, Any], *, limit: int) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file with the right fingerprint. safetensors itself checks no values."""
    data = read_bounded(path, limit=limit)
    if files.get(path.name) != {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}:
        raise DamagedError(f"{shown(path)}: damaged, its checksum differs")
    try:
        arrays = safetensors.numpy.load(data)
    except Exception as error:  # any kind of invalid data is reported in the same way
        raise DamagedError(f"{shown(path)}: damaged, not a safetensors file ({str(error):.200})") from error
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise DamagedError(f"{shown(path)}: damaged, {name:.80} has numbers that are infinite or undefined")
    return arrays
