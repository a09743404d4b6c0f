"""The report as a page: one file without script, whose charts are SVG and whose head maps are small PNG pictures.

The functions here choose what report.html.j2 shows and put it into words. A loss is in nats per character, with bits in
brackets at the top; the surprise of single characters and lines is in bits.
"""

import base64
import dataclasses
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from chargpt.analysis.run_facts import RunFacts
from chargpt.formatting import clock, up_to_a_word
from chargpt.pages.charts import COLOURS, Line, bar_chart, line_chart
from chargpt.pages.page import LEVELS, page, render, source, stretches
from chargpt.runs.listing import grouped, spread
from chargpt.screen import label_of
from chargpt.settings import flat

if TYPE_CHECKING:  # of a run whose model is measured
    from torch import Tensor

    from chargpt.analysis.copies import Copies
    from chargpt.analysis.losses import LossBreakdown
    from chargpt.analysis.scored_text import Line as TextLine

# What decides what a run learns: all of some sections but for PACE, and some settings of section train.
LEARNING, PACE = ("data", "model", "optim"), ("data.cache",)
TRAINED = [f"train.{name}" for name in ("batch_size", "accumulate", "max_steps", "teachers", "seed", "label_loss")]
MAX_SETTING = 60  # characters of a setting in the table of those that differ
CLOSE = 0.01  # nats; losses that differ by less are called equal
WORSE = 0.02  # nats; a last loss that much above the lowest is worth a sentence
SAMPLES = 6  # over time, that are shown
SAMPLE_CHARACTERS, LINE_CHARACTERS = 500, 120  # of a sample and of a line, that are shown
MAP_BYTES = 900_000  # of the head maps of all runs of a page together
MAP_WIDTHS = (128, 64, 32)  # pixels of a head map; the largest width that fits is taken
# The colour of a head map, between the accents of base.css for light and for dark screens, and its levels of opacity.
MAP_COLOUR, MAP_LEVELS = (66, 128, 226), 16
# For each small chart: the metric, and its title.
CHARTS = (
    ("lr", "learning rate"),
    ("grad_norm", "gradient norm"),
    ("chars_per_second", "characters per second"),
    ("novelty/longest_copy", "longest copy in the sample"),
)


def report_page(runs: Sequence[RunFacts], *, refresh: int = 0) -> str:
    """The page of one run, or of several, whose curves share the charts. Those that differ by their seed alone are one curve.

    A browser reads it again every `refresh` seconds; 0: never.
    """
    names = [run.name for run in runs]
    if len(set(names)) < len(names):  # runs of one name in several folders
        runs = [dataclasses.replace(run, name=f"{run.name} ({i})") for i, run in enumerate(runs, start=1)]
    runs = sorted(runs, key=lambda run: math.inf if run.val_loss is None else run.val_loss)
    groups = grouped((run.state.group, run.state.config.train.seed, run) for run in runs)
    colours = {id(run): i % COLOURS for i, group in enumerate(groups) for run in group}
    title = "Training report" if len(runs) > 1 else f"Training report: {runs[0].name}"
    most = MAP_BYTES // len(runs)
    pictures = [[] if run.heads is None else head_pictures(run.heads.weights, most_bytes=most) for run in runs]
    words = (label_of, headline, result, newest_sample, tiles, samples_over_time, coloured, sample_text, usual_speed)
    charts = (loss_charts, copies_chart, settings)
    body = render(
        "report.html.j2",
        title=title,
        shown=[
            {"run": run, "maps": maps, "sections": sections(run, maps), "colour": colours[id(run)]}
            for run, maps in zip(runs, pictures)
        ],
        groups=[row for i, group in enumerate(groups) if (row := means(group, i % COLOURS))],
        verdict=verdict(runs),
        bits_in_nat=1 / math.log(2),
        same_text=same_text(runs),
        differences=differences(runs),
        curves=curves(groups),
        levels=[0, *LEVELS],
        **{function.__name__: function for function in (*words, *charts)},
    )
    return page(title, body=body, style=source("report.css"), refresh=refresh)


