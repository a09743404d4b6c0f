"""What a report shows of one run, as plain data: its log, its text, and how its model does on the validation part."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chargpt.analysis.attention_patterns import HeadFacts, measure_heads
from chargpt.analysis.characters import characters_of
from chargpt.analysis.loss_parts import predict, report_of
from chargpt.analysis.metrics_log import MetricsLog, read_metrics
from chargpt.analysis.novelty import Novelty
from chargpt.analysis.scored_text import Line, Total, lines_of, score_pieces
from chargpt.config import Config
from chargpt.runs.saved_state import NO_TEXT
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.printing import text_of
from chargpt.sampling.rules import Sampling
from chargpt.text.corpus import Corpus
from chargpt.text.report import mark_to_beat
from chargpt.text.suffix_array import SuffixIndex
from model import GPT

EXCERPT = 250  # characters of the training text
SHORTEST_LINE = 12  # characters of a line that is listed: shorter ones are extreme by chance
FEWEST_DISTINCT = 5  # characters of such a line: a rule of dashes says nothing
LISTED_LINES = 6  # best ones, and worst ones
PASSAGES = 5  # copied ones
CONFUSED = 8  # pairs
MAX_SEEN = 128  # characters of a head map
SAMPLES = 3
PROBE, MAX_QUICK = 256, 20_000  # characters of the validation part: fewest and most of a quick report


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a report computes."""

    characters: int  # of the validation part that the model predicts
    sample_length: int  # characters of each sample
    sample_seconds: float  # after this time the samples are cut short


WHOLE = Effort(characters=50_000, sample_length=1000, sample_seconds=30.0)


