"""What a person may set: a tree of frozen dataclasses, with defaults and what is allowed. Importing this imports no torch."""

import csv
import math
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

PATTERN = "re:"  # before a regular expression in a setting that may be a name
DEVICES = re.compile(r"auto|cpu|mps|cuda(:(0|[1-9]\d?))?")
MAX_CHARACTERS = 2**27  # in one batch; more is a typing mistake
MAX_TEACHERS = 9  # models of a run before its last one

NormalForm = Literal["none", "NFC", "NFKC", "NFD"]  # of Unicode; with NFD, accents are characters of their own


class Allowed(NamedTuple):
    """What a number may be: the range of a setting, beside its type."""

    words: str  # in an error
    least: float
    most: float = math.inf


BELOW_ONE, ABOVE_ZERO = math.nextafter(1, 0), math.nextafter(0, 1)
Positive = Annotated[float, Allowed("a number above 0", ABOVE_ZERO)]
NotNegative = Annotated[float, Allowed("a number of 0 or more", 0)]
Fraction = Annotated[float, Allowed("a number from 0 to 1", 0, 1)]
PartOfOne = Annotated[float, Allowed("a number from 0 up to, not including, 1", 0, BELOW_ONE)]
Size = Annotated[int, Allowed("a whole number of 1 or more", 1)]
Count = Annotated[int, Allowed("a whole number of 1 or more, up to 10^12", 1, 10**12)]


def or_none(meaning: str) -> Allowed:
    """Any number from 0 on; what 0 means."""
    return Allowed(f"a number of 0 ({meaning}) or more", 0)


def _works(make: Callable[[], object]) -> bool:
    """Whether a value can be made, and is not false."""
    try:
        return make() is not False
    except (LookupError, ValueError, re.error):
        return False


class Section:
    """Settings whose numbers have ranges. Raises ValueError, beginning with the field's name, for one beyond its range."""

    ranges = dict[str, Allowed]()  # by field; without an annotation, it is none

    def __init_subclass__(cls) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        cls.ranges = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}

    def __post_init__(self) -> None:
        for name, allowed in self.ranges.items():
            self._require(allowed.least <= getattr(self, name) <= allowed.most, name, allowed.words)

    def _require(self, ok: object, name: str, allowed: str) -> None:
        if not ok:
            raise ValueError(f"{name}: {getattr(self, name)!r} given; use {allowed}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The shape of a GPT. Raises ValueError for one that cannot be built, which `GPTConfig` in model.py does not check."""

    n_layer: Size = 4  # number of blocks
    n_head: Size = 4  # attention heads in each block; n_embd is a multiple of it
    n_embd: Size = 128  # width of the model: channels of the residual stream
    block_size: Size = 128  # context: how many characters the model sees at once
    dropout: PartOfOne = 0.0  # fraction of the activations that is set to zero in training
    bias: bool = False  # biases in linear layers and norms, as in GPT-2
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"  # how the model encodes positions

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.n_embd % self.n_head == 0, "n_embd", f"a multiple of n_head, {self.n_head}")
        is_even = self.positions != "rotary" or self.n_embd // self.n_head % 2 == 0
        self._require(is_even, "n_embd", "2 * n_head, or a multiple of it, because rotary positions turn pairs of channels")


