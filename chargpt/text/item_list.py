"""A list of items from text files: lines, paragraphs, files or fields of records, with labels; mixed, and split by item."""

import contextlib
import dataclasses
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError
from chargpt.project import shell_word
from chargpt.terminal import one_line, plural
from chargpt.text.formats import FASTA_NAMES, fields_of, read_head, suffix_of
from chargpt.text.ids import Stretches, TextCounts, notes_of
from chargpt.text.items import SEPARATOR, TAB, Item, ItemCounts
from chargpt.text.reading import TRAIN, VAL, Origin, TextReader
from chargpt.text.records import decoded, labelled
from chargpt.text.shuffle import random_numbers
from chargpt.text.source import Source, Sources, plain_name
from chargpt.text.sources import select_sources
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer, character_name, code_points

LINE, PARAGRAPH, FILE = "line", "paragraph", "file"  # what an item may be; anything else is the name of a field
PLACES = ("file", "folder")  # labels of items that are not in records
ORGANISM = "organism"  # of a sequence, as NCBI or UniProt writes it in its header
WORD = re.compile(r"header(?:\[(-?\d{1,3})\])?")  # its first word, or the one with this number, from 0
SPECIES = re.compile(r"\[([^\[\]]+)\]\s*$|\bOS=(.+?)(?= [A-Z]{2}=|$)")
BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")  # between paragraphs
MAX_LABELS = 10_000  # different ones; more are not labels, but names of single items
MAX_LABEL = 250  # characters
LONGEST_BLOCK = 30  # lines; with more between two blank ones, a list of lines is not one of blocks
MAX_NAMED = 3  # items that a note names
MAX_NAME = 30  # characters of each of them
MAX_ITEM = 2**23  # characters; more are not an item, but a text


@dataclass(frozen=True, kw_only=True)
class ItemList:
    """Items as lines of the stream, each without its end, in the order of training and of validation."""

    train: list[str]
    val: list[str]
    end: str  # after each of them
    counts: ItemCounts
    digest: str  # of the content that was read
    notes: list[str]

    def pieces(self) -> list[tuple[int, str]]:
        """The training and the validation split as text."""
        return [
            (split, "".join(f"{line}{self.end}" for line in lines)) for split, lines in ((TRAIN, self.train), (VAL, self.val))
        ]

    def counted(self) -> TextCounts:
        """What the first pass over any other text finds."""
        (_, train), (_, val) = self.pieces()
        counts = np.bincount(code_points(train + val), minlength=CODE_POINTS)
        stretches: Stretches = [(sys.maxsize, TRAIN)]  # what validates is a text of its own
        sizes = {"n_train": len(train), "n_val": len(val)}
        return TextCounts(counts=counts, **sizes, stretches=stretches, digest=self.digest, notes=self.notes)


def reading_of_items(config: DataConfig) -> DataConfig:
    """`config` for a reader of the documents that hold the items: with data.items as the field, if that is what it names."""
    newlines = "fold" if config.newlines == "auto" else config.newlines
    config = dataclasses.replace(config, newlines=newlines, split="position")
    if config.items in (LINE, PARAGRAPH, FILE):
        return config
    return dataclasses.replace(config, field=config.items, format="fields")


def read_items(
    sources: Sources, config: DataConfig, *, progress: Any, tokenizer: Tokenizer | None = None, known: str = ""
) -> ItemList:
    """The items of all sources. Raises UserError.

    `tokenizer` is the vocabulary of another run that will be used, or `known` are characters that a new one will have too.

    The order depends on the number of items alone, as that of data.shuffle=lines. On which side an item is depends on its text:
    duplicates are on one side, also under several labels, and an item stays there when others are added to the list.
    """
    reader, has_labels = TextReader(sources, reading_of_items(config), progress=progress), bool(config.label_fields)
    found: tuple[list[Item], list[Item]] = ([], [])
    labels = Counter[str]()
    empty = unlabelled = 0
    for split, label, text in items_of(reader, config):
        if not text:
            empty += 1
        elif has_labels and not label:
            unlabelled += 1
        else:
            found[split].append(Item(label, text))
            labels[label] += 1
            if len(labels) > MAX_LABELS:
                given = f"data.label: {shell_word(config.label)} given, but {sources.label} has"
                what = f"{len(labels):,} different ones in its first {labels.total():,} items"
                raise UserError(f"{given} {what}; name a field with {MAX_LABELS:,} or fewer, which groups the items")
    are_blocks = config.items == LINE and empty > max(2, sum(map(len, found)) / LONGEST_BLOCK)
    notes = [*notes_of(reader, reader.config), *_about_skipped(empty, unlabelled, are_blocks=are_blocks)]
    items, texts = found[TRAIN] + found[VAL], Counter(item.text for split in found for item in split)
    if not items:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise UserError(f"{sources.label}: no item in it{why}; give a file with items")
    counts = ItemCounts(
        items=len(items),
        duplicates=len(items) - len(texts),
        longest=max(map(len, texts)),
        longest_label=max(map(len, labels)),
        labels=dict(labels.most_common()) if has_labels else {},
    )
    digest = reader.digest()
    if config.val_text:
        held_out = {item.text for item in found[VAL]}
        removed = sum(item.text in held_out for item in found[TRAIN])
        notes += [f"items removed from the training text because they are validation items: {removed:,}"] * bool(removed)
        items = [item for item in found[TRAIN] if item.text not in held_out] + found[VAL]
    else:
        held_out, passed_over = _held_out(texts, config.val_fraction)
        digest += " without frequent items in the validation split" * bool(passed_over)
        notes += _about_frequent(passed_over, texts)
    train, val = ([item for item in items if (item.text in held_out) == (split == VAL)] for split in (TRAIN, VAL))
    if not train or not val:
        raise UserError(f"{sources.label}: {plural(len(texts), 'different item')}; give at least two, one for validation")
    holds_newlines = any("\n" in item.text for item in items)
    uses_separator = holds_newlines or SEPARATOR in ((tokenizer and tokenizer.characters) or known)
    if uses_separator:
        why = "items hold newlines" if holds_newlines else "the vocabulary has it"
        notes.append(f"{why}, so {character_name(SEPARATOR)} ends each of them for the model")
    end = SEPARATOR if uses_separator else "\n"
    return ItemList(train=_mixed(train), val=_mixed(val), end=end, counts=counts, digest=digest, notes=notes)


