"""One pass over the text of all sources, in little memory: decoded, normalised, and assigned to a split.

With a vocabulary of bytes, a text is its UTF-8 read as Latin-1: each character stands for one byte.
"""

import codecs
import dataclasses
import io
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.text.character_encodings import may_be_utf8, undecodable
from chargpt.text.document import TRAIN, VAL, Digest, Document, Origin
from chargpt.text.formats import UNITS, binary_format, structure_of
from chargpt.text.kind import Kind, Structure
from chargpt.text.normalization import TextNormalizer
from chargpt.text.records import label_of_file, texts_in_records
from chargpt.text.source import Source, Sources, byte_order_mark

CHUNK = 2**20  # bytes
PREFETCHED = 4  # chunks
MANY_FILES = 20  # in a folder of this many or more, data.split=auto means document


def reading_of(config: DataConfig, sources: Sources) -> DataConfig:
    """`config` with what data.items, and data.split=auto, mean for a reader of these sources. The split is `document` for a
    folder of MANY_FILES or more, unless one of them is larger than the validation split. Items that are a field of records are
    read as that field."""
    if config.items:
        newlines = "fold" if config.newlines == "auto" else config.newlines
        config = dataclasses.replace(config, newlines=newlines, split="position")
        is_field = config.items not in UNITS
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
        self._encoding = codecs.lookup(config.encoding).name
        self._are_bytes, self._as_it_is = config.vocabulary == "bytes", self._normalizer.is_identity
        self._digest = Digest()
        self.byte_order_marks: set[str] = set()  # the encodings that they named
        self.records: Counter[Kind] = Counter()  # of each kind that is read by its fields
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
        """The hash of all documents, when they have been read."""
        return self._digest.hexdigest()

    def pieces(self) -> Generator[tuple[Origin | None, int, str], None, None]:
        """The same text in smaller pieces, each with the document that it is from; None for a separator between documents."""
        separator = self._as_vocabulary(self._normalizer.apply(self.config.unescaped_separator))
        sizes = [0, 0]
        for split, document in self.documents():
            if self.config.split == "document":
                # A document goes to validation whenever that split has less than its share. This spreads the validation
                # documents evenly, and does not need to know how many documents there are.
                split = VAL if sizes[VAL] < self.config.val_fraction * sum(sizes) else TRAIN
            before, size = separator * bool(sizes[split]), 0
            for piece in filter(None, document.pieces):
                if before and not size:
                    yield None, split, before
                size += len(piece)
                yield document.origin, split, piece
            if size:
                self._digest.mark(split, size, label=document.label, before=before)
            sizes[split] += size

    def documents(self) -> Iterator[tuple[int, Document]]:
        """The split and each document: a source, or a record of a source that has fields. Their characters are hashed."""
        with ThreadPoolExecutor(1) as pool:
            for source, split in self._sources:
                chunks = source.chunks(CHUNK)
                head = next(chunks, b"")
                is_utf16 = head[:2] in (b"\xff\xfe", b"\xfe\xff")  # whose texts hold NUL bytes
                if source.in_folder and (binary_format(head) or (b"\0" in head[:8192] and not is_utf16)):
                    self.skipped["binary files"] += 1
                elif structure := structure_of(source, head, self.config):
                    text, _ = self._text(source, head, structure, chunks, pool)
                    yield from self._records(source, split, structure, text)
                else:
                    label = label_of_file(source, self.config)
                    text, is_hashed = self._text(source, head, None, chunks, pool)
                    normalized = text if self._as_it_is else self._normalizer.apply_in_pieces(text)
                    yield split, Document(label, text if is_hashed else self._hashed(normalized), Origin(source, 1))

    def _text(
        self, source: Source, head: bytes, structure: Structure | None, chunks: Iterator[bytes], pool: ThreadPoolExecutor
    ) -> tuple[Iterator[str], bool]:
        """The decoded text of a source, and whether its characters are hashed already: UTF-8 that is read as it is, and bytes,
        are hashed while they are read, which takes no extra time."""
        mark, encoding, errors = self._encoding_of(source, head, structure)
        is_hashed = structure is None and self._as_it_is and encoding == ("latin-1" if self._are_bytes else "utf-8")
        counted = self._counted(chain([head[len(mark) :]], chunks), is_hashed=is_hashed, marked=len(mark))
        return self._decoded(source, _prefetch(counted, pool), encoding, errors, offset=len(mark)), is_hashed

    def _records(self, source: Source, split: int, structure: Structure, text: Iterator[str]) -> Iterator[tuple[int, Document]]:
        """The split and the records of a source as documents, normalised and hashed."""
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        folded = (newlines.decode(piece, final=not piece) for piece in chain(filter(None, text), [""]))
        for line, label, said in texts_in_records(source, structure, self.config, pieces=folded, left_out=self.left_out):
            pieces = list(self._hashed([self._normalizer.apply(said)]))
            self.records[structure.kind] += 1
            self.skipped["records without text"] += not said
            yield split, Document(label, pieces, Origin(source, line, is_record=True))

    def _hashed(self, pieces: Iterable[str]) -> Iterator[str]:
        """`pieces` as the vocabulary has them."""
        for piece in pieces:
            content = piece.encode("utf-8", "surrogatepass")
            self._digest.add(content)
            yield content.decode("latin-1") if self._are_bytes else piece

    def _counted(self, chunks: Iterable[bytes], *, is_hashed: bool, marked: int) -> Iterator[bytes]:
        """`chunks`, then b"". Runs in another thread, which takes no extra time. `marked` bytes have been read."""
        self._progress.update(marked)
        for chunk in filter(None, chunks):
            if is_hashed:
                self._digest.add(chunk)
            self._progress.update(len(chunk))
            yield chunk
        yield b""

    def _encoding_of(self, source: Source, head: bytes, structure: Structure | None) -> tuple[bytes, str, str]:
        """The byte-order mark of a source, its encoding, and what to do with other bytes. Raises UserError."""
        if structure is None and self._are_bytes and self._as_it_is and self._encoding == "utf-8":
            return b"", "latin-1", "strict"  # a vocabulary of bytes takes any file as it is
        if structure is not None and structure.kind.bytes_as:
            return b"", "ascii", structure.kind.bytes_as
        if self._encoding != "utf-8":
            return b"", self._encoding, "strict"
        mark, encoding = byte_order_mark(head)
        if mark:
            self.byte_order_marks.add(encoding)
        elif not may_be_utf8(head):
            raise undecodable(source, None, encoding)
        return mark, encoding, "strict"

    def _decoded(self, source: Source, chunks: Iterator[bytes], encoding: str, errors: str, *, offset: int) -> Iterator[str]:
        """The text of `chunks`, which begin at `offset` and end with an empty one. Raises UserError."""
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        for chunk in chunks:
            pending = len(decoder.getstate()[0])
            try:
                yield decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:  # without `start`: utf-16 that does not begin with a byte-order mark
                raise undecodable(source, offset - pending + getattr(error, "start", 0), encoding) from None
            offset += len(chunk)

    def _as_vocabulary(self, text: str) -> str:
        return text.encode().decode("latin-1") if self._are_bytes else text


def _prefetch(chunks: Iterator[bytes], pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """`chunks`; while one is used, the next few are computed in the thread of `pool`."""
    pending = deque(pool.submit(next, chunks, None) for _ in range(PREFETCHED))
    while (chunk := pending.popleft().result()) is not None:
        pending.append(pool.submit(next, chunks, None))
        yield chunk
