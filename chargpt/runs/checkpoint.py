"""Checkpoints: published whole or not at all, and checked completely before they are used.

    RUN/step-00000500/         (step-00000500.2 when a resumed run saves the same step again)
        model.safetensors      the weights alone, readable by anyone
        training.safetensors   the optimizer's state
        state.json             the saved state (checkpoint_schema.py), and the size and SHA-256 of the two files above
    RUN/stage-2/               the same of a second model of the run, which learns from the first one or is another teacher
    RUN/teacher-1/             the weights of another run, from which this one learns: a checkpoint without an optimizer's state

Checksums protect against accidents, not against a hostile writer, who can compute them. Against a hostile folder there are
bounds on everything that is read, formats that cannot hold code, a strict schema, and a check of every tensor against the
model. One process writes a run; any number may read it meanwhile.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import safetensors.numpy

from chargpt.config import MAX_TEACHERS
from chargpt.errors import NotWritten, Option, what_to_do
from chargpt.files import aside, discard, publishing, sync_folder, write_pieces_synced, write_synced
from chargpt.formatting import shown
from chargpt.project import STATE, STEP_NAME
from chargpt.runs.checkpoint_schema import (
    JSON_LIMIT,
    MAX_NUMBERS,
    CheckpointError,
    DamagedError,
    OtherModelError,
    SavedState,
    UnreadableError,
    put_back,
    read_bounded,
    seal,
    unseal,
)
from chargpt.standard import model_source

if TYPE_CHECKING:  # reading a checkpoint needs no torch
    from torch import Tensor

WEIGHTS, TRAINING = "model.safetensors", "training.safetensors"
KEPT = ".safetensors"  # how the name of a model in one file ends: see load_kept
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

    @property
    def run(self) -> str:
        """The name of its run, or of the start that it is."""
        return run_of(self.path.resolve()).name


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> "dict[str, Tensor]":
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def publish(
    run: Path, *, weights: "Mapping[str, Tensor]", training: "Mapping[str, Tensor]", state: SavedState, name: str = ""
) -> Path:
    """Write a checkpoint of `run`, finite float32 tensors and `state`, into a new folder, of this `name` or that of the step,
    which appears complete or not at all. Raises NotWritten if the disk is full, read-only or gone."""
    path = run / (name or _free_name(run, state.progress.step))
    try:
        with publishing(path) as folder:
            os.mkdir(folder)
            files = {file: _write_tensors(folder / file, found) for file, found in ((WEIGHTS, weights), (TRAINING, training))}
            write_synced(folder / STATE, seal(state, files, path / STATE))
            sync_folder(folder)
    except OSError as error:
        others = ", but earlier checkpoints are unchanged" * has_steps(run)
        raise NotWritten.of(error, f"{shown(path)}: not saved ({error.strerror}){others}; {what_to_do(error)}") from error
    return path


def stage_folder(run: Path, stage: int) -> Path:
    """Where the checkpoints of a model of `run` are; it is the first one, the second and so on."""
    return run if stage <= 1 else run / f"stage-{stage}"


def newest_stage(run: Path, *, learned: bool = False) -> int:
    """The newest model of `run` that has a checkpoint, or one after step 0 (`learned`); else 1. Raises CheckpointError."""
    for stage in range(MAX_TEACHERS + 1, 1, -1):
        folder = stage_folder(run, stage)
        if folder.is_dir() and any(_order(path)[0] or not learned for path in steps(folder)):
            return stage
    return 1


def run_of(path: Path) -> Path:
    """The folder of the run to which a checkpoint belongs. A start is both, and so is a model that was kept in a file."""
    return run_of_stage(path.parent) if STEP_NAME.fullmatch(path.name) else path


def run_of_stage(folder: Path) -> Path:
    """The folder of the run whose model has its checkpoints in `folder`."""
    return folder.parent if STAGE.fullmatch(folder.name) and has_steps(folder.parent) else folder


def prune(path: Path, keep: int, *, best_step: int | None) -> list[str]:
    """Remove checkpoints before `path`, but for the newest `keep` with it and the best one; damaged ones after it are neither
    counted nor removed. Never raises; returns a line for each problem."""
    assert keep >= 1
    try:
        older, best_one = _until(path)[:-1], _best_path(path, best_step)
    except CheckpointError as error:
        return [f"no old checkpoint removed: {_reason(error)}"]
    return _remove([old for old in older[: max(0, len(older) - (keep - 1))] if old != best_one], path.parent)


def keep_best_weights(folder: Path) -> list[str]:
    """Keep only the best checkpoint of a model, without its optimizer's state. Returns a line for each problem."""
    try:
        if len(found := steps(folder)) == 1 and not (found[0] / TRAINING).exists():
            return []
        kept = best(folder)[0].path
        (kept / TRAINING).unlink(missing_ok=True)
    except (CheckpointError, OSError) as error:
        return [f"{shown(folder)}: older checkpoints not removed ({_reason(error)})"]
    return _remove([path for path in found if path != kept], folder)


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
    """What `read` makes of the newest checkpoint of `run` for which it raises nothing, and a line for each newer one, though
    others may be removed meanwhile. Raises CheckpointError for none, and UnreadableError for one that is whole."""
    tried, reasons = set[Path](), list[str]()
    while untried := [path for path in steps(run) if path not in tried]:
        tried.add(path := untried[-1])
        try:
            return read(path), [f"skipped {reason}" for reason in reasons]
        except UnreadableError:
            raise
        except (CheckpointError, OSError) as error:
            reasons += [_reason(error)] * os.path.lexists(path)
    if not reasons:
        raise CheckpointError(f"{shown(run)}: holds no checkpoint; train it first, or name another run")
    raise DamagedError(f"{shown(run)}: no checkpoint can be used ({'; '.join(reasons[:3])})", "copy or train the run again")


