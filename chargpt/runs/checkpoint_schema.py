"""What a checkpoint holds beside its tensors: the only schema of state.json, read strictly, older formats included.

`FORMAT` grows by one whenever the schema changes, and a function in `MIGRATIONS` brings the older form to the next one.

The first line of such a file is the SHA-256 of all other lines (`tail -n +2 state.json | sha256sum`). It detects accidents: a
flipped bit is noticed wherever it is. A hostile writer can compute it too, so reading is bounded in size, in the kind of file
and in the numbers it may contain, and every value is checked.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chargpt.config import GONE, MAX_TEACHERS, RENAMED, Config, Settings, Source, TrainConfig, apply, to_dict
from chargpt.errors import UserError
from chargpt.runs.model_shape import check_size, parameter_count, weight_shapes
from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

FORMAT = 8
JSON_LIMIT = 8 << 20  # bytes; every character of Unicode fits as a vocabulary. Parsed JSON takes up to 25 times its size
NO_TEXT = "0" * 64  # the fingerprint of a run that was imported without a text
MAX_STEPS = 10**15  # what fits into the name of a checkpoint's folder
MAX_SECONDS = 1e12  # of a time limit
LARGEST_LOSS = 1e39  # nats per character; training computes losses in float32, whose range this is
MAX_ENTRIES = 100_000  # of a list
MAX_ENVIRONMENT = 100  # entries
MAX_TEXT_LENGTH = 10_000  # characters
MAX_SAMPLE = 100_000  # characters of a sample that is kept
SOURCES = [*Source][1:]  # what sets a setting that is no default
DEFAULTS = {f"{section}.{name}": value for section, values in to_dict(Config()).items() for name, value in values.items()}
SHAPE = [key for key in DEFAULTS if key.startswith("model.") and key != "model.dropout"]  # what the weights of a start decide


@dataclass(kw_only=True)
class Progress:
    """The progress of a run. Together with weights and optimizer state, everything that the rest of the run depends on."""

    step: int = 0  # steps taken
    first_step: int = 0  # the steps of the stages before this one
    seconds: float = 0.0  # that these steps took, without evaluations
    first_loss: float | None = None  # the validation loss before the first step
    evaluated: int | None = None  # the step of the last evaluation
    val_loss: float | None = None  # its result, nats per character
    best_step: int | None = None  # the step of the best checkpoint
    best_loss: float | None = None  # its validation loss
    best_sample: str = ""  # what it wrote; empty if it wrote none, or more than MAX_SAMPLE
    lowest_loss: float | None = None  # of all evaluations; with `checkpoint.best=last`, the best one may have a higher loss
    without_gain: int = 0  # evaluations in a row, at a falling learning rate, that brought no better loss
    loss_sum: float = 0.0  # of the training losses since the last log
    loss_count: int = 0
    train_loss: float | None = None  # the last mean of training losses that was logged
    skipped: list[int] = field(default_factory=list)  # steps whose loss was not finite; each one caused a rollback

    def record_evaluation(
        self, loss: float | None, *, sample: str = "", is_falling: bool = True, tolerance: float = 0.0
    ) -> None:
        """The validation loss of the current step is `loss`, and the model has written `sample`, empty for none.

        Without a validation split, the loss is None, and the newest step is the best one.

        `is_falling` if the learning rate has begun to fall. This step is the best one if its loss is lower than that of the
        best one before, or less than `tolerance` nats above the lowest one.
        """
        self.evaluated, self.val_loss = self.step, loss
        if loss is None:
            self.best_step, self.best_sample = self.step, sample if len(sample) <= MAX_SAMPLE else ""
            return
        if self.step == 0:
            self.first_loss = loss
        lowest, best = (math.inf if value is None else value for value in (self.lowest_loss, self.best_loss))
        if loss < max(best, lowest + tolerance):
            self.best_step, self.best_loss, self.without_gain = self.step, loss, 0
            self.best_sample = sample if len(sample) <= MAX_SAMPLE else ""
        elif is_falling:
            self.without_gain += 1
        self.lowest_loss = min(lowest, loss)

    def is_finished(self, train: TrainConfig) -> bool:
        """Whether a run has taken all its steps, or `train.patience` evaluations in a row did not improve the loss.

        At the peak of the rate, no evaluation counts: the falling rate lowers the loss, even if it rose before.
        """
        return self.step >= train.max_steps or 0 < train.patience <= self.without_gain

    def take_mean_loss(self) -> float:
        """The mean training loss since the last call, which becomes `train_loss`."""
        mean, self.loss_sum, self.loss_count = self.loss_sum / self.loss_count, 0.0, 0
        self.train_loss = mean
        return mean

    def copy(self) -> "Progress":
        """An independent copy."""
        return dataclasses.replace(self, skipped=list(self.skipped))


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """Everything in a state.json but the checksums of the tensor files."""

    settings: Settings
    tokenizer: Tokenizer
    texts: list[str]  # what train.py was given, paths made absolute; `-` is standard input
    fingerprint: str  # of the encoded text, SHA-256
    progress: Progress
    environment: dict[str, str | int | bool]  # what must be equal for a resumed run to be equal to the bit
    seconds_left: float | None = None  # of this model; None where its length is known
    stage: int = 1  # which of the models of a run this is; 0: a run of an earlier version that another one was to follow

    @property
    def config(self) -> Config:
        return self.settings.values

    @property
    def is_teacher(self) -> bool:
        """Whether it is known that another model of the run will learn from this one."""
        return self.stage <= self.config.train.teachers and not self.config.train.student_gap

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the newest format."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        settings = plain.pop("settings")
        plain |= {"config": to_dict(settings.values), "sources": dict(settings.sources), "reasons": dict(settings.reasons)}
        return {**plain, "tokenizer": self.tokenizer.to_json(), "progress": dataclasses.asdict(self.progress)}

    @classmethod
    def from_json(cls, data: object, *, written_as: object = FORMAT) -> "SavedState":
        """The state that `to_json` wrote in the format `written_as`. Raises ValueError for everything else."""
        if not isinstance(written_as, int) or isinstance(written_as, bool) or not 1 <= written_as <= FORMAT:
            raise ValueError(f"format {str(written_as):.20}, and this version of chargpt reads 1 to {FORMAT}")
        if not isinstance(data, dict):
            raise ValueError("state: not an object")
        for older in range(written_as, FORMAT):
            data = MIGRATIONS[older](dict(data))
        keys = {field.name for field in dataclasses.fields(cls)} - {"settings"} | {"config", "sources", "reasons"}
        state = _object(data, "state", keys)
        if not isinstance(state["config"], dict):
            raise ValueError("config: not an object")
        config, tokenizer = apply(Config(), state["config"], where="settings"), Tokenizer.from_json(state["tokenizer"])
        check_size(config.model, tokenizer.vocab_size)
        left = state["seconds_left"]
        return cls(
            settings=Settings(config, _by_setting(state["sources"], "sources"), _by_setting(state["reasons"], "reasons")),
            tokenizer=tokenizer,
            texts=[_text(text, "texts") for text in _list(state["texts"], "texts")],
            fingerprint=_fingerprint(state["fingerprint"]),
            progress=_progress(state["progress"]),
            environment=_environment(state["environment"]),
            seconds_left=None if left is None else _number(left, "seconds_left", most=MAX_SECONDS),
            stage=_whole(state["stage"], "stage", most=MAX_TEACHERS + 1),
        )

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes that the weights must have; all are float32."""
        return weight_shapes(self.config.model, self.tokenizer.vocab_size)

    @property
    def parameters(self) -> int:
        """The numbers in these weights."""
        return parameter_count(self.config.model, self.tokenizer.vocab_size)


