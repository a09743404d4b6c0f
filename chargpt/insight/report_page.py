"""The report as a page: one file without script, whose charts are SVG and whose head maps are small PNG pictures."""

import dataclasses
import math
from collections.abc import Sequence

from chargpt.insight.charts import COLOURS, Line, line_chart
from chargpt.insight.page import page, source
from chargpt.insight.report_data import RunReport
from chargpt.insight.report_parts import part_of_run, tiles
from chargpt.markup import escape
from chargpt.terminal import UserError

MAX_RUNS = COLOURS
# For each chart: the metric, its title, and whether its axis begins at zero.
CHARTS = (
    ("lr", "learning rate", True),
    ("grad_norm", "gradient norm", True),
    ("chars_per_second", "characters per second", True),
    ("novelty/longest_copy", "longest copy in the sample, characters", True),
)


def report_page(runs: Sequence[RunReport]) -> str:
    """The page of one run, or of several whose curves share the charts. Raises UserError for more than MAX_RUNS."""
    if len(runs) > MAX_RUNS:
        raise UserError(f"RUN: {len(runs)} given; a report compares at most {MAX_RUNS}")
    several = len(runs) > 1
    names = [run.name for run in runs]
    if len(set(names)) < len(names):  # runs of one name in several folders
        runs = [dataclasses.replace(run, name=f"{run.name} ({i})") for i, run in enumerate(runs, start=1)]
    title = "Training report" if several else f"Training report: {runs[0].name}"
    parts = [f"<header><h1>{escape(title)}</h1>"]
    if several:
        parts += ["</header>", comparison(runs), curves(runs)]
        for i, run in enumerate(runs):
            parts.append(f'<section class="run series-{i}"><h2>{escape(run.name)}</h2>{tiles(run)}')
            parts.append(f"{part_of_run(run, runs=len(runs))}</section>")
    else:
        parts += [tiles(runs[0]), "</header>", curves(runs), part_of_run(runs[0], runs=1)]
    return page(title, body="\n".join(parts), style=source("report.css"))


def comparison(runs: Sequence[RunReport]) -> str:
    """A table of the runs, best first."""
    rows = []
    for i, run in sorted(enumerate(runs), key=lambda entry: math.inf if entry[1].val_loss is None else entry[1].val_loss):
        speed = typical_speed(run)
        cells = [
            "" if run.val_loss is None else f"{run.val_loss:.4f}",
            "" if run.mark is None else f"{run.mark:.4f}",
            f"{run.parameters:,}",
            f"{run.step:,} of {run.config.train.max_steps:,}",
            "" if speed is None else f"{speed:,.0f}",
        ]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        rows.append(f'<tr><td><span class="key series-{i}">{escape(run.name)}</span></td>{numbers}</tr>')
    heads = ("validation loss", "n-gram model", "parameters", "step", "characters/s")
    head = "".join(f'<th class="number">{name}</th>' for name in heads)
    note = "Losses of runs on different texts or vocabularies cannot be compared." if _differ(runs) else ""
    return (
        f'<div class="wide"><table><tr><th>run</th>{head}</tr>{"".join(rows)}</table></div>'
        f'<p class="quiet">Losses are in nats per character; lower is better. {note}</p>'
    )


def _differ(runs: Sequence[RunReport]) -> bool:
    return len({(tuple(run.texts), run.training_characters) for run in runs}) > 1


def typical_speed(run: RunReport) -> float | None:
    """The median of the logged characters per second."""
    speeds = sorted(speed for _, speed in run.log.curve("chars_per_second"))
    return speeds[len(speeds) // 2] if speeds else None


def curves(runs: Sequence[RunReport]) -> str:
    """The charts of everything that was logged, of all runs together."""
    named = len(runs) > 1
    losses = []
    for i, run in enumerate(runs):
        before = f"{run.name}, " if named else ""
        losses.append(Line(name=f"{before}training", points=run.log.curve("train/loss"), colour=i, is_faint=True))
        losses.append(Line(name=f"{before}validation", points=run.log.curve("val/loss"), colour=i, has_dots=True))
    if not any(line.points for line in losses):
        return '<h2>Curves</h2><p class="quiet">Nothing was logged: the run has no metrics.jsonl.</p>'
    marks = [] if named or runs[0].mark is None else [("n-gram model", runs[0].mark)]
    title = "loss over steps, nats per character"
    drawn = [f'<div class="wide-chart">{line_chart(losses, title=title, width=1000, height=360, marks=marks)}</div>']
    drawn.append(f'<div class="narrow">{line_chart(losses, title=title, width=360, height=260, marks=marks)}</div>')
    keys = []
    for i, run in enumerate(runs):
        name = escape(run.name) if named else "validation"
        keys.append(f'<span class="key series-{i}">{name}</span>')
        keys.append("" if named else f'<span class="key pale series-{i}">training</span>')
    if marks:
        keys.append(f'<span class="key dashed">an n-gram model of the same text: {marks[0][1]:.2f}</span>')
    pale = " (pale: training, strong: validation)" if named else ""
    small = []
    for metric, name, from_zero in CHARTS:
        lines = [Line(name=run.name, points=run.log.curve(metric), colour=i) for i, run in enumerate(runs)]
        chart = line_chart(lines, title=f"{name}, over steps", height=200, from_zero=from_zero)
        if chart:
            small.append(f"<figure><figcaption>{name}</figcaption>{chart}</figure>")
    return (
        f"<h2>Loss</h2><figure>{''.join(drawn)}<figcaption>{''.join(keys)} nats per character, over steps{pale}</figcaption>"
        f'</figure><h2>Training</h2><div class="pair">{"".join(small)}</div>'
    )
