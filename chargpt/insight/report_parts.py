"""The parts of a report on one run, as HTML."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.config import to_dict
from chargpt.insight.charts import Line as Curve
from chargpt.insight.charts import bar_chart, line_chart
from chargpt.insight.head_map import head_maps
from chargpt.insight.report_data import Copies, Heads, RunReport
from chargpt.insight.scored_text import Line
from chargpt.markup import escape

BITS = (0.5, 1, 2, 3, 4, 5.5, 7, 9, 12)  # where .heat-1 to .heat-9 begin
SAMPLES = 6  # over time
SAMPLE_CHARACTERS, LINE_CHARACTERS, OPENING_CHARACTERS = 500, 120, 1000
MAP_BYTES = 900_000  # of all runs of a page together


def part_of_run(run: RunReport, *, runs: int) -> str:
    """All that a page with so many `runs` shows of one of them, besides its curves."""
    parts = [samples_over_time(run), text_part(run)]
    if run.parts is not None:
        parts += [surprise(run), loss_parts(run.parts, run.scored)]
    if run.copies is not None:
        parts.append(copies_part(run.copies))
    if run.heads is not None:
        parts.append(heads_part(run.heads, most_bytes=MAP_BYTES // runs))
    parts += [settings(run), "".join(f'<p class="quiet">Not shown: {escape(reason)}.</p>' for reason in run.missing)]
    return "\n".join(parts)


def tiles(run: RunReport) -> str:
    """The most important numbers."""
    facts: list[tuple[str, str, str]] = []
    if run.val_loss is not None:
        facts.append(("validation loss", f"{run.val_loss:.4f}", f"{run.val_loss / math.log(2):.3f} bits per character"))
    if run.mark is not None and run.val_loss is not None:
        better = run.mark - run.val_loss
        said = f"{abs(better):.2f} nats {'better' if better > 0 else 'worse'} than that"
        facts.append(("n-gram model", f"{run.mark:.4f}", said))
    steps = max(run.log.last_step, run.step)
    facts.append(("best step", f"{run.step:,}", f"of {steps:,} taken; {run.config.train.max_steps:,} planned"))
    model = run.config.model
    size = f"{model.n_layer} layers, {model.n_head} heads, width {model.n_embd}, context {model.block_size:,}"
    facts.append(("parameters", f"{run.parameters:,}", size))
    if run.training_characters:
        epochs = steps * run.config.chars_per_step / run.training_characters
        seen = f"{epochs:.1f} epochs" if epochs < 100 else f"{epochs:,.0f} epochs"
        facts.append(("training text", f"{run.training_characters:,}", f"characters; seen for {seen}"))
    seconds = run.log.training_seconds(run.config.chars_per_step)
    if seconds is not None:
        speed = run.log.last_step * run.config.chars_per_step / seconds
        facts.append(("time of the steps", duration(seconds), f"{speed:,.0f} characters per second"))
    tile = "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>"
    return f'<dl class="facts">{"".join(tile.format(*map(escape, fact)) for fact in facts)}</dl>'


def duration(seconds: float) -> str:
    """A time for people: 42 s, 12 min, 3.4 h, 2.1 days."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            count = seconds / size
            return f"{count:.1f} {unit}" if count < 10 else f"{count:.0f} {unit}"
    return f"{seconds:.0f} s"


def samples_over_time(run: RunReport) -> str:
    """Samples from the first evaluation to the last, closer together at the start, where more changes."""
    logged = run.log.samples
    if not logged:
        return ""
    wanted = [0, *(round((len(logged) - 1) ** (i / (SAMPLES - 1))) for i in range(SAMPLES))]
    losses = dict(run.log.curve("val/loss"))
    shown = []
    for i in sorted(set(wanted) | {len(logged) - 1} if len(logged) > SAMPLES else range(len(logged))):
        step, sample = logged[i]
        loss = f", loss {losses[step]:.2f}" if step in losses else ""
        text = escape(cut(sample.strip("\n"), SAMPLE_CHARACTERS))
        shown.append(f'<div class="panel"><p class="label">step {step:,}{loss}</p><p class="text">{text}</p></div>')
    return f'<h2>What it wrote</h2><div class="samples">{"".join(shown)}</div>'


