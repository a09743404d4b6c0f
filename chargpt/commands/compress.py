"""`python -m chargpt compress`: a file in as few bytes as the model's bits per character promise."""

import os
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from chargpt.commands.frame import load_run, run_verb, stride_within, verb_parser
from chargpt.files import publish_file
from chargpt.terminal import Parser, UserError, clock, log, shown, whole_number

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.archive.compressed_file import Compressor
    from chargpt.sampling.loaded_model import LoadedModel

SUFFIX = ".cgpt"


def main(argv: Sequence[str]) -> int:
    """Compress the file that the options in `argv` name. Returns the exit code. Raises UserError."""
    return run_verb(parse_options, argv, compress)


def parse_options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`, and where to write as `target`. Raises UserError."""
    parser = verb_parser(
        "compress",
        "RUN FILE [option ...]",
        "Compress any file with a trained model, without loss. The result is read back before it is written. The same "
        "model restores the file on any machine. The smaller the model's loss on the text, the smaller the result.",
    )
    add_common(parser, what="file to compress; text in UTF-8 that the model knows becomes smallest")
    parser.add_argument("--output", metavar="FILE", help=f"where to write (default: FILE{SUFFIX})")
    parser.add_argument(
        "--stride",
        type=whole_number(1),
        metavar="N",
        help="begin a window every N characters (default: half of the model's context); a smaller N takes more time",
    )
    options = parser.parse_intermixed_args(argv)
    options.target = free_target(Path(options.output or f"{options.file}{SUFFIX}"))
    return options


def compress(options: Namespace) -> None:
    """Compress the file."""
    data = Path(options.file).read_bytes()
    loaded, compressor, engine = open_compressor(options.run, size=len(data))
    stride = stride_within(options.stride, loaded.model.config.block_size)
    started = time.perf_counter()
    with tqdm(total=2 * len(data), unit="B", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        packed = compressor.compress(data, stride=stride, progress=bar.update)
    publish_file(options.target, packed)
    ratio = f"{8 * len(packed) / len(data):.4f} bits per byte, " if data else ""
    speed = describe_speed(len(data), time.perf_counter() - started)
    log(f"{shown(options.target)}: {len(data):,} bytes to {len(packed):,}, {ratio}read back; {speed} ({engine})")


def describe_speed(size: int, seconds: float) -> str:
    """The time that `size` bytes took, and the bytes per second. A coarse clock may have measured 0 seconds."""
    return f"{seconds:.1f} s, {size / seconds if seconds else 0:,.0f} bytes a second"


def add_common(parser: Parser, *, what: str) -> None:
    """Add the arguments RUN and FILE."""
    parser.add_argument("run", metavar="RUN", help="the name of a run in checkpoints/, or the path of a run or checkpoint")
    parser.add_argument("file", metavar="FILE", help=what)


def free_target(path: Path) -> Path:
    """`path`, if there is nothing yet and it can be written. Raises UserError."""
    if path.exists() or path.is_symlink():
        raise UserError(f"{shown(path)}: exists; remove it, or name another file with --output")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"{shown(path)}: its folder does not exist or cannot be written to; name another with --output")
    return path


def open_compressor(run: str, *, size: int | None = None) -> tuple["LoadedModel", "Compressor", str]:
    """The LoadedModel of a run, its Compressor and the engine in words. Raises UserError.

    Warns before the slow engine begins; for a file to compress, of `size` bytes, with the time to expect.
    """
    from chargpt.archive.compressed_file import Compressor
    from chargpt.archive.compression import segment_lengths, symbols_of
    from chargpt.archive.exact_model import COMPILED, choose_engine, seconds_for_next

    loaded = load_run(run, device="cpu", described=False)
    engine, name = choose_engine(loaded.model, symbols_of(loaded.tokenizer))
    if name != COMPILED:
        segments = len(segment_lengths(size or 0))
        speed = segments / seconds_for_next(engine, loaded.model.config.block_size, texts=segments)
        takes = f"; {size:,} bytes take about {clock(size / speed)}" if size else ""
        log(f"warning: {name}; about {speed:,.0f} bytes a second{takes}")
    return loaded, Compressor(loaded.model, loaded.tokenizer, engine=engine), name