def _from_format_1(data: dict[str, Any]) -> dict[str, Any]:
    """Format 1 repeated the last validation loss for sample.py, and had no time limit."""
    data.pop("val_loss", None)
    return {**data, "seconds_left": None}


def _from_format_3(data: dict[str, Any]) -> dict[str, Any]:
    """Format 3 did not count the evaluations without a better loss, so a run that patience had ended goes on if resumed."""
    if isinstance(data.get("progress"), dict):
        data["progress"] = {"without_gain": 0, **data["progress"]}
    return data


def _from_format_4(data: dict[str, Any]) -> dict[str, Any]:
    """In format 4, torch computed every step."""
    config, environment = data.get("config"), data.get("environment")
    if isinstance(config, dict) and isinstance(config.get("runtime", {}), dict):
        data["config"] = {**config, "runtime": {**config.get("runtime", {}), "step": "torch"}}
    if isinstance(environment, dict) and environment:
        data["environment"] = {**environment, "step": "torch"}
    return data


def _from_format_5(data: dict[str, Any]) -> dict[str, Any]:
    """Format 5 compared each loss with that of the best checkpoint before, even if an earlier one was lower."""
    if isinstance(data.get("progress"), dict):
        data["progress"] = {"lowest_loss": data["progress"].get("best_loss"), **data["progress"]}
    return data


