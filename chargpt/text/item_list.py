"""A list of items from text files: lines, paragraphs, files or fields of records, with labels; mixed, and split by item."""

import dataclasses
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError
from chargpt.project import shell_word
from chargpt.terminal import one_line
from chargpt.text.formats import FASTA_NAMES, advice_on, fields_of, read_head, suffix_of
from chargpt.text.ids import TextCounts, notes_of
from chargpt.text.items import FILE, LINE, PARAGRAPH, SEPARATOR, TAB, Item, ItemCounts, stream_of
from chargpt.text.reading import TRAIN, VAL, Origin, TextReader, reading_of
from chargpt.text.shuffle import random_order
from chargpt.text.source import Sources, plain_name
from chargpt.text.sources import select_sources
from chargpt.text.tokenizer import CODE_POINTS, character_name, code_points

PLACES = ("file", "folder")  # labels of items that are not in records
ORGANISM = "organism"  # of a sequence, as NCBI or UniProt writes it in its header
WORD = re.compile(r"header(?:\[(-?\d{1,3})\])?")  # its first word, or the one with this number, from 0
SPECIES = re.compile(r"\[([^\[\]]+)\]\s*$|\bOS=(.+?)(?= [A-Z]{2}=|$)")
BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")  # between paragraphs
MAX_LABELS = 10_000  # different ones; more are not labels, but names of single items
MAX_LABEL = 250  # characters
LONGEST_BLOCK = 30  # lines; with more between two blank ones, a list of lines is not one of blocks
MAX_NAME = 30  # characters of an item that a note names
MAX_ITEM = 2**23  # characters; more are not an item, but a text


def read_items(sources: Sources, config: DataConfig, *, progress: Any, known: str = "") -> TextCounts:
    """The items of all sources, read with `config` of `reading_of`. The vocabulary has the characters `known` anyway. The order
    depends on the number of items alone, as that of data.shuffle=lines. On which side an item is depends on its text:
    duplicates are on one side, also under several labels, and an item stays there when others are added. Raises UserError."""
    reader, has_labels = TextReader(sources, config, progress=progress), bool(config.label_fields)
    found: tuple[list[Item], list[Item]] = ([], [])
    empty = unlabelled = 0
    for split, label, text in items_of(reader, config):
        if not text:
            empty += 1
        elif has_labels and not label:
            unlabelled += 1
        else:
            found[split].append(Item(label, text))
    items = found[TRAIN] + found[VAL]
    texts, labels = (Counter(item[part] for item in items) for part in (1, 0))
    if len(labels) > MAX_LABELS:
        what = f"data.label: {shell_word(config.label)} given, but {sources.label} has {len(labels):,} different values of it"
        raise UserError(f"{what}; choose a label with {MAX_LABELS:,} values or fewer, such as a country")
    notes = notes_of(reader, reader.config)
    if empty:
        are_blocks = config.items == LINE and empty > max(2, len(items) / LONGEST_BLOCK)
        hint = "; if blank lines are between your items, use data.items=paragraph" * are_blocks
        notes.append(f"empty items skipped: {empty:,}{hint}")
    notes += [f"items without a label skipped: {unlabelled:,}"] * bool(unlabelled)
    if not items:
        raise UserError(f"{sources.label}: no items ({'; '.join(notes) or 'empty'}); give {'labelled ' * has_labels}items")
    counts = ItemCounts(
        items=len(items),
        duplicates=len(items) - len(texts),
        longest=max(map(len, texts)),
        longest_label=max(map(len, labels)),
        labels=dict(labels.most_common()) if has_labels else {},
    )
    train, val, passed_over = _divided(found, texts, config)
    if not train or not val:
        raise UserError(f"{sources.label}: too few items that differ ({len(texts):,}); give at least two, one for validation")
    if removed := len(items) - len(train) - len(val):
        notes.append(f"items removed from the training text, since they are in the validation text: {removed:,}")
    if passed_over:
        named = f"{one_line(passed_over[0])[:MAX_NAME]} ({texts[passed_over[0]]:,} times)"
        others = f" and {len(passed_over) - 1:,} more" if len(passed_over) > 1 else ""
        notes.append(f"items that are so frequent that they are in the training text alone: {named}{others}")
    end = SEPARATOR if any("\n" in text for text in texts) or SEPARATOR in known else "\n"
    if end == SEPARATOR:
        notes.append("some items have several lines, so the program keeps them apart by the character U+001E, not by lines")
    mixed = ([some[i] for i in random_order(len(some)).tolist()] for some in (train, val))
    pieces = [(split, stream_of(some, end=end)) for split, some in zip((TRAIN, VAL), mixed)]
    return TextCounts(
        counts=np.bincount(code_points("".join(piece for _, piece in pieces)), minlength=CODE_POINTS),
        n_train=len(pieces[TRAIN][1]),
        n_val=len(pieces[VAL][1]),
        stretches=[(sys.maxsize, TRAIN)],  # what validates is a text of its own
        digest=reader.digest() + " without frequent items in the validation split" * bool(passed_over),
        notes=notes,
        pieces=pieces,
        items=counts,
        marks=end + TAB * has_labels,
    )


