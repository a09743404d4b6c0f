"""One pass over the text of all sources, in little memory: decoded, normalised, and assigned to a split.

With a vocabulary of bytes, a text is its UTF-8 read as Latin-1: each character stands for one byte.
"""

import codecs
import dataclasses
import hashlib
import itertools
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.text.character_encodings import may_be_utf8, undecodable
from chargpt.text.formats import CHATS, MBOX, Structure, binary_format, fields_of
from chargpt.text.items import FILE, LINE, PARAGRAPH
from chargpt.text.normalization import TextNormalizer
from chargpt.text.source import Source, Sources, byte_order_mark

CHUNK = 2**20  # bytes
PREFETCHED = 4  # chunks
TRAIN, VAL = 0, 1  # the splits
MANY_FILES = 20  # in a folder of this many or more, data.split=auto means document


@dataclass(frozen=True)
class Origin:
    """Where a document begins."""

    source: Source
    line: int  # from 1
    is_record: bool = False  # a line of JSON lines or a record of a table, not a file


def reading_of(config: DataConfig, sources: Sources) -> DataConfig:
    """`config` with what data.items, and data.split=auto, mean for a reader of these sources. The split is `document` for a
    folder of MANY_FILES or more, unless one of them is larger than the validation split. Items that are a field of records are
    read as that field."""
    if config.items:
        newlines = "fold" if config.newlines == "auto" else config.newlines
        config = dataclasses.replace(config, newlines=newlines, split="position")
        is_field = config.items not in (LINE, PARAGRAPH, FILE)
        return dataclasses.replace(config, field=config.items, format="fields") if is_field else config
    if config.split != "auto":
        return config
    sizes = [source.size for source in sources.train]
    is_alike = None not in sizes and max(map(int, filter(None, sizes)), default=0) <= config.val_fraction * (sources.size or 0)
    in_folder = len(sizes) >= MANY_FILES and all(source.in_folder for source in sources.train)
    is_open = not config.val_text and config.shuffle == "none"
    return dataclasses.replace(config, split="document" if is_open and in_folder and is_alike else "position")


