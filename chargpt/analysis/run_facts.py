"""What a report shows of one run, as plain data; of a run in training, what is on disk. Importing this imports no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chargpt.notices import Notice
from chargpt.project import project_root
from chargpt.runs.checkpoint import newest_of, newest_stage, read_state, stage_folder
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.metrics import MetricsLog, read_metrics
from chargpt.text.corpus import Corpus, cached_corpus

if TYPE_CHECKING:  # of a run whose model is measured
    from chargpt.analysis.copies import Copies
    from chargpt.analysis.heads import Heads
    from chargpt.analysis.item_facts import ItemFacts
    from chargpt.analysis.losses import LossBreakdown
    from chargpt.analysis.scored_text import Line

EXCERPT = 250  # characters of the training text that a report shows


@dataclass(frozen=True, kw_only=True)
class RunFacts:
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
    losses: "LossBreakdown | None" = None
    opening: "list[Line]" = field(default_factory=list)  # the beginning of the validation split
    worst: "list[Line]" = field(default_factory=list)
    best: "list[Line]" = field(default_factory=list)
    copies: "Copies | None" = None
    heads: "Heads | None" = None
    items: "ItemFacts | None" = None  # of a run on items
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


def logged_facts(folder: Path, *, missing: str) -> RunFacts:
    """The run in `folder` without its model: what it has reached, wrote and logged, and its text if that is in the cache.

    This is `missing`. Raises CheckpointError if there is no checkpoint.
    """
    place = stage_folder(folder, newest_stage(folder, learned=True))
    state = newest_of(place, read_state)[0]
    data, fingerprint = state.config.data, state.fingerprint
    corpus = cached_corpus(state.texts, data, state.tokenizer, root=project_root(), fingerprint=fingerprint)
    return RunFacts(
        name=folder.name,
        state=state,
        step=state.progress.best_step or 0,
        val_loss=state.progress.best_loss,
        logs=read_metrics(folder),
        missing=[missing],
        **({} if corpus is None else about_text(corpus)),
    )


def about_text(corpus: Corpus) -> dict[str, Any]:
    """The fields that are about the text alone."""
    return {
        "corpus": corpus.describe(),
        "training_characters": len(corpus.train),
        "excerpt": corpus.tokenizer.decode(corpus.train[:EXCERPT]),
        "ngram_loss": corpus.facts.ngram_loss if corpus.is_validated else None,
    }