@dataclass(frozen=True, kw_only=True)
class OptimConfig(Section):
    """The optimizer and the learning rate."""

    name: Literal["adamw", "muon"] = "adamw"  # adamw, or muon for the matrices inside the blocks and AdamW for everything else
    learning_rate: Positive = 3e-3  # peak of the learning rate
    betas: tuple[float, float] = (0.9, 0.99)  # decay rates of AdamW's running means of the gradient and of its square
    momentum: PartOfOne = 0.95  # decay rate of Muon's running mean of the gradient
    weight_decay: NotNegative = 0.1  # weight decay: how strongly each step shrinks the matrices
    # weight decay towards the weights with which the run began, for runs from a start (L2-SP, arXiv 1802.01483)
    start_decay: NotNegative = 0.0
    # largest gradient norm; a larger gradient is scaled down; 0 disables this
    grad_clip: Annotated[float, or_none("no clipping")] = 1.0
    # steps in which the learning rate rises to its peak; at most half of the run
    warmup_steps: Annotated[int, or_none("no rise")] = 100
    # linear: the rate stays at its peak, then falls in a straight line; cosine: it falls along half a cosine, from the peak
    schedule: Literal["linear", "cosine"] = "linear"
    final_fraction: Fraction = 0.0  # learning rate at the end, as a fraction of the peak
    decay_fraction: Fraction = 0.5  # with linear: the fraction of the run, at its end, in which the rate falls
    # the fraction of the run, at its end, whose mean weights replace those of the last step (arXiv 1803.05407); 0: none
    average_fraction: Fraction = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(all(0 <= b < 1 for b in self.betas), "betas", "two numbers from 0 up to, not including, 1")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """How long, in which batches, and what to evaluate and show meanwhile."""

    max_steps: Count = 3000  # number of steps
    # end the run after this many passes over the training text, even if it has steps or time left; 0: no limit
    max_epochs: Annotated[float, Allowed("a number of 0 (no limit) or more", 0, 1e12)] = 0.0
    batch_size: Count = 16  # windows of block_size characters in each batch
    accumulate: Count = 1  # batches in each step; their gradients are averaged
    eval_interval: Count = 500  # steps between evaluations
    # evaluate on at most this many characters of the validation split; 0: all
    eval_chars: Annotated[int, or_none("the whole split")] = 150_000
    # end the run after this many evaluations without a better loss while the rate falls; 0: never
    patience: Annotated[int, or_none("never stop early")] = 0
    # how many models the run trains before its last one, which learns from their predictions as well as from the text; if it is
    # not set, --minutes decides it
    teachers: Annotated[int, Allowed(f"a whole number from 0 (one model) to {MAX_TEACHERS}", 0, MAX_TEACHERS)] = 0
    label_loss: bool = False  # items with labels: learn to predict the label of an item too
    log_interval: Count = 20  # steps between points of the training curve
    sample_length: Annotated[int, or_none("no sample")] = 300  # characters of the sample at each evaluation; 0: no sample
    log_attention: bool = False  # draw a picture of all heads for TensorBoard at each evaluation
    # decides the initial weights, the batches and dropout
    seed: Annotated[int, Allowed("a whole number from 0 to 2^63 - 1", 0, 2**63 - 1)] = 1337
    # what to do if a loss or a gradient is not finite: stop, or rollback to the last checkpoint
    on_nonfinite: Literal["stop", "rollback"] = "stop"


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """What is read from the text files, how it becomes ids, and which part of it is for validation."""

    # fraction of the text that is used for validation; 0: the model learns from all of it, and has no validation loss
    val_fraction: PartOfOne = 0.1
    # what is for validation: position: the end of the text; document: whole files or JSON lines, spread evenly; blocks: ten
    # blocks, spread evenly; auto: document for a folder of twenty files or more, position otherwise
    split: Literal["auto", "position", "document", "blocks"] = "auto"
    val_text: str = ""  # a text for validation, in place of a part of the training text
    pattern: str = "*.txt"  # which files of a folder are read; several patterns: *.md,*.txt
    # encoding of the text files that are not in UTF-8; of several, such as cp1251,koi8_r, each file has the likeliest
    encoding: str = "utf-8"
    # field of JSON lines, or column of CSV and TSV, that holds the text; data.text: the field text of the object data; in plain
    # text, a line between two documents, such as % or <|endoftext|>
    field: str = "text"
    # what stands around a text in its file, such as the header and the licence of Project Gutenberg, or what all files of a
    # folder begin or end with. drop: leave it out
    frame: Literal["keep", "drop"] = "keep"
    # auto: JSON lines by a field, exported chats as lines of the form Name: message, all other files as they are; fields: CSV,
    # TSV, JSON and chats by a field too (data.field sets it); text: all files as they are
    format: Literal["auto", "fields", "text"] = "auto"
    # lines: shuffle the lines of the text before it is split, always in the same order
    shuffle: Literal["none", "lines"] = "none"
    # what an item of a list is: line, paragraph, file, the name of a field or column (column:line for one that is called line),
    # or in plain text a line between two items, such as %; empty: the text is not a list
    items: str = ""
    # what the label of an item is: fields or columns, separated by commas; file or folder: its name (column:file: a column that
    # is called so); in FASTA header (its first word), header[1] (its second word) or organism; or re: and a regular expression
    # whose group is the label: 're:^K:(.*)'
    label: str = ""
    # the field with the author of a message, whose text data.field names: a line of the form Name: message is read; empty: none
    author: str = ""
    # the records to keep: NAME=VALUE keeps those whose field or column NAME is VALUE; in a chat, author=NAME; empty: all
    where: str = ""
    separator: str = "\n"  # text between two documents, with escapes such as \n
    # fold: read \r\n and \r as \n; keep: leave them; auto: fold, but keep with a vocabulary of bytes
    newlines: Literal["auto", "keep", "fold"] = "auto"
    normalize: NormalForm = "none"  # Unicode normal form in which the text is read; in NFD, an accent is a character of its own
    lowercase: bool = False  # read capitals as small letters
    vocabulary: Literal["characters", "bytes"] = "characters"  # what an id stands for: a character, or a byte of UTF-8
    # characters that occur fewer times share one id, which is never sampled
    min_count: Annotated[int, Allowed("a whole number of 1 (every character) or more", 1)] = 1
    max_vocab: int = 0  # largest number of ids; the rarest characters share one; 0: no limit
    cache: str = ""  # folder for encoded texts; empty: data/cache

    def __post_init__(self) -> None:
        super().__post_init__()
        is_default, require = self.split in ("auto", "position") and self.shuffle == "none", self._require
        allowed = "a number above 0, since 0 does not work with data.split, data.shuffle and data.items"
        require(self.val_fraction > 0 or (is_default and not self.items), "val_fraction", allowed)
        cuts = self.split in ("auto", "position")
        require(not self.val_text or cuts, "split", "position, because data.val_text is the validation split already")
        allowed = "none, because data.val_text or data.split decides on the validation split"
        require(self.shuffle == "none" or (cuts and not self.val_text), "shuffle", allowed)
        require(bool(self.pattern), "pattern", "a file pattern such as *.txt")
        allowed = "a text encoding that Python knows, such as utf-8 or latin-1"
        require(_works(lambda: ["".encode(one) for one in self.encodings]), "encoding", allowed)
        allowed = "text, with escapes such as \\n, \\t, \\x20 or \\u2028"
        require(_works(lambda: self.unescaped_separator.encode()), "separator", allowed)
        require(self.max_vocab == 0 or self.max_vocab >= 2, "max_vocab", "0 (no limit) or a number of 2 or more")
        require(not self.label or bool(self.items), "label", "it with data.items, which says what an item is")
        require(not self.author or not self.items, "author", "it without data.items, whose label may be the author")
        require(not self.where or "=" in self.where[1:], "where", "NAME=VALUE, such as author=Ben")
        has_group = _works(lambda: self.label_pattern is None or self.label_pattern.groups > 0)
        require(has_group, "label", "a regular expression with a group for the label, such as 're:^K:(.*)'")
        allowed = "it without data.split, data.shuffle and data.vocabulary=bytes: items are always shuffled and never cut"
        require(not self.items or (is_default and self.vocabulary == "characters"), "items", allowed)
        is_whole = self.vocabulary == "characters" or (self.min_count == 1 and self.max_vocab == 0)
        require(is_whole, "vocabulary", "characters, because min_count and max_vocab do not apply to bytes")

    @property
    def encodings(self) -> list[str]:
        """Those in `encoding`."""
        return [one.strip() for one in self.encoding.split(",")]

    @property
    def label_fields(self) -> list[str]:
        """The words in `label`, which are divided as in CSV; a pattern is one of them."""
        if self.label_pattern is not None:
            return [self.label]
        words = next(csv.reader([" ".join(self.label.splitlines())], skipinitialspace=True), [])
        return [word.strip() for word in words if word.strip()]

    @property
    def label_pattern(self) -> re.Pattern[str] | None:
        """The regular expression in `label`, in which ^ and $ are the ends of a line. Raises re.error for a wrong one."""
        return re.compile(self.label.removeprefix(PATTERN), re.MULTILINE) if self.label.startswith(PATTERN) else None

    @property
    def unescaped_separator(self) -> str:
        """`separator` with its backslash escapes replaced."""
        return self.separator.encode("ascii", "backslashreplace").decode("unicode_escape")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """When a checkpoint is written and how many are kept."""

    interval: Size = 500  # steps between checkpoints
    # newest checkpoints to keep; the best one is always kept
    keep: Annotated[int, Allowed("a whole number of 2 or more, so that a damaged checkpoint is never the only one", 2)] = 3
    # which checkpoint is the best one: lowest: that of the lowest validation loss; last: the last one whose loss is less than
    # 0.1 nats above the lowest one before
    best: Literal["lowest", "last"] = "lowest"


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Section):
    """What to compute with. The machine decides every `auto`, and the choice is printed."""

    device: str = "auto"  # auto (CUDA, or else the CPU), cpu, cuda, cuda:N or mps (the GPU of a Mac)
    # number format of a step; auto: bfloat16 where the device is fast with it
    precision: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "auto"
    # threads on a CPU; 0: as torch decides
    threads: Annotated[int, Allowed("a whole number from 0 (as torch decides) to 4096", 0, 4096)] = 0
    # auto: on a CPU, attention is compiled from C if possible; plain: torch computes it
    attention: Literal["auto", "plain"] = "auto"
    # native: on a CPU, gradients and validation losses are compiled from C; torch: torch computes them; auto: native where that
    # is possible and faster
    step: Literal["auto", "native", "torch"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"  # compile the model with torch; auto: on a GPU, for a run long enough
    deterministic: bool = False  # on a GPU: the same bits each time, and after --resume; slower. A CPU gives them in any case

    def __post_init__(self) -> None:
        super().__post_init__()
        is_known = isinstance(self.device, str) and DEVICES.fullmatch(self.device)
        self._require(bool(is_known), "device", "auto, cpu, cuda, cuda:N or mps")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings, in sections. What a change means for saved runs is in docs/design.md: How to add, A setting."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    data: DataConfig = field(default_factory=DataConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        batch, block = self.train.batch_size, self.model.block_size
        if block > MAX_CHARACTERS:
            raise ValueError(f"model.block_size: {block} given; use at most {MAX_CHARACTERS:,}")
        if batch * block > MAX_CHARACTERS:
            allowed = f"at most {MAX_CHARACTERS // block:,} windows of {block:,} characters, and train.accumulate for more"
            raise ValueError(f"train.batch_size: {batch} given; use a batch of {allowed}")

    @property
    def chars_per_step(self) -> int:
        return self.train.batch_size * self.train.accumulate * self.model.block_size