def _from_format_6(data: dict[str, Any]) -> dict[str, Any]:
    """Format 6 did not say who had set a setting, nor what a run had reached but its losses; every run was of one stage.

    A run that cut its batch into several `train.chunks` goes on, but not with the same bits; one chunk is the whole batch.
    """
    config, environment, progress = data.get("config"), data.get("environment"), data.get("progress")
    if isinstance(config, dict):
        train = {key: value for key, value in (config.get("train") or {}).items() if key != "teachers"}  # named, later
        read = to_dict(apply(Config(), {**config, "train": train}, where="settings"))
        values = {f"{section}.{name}": value for section, group in read.items() for name, value in group.items()}
        data["sources"] = {key: "user" for key, value in values.items() if value != DEFAULTS[key]}
        data["sources"] |= dict.fromkeys(SHAPE, "run") if values["train.start"] else {}
        chunks = train.get("chunks", 1)
        if isinstance(environment, dict) and chunks not in (0, 1) and "processes" not in environment:
            data["environment"] = {**environment, "processes": f"with train.chunks={chunks!s:.10}"}
    if isinstance(progress, dict):
        reached = {"first_step": 0, "seconds": 0.0, "first_loss": None, "best_sample": "", "train_loss": None}
        data["progress"] = {**reached, **progress}
    return {**data, "stage": 1}


def _from_format_7(data: dict[str, Any]) -> dict[str, Any]:
    """In format 7, several models were several runs, and train.teachers named the runs from which one learned.

    A run that learns from others goes on with its copies of them, which its environment names.
    """
    config, sources, train = data.get("config"), data.get("sources"), None
    if isinstance(config, dict) and isinstance(config.get("train"), dict):
        train = {**config["train"]}
        data["config"] = {**config, "train": train}
    if train is not None:
        named, was_followed = train.pop("teachers", ""), train.get("student_minutes", 0)
        has_copies = "teachers" in (data.get("environment") or {})
        data["stage"] = 0 if was_followed or (named and not has_copies) else data.get("stage")
    if isinstance(sources, dict):
        data["sources"] = {key: source for key, source in sources.items() if key != "train.teachers"}
    return {"reasons": {}, **data}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_format_1,
    2: lambda data: data,  # it knew one process
    3: _from_format_3,
    4: _from_format_4,
    5: _from_format_5,
    6: _from_format_6,
    7: _from_format_7,
}


def _object(value: object, name: str, keys: set[str]) -> dict[str, Any]:
    """`value`, a JSON object with exactly these keys."""
    if isinstance(value, dict) and value.keys() == keys:
        return value
    raise ValueError(f"{name}: not an object whose keys are {', '.join(sorted(keys))}")