def quick(model: GPT, ids: np.ndarray, *, seconds: float = 1.0) -> Effort:
    """What takes about `seconds` for the characters, and as much for the samples, by the time of a few of `ids` (T,)."""
    few = torch.from_numpy(ids[: PROBE + 1].astype(np.int64))
    started = time.perf_counter()
    predict(model, few)
    per_character = (time.perf_counter() - started) / (len(few) - 1)
    # Each character is predicted three times: once for the parts of the loss, twice in overlapping windows for the lines.
    characters = max(PROBE, min(MAX_QUICK, int(seconds / (3 * per_character))))
    return Effort(characters=characters, sample_length=400, sample_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """What the samples of a model have copied from its training text, beside as much of the validation part."""

    samples: list[str]
    longest: int
    unseen_longest: int
    passages: list[tuple[int, int, str]]  # length, how often it stands in the training text, the passage
    novel: dict[int, float]  # for each n, the share of n-grams that the training text does not have
    unseen_novel: dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Heads:
    """The attention of all heads on the beginning of the validation part."""

    text: str
    weights: Tensor  # (n_layer, n_head, T, T), float32
    facts: HeadFacts


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run. What is None could not be measured; `missing` says why."""

    name: str
    step: int  # of the checkpoint
    val_loss: float | None
    parameters: int
    engine: str
    texts: list[str]
    config: Config
    environment: Mapping[str, str | int | bool]
    log: MetricsLog
    corpus: list[str] = field(default_factory=list)  # lines about the text: a label in 12 columns and what it is
    training_characters: int | None = None
    excerpt: str = ""
    mark: float | None = None  # the loss of an n-gram model, nats per character
    scored: int = 0  # characters that the parts of the loss and the lines are measured on
    parts: dict[str, Any] | None = None  # see `loss_parts.report_of`
    opening: list[Line] = field(default_factory=list)  # the beginning of the validation part
    worst: list[Line] = field(default_factory=list)
    best: list[Line] = field(default_factory=list)
    copies: Copies | None = None
    heads: Heads | None = None
    missing: list[str] = field(default_factory=list)


def measure_run(
    loaded: LoadedModel,
    corpus: Corpus | None,
    *,
    folder: Path,
    index: SuffixIndex | None,
    effort: Effort,
    mark: float | None = None,
) -> RunReport:
    """Everything about the run in `folder` and its model. Without its `corpus` or the `index` of that, what needs them lacks.

    `mark` is the loss of an n-gram model, if it is known already.
    """
    is_imported = loaded.fingerprint == NO_TEXT and not loaded.texts
    facts: dict[str, Any] = {
        "name": loaded.run,
        "step": loaded.step,
        "val_loss": loaded.val_loss,
        "parameters": loaded.model.parameter_count(),
        "engine": loaded.engine,
        # Without their folders: a report may be given to others.
        "texts": ["unknown (imported)"] if is_imported else [text if text == "-" else Path(text).name for text in loaded.texts],
        "config": loaded.config,
        "environment": loaded.environment,
        "log": read_metrics(folder),
    }
    if corpus is None:
        why = "it was imported without a text" if is_imported else "its training text is not in the cache"
        return RunReport(**facts, missing=[f"{why}, so the model was not measured on any text"])
    facts |= _on_text(loaded, corpus, effort)
    facts["mark"] = mark_to_beat(corpus) if mark is None else mark
    if index is None:
        why = "there is no index of the training text; python -m chargpt trace makes it"
        return RunReport(**facts, missing=[f"what it copies: {why}"])
    return RunReport(**facts, copies=measure_copies(loaded, corpus, index, effort))


def _on_text(loaded: LoadedModel, corpus: Corpus, effort: Effort) -> dict[str, Any]:
    """The fields of a RunReport that are about the text, or measured on its validation part."""
    ids = np.asarray(corpus.val[: effort.characters + 1]).astype(np.int64)
    predictions, block_size = predict(loaded.model, torch.from_numpy(ids)), loaded.model.config.block_size
    lines = score_lines(loaded, ids)
    return {
        "corpus": corpus.describe()[1:],
        "training_characters": len(corpus.train),
        "excerpt": corpus.tokenizer.decode(corpus.train[:EXCERPT]),
        "scored": len(ids) - 1,
        "parts": report_of(predictions, corpus.tokenizer, block_size=block_size, most=CONFUSED),
        "opening": lines[1:60] or lines,  # the first one may begin in the middle of a line
        "worst": extreme_lines(lines, worst=True),
        "best": extreme_lines(lines, worst=False),
        "heads": measure_attention(loaded, ids),
    }


def score_lines(loaded: LoadedModel, ids: np.ndarray) -> list[Line]:
    """The lines of ids (T,) with the bits of each character, given at least half of the context."""
    tokenizer = loaded.tokenizer
    piece = bytes(ids.tolist()) if tokenizer.characters is None else tokenizer.decode(ids)
    stride = max(1, loaded.model.config.block_size // 2)
    return list(lines_of(score_pieces(loaded.model, tokenizer, [piece], stride=stride, total=Total())))


def extreme_lines(lines: list[Line], *, worst: bool) -> list[Line]:
    """The lines with the most, or the fewest, bits per character. A line that repeats is listed once."""
    long_enough = [
        line
        for line in lines
        if len(text := line.text.strip()) >= SHORTEST_LINE and len(set(text)) >= FEWEST_DISTINCT and not np.isnan(line.mean)
    ]
    most = min(LISTED_LINES, len({line.text.strip() for line in long_enough}) // 2)  # so that no line is in both lists
    chosen: dict[str, Line] = {}
    for line in sorted(long_enough, key=lambda line: (-line.mean if worst else line.mean, line.number)):
        if len(chosen) < most:
            chosen.setdefault(line.text.strip(), line)
    return list(chosen.values())


def measure_copies(loaded: LoadedModel, corpus: Corpus, index: SuffixIndex, effort: Effort) -> Copies:
    """Samples of the model, and what they have copied."""
    samples = write_samples(loaded, effort)
    ids = [loaded.tokenizer.ids_of(sample) for sample in samples]
    novelty = Novelty(ids, index)
    unseen = Novelty([np.asarray(corpus.val[: sum(map(len, ids))])], index)
    found = novelty.passages(PASSAGES)
    passages = [
        (p.length, p.copies, corpus.tokenizer.decode(ids[p.text][p.start : p.start + p.length].tolist())) for p in found
    ]
    return Copies(
        samples=samples,
        longest=novelty.longest,
        unseen_longest=unseen.longest,
        passages=passages,
        novel=novelty.novel_shares(),
        unseen_novel=unseen.novel_shares(),
    )


def write_samples(loaded: LoadedModel, effort: Effort) -> list[str]:
    """Texts by the model at temperature 1, always the same ones unless the time runs out."""
    started, samples = time.monotonic(), [""] * SAMPLES
    generator = loaded.text_generator(Sampling(temperature=1.0), length=effort.sample_length)
    for added in generator.write([], range(SAMPLES)):
        samples = [sample + text_of(new) for sample, new in zip(samples, added)]
        if time.monotonic() - started > effort.sample_seconds:
            break
    return samples


@torch.inference_mode()
def measure_attention(loaded: LoadedModel, ids: np.ndarray) -> Heads:
    """The heads on the first of `ids`."""
    seen = ids[: min(len(ids), loaded.model.config.block_size, MAX_SEEN)]
    idx = torch.from_numpy(seen).to(loaded.model.token_embedding.weight.device)
    weights = loaded.model.attention(idx[None])[:, 0].float().cpu()
    characters = characters_of(seen, loaded.tokenizer)
    return Heads(text=loaded.tokenizer.decode(seen.tolist()), weights=weights, facts=measure_heads(weights, characters))
