"""What a checkpoint holds beside its tensors: the only schema of state.json, read strictly.

The schema is the types of the fields of SavedState and Progress. `FORMAT` grows by one whenever it changes.

The first line of such a file is the SHA-256 of all other lines (`tail -n +2 state.json | sha256sum`). It detects accidents: a
flipped bit is noticed wherever it is. A hostile writer can compute it too, so reading is bounded in size, in the kind of file
and in the numbers it may contain, and every value is checked.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import stat
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chargpt.config import Config, ModelConfig
from chargpt.errors import Damaged, UserError
from chargpt.formatting import shown
from chargpt.runs.stage import MAX_SAMPLE, Progress, Stage, as_trained
from chargpt.settings import KEYS, Settings, Source, apply, flat
from chargpt.standard import UNCHANGED, is_outdated, is_standard, model_source
from chargpt.standard_model import standard_shapes
from chargpt.text.growth import Growth
from chargpt.text.tokenizer import Tokenizer

# Of the largest model that a checkpoint may describe. Training refuses larger ones too, so that every checkpoint can be read.
MAX_LAYERS = 1000
MAX_POSITIONS = 1 << 27  # numbers in a table of positions
MAX_NUMBERS = 1 << 28
MAX_CACHED = 1 << 30  # keys and values of a full block, for one text; 4 GiB
FORMAT = 13
OLDEST = 9  # the first format that every later version reads
LAST_READER = "44363133"  # the last commit that reads older ones
# For each format since: what it added to a state, and what stands for it in a run of an older one. 12 writes a growth in short.
ADDED: dict[int, Any] = {10: {"growth": None}, 11: {"progress": {"temperature": 1.0}}, 12: {}, 13: {"stage": {"changed": 0}}}
JSON_LIMIT = 8 << 20  # bytes; every character of Unicode fits as a vocabulary. Parsed JSON takes up to 25 times its size
NO_TEXT = "0" * 64  # the fingerprint of a run that was imported without a text
MAX_STEPS = 10**15  # what fits into the name of a checkpoint's folder; larger whole numbers are not read
LARGEST = 1e45  # the same of other numbers: a sum of many losses, which training computes in float32
# Neither a link to /dev/zero nor a pipe without a writer may block a reader. Windows has neither flag.
WITHOUT_WAITING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# What a value of these types may be, beside its type.
BOUNDS: dict[type, Callable[[Any], bool]] = {
    int: lambda number: 0 <= number < MAX_STEPS,
    float: lambda number: 0 <= number <= LARGEST,
    str: lambda text: len(text) <= MAX_SAMPLE,
}
# Settings that say nothing of what is learned: the machine, where something is, how often is logged, measured and saved.
OTHERS = ("runtime.", "checkpoint.", "data.cache", "data.val_text", "train.log_", "train.eval_", "train.sample_length")
SETTINGS = {"config": "values", "sources": "sources", "reasons": "reasons"}  # entries of a state, and fields of its `settings`


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """Everything in a state.json but the checksums of the tensor files."""

    settings: Settings
    tokenizer: Tokenizer
    texts: list[str]  # what train.py was given, paths made absolute; `-` is standard input
    fingerprint: str  # of the encoded text, SHA-256
    progress: Progress
    environment: dict[str, str | int | bool]  # what must be equal for a resumed run to be equal to the bit
    stage: Stage
    model_source: str  # the SHA-256 of the model.py that has trained it
    seconds_left: float | None = None  # of this model; None where its length is known
    growth: Growth | None = None  # of its text, if that goes on from others
    model_loss: float | None = None  # what that one makes of these weights: see `model_loss` of standard.py

    @property
    def config(self) -> Config:
        return self.settings.values

    @property
    def as_trained(self) -> Config:
        """The settings with which another run trains as this one does."""
        return as_trained(self.config, self.stage)

    @property
    def is_finished(self) -> bool:
        """Whether the training of this model has ended."""
        return self.progress.is_finished(self.stage.length, patience=self.config.train.patience)

    @property
    def is_possible(self) -> bool:
        """Whether a run can have such texts, sums and sources."""
        is_known = {*self.settings.sources, *self.settings.reasons} <= set(KEYS)
        has_sums = all(re.fullmatch("[0-9a-f]{64}", one) for one in (self.fingerprint, self.model_source))
        return is_known and has_sums and not any("\0" in text for text in self.texts)

    def to_json(self) -> dict[str, Any]:
        """What json.dumps takes, in the format of now: the fields, with those of `settings` beside them."""
        others = {"tokenizer": self.tokenizer.to_json(), "growth": self.growth and self.growth.to_json()}
        plain = dataclasses.asdict(dataclasses.replace(self, growth=None)) | others
        settings = plain.pop("settings")
        return plain | {key: settings[name] for key, name in SETTINGS.items()}

    @classmethod
    def from_json(cls, data: object) -> "SavedState":
        """The state that `to_json` wrote. Raises ValueError for everything else."""
        found = dict(data) if isinstance(data, dict) else {}
        settings = {name: found.pop(key) for key, name in SETTINGS.items() if key in found}
        state: SavedState = _read(cls, found | {"settings": settings}, "state")
        check_size(state.config.model, state.tokenizer.vocab_size)
        return state

    @property
    def group(self) -> str:
        """The same for runs that differ by their seed alone: on one text, from one start, of one shape, with equal given
        settings. What the program chose may differ with the speed of the machine."""
        settings = flat(self.config)
        compared = {key: value for key, value in settings.items() if key.startswith("model.") or self.settings.is_given(key)}
        compared = {key: value for key, value in compared.items() if not key.startswith(("train.seed", *OTHERS))}
        known = [self.fingerprint, str(self.stage.start or ""), self.stage.models.count, compared]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def text_names(self) -> list[str]:
        """What it was trained on, without folders: a name may be shown to others."""
        from chargpt.text.source import DEFAULT  # reading a checkpoint needs no sources

        if not self.texts:
            return ["unknown (imported)" if self.fingerprint == NO_TEXT else DEFAULT]
        return ["standard input" if text == "-" else Path(text).name or text for text in self.texts]

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes that the weights must have; all are float32."""
        return weight_shapes(self.config.model, self.tokenizer.vocab_size)

    @property
    def parameters(self) -> int:
        """The numbers in these weights."""
        return parameter_count(self.config.model, self.tokenizer.vocab_size)


