"""Settings: one tree of frozen dataclasses, read strictly, and who set each value. Importing this imports no torch.

Precedence: the defaults below < a YAML file < the command line. Every mistake is a
UserError in one line that names the key, the value given and what is allowed.
"""

import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from chargpt.aliases import alias
from chargpt.errors import Message, Option, UserError, Words
from chargpt.terminal import NUMBER, WHOLE_NUMBER

POSITIONS = ("learned", "sinusoidal", "rotary")  # as in POSITIONS of model.py, without its import of torch
COMMAND_LINE = Option("settings")  # where a setting was given, in errors
DEVICES = re.compile(r"auto|cpu|mps|cuda(:(0|[1-9]\d?))?")
MAX_CHARACTERS = 2**27  # in one batch; more is a typing mistake
MAX_TEACHERS = 9  # models of a run before its last one
# Settings that had another name: saved runs, YAML files and command lines may have the earlier one.
RENAMED = {"train.second_run_gap": "train.student_gap"}
# Settings that are gone: saved runs and YAML files may have them, and nothing depends on them any more.
GONE = ("train.chunks", "runtime.timeout", "train.pupil_minutes", "train.student_minutes", "train.student_teachers")


Tree = dict[str, dict[str, object]]  # {section: {key: value}}


def _require(ok: bool, name: str, value: object, allowed: str) -> None:
    if not ok:
        raise ValueError(f"{name}: {value!r} given; use {allowed}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a GPT. Raises ValueError, beginning with the field's name, for a shape that cannot be built.

    These are the fields of `GPTConfig` in model.py, which imports torch and checks nothing; `gpt_config` makes one of them.
    """

    # number of blocks
    n_layer: int = 4
    # attention heads in each block; n_embd is a multiple of it
    n_head: int = 4
    # width of the model: channels of the residual stream
    n_embd: int = 128
    # context: how many characters the model sees at once
    block_size: int = 128
    # fraction of the activations that is set to zero in training
    dropout: float = 0.0
    # biases in linear layers and norms, as in GPT-2
    bias: bool = False
    # how the model encodes positions: learned, sinusoidal or rotary
    positions: str = "learned"

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_head", "n_embd", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} given; use a whole number of 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout: {self.dropout} given; use a number from 0 up to, not including, 1")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd: {self.n_embd} given; use a multiple of n_head, {self.n_head}")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions: {self.positions!r} given; use one of {', '.join(POSITIONS)}")
        if self.positions == "rotary" and self.n_embd // self.n_head % 2:
            raise ValueError(f"n_embd: rotary positions turn pairs, so the head size {self.n_embd // self.n_head} must be even")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimizer and the learning rate."""

    # adamw, or muon for the matrices inside the blocks and AdamW for everything else
    name: Literal["adamw", "muon"] = "adamw"
    # peak of the learning rate
    learning_rate: float = 3e-3
    # decay rates of AdamW's running means of the gradient and of its square
    betas: tuple[float, float] = (0.9, 0.99)
    # decay rate of Muon's running mean of the gradient
    momentum: float = 0.95
    # weight decay: how strongly each step shrinks the matrices
    weight_decay: float = 0.1
    # weight decay towards the weights with which the run began, for runs from a start (L2-SP, arXiv 1802.01483)
    start_decay: float = 0.0
    # largest gradient norm; a larger gradient is scaled down; 0 disables this
    grad_clip: float = 1.0
    # steps in which the learning rate rises to its peak; at most half of the run
    warmup_steps: int = 100
    # linear: the rate stays at its peak, then falls in a straight line; cosine: it falls along half a cosine, from the peak
    schedule: Literal["linear", "cosine"] = "linear"
    # learning rate at the end, as a fraction of the peak
    final_fraction: float = 0.0
    # with linear: the fraction of the run, at its end, in which the rate falls
    decay_fraction: float = 0.5
    # the fraction of the run, at its end, whose mean weights replace those of the last step (arXiv 1803.05407); 0: none
    average_fraction: float = 0.0
    # the program sets it: the step at which --minutes last changed the length, and how much of the decay was over then
    replanned: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "learning_rate", self.learning_rate, "a number above 0")
        _require(all(0 <= b < 1 for b in self.betas), "betas", list(self.betas), "two numbers from 0 up to, not including, 1")
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "a number from 0 up to, not including, 1")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "a number of 0 or more")
        _require(self.start_decay >= 0, "start_decay", self.start_decay, "a number of 0 or more")
        _require(self.grad_clip >= 0, "grad_clip", self.grad_clip, "a number of 0 (no clipping) or more")
        _require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "a whole number of 0 or more")
        _require(0 <= self.final_fraction <= 1, "final_fraction", self.final_fraction, "a number from 0 to 1")
        _require(0 <= self.decay_fraction <= 1, "decay_fraction", self.decay_fraction, "a number from 0 to 1")
        _require(0 <= self.average_fraction <= 1, "average_fraction", self.average_fraction, "a number from 0 to 1")
        ok = 0 <= self.replanned[0] <= 10**12 and 0 <= self.replanned[1] <= 1
        _require(ok, "replanned", list(self.replanned), "a step and a number from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, in which batches, and what to evaluate and show meanwhile."""

    # number of steps
    max_steps: int = 3000
    # end the run after this many passes over the training text, even if it has steps or time left; 0: no limit
    max_epochs: float = 0.0
    # windows of block_size characters in each batch
    batch_size: int = 16
    # batches in each step; their gradients are averaged
    accumulate: int = 1
    # steps between evaluations
    eval_interval: int = 500
    # evaluate more often in a run too short for this many evaluations; --minutes sets it
    min_evaluations: int = 0
    # evaluate on at most this many characters of the validation split; 0: all
    eval_chars: int = 150_000
    # end the run after this many evaluations without a better loss while the rate falls; 0: never
    patience: int = 0
    # what the weights began with: a start or a run; --start and --init-from set it
    start: str = ""
    # how many models the run trains before its last one, which learns from their predictions as well as from the text;
    # --minutes sets it
    teachers: int = 0
    # most minutes for each model before the last one, which gets twice as many; 0: no limit, all take the same number of steps;
    # --minutes sets it
    teacher_minutes: float = 0.0
    # train more models only if the first one, before its rate falls, has a training loss this many nats below its validation
    # loss; 0: always; --minutes sets it
    student_gap: float = 0.0
    # items with labels: learn to predict the label of an item too
    label_loss: bool = False
    # steps between points of the training curve
    log_interval: int = 20
    # characters of the sample at each evaluation; 0: no sample
    sample_length: int = 300
    # draw a picture of all heads for TensorBoard at each evaluation
    log_attention: bool = False
    # decides the initial weights, the batches and dropout
    seed: int = 1337
    # what to do if a loss or a gradient is not finite: stop, or rollback to the last checkpoint
    on_nonfinite: Literal["stop", "rollback"] = "stop"

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "accumulate", "eval_interval", "log_interval"):
            _require(1 <= getattr(self, name) <= 10**12, name, getattr(self, name), "a whole number of 1 or more, up to 10^12")
        _require(self.min_evaluations >= 0, "min_evaluations", self.min_evaluations, "a whole number of 0 (no minimum) or more")
        _require(self.eval_chars >= 0, "eval_chars", self.eval_chars, "a whole number of 0 (the whole split) or more")
        _require(self.patience >= 0, "patience", self.patience, "a whole number of 0 (never stop early) or more")
        allowed = f"a whole number from 0 (one model) to {MAX_TEACHERS}"
        _require(0 <= self.teachers <= MAX_TEACHERS, "teachers", self.teachers, allowed)
        allowed = "a number of minutes from 0 (no limit) to 5256000"
        _require(0 <= self.teacher_minutes <= 5_256_000, "teacher_minutes", self.teacher_minutes, allowed)
        _require(0 <= self.max_epochs <= 1e12, "max_epochs", self.max_epochs, "a number of 0 (no limit) or more")
        allowed = "0 (always train the others) or a number of nats above 0"
        _require(self.student_gap >= 0, "student_gap", self.student_gap, allowed)
        _require(self.sample_length >= 0, "sample_length", self.sample_length, "a whole number of 0 (no sample) or more")
        _require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is read from the text files, how it becomes ids, and which part of it is for validation."""

    # fraction of the text that is used for validation; 0: the model learns from all of it, and has no validation loss
    val_fraction: float = 0.1
    # what is for validation: position: the end of the text; document: whole files or JSON lines, spread evenly; blocks: ten
    # blocks, spread evenly; auto: document for a folder of twenty files or more, position otherwise
    split: Literal["auto", "position", "document", "blocks"] = "auto"
    # a text for validation, in place of a part of the training text
    val_text: str = ""
    # which files of a folder are read
    pattern: str = "*.txt"
    # encoding of the text files
    encoding: str = "utf-8"
    # field of JSON lines, or column of CSV and TSV, that holds the text; data.text: the field text of the object data
    field: str = "text"
    # auto: JSON lines by a field, exported chats as lines of the form Name: message, all other files as they are; fields: CSV,
    # TSV, JSON and chats by a field too (data.field sets it); text: all files as they are
    format: Literal["auto", "fields", "text"] = "auto"
    # lines: shuffle the lines of the text before it is split, always in the same order
    shuffle: Literal["none", "lines"] = "none"
    # what an item of a list is: line, paragraph, file, or the name of a field or column; empty: the text is not a list
    items: str = ""
    # what the label of an item is: fields or columns, separated by commas; file or folder: its name; in FASTA header (its first
    # word), header[1] (its second word) or organism; or a regular expression whose group is the label: '^K:(.*)'
    label: str = ""
    # the records to keep: NAME=VALUE keeps those whose field or column NAME is VALUE; in a chat, author=NAME; empty: all
    where: str = ""
    # text between two documents, with escapes such as \n
    separator: str = "\n"
    # fold: read \r\n and \r as \n; keep: leave them; auto: fold, but keep with a vocabulary of bytes
    newlines: Literal["auto", "keep", "fold"] = "auto"
    # Unicode normal form in which the text is read
    normalize: Literal["none", "NFC", "NFKC"] = "none"
    # read capitals as small letters
    lowercase: bool = False
    # what an id stands for: a character, or a byte of UTF-8
    vocabulary: Literal["characters", "bytes"] = "characters"
    # characters that occur fewer times share one id, which is never sampled
    min_count: int = 1
    # largest number of ids; the rarest characters share one; 0: no limit
    max_vocab: int = 0
    # folder for encoded texts; empty: data/cache
    cache: str = ""

    def __post_init__(self) -> None:
        _require(0 <= self.val_fraction < 1, "val_fraction", self.val_fraction, "a number from 0 up to, not including, 1")
        whole = self.val_fraction > 0 or (self.split in ("auto", "position") and self.shuffle == "none" and not self.items)
        allowed = "a number above 0, since 0 does not work with data.split, data.shuffle and data.items"
        _require(whole, "val_fraction", self.val_fraction, allowed)
        one_split = not self.val_text or self.split in ("auto", "position")
        _require(one_split, "split", self.split, "position, because data.val_text is the validation split already")
        one_split = self.shuffle == "none" or (self.split in ("auto", "position") and not self.val_text)
        allowed = "none, because data.val_text or data.split decides on the validation split"
        _require(one_split, "shuffle", self.shuffle, allowed)
        _require(bool(self.pattern), "pattern", self.pattern, "a file pattern such as *.txt")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            _require(False, "encoding", self.encoding, "a text encoding that Python knows, such as utf-8 or latin-1")
        try:
            self.unescaped_separator.encode()
        except ValueError:
            _require(False, "separator", self.separator, "text, with escapes such as \\n, \\t, \\x20 or \\u2028")
        _require(self.min_count >= 1, "min_count", self.min_count, "a whole number of 1 (every character) or more")
        _require(
            self.max_vocab == 0 or self.max_vocab >= 2, "max_vocab", self.max_vocab, "0 (no limit) or a number of 2 or more"
        )
        _require(not self.label or bool(self.items), "label", self.label, "it with data.items, which says what an item is")
        _require(not self.where or "=" in self.where[1:], "where", self.where, "NAME=VALUE, such as author=Ben")
        try:
            is_right = self.label_pattern is None or self.label_pattern.groups > 0
        except re.error:
            is_right = False
        _require(is_right, "label", self.label, "a regular expression with a group for the label, such as '^K:(.*)'")
        is_default = self.split in ("auto", "position") and self.shuffle == "none"
        whole = not self.items or (is_default and self.vocabulary == "characters")
        allowed = "it without data.split, data.shuffle and data.vocabulary=bytes: items are always shuffled and never cut"
        _require(whole, "items", self.items, allowed)
        whole = self.vocabulary == "characters" or (self.min_count == 1 and self.max_vocab == 0)
        _require(whole, "vocabulary", self.vocabulary, "characters, because min_count and max_vocab do not apply to bytes")

    @property
    def label_fields(self) -> list[str]:
        """The names in `label`; a regular expression is one of them."""
        if self.label_pattern is not None:
            return [self.label]
        return [name.strip() for name in self.label.split(",") if name.strip()]

    @property
    def label_pattern(self) -> re.Pattern[str] | None:
        """`label` if it is a regular expression, in which ^ and $ are the ends of a line. Raises re.error for a wrong one."""
        is_pattern = "(" in self.label and re.search(r"[\\^$*+?|]", self.label)
        return re.compile(self.label, re.MULTILINE) if is_pattern else None

    @property
    def unescaped_separator(self) -> str:
        """`separator` with its backslash escapes replaced."""
        return self.separator.encode("ascii", "backslashreplace").decode("unicode_escape")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When a checkpoint is written and how many are kept."""

    # steps between checkpoints
    interval: int = 500
    # newest checkpoints to keep; the best one is always kept
    keep: int = 3
    # which checkpoint is the best one: lowest: that of the lowest validation loss; last: the last one whose loss is less than
    # 0.1 nats above the lowest one before
    best: Literal["lowest", "last"] = "lowest"

    def __post_init__(self) -> None:
        _require(self.interval >= 1, "interval", self.interval, "a whole number of 1 or more")
        _require(
            self.keep >= 2, "keep", self.keep, "a whole number of 2 or more, so that a damaged checkpoint is never the only one"
        )


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """What to compute with. The machine decides every `auto`, and the choice is printed."""

    # auto, cpu, cuda, cuda:N or mps
    device: str = "auto"
    # number format of a step; auto: bfloat16 where the device is fast with it
    precision: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "auto"
    # threads on a CPU; 0: as torch decides
    threads: int = 0
    # auto: on a CPU, attention is compiled from C if possible; plain: torch computes it
    attention: Literal["auto", "plain"] = "auto"
    # native: on a CPU, gradients and validation losses are compiled from C; torch: torch computes them; auto: native where that
    # is possible and faster
    step: Literal["auto", "native", "torch"] = "auto"
    # compile the model with torch; auto: on a GPU, for a run long enough
    compile: Literal["auto", "on", "off"] = "auto"
    # on a GPU: the same bits each time, and after --resume; slower. A CPU gives them in any case
    deterministic: bool = False

    def __post_init__(self) -> None:
        known = isinstance(self.device, str) and DEVICES.fullmatch(self.device)
        _require(bool(known), "device", self.device, "auto, cpu, cuda, cuda:N or mps")
        _require(0 <= self.threads <= 4096, "threads", self.threads, "a whole number from 0 (as torch decides) to 4096")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run, in sections.

    A run that was saved before a setting existed is resumed with the setting's default today. If that default changes what such
    a run computes, the checkpoint format grows: docs/design.md, How to add, A setting.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    data: DataConfig = field(default_factory=DataConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        batch, block = self.train.batch_size, self.model.block_size
        _require(block <= MAX_CHARACTERS, "model.block_size", block, f"at most {MAX_CHARACTERS:,}")
        allowed = (
            f"a batch of at most {MAX_CHARACTERS // block:,} windows of {block:,} characters, and train.accumulate for more"
        )
        _require(batch * block <= MAX_CHARACTERS, "train.batch_size", batch, allowed)

    @property
    def chars_per_step(self) -> int:
        return self.train.batch_size * self.train.accumulate * self.model.block_size

    @property
    def steps_between_evaluations(self) -> int:
        """`train.eval_interval`, or less where the run would have fewer than `train.min_evaluations` evaluations."""
        if self.train.min_evaluations == 0:
            return self.train.eval_interval
        return min(self.train.eval_interval, -(-self.train.max_steps // self.train.min_evaluations))


def apply(config: Config, tree: Mapping[str, Any], *, where: Words) -> Config:
    """`config` with the settings of `tree`, {section: {key: value}}. `where` begins the error messages."""
    changed = {}
    for section, values in tree.items():
        section = _known_section(section, where)
        if values is None:
            continue
        if not isinstance(values, Mapping):
            raise UserError(where, f": {section}: holds {values!r}; write its keys below it, such as {section}.key")
        changed[section] = _apply_section(getattr(config, section), section, values, where)
    try:
        return dataclasses.replace(config, **changed)
    except ValueError as error:
        raise UserError(where, f": {error}") from None


def typed_values(tree: Mapping[str, Mapping[str, object]], *, where: Words) -> Tree:
    """The settings of `tree`, each as the type of its key, under the name that it has today. Raises UserError.

    What also depends on other settings is left to `apply`.
    """
    defaults = Config()
    return {
        section: _typed_values(type(getattr(defaults, _known_section(section, where))), section, values, where)
        for section, values in tree.items()
    }


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """The whole tree as plain dictionaries, lists, strings and numbers."""
    sections = dataclasses.asdict(config)
    return {s: {k: list(v) if isinstance(v, tuple) else v for k, v in keys.items()} for s, keys in sections.items()}


KEYS = [f"{section}.{key}" for section, keys in to_dict(Config()).items() for key in keys]


class Change(NamedTuple):
    """A setting that has changed."""

    key: str  # section.key
    old: object
    new: object

    def __str__(self) -> str:
        return f"{self.key}: {self.old} -> {self.new}"


def difference(old: Config, new: Config) -> list[Change]:
    """What changed."""
    before, after = to_dict(old), to_dict(new)
    return [
        Change(f"{section}.{key}", value, after[section][key])
        for section, keys in before.items()
        for key, value in keys.items()
        if value != after[section][key]
    ]


class Source(StrEnum):
    """Who set the value of a setting."""

    DEFAULT = "default"
    PRESET = "preset"  # --config NAME
    USER = "user"  # the command line, or a file of the user
    RUN = "run"  # the shape of the model with which a run begins
    CHOSEN = "chosen"  # the program


@dataclass(frozen=True)
class Settings:
    """All settings, who set each, and why it was chosen. Every change makes a new object."""

    values: Config = field(default_factory=Config)
    sources: Mapping[str, Source] = field(default_factory=dict)  # by section.key; what is missing is a default
    reasons: Mapping[str, str] = field(default_factory=dict)  # of what was chosen, for people

    def is_given(self, key: str) -> bool:
        """Whether somebody has set section.key: the user, a preset or the run that this one begins with."""
        return self.sources.get(key, Source.DEFAULT) in (Source.USER, Source.PRESET, Source.RUN)

    def is_any_given(self, *prefixes: str) -> bool:
        """The same for any setting that begins with one of `prefixes`."""
        return any(key.startswith(prefixes) and self.is_given(key) for key in self.sources)

    def give(self, tree: Mapping[str, object], *, source: Source, where: Words) -> "Settings":
        """With the settings of `tree`, {section: {key: value}}, which `source` sets. A UserError begins with `where`."""
        values = apply(self.values, tree, where=where)
        names = {section: keys for section, keys in tree.items() if isinstance(keys, Mapping)}
        keys = [f"{section}.{key}" for section, named in names.items() for key in named]
        return Settings(values, {**self.sources, **{RENAMED.get(key, key): source for key in keys}}, self.reasons)

    def choose(self, reason: str, **sections: Mapping[str, object]) -> "Settings":
        """With these values, {key: value} for a section, but for what is given. Raises UserError for what does not fit that."""
        open_ = {
            section: {key: value for key, value in values.items() if not self.is_given(f"{section}.{key}")}
            for section, values in sections.items()
        }
        keys = [f"{section}.{key}" for section, values in open_.items() for key in values]
        chosen, why = dict.fromkeys(keys, Source.CHOSEN), dict.fromkeys(keys, reason)
        return Settings(apply(self.values, open_, where=COMMAND_LINE), {**self.sources, **chosen}, {**self.reasons, **why})

    def leaving_open(self, *keys: str) -> "Settings":
        """The same values; those of each section.key are as defaults."""
        return Settings(self.values, {name: by for name, by in self.sources.items() if name not in keys}, self.reasons)

    def without(self, source: Source) -> "Settings":
        """The same values; those that `source` has set are as defaults."""
        return Settings(self.values, {key: by for key, by in self.sources.items() if by is not source}, self.reasons)


class FromCommandLine(str):
    """A value typed on the command line: text, to be read as its key's declared type."""


def _known_section(section: str, where: Words) -> str:
    known = [f.name for f in dataclasses.fields(Config)]
    if section not in known:
        raise UserError(where, f": {section}: no such section; ", _nearest_section(str(section), known))
    return section


def _apply_section(section: Any, name: str, values: Mapping[str, Any], where: Words) -> Any:
    try:
        return dataclasses.replace(section, **_typed_values(type(section), name, values, where))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(where, f": {name}.{error}") from None


def _typed_values(section: type, name: str, values: Mapping[str, Any], where: Words) -> dict[str, Any]:
    """The values of a section, each as the type of its key."""
    hints = typing.get_type_hints(section)
    changed = {}
    for key, value in values.items():
        key = RENAMED.get(f"{name}.{key}", str(key)).removeprefix(f"{name}.")
        if f"{name}.{key}" in GONE or (f"{name}.{key}" == "train.teachers" and value == ""):  # it was a list of runs
            if isinstance(value, FromCommandLine):
                raise UserError(where, f": {name}.{key}: this setting is gone; leave it out")
            continue
        if key not in hints:
            hint = elsewhere(str(key).rpartition(".")[2]) or _nearest(str(key), hints, prefix=name + ".")
            raise UserError(where, f": {name}.{key}: no such key; ", hint)
        try:
            changed[key] = _coerce(value, hints[key])
        except ValueError as error:
            given = str(value) if isinstance(value, FromCommandLine) else value
            raise UserError(where, f": {name}.{key}: {_brief(given)} given; use {error}") from None
    return changed


def _nearest_section(given: str, known: list[str]) -> Words:
    section, dot, key = given.partition(".")
    if dot and section in known:
        return f"write {key}: on its own line, indented, below {section}:"
    return elsewhere(given) or _nearest(given, known)


def elsewhere(key: str) -> Words:
    """A hint if `key` is a setting of some section or an option; empty if not."""
    sections = [section.name for section in dataclasses.fields(Config) if key in typing.get_type_hints(section.default_factory)]
    names = [f"{section}.{key}" for section in sections if (section, key) != ("train", "start")]  # which an option sets
    if not names and (ours := alias(key)):  # another program's name for it
        return Message("did you mean ", ours, "?")
    return f"did you mean {' or '.join(names)}?" if names else ""


def _nearest(given: str, known: Iterable[str], prefix: str = "") -> str:
    known = list(known)
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {prefix}{close[0]}?"
    return f"use one of {', '.join(prefix + k for k in known)}"


def _brief(value: object) -> str:
    words = {True: "a switch that is on (true, yes or on)", False: "a switch that is off (false, no or off)", None: "nothing"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _coerce(value: Any, hint: Any) -> Any:
    """`value` as the declared type, or ValueError saying what is allowed. Nothing is guessed: no bool for a number."""
    typed = isinstance(value, FromCommandLine)
    if typing.get_origin(hint) is Literal:
        if isinstance(value, bool):
            value = "on" if value else "off"  # YAML reads on and off as true and false
        if isinstance(value, str) and value in typing.get_args(hint):
            return str(value)
        raise ValueError(f"one of {', '.join(typing.get_args(hint))}")
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        items = [FromCommandLine(x.strip()) for x in value.strip("[]() ").split(",")] if typed else value
        if not isinstance(items, (list, tuple)) or len(items) != len(parts):
            raise ValueError(f"{len(parts)} numbers in a list, such as [0.9, 0.99]")
        return tuple(_coerce(item, part) for item, part in zip(items, parts))
    if hint is bool:
        if isinstance(value, bool):
            return value
        if typed and value.lower() in ("true", "yes", "on", "false", "no", "off"):  # as in YAML
            return value.lower() in ("true", "yes", "on")
        raise ValueError("true or false")
    if hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        if typed and len(value) <= 30 and WHOLE_NUMBER.fullmatch(value):
            return int(value)
        if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,2}e[0-9]{1,2}", value):  # 5e3
            return int(float(value))
        raise ValueError("a whole number")
    if hint is float:
        number = math.nan
        # PyYAML reads 1e-3 as a string (YAML 1.1 wants 1.0e-3), so a string in a number's form is a number.
        if isinstance(value, str) and NUMBER.fullmatch(value):
            number = float(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
            number = float(value)
        if math.isfinite(number):
            return number
        raise ValueError("a finite number")
    if isinstance(value, str):
        return str(value)
    raise ValueError("text, in quotes where YAML would read something else")