def list_items(texts: Sequence[str], config: DataConfig, *, root: Path) -> list[Item]:
    """The items of `texts` (files, folders, `-`) in their order, without empty ones: to be looked at, not trained on.

    A text that has no fields, or not those of the labels, is read without them. Raises UserError.
    """
    found = list[Item]()
    folder = root / "data" / "cache"
    sources = select_sources(texts, val_text="", pattern=config.pattern, root=root, copies=folder)
    with contextlib.closing(sources):
        for source in sources.train:
            own = _fitting(source, config)
            reader = TextReader(Sources(train=[source], val=[], notes=[]), reading_of_items(own), progress=tqdm(disable=True))
            found += [Item(label, text) for _, label, text in items_of(reader, own) if text]
    if not found:
        raise UserError(f"{sources.label}: no item in it; give a file with items")
    return found


def _fitting(source: Source, config: DataConfig) -> DataConfig:
    """`config` without the fields that `source` does not have."""
    structure = fields_of(source, read_head(source), reading_of_items(config))
    if structure is None:
        is_place = config.label in PLACES or config.label_pattern is not None
        is_field = config.items not in (LINE, PARAGRAPH, FILE)
        return dataclasses.replace(config, items=LINE if is_field else config.items, label=config.label if is_place else "")
    is_there = config.label_pattern is not None or {*config.label_fields} <= {*structure.fields}
    return config if is_there else dataclasses.replace(config, label="")


def items_of(reader: TextReader, config: DataConfig) -> Iterator[tuple[int, str, str]]:
    """The split, the label and the text of each item that `reader`, made with `reading_of_items(config)`, finds.

    Labels and texts may be empty. Raises UserError.
    """
    pattern = config.label_pattern
    for origin, split, pieces in reader.documents():
        text = "".join(decoded(pieces))
        for character in ("\0", SEPARATOR):
            if (at := text.find(character)) >= 0:
                where = f"{origin.source.label}: line {origin.line + text.count(chr(10), 0, at):,}"
                raise UserError(f"{where}: {character_name(character)} in an item; remove it")
        for line in _items_in(text, origin, config):
            if pattern and not _is_fasta(origin):
                line = labelled(line, [_found(pattern, line)])
            label, _, item = line.partition(TAB) if config.label_fields else ("", "", line)
            where = f"{origin.source.label}: line {origin.line:,}"
            if len(label) > MAX_LABEL:
                what = f"a label of {len(label):,} characters, more than {MAX_LABEL}"
                raise UserError(f"{where}: {what}; name a field in data.label that groups the items")
            if len(item) > MAX_ITEM:
                what = f"an item of {len(item):,} characters, more than {MAX_ITEM:,}"
                raise UserError(f"{where}: {what}; split it, or train on it as a text, without items")
            yield split, label if label.strip(",") else "", item.strip("\n").rstrip()


