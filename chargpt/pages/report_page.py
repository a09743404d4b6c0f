"""The report as a page: one file without script, whose charts are SVG and whose head maps are small PNG pictures."""

import dataclasses
import math
from collections.abc import Sequence

from chargpt.analysis.run_report import RunReport
from chargpt.markup import escape
from chargpt.pages.charts import COLOURS, Line, line_chart
from chargpt.pages.page import page, source
from chargpt.pages.report_parts import Part, beginning, cut, names_of_texts, parts_of_run, setting, settings_of
from chargpt.terminal import UserError

MAX_RUNS = COLOURS
MAX_SETTING = 60  # characters of a setting in the table of those that differ
# For each chart: the metric, its title, and whether its axis begins at zero.
CHARTS = (
    ("lr", "learning rate", True),
    ("grad_norm", "gradient norm", True),
    ("chars_per_second", "characters per second", True),
    ("novelty/longest_copy", "longest copy in the sample", True),
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
    body = [f"<header><h1>{escape(title)}</h1>"]
    parts = [parts_of_run(run, runs=len(runs)) for run in runs]
    if several:
        body += [f"{comparison(runs)}</header>", differences(runs), curves(runs)]
    else:
        body += [f"{beginning(runs[0])}{index_of(parts[0], 0)}</header>", curves(runs)]
    for i, (run, its_parts) in enumerate(zip(runs, parts)):
        content = "".join(
            f'<section id="run-{i}-{n}"><h2>{escape(part.title)}</h2>{part.content}</section>'
            for n, part in enumerate(its_parts)
        )
        head = f"<h2>{escape(run.name)}</h2>{beginning(run)}{index_of(its_parts, i)}" if several else ""
        body.append(f'<section class="run series-{i}" id="run-{i}">{head}{content}</section>')
    return page(title, body="\n".join(body), style=source("report.css"))


def index_of(parts: Sequence[Part], place: int) -> str:
    """Links to the parts on the run at this place of the page."""
    links = (f'<a href="#run-{place}-{n}">{escape(part.title)}</a>' for n, part in enumerate(parts))
    return f'<nav class="index screen-only" aria-label="Parts">{" ".join(links)}</nav>'


def comparison(runs: Sequence[RunReport]) -> str:
    """A table of the runs, best first, and the index of the page: each name leads to the part on its run."""
    rows = []
    for i, run in sorted(enumerate(runs), key=lambda entry: math.inf if entry[1].val_loss is None else entry[1].val_loss):
        speed = typical_speed(run)
        cells = [
            "" if run.val_loss is None else f"{run.val_loss:.4f} ({run.val_loss / math.log(2):.3f})",
            "" if run.ngram_loss is None else f"{run.ngram_loss:.4f}",
            f"{run.parameters:,}",
            f"{run.step:,} of {run.config.train.max_steps:,}",
            "" if speed is None else f"{speed:,.0f}",
        ]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        name = f'<a class="key series-{i}" href="#run-{i}">{escape(run.name)}</a>'
        rows.append(f"<tr><td>{name}</td>{numbers}</tr>")
    heads = ("validation loss (bits)", "n-gram model", "parameters", "step", "characters/s")
    head = "".join(f'<th class="number">{name}</th>' for name in heads)
    note = "Losses of runs on different texts or vocabularies cannot be compared." if _differ(runs) else ""
    return (
        f'<div class="wide"><table><tr><th>run</th>{head}</tr>{"".join(rows)}</table></div>'
        f'<p class="quiet">Losses are in nats per character, with bits in brackets; lower is better. {note}</p>'
    )


def differences(runs: Sequence[RunReport]) -> str:
    """A table of the settings that differ between the runs, and of their texts if those differ."""
    rows = [("text", [names_of_texts(run) for run in runs])]
    trees = [settings_of(run) for run in runs]
    for section, values in trees[0].items():
        rows += [(f"{section}.{key}", [setting(tree[section][key]) for tree in trees]) for key in values]
    head = "".join(f'<th><span class="key series-{i}">{escape(run.name)}</span></th>' for i, run in enumerate(runs))
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(cut(value, MAX_SETTING))}</td>' for value in values)}</tr>"
        for name, values in rows
        if len(set(values)) > 1
    )
    table = f'<div class="wide"><table class="differences"><tr><th></th>{head}</tr>{body}</table></div>'
    return "<h2>Settings that differ</h2>" + (table if body else '<p class="quiet">All settings are equal.</p>')


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
    marks = [] if named or runs[0].ngram_loss is None else [("n-gram model", runs[0].ngram_loss)]
    title = "loss over steps, nats per character"
    drawn = [
        f'<div class="wide-chart">{line_chart(losses, title=title, width=1000, height=360, is_log=True, marks=marks)}</div>'
    ]
    drawn.append(
        f'<div class="narrow">{line_chart(losses, title=title, width=360, height=260, is_log=True, marks=marks)}</div>'
    )
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
        chart = line_chart(lines, title=f"{name}, over steps", width=260, height=130, from_zero=from_zero)
        if chart:
            small.append(f"<figure><figcaption>{name}</figcaption>{chart}</figure>")
    unit = f"nats per character on a logarithmic axis, over steps{pale}"
    return (
        f"<h2>Loss</h2><figure>{''.join(drawn)}<figcaption>{''.join(keys)} {unit}</figcaption></figure>"
        f'<div class="small">{"".join(small)}</div>'
    )
