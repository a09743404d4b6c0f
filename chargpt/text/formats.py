"""The table of readers: the kinds of files, and which of them a file is, by its first bytes and its name. To add a kind, write
a module with its row, and add the row to KINDS: docs/design.md, "How to add"."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from chargpt.config import DataConfig
from chargpt.errors import Message, Option, UserError, Words
from chargpt.formatting import shown
from chargpt.project import command, shell_word
from chargpt.text.chats import CHATS
from chargpt.text.fasta import FASTA
from chargpt.text.json_files import JSON, JSON_LINES
from chargpt.text.kind import Head, Kind, Reads, Structure
from chargpt.text.markup import MARKUP
from chargpt.text.source import Source, decoded
from chargpt.text.tables import CSV, TSV, are_names

# A name that says what a file is decides; without one, the first row that fits.
KINDS: tuple[Kind, ...] = (*CHATS, *MARKUP, FASTA, JSON_LINES, JSON, TSV, CSV)
CHECKPOINT = "ckpt.pt"  # in the folder that nanoGPT's train.py writes
HEAD, LONGEST_HEAD = (
    2**16,
    2**24,
)  # bytes at the beginning of a file that are looked at; if they do not tell which field has text
MAX_NAMED = 12  # columns or fields that a message lists
MAX_NAME = 60  # characters of each of them
LINE, PARAGRAPH, FILE = UNITS = ("line", "paragraph", "file")  # what an item may be, beside a field of records
PLACES = ("file", "folder")  # what a label may be, beside a field of records
COLUMN = "column:"  # before the name of a field that is one of these words


def refuse_checkpoint(path: Path) -> None:
    """Raise UserError, which says how to make a run of it, if `path` is a checkpoint of nanoGPT or its folder."""
    folder = path.parent if path.name == CHECKPOINT else path
    if (folder / CHECKPOINT).is_file():
        words = f"{command('import')} {shell_word(shown(folder))} --run NAME"
        raise UserError(f"{shown(path)}: a checkpoint of nanoGPT; make a run of it with {words}")


def field_in(word: str) -> str:
    """The name of the field that a word of data.items, data.label, data.field or data.where means."""
    return word.removeprefix(COLUMN)


def word_for(setting: str, field: str) -> str:
    """The word that means a field in a setting."""
    taken = {"data.items": UNITS, "data.label": PLACES}.get(setting, ())
    return f"{COLUMN}{field}" if field in taken or field.startswith((COLUMN, "re:")) else field


def named(fields: Iterable[str], *, best: str) -> str:
    """The names of fields for a message, the first ones and the `best` if there are many."""
    names = [name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..." for name in fields if name]
    return ", ".join(names[:MAX_NAMED] + ["...", *{best} & {*names[MAX_NAMED:]}] * (len(names) > MAX_NAMED)) or "none"


def read_head(source: Source) -> bytes:
    """The beginning of `source`. Raises UserError if it cannot be read."""
    return next(source.chunks(HEAD), b"")


def _head_of(source: Source, content: bytes, config: DataConfig) -> Head:
    return Head(suffix=source.suffix, text=decoded(content, config.encoding), field=field_in(config.field))


def _found(kinds: Iterable[Kind], head: Head) -> Iterator[Structure]:
    return filter(None, (kind.find(kind, head) for kind in kinds))


def recognise(head: Head, *, asked: str = "") -> Structure | None:
    """The structure of a file, by its name if that says what it is; None for plain text. If it lacks the field that is `asked`
    for, and how the file begins says what has it, it is that: a table may be a chat."""
    found = list(_found([kind for kind in KINDS if head.suffix in kind.suffixes] or KINDS, head))
    begins = _found([kind for kind in KINDS if kind.reads == Reads.ALWAYS], head)
    return next((structure for structure in (*found, *begins) if asked in structure.fields), found[0] if found else None)


def structure_of(source: Source, content: bytes, config: DataConfig) -> Structure | None:
    """The structure by which `source`, which begins with `content`, is read; None if it is read as it is."""
    head = _head_of(source, content[:HEAD], config)
    if config.format == "fields":
        asked = head.field if config.items in ("", *UNITS) else field_in(config.items)
        found = recognise(head, asked=asked)
        if found is None and asked != DataConfig.field:
            from chargpt.text.marks import marked  # most texts have no mark of their own

            return marked(source, asked, encoding=config.encoding)
        return found if found and found.kind.records and (config.items or found.kind.reads != Reads.ITEMS) else None
    named = {Reads.NAMED, Reads.ITEMS} if config.items else {Reads.NAMED}
    unasked = [kind for kind in KINDS if kind.reads in named and head.suffix in kind.suffixes or kind.reads == Reads.ALWAYS]
    sure = (structure for structure in _found(unasked, head) if structure.is_sure)
    return next(sure, None) if config.format == "auto" else None


def warnings_about(sources: Sequence[Source], config: DataConfig) -> list[Words]:
    """A line for each format that is read as it is, or without who wrote it, and what to do; one for all names with the same
    end. Raises UserError."""
    by_suffix: dict[str, list[Source]] = {}
    for source in sources if config.format != "text" else ():
        by_suffix.setdefault(source.suffix, []).append(source)
    warnings = []
    for first, *others in by_suffix.values():
        content = read_head(first)
        read, found = structure_of(first, content, config), recognise(_head_of(first, content, config))
        if found and not found.best and found.kind.records and len(content) == HEAD:
            content = next(first.chunks(LONGEST_HEAD), b"")
            found = recognise(_head_of(first, content, config))
        if not read and found:
            warnings.append(advice_on_file(first, found, config, more=len(others)))
        elif read and read.author and config.format == "auto" and not (config.items or config.author):
            what = f"{first.label}: {read.kind.name}, whose field {field_in(config.field)!r} is read; for a chat, add "
            warnings.append(Message(what, Option("data.author", read.author)))
    return warnings


def advice_on_file(source: Source, structure: Structure, config: DataConfig, *, more: int = 0) -> Words:
    """What is read as it is, like so many `more` of its kind, and what to do if that is not meant."""
    advice = structure.kind.advice or _advice_on_fields
    name = structure.kind.name
    name = name if structure.is_sure else f"perhaps {'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    what = f"{source.label}{f' and {more:,} more' if more else ''}: {name}, read as plain text"
    return Message(what, advice(source, structure, config))


def _advice_on_fields(source: Source, structure: Structure, config: DataConfig) -> Words:
    fields, setting = structure.fields, "data.items" if config.items else "data.field"
    is_table = structure.kind in (CSV, TSV) and bool(fields)
    if is_table and not (are_names(fields) and (len(fields) > 1 or " " not in fields[0]) and (structure.best or fields[0])):
        number = 1 + fields.index(structure.best or fields[0])
        return Message("; for one column alone, give its number: add ", Option(setting, number))
    author = structure.author
    chat: list[Words] = [", and for a chat also ", Option("data.author", author)] * bool(author and not config.items)
    where = f"its {'columns' if is_table else 'fields'} are {named(fields, best=structure.best)}; " * bool(fields)
    name = word_for(setting, structure.best or "NAME")
    return Message(f"; {where}for the text of {'one' if fields else 'a field'} alone, add ", Option(setting, name), *chat)
