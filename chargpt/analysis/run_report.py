"""What a report shows of one run, as plain data: its log, its text, and how its model does on the validation split."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chargpt.analysis.copies import Copies, measure_copies, write_samples
from chargpt.analysis.heads import Heads, measure_attention
from chargpt.analysis.losses import LossBreakdown, Predictions, loss_breakdown, predict
from chargpt.analysis.scored_text import Line, lines_of, score_text, text_of
from chargpt.errors import UserError
from chargpt.project import command
from chargpt.runs.checkpoint import newest_of, newest_stage, read_state, run_of, stage_folder
from chargpt.runs.checkpoint_schema import NO_TEXT, SavedState
from chargpt.runs.metrics import MetricsLog, read_metrics
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import Notice
from chargpt.text.comparison import held_out_by_all
from chargpt.text.corpus import Corpus
from chargpt.text.items import ItemMarks
from chargpt.text.report import about_repeats, split_problems
from chargpt.text.suffix_array import SuffixIndex
from chargpt.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # imported for a list alone
    from chargpt.analysis.items import ItemReport

EXCERPT = 250  # characters of the training text that a report shows
# Characters of a line that is listed (shorter ones are extreme by chance), and different ones (a rule of dashes says nothing).
SHORTEST_LINE, FEWEST_DISTINCT = 12, 5
LISTED_LINES = 6  # best ones, and as many worst ones
OPENING_LINES = 60  # from the beginning of the validation split
CONFUSED, MAX_MAPPED = 8, 128  # pairs of confused characters that are listed, and characters of the map of a head
SAMPLES, PASSAGES = 3, 5  # that are written, and that are listed of what they copied
# Characters of the validation split that a quick report is measured on, at least and at most; and their number, times that of
# parameters, in about a second: each is predicted three times, once for the breakdown of the loss and twice for the lines.
# Characters that several runs hold out: fewer tell nothing, and more take long.
LEAST_SHARED, MOST_SHARED = 1_000, 100_000
PROBE, MAX_QUICK, QUICK_WORK = 256, 20_000, 10**10


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a report computes."""

    characters: int  # of the validation split that the model predicts
    sample_length: int  # characters of each sample
    sample_seconds: float  # after this time the samples are cut short


WHOLE = Effort(characters=50_000, sample_length=1000, sample_seconds=30.0)