def list_items(texts: Sequence[str], config: DataConfig, *, root: Path) -> list[Item]:
    """The items of `texts` (files, folders, `-`) in their order, without empty ones: to be looked at, not trained on. A text
    that has no fields, or not those of the labels, is read without them. Raises UserError."""
    found = list[Item]()
    sources = select_sources(texts, config, root=root)
    for source in sources.train:
        alone = dataclasses.replace(sources, train=[source])
        structure = fields_of(source, read_head(source), reading_of(config, alone))
        items = LINE if structure is None and config.items not in (LINE, PARAGRAPH, FILE) else config.items
        has_labels = config.label in PLACES if structure is None else {*config.label_fields} <= {*structure.fields}
        own = dataclasses.replace(config, items=items, label=config.label if config.label_pattern or has_labels else "")
        reader = TextReader(alone, reading_of(own, alone))
        found += [Item(label, text) for _, label, text in items_of(reader, own) if text]
    if not found:
        raise UserError(f"{sources.label}: no item in it; give a file with items")
    return found


def items_of(reader: TextReader, config: DataConfig) -> Iterator[tuple[int, str, str]]:
    """The split, the label and the text of each item that `reader`, made with `reading_of(config, ...)`, finds. Labels and
    texts may be empty. Raises UserError."""
    pattern = config.label_pattern
    for origin, split, pieces in reader.documents():
        where = f"{origin.source.label}: line {origin.line:,}"
        text = "".join(pieces)
        if mark := re.search(f"[\0{SEPARATOR}]", text):
            line = origin.line + text.count("\n", 0, mark.start())
            raise UserError(f"{origin.source.label}: line {line:,}: invisible {character_name(mark[0])} in an item; delete it")
        for header, item in _parts(text, origin, config):
            if pattern:
                labels = [_found(pattern, item if header is None else header)]
            elif origin.is_record:  # its label is before its text
                label, _, rest = item.partition(TAB)
                labels, item = ([label], rest) if config.label_fields else ([], item)
            else:
                labels = [_label(name, header, origin, config) for name in config.label_fields]
            label = ",".join(" ".join(one.split()) for one in labels)
            for what, part, most, mend in (
                ("a label", label, MAX_LABEL, "in data.label, name a field with short labels, such as a category"),
                ("an item", item, MAX_ITEM, "split it, or train on it as a text, without items"),
            ):
                if len(part) > most:
                    raise UserError(f"{where}: {what} of {len(part):,} characters, more than {most:,}; {mend}")
            yield split, label if label.strip(",") else "", item.strip("\n").rstrip()


