"""`python -m chargpt text`: what a text is like, and what to expect of a model trained on it."""

from collections.abc import Sequence

from chargpt.commands.frame import run_verb
from chargpt.planning.cli import TrainOptions, parse_text_options
from chargpt.project import project_root


def main(argv: Sequence[str]) -> int:
    """Print what `train.py --dry-run` prints. Returns the exit code. Raises UserError."""
    return run_verb(parse_text_options, argv, print_plan)


def print_plan(options: TrainOptions) -> None:
    """Print the plan."""
    from chargpt.planning.plan import make_plan

    print(make_plan(options, root=project_root()).describe())
