"""`python -m chargpt bench`: what this machine can do, and how close training and sampling come to it."""

from collections.abc import Sequence

from chargpt.interrupt import ending_at_once
from chargpt.terminal import Parser, UserError


def main(argv: Sequence[str]) -> int:
    """Measure, and print the tables. Returns the exit code; raises UserError."""
    parser = Parser(
        prog="python -m chargpt bench",
        usage="python -m chargpt bench [--device D]",
        description="Measure this machine: matrix products, memory, training steps and sampling at four sizes, and how close "
        "they come to what the products and the memory allow. Takes one to three minutes. The tables on standard output are "
        "Markdown, for docs/lab/speed.md.",
    )
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    options = parser.parse_args(argv)
    with ending_at_once():  # there is nothing to save
        # These import torch, which takes seconds; --help and a mistyped option are answered before.
        from chargpt.commands.bench_tables import SIZES, tables
        from chargpt.config import RuntimeConfig
        from chargpt.device import choose_device

        try:
            device = choose_device(RuntimeConfig(device=options.device).device)
        except ValueError as error:
            raise UserError(f"--{str(error).removeprefix('--')}") from None
        for line in tables(device, SIZES):
            print(line, flush=True)
    return 0