def _parts(text: str, origin: Origin, config: DataConfig) -> Iterator[tuple[str | None, str]]:
    """The text of each item that a document holds, after the header of a sequence in FASTA. Raises UserError."""
    if origin.is_record or (config.items == FILE and suffix_of(origin.source) not in FASTA_NAMES):
        yield None, text
    elif suffix_of(origin.source) in FASTA_NAMES:
        for record in re.split(r"(?m)^>", text)[1:]:
            header, _, sequence = record.partition("\n")
            yield header, "".join(sequence.split())
    elif config.items in (LINE, PARAGRAPH):
        inside = text.strip("\n\t ")  # neither the end of a file nor blank lines at its beginning are empty items
        for part in BLANK_LINES.split(inside) if config.items == PARAGRAPH else inside.split("\n"):
            if inside:
                yield None, part
    else:
        what = f"{origin.source.label}: plain text has no field {config.items!r}; give a table or JSON lines, or add "
        raise UserError(what, Option("data.items", "line"), " (or paragraph, or file)")


def _found(pattern: re.Pattern[str], text: str) -> str:
    """What the groups of `pattern` match in `text` first, without spaces around it; empty if it does not match."""
    found = pattern.search(text)
    return next(filter(None, (group.strip() for group in (found.groups("") if found else ()))), "")


def _label(name: str, header: str | None, origin: Origin, config: DataConfig) -> str:
    """The label `name` of an item: a part of its `header`, the name of its file or of its folder. Raises UserError."""
    path = origin.source.path
    if header is not None and name == ORGANISM:
        return _found(SPECIES, header)
    if header is not None and (asked := WORD.fullmatch(name)):
        words, number = header.split(), int(asked[1] or 0)
        return words[number] if -len(words) <= number < len(words) else ""
    if name in PLACES and path is not None:
        path = path.absolute()
        return plain_name(path).stem if name == "file" else path.parent.name
    if fields := fields_of(origin.source, read_head(origin.source), dataclasses.replace(config, format="fields")):
        raise UserError(f"data.label: {config.label!r} given, but ", advice_on(origin.source, fields, config))
    kind, use = "plain text, without fields", "a regular expression such as '^K:(.*)'"
    if header is not None:
        kind, use = "FASTA", "data.label=header (its first word), data.label=header[1], data.label=organism"
    kind, use = ("no file", use) if path is None else (kind, f"data.label=file, data.label=folder, {use}")
    raise UserError(
        f"data.label: {config.label!r} given, but {origin.source.label} is {kind}; use {use}, or leave out data.label"
    )


def _divided(
    found: tuple[list[Item], list[Item]], texts: Counter[str], config: DataConfig
) -> tuple[list[Item], list[Item], list[str]]:
    """The items for training and for validation, and those too frequent for validation, which would have twice its share. Of
    `found`, the second part is from a text for validation. Without one, about the fraction of `config` of all others are held
    out, those with the lowest hashes; at least one, and never all of them."""
    if config.val_text:
        held_out = {item.text for item in found[VAL]}
        return [item for item in found[TRAIN] if item.text not in held_out], found[VAL], []
    most = 2 * config.val_fraction * texts.total()
    others = sum(count for count in texts.values() if count <= most) or texts.total()
    wanted, size = max(1, round(config.val_fraction * others)), 0
    held_out, passed_over = set[str](), list[str]()
    for item in sorted(texts, key=lambda item: hashlib.blake2b(item.encode(), digest_size=8).digest()):
        if size < wanted and len(held_out) < len(texts) - 1:
            if size + texts[item] > 2 * wanted:
                passed_over.append(item)
                continue
            held_out.add(item)
            size += texts[item]
    if not held_out and len(texts) > 1:  # every item is frequent
        held_out = {min(passed_over, key=texts.__getitem__)}
    train, val = ([item for item in found[TRAIN] if (item.text in held_out) == is_val] for is_val in (False, True))
    return train, val, [item for item in passed_over if item not in held_out]
