"""Texts -> ids -> training and validation part."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chargpt import inputs
from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Corpus:
    tokenizer: Tokenizer
    train: np.ndarray
    val: np.ndarray
    fingerprint: str
    name: str
    characters: int
    notes: list[str]

    def describe(self) -> list[str]:
        return self.notes


def load_corpus(
    texts: Sequence[str], config: DataConfig, *, root: Path, block_size: int, tokenizer: Tokenizer | None = None
) -> Corpus:
    found = inputs.find(texts, pattern=config.pattern, root=root)
    parts = []
    for label, data in found.documents:
        try:
            parts.append(data.decode("utf-8-sig" if config.encoding == "utf-8" else config.encoding))
        except UnicodeDecodeError as error:
            raise UserError(f"{label}: byte {error.start:,} is not {config.encoding}; set data.encoding") from None
    text = "\n".join(parts)
    if not text:
        raise UserError(f"{found.documents[0][0]}: empty; give a text")
    if tokenizer is None:
        tokenizer = Tokenizer("".join(sorted(set(text))))
    ids = tokenizer.encode(text).astype(tokenizer.dtype)
    n_train = int(len(ids) * (1 - config.val_fraction))
    train, val = ids[:n_train], ids[n_train:]
    shorter = min(len(train), len(val))
    if shorter < block_size + 1:
        raise UserError(
            f"{found.name}: {len(train):,} training and {len(val):,} validation characters, both need block_size + 1 = "
            f"{block_size + 1:,}; set model.block_size={max(1, shorter - 1)} or give a longer text"
        )
    key = [tokenizer.to_json(), config.val_fraction, hashlib.sha256(text.encode()).hexdigest()]
    return Corpus(
        tokenizer=tokenizer,
        train=train,
        val=val,
        fingerprint=hashlib.sha256(json.dumps(key).encode()).hexdigest(),
        name=found.name,
        characters=len(ids),
        notes=[
            f"text        {found.name}: {len(ids):,} characters in {len(found.documents):,} file(s)",
            f"vocabulary  {tokenizer.vocab_size:,} characters",
            f"split       {len(train):,} for training, {len(val):,} for validation",
        ],
    )
