"""A text as a model wants it: ids on disk, a training and a validation part. `python -m chargpt.text.corpus TEXT` examines one."""

import contextlib
import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.terminal import UserError, shown
from chargpt.text.cache import Cache, Entry, fingerprint_of
from chargpt.text.encoding import Reading, Survey, survey, write_ids
from chargpt.text.sources import Inputs, find
from chargpt.text.tokenizer import Door, Tokenizer

FORMAT = 1  # of cache entries; raise it whenever the same text and settings come to mean other ids


@dataclass(frozen=True, kw_only=True)
class Corpus(Entry):
    """An encoded text and what a run on it is called, unless told otherwise."""

    name: str
    texts: list[str]

    def describe(self) -> list[str]:
        """A few lines for the user, each `what` in 12 columns and what was chosen."""
        unit = "bytes" if self.tokenizer.characters is None else "characters"
        share = len(self.val) / self.characters
        return [
            f"text        {self.name}: {self.characters:,} {unit}, {self.distinct:,} distinct",
            f"vocabulary  {_vocabulary(self)}",
            f"split       {len(self.train):,} {unit} to learn from, {len(self.val):,} ({share:.1%}) to validate",
            *(f"note        {note}" for note in self.notes),
        ]


def load_corpus(
    texts: Sequence[str], config: DataConfig, *, root: Path, block_size: int, tokenizer: Tokenizer | None = None
) -> Corpus:
    """The corpus that `texts` (files, folders, `-`, named corpora; none for the default) make under `config`.

    Encodes them once, into a cache in `root`/data/cache. `tokenizer` is the vocabulary of a run to use instead of one of
    their own; what it does about line ends, case and normal forms then counts, not the config. Raises UserError, also when
    a part is too short for windows of `block_size` characters.
    """
    if tokenizer is not None:
        vocabulary = "bytes" if tokenizer.characters is None else "characters"
        door = dataclasses.asdict(tokenizer.door)
        config = dataclasses.replace(config, vocabulary=vocabulary, min_count=1, max_vocab=0, **door)
    cache = _cache(config, root)
    found = find(texts, val_text=config.val_text, pattern=config.pattern, root=root, spool_folder=cache.folder)
    with contextlib.closing(found):
        entry = _entry(found, config, tokenizer, cache)
    corpus = Corpus(
        name=found.name, texts=[absolute_text(text) for text in texts], **{**vars(entry), "notes": found.notes + entry.notes}
    )
    _check_length(corpus, config, block_size)
    return corpus


def cached_corpus(name: str, fingerprint: str, config: DataConfig, *, root: Path) -> Corpus | None:
    """The corpus of that fingerprint if it is still in the cache: for a text that could be read only once."""
    if not re.fullmatch("[0-9a-f]{64}", fingerprint):  # a checkpoint from elsewhere may say anything, a path for instance
        return None
    entry = _cache(config, root).open(fingerprint)
    return entry and Corpus(name=name, texts=["-"], **vars(entry))


def absolute_text(text: str) -> str:
    """A path that holds from any folder; `-` and names of corpora stay as they are."""
    return text if text in ("", "-") or not Path(text).exists() else str(Path(text).resolve())


def _cache(config: DataConfig, root: Path) -> Cache:
    return Cache(Path(config.cache) if config.cache else root / "data" / "cache")


def _entry(inputs: Inputs, config: DataConfig, tokenizer: Tokenizer | None, cache: Cache) -> Entry:
    """The encoded text, from the cache where it is there already."""
    signature = inputs.signature()
    settings = dataclasses.asdict(dataclasses.replace(config, cache=""))
    request = signature and fingerprint_of(FORMAT, signature, settings, tokenizer and tokenizer.to_json())
    if entry := request and cache.recall(request):
        return entry
    try:
        with cache.locked():
            # Whoever held the lock before may have encoded this very text.
            entry = (request and cache.recall(request)) or _encoded(inputs, config, tokenizer, cache, signature)
            if request and inputs.signature() == signature:
                cache.remember(request, entry.fingerprint)
    except OSError as error:
        where = shown(error.filename or cache.folder)
        raise UserError(f"{where}: {error.strerror}; name a folder that can be written to in data.cache") from None
    return entry