class TextReader:
    """One pass over all sources. Iterate over it once for pairs (TRAIN or VAL, piece); the attributes are complete then."""

    def __init__(self, sources: Sources, config: DataConfig, *, progress: tqdm | None = None) -> None:
        """`progress` counts bytes, in another thread."""
        self._sources = [(source, TRAIN) for source in sources.train] + [(source, VAL) for source in sources.val]
        self.config, self._progress = config, tqdm(disable=True) if progress is None else progress
        self._normalizer = TextNormalizer.of(config)
        is_utf8 = codecs.lookup(config.encoding).name == "utf-8"
        # The vocabulary of bytes takes any file as it is, unless something must be decoded.
        self._takes_bytes = config.vocabulary == "bytes" and is_utf8 and self._normalizer.is_identity
        self._hash = hashlib.sha256()
        self.byte_order_marks: set[str] = set()  # the encodings that they named
        self.records: Counter[str] = Counter()  # of each format that is read by data.field
        self.skipped: Counter[str] = Counter()  # binary files in folders, and records without text
        self.left_out: dict[str, list[int]] = {}  # what else was, such as media in a chat, and the lines where it was

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Small pieces come joined: the cost of each would dominate for many short documents."""
        held: list[str] = []
        held_split, size = TRAIN, 0
        for _, split, piece in self.pieces():
            if held and (split != held_split or size > CHUNK // 8):
                yield held_split, "".join(held)
                held, size = [], 0
            held.append(piece)
            held_split, size = split, size + len(piece)
        if held:
            yield held_split, "".join(held)

    def digest(self) -> str:
        """SHA-256 of everything that was read, and of how it was divided into sources."""
        return self._hash.hexdigest()

    def pieces(self) -> Generator[tuple[Origin | None, int, str], None, None]:
        """The same text in smaller pieces, each with the document that it is from; None for a separator between documents."""
        separator = self._as_vocabulary(self._normalizer.apply(self.config.unescaped_separator))
        sizes = [0, 0]
        for origin, split, document in self.documents():
            if self.config.split == "document":
                # A document goes to validation whenever that split has less than its share. This spreads the validation
                # documents evenly, and does not need to know how many documents there are.
                split = VAL if sizes[VAL] < self.config.val_fraction * sum(sizes) else TRAIN
            before = sizes[split]
            for piece in document:
                if not piece:
                    continue
                if before and sizes[split] == before and separator:
                    yield None, split, separator
                sizes[split] += len(piece)
                are_bytes = self._takes_bytes and not origin.is_record
                yield origin, split, piece if are_bytes else self._as_vocabulary(piece)

    def documents(self) -> Iterator[tuple[Origin, int, Iterable[str]]]:
        """The origin, the split and the pieces of each document: a source, or a record of a source that has fields."""
        with ThreadPoolExecutor(1) as pool:
            for source, split in self._sources:
                chunks = source.chunks(CHUNK)
                head = next(chunks, b"")
                is_utf16 = head[:2] in (b"\xff\xfe", b"\xfe\xff")  # whose texts hold NUL bytes
                if source.in_folder and (binary_format(head) or (b"\0" in head[:8192] and not is_utf16)):
                    self.skipped["binary files"] += 1
                    continue
                structure = fields_of(source, head, self.config)
                tag = "False" if structure is None else structure.tag
                chunks = _prefetch(self._hashed(tag, split, itertools.chain([head], chunks)), pool)
                text = self._decoded(source, head, structure, chunks)
                if structure is None:
                    # To hold a piece while the next one is decoded takes a tenth of the time.
                    is_identity = self._normalizer.is_identity
                    yield Origin(source, 1), split, text if is_identity else self._normalizer.apply_in_pieces(text)
                    continue
                from chargpt.text.chats import messages_in  # only a text with records needs it
                from chargpt.text.records import documents_in

                label, left_out = source.label, self.left_out
                messages = messages_in(text, structure.kind, label, left_out) if structure.kind in CHATS else None
                records = documents_in(text, structure, self.config, label=label, left_out=left_out, messages=messages)
                for line, record in records:
                    self.records[structure.kind] += 1
                    self.skipped["records without text"] += not record
                    yield Origin(source, line, is_record=True), split, [self._normalizer.apply(record)]

    def _hashed(self, tag: str, split: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """`chunks`, then b"". Runs in another thread, so that reading and hashing take no extra time."""
        size = 0
        for chunk in filter(None, chunks):
            size += len(chunk)
            self._hash.update(chunk)
            self._progress.update(len(chunk))
            yield chunk
        self._hash.update(f"{size} {split} {tag}\n".encode())
        yield b""

    def _decoded(self, source: Source, head: bytes, structure: Structure | None, chunks: Iterator[bytes]) -> Iterator[str]:
        """The text of `chunks`, from `head` to an empty one at the end. Raises UserError."""
        encoding, errors, mark = codecs.lookup(self.config.encoding).name, "strict", b""
        if structure is None and self._takes_bytes:
            encoding = "latin-1"
        elif structure is not None and structure.kind == MBOX:  # each mail names its own encoding
            encoding, errors = "ascii", "surrogateescape"
        elif encoding == "utf-8":
            mark, encoding = byte_order_mark(head)
            if mark:
                self.byte_order_marks.add(encoding)
            elif not may_be_utf8(head):
                raise undecodable(source, None, encoding)
        decoder, offset = codecs.getincrementaldecoder(encoding)(errors), len(mark)
        for chunk in itertools.chain([next(chunks)[len(mark) :]], chunks):
            pending = len(decoder.getstate()[0])
            try:
                yield decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:  # without `start`: utf-16 that does not begin with a byte-order mark
                raise undecodable(source, offset - pending + getattr(error, "start", 0), encoding) from None
            offset += len(chunk)

    def _as_vocabulary(self, text: str) -> str:
        return text.encode().decode("latin-1") if self.config.vocabulary == "bytes" else text


def _prefetch(chunks: Iterator[bytes], pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """`chunks`; while one is used, the next few are computed in the thread of `pool`."""
    pending = deque(pool.submit(next, chunks, None) for _ in range(PREFETCHED))
    while (chunk := pending.popleft().result()) is not None:
        pending.append(pool.submit(next, chunks, None))
        yield chunk
