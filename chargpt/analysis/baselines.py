"""What other programs make of the same text: gzip, bzip2, xz and zstd, and the n-gram model of the text report."""

import bz2
import contextlib
import importlib
import lzma
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from chargpt.text.cache import EncodedText
from chargpt.text.report import TRAIN_SAMPLE, VAL_SAMPLE, ngram_order_and_bits, repeated_lines, sample

ABSENT = "not present"


class Baselines:
    """Compresses a text that comes in pieces, with each program at its best setting."""

    def __init__(self) -> None:
        packers: dict[str, Any] = {
            "gzip -9": zlib.compressobj(9, wbits=31),
            "bzip2 -9": bz2.BZ2Compressor(9),
            "xz -9e": lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME),
            "zstd -19": _zstd(),
        }
        self._packers = packers
        self._sizes = dict.fromkeys(packers, 0)

    def add(self, data: bytes) -> None:
        """Compress the next piece of the text."""
        for name, packer in self._packers.items():
            if packer is not None:
                self._sizes[name] += len(packer.compress(data))

    def sizes(self) -> dict[str, int | None]:
        """The compressed size of the whole text in bytes by each program, None for one that this machine lacks. Call once."""
        for name, packer in self._packers.items():
            if packer is not None:
                self._sizes[name] += len(packer.flush())
        return {name: size or None for name, size in self._sizes.items()}  # even the size of nothing is more than 0


def _zstd() -> Any:
    """A compressor of level 19: Python's own (from 3.14), that of the package zstandard, or the program; None without any."""
    for module, new in (
        ("compression.zstd", lambda zstd: zstd.ZstdCompressor(level=19)),
        ("zstandard", lambda zstd: zstd.ZstdCompressor(level=19).compressobj()),
    ):
        try:
            return new(importlib.import_module(module))
        except ImportError:
            continue
    return _ZstdProgram() if shutil.which("zstd") else None


class _ZstdProgram:
    """The program zstd as a compressor. Its output comes when the text is complete; it is empty if the program fails."""

    def __init__(self) -> None:
        self._output: BinaryIO = tempfile.TemporaryFile()
        command = ["zstd", "-19", "--quiet", "--stdout"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._output, stderr=subprocess.DEVNULL)
        assert self._process.stdin is not None  # it is a pipe
        self._input = self._process.stdin

    def compress(self, data: bytes) -> bytes:
        with contextlib.suppress(OSError):  # it has ended early
            self._input.write(data)
        return b""

    def flush(self) -> bytes:
        with contextlib.suppress(OSError):
            self._input.close()
        failed = self._process.wait()
        self._output.seek(0)
        with self._output as output:
            return b"" if failed else output.read()


class NgramBits:
    """The n-gram model of the text report on the first VAL_SAMPLE characters of a text that comes in pieces."""

    def __init__(self, corpus: Callable[[], EncodedText]) -> None:
        """`corpus` returns the training text of the run, or raises an error if it cannot be found."""
        self._corpus = corpus
        self._ids = np.empty(0, np.int64)

    def add(self, ids: np.ndarray) -> None:
        """Keep the ids, as far as they are needed. -1 is an unknown character."""
        if len(self._ids) < VAL_SAMPLE:
            self._ids = np.concatenate((self._ids, ids))[:VAL_SAMPLE]

    def in_training(self) -> float:
        """The share of the text that is lines of the training text; 0 where that cannot be told."""
        try:
            corpus = self._corpus()
        except ValueError:
            return 0.0
        texts = (corpus.tokenizer.decode(ids) for ids in (sample(corpus.train, TRAIN_SAMPLE), self._known()))
        return repeated_lines(*texts)[1]

    def _known(self) -> np.ndarray:
        return self._ids[self._ids >= 0]

    def bits(self, *, unknown: float) -> tuple[int, float] | None:
        """The order of the model, and its bits per character; None where it cannot be computed.

        An unknown character costs `unknown` bits, and the model does not see it.
        """
        try:
            corpus = self._corpus()
        except ValueError:
            return None
        known = self._known()
        if len(known) < 5 or len(corpus.train) < 5:
            return None
        order, bits = ngram_order_and_bits(sample(corpus.train, TRAIN_SAMPLE), known, corpus.tokenizer)
        return order, (bits * len(known) + unknown * (len(self._ids) - len(known))) / len(self._ids)