def _encoded(
    inputs: Inputs, config: DataConfig, tokenizer: Tokenizer | None, cache: Cache, signature: list[Any] | None
) -> Entry:
    """The text read and, unless the cache has its content from elsewhere, encoded. The cache's lock is held."""
    total = inputs.size and 2 * inputs.size
    with tqdm(desc="encoding", total=total, unit="B", unit_scale=True, delay=1, leave=False, disable=None) as progress:
        found = survey(Reading(inputs, config, progress=progress), config)
        if found.n_train + found.n_val == 0:
            raise UserError(f"{inputs.label}: {', '.join(found.notes) or 'empty'}; give a file with text in it")
        tokenizer = tokenizer or _fitted(found.counts, config)
        counts, distinct = _counts_of_ids(found.counts, tokenizer, inputs.label)
        fingerprint = _fingerprint(found, config, tokenizer)
        if entry := cache.open(fingerprint):
            return entry

        def write(**files: Any) -> None:
            # The ids must be those of the content that was hashed. Where a signature tells, it need not be hashed again.
            again = Reading(inputs, config, progress=progress, hashed=signature is None)
            write_ids(again, tokenizer, n_train=found.n_train, **files)
            if inputs.signature() != signature if signature else again.digest() != found.digest:
                raise UserError(f"{inputs.label}: changed while it was read; start again when it is complete")

        meta = {"tokenizer": tokenizer.to_json(), "n_train": found.n_train, "n_val": found.n_val, "distinct": distinct}
        try:
            cache.publish(fingerprint, counts=counts, meta={**meta, "notes": found.notes}, write=write)
        except OSError as error:
            needed = (found.n_train + found.n_val) * tokenizer.dtype.itemsize
            raise UserError(
                f"{shown(cache.folder)}: {error.strerror}, the encoded text takes {needed:,} bytes; make room there, or name "
                "another folder in data.cache"
            ) from None
    return cache.open(fingerprint)


def _fingerprint(found: Survey, config: DataConfig, tokenizer: Tokenizer) -> str:
    """A hash of everything that decides the ids and the split."""
    settings = [config.encoding, config.field, config.separator, config.split, config.val_fraction]
    unicode_version = None if tokenizer.door.open else unicodedata.unidata_version  # case and normal forms depend on it
    return fingerprint_of(FORMAT, found.digest, settings, tokenizer.to_json(), unicode_version)


def _fitted(counts: np.ndarray, config: DataConfig) -> Tokenizer:
    """The vocabulary that a text with these counts of characters gets."""
    door = Door(newlines=config.newlines, normalize=config.normalize, lowercase=config.lowercase)
    if config.vocabulary == "bytes":
        return Tokenizer(None, door=door)
    if counts.max() < config.min_count:
        raise UserError(
            f"data.min_count: {config.min_count:,} given, but no character stands more than {counts.max():,} times; use a "
            "smaller number"
        )
    return Tokenizer.fit(counts, door=door, min_count=config.min_count, max_vocab=config.max_vocab)


def _counts_of_ids(counts: np.ndarray, tokenizer: Tokenizer, label: str) -> tuple[np.ndarray, int]:
    """How often each id stands in a text with these counts of characters, and how many different characters it has.

    Raises UnknownCharacters if the vocabulary, which may be another text's, lacks some.
    """
    points = np.flatnonzero(counts)
    if tokenizer.characters is None:
        return counts[:256], len(points)
    ids = np.take(tokenizer.table(), points, mode="clip")
    unknown = points[ids < 0]
    if len(unknown):
        places = {chr(point): f"{counts[point]:,} times" for point in unknown}
        raise tokenizer.unknown(label, places, "take them out, or start a run with a vocabulary of its own")
    by_id = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(by_id, ids, counts[points])
    return by_id, len(points)


def _vocabulary(corpus: Corpus) -> str:
    tokenizer = corpus.tokenizer
    if tokenizer.characters is None:
        return "the 256 bytes of UTF-8, so nothing is ever unknown"
    if not tokenizer.folded:
        return f"{tokenizer.vocab_size:,} characters"
    covered = 1 - corpus.counts[-1] / corpus.characters
    known = len(tokenizer.characters)
    others = f"one id for the {corpus.distinct - known:,} others, which is never sampled"
    return f"{tokenizer.vocab_size:,} ids: {known:,} characters, {covered:.2%} of the text, and {others}"


def _check_length(corpus: Corpus, config: DataConfig, block_size: int) -> None:
    """Raise UserError, with what to set, unless a window of `block_size` and its targets fit into each part."""
    n_train, n_val, need = len(corpus.train), len(corpus.val), block_size + 1
    if min(n_train, n_val) >= need:
        return
    ways = []
    if config.split == "position" and not config.val_text:
        total = corpus.characters
        fractions = [f / 100 for f in range(1, 100) if need <= int(total * (1 - f / 100)) <= total - need]
        if fractions:
            ways.append(f"set data.val_fraction={min(fractions, key=lambda f: abs(f - config.val_fraction))}")
    if min(n_train, n_val) > 1:
        ways.append(f"set model.block_size={min(n_train, n_val) - 1} or less")
    if config.split == "document":
        ways.append("set data.split=position")
    ways.append("give a longer text")
    raise UserError(
        f"{corpus.name}: {n_train:,} characters to learn from and {n_val:,} to validate; model.block_size={block_size} needs "
        f"{need:,} of each: {', or '.join(ways)}"
    )
