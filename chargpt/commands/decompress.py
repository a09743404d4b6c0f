"""`python -m chargpt decompress`: the original of a file that compress has written."""

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from chargpt.commands.compress import SUFFIX, add_common, describe_speed, free_target, open_compressor
from chargpt.commands.frame import run_verb, verb_parser
from chargpt.files import publish_file
from chargpt.terminal import UserError, log, shown


def main(argv: Sequence[str]) -> int:
    """Restore the original of the file that the options in `argv` name. Returns the exit code. Raises UserError."""
    return run_verb(parse_options, argv, decompress)


def parse_options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`, and where to write as `target`. Raises UserError."""
    parser = verb_parser(
        "decompress",
        "RUN FILE [option ...]",
        "Restore a file that compress has written, with the same model. What is restored is compared with a "
        "checksum of the original; if anything is wrong, nothing is written.",
    )
    add_common(parser, what=f"the compressed file, usually with the ending {SUFFIX}")
    parser.add_argument("--output", metavar="FILE", help=f"where to write (default: FILE without {SUFFIX})")
    options = parser.parse_intermixed_args(argv)
    path = Path(options.file)
    if options.output is None and path.suffix != SUFFIX:
        raise UserError(f"{options.file}: does not end in {SUFFIX}; say where to write with --output FILE")
    options.target = free_target(Path(options.output or path.with_suffix("")))
    return options


def decompress(options: Namespace) -> None:
    """Restore the original."""
    from chargpt.archive.compressed_file import Damaged, WrongModel

    packed = Path(options.file).read_bytes()
    _, compressor, engine = open_compressor(options.run)
    started = time.perf_counter()
    try:
        with tqdm(unit=" characters", unit_scale=True, delay=1, leave=False, disable=None) as bar:
            data = compressor.restore(packed, progress=bar.update)
    except Damaged as error:
        raise UserError(f"{options.file}: {error}; nothing was written, use another copy") from None
    except WrongModel as error:
        raise UserError(
            f"{options.file}: compressed with another model than that of {options.run}, of SHA-256 {error}...; give the run "
            "it was compressed with"
        ) from None
    publish_file(options.target, data)
    speed = describe_speed(len(data), time.perf_counter() - started)
    log(f"{shown(options.target)}: {len(data):,} bytes; {speed} ({engine})")
