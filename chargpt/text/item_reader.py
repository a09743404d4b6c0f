"""A list of items from text files: lines, paragraphs, files or fields of records, with labels; mixed, and split by item."""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.canonical import canonical
from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.formatting import one_line, plural
from chargpt.project import shell_word
from chargpt.text.document import TRAIN, VAL, Digest, Document, spelled
from chargpt.text.formats import FILE, LINE, PARAGRAPH, PLACES, UNITS, field_in, read_head, structure_of
from chargpt.text.ids import Split, TextCounts, notes_of
from chargpt.text.item_stream import SEPARATOR, TAB, Item, ItemCounts, stream_of
from chargpt.text.reading import TextReader, reading_of
from chargpt.text.records import found
from chargpt.text.shuffle import random_order
from chargpt.text.source import Sources
from chargpt.text.sources import select_sources
from chargpt.text.tokenizer import CODE_POINTS, character_name, code_points

BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")  # between paragraphs
NOT_IN_ITEMS = re.compile(f"[\0{SEPARATOR}]")
MAX_LABELS = 10_000  # different ones; more are not labels, but names of single items
MAX_LABEL = 250  # characters
LONGEST_BLOCK = 30  # lines; with more between two blank ones, a list of lines is not one of blocks
MAX_NAME = 30  # characters of an item that a note names
LONG = 3  # times the mean; all longer ones together have no more characters of the validation split than its share
MAX_ITEM = 2**23  # characters; more are not an item, but a text
LONG_LABEL = f"a label of more than {MAX_LABEL} characters; in data.label, name a field with short labels, such as a category"
HINT = "; if blank lines are between your items, use data.items=paragraph"
SPLIT_IT = "split it, or train on it as a text, without items"
Splits = Sequence[list[Item]]  # the items for training, and those for validation


def read_items(sources: Sources, config: DataConfig, *, progress: Any, known: str = "") -> TextCounts:
    """The items of all sources, read with `config` of `reading_of`. The vocabulary has the characters `known` anyway. The order
    depends on the number of items alone, as that of data.shuffle=lines. On which side an item is depends on its text:
    duplicates are on one side, also under several labels, and an item stays there when others are added. Raises UserError."""
    items, notes = _usable(TextReader(sources, config, progress=progress), config)
    if not any(items):
        what = f"{sources.label}: no items ({'; '.join(notes) or 'empty'})"
        raise UserError(f"{what}; give {'labelled ' * bool(config.label_fields)}items")
    items = _divided(items, config, notes)
    counts = _counts(items, config)
    if not all(items):
        what = f"{sources.label}: too few items that differ ({counts.items - counts.duplicates:,})"
        raise UserError(f"{what}; give at least two, one for validation")
    if len(counts.labels) > MAX_LABELS:
        what = f"data.label: {shell_word(config.label)} given, but {sources.label} has {len(counts.labels):,} different values"
        raise UserError(f"{what} of it; choose a label with {MAX_LABELS:,} values or fewer, such as a country")
    end = SEPARATOR if SEPARATOR in known or any("\n" in item.text for item in chain(*items)) else "\n"
    if end == SEPARATOR:
        notes.append("some items have several lines, so the program keeps them apart by the character U+001E, not by lines")
    items = [[some[i] for i in random_order(len(some)).tolist()] for some in items]
    texts, digest = [stream_of(some, end=end) for some in items], Digest()
    for split, item in ((split, item) for split, some in enumerate(items) for item in some):
        digest.add(item.text)
        digest.end(split, len(item.text), label=(item.label,))
    return TextCounts(
        config=config,
        counts=np.bincount(code_points("".join(texts)), minlength=CODE_POINTS),
        split=Split(stretches=((len(texts[TRAIN]), TRAIN),)),  # what validates is a text of its own
        digest=digest.hexdigest(),
        notes=notes,
        pieces=list(enumerate(texts)),
        items=counts,
        marks=end + TAB * bool(counts.labels),
    )


def _usable(reader: TextReader, config: DataConfig) -> tuple[Splits, list[str]]:
    """The items of each split that are not empty, and have a label if one is asked for; with notes on the reading."""
    usable, empty, unlabelled, has_labels = (list[Item](), list[Item]()), 0, 0, bool(config.label_fields)
    for split, item in items_of(reader, config):
        if not item.text:
            empty += 1
        elif has_labels and not item.label:
            unlabelled += 1
        else:
            usable[split].append(item)
    are_blocks = config.items == LINE and empty > max(2, sum(map(len, usable)) / LONGEST_BLOCK)
    notes = notes_of(reader) + [f"empty items skipped: {empty:,}{HINT * are_blocks}"] * bool(empty)
    return usable, notes + [f"items without a label skipped: {unlabelled:,}"] * bool(unlabelled)


def _counts(splits: Splits, config: DataConfig) -> ItemCounts:
    """What is in the items of both splits."""
    texts = Counter(item.text for item in chain(*splits))
    labels = Counter(item.label for item in chain(*splits))
    by_frequency = sorted(labels.items(), key=lambda pair: (-pair[1], pair[0]))
    return ItemCounts(
        items=texts.total(),
        duplicates=texts.total() - len(texts),
        longest=max(map(len, texts)),
        longest_label=max(map(len, labels)),
        labels=dict(by_frequency) if config.label_fields else {},
    )


