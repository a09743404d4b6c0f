# What functions of the library take as **options. `python tests/reference_pages.py` writes this file.
import os
import re
from collections.abc import Sequence
from typing import Literal, TypedDict

class TrainKeywords(TypedDict, total=False):
    config: str | os.PathLike[str] | None
    minutes: float | str | None
    epochs: float | None
    device: str | None
    start: str | None
    init_from: str | os.PathLike[str] | None
    teacher: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    vocab_from: str | os.PathLike[str] | None
    run: str | os.PathLike[str] | None
    overwrite: bool
    resume: bool
    continue_: bool

class TextKeywords(TypedDict, total=False):
    length: int | None
    lines: int
    stop: str | Sequence[str]
    keep_stop: bool
    unique: bool
    ban_word: str | Sequence[str]
    seed: int | None
    overflow: Literal["refill", "exact"]
    label: str | None
    unknown: Literal["error", "skip"]
    allow: str | None
    ban: str | None
    repetition_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float

class ItemKeywords(TypedDict, total=False):
    unique: bool
    ban_word: str | Sequence[str]
    seed: int | None
    overflow: Literal["refill", "exact"]
    new: bool
    match: str | re.Pattern[str] | None
    min_length: int
    max_length: int | None
    label: str | None
    unknown: Literal["error", "skip"]
    allow: str | None
    ban: str | None
    repetition_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
