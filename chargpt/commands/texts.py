"""The texts that a verb is asked about, read and normalised as the training text of the run was."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from chargpt.commands.frame import corpus_of_run
from chargpt.config import DataConfig
from chargpt.project import data_folder, project_root
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError
from chargpt.text.cache import EncodedText
from chargpt.text.reading import TextReader
from chargpt.text.selection import select_sources
from chargpt.text.sources import Source, Sources
from chargpt.text.tokenizer import Tokenizer

PIECE = 2**14  # characters


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of a known name: a source to read, or the part of an encoded text that runs are evaluated on."""

    label: str
    source: Source | None = None
    encoded: EncodedText | None = None

    @property
    def size(self) -> int | None:
        """The number of bytes to read, or of ids; None if it is known only after reading."""
        return len(self.encoded.val) if self.source is None else self.source.size

    def pieces(self, tokenizer: Tokenizer, config: DataConfig) -> Iterator[str | bytes]:
        """The normalised text in parts of at most PIECE characters: bytes for a vocabulary of bytes. Raises UserError."""
        is_bytes = tokenizer.characters is None
        for piece in self._parts(tokenizer, config):
            if isinstance(piece, bytes) and not is_bytes:
                piece = piece.decode("ascii")
            for start in range(0, len(piece), PIECE):
                yield bytes(piece[start : start + PIECE]) if is_bytes else piece[start : start + PIECE]

    def _parts(self, tokenizer: Tokenizer, config: DataConfig) -> Iterator[str | bytes]:
        if self.source is None:
            yield from self._decoded(tokenizer)
            return
        config = dataclasses.replace(
            config,
            split="position",
            vocabulary="bytes" if tokenizer.characters is None else "characters",
            min_count=1,
            max_vocab=0,
            **dataclasses.asdict(tokenizer.normalizer),
        )
        sources = Sources(train=[self.source], val=[], notes=[])
        for _, piece in TextReader(sources, config, progress=tqdm(disable=True), hashed=False):
            yield piece

    def _decoded(self, tokenizer: Tokenizer) -> Iterator[str | bytes]:
        """The encoded text for a model with this tokenizer, which may be another one than its own."""
        own, ids = self.encoded.tokenizer, self.encoded.val
        if own.characters is None and tokenizer.characters is None:
            yield from (ids[start : start + PIECE].tobytes() for start in range(0, len(ids), PIECE))
            return
        stream = own.stream()
        pushed = (stream.push(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE))
        decoded = itertools.chain(pushed, (stream.finish() for _ in range(1)))  # the end of it when all is pushed
        for piece in tokenizer.normalizer.apply_in_pieces(decoded):
            yield piece.encode() if tokenizer.characters is None else piece


@contextlib.contextmanager
def open_texts(names: Sequence[str], loaded: LoadedModel) -> Iterator[list[Text]]:
    """The texts that `names` mean, as TEXT of train.py; with no name, the validation part of the run's own text.

    Raises UserError, also if that validation part is in no cache.
    """
    if not names:
        yield [Text(label="validation part", encoded=corpus_of_run(loaded))]
        return
    data, root = loaded.config.data, project_root()
    sources = select_sources(names, val_text="", pattern=data.pattern, root=root, copies=data_folder(root) / "cache")
    with contextlib.closing(sources):
        yield [Text(label=source.label, source=source) for source in sources.train]


def check_not_empty(texts: Sequence[Text], predicted: int) -> None:
    """Raise UserError if none of their characters was `predicted`: the first one of a text is not."""
    if not predicted:
        names = texts[0].label if len(texts) == 1 else f"{len(texts):,} texts"
        raise UserError(f"{names}: no character to predict; give a text of two or more")