def same_text(runs: Sequence[RunFacts]) -> bool:
    """Whether these runs have the same text, split and vocabulary, so that their losses can be compared."""
    return len({run.state.fingerprint for run in runs}) == 1


# One run


def sections(run: RunFacts, maps: list[list[str]]) -> list[tuple[str, str]]:
    """The sections that have content, each with the name of its macro in the template and its heading."""
    found = [
        ("samples", "What it wrote", bool(run.log.samples)),
        ("items", "What items it makes", run.items is not None),
        ("text", "What it was trained on", True),
        ("surprise", "What surprises it", run.losses is not None),
        ("losses", "Which characters are hard to predict", run.losses is not None),
        ("copies", "What it copies", run.copies is not None),
        ("heads", "What its heads look at", bool(maps)),
        ("settings", "Settings and machine", True),
    ]
    return [(name, heading) for name, heading, has_content in found if has_content]


def headline(run: RunFacts) -> str:
    """How good the model is, for those who know no loss."""
    if run.val_loss is None:
        return "It has not been tried on new text."
    blind = f"a blind guess chooses among {run.state.tokenizer.vocab_size:,}"
    unsure = f"is as unsure as if it chose among {math.exp(run.val_loss):.1f} {unit_of(run)}s; {blind}."
    if run.losses is None:
        return f"On new text, it {unsure}"
    return f"It guesses the next {unit_of(run)} of new text right {100 * run.losses.right:.0f} times in 100. It {unsure}"


def unit_of(run: RunFacts) -> str:
    """What the model predicts one by one."""
    return "character" if run.state.config.data.vocabulary == "characters" else "byte"


def result(run: RunFacts) -> str:
    """How good the model is, in one to three sentences with its losses."""
    if run.val_loss is None:
        return "The run was not evaluated, so it has no validation loss."
    sentences = [f"The validation loss is {run.val_loss:.2f} nats ({run.val_loss / math.log(2):.2f} bits) per character"]
    if run.ngram_loss is not None:
        gain = run.ngram_loss - run.val_loss
        than = f"an n-gram model of the same text ({run.ngram_loss:.2f})"
        how = f"{abs(gain):.2f} {'below' if gain > 0 else 'above'}" if abs(gain) >= CLOSE else "about"
        sentences[0] += f", {how} that of {than}"
    last, evaluated = run.state.progress.val_loss, run.state.progress.evaluated
    if last is not None and evaluated is not None and evaluated > run.step and last > run.val_loss + WORSE:
        sentences.append(f"At step {run.step:,} it was {run.val_loss:.2f}; it rose to {last:.2f} after that")
    training = [loss for step, loss in run.log.curve("train/loss") if step <= run.step][-1:]
    if training and training[0] < run.val_loss / 2:
        sentences.append(f"The training loss is {training[0]:.2f}: the model has memorised a part of its text")
    sentences += [f"{said[0].upper()}{said[1:]}" for said in run.about_split]
    return " ".join(f"{sentence}." for sentence in sentences)


def newest_sample(run: RunFacts) -> str:
    """What the model of this report writes: a sample of the training at its step, or else a new one; empty without any."""
    progress = run.state.progress
    kept = [progress.best_sample] if progress.best_step == run.step else []
    logged = [sample for step, sample in run.log.samples if step == run.step]
    samples = [*kept, *logged[-1:], *(run.copies.texts if run.copies is not None else [])]
    return sample_text(next((sample for sample in samples if sample.strip()), ""))


