"""Checkpoints: published whole or not at all, and checked to the last bit before they are believed.

    RUN/step-00000500/         (step-00000500.2 when a resumed run comes past the same step again)
        model.safetensors      the weights alone, readable by anyone
        training.safetensors   the optimizer's state
        state.json             step, config, vocabulary ..., and the size and SHA-256 of the two files above
    RUN/best.json              the name of the checkpoint with the lowest validation loss

The first line of a JSON file holds the SHA-256 of all the others (`tail -n +2 state.json | sha256sum`), so a flipped bit
shows wherever it falls. Checksums are against accidents; whoever wrote the folder can make them right. Against a hostile
folder stand bounds on everything that is read, formats that cannot hold code, and the check of every tensor against the model.

Writing follows the usual recipe for crash safety (write aside, fsync, rename, fsync the folder; "All File Systems Are Not
Created Equal", OSDI 2014). One process writes a run; any number may read it meanwhile.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from chargpt.terminal import UserError, shown

FORMAT = 1
WEIGHTS, TRAINING, STATE, BEST = "model.safetensors", "training.safetensors", "state.json", "best.json"
STEP_NAME = re.compile(r"step-([0-9]{8,15})(?:\.([0-9]{1,9}))?")
ASIDE_NAME = re.compile(r"\.(?:step-[0-9.]+|best\.json|config\.yaml|metrics\.jsonl)\.tmp-([0-9]{1,9})")
JSON_LIMIT = 8 << 20  # bytes, safetensors' header included; parsed, it takes 25 times as much. All characters of Unicode fit
TRAINING_LIMIT = 8  # times the weights; AdamW's two moments are 2

# From a checkpoint's state to tensors of the names, shapes and dtypes its weights must have; on the meta device they cost
# nothing. It sees what a stranger may have written, and what it answers bounds what is read: it refuses absurd sizes.
Expected = Callable[[dict[str, Any]], Mapping[str, Tensor]]


class CheckpointError(UserError):
    """A checkpoint that cannot be written, or cannot be trusted. The message names its path."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has passed every check, its tensors on the CPU."""

    path: Path
    step: int
    weights: dict[str, Tensor]
    training: dict[str, Tensor]  # empty when only the weights were asked for
    state: dict[str, Any]  # what was given to publish


def publish(
    run: Path, step: int, *, weights: Mapping[str, Tensor], training: Mapping[str, Tensor], state: Mapping[str, Any]
) -> Path:
    """Write a checkpoint of `run` and return its folder, which appears at once and complete, or not at all.

    `state` is plain JSON (no NaN, keys are strings). No existing checkpoint is touched. Raises CheckpointError if the
    tensors are not finite, or if the disk is full, read-only or gone.
    """
    path = _free_name(run, step)
    contents = {WEIGHTS: _pack(weights, path / WEIGHTS), TRAINING: _pack(training, path / TRAINING)}
    files = {name: _fingerprint(data) for name, data in contents.items()}
    contents[STATE] = _seal({"format": FORMAT, "step": step, "files": files, "state": dict(state)}, path / STATE)
    with _publishing(path, size=sum(map(len, contents.values()))) as aside:
        os.mkdir(aside)
        for name, data in contents.items():
            _write(aside / name, data)
        _sync_folder(aside)
    return path


def mark_best(path: Path, loss: float) -> None:
    """Name `path`, a published checkpoint, as the one with the lowest validation loss of its run."""
    target = path.parent / BEST
    data = _seal({"checkpoint": path.name, "val/loss": loss}, target)
    with _publishing(target, size=len(data)) as aside:
        _write(aside, data)


def prune(path: Path, keep: int) -> list[str]:
    """Remove older checkpoints of the run, now that `path` is published: the newest `keep` up to it and the best stay.

    What lies after `path` (damaged ones, which a resume has gone back behind) neither counts nor goes. Never raises; returns
    a line for each thing that went wrong.
    """
    assert keep >= 1
    problems = []
    try:
        best_name = _best_name(path.parent)
        older = [old for old in steps(path.parent) if _order(old) < _order(path)]
    except CheckpointError as error:
        return [f"no old checkpoint removed: {error}"]  # without knowing which is the best, none can go
    asides = []
    for old in older[: max(0, len(older) - (keep - 1))]:
        if old.name == best_name:
            continue
        try:
            os.rename(old, _aside(old))
            asides.append(_aside(old))
        except OSError as error:
            problems.append(f"{shown(old)}: not removed ({error.strerror}); remove it by hand")
    try:
        _sync_folder(path.parent)  # or a power cut might bring back a name whose files are gone
    except OSError as error:
        return [*problems, f"{shown(path.parent)}: old checkpoints not removed ({error.strerror}); resuming removes them"]
    for aside in asides:
        _discard(aside)
    return problems


