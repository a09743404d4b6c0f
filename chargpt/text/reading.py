"""One pass over the text of all sources, in little memory: decoded, normalised, and assigned to a split. With a vocabulary of
bytes, a text is its UTF-8 read as Latin-1: each character stands for one byte."""

import codecs
import dataclasses
import io
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import chain

from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.document import TRAIN, VAL, Digest, Document, Label, Origin
from chargpt.text.formats import UNITS, structure_of
from chargpt.text.frames import Frames
from chargpt.text.kind import Kind, Structure, reader
from chargpt.text.normalization import TextNormalizer
from chargpt.text.not_text import binary_format
from chargpt.text.source import SAMPLE, Source, Sources, byte_order_mark

CHUNK = 2**20  # bytes
MAX_NUL_SHARE, FEWEST = 1 / 4, 64  # of a text, and of other control characters; bytes in which such a share is no chance
CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f"})
_likely_encoding = reader("character_encodings", "likely_encoding")
MANY_FILES = 20  # in a folder of this many or more, data.split=auto means document


def reading_of(config: DataConfig, sources: Sources) -> DataConfig:
    """`config` with what data.items, and data.split=auto, mean for a reader of these sources. The split is `document` for a
    folder of MANY_FILES or more, unless one is larger than the validation split. Items that are a field are read as that."""
    if config.items:
        newlines = "fold" if config.newlines == "auto" else config.newlines
        config = dataclasses.replace(config, newlines=newlines, split="position")
        return config if config.items in UNITS else dataclasses.replace(config, field=config.items, format="fields")
    if config.split != "auto":
        return config
    sizes, total = [source.size or 0 for source in sources.train], sources.size  # None if one is not known
    is_alike = total is not None and max(sizes, default=0) <= config.val_fraction * total
    in_folder = len(sizes) >= MANY_FILES and all(source.in_folder for source in sources.train)
    is_open = not config.val_text and config.shuffle == "none"
    return dataclasses.replace(config, split="document" if is_open and in_folder and is_alike else "position")


def may_be_utf8(head: bytes) -> bool:
    """Whether a file that begins with `head`, without a mark, may be UTF-8 text; UTF-16 can be valid UTF-8, too."""
    sample = head[:SAMPLE]
    are_zeros = sample.count(0) > MAX_NUL_SHARE * len(sample)
    controls = len(sample) - len(sample.translate(None, CONTROLS))  # of UTF-16, one byte of each Russian letter, for example
    if binary_format(head) or are_zeros:
        return False
    return controls <= MAX_NUL_SHARE * max(FEWEST, len(sample)) or _likely_encoding(sample) is None


def _is_binary(sample: bytes) -> bool:
    """Whether a file that begins so is no text in any encoding; a few bytes may be anything."""
    is_wide = bool(byte_order_mark(sample)[0]) or (len(sample) >= FEWEST and _likely_encoding(sample) is not None)
    return 0 in sample and not is_wide