def tiles(run: RunFacts) -> list[tuple[str, str, str]]:
    """The most important numbers: the name, the value and a note of each."""
    found, progress, config = list[tuple[str, str, str]](), run.state.progress, run.state.config
    if run.val_loss is not None:
        calibrated = f"; logits divided by {progress.temperature:g}" * (progress.temperature != 1)
        bits = f"nats per character ({run.val_loss / math.log(2):.3f} bits){calibrated}"
        found.append(("validation loss", f"{run.val_loss:.4f}", bits))
        start = run.state.stage.start
        others = [("n-gram model", run.ngram_loss, ""), ("start alone", progress.first_loss, f"{start}; ")]
        for name, loss, about in others[: 1 if start is None else 2]:
            if loss is not None:
                how = "lower" if loss > run.val_loss else "higher"
                found.append((name, f"{loss:.4f}", f"{about}the model is {abs(loss - run.val_loss):.2f} {how}"))
    steps = max(progress.step, run.step)
    found.append(("best step", f"{run.step:,}", f"of {steps:,} taken; {run.state.stage.length.steps:,} planned"))
    model = config.model
    size = f"{model.n_layer} layers, {model.n_head} heads, width {model.n_embd}, context {model.block_size:,}"
    found.append(("parameters", f"{run.state.parameters:,}", size))
    if run.training_characters:
        epochs = steps * config.chars_per_step / run.training_characters
        note = f"characters; seen for {epochs:,.{int(epochs < 100)}f} epochs"
        found.append(("training text", f"{run.training_characters:,}", note))
    if progress.seconds and progress.first_loss is not None:  # otherwise it was imported
        speed = progress.step * config.chars_per_step / progress.seconds
        found.append(("time of the steps", clock(progress.seconds), f"{speed:,.0f} characters per second"))
    return found


def samples_over_time(run: RunFacts) -> list[tuple[int, float | None, str]]:
    """Samples from the first evaluation to the last, closer together at the start: step, validation loss there, and text."""
    logged, losses = run.log.samples, dict(run.log.curve("val/loss"))
    wanted = set(range(len(logged)))
    if len(logged) > SAMPLES:
        wanted = {0, *(round((len(logged) - 1) ** (i / (SAMPLES - 1))) for i in range(SAMPLES))}
    return [(step, losses.get(step), sample_text(text)) for step, text in map(logged.__getitem__, sorted(wanted))]


def coloured(lines: "Sequence[TextLine]", most: int = LINE_CHARACTERS) -> list[tuple[int, str]]:
    """At most `most` characters of consecutive lines without the space around them: stretches with their levels of surprise."""
    text = "".join(line.text for line in lines)
    bits = np.concatenate([np.empty(0), *(line.bits for line in lines)])
    start = len(text) - len(text.lstrip("\n" if len(lines) > 1 else None))
    stop = min(len(text.rstrip()), start + most)
    found = [(level, text[start + a : start + b]) for level, a, b in stretches(bits[start:stop])]
    return [*found, (0, " …")] if stop < len(text.rstrip()) else found


def loss_charts(losses: "LossBreakdown") -> list[Markup]:
    """The loss by class of character, and by position in the context."""
    by_class = [(row.name, row.loss, f"{row.loss:.2f} · {row.share_of_loss:.0%}") for row in losses.classes]
    names = [f"{row.first:,}" if row.first == row.last else f"{row.first:,}–{row.last:,}" for row in losses.positions]
    by_position = [(name, row.loss, f"{row.loss:.2f} ± {row.error:.2f}") for name, row in zip(names, losses.positions)]
    rows = {"loss by class of character": by_class, "loss by position in the context": by_position}
    return [bar_chart(found, title=title, colour=colour) for colour, (title, found) in enumerate(rows.items())]


def copies_chart(copies: "Copies") -> Markup:
    """The share of n-grams that are new, of samples and of unseen text, by n."""
    curves = [
        Line(name="samples", points=[(n, 100 * share) for n, share in copies.here.novel.items()], colour=0),
        Line(name="unseen text", points=[(n, 100 * share) for n, share in copies.unseen.novel.items()], colour=1),
    ]
    return line_chart(curves, title="share of n-grams that are new, in percent, by n", height=210)


def head_pictures(weights: "Tensor", *, most_bytes: int) -> list[list[str]]:
    """For each layer and head of weights (n_layer, n_head, T, T), a picture as a data: URL; none if they exceed `most_bytes`.

    Each is a PNG of one colour, more opaque where a head attends more.
    """
    for width in MAP_WIDTHS:
        urls = [[_url(head, width) for head in layer] for layer in weights.sqrt().float().cpu().numpy()]
        if sum(len(url) for layer in urls for url in layer) <= most_bytes:
            return urls
    return []