def remove_orphans(run: Path) -> None:
    """Clear what writers that no longer live have left in `run`, as far as possible. Call it before the first publish."""
    for name in os.listdir(run):
        match = ASIDE_NAME.fullmatch(name)
        if match and not _is_another_process(int(match[1])):
            _discard(run / name)


def steps(run: Path) -> list[Path]:
    """The checkpoint folders of `run`, oldest first, none of them checked. Raises CheckpointError if `run` cannot be listed."""
    try:
        names = os.listdir(run)
    except OSError as error:
        raise CheckpointError(f"{shown(run)}: {error.strerror}; give the folder of a run") from error
    return sorted((run / name for name in names if STEP_NAME.fullmatch(name)), key=_order)


def load(path: Path, *, expected: Expected, training: bool = True) -> Checkpoint:
    """Read the checkpoint in the folder `path`; without `training`, only its weights.

    Raises CheckpointError unless the checksums are right, the weights are as `expected` says, and all is finite.
    """
    try:
        return _load(path, expected, training=training)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; use another checkpoint") from error


def newest(run: Path, *, expected: Expected, training: bool = True) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint of `run` that passes every check, and a line for each newer one that did not.

    Raises CheckpointError when there is none.
    """
    skipped = []
    for path in reversed(steps(run)):
        try:
            return _load(path, expected, training=training), skipped
        except CheckpointError as error:
            skipped.append(f"skipped {error}")
    if not skipped:
        raise CheckpointError(f"{shown(run)}: holds no checkpoint; train it first, or name another run")
    raise CheckpointError(f"{shown(run)}: no checkpoint can be used; {'; '.join(skipped[:3])}")


def best(run: Path, *, expected: Expected) -> tuple[Checkpoint, list[str]]:
    """The checkpoint with the lowest validation loss, weights only; failing that the newest, with lines that say why."""
    try:
        name = _best_name(run)
        if name:
            return _load(run / name, expected, training=False), []
        reason = f"{shown(run / BEST)}: missing"
    except CheckpointError as error:
        reason = str(error)
    checkpoint, skipped = newest(run, expected=expected, training=False)
    return checkpoint, [f"{reason}; taking the newest checkpoint instead", *skipped]


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, where: str) -> None:
    """Raise CheckpointError, naming the first few, if names, shapes or dtypes in `found` differ from `expected`."""

    def described(tensors: Mapping[str, Tensor], name: str) -> str:
        if name not in tensors:
            return "nothing"
        return f"{str(tensors[name].dtype).removeprefix('torch.')} {list(tensors[name].shape)}"

    different = [
        f"{name:.80} is {described(found, name)}, not {described(expected, name)}"
        for name in sorted(found.keys() | expected.keys())
        if described(found, name) != described(expected, name)
    ]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        raise CheckpointError(f"{where}: does not fit the model: {', '.join(different[:3])}{more}")


# --- names ---------------------------------------------------------------------------------------------------------------


def _order(path: Path) -> tuple[int, int]:
    """Step and attempt: where a checkpoint stands among those of its run."""
    step, attempt = STEP_NAME.fullmatch(path.name).groups()
    return int(step), int(attempt or 1)


def _free_name(run: Path, step: int) -> Path:
    """The folder for a new checkpoint. A step that exists gets a new name: a folder cannot be replaced at one stroke."""
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
    name = _unseal(path).get("checkpoint")
    if not isinstance(name, str) or not STEP_NAME.fullmatch(name):
        raise CheckpointError(f"{shown(path)}: names no checkpoint")
    return name


def _aside(path: Path) -> Path:
    """The hidden name beside `path` for what is being written or removed; the process id tells who does it."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def _is_another_process(pid: int) -> bool:
    """Whether a living process other than this one has the id `pid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and somebody else's
        return True
    return pid != os.getpid()


# --- writing -------------------------------------------------------------------------------------------------------------


@contextmanager
def _publishing(target: Path, *, size: int) -> Iterator[Path]:
    """A path to write to that becomes `target` when the block has ended well, and is cleared away when not."""
    aside = _aside(target)
    try:
        _discard(aside)
        yield aside
        os.replace(aside, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"{shown(target)}: not saved ({error.strerror}); it needs {size / 1e6:,.1f} MB in a folder that can be written, "
            "earlier checkpoints are untouched"
        ) from error
    finally:
        _discard(aside)


def _write(path: Path, data: bytes) -> None:
    """Write a new file through to the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(path: Path) -> None:
    """Write a folder's entries through to the disk: without it a power cut may undo a rename."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot; PostgreSQL's fsync_fname passes over it as well
            raise
    finally:
        os.close(folder)


def _discard(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.unlink(path)


def _seal(document: dict[str, Any], path: Path) -> bytes:
    """`document` as JSON whose first line is the checksum of the other lines."""
    body = json.dumps(document, indent=1, allow_nan=False).encode()[2:] + b"\n"  # the seal writes the brace and its newline
    if len(body) > JSON_LIMIT:
        raise CheckpointError(f"{shown(path)}: {len(body):,} bytes of JSON, more than {JSON_LIMIT:,}; use a smaller vocabulary")
    return _seal_line(body) + body


def _seal_line(body: bytes) -> bytes:
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode()


def _pack(tensors: Mapping[str, Tensor], path: Path) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    _check_finite(tensors, path)
    return safetensors.torch.save(tensors, {"format": "pt"})


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{shown(path)}: {name:.80} is not finite")


# --- reading: every CheckpointError here says what is wrong, and the callers above what to do -------------------------------


def _load(path: Path, expected: Expected, *, training: bool) -> Checkpoint:
    step, files, state = _read_state(path / STATE)
    try:
        shapes = expected(state)
        weight_bytes = sum(tensor.nbytes for tensor in shapes.values())
    except Exception as error:  # however a stranger's state fails to make sense, the answer is the same
        raise CheckpointError(f"{shown(path / STATE)}: describes no model of ours ({str(error):.200})") from error
    weights = _unpack(path / WEIGHTS, files, limit=weight_bytes + JSON_LIMIT)
    check_tensors(weights, shapes, where=shown(path / WEIGHTS))
    moments = _unpack(path / TRAINING, files, limit=TRAINING_LIMIT * weight_bytes + JSON_LIMIT) if training else {}
    return Checkpoint(path, step, weights, moments, state)


def _read(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes, read once so that what is checked is what is used."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{shown(path)}: not a regular file")
            if status.st_size > limit:
                raise CheckpointError(f"{shown(path)}: {status.st_size:,} bytes, far too many")
            return file.read(status.st_size)
    except OSError as error:
        raise CheckpointError(f"{shown(path)}: {error.strerror}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """So that neither a link to /dev/zero nor a pipe without a writer holds the reader."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _unseal(path: Path) -> dict[str, Any]:
    """Read what `_seal` wrote."""
    data = _read(path, limit=JSON_LIMIT + len(_seal_line(b"")))
    body = data[len(_seal_line(b"")) :]
    if data != _seal_line(body) + body:
        raise CheckpointError(f"{shown(path)}: damaged, its checksum differs")
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_finite)  # an object: it begins with the seal's brace
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{shown(path)}: not JSON of ours ({str(error):.200})") from error


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"the number {literal:.20}")
    return value


def _read_state(path: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Step, fingerprints of the tensor files and the caller's state from a state.json."""
    document = _unseal(path)
    if document.get("format") != FORMAT:
        raise CheckpointError(f"{shown(path)}: not in format {FORMAT}, the one that this version of chargpt reads")
    step, files, state = document.get("step"), document.get("files"), document.get("state")
    if type(step) is not int or not 0 <= step < 10**15 or not isinstance(files, dict) or not isinstance(state, dict):
        raise CheckpointError(f"{shown(path)}: step, files or state is not what it should be")
    return step, files, state


def _unpack(path: Path, files: dict[str, Any], *, limit: int) -> dict[str, Tensor]:
    """The tensors of a safetensors file that has the fingerprint it should have. safetensors itself checks no values."""
    data = _read(path, limit=limit)
    if files.get(path.name) != _fingerprint(data):
        raise CheckpointError(f"{shown(path)}: damaged, its checksum differs")
    try:
        tensors = safetensors.torch.load(data)
        _check_finite(tensors, path)
    except CheckpointError:
        raise
    except Exception as error:  # however a stranger's bytes fail to be tensors, the answer is the same
        raise CheckpointError(f"{shown(path)}: not a safetensors file of ours ({str(error):.200})") from error
    return tensors