def _read(hint: Any, value: Any, name: str) -> Any:
    """`value`, from JSON, as the type `hint` of a field. Raises ValueError for another type, and for what no run has."""
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Config:
        return apply(Config(), _read(dict, value, name), where=name)
    if kind in (Tokenizer, Growth) and value is not None:
        return kind.from_json(value)
    if kind is Source:
        return Source(value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{name}: not an object whose keys are {', '.join(sorted(hints))}")
        found = hint(**{key: _read(hints[key], entry, f"{name}.{key}") for key, entry in value.items()})
        if not getattr(found, "is_possible", True):
            raise ValueError(f"{name}: not what any run has")
        return found
    if kind is types.UnionType:
        for part in parts:
            with contextlib.suppress(ValueError):
                return _read(part, value, name)
    elif kind is list and isinstance(value, list):
        return [_read(parts[0], entry, name) for entry in value]
    elif kind in (dict, Mapping) and parts and isinstance(value, dict):
        return {_read(parts[0], key, name): _read(parts[1], entry, name) for key, entry in value.items()}
    elif type(value) in ((int, float) if kind is float else (kind,)) and BOUNDS.get(kind, lambda _: True)(value):
        return float(value) if kind is float else value
    raise ValueError(f"{name}: not of the type {hint}, or too large")


SAME_LOSS = 1e-4  # nats; devices and threads differ by some 1e-6


def what_changed(state: SavedState, loss: Callable[[], float | None]) -> str:
    """A warning if these weights have another `model_loss` now (`loss`) than when model.py trained them; else empty."""
    before, test = state.model_loss, ""
    if before is None:  # of a page, which computes the standard model
        is_same = state.model_source != UNCHANGED or is_standard(state.config.model)
    elif not (is_same := state.model_source == model_source() == UNCHANGED):
        now = loss()
        is_same = now is not None and abs(now - before) <= SAME_LOSS
        test = f" (the loss on a test is {'not finite' if now is None else f'{now:.4f}'}, and was {before:.4f})"
    what = f"model.py computes something else with these weights than the one that trained them{test}"
    return "" if is_same else f"{what}; {put_back(state)}"


def put_back(state: SavedState) -> str:
    """What to do for a run of another model.py."""
    if is_outdated(state.model_source):
        return "the file is right, but has changed since this process began: start it again (in a notebook: restart the kernel)"
    return "for this run, put that file back"


class CheckpointError(UserError):
    """A checkpoint that cannot be trusted. The message names its path."""


class DamagedError(CheckpointError, Damaged):
    """A file of a checkpoint that is damaged, or not one. `reason` names it, and is the message without what to do."""

    def __init__(self, reason: str, what_to_do: str = "use another checkpoint, or copy this one again") -> None:
        super().__init__(f"{reason}; {what_to_do}")
        self.reason = reason


class UnreadableError(CheckpointError):
    """A checkpoint that this user, or this version, may not read. It may be whole, so nothing is used in its place."""


class OtherModelError(UnreadableError):
    """A checkpoint with weights that model.py does not have, or not any more."""


def check_format(written_as: object, path: Path) -> None:
    """Raise CheckpointError unless this version reads the format of the file `path`."""
    if type(written_as) is not int or written_as < 1:
        raise DamagedError(f"{shown(path)}: damaged, it names no format")
    if written_as < OLDEST:
        what = f"format {written_as}, of a version before the first release; the last commit that reads it is {LAST_READER}"
        raise UnreadableError(f"{shown(path)}: {what}")
    if written_as > FORMAT:
        raise UnreadableError(f"{shown(path)}: of a later format than {FORMAT}, which this version reads; update the program")


def seal(state: SavedState, files: Mapping[str, Any], path: Path) -> bytes:
    """The content of a state.json: the state, and sums of the files beside it. Raises CheckpointError if it is too large."""
    document = {"format": FORMAT, "files": files, "state": state.to_json()}
    body = json.dumps(document, indent=1, allow_nan=False).encode()[2:] + b"\n"  # the first line holds the opening brace
    if len(body) > JSON_LIMIT:
        raise CheckpointError(f"{shown(path)}: its list of texts is too long, {len(body):,} bytes; give one folder")
    return _first_line(body) + body


def unseal(path: Path) -> tuple[SavedState, dict[str, Any]]:
    """What `seal` was given, from the file `path`. Raises CheckpointError."""
    data = read_bounded(path, limit=JSON_LIMIT + len(_first_line(b"")))
    body = data[len(_first_line(b"")) :]
    if data != _first_line(body) + body:
        raise DamagedError(f"{shown(path)}: damaged, its checksum differs")
    try:
        document = json.loads(data, parse_float=_finite, parse_constant=_finite)  # an object: the first line opens it
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{shown(path)}: damaged, not valid JSON ({str(error):.200})") from error
    check_format(document.get("format"), path)
    older = [entries for number, entries in ADDED.items() if document["format"] < number]
    try:
        state = SavedState.from_json(functools.reduce(_with, older, document.get("state")))
    except Exception as error:  # any kind of invalid state is reported in the same way
        raise DamagedError(f"{shown(path)}: cannot be used ({str(error):.200})") from error
    if not isinstance(document.get("files"), dict):
        raise DamagedError(f"{shown(path)}: damaged, it names no files")
    return state, document["files"]


def _with(found: Any, added: Any) -> Any:
    """What was `found` in a file, with the entries `added` since, of objects inside it too."""
    if not isinstance(added, dict):
        return added
    return found | {key: _with(found.get(key, {}), value) for key, value in added.items()}


def read_bounded(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes, read once: what is checked is what is used. Raises CheckpointError,
    and UnreadableError if this user may not read it."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | WITHOUT_WAITING)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DamagedError(f"{shown(path)}: damaged, it is no file")
            if status.st_size > limit:
                raise DamagedError(f"{shown(path)}: damaged, {status.st_size:,} bytes is too large for this file")
            return file.read(status.st_size)
    except OSError as error:
        if isinstance(error, PermissionError) and not os.path.isdir(path):  # Windows opens no folder
            what_to_do = "make it readable for this user, for example with chmod u+r, or ask its owner"
            raise UnreadableError(f"{shown(path)}: {error.strerror}; {what_to_do}") from error
        raise DamagedError(f"{shown(path)}: {error.strerror}") from error


def _first_line(body: bytes) -> bytes:
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode()


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"the number {literal:.20}")
    return value


def check_size(shape: ModelConfig, vocab_size: int) -> None:
    """Raise UserError for a model larger than any run may be. No model is made for it."""
    layers, positions = min(shape.n_layer, MAX_LAYERS), shape.block_size * shape.n_embd
    numbers = shape.n_embd * (12 * layers * shape.n_embd + vocab_size) + positions  # a standard model has about as many
    cached = 2 * shape.n_layer * positions
    sizes = {"layers": (shape.n_layer, MAX_LAYERS), "weights": (numbers, MAX_NUMBERS)}
    sizes |= {"numbers for positions": (positions, MAX_POSITIONS), "numbers in memory": (cached, MAX_CACHED)}
    for what, (count, most) in sizes.items():
        if count > most:
            advice = "use a model with a smaller n_layer, n_embd or block_size"
            raise UserError(f"model: too large, with {count:,} {what} (at most {most:,}); {advice}")


def weight_shapes(shape: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights, all float32, of model.py, which is not asked if it is the standard one."""
    return standard_shapes(shape, vocab_size) if is_standard(shape) else _shapes_of_module(shape, vocab_size)[0]


def parameter_count(shape: ModelConfig, vocab_size: int) -> int:
    """The numbers that a model learns; it is not made, or not initialised, as in `weight_shapes`."""
    if is_standard(shape):
        return sum(map(math.prod, standard_shapes(shape, vocab_size).values()))
    return _shapes_of_module(shape, vocab_size)[1]


def _shapes_of_module(shape: ModelConfig, vocab_size: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """What `state_dict` of model.py's GPT holds, and the number of its parameters."""
    from chargpt.runs.blank_model import blank_model

    gpt = blank_model(shape, vocab_size)
    return {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()}, sum(p.numel() for p in gpt.parameters())
