"""A corpus: the encoded text that a run is trained on, split into a training and a validation split."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from chargpt.config import Config, DataConfig
from chargpt.errors import Message, NotWritten, Option, TextTooShort, UserError, Words, join, what_to_do
from chargpt.formatting import one_line, plural, shown
from chargpt.notices import Kind, Notice
from chargpt.text.cache import Cache, EncodedText, fingerprint_of, hash_of, hash_of_code
from chargpt.text.facts import TextFacts, facts_of, keep_facts
from chargpt.text.formats import read_head, structure_of, warnings_about
from chargpt.text.growth import Growth
from chargpt.text.ids import Split, TextCounts, count_characters, write_ids
from chargpt.text.normalization import TextNormalizer
from chargpt.text.reading import TextReader, reading_of
from chargpt.text.source import Sources
from chargpt.text.sources import ANOTHER_CACHE, absolute_text, cache_folders, run_name, select_sources, twins
from chargpt.text.tokenizer import Tokenizer

SHORTEST_USEFUL = 16  # characters of context; a text too short for it needs no advice on the context
FOLDED_NOTE = "its line ends \\r\\n or \\r are read as \\n; to keep them, set data.newlines=keep"
BY_FILE = Message("whole files validate; ", Option("data.split", "position"), " takes the end of the text instead")
MAX_VOCAB = 2**17  # ids of a new vocabulary without data.max_vocab


@dataclass(frozen=True, kw_only=True)
class Corpus(EncodedText):
    """An encoded text, and where it comes from."""

    name: str  # the default name of a run on it
    texts: list[str]  # the TEXT arguments, with absolute paths: what a resumed run needs to find its text again
    notes: list[Words] = field(default_factory=list)  # what the user should know about how the text was read
    left_out: list[Words] = field(default_factory=list)  # files, with the way in
    warnings: list[Words] = field(default_factory=list)  # structured files that are read as they are
    ends_in_validation: bool = False  # whether the validation split is the end of the text, where it could be from all over
    growth: Growth | None = None  # what earlier runs have read of it; None if that was not asked, or if it has all their text

    @functools.cached_property
    def facts(self) -> TextFacts:
        """What was measured of the text, now or by an earlier program."""
        return facts_of(self)

    def knowing(self, characters: str) -> "Corpus | None":
        """The same text with these characters in its vocabulary too; None if it has to be read again for that."""
        encoded = self.folder and Cache(self.folder.parent).knowing(characters, self)
        if not encoded:
            return None
        keep_facts(self, encoded)
        return dataclasses.replace(self, **vars(encoded))

    @property
    def has_grown(self) -> bool:
        """Whether it goes on from the text of another run."""
        return self.growth is not None and bool(self.growth.stretches)

    def held_out(self, *, is_new: bool) -> np.ndarray:
        """The part of the validation split that is new, or that an earlier run holds out too; empty for other texts."""
        parts = [] if self.growth is None else self.growth.held_out(is_new=is_new)
        return np.concatenate([self.val[:0], *(self.val[part] for part in parts)])

    def describe(self) -> list[Notice]:
        """How long the text is and its split, its vocabulary, and notes on how it was read."""
        unit, known = "bytes" if self.tokenizer.characters is None else "characters", len(self.tokenizer.characters or "")
        vocabulary = plural(known, "character") if known else "the 256 byte values of UTF-8; no character is unknown"
        if self.tokenizer.folded:
            covered = f"{known:,} characters, {1 - self.counts[-1] / self.characters:.2%} of the text"
            vocabulary = f"{covered}; the {self.distinct - known:,} others are one unknown character, which is never written"
        split = f"{len(self.train):,} for training and {len(self.val):,} for validation"
        split = split if self.is_validated else "all of them for training"
        list_of = "" if self.items is None else f"{self.items.items:,} items with "
        length = f"{list_of}{self.characters:,} {unit} ({self.distinct:,} distinct)"
        return [
            Notice(Kind.TEXT, f"{one_line(self.name)}: {length}, {split}"),
            *([Notice(Kind.GROWN, self.growth.describe())] if self.growth and self.growth.stretches else []),
            Notice(Kind.VOCABULARY, vocabulary, "detail"),
            *([] if self.items is None else [Notice(Kind.ITEMS, one_line(self.items.describe()), "detail")]),
            *(Notice(Kind.NOTE, note) for note in self.notes),
            *(Notice(Kind.LEFT_OUT, files) for files in self.left_out),
        ]


def load_corpus(
    texts: Sequence[str],
    config: DataConfig,
    *,
    root: Path,
    block_size: int,
    tokenizer: Tokenizer | None = None,
    known: str = "",
    earlier: Sequence[EncodedText] = (),
    growth: Growth | None = None,
    asked: Mapping[str, object] | None = None,
) -> Corpus:
    """The corpus of `texts` (files, folders, `-`, named corpora; none for the default) under `config`. The text is encoded
    once, into the cache in `root`/data/cache. `tokenizer` is the vocabulary of another run, to use instead of a new one; its
    normaliser replaces that of `config`. A new vocabulary has the characters `known` too. What runs on the texts `earlier` have
    learned from, or hold out, stays on its side; a `growth` says how the text is divided. `asked` are the settings of section
    data that the user has given for this text alone: one that has no effect is a mistake. Raises UserError, also if a split is
    too short for sequences of `block_size` characters."""
    config = config if tokenizer is None else tokenizer.settings(config)
    sources = select_sources(texts, config, root=root)
    cache = Cache(cache_folders(config, root=root)[0])
    reading = _Reading(reading_of(config, sources), sources, tokenizer, known, cache, growth)
    check_effect(asked or {}, texts=texts, config=reading.config, sources=sources)
    by_file = [BY_FILE] * (config.split != reading.config.split == "document")
    corpus = reading.corpus(texts, by_file=by_file)
    is_in_order = not (config.items or config.val_text) and config.shuffle == "none"
    if earlier and corpus.fingerprint != earlier[0].fingerprint and is_in_order:
        corpus = reading.after(earlier).corpus(texts, by_file=by_file)
    _check_length(corpus, reading.config, block_size, has_shape=bool(known))
    return corpus


def check_effect(asked: Mapping[str, object], config: DataConfig, texts: Sequence[str], sources: Sources) -> None:
    """Raise UserError for a setting of `config` that the user has `asked` for, and that does nothing for these texts."""
    asked = {**{name: value for name in ("where", "author") if (value := getattr(config, name))}, **asked}
    is_whole = bool({"where", "field", "author", "separator"} & asked.keys())  # which of them only records can need
    is_whole = is_whole and not any(structure_of(source, read_head(source), config) for source in sources.all)
    is_one = is_whole and max(len(sources.train), len(sources.val)) < 2
    why = ", because of data.format=text" if config.format == "text" else ", and this is no line between its documents"
    without = f"{sources.label} is read without fields{why}; leave it out, or give a file that has such a field"
    for name, is_useless, why in (
        ("pattern", not any(map(os.path.isdir, [*texts, config.val_text])), "no folder is read; leave it out, or give one"),
        ("val_fraction", config.val_text, "data.val_text is the validation text already; leave one out"),
        ("field", config.items, "data.items says already what an item is; leave it out"),
        ("separator", config.items, "data.items makes each item a text of its own; leave it out"),
        *((name, is_whole, without) for name in ("where", "field", "author")),
        ("separator", is_one, f"{sources.label} is one document; leave it out, or give several files"),
    ):
        if name in asked and is_useless:
            raise UserError(f"data.{name}: {asked[name]!r} given, but {why}")


def cached_corpus(
    texts: Sequence[str],
    config: DataConfig,
    tokenizer: Tokenizer,
    *,
    root: Path,
    fingerprint: str,
    growth: Growth | None = None,
) -> Corpus | None:
    """The corpus with this fingerprint and vocabulary, if it is in one of `cache_folders`, or None. A checkpoint from elsewhere
    may name any file among its `texts`, which are not opened."""
    found = (Cache(folder).open(fingerprint) for folder in cache_folders(config, root=root))
    encoded = next((one for one in found if one and one.tokenizer == tokenizer), None)
    return Corpus(**vars(encoded), name=run_name(texts), texts=list(texts), growth=growth) if encoded else None


def earlier_texts(fingerprints: Sequence[str], config: DataConfig, *, root: Path) -> list[EncodedText]:
    """The texts of these fingerprints, the newest first; none if one is in no cache, since it would be called new."""
    caches = [Cache(folder) for folder in cache_folders(config, root=root)]
    found = [next(filter(None, (cache.open(fingerprint) for cache in caches)), None) for fingerprint in fingerprints]
    texts = [text for text in found if text is not None]
    return texts if len(texts) == len(found) else []


def absolute_paths(config: Config) -> Config:
    """The same settings for any working folder. A run saves these, so that it can be resumed from anywhere."""
    cache = str(Path(config.data.cache).resolve()) if config.data.cache else ""
    data = dataclasses.replace(config.data, val_text=absolute_text(config.data.val_text), cache=cache)
    return dataclasses.replace(config, data=data)


@dataclass(frozen=True)
class _Reading:
    """What a corpus is read from: the sources, and all that its ids depend on beside them."""

    config: DataConfig
    sources: Sources
    tokenizer: Tokenizer | None  # of another run, to use instead of a new one
    known: str  # characters that a new one has
    cache: Cache
    growth: Growth | None  # that says how the text is divided, if it has stretches

    def corpus(self, texts: Sequence[str], *, by_file: Sequence[Words]) -> Corpus:
        """The corpus, from the cache if it is there."""
        warnings = [*warnings_about(self.sources.all, self.config), *twins(self.sources.train)]
        is_one_text = not (self.config.val_text or self.config.items or (self.growth and self.growth.stretches))
        encoded, notes = self._find_or_encode()
        return Corpus(
            **vars(encoded),
            notes=[*self.sources.notes, *by_file, *notes],
            name=run_name(texts),
            texts=[absolute_text(text) for text in texts],
            left_out=self.sources.left_out,
            warnings=warnings,
            ends_in_validation=is_one_text and (self.config.split, self.config.shuffle) == ("position", "none"),
            growth=self.growth,
        )

    def after(self, earlier: Sequence[EncodedText]) -> "_Reading":
        """The same, divided as follows from the texts of earlier runs."""
        from chargpt.text.comparison import compare  # few texts need it

        folds = self.config.newlines == "auto" and self.config.vocabulary == "characters"
        config = dataclasses.replace(self.config, newlines="fold" if folds else self.config.newlines)
        growth = compare(earlier, config, lambda as_one: TextReader(self.sources, as_one))
        return dataclasses.replace(self, growth=growth)

    def _find_or_encode(self) -> tuple[EncodedText, list[str]]:
        """The encoded text, and notes on its reading."""
        signature, vocabulary = self.sources.signature(), self.tokenizer and self.tokenizer.to_json()
        growth = self.growth and dataclasses.asdict(self.growth)
        key = hash_of(hash_of_code(), signature, dataclasses.asdict(self.config), vocabulary, self.known, growth)
        if signature and (found := self.cache.find(key)):
            return found
        try:
            with self.cache.locked():
                # The process that held the lock before may have encoded this text.
                encoded, notes = (signature and self.cache.find(key)) or self._encode()
                if signature and self.sources.signature() == signature:
                    self.cache.record(key, encoded.fingerprint, notes)
        except OSError as error:
            where = shown(error.filename or self.cache.folder)
            raise NotWritten.of(error, f"{where}: {error.strerror or error}; {what_to_do(error, ANOTHER_CACHE)}") from None
        return encoded, notes

    def _encode(self) -> tuple[EncodedText, list[str]]:
        """Read the text and encode it, unless the cache has the same documents from other files. The caller holds the lock."""
        total = self.sources.size and 2 * self.sources.size
        with tqdm(desc="encoding", total=total, unit="B", unit_scale=True, delay=1, leave=False, disable=None) as progress:
            found = self._count(progress)
            tokenizer = self.tokenizer or _fit_tokenizer(found.counts, found.config, known=self.known + found.marks)
            if tokenizer.folded_in(found.marks):
                what = "the character that ends items or labels is not in the vocabulary of the other run; leave out "
                raise UserError(f"{self.sources.label}: {what}", Option("init_from"), " or ", Option("vocab_from"))
            fingerprint = fingerprint_of(found.read, tokenizer)
            return self.cache.open(fingerprint) or self._write(fingerprint, found, tokenizer, progress), found.notes

    def _count(self, progress: tqdm) -> TextCounts:
        """The first pass. With data.newlines=auto, the line ends of a text with \\r are folded."""
        if self.config.items:
            from chargpt.text.item_reader import read_items  # only a list needs it

            known = (self.tokenizer and self.tokenizer.characters) or self.known
            return read_items(self.sources, self.config, progress=progress, known=known)
        growth, config = self.growth, self.config
        if growth and growth.stretches:
            config = dataclasses.replace(config, split="position")  # whole, in its order
        found = count_characters(TextReader(self.sources, config, progress=progress))
        if found.counts[ord("\r")] and config.newlines == "auto" and config.vocabulary == "characters":
            progress.reset()
            folded = dataclasses.replace(config, newlines="fold")
            found = count_characters(TextReader(self.sources, folded, progress=progress))
            found.notes.append(FOLDED_NOTE)
        if not found.counts.any():
            what = f"no text in it ({', '.join(found.notes)})" if found.notes else "empty"
            raise UserError(f"{self.sources.label}: {what}; give a file with text in it")
        return dataclasses.replace(found, split=Split.of(growth)) if growth and growth.stretches else found

    def _write(self, fingerprint: str, found: TextCounts, tokenizer: Tokenizer, progress: tqdm) -> EncodedText:
        """The second pass."""
        counts = _counts_of_ids(found.counts, tokenizer, self.sources.label)
        meta: dict[str, Any] = {"tokenizer": tokenizer.to_json(), "distinct": int(np.count_nonzero(found.counts))}
        meta |= {"read": found.read, "items": found.items and dataclasses.asdict(found.items)}
        reader = TextReader(self.sources, found.config, progress=progress)
        with self.cache.publishing(fingerprint, counts=counts, meta=meta) as files:
            meta |= write_ids(found.pieces or reader, tokenizer, found.split, files=files, folder=self.cache.folder)
            if found.pieces is None and reader.digest.hexdigest() != found.digest:
                raise UserError(f"{self.sources.label}: changed while it was read; start again when it is complete")
        published = self.cache.open(fingerprint)
        if published is None:  # such as too many open files
            raise NotWritten(f"{shown(self.cache.folder)}: what was written there cannot be read; {ANOTHER_CACHE}")
        return published


def _fit_tokenizer(counts: np.ndarray, config: DataConfig, *, known: str) -> Tokenizer:
    """The vocabulary of a text with these `counts` of code points, (CODE_POINTS,), and of the characters `known`."""
    normalizer = TextNormalizer.of(config)
    if config.vocabulary == "bytes":
        return Tokenizer(None, normalizer=normalizer)
    if counts.max() < config.min_count:
        often = f"no character occurs more than {counts.max():,} times"
        raise UserError(f"data.min_count: {config.min_count:,} given, but {often}; use a smaller number")
    if (distinct := np.count_nonzero(counts >= config.min_count)) > MAX_VOCAB and not config.max_vocab:
        what = f"{distinct:,} distinct characters are more than any language has, and too many to learn; add "
        raise UserError(what, Option("data.max_vocab", 10_000), ", or check that this is a text")
    return Tokenizer.fit(counts, normalizer=normalizer, min_count=config.min_count, max_vocab=config.max_vocab, known=known)


def _counts_of_ids(counts: np.ndarray, tokenizer: Tokenizer, label: str) -> np.ndarray:
    """How often each id occurs in a text with these `counts` of code points. Raises UnknownCharacters if some have no id."""
    if tokenizer.characters is None:
        return counts[:256]
    points = np.flatnonzero(counts > 0)  # of bool, ten times faster
    ids = np.take(tokenizer.table(), points, mode="clip")
    if len(unknown := points[ids < 0]):
        frequency = {chr(point): f"{counts[point]:,} times" for point in unknown}
        raise tokenizer.unknown(label, frequency, "remove them, or train a new model on this text alone")
    return np.bincount(ids, counts[points], minlength=tokenizer.vocab_size).astype(np.int64)


def _check_length(corpus: Corpus, config: DataConfig, block_size: int, *, has_shape: bool) -> None:
    """Raise UserError, with what to set, unless a sequence of `block_size` and its targets fits into the training split. If the
    model has the shape of another one, a shorter text is repeated. The windows of a validation split are as short as it."""
    n_train, is_complete = len(corpus.train), corpus.is_validated or config.val_fraction == 0
    is_long = n_train > block_size or (has_shape and corpus.characters >= 4 * SHORTEST_USEFUL)
    if corpus.items is not None or (is_complete and is_long):  # windows begin at items, and are filled up
        return
    if not is_complete and corpus.has_grown:
        what = f"{corpus.name}: the run to begin with has learned from all of it, so nothing is left that can validate; add "
        again = ", or to learn from all of it again "
        raise TextTooShort(what, Option("data.val_text", "FILE"), again, Option("data.val_fraction", 0))
    ways: list[Words] = []
    if SHORTEST_USEFUL < n_train <= block_size and not has_shape:
        ways.append(Message("set ", Option("model.block_size", n_train - 1), " or less"))
    if config.split in ("document", "blocks"):
        ways.append(Message("set ", Option("data.split", "position")))
    ways.append("give a text of a few thousand characters" if corpus.characters < 1000 else "give a longer text")
    what = f"{corpus.name}: too short, with {n_train:,} characters for training and {len(corpus.val):,} for validation; "
    needs = f" needs {block_size + 1:,} for training{' and 2 for validation' * (not is_complete)}: "
    raise TextTooShort(what, Option("model.block_size", block_size), needs, join(", or ", ways))