def _url(levels: np.ndarray, width: int) -> str:
    """The picture of one head, (T, T) from 0 to 1, at most `width` pixels wide."""
    from PIL import Image  # not for a page without pictures of heads

    from chargpt.analysis.heads import shrunk

    width = min(width, len(levels))
    small = shrunk(shrunk(levels, 0, width), 1, width)
    picture = Image.fromarray(np.rint((MAP_LEVELS - 1) * small.clip(0, 1)).astype(np.uint8), "P")
    picture.putpalette(MAP_COLOUR * MAP_LEVELS)
    file = io.BytesIO()
    opacity = bytes(255 * i // (MAP_LEVELS - 1) for i in range(MAP_LEVELS))
    picture.save(file, "PNG", optimize=True, transparency=opacity)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def settings(run: RunFacts) -> list[tuple[str, list[tuple[str, str]]]]:
    """What somebody gave, every setting of the run by section, and the machine that it was trained on."""
    values, reasons, groups = settings_of(run), run.state.settings.reasons, dict[str, list[tuple[str, str]]]()
    if given := run.state.settings.of_user:
        groups["given"] = [(key, values[key]) for key in given]
    for key, value in values.items():
        section, _, name = key.partition(".")
        if source := run.state.settings.sources.get(key):
            value += f"   ({source}{f': {reasons[key]}' if key in reasons else ''})"
        groups.setdefault(section, []).append((name, value))
    groups["trained on"] = [(name, setting(value)) for name, value in run.state.environment.items()]
    return [*groups.items(), ("report made on", [("engine", run.engine)])]


def settings_of(run: RunFacts) -> dict[str, str]:
    """The settings of a run by section.key, without folders of this machine."""
    values = flat(run.state.as_trained)
    names = {key: Path(values[key]).name for key in ("data.val_text", "data.cache")}
    return {key: setting(value) for key, value in (values | names).items()}


def setting(value: object) -> str:
    """A setting as in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{part:.4g}" if isinstance(part, float) else str(part) for part in value)
    return repr(value) if isinstance(value, str) and not value.strip() else str(value)


def sample_text(sample: str) -> str:
    """The beginning of a sample, without the empty lines around it and up to the end of a word."""
    text = sample.strip("\n")
    return up_to_a_word(text[:SAMPLE_CHARACTERS]) + " …" * (len(text) > SAMPLE_CHARACTERS)


# All runs together


def verdict(runs: Sequence[RunFacts]) -> str:
    """Which of several runs predicts new text best and by how much, for those who know no loss. The best one is the first."""
    losses = {run.name: run.val_loss for run in runs if run.val_loss is not None}
    if len(losses) < 2:
        return "Fewer than two of these runs have been tried on new text, so nothing tells which of them predicts best."
    shared = {run.name: run.shared_loss for run in runs if run.shared_loss is not None}
    if len(shared) == len(runs):
        ranked = ", ".join(f"{name} {loss:.3f}" for name, loss in sorted(shared.items(), key=lambda pair: pair[1]))
        return f"The texts of these runs differ. Losses on the {runs[0].shared:,} characters that all hold out: {ranked}."
    if not same_text(runs):
        return "These runs differ in the text, its split or its vocabulary, so their numbers do not tell which predicts best."
    best = [name for name, loss in losses.items() if loss - min(losses.values()) < CLOSE]
    (first, least), *others = [(name, f"among {math.exp(loss):.1f}") for name, loss in losses.items()]
    numbers = ", ".join([f"{first} is as unsure as if it chose {least} {unit_of(runs[0])}s", *map(" ".join, others)])
    return f"{' and '.join(best)} predict{'s' * (len(best) == 1)} new text best: {numbers}."


def usual_speed(run: RunFacts) -> float | None:
    """Characters per second; the first steps are slow."""
    speeds = [speed for _, speed in run.log.curve("chars_per_second")]
    return statistics.median_high(speeds) if speeds else None


def differences(runs: Sequence[RunFacts]) -> list[tuple[str, list[str]]]:
    """What differs between the runs: a name, and the value of each run. The texts come first, then what somebody gave.

    What the program set is there only if it decides what a run learns.
    """
    given = {key for run in runs for key in run.state.settings.of_user}
    rows, trees = {"text": [", ".join(run.state.text_names) for run in runs]}, [settings_of(run) for run in runs]
    rows["start"] = [str(run.state.stage.start or "") for run in runs]
    rows |= {key: [tree[key] for tree in trees] for key in trees[0]}
    learning = {key for key in rows if key.split(".")[0] in LEARNING and key not in PACE}
    shown = [key for key in rows if key in {"text", "start", *TRAINED} | learning | given]
    shown.sort(key=lambda key: key != "text" and key not in given)
    cells = {key: [f"{text[:MAX_SETTING]} …" if len(text) > MAX_SETTING else text for text in rows[key]] for key in shown}
    return [(key, cells[key]) for key in shown if len(set(rows[key])) > 1]


def means(group: Sequence[RunFacts], colour: int) -> tuple[int, str, int, str] | None:
    """The row of runs that differ by their seed alone: colour, names, number, and loss; None for a single one."""
    losses = [run.val_loss for run in group if run.val_loss is not None]
    return (colour, ", ".join(run.name for run in group), len(losses), spread(losses)) if len(losses) > 1 else None


def curves(groups: Sequence[Sequence[RunFacts]]) -> tuple[list[Markup], list[tuple[str, Markup]]] | None:
    """The charts of everything that was logged, of all runs together; None if no loss was.

    That of the losses comes for wide screens and for phones; those of other metrics have titles. Runs that differ by their seed
    alone are one line, with a band.
    """
    losses, runs = loss_lines(groups), [(i % COLOURS, run) for i, group in enumerate(groups) for run in group]
    if not any(line.points for line in losses):
        return None
    marks = [run.ngram_loss for _, run in runs if len(runs) == 1 and run.ngram_loss is not None]
    title = "loss over steps, nats per character"
    charts = [
        line_chart(losses, title=title, width=width, height=height, is_log=True, marks=marks)
        for width, height in ((1000, 360), (360, 260))
    ]
    small = []
    for metric, title in CHARTS:
        lines = [Line(name=run.name, points=log.curve(metric), colour=i) for i, run in runs for log in run.logs]
        if chart := line_chart(lines, title=f"{title}, over steps", width=260, height=130):
            small.append((title, chart))
    return charts, small


def loss_lines(groups: Sequence[Sequence[RunFacts]]) -> list[Line]:
    """The losses of single runs, and the means of those that differ by their seed alone."""
    lines = []
    for colour, group in ((i % COLOURS, group) for i, group in enumerate(groups)):
        (run, *others) = group
        if others:
            name = f"mean of {len(group)} seeds of {run.name}"
            lines.append(mean_line([one.log.curve("val/loss") for one in group], name=name, colour=colour))
            continue
        for log in run.logs:
            before = f"{run.name}, " * (len(groups) > 1) + f"model {log.stage}, " * (len(run.logs) > 1)
            training, validation = log.curve("train/loss"), log.curve("val/loss")
            lines.append(Line(name=f"{before}training", points=training, colour=colour, is_faint=True))
            lines.append(Line(name=f"{before}validation", points=validation, colour=colour, has_dots=True))
    return lines


def mean_line(curves: Sequence[Sequence[tuple[int, float]]], *, name: str, colour: int) -> Line:
    """The mean of several curves at the steps that more than one of them has, with a band of one standard deviation."""
    values: dict[int, list[float]] = {}
    for step, value in (point for curve in curves for point in curve):
        values.setdefault(step, []).append(value)
    several = {step: (statistics.fmean(found), statistics.stdev(found)) for step, found in values.items() if len(found) > 1}
    points = [(step, mean) for step, (mean, _) in sorted(several.items())]
    band = [(step, mean - deviation, mean + deviation) for step, (mean, deviation) in sorted(several.items())]
    return Line(name=name, points=points, band=band, colour=colour, has_dots=True)
