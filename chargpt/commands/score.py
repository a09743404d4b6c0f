"""`python -m chargpt score`: how well a model predicts a text, in total, by line and by character."""

from collections.abc import Sequence

from chargpt.commands.score_options import parse_options


def main(argv: Sequence[str]) -> int:
    """Score the texts that the options name. Returns the exit code."""
    options = parse_options(argv)
    from chargpt.commands.scoring import score  # imports torch, which takes seconds

    return score(options)
