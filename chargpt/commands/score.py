"""`python -m chargpt score`: how well a model predicts a text, in total, by line and by character."""

from argparse import Namespace
from collections.abc import Sequence

from chargpt.commands.frame import run_verb
from chargpt.commands.score_options import parse_options


def main(argv: Sequence[str]) -> int:
    """Score the texts that the options name. Returns the exit code."""
    return run_verb(parse_options, argv, score_texts)


def score_texts(options: Namespace) -> None:
    from chargpt.commands.scoring import score

    score(options)
