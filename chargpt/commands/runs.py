"""`python -m chargpt runs`: a line for each run: what it was trained on, its size, its loss and how far it is."""

import csv
import dataclasses
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chargpt.commands.common import aligned, verb_parser
from chargpt.formatting import clock, one_line, shown
from chargpt.json_lines import write_json
from chargpt.project import command, project_root

if TYPE_CHECKING:  # a mistyped option is answered at once
    from chargpt.runs.listing import RunState

WIDEST_TEXT, WIDEST_REASON = 32, 80  # columns for the names of the texts, and for why a run has stopped


def main(argv: Sequence[str]) -> int:
    """Print the list that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    about = """List the runs in checkpoints/, the one with the newest checkpoint first: the text, the number of parameters, the
    validation loss of the best checkpoint in nats per character, the time of the newest checkpoint, the size on disk, and how
    many of the planned steps are done. A star marks the lowest loss of runs of the same text and vocabulary."""
    parser = verb_parser("runs", "[RUN ...] [--json | --tsv]", about)
    names = "runs, their paths, or patterns such as 'poems*' (default: all in checkpoints/)"
    parser.add_argument("runs", metavar="RUN", nargs="*", help=names)
    states = "a JSON object for each run, with its state: training, stopped (also by a kill), failed, finished, new, damaged"
    add = parser.add_mutually_exclusive_group().add_argument
    add("--json", action="store_true", help=states)
    add("--tsv", action="store_true", help="the same as a table with tabs, with a column for each setting in which they differ")
    options, checkpoints = parser.parse_intermixed_args(argv), project_root() / "checkpoints"
    from chargpt.runs.listing import run_states

    runs = run_states(options.runs, checkpoints)
    if options.json:
        for run in runs:
            write_json(dataclasses.asdict(run))
    elif options.tsv:
        csv.writer(sys.stdout, "excel-tab", lineterminator="\n").writerows(tsv_rows(runs))
    elif runs:
        print(*table(runs), sep="\n")
    else:
        print(f"There is no run in {shown(checkpoints)} yet; {command('train')} trains one.")
    return 0


def table(runs: "Sequence[RunState]") -> list[str]:
    """The lines of the list of these runs, and one for each that cannot be read."""
    losses: dict[str, list[float]] = {}  # of the runs of each text and vocabulary
    known = [run for run in runs if run.saved]
    for run in known:
        losses.setdefault(run.fingerprint, []).append(math.inf if run.loss is None else run.loss)
    rows = [["run", "text", "parameters", "loss", "saved", "size", "steps"]]
    for run in known:
        others = losses[run.fingerprint]
        star = "*" if len(others) > 1 and run.loss == min(others) else " "
        first, *more = run.text
        text = first + (f" and {len(more):,} more" if more else "")
        text = text if len(text) <= WIDEST_TEXT else f"{text[: WIDEST_TEXT - 1]}…"
        size = "?" if run.parameters is None else f"{run.parameters:,}"
        loss = "" if run.loss is None else f"{run.loss:.4f}{star}"
        saved, on_disk = run.saved[:16].replace("T", " "), f"{run.bytes / 1e6:,.0f} MB"
        rows.append([run.run, text, size, loss, saved, on_disk, ", ".join(_far(run))])
    note = "newest first; loss: validation loss of the best checkpoint, nats per character; *: the lowest of its text and split"
    unknown = [run.reason for run in runs if not run.saved]
    return [*aligned(rows), note, *_by_seed(known), *unknown] if known else unknown


def tsv_rows(runs: "Sequence[RunState]") -> list[list[object]]:
    """What is known of each run, and the settings in which they differ; the names first."""
    settings = differing(runs)
    rows: list[list[object]] = [[*(name for name in vars(run) if name != "settings"), *settings] for run in runs[:1]]
    for run in runs:
        known = vars(run) | {"text": ", ".join(run.text)} | {name: run.settings.get(name) for name in settings}
        rows.append([one_line(known[name]) if isinstance(known[name], str) else known[name] for name in rows[0]])
    return rows


def differing(runs: "Sequence[RunState]") -> list[str]:
    """The settings of these runs that were given to some and have not the same value in all."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len({str(run.settings.get(name)) for run in runs}) > 1]


def _by_seed(runs: "Sequence[RunState]") -> list[str]:
    """A line for the runs of each group that differ by their seed alone, with their settings."""
    from chargpt.runs.listing import grouped, spread

    groups, names = grouped((run.group, run.seed, run) for run in runs if run.loss is not None), differing(runs)
    lines = []
    for group in filter(lambda group: len(group) > 1, groups):
        same = [name for name in names if name not in differing(group)]
        settings = " ".join(f"{name}={group[0].settings[name]}" for name in same if name in group[0].settings)
        loss = f"loss {spread([run.loss or 0.0 for run in group])} over {len(group)} seeds"
        lines.append(f"{', '.join(sorted(run.run for run in group))}: {loss}" + f" ({settings})" * bool(settings))
    return lines


def _far(run: "RunState") -> list[str]:
    """How far a run is, and why it is not farther."""
    left = [f"{clock(run.seconds_left)} left"] if run.seconds_left is not None and run.state == "training" else []
    early = ["ended early"] * (run.state == "finished" and run.step < run.steps)
    state = [run.state] * (run.state in ("training", "failed"))
    why = [textwrap.shorten(run.reason, WIDEST_REASON, placeholder="…")] * bool(run.reason)
    return [f"{run.step:,} of {run.steps:,}", *[run.model] * bool(run.model), *state, *left, *early, *why]
