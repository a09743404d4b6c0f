"""`python -m chargpt text`: what a text is like, and what to expect of a model trained on it."""

from collections.abc import Sequence

from chargpt.planning.cli import parse_text_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root


def main(argv: Sequence[str]) -> int:
    """Print what `train.py --dry-run` prints. Returns the exit code. Raises UserError."""
    print(make_plan(parse_text_options(argv), root=project_root()).describe())
    return 0