def text_part(run: RunReport) -> str:
    """What the run was trained on."""
    names = ", ".join("standard input" if text == "-" else text for text in run.texts) or "the default text"
    rows = [("files", cut(names, 400)), *((line[:12].strip(), line[12:]) for line in run.corpus)]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    excerpt = ""
    if run.excerpt:
        begin = escape(run.excerpt.strip("\n"))
        excerpt = f'<div class="panel"><p class="label">its first characters</p><p class="text">{begin} …</p></div>'
    return f'<h2>What it was trained on</h2><div class="pair"><div class="wide"><table>{table}</table></div>{excerpt}</div>'


def surprise(run: RunReport) -> str:
    """The beginning of the validation part in colours, and its best and worst lines."""
    ends = [0, *BITS]
    key = "".join(f'<span class="heat-{i}">{end:g}{"+" if i == len(BITS) else ""}</span>' for i, end in enumerate(ends))
    opening, left = [], OPENING_CHARACTERS
    for line in itertools.dropwhile(lambda line: not line.text.strip(), run.opening):
        opening.append(coloured(line, left))
        left -= len(line.text)
        if left <= 0:
            break
    return (
        "<h2>What surprises it</h2><p>The colour of a character shows how little the model expected it, in bits. "
        f'The text is the validation part, which it has not seen.</p><p class="scale">{key}</p>'
        f'<div class="panel"><p class="text opening">{"".join(opening).strip()}</p></div>'
        f'<div class="pair"><div><h3>Lines that it predicts worst</h3>{line_list(run.worst)}</div>'
        f"<div><h3>Lines that it predicts best</h3>{line_list(run.best)}</div></div>"
        f'<p class="quiet">Bits per character, among the first {run.scored:,} characters of the validation part.</p>'
    )


def line_list(lines: Sequence[Line]) -> str:
    """Lines with their bits per character."""
    if not lines:
        return '<p class="quiet">No line is long enough.</p>'
    items = (
        f'<li><span class="bits">{line.mean:.2f}</span><span class="text">{coloured(line, LINE_CHARACTERS).strip()}</span></li>'
        for line in lines
    )
    return f'<ul class="scored">{"".join(items)}</ul>'


def coloured(line: Line, most: int) -> str:
    """At most so many characters of a line, each stretch of one level in a <span>."""
    levels = np.searchsorted(BITS, np.nan_to_num(line.bits[:most]), side="right")
    ends = (np.flatnonzero(np.diff(levels)) + 1).tolist()
    parts = []
    for start, stop in zip([0, *ends], [*ends, len(levels)]):
        text = escape(line.text[start:stop])
        parts.append(f'<span class="heat-{levels[start]}">{text}</span>' if levels[start] else text)
    return "".join(parts) + (" …" if len(line.text) > most else "")


def loss_parts(parts: Mapping[str, Any], characters: int) -> str:
    """The loss by class of character and by position, and the pairs that the model confuses."""
    classes = [(row["class"], row["loss"], f"{row['loss']:.2f} · {row['share_of_loss']:.0%}") for row in parts["classes"]]
    positions = parts["positions"]
    names = [f"{row['first']:,}" if row["first"] == row["last"] else f"{row['first']:,}–{row['last']:,}" for row in positions]
    places = [(name, row["loss"], f"{row['loss']:.2f} ± {row['error']:.2f}") for name, row in zip(names, positions)]
    confused = "".join(
        f'<tr><td class="mono">{escape(row["character"])}</td><td class="mono">{escape(row["prediction"])}</td>'
        f'<td class="number">{row["times"]:,}</td><td class="number">{row["share_of_mistakes"]:.1%}</td></tr>'
        for row in parts["confused"]
    )
    head = '<tr><th>text has</th><th>model says</th><th class="number">times</th><th class="number">of mistakes</th></tr>'
    return (
        '<h2>Where the loss sits</h2><div class="pair">'
        f"<figure><figcaption>by class of character: its loss, and its share of all loss</figcaption>"
        f"{bar_chart(classes, title='loss by class of character')}</figure>"
        f"<figure><figcaption>by the number of characters that the model has seen; a longer context helps while it falls"
        f"</figcaption>{bar_chart(places, title='loss by position in the context', colour=1)}</figure></div>"
        f'<h3>Most frequent mistakes</h3><div class="wide"><table>{head}{confused}</table></div>'
        f'<p class="quiet">{characters:,} characters of the validation part, in windows that start without context, as the '
        "validation loss.</p>"
    )