class TextReader:
    """One pass over all sources. Iterate over it once for pairs (TRAIN or VAL, piece); the attributes are complete then."""

    def __init__(self, sources: Sources, config: DataConfig, *, progress: tqdm | None = None) -> None:
        """`progress` counts bytes."""
        self._sources, self.config = sources, config
        self._progress = tqdm(disable=True) if progress is None else progress
        self._normalizer = TextNormalizer.of(config)
        self._encoding = ",".join(codecs.lookup(one).name for one in config.encodings)
        self._are_bytes = config.vocabulary == "bytes"
        self._is_copied = self._are_bytes and self._normalizer.is_identity and self._encoding == "utf-8"  # any file as it is
        self.digest = Digest("latin-1" if self._are_bytes else "utf-8")  # of all documents that were read as pieces
        self.read_as: dict[str, list[str]] = {}  # what is to be said of the encodings of which files
        self._frames = Frames(sources.all, encoding=config.encoding)
        self.framed: list[tuple[int, int]] = []  # characters around the text of a file, and of the file
        self.records: Counter[Kind] = Counter()  # of each kind that is read by its fields
        self.skipped: Counter[str] = Counter()  # binary files in folders, and records without text
        self.ends = array("q")  # of the documents in what is not for validation alone, in characters with separators
        self.noted: dict[str, list[int]] = {}  # what else readers have done, such as what they left out, and in which lines

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Small pieces come joined: the cost of each would dominate for many short documents."""
        held, size, split = list[str](), 0, TRAIN
        for _, part, piece in self.pieces():
            if size > CHUNK // 8 or (held and part != split):
                yield split, "".join(held)
                held, size = [], 0
            held.append(piece)
            split, size = part, size + len(piece)
        if held:
            yield split, "".join(held)

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
                self.digest.add(piece)
                size += len(piece)
                yield document.origin, split, piece
            if size:
                self.digest.end(split, size, label=document.label, before=before)
                if split == TRAIN:
                    self.ends.append((self.ends[-1] if self.ends else 0) + len(before) + size)
            sizes[split] += size

    def documents(self) -> Iterator[tuple[int, Document]]:
        """The split and each document: a source, or a record of a source that has fields."""
        for number, source in enumerate(self._sources.all):
            split, chunks = TRAIN if number < len(self._sources.train) else VAL, source.chunks(CHUNK)
            head = next(chunks, b"")
            if source.in_folder and (binary_format(head) or _is_binary(head[:SAMPLE])):
                self.skipped["binary files"] += 1
                continue
            for document in self._documents_of(source, head, chunks):
                yield split, document

    def _documents_of(self, source: Source, head: bytes, chunks: Iterable[bytes]) -> Iterator[Document]:
        """The documents of a source, which begins with `head` and goes on with `chunks`: its records, or all of it."""
        structure = structure_of(source, head, self.config)
        text = self._decoded(source, structure, head, chunks)
        if structure:
            yield from self._records(source, structure, text)
        else:
            line = 1
            if not self._is_copied and self._frames.may_be_around(head):
                text, line = self._without_frame("".join(text))
            pieces = text if self._normalizer.is_identity else self._normalizer.apply_in_pieces(text)
            pieces = pieces if self._is_copied else map(self._as_vocabulary, pieces)
            label: Label = ()
            if self.config.items:
                from chargpt.text.labels import label_of_file  # no other text has any

                label = label_of_file(source, self.config)
            yield Document(label, pieces, Origin(source, line))

    def _without_frame(self, text: str) -> tuple[Iterator[str], int]:
        """What is left of the text of a file, or all of it if data.frame says so, and the line where this begins."""
        at, body = self._frames.body(text)
        self.framed += [(len(text) - len(body), len(text))] * (len(body) < len(text))
        is_left_out = self.config.frame == "drop"
        return iter([body if is_left_out else text]), 1 + is_left_out * text.count("\n", 0, at)

    def _records(self, source: Source, structure: Structure, text: Iterator[str]) -> Iterator[Document]:
        """The records of a source as documents."""
        from chargpt.text.records import documents_in  # most texts have none

        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        folded = (newlines.decode(piece, final=not piece) for piece in chain(filter(None, text), [""]))
        for label, (said,), origin in documents_in(source, structure, self.config, pieces=folded, noted=self.noted):
            self.records[structure.kind] += 1
            if not said:
                self.skipped["records without text"] += 1
            yield Document(label, (self._as_vocabulary(self._normalizer.apply(said)),), origin)

    def _decoded(self, source: Source, structure: Structure | None, head: bytes, chunks: Iterable[bytes]) -> Iterator[str]:
        """The text of a source, which begins with `head` and goes on with `chunks`. Raises UserError."""
        offset, encoding, decoder = self._decoder_of(source, head, structure.kind if structure else None)
        self._progress.update(offset)
        for chunk in chain(filter(None, chain([head[offset:]], chunks)), [b""]):
            try:
                yield decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:  # without `start`: utf-16 that does not begin with a byte-order mark
                offset -= len(decoder.getstate()[0])
                raise self._undecodable(source, offset + getattr(error, "start", 0), encoding) from None
            offset += len(chunk)
            self._progress.update(len(chunk))

    def _decoder_of(self, source: Source, head: bytes, kind: Kind | None) -> tuple[int, str, codecs.IncrementalDecoder]:
        """The size of the byte-order mark of a source, its encoding, and a decoder. Raises UserError."""
        (mark, encoding), errors = byte_order_mark(head), "strict"
        if kind is None and self._is_copied:
            mark, encoding = b"", "latin-1"
        elif kind is not None and kind.bytes_as:
            mark, encoding, errors = b"", "ascii", kind.bytes_as
        elif mark:
            self.read_as.setdefault(f"{encoding}, as its first bytes say (byte-order mark)", []).append(source.label)
        elif self._encoding != "utf-8":
            from chargpt.text.character_encodings import encoding_of  # few texts have another one

            encoding, how = encoding_of(source, given=self._encoding)
            self.read_as.setdefault(how, []).append(source.label)
        elif not may_be_utf8(head):
            raise self._undecodable(source, None, encoding)
        return len(mark), encoding, codecs.getincrementaldecoder(encoding)(errors)

    def _undecodable(self, source: Source, offset: int | None, encoding: str) -> UserError:
        from chargpt.text.character_encodings import undecodable

        return undecodable(source, offset, encoding, given=self._encoding)

    def _as_vocabulary(self, text: str) -> str:
        return text.encode("utf-8", "surrogatepass").decode("latin-1") if self._are_bytes else text
