"""Options that several verbs have, and notices on standard error. Imports no torch, so that --help is quick."""

import sys
from argparse import ArgumentParser


def add_run_options(parser: ArgumentParser) -> None:
    """The run, and the device to compute on."""
    parser.add_argument("run", metavar="RUN", help="a run in checkpoints/, its path, or the path of one of its checkpoints")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps")


def say(text: str) -> None:
    """Print a notice, which is no part of the output. What comes from a text must be escaped before."""
    print(text, file=sys.stderr, flush=True)