def list_items(texts: Sequence[str], config: DataConfig, *, root: Path) -> list[Item]:
    """The items of `texts` (files, folders, `-`) in their order, without empty ones: to be looked at, not trained on. A text
    that has no fields, or not those of the labels, is read without them. Raises UserError."""
    sources = select_sources(texts, config, root=root)
    items = [item for source in sources.train for item in _items_in(dataclasses.replace(sources, train=[source]), config)]
    if not items:
        raise UserError(f"{sources.label}: no item in it; give a file with items")
    return items


def _items_in(alone: Sources, config: DataConfig) -> Iterator[Item]:
    """The items of one source, as `list_items` has them."""
    (source,) = alone.train
    structure = structure_of(source, read_head(source), reading_of(config, alone))
    unit = LINE if structure is None and config.items not in UNITS else config.items
    known = {*PLACES, *(structure.fields if structure else ())}
    has_labels = config.label_pattern or {*map(field_in, config.label_fields)} <= known
    config = dataclasses.replace(config, items=unit, label=config.label if has_labels else "")
    reader = TextReader(alone, reading_of(config, alone))
    return (item for _, item in items_of(reader, reader.config) if item.text)


def items_of(reader: TextReader, config: DataConfig) -> Iterator[tuple[int, Item]]:
    """The split and each item that a reader with `config` finds. Labels and texts may be empty. Raises UserError."""
    pattern, forms = config.label_pattern, dict[str, str]()  # of each label, of which another one is the same
    for split, document in reader.documents():
        text, is_record = "".join(document.pieces), document.origin.is_record
        if mark := NOT_IN_ITEMS.search(text):
            raise _mistake(document, f"invisible {character_name(mark[0])} in an item; delete it", text[: mark.start()])
        for item in [text] if is_record else _parts(text, config.items):
            label = (found(pattern, item),) if pattern and not is_record else document.label
            if sum(map(len, label)) > MAX_LABEL:
                raise _mistake(document, LONG_LABEL)
            if len(item) > MAX_ITEM:
                raise _mistake(document, f"an item of {len(item):,} characters, more than {MAX_ITEM:,}; {SPLIT_IT}")
            name = spelled(label) if any(label) else ""
            yield split, Item(forms.setdefault(canonical(name), name), item.strip("\n").rstrip())


def _mistake(document: Document, what: str, before: str = "") -> UserError:
    """The error for a mistake in a document, after the text `before`."""
    source, line, _ = document.origin
    return UserError(f"{source.label}: line {line + before.count(chr(10)):,}: {what}")


def _parts(text: str, unit: str) -> list[str]:
    """The items in the text of a file."""
    inside = text.strip("\n\t ")  # neither the end of a file nor blank lines at its beginning are empty items
    if unit == FILE or not inside:
        return [text] * (unit == FILE)
    return BLANK_LINES.split(inside) if unit == PARAGRAPH else inside.split("\n")


def _divided(items: Splits, config: DataConfig, notes: list[str]) -> Splits:
    """The items for training and for validation; the second part of `items` is from a text for validation. Without one, about
    the fraction of `config` of all others are held out, those with the lowest hashes; at least one, and never all of them. One
    so frequent that the share would double with it, or so long that it would fill the share alone, stays in training."""
    times = Counter(item.text for item in items[TRAIN])
    if config.val_text:
        held_out = {item.text for item in items[VAL]}
        if removed := sum(times[text] for text in held_out):
            notes.append(f"items removed from the training text, since they are in the validation text: {removed:,}")
        return [item for item in items[TRAIN] if item.text not in held_out], items[VAL]
    held_out, large = _held_out(times, config.val_fraction)
    if large:
        first = f"{one_line(large[0])[:MAX_NAME]} ({len(large[0]):,} characters, {plural(times[large[0]], 'time')})"
        others = f" and {len(large) - 1:,} more" if len(large) > 1 else ""
        notes.append(f"items so long or frequent that they are in the training text alone: {first}{others}")
    return [[item for item in items[TRAIN] if (item.text in held_out) == is_val] for is_val in (False, True)]


def _held_out(texts: Counter[str], fraction: float) -> tuple[set[str], list[str]]:
    """The texts for validation, and those that would be if they were shorter or less frequent."""
    mean = sum(len(text) * count for text, count in texts.items()) / texts.total()
    others = sum(count for count in texts.values() if count <= 2 * fraction * texts.total()) or texts.total()
    wanted, count, long = max(1, round(fraction * others)), 0, 0.0  # long: what the long ones have of the split's characters
    held_out, passed_over = set[str](), list[str]()
    for item in sorted(texts, key=lambda item: hashlib.blake2b(item.encode(), digest_size=8).digest()):
        if count < wanted and len(held_out) < len(texts) - 1:
            size = len(item) / mean
            size = size * texts[item] if size > max(LONG, wanted / 4) else 0.0
            if count + texts[item] > 2 * wanted or long + size > wanted:
                passed_over.append(item)
                continue
            held_out.add(item)
            count, long = count + texts[item], long + size
    if not held_out and len(texts) > 1:  # every item is frequent or long
        held_out = {min(passed_over, key=lambda item: len(item) * texts[item])}
    return held_out, [item for item in passed_over if item not in held_out]
