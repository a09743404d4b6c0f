"""What a checkpoint holds beside its tensors: the only schema of state.json, read strictly, older formats included.

`FORMAT` grows by one whenever the schema changes, and a function in `MIGRATIONS` brings the older form to the next one. Every
value is checked, because anybody may have written the file.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from chargpt.config import Config, apply, to_dict
from chargpt.runs.model_shape import blank_model, check_size
from chargpt.text.tokenizer import Tokenizer

FORMAT = 4
NO_TEXT = "0" * 64  # the fingerprint of a run that was imported without a text
MAX_STEPS = 10**15  # what fits into the name of a checkpoint's folder
LARGEST_LOSS = 1e39  # nats per character; training computes losses in float32, whose range this is
MAX_ENTRIES, MAX_TEXT_LENGTH = 100_000, 10_000  # of lists, and of texts in them


@dataclass(kw_only=True)
class Progress:
    """The progress of a run. Together with weights and optimizer state, everything that the rest of the run depends on."""

    step: int = 0  # steps taken
    evaluated: int | None = None  # the step of the last evaluation
    val_loss: float | None = None  # its result, nats per character
    best_loss: float | None = None
    best_step: int | None = None
    without_gain: int = 0  # evaluations in a row, at a falling learning rate, that brought no better loss
    loss_sum: float = 0.0  # of the training losses since the last log
    loss_count: int = 0
    skipped: list[int] = field(default_factory=list)  # steps whose loss was not finite; each one caused a rollback

    def record_evaluation(self, loss: float, *, is_falling: bool = True) -> None:
        """The validation loss of the current step is `loss`; `is_falling` if the learning rate has begun to fall."""
        self.evaluated, self.val_loss = self.step, loss
        if self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.best_step, self.without_gain = loss, self.step, 0
        elif is_falling:
            self.without_gain += 1

    def take_mean_loss(self) -> float:
        """The mean training loss since the last call."""
        mean, self.loss_sum, self.loss_count = self.loss_sum / self.loss_count, 0.0, 0
        return mean

    def copy(self) -> "Progress":
        """An independent copy."""
        return dataclasses.replace(self, skipped=list(self.skipped))


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """Everything in a state.json but the checksums of the tensor files."""

    config: Config
    tokenizer: Tokenizer
    texts: list[str]  # what train.py was given, paths made absolute; `-` is standard input
    fingerprint: str  # of the encoded text, SHA-256
    progress: Progress
    environment: dict[str, str | int | bool]  # what must be equal for a resumed run to be equal to the bit
    seconds_left: float | None = None  # of --minutes; None for a run without a time limit

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the newest format."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain["config"], plain["tokenizer"] = to_dict(self.config), self.tokenizer.to_json()
        return {**plain, "progress": dataclasses.asdict(self.progress)}

    @classmethod
    def from_json(cls, data: object, *, format: int) -> "SavedState":
        """The state that `to_json` wrote in `format`. Raises ValueError for everything else."""
        if type(format) is not int or not 1 <= format <= FORMAT:
            raise ValueError(f"format {str(format):.20}, and this version of chargpt reads 1 to {FORMAT}")
        if not isinstance(data, dict):
            raise ValueError("no state")
        for older in range(format, FORMAT):
            data = MIGRATIONS[older](dict(data))
        names = {field.name for field in dataclasses.fields(cls)}
        _require(data.keys() == names, "state", f"its keys are not {', '.join(sorted(names))}")
        _require(isinstance(data["config"], dict), "config", "not an object")
        config, tokenizer = apply(Config(), data["config"], where="settings"), Tokenizer.from_json(data["tokenizer"])
        check_size(config.model, tokenizer.vocab_size)
        return cls(
            config=config,
            tokenizer=tokenizer,
            texts=_texts(data["texts"]),
            fingerprint=_fingerprint(data["fingerprint"]),
            progress=_progress(data["progress"]),
            environment=_environment(data["environment"]),
            seconds_left=_number(data["seconds_left"], "seconds_left", most=1e12, optional=True),
        )

    def expected_weights(self) -> Mapping[str, Tensor]:
        """Tensors of the names, shapes and dtypes that the weights must have; their values mean nothing."""
        return blank_model(self.config.model, self.tokenizer.vocab_size).state_dict()


def _from_format_1(data: dict[str, Any]) -> dict[str, Any]:
    """Format 1 repeated the last validation loss for sample.py, and had no time limit."""
    data.pop("val_loss", None)
    return {**data, "seconds_left": None}


def _from_format_2(data: dict[str, Any]) -> dict[str, Any]:
    """Format 2 knew one process, whose batch is one chunk."""
    config = data.get("config")
    if isinstance(config, dict) and isinstance(config.get("train"), dict):
        data["config"] = {**config, "train": {**config["train"], "chunks": 1}}
    return data


def _from_format_3(data: dict[str, Any]) -> dict[str, Any]:
    """Format 3 did not count the evaluations without a better loss, so a run that patience had ended goes on if resumed."""
    if isinstance(data.get("progress"), dict):
        data["progress"] = {"without_gain": 0, **data["progress"]}
    return data


MIGRATIONS = {1: _from_format_1, 2: _from_format_2, 3: _from_format_3}


def _require(ok: bool, name: str, problem: str) -> None:
    if not ok:
        raise ValueError(f"{name}: {problem}")


def _number(value: object, name: str, *, most: float, optional: bool = False) -> float | None:
    if value is None and optional:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _require(is_number and 0 <= value <= most, name, f"not a number from 0 to {most:g}")
    return float(value)


def _whole(value: object, name: str, *, most: int, optional: bool = False) -> int | None:
    if value is None and optional:
        return None
    _require(type(value) is int and 0 <= value <= most, name, f"not a whole number from 0 to {most}")
    return value


def _texts(value: object) -> list[str]:
    is_list = isinstance(value, list) and len(value) <= MAX_ENTRIES
    _require(is_list and all(_is_text(text) and "\0" not in text for text in value), "texts", "not a list of names")
    return value


def _fingerprint(value: object) -> str:
    _require(isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None, "fingerprint", "not a SHA-256")
    return value


def _environment(value: object) -> dict[str, str | int | bool]:
    ok = isinstance(value, dict) and len(value) <= 100
    ok = ok and all(_is_text(key) and (_is_text(item) or type(item) in (int, bool)) for key, item in value.items())
    _require(ok, "environment", "not an object of texts and numbers")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH


def _progress(value: object) -> Progress:
    names = {field.name for field in dataclasses.fields(Progress)}
    _require(isinstance(value, dict) and value.keys() == names, "progress", "not that of a run")
    step = _whole(value["step"], "progress.step", most=MAX_STEPS - 1)
    evaluated = _whole(value["evaluated"], "progress.evaluated", most=step, optional=True)
    best_step = _whole(value["best_step"], "progress.best_step", most=step if evaluated is None else evaluated, optional=True)
    losses = {
        name: _number(value[name], f"progress.{name}", most=LARGEST_LOSS, optional=True) for name in ("val_loss", "best_loss")
    }
    known = {entry is None for entry in (evaluated, best_step, *losses.values())}
    _require(len(known) == 1, "progress", "some of evaluated, val_loss, best_loss and best_step are missing")
    _require(evaluated is None or losses["best_loss"] <= losses["val_loss"], "progress.best_loss", "above val_loss")
    skipped = value["skipped"]
    _require(isinstance(skipped, list) and len(skipped) <= MAX_ENTRIES, "progress.skipped", "not a list of steps")
    loss_count = _whole(value["loss_count"], "progress.loss_count", most=step)
    return Progress(
        step=step,
        evaluated=evaluated,
        best_step=best_step,
        without_gain=_whole(value["without_gain"], "progress.without_gain", most=step),
        **losses,
        loss_count=loss_count,
        loss_sum=_number(value["loss_sum"], "progress.loss_sum", most=LARGEST_LOSS * (1 + loss_count)),
        skipped=[_whole(entry, "progress.skipped", most=MAX_STEPS) for entry in skipped],
    )
