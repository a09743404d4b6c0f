"""`python -m chargpt decompress`: the original of a file that compress has written."""

import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from chargpt.commands.compress import SUFFIX, add_common, describe_speed, free_target, open_compressor
from chargpt.commands.options import say
from chargpt.files import publish_file
from chargpt.terminal import Parser, UserError, shown


def main(argv: Sequence[str]) -> int:
    """Restore the original of the file that the options name. Returns the exit code."""
    parser = Parser(
        prog="python -m chargpt decompress",
        usage="python -m chargpt decompress RUN FILE [option ...]",
        description="Restore a file that compress has written, with the same model. What is restored is compared with a "
        "checksum of the original; if anything is wrong, nothing is written.",
    )
    add_common(parser, what=f"the compressed file, usually with the ending {SUFFIX}")
    parser.add_argument("--output", metavar="FILE", help=f"where to write (default: FILE without {SUFFIX})")
    options = parser.parse_args(list(argv))
    path = Path(options.file)
    if options.output is None and path.suffix != SUFFIX:
        raise UserError(f"{options.file}: does not end in {SUFFIX}; say where to write with --output FILE")
    target = free_target(Path(options.output or path.with_suffix("")))
    packed = path.read_bytes()
    _, compressor, engine = open_compressor(options.run)
    from chargpt.archive.compressed_file import Damaged, WrongModel

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
    publish_file(target, data)
    speed = describe_speed(len(data), time.perf_counter() - started)
    say(f"{shown(target)}: {len(data):,} bytes; {speed} ({engine})")
    return 0