def quick(parameters: int) -> Effort:
    """What takes two processors about a second for the characters, and as much for the samples."""
    characters = max(PROBE, min(MAX_QUICK, QUICK_WORK // parameters))
    return Effort(characters=characters, sample_length=400, sample_seconds=1.0)


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run. What is None could not be measured; `missing` says why."""

    name: str
    state: SavedState  # of its newest checkpoint
    step: int  # of the checkpoint that the report is about
    val_loss: float | None
    engine: str = ""
    logs: list[MetricsLog]  # of all models of the run, in their order
    corpus: list[Notice] = field(default_factory=list)  # about the text
    training_characters: int | None = None
    about_split: list[str] = field(default_factory=list)  # why its validation loss does not say how good it is
    excerpt: str = ""
    ngram_loss: float | None = None  # the loss of an n-gram model, nats per character
    scored: int = 0  # predicted characters that the losses and the lines are measured on
    losses: LossBreakdown | None = None
    opening: list[Line] = field(default_factory=list)  # the beginning of the validation split
    worst: list[Line] = field(default_factory=list)
    best: list[Line] = field(default_factory=list)
    copies: Copies | None = None
    heads: Heads | None = None
    items: "ItemReport | None" = None  # of a run on items
    missing: list[str] = field(default_factory=list)
    shared: int = 0  # characters that all runs of a comparison hold out, whose texts are not the same
    shared_loss: float | None = None  # on these

    @property
    def log(self) -> MetricsLog:
        """That of the model, whose steps are counted from its own first one."""
        first, stage = self.state.progress.first_step, self.state.stage.number
        log = next((log for log in self.logs if log.stage == stage), MetricsLog(stage))
        curves = {name: [(step - first, value) for step, value in points] for name, points in log.curves.items()}
        return MetricsLog(log.stage, curves, [(step - first, sample) for step, sample in log.samples])


def measure_run(loaded: LoadedModel, corpus: Corpus | None, *, index: SuffixIndex | None, effort: Effort) -> RunReport:
    """Everything about a run and its model. What needs its `corpus` or its `index` is left out without it."""
    path = loaded.path.resolve()
    state = newest_of(path.parent, read_state)[0]
    facts: dict[str, Any] = {"name": loaded.run, "state": state, "step": loaded.step, "val_loss": loaded.val_loss}
    facts |= {"engine": loaded.engine, "logs": read_metrics(run_of(path))}
    if corpus is None:
        is_imported = state.fingerprint == NO_TEXT and not state.texts
        why = "it was imported without a text" if is_imported else "the program has no copy of its training text"
        return RunReport(**facts, missing=[f"{why}, so the model was not measured on any text"])
    facts |= _about(corpus) | {"about_split": [*map(str, split_problems(corpus)), *about_repeats(corpus)]}
    if corpus.items is not None:
        from chargpt.analysis.items import measure_items

        facts["items"] = measure_items(loaded, corpus, characters=effort.characters, seconds=effort.sample_seconds)
    missing = []
    if corpus.is_validated:
        facts |= _on_validation(loaded, corpus, effort)
        block_size = loaded.config.model.block_size
        try:
            facts["heads"] = measure_attention(loaded, np.asarray(corpus.val[: min(MAX_MAPPED, block_size)]).astype(np.int64))
        except UserError as problem:
            missing.append(f"what its heads attend to: {problem}")
    else:
        missing.append("how it does on new text: all of the text was for training")
    if index is None:
        missing.append(f"what it copies: there is no index of the training text; {command('trace')} makes it")
    else:
        labels = None if corpus.items is None else corpus.items.labels
        length, seconds = effort.sample_length, effort.sample_seconds
        samples = write_samples(loaded, labels, seeds=range(SAMPLES), length=length, seconds=seconds)
        facts["copies"] = measure_copies(samples, corpus, index, most=PASSAGES)
    return RunReport(**facts, missing=missing)


def compared(runs: Sequence[tuple[RunReport, LoadedModel | None, Corpus | None]]) -> list[RunReport]:
    """The reports of several runs, whose texts may differ: with the losses on what all of them hold out, if that is enough."""
    reports, texts = [run for run, *_ in runs], [corpus for *_, corpus in runs if corpus is not None]
    if len({run.state.fingerprint for run in reports}) == 1 or len(texts) < len(runs):
        return reports
    shared = held_out_by_all(texts)
    if len(shared) < LEAST_SHARED:
        return reports
    losses = [None if loaded is None else loaded.score(shared[:MOST_SHARED], unknown="skip") for _, loaded, _ in runs]
    return [dataclasses.replace(run, shared=len(shared), shared_loss=loss) for run, loss in zip(reports, losses)]


def live_report(folder: Path, state: SavedState, corpus: Corpus) -> RunReport:
    """What is known of the run in `folder` while it trains: what it has reached, wrote and logged."""
    missing = "what is measured on the model at the end of the training"
    return dataclasses.replace(_logged(folder, state, missing=missing), **_about(corpus))


def logged_report(folder: Path, *, missing: str) -> RunReport:
    """The same of the run in `folder` without its text and its model; this is `missing`."""
    place = stage_folder(folder, newest_stage(folder, learned=True))
    return _logged(folder, newest_of(place, read_state)[0], missing=missing)


def _logged(folder: Path, state: SavedState, *, missing: str) -> RunReport:
    facts: dict[str, Any] = {"name": folder.name, "state": state, "logs": read_metrics(folder), "missing": [missing]}
    return RunReport(step=state.progress.best_step or 0, val_loss=state.progress.best_loss, **facts)


def _about(corpus: Corpus) -> dict[str, Any]:
    """What the report says of a text."""
    return {
        "corpus": corpus.describe(),
        "training_characters": len(corpus.train),
        "excerpt": corpus.tokenizer.decode(corpus.train[:EXCERPT]),
        "ngram_loss": corpus.facts.ngram_loss if corpus.is_validated else None,
    }


def _on_validation(loaded: LoadedModel, corpus: Corpus, effort: Effort) -> dict[str, Any]:
    """The fields of a RunReport that are measured on the validation split."""
    ids = np.asarray(corpus.val[: effort.characters + 1]).astype(np.int64)
    predictions, block_size = predict(loaded.model, ids, corpus.marks), loaded.model.config.block_size
    lines = score_lines(loaded, ids) if corpus.marks is None else item_lines(predictions, corpus.marks, corpus.tokenizer)
    whole = lines if corpus.marks else lines[1:]  # the first line of a text may begin in its middle
    worst, best = extreme_lines(lines)
    return {
        "scored": len(predictions.losses),
        "losses": loss_breakdown(predictions, corpus.tokenizer, block_size=block_size, most=CONFUSED),
        "opening": whole[:OPENING_LINES] or lines,
        "worst": worst,
        "best": best,
    }


def score_lines(loaded: LoadedModel, ids: np.ndarray) -> list[Line]:
    """The lines of ids (T,) with the bits of each character, given at least half of the context."""
    text, stride = text_of(ids, loaded.tokenizer), max(1, loaded.model.config.block_size // 2)
    return lines_of(text, score_text(loaded.model, loaded.tokenizer, text, stride=stride)[0])


def item_lines(predictions: Predictions, marks: ItemMarks, tokenizer: Tokenizer) -> list[Line]:
    """The items of a text as lines, with the bits of each character that was predicted."""
    bits = np.full(len(predictions.ids), np.nan)
    bits[predictions.places] = predictions.losses / math.log(2)
    cuts = np.flatnonzero(predictions.ids == marks.end) + 1
    return [
        Line(number=number, text=tokenizer.decode(part), bits=bits_of_part)
        for number, (part, bits_of_part) in enumerate(zip(np.split(predictions.ids, cuts), np.split(bits, cuts)), 1)
        if np.isfinite(bits_of_part).any()
    ]


def extreme_lines(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """The lines with the most, and with the fewest bits per character. A line that repeats is listed once."""
    distinct: dict[str, Line] = {}
    for line in lines:
        text = line.text.strip()
        if len(text) >= SHORTEST_LINE and len(set(text)) >= FEWEST_DISTINCT and not np.isnan(line.mean):
            distinct.setdefault(text, line)
    most = min(LISTED_LINES, len(distinct) // 2)  # so that no line is in both lists
    ranked = sorted(distinct.values(), key=lambda line: line.mean)
    return ranked[::-1][:most], ranked[:most]
