"""A run and its model, measured for a report: how the model does on the validation split, what it copies, what its heads do."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chargpt.analysis.copies import measure_copies, write_samples
from chargpt.analysis.heads import measure_attention
from chargpt.analysis.losses import Predictions, loss_breakdown, predict
from chargpt.analysis.run_facts import RunFacts, about_text
from chargpt.analysis.scored_text import Line, lines_of, score_text, text_of
from chargpt.errors import UserError
from chargpt.project import command
from chargpt.runs.checkpoint import newest_of, read_state, run_of
from chargpt.runs.checkpoint_schema import NO_TEXT
from chargpt.runs.metrics import read_metrics
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.advice import advice_on
from chargpt.text.comparison import held_out_by_all
from chargpt.text.corpus import Corpus
from chargpt.text.examination import REPEATS, SPLIT
from chargpt.text.item_stream import ItemMarks
from chargpt.text.suffix_array import SuffixIndex
from chargpt.text.tokenizer import Tokenizer

# Characters of a line that is listed (shorter ones are extreme by chance), and different ones (a rule of dashes says nothing).
SHORTEST_LINE, FEWEST_DISTINCT = 12, 5
LISTED_LINES = 6  # best ones, and as many worst ones
OPENING_LINES = 60  # from the beginning of the validation split
CONFUSED, MAX_MAPPED = 8, 128  # pairs of confused characters that are listed, and characters of the map of a head
SAMPLES, PASSAGES = 3, 5  # that are written, and that are listed of what they copied
# Characters that several runs hold out: fewer tell nothing, and more take long.
LEAST_SHARED, MOST_SHARED = 1_000, 100_000
# Characters of the validation split that a quick report is measured on, at least and at most; and their number, times that of
# parameters, in about a second: each is predicted three times, once for the breakdown of the loss and twice for the lines.
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


def measure_run(loaded: LoadedModel, corpus: Corpus | None, *, index: SuffixIndex | None, effort: Effort) -> RunFacts:
    """Everything about a run and its model. What needs its `corpus` or its `index` is left out without it."""
    path = loaded.path.resolve()
    state = newest_of(path.parent, read_state)[0]
    facts: dict[str, Any] = {"name": loaded.run, "state": state, "step": loaded.step, "val_loss": loaded.val_loss}
    facts |= {"engine": loaded.engine(), "logs": read_metrics(run_of(path))}
    if corpus is None:
        is_imported = state.fingerprint == NO_TEXT and not state.texts
        why = "it was imported without a text" if is_imported else "the program has no copy of its training text"
        return RunFacts(**facts, missing=[f"{why}, so the model was not measured on any text"])
    facts |= about_text(corpus) | {"about_split": [*map(str, advice_on(corpus, (*SPLIT, REPEATS)))]}
    if corpus.items is not None:
        from chargpt.analysis.item_facts import measure_items

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
    return RunFacts(**facts, missing=missing)


def compared(runs: Sequence[tuple[RunFacts, LoadedModel | None, Corpus | None]]) -> list[RunFacts]:
    """The reports of several runs, whose texts may differ: with the losses on what all of them hold out, if that is enough."""
    reports, texts = [run for run, *_ in runs], [corpus for *_, corpus in runs if corpus is not None]
    if len({run.state.fingerprint for run in reports}) == 1 or len(texts) < len(runs):
        return reports
    shared = held_out_by_all(texts)
    if len(shared) < LEAST_SHARED:
        return reports
    losses = [None if loaded is None else loaded.score(shared[:MOST_SHARED], unknown="skip") for _, loaded, _ in runs]
    return [dataclasses.replace(run, shared=len(shared), shared_loss=loss) for run, loss in zip(reports, losses)]


def _on_validation(loaded: LoadedModel, corpus: Corpus, effort: Effort) -> dict[str, Any]:
    """The fields of a RunFacts that are measured on the validation split."""
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