def _reason(error: Exception) -> str:
    """What went wrong, without what to do: the program does it."""
    return str(getattr(error, "reason", error))


def best(run: Path) -> tuple[Checkpoint, list[str]]:
    """The best checkpoint, weights only, or else the newest one, and why: also where the best one has learned nothing, in a run
    that was not evaluated after step 0. Raises CheckpointError, as `newest_of` does."""
    instead: list[str] = []

    def read(path: Path) -> Checkpoint:
        progress = read_state(path).progress
        step, has_learned = progress.best_step, progress.evaluated or not progress.step
        named, reason = _best_path(path, step), f"{shown(run)}: the best checkpoint, of step {step}, is missing"
        reason += "; using the newest checkpoint instead"
        if named is not None and not has_learned:
            reason = f"{shown(path)}: this newest checkpoint is used, though its validation loss was not measured"
        elif named is not None:
            try:
                return load(named, training=False)
            except DamagedError as error:
                if named == path or not os.path.lexists(named):  # another process has found a better one, and removed it
                    raise
                reason = f"{error.reason}; using the newest checkpoint instead"
        newest_one = load(path, training=False)
        instead.extend([reason] * (step is not None))
        return newest_one

    found, skipped = newest_of(run, read)
    return found, [*instead, *skipped]


def _until(path: Path) -> list[Path]:
    """The checkpoints in the folder of the checkpoint `path`, oldest first, up to that one. Raises CheckpointError."""
    return [one for one in steps(path.parent) if _order(one) <= _order(path)]


def _best_path(last: Path, step: int | None) -> Path | None:
    """The checkpoint of this step, saved up to the checkpoint `last`; None if there is none. Raises CheckpointError."""
    return next((path for path in reversed(_until(last)) if _order(path)[0] == step), None)


def check_tensors(found: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], *, where: str) -> None:
    """Raise CheckpointError, naming the first one, unless `found`, of torch or numpy, are float32 tensors of these shapes."""
    have = {name: f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for name, tensor in found.items()}
    need = {name: f"float32 {list(shape)}" for name, shape in shapes.items()}
    wrong = [name for name in sorted(have.keys() | need.keys()) if have.get(name) != need.get(name)]
    if wrong:
        first = f"{wrong[0]:.80} is {have.get(wrong[0], 'missing')}, not {need.get(wrong[0], 'there')}"
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise DamagedError(f"{where}: holds the weights of another model ({first}{more})")


def check_weights(weights: Mapping[str, Any], state: SavedState, *, where: str) -> None:
    """Raise CheckpointError unless `weights` are those that model.py has for this state."""
    try:
        check_tensors(weights, state.weight_shapes(), where=where)
    except DamagedError:
        if state.model_source == model_source():
            raise
        raise OtherModelError(f"{where}: trained by another model.py, with other weights; {put_back(state)}") from None


def _order(path: Path) -> tuple[int, int]:
    """Step and attempt: the position of a checkpoint among those of its run."""
    match = STEP_NAME.fullmatch(path.name)
    assert match is not None, path
    step, attempt = match.groups()
    return int(step), int(attempt or 1)


def _free_name(run: Path, step: int) -> str:
    """That of a new checkpoint, which comes after all others of this step: a folder cannot be replaced atomically."""
    attempts = [0]
    with suppress(CheckpointError):  # the save will say what is wrong with the folder
        attempts += [attempt for at, attempt in map(_order, steps(run)) if at == step]
    return f"step-{step:08d}" + (f".{max(attempts) + 1}" if max(attempts) else "")


def file_pieces(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """A safetensors file of float32 tensors: the length of its JSON header as 8 bytes, little-endian, the header, each tensor.
    The writer of the library makes two copies of all tensors first."""
    import torch

    described, end = dict[str, Any]({"__metadata__": dict(metadata)}), 0
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
    digest = hashlib.sha256()

    def pieces() -> Iterator[bytes | memoryview]:
        for piece in file_pieces(tensors, {"format": "pt"}):
            digest.update(piece)
            yield piece

    write_pieces_synced(path, pieces())
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def load(path: Path, *, training: bool = True) -> Checkpoint:
    """The checkpoint in `path`, all of it checked; without `training`, only weights and state. Raises CheckpointError."""
    state, files = unseal(path / STATE)
    step = _order(path)[0] if STEP_NAME.fullmatch(path.name) else state.progress.step
    if state.progress.step != step:
        raise DamagedError(f"{shown(path / STATE)}: has step {state.progress.step:,}, but its folder is named {path.name:.40}")
    size = 4 * (state.parameters if state.model_source == model_source() else MAX_NUMBERS)  # bytes of the weights, at most
    weights = _unpack(path / WEIGHTS, files, limit=size + JSON_LIMIT)
    weights = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in weights.items()}
    check_weights(weights, state, where=shown(path / WEIGHTS))
    if training and not (path / TRAINING).exists() and [path] == steps(path.parent):
        what = "gone, and only the weights are left, so the run cannot be continued; begin a new one with "
        raise UnreadableError(f"{shown(path / TRAINING)}: {what}", Option("init_from", shown(path)))
    moments = _unpack(path / TRAINING, files, limit=TRAINING_LIMIT * size + JSON_LIMIT) if training else {}
    return Checkpoint(path, weights, moments, state)


def read_state(path: Path) -> SavedState:
    """The state in the checkpoint folder `path`. Raises CheckpointError."""
    return unseal(path / STATE)[0]


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
