"""`python -m chargpt compress`: a file in as few bytes as the model's bits per character promise."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from chargpt.commands.options import say, stride_within
from chargpt.files import publish_file
from chargpt.project import project_root
from chargpt.terminal import Parser, UserError, shown, whole_number

SUFFIX = ".cgpt"


def main(argv: Sequence[str]) -> int:
    """Compress the file that the options name. Returns the exit code."""
    parser = Parser(
        prog="python -m chargpt compress",
        usage="python -m chargpt compress RUN FILE [option ...]",
        description="Compress any file with a trained model, without loss. It is read back before it is written. The same "
        "model restores it on any machine. The smaller the model's loss on the text, the smaller the result.",
    )
    add_common(parser, what="file to compress; text in UTF-8 that the model knows becomes smallest")
    parser.add_argument("--output", metavar="FILE", help=f"where to write (default: FILE{SUFFIX})")
    parser.add_argument(
        "--stride",
        type=whole_number(1),
        metavar="N",
        help="begin a window every N characters (default: half of the model's context); fewer take more time",
    )
    options = parser.parse_args(list(argv))
    target = free_target(Path(options.output or f"{options.file}{SUFFIX}"))
    data = Path(options.file).read_bytes()
    loaded, compressor, engine = open_compressor(options.run)
    stride = stride_within(options.stride, loaded.model.config.block_size)
    started = time.perf_counter()
    with tqdm(total=2 * len(data), unit="B", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        packed = compressor.compress(data, stride=stride, progress=bar.update)
    publish_file(target, packed)
    ratio = f"{8 * len(packed) / len(data):.4f} bits per byte, " if data else ""
    speed = describe_speed(len(data), time.perf_counter() - started)
    say(f"{shown(target)}: {len(data):,} bytes to {len(packed):,}, {ratio}read back; {speed} ({engine})")
    return 0


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


def open_compressor(run: str) -> tuple[Any, Any, str]:
    """The LoadedModel of a run, its Compressor and the engine in words. Raises UserError."""
    from chargpt.archive.compressed_file import Compressor
    from chargpt.archive.compression import symbols_of
    from chargpt.archive.exact_model import choose_engine
    from chargpt.sampling.loaded_model import load_model

    loaded, warnings = load_model(run, project_root() / "checkpoints", device="cpu")
    for warning in warnings:
        say(f"warning: {warning}")
    engine, name = choose_engine(loaded.model, symbols_of(loaded.tokenizer))
    return loaded, Compressor(loaded.model, loaded.tokenizer, engine=engine), name
