"""The parts of a report on one run, as HTML. A loss is in nats per character everywhere, with bits in brackets at the top."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.analysis.copies import Copies
from chargpt.analysis.heads import Heads
from chargpt.analysis.losses import LossBreakdown
from chargpt.analysis.run_report import RunReport
from chargpt.analysis.scored_text import Line
from chargpt.config import to_dict
from chargpt.markup import escape
from chargpt.pages.charts import Line as Curve
from chargpt.pages.charts import bar_chart, line_chart
from chargpt.pages.head_map import head_maps
from chargpt.text.named_corpora import DEFAULT

NATS = (0.3, 0.7, 1.4, 2, 3, 4, 5, 6, 8)  # the losses of a character at which .heat-1 to .heat-9 begin
CLOSE = 0.01  # nats: losses that differ by less are called equal
WORSE = 0.02  # nats: a last loss that much above the lowest is worth a sentence
SAMPLES = 6  # over time
SAMPLE_CHARACTERS, LINE_CHARACTERS, OPENING_CHARACTERS = 500, 120, 1000
MAP_BYTES = 900_000  # of all runs of a page together


@dataclass(frozen=True)
class Part:
    """A part of a report: its heading, and its content as HTML."""

    title: str
    content: str


def parts_of_run(run: RunReport, *, runs: int) -> list[Part]:
    """All that a page with `runs` runs shows of one of them after its beginning and its curves."""
    parts = [samples_over_time(run), text_part(run)]
    if run.losses is not None:
        parts += [surprise(run), loss_parts(run.losses, run.scored)]
    if run.copies is not None:
        parts.append(copies_part(run.copies))
    if run.heads is not None:
        parts.append(heads_part(run.heads, most_bytes=MAP_BYTES // runs))
    return [part for part in [*parts, settings(run)] if part.content]


def beginning(run: RunReport) -> str:
    """What a reader wants first: a verdict in words, a sample, and the most important numbers."""
    return f'<p class="verdict">{escape(verdict(run))}</p>{newest_sample(run)}{tiles(run)}{missing(run)}'


def verdict(run: RunReport) -> str:
    """How good the model is, in one to three sentences."""
    if run.val_loss is None:
        return "The run was not evaluated, so it has no validation loss."
    said = [f"The validation loss is {with_bits(run.val_loss)} per character"]
    if run.ngram_loss is not None:
        gain = run.ngram_loss - run.val_loss
        than = f"an n-gram model of the same text ({run.ngram_loss:.2f})"
        how = f"{abs(gain):.2f} {'below' if gain > 0 else 'above'}" if abs(gain) >= CLOSE else "about"
        said[0] += f", {how} that of {than}"
    losses = run.log.curve("val/loss")
    later = [loss for step, loss in losses if step > run.step]
    if later and later[-1] > run.val_loss + WORSE:
        said.append(f"It was lowest at step {run.step:,} and rose to {later[-1]:.2f} after that")
    training = [loss for step, loss in run.log.curve("train/loss") if step <= run.step][-1:]
    if training and training[0] < run.val_loss / 2:
        said.append(f"The training loss is {training[0]:.2f}: the model has memorised a part of its text")
    return " ".join(f"{sentence}." for sentence in said)


def with_bits(nats: float, *, digits: int = 2) -> str:
    """A loss in nats, with bits in brackets."""
    return f"{nats:.{digits}f} nats ({nats / math.log(2):.{digits}f} bits)"


def newest_sample(run: RunReport) -> str:
    """What the model of this report writes: a sample of the training at its step, or else a new one."""
    logged = [sample for step, sample in run.log.samples if step == run.step]
    samples = [*logged[-1:], *(run.copies.samples if run.copies is not None else [])]
    sample = next((sample for sample in samples if sample.strip()), "")
    if not sample:
        return ""
    text = escape(cut(sample.strip("\n"), SAMPLE_CHARACTERS))
    return f'<div class="panel sample"><p class="label">a sample, at step {run.step:,}</p><p class="text">{text}</p></div>'


def missing(run: RunReport) -> str:
    """What could not be measured."""
    return "".join(f'<p class="quiet">Not shown: {escape(reason)}.</p>' for reason in run.missing)


def tiles(run: RunReport) -> str:
    """The most important numbers."""
    facts: list[tuple[str, str, str]] = []
    if run.val_loss is not None:
        bits = f"nats per character ({run.val_loss / math.log(2):.3f} bits)"
        facts.append(("validation loss", f"{run.val_loss:.4f}", bits))
    if run.ngram_loss is not None and run.val_loss is not None:
        better = run.ngram_loss - run.val_loss
        facts.append(
            ("n-gram model", f"{run.ngram_loss:.4f}", f"the model is {abs(better):.2f} {'lower' if better > 0 else 'higher'}")
        )
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


def samples_over_time(run: RunReport) -> Part:
    """Samples from the first evaluation to the last, closer together at the start, where more changes."""
    logged = run.log.samples
    if not logged:
        return Part("What it wrote", "")
    wanted = [0, *(round((len(logged) - 1) ** (i / (SAMPLES - 1))) for i in range(SAMPLES))]
    losses = dict(run.log.curve("val/loss"))
    shown = []
    for i in sorted(set(wanted) | {len(logged) - 1} if len(logged) > SAMPLES else range(len(logged))):
        step, sample = logged[i]
        loss = f", loss {losses[step]:.2f}" if step in losses else ""
        text = escape(cut(sample.strip("\n"), SAMPLE_CHARACTERS))
        shown.append(f'<div class="panel"><p class="label">step {step:,}{loss}</p><p class="text">{text}</p></div>')
    return Part("What it wrote", f'<div class="samples">{"".join(shown)}</div>')


def names_of_texts(run: RunReport) -> str:
    """The texts that the run was trained on."""
    return cut(", ".join("standard input" if text == "-" else text for text in run.texts) or DEFAULT, 400)


def text_part(run: RunReport) -> Part:
    """What the run was trained on."""
    rows = [("files", names_of_texts(run)), *((line[:12].strip(), line[12:]) for line in run.corpus)]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    excerpt = ""
    if run.excerpt:
        begin = escape(run.excerpt.strip("\n"))
        excerpt = f'<div class="panel"><p class="label">its first characters</p><p class="text">{begin} …</p></div>'
    return Part("What it was trained on", f'<div class="pair"><div class="wide"><table>{table}</table></div>{excerpt}</div>')


def surprise(run: RunReport) -> Part:
    """The beginning of the validation part in colours, and its best and worst lines."""
    ends = [0, *NATS]
    key = "".join(f'<span class="heat-{i}">{end:g}{"+" if i == len(NATS) else ""}</span>' for i, end in enumerate(ends))
    opening, left = [], OPENING_CHARACTERS
    for line in itertools.dropwhile(lambda line: not line.text.strip(), run.opening):
        opening.append(coloured(line, left))
        left -= len(line.text)
        if left <= 0:
            break
    return Part(
        "What surprises it",
        "<p>The colour of a character shows its loss, in nats: how little the model expected it. At 0.7 it gave the character "
        "half of the probability, at 3 a twentieth. The text is the validation part, which the model has not read.</p>"
        f'<p class="scale">{key}</p>'
        f'<div class="panel"><p class="text opening">{"".join(opening).strip()}</p></div>'
        f'<div class="pair"><div><h3>Lines that it predicts worst</h3>{line_list(run.worst)}</div>'
        f"<div><h3>Lines that it predicts best</h3>{line_list(run.best)}</div></div>"
        f'<p class="quiet">Nats per character, among the first {run.scored:,} characters of the validation part.</p>',
    )


def line_list(lines: Sequence[Line]) -> str:
    """Lines with their losses."""
    if not lines:
        return '<p class="quiet">No line is long enough.</p>'
    items = (
        f'<li><span class="loss">{line.mean * math.log(2):.2f}</span>'
        f'<span class="text">{coloured(line, LINE_CHARACTERS).strip()}</span></li>'
        for line in lines
    )
    return f'<ul class="scored">{"".join(items)}</ul>'


def coloured(line: Line, most: int) -> str:
    """At most so many characters of a line, each stretch of one level in a <span>."""
    levels = np.searchsorted(NATS, np.nan_to_num(line.bits[:most]) * math.log(2), side="right")
    ends = (np.flatnonzero(np.diff(levels)) + 1).tolist()
    parts = []
    for start, stop in zip([0, *ends], [*ends, len(levels)]):
        text = escape(line.text[start:stop])
        parts.append(f'<span class="heat-{levels[start]}">{text}</span>' if levels[start] else text)
    return "".join(parts) + (" …" if len(line.text) > most else "")


def loss_parts(losses: LossBreakdown, characters: int) -> Part:
    """The loss by class of character and by position, and the pairs that the model confuses."""
    classes = [(row.name, row.loss, f"{row.loss:.2f} · {row.share_of_loss:.0%}") for row in losses.classes]
    positions = losses.positions
    names = [f"{row.first:,}" if row.first == row.last else f"{row.first:,}–{row.last:,}" for row in positions]
    places = [(name, row.loss, f"{row.loss:.2f} ± {row.error:.2f}") for name, row in zip(names, positions)]
    confused = "".join(
        f'<tr><td class="mono">{escape(row.character)}</td><td class="mono">{escape(row.prediction)}</td>'
        f'<td class="number">{row.times:,}</td><td class="number">{row.share_of_mistakes:.1%}</td></tr>'
        for row in losses.confused
    )
    head = '<tr><th>text has</th><th>model says</th><th class="number">times</th><th class="number">of mistakes</th></tr>'
    return Part(
        "Where the loss sits",
        '<div class="pair">'
        f"<figure><figcaption>by class of character: its loss, and its share of all loss</figcaption>"
        f"{bar_chart(classes, title='loss by class of character')}</figure>"
        f"<figure><figcaption>by the number of characters that the model has read; a longer context helps while it falls"
        f"</figcaption>{bar_chart(places, title='loss by position in the context', colour=1)}</figure></div>"
        f'<h3>Most frequent mistakes</h3><div class="wide"><table>{head}{confused}</table></div>'
        f'<p class="quiet">{characters:,} characters of the validation part, in windows that start without context, as the '
        "validation loss.</p>",
    )


def copies_part(copies: Copies) -> Part:
    """Samples, and how much of them occurs in the training text."""
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
    return Part(
        "What it copies",
        "<p>The longest passage of the samples below that occurs verbatim in the training text has "
        f"<b>{copies.longest:,} characters</b>; of as much unseen text, {copies.unseen_longest:,}.</p>"
        f'<div class="pair"><div class="wide"><table>{head}{rows}</table></div><figure>{chart}<figcaption>{keys} '
        "percent of the n-grams that the training text does not have, by n</figcaption></figure></div>"
        f'<h3>Samples of the model, at temperature 1</h3><div class="samples">{samples}</div>',
    )


def heads_part(heads: Heads, *, most_bytes: int) -> Part:
    """A map of each head, and the pattern that it follows."""
    facts, (layers, count) = heads.facts, heads.weights.shape[:2]
    maps = head_maps(heads.weights, most_bytes=most_bytes)
    if not maps:
        return Part("What its heads look at", "")
    parts = []
    for layer in range(layers):
        figures = []
        for head in range(count):
            pattern = facts.name(layer, head)
            named = f"<b>{escape(pattern)} {facts.scores[pattern][layer, head]:.2f}</b><br>" if pattern else ""
            said = f"{2 ** facts.entropy[layer, head]:.1f} wide, {facts.distance[layer, head]:.1f} back"
            figures.append(
                f'<figure><img alt="layer {layer + 1}, head {head + 1}" src="{maps[layer][head]}">'
                f"<figcaption>{named}{said}</figcaption></figure>"
            )
        parts.append(f'<p class="layer">layer {layer + 1}</p><div class="maps heads-{count}">{"".join(figures)}</div>')
    text = escape(cut(heads.text.replace("\n", "↵"), 60))
    return Part(
        "What its heads look at",
        f"<p>Each row of a map is one of {heads.weights.shape[-1]} characters "
        f'(<span class="mono">{text}</span>), and each column one that it may attend to. Below: the pattern that the head '
        "follows, with the share of its attention; how widely it looks, and how many characters back.</p>" + "".join(parts),
    )


def settings(run: RunReport) -> Part:
    """Every setting of the run, and the machine that it was trained on."""
    groups = {**settings_of(run), "trained on": dict(run.environment), "report made on": {"engine": run.engine}}
    sections = []
    for title, values in groups.items():
        rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(setting(value))}</dd>" for key, value in values.items())
        sections.append(f"<section><h4>{escape(title)}</h4><dl>{rows}</dl></section>")
    return Part("Settings and machine", f'<div class="settings">{"".join(sections)}</div>')


def settings_of(run: RunReport) -> dict[str, dict[str, Any]]:
    """The settings of a run by section, without folders of this machine."""
    tree = to_dict(run.config)
    for key in ("val_text", "cache"):
        tree["data"][key] = Path(tree["data"][key]).name
    # The run and the step of a teacher.
    tree["train"]["teachers"] = ", ".join("/".join(Path(name).parts[-2:]) for name in run.config.train.teacher_names)
    return tree


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