def _items_in(text: str, origin: Origin, config: DataConfig) -> Iterator[str]:
    """The lines of the stream that a document holds. Raises UserError."""
    if origin.is_record:  # its label is before its text
        yield text
        return
    if _is_fasta(origin):
        yield from _sequences_in(text, origin, config)
        return
    if config.items not in (LINE, PARAGRAPH, FILE):
        what = (
            f"{origin.source.label}: plain text, so it has no field {config.items!r}; give CSV, TSV or JSON lines with it, or "
        )
        raise UserError(what, Option("data.items", "line"), ", paragraph or file")
    labels = [] if config.label_pattern else [_place(name, origin, config.label) for name in config.label_fields]
    parts = [text]
    if config.items != FILE:  # neither the end of a file nor blank lines at its beginning are empty items
        inside = text.strip("\n\t ")
        parts = (inside.split("\n") if config.items == LINE else BLANK_LINES.split(inside)) if inside else []
    for part in parts:
        yield labelled(part, labels)


def _sequences_in(text: str, origin: Origin, config: DataConfig) -> Iterator[str]:
    """The sequences of a FASTA file, without its line ends; a label may be a part of its header."""
    for record in re.split(r"(?m)^>", text)[1:]:
        header, _, sequence = record.partition("\n")
        if config.label_pattern:
            labels = [_found(config.label_pattern, header)]
        else:
            labels = [_part(name, header) or _place(name, origin, config.label) for name in config.label_fields]
        yield labelled("".join(sequence.split()), labels)


def _is_fasta(origin: Origin) -> bool:
    return not origin.is_record and suffix_of(origin.source) in FASTA_NAMES


def _found(pattern: re.Pattern[str], text: str) -> str:
    """What the groups of `pattern` match in `text` first, without spaces around it; empty if it does not match."""
    found = pattern.search(text)
    return "" if found is None else next((group for group in map(str.strip, filter(None, found.groups())) if group), "")


def _part(name: str, header: str) -> str | None:
    """The label `name` of a sequence with this header, " " if it has none; None if `name` is not one of a header."""
    if name == ORGANISM:
        return _found(SPECIES, header) or " "
    if asked := WORD.fullmatch(name):
        words, number = header.split(), int(asked[1] or 0)
        return words[number] if -len(words) <= number < len(words) else " "
    return None


def _place(name: str, origin: Origin, given: str) -> str:
    """The label `name` of a document: the name of its file without a suffix, or of the file's folder. Raises UserError."""
    path = origin.source.path
    if name not in PLACES or path is None:
        kind = "FASTA" if _is_fasta(origin) else "plain text"
        more = "header (the first word), header[1], organism" if kind == "FASTA" else "a regular expression such as '^K:(.*)'"
        what, allowed = (kind, f"file or folder, {more}") if path is not None else ("no file", "a file with it")
        raise UserError(f"data.label: {given!r} given, but {origin.source.label} is {what}; use {allowed}, or leave it out")
    path = path.absolute()
    return plain_name(path).stem if name == "file" else path.parent.name


def _held_out(items: Counter[str], fraction: float) -> tuple[set[str], list[str]]:
    """Items for validation, and those that are too frequent for it: with one of them, the split would have twice its share.

    About this `fraction` of all others, those with the lowest hashes; at least one, and never all of them.
    """
    others = sum(count for count in items.values() if count <= 2 * fraction * items.total()) or items.total()
    wanted, size = max(1, round(fraction * others)), 0
    held_out, passed_over = set[str](), list[str]()
    for item in sorted(items, key=lambda item: hashlib.blake2b(item.encode(), digest_size=8).digest()):
        if size < wanted and len(held_out) < len(items) - 1:
            if size + items[item] > 2 * wanted:
                passed_over.append(item)
                continue
            held_out.add(item)
            size += items[item]
    if not held_out and len(items) > 1:  # every item is frequent
        held_out = {min(passed_over, key=items.__getitem__)}
    return held_out, [item for item in passed_over if item not in held_out]


def _about_skipped(empty: int, unlabelled: int, *, are_blocks: bool) -> list[str]:
    """Notes on so many items without a text and without a label; `are_blocks`: whether blank lines may divide the items."""
    blocks = "; if blank lines are between your items, use data.items=paragraph" * are_blocks
    notes = [f"empty items skipped: {empty:,}{blocks}"] * bool(empty)
    return notes + [f"items without a label skipped: {unlabelled:,}"] * bool(unlabelled)


def _about_frequent(passed_over: Sequence[str], counts: Counter[str]) -> list[str]:
    """A note if some items are too frequent for validation."""
    names = [f"{one_line(item)[:MAX_NAME]} ({counts[item]:,} times)" for item in passed_over[:MAX_NAMED]]
    more = ["..."] * (len(passed_over) > MAX_NAMED)
    return [f"too frequent to validate, so for training alone: {', '.join(names + more)}"] * bool(names)


def _mixed(items: list[Item]) -> list[str]:
    """The lines of `items` in their order for the model, each without its end."""
    order = np.argsort(random_numbers(len(items)), kind="stable").tolist()
    return [f"{items[i].label}{TAB}{items[i].text}" if items[i].label else items[i].text for i in order]