def copies_part(copies: Copies) -> str:
    """Samples, and how much of them stands in the training text."""
    curves = [
        Curve(name="samples", points=[(n, 100 * share) for n, share in copies.novel.items()], colour=0),
        Curve(name="unseen text", points=[(n, 100 * share) for n, share in copies.unseen_novel.items()], colour=1),
    ]
    chart = line_chart(curves, title="share of n-grams that are new, in percent, by n", height=210, from_zero=True)
    rows = "".join(
        f'<tr><td class="number">{length:,}</td><td class="number">{times:,}</td><td><span class="text">'
        f"{escape(cut(passage, LINE_CHARACTERS).replace(chr(10), '↵'))}</span></td></tr>"
        for length, times, passage in copies.passages
    )
    head = '<tr><th class="number">length</th><th class="number">copies</th><th>passage</th></tr>'
    samples = "".join(
        f'<div class="panel"><p class="text">{escape(cut(sample.strip(chr(10)), SAMPLE_CHARACTERS))}</p></div>'
        for sample in copies.samples
    )
    keys = '<span class="key series-0">samples</span><span class="key series-1">as much unseen text</span>'
    return (
        f"<h2>What it copies</h2><p>The longest passage of the samples below that stands verbatim in the training text has "
        f"<b>{copies.longest:,} characters</b>; of as much unseen text, {copies.unseen_longest:,}.</p>"
        f'<div class="pair"><div class="wide"><table>{head}{rows}</table></div><figure>{chart}<figcaption>{keys} '
        "percent of the n-grams that the training text does not have, by n</figcaption></figure></div>"
        f'<h3>Samples of the model, at temperature 1</h3><div class="samples">{samples}</div>'
    )


def heads_part(heads: Heads, *, most_bytes: int) -> str:
    """A map of each head, and the pattern that it follows."""
    facts, (layers, count) = heads.facts, heads.weights.shape[:2]
    maps = head_maps(heads.weights, most_bytes=most_bytes)
    if not maps:
        return ""
    parts = []
    for layer in range(layers):
        figures = []
        for head in range(count):
            pattern = facts.name(layer, head)
            named = f"<b>{escape(pattern)} {facts.scores[pattern][layer, head]:.2f}</b><br>" if pattern else ""
            said = f"{facts.entropy[layer, head]:.1f} bits, {facts.distance[layer, head]:.1f} back"
            figures.append(
                f'<figure><img alt="layer {layer + 1}, head {head + 1}" src="{maps[layer][head]}">'
                f"<figcaption>{named}{said}</figcaption></figure>"
            )
        parts.append(f'<p class="layer">layer {layer + 1}</p><div class="maps heads-{count}">{"".join(figures)}</div>')
    text = escape(cut(heads.text.replace("\n", "↵"), 60))
    return (
        f"<h2>What its heads look at</h2><p>Each row of a map is one of {heads.weights.shape[-1]} characters "
        f'(<span class="mono">{text}</span>), and each column one that it may attend to. Below: the pattern that the head '
        "follows, with the share of its attention; how widely it looks, and how many characters back.</p>" + "".join(parts)
    )


def settings(run: RunReport) -> str:
    """Every setting of the run, and the machine that it was trained on."""
    tree = to_dict(run.config)
    for key in ("val_text", "cache"):
        tree["data"][key] = Path(tree["data"][key]).name
    # The run and the step of a teacher, but no folders of this machine.
    tree["train"]["teachers"] = ", ".join("/".join(Path(name).parts[-2:]) for name in run.config.train.teacher_names)
    groups = {**tree, "trained on": dict(run.environment), "report made on": {"engine": run.engine}}
    sections = []
    for title, values in groups.items():
        rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(setting(value))}</dd>" for key, value in values.items())
        sections.append(f"<section><h4>{escape(title)}</h4><dl>{rows}</dl></section>")
    return f'<h2>Settings and machine</h2><div class="settings">{"".join(sections)}</div>'


def setting(value: object) -> str:
    """A setting as in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return repr(value) if isinstance(value, str) and not value.strip() else str(value)


def cut(text: str, most: int) -> str:
    """The first characters of a text."""
    return text if len(text) <= most else text[:most] + " …"
