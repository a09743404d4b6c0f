"""`score A B TEXT`: which run predicts the lines of a text better, and how surely; and a table with tabs."""

import math
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.common import aligned, load_run, print_json
from chargpt.errors import UserError
from chargpt.formatting import one_line
from chargpt.project import project_root
from chargpt.runs.checkpoint import has_steps
from chargpt.runs.load import places_of
from chargpt.screen import log
from chargpt.text.sources import NAMES

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.analysis.scored_text import Line
    from chargpt.sampling.loaded_model import LoadedModel

Lines = list[tuple[str, "Line"]]  # each with the name of its text


def is_run(word: str) -> bool:
    """Whether a word among the texts names a run: nothing else of that name is there."""
    is_text = word in ("-", *NAMES) or Path(word).exists() and not has_steps(Path(word))
    return not is_text and any(map(has_steps, places_of(word, project_root() / "checkpoints")))


def runs_and_texts(run: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Each run with its texts: those that follow it, and without any those of the last run, which are then the same."""
    found: dict[str, list[str]] = {run: []}
    for word in words:
        if is_run(word):
            found[word] = []
        else:
            found[[*found][-1]].append(word)
    return {name: texts or [*found.values()][-1] for name, texts in found.items()}


def compare(options: Namespace, lines_in: "Callable[[Sequence[str], LoadedModel], list[tuple[str, list[Line]]]]") -> None:
    """Print the bits of each line under each run, or their means, and the differences to the first one. `lines_in` gives the
    lines of texts under a model, each text with its label. Raises UserError."""
    columns: dict[str, Lines] = {}
    fingerprints = set()
    for name, texts in options.runs.items():
        loaded = load_run(name, device=options.device)
        fingerprints.add(loaded.fingerprint)
        columns[name] = [(label, line) for label, lines in lines_in(texts, loaded) for line in lines]
    if len(fingerprints) > 1 and not any(options.runs.values()):
        what = "trained on different texts, so they have no validation split in common; add a TEXT"
        raise UserError(f"{' '.join(columns)}: {what}")
    first, *others = columns
    for name in others:
        if len(columns[name]) != len(columns[first]):
            what = f"{len(columns[name]):,} lines for {name}, and {len(columns[first]):,} for {first}"
            raise UserError(f"{what}; give texts with the same lines, in the same order")
    rows = zip(*columns.values())
    spoken = [row for row in rows if all(line.text.strip() for _, line in row)]
    if len(spoken) < 2:
        raise UserError(f"{first}: fewer than two lines that are not blank; give a longer text")
    totals = {name: [row[number][1].total for row in spoken] for number, name in enumerate(columns)}
    summary = [_against(totals[first], name, bits) for name, bits in totals.items()]
    if options.json:
        for row in spoken:
            (text, line), bits = row[0], {name: round(one.total, 4) for name, (_, one) in zip(columns, row)}
            print_json({"text": text, "line": line.number, "content": line.text, "bits": bits})
        print_json({"lines": len(spoken), "runs": summary})
    elif options.tsv:
        print_tsv(columns)
    rest = ["" if value is None else f"{value:.3f}" for one in summary for value in list(one.values())[1:]]
    cells = [[str(one["run"]), *rest[3 * number : 3 * number + 3]] for number, one in enumerate(summary)]
    table = aligned([["", "bits/line", "difference", "±"], *cells], right=("bits/line", "difference", "±"))
    print(*table, sep="\n", file=sys.stderr if options.json or options.tsv else sys.stdout)
    log(f"on {len(spoken):,} lines; fewer bits are better; ±: the standard error of the mean difference to {first} in a line")


def _against(first: Sequence[float], name: str, bits: Sequence[float]) -> dict[str, str | float | None]:
    """The mean of the `bits` of a run, and their mean difference to those of the `first` one with its standard error."""
    import numpy as np

    differences = np.subtract(bits, first)
    is_first = bits is first
    error = None if is_first else round(float(differences.std(ddof=1)) / math.sqrt(len(bits)), 4)
    mean = None if is_first else round(float(differences.mean()), 4)
    return {"run": name, "bits_per_line": round(float(np.mean(bits)), 4), "difference": mean, "standard_error": error}


def print_tsv(columns: dict[str, Lines]) -> None:
    """A table with tabs: each line with its bits under each run, and the differences to the first one."""
    first, *others = columns
    names = [*(f"bits {one_line(name)}" for name in columns), *(f"difference {one_line(name)}" for name in others)]
    print("text", "line", *names, "content", sep="\t")
    for row in zip(*columns.values()):
        (text, line), totals = row[0], [one.total for _, one in row]
        differences = [f"{total - totals[0]:.4f}" for total in totals[1:]]
        numbers = [*(f"{total:.4f}" for total in totals), *differences]
        print(one_line(text), line.number, *numbers, one_line(line.text.rstrip("\n")), sep="\t")