def _number(value: object, name: str, *, most: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
        return float(value)
    raise ValueError(f"{name}: not a number from 0 to {most:g}")


def _whole(value: object, name: str, *, most: int, least: int = 0) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ValueError(f"{name}: not a whole number from {least} to {most}")


def _list(value: object, name: str) -> list[Any]:
    if isinstance(value, list) and len(value) <= MAX_ENTRIES:
        return value
    raise ValueError(f"{name}: not a list of at most {MAX_ENTRIES:,} entries")


def _text(value: object, name: str) -> str:
    if isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and "\0" not in value:
        return value
    raise ValueError(f"{name}: not a text of at most {MAX_TEXT_LENGTH:,} characters")


def _fingerprint(value: object) -> str:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value
    raise ValueError("fingerprint: not a SHA-256")


def _environment(value: object) -> dict[str, str | int | bool]:
    if not isinstance(value, dict) or len(value) > MAX_ENVIRONMENT:
        raise ValueError(f"environment: not an object of at most {MAX_ENVIRONMENT} entries")
    return {
        _text(key, "environment"): item if type(item) in (int, bool) else _text(item, "environment")
        for key, item in value.items()
    }


def _by_setting(value: object, name: str) -> dict[str, Any]:
    """Who set each setting that is no default, or why it was chosen, by the names that settings have now."""
    if isinstance(value, dict):
        found = {RENAMED.get(str(key), str(key)): entry for key, entry in value.items() if key not in GONE}
        if found.keys() <= DEFAULTS.keys():
            if name == "reasons":
                return {key: _text(entry, name) for key, entry in found.items()}
            if all(entry in SOURCES for entry in found.values()):
                return {key: Source(entry) for key, entry in found.items()}
    raise ValueError(f"{name}: not an object of settings")


def _progress(value: object) -> Progress:
    entries = _object(value, "progress", {field.name for field in dataclasses.fields(Progress)})
    step = _whole(entries["step"], "progress.step", most=MAX_STEPS - 1)
    loss_count = _whole(entries["loss_count"], "progress.loss_count", most=step)
    progress = Progress(
        step=step,
        without_gain=_whole(entries["without_gain"], "progress.without_gain", most=step),
        loss_count=loss_count,
        loss_sum=_number(entries["loss_sum"], "progress.loss_sum", most=LARGEST_LOSS * (1 + loss_count)),
        first_step=_whole(entries["first_step"], "progress.first_step", most=MAX_STEPS - 1),
        seconds=_number(entries["seconds"], "progress.seconds", most=MAX_SECONDS),
        train_loss=_loss(entries["train_loss"], "progress.train_loss"),
        skipped=[_whole(entry, "progress.skipped", most=MAX_STEPS) for entry in _list(entries["skipped"], "progress.skipped")],
    )
    evaluation = [entries[name] for name in ("evaluated", "val_loss", "best_step", "best_loss", "lowest_loss", "first_loss")]
    if all(entry is None for entry in evaluation) and entries["best_sample"] == "":
        return progress
    evaluated = _whole(entries["evaluated"], "progress.evaluated", most=step)
    if all(entries[name] is None for name in ("val_loss", "best_loss", "lowest_loss", "first_loss")):
        best_step = _whole(entries["best_step"], "progress.best_step", most=evaluated)
        sample = _sample(entries["best_sample"])
        return dataclasses.replace(progress, evaluated=evaluated, best_step=best_step, best_sample=sample)
    val_loss = _number(entries["val_loss"], "progress.val_loss", most=LARGEST_LOSS)
    best_loss = _number(entries["best_loss"], "progress.best_loss", most=val_loss)
    return dataclasses.replace(
        progress,
        evaluated=evaluated,
        val_loss=val_loss,
        best_step=_whole(entries["best_step"], "progress.best_step", most=evaluated),
        best_loss=best_loss,
        best_sample=_sample(entries["best_sample"]),
        lowest_loss=_number(entries["lowest_loss"], "progress.lowest_loss", most=best_loss),
        first_loss=_loss(entries["first_loss"], "progress.first_loss"),
    )


def _sample(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_SAMPLE:
        return value
    raise ValueError(f"progress.best_sample: not a text of at most {MAX_SAMPLE:,} characters")


def _loss(value: object, name: str) -> float | None:
    return None if value is None else _number(value, name, most=LARGEST_LOSS)


class CheckpointError(UserError):
    """A checkpoint that cannot be written or cannot be trusted. The message names its path."""


class UnreadableError(CheckpointError):
    """A checkpoint that this user may not read. It may be whole, so nothing is used in its place."""


def seal(document: dict[str, Any], path: Path) -> bytes:
    """The content of a sealed file. Raises CheckpointError, naming `path`, when it is too large to be read again."""
    body = json.dumps(document, indent=1, allow_nan=False).encode()[2:] + b"\n"  # the first line holds the opening brace
    if len(body) > JSON_LIMIT:
        raise CheckpointError(
            f"{shown(path)}: {len(body):,} bytes of settings and characters, more than {JSON_LIMIT:,}; set data.max_vocab"
        )
    return _first_line(body) + body


def unseal(path: Path) -> dict[str, Any]:
    """The document in a sealed file, without its checksum. Raises CheckpointError."""
    data = read_bounded(path, limit=JSON_LIMIT + len(_first_line(b"")))
    body = data[len(_first_line(b"")) :]
    if data != _first_line(body) + body:
        raise CheckpointError(f"{shown(path)}: damaged, its checksum differs")
    try:
        document = json.loads(data, parse_float=_finite, parse_constant=_finite)  # an object: the first line opens it
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{shown(path)}: not valid JSON ({str(error):.200})") from error
    del document["sha256"]
    return document


def read_bounded(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. It is read once, so what is checked is what is used.

    Raises CheckpointError; UnreadableError if this user may not read the file.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{shown(path)}: not a regular file")
            if status.st_size > limit:
                raise CheckpointError(f"{shown(path)}: {status.st_size:,} bytes, more than expected")
            return file.read(status.st_size)
    except OSError as error:
        if isinstance(error, PermissionError) and not os.path.isdir(path):  # Windows opens no folder
            what_to_do = "make it readable for this user, for example with chmod u+r, or ask its owner"
            raise UnreadableError(f"{shown(path)}: {error.strerror}; {what_to_do}") from error
        raise CheckpointError(f"{shown(path)}: {error.strerror}") from error


def _first_line(body: bytes) -> bytes:
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode()


def _open_without_waiting(path: str, flags: int) -> int:
    """Neither a link to /dev/zero nor a pipe without a writer may block the reader. Windows has neither flag."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"the number {literal:.20}")
    return value
