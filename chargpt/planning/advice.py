"""Commands that a person can copy: what gives a lower loss for the same text."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chargpt.config import Config, DataConfig
from chargpt.planning.adaptation import (
    USELESS,
    MeasuredStart,
    as_begun_with,
    expected_after,
    has_seen_validation,
    measure_start,
)
from chargpt.planning.candidate_settings import unless
from chargpt.planning.chosen_for_time import text_of
from chargpt.planning.cli import TrainOptions, given_in
from chargpt.planning.law import MAX_EPOCHS, Expected, Text
from chargpt.project import command
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.load import find_checkpoint
from chargpt.runs.run import free_folder
from chargpt.runs.start_from import COMMON, runs_to_start_from
from chargpt.runs.starts import load_start, read_card, start_names
from chargpt.terminal import UserError, shown
from chargpt.text.corpus import Corpus
from chargpt.text.report import split_problems
from chargpt.text.sources import can_be_read_again
from chargpt.training.optimizer_kinds import WITH_MINUTES

# Minutes that are named for a short text: two runs fit into them on most machines; more do not lower its loss.
ENOUGH = 2
# Nats from which on another way is named.
WORTH = 0.03
# Characters of a training split below which another run's weights are worth a try.
SHORT = 1_000_000
# The same for a start that comes with the program.
SHORT_FOR_START = 300_000
# Runs whose loss on the text is measured: those that have read most.
MEASURED_RUNS = 3
# Characters of the validation split that tell which start knows the language.
LANGUAGE_SAMPLE = 2000
# Nats below its own loss that a start may reach on the text of another.
EASIER = 0.2

# The settings that an option of a command replaces, by the beginnings of their names.
REPLACED = {
    "--minutes": ("train.max_steps", "optim.name", "train.teachers"),
    "--init-from": ("model.", "train.max_steps", "train.student_", "train.teachers"),
    "--start": ("model.", "train.max_steps", "train.student_", "train.teachers"),
    "--find-lr": ("optim.learning_rate",),
}
LONGER_TEXT = "train on a longer text of this kind first, and then on this one with --init-from RUN"


def train_command(corpus: Corpus, config: Config, words: Sequence[str], *, folder: Path, checkpoints: Path) -> str:
    """A command that trains on the text of `corpus` with these words, for a new run beside the one in `folder`.

    It has the settings for a validation split that is like the rest of the text. Empty if the text cannot be read again by its
    name: standard input, for example.
    """
    if not all(map(can_be_read_again, corpus.texts)):
        return ""
    new = free_folder(folder)
    name = new.name if new.parent == checkpoints else shown(new)
    texts = [shown(text) for text in corpus.texts]
    other = [problem.setting for problem in split_problems(corpus) if problem.setting]
    kept = unless(given_in(other), _settings_of_text(config.data))
    return f"{command('train')} {shlex.join([*texts, *words, '--run', name, *kept, *other])}"


def _settings_of_text(data: DataConfig) -> list[str]:
    """What must be given again so that the same text is read in the same way."""
    default = DataConfig()
    changed: dict[str, Any] = {name: value for name, value in vars(data).items() if value != getattr(default, name)}
    paths: dict[str, object] = {name: shown(changed[name]) for name in ("val_text", "cache") if name in changed}
    return [f"data.{name}={str(value).lower() if value is True else value}" for name, value in {**changed, **paths}.items()]


def kept_settings(settings: Sequence[str], option: str) -> list[str]:
    """Those of the user's settings that stay in a command with `option`; train_command adds those of the text."""
    return [setting for setting in settings if not setting.startswith(("data.", *REPLACED[option]))]


class KnownStart(NamedTuple):
    """What a training on a short text could begin with."""

    words: list[str]  # for its command
    loss: float  # on the validation split, before training, nats per character
    expected: float  # the same, after an adaptation


def known_start(corpus: Corpus, *, ngram_loss: float, checkpoints: Path) -> KnownStart | None:
    """The start or run with the lowest expected loss on a short text, if an n-gram model has a higher one; None without any."""
    if len(corpus.train) >= SHORT:
        return None
    text = text_of(corpus)._replace(ngram_loss=ngram_loss)
    measured = {**_known_runs(corpus, text, checkpoints=checkpoints), **_known_language(corpus, text)}
    found = []
    for words, start in measured.items():
        found.append(KnownStart([*words], start.loss, expected_after(start, ngram_loss).loss))
    return min((start for start in found if start.expected < ngram_loss), key=lambda start: start.expected, default=None)


def _known_runs(corpus: Corpus, text: Text, *, checkpoints: Path) -> dict[tuple[str, str], MeasuredStart]:
    """Those that have read most distinct text, of a kind near that of `corpus`, by the words of a command."""
    found = dict[tuple[str, str], MeasuredStart]()
    for run in runs_to_start_from(checkpoints, corpus, root=checkpoints.parent)[:MEASURED_RUNS]:
        try:
            source, _ = find_checkpoint(run.name, checkpoints)
            if _is_long_enough(corpus, source) and not has_seen_validation(source.state, corpus, root=checkpoints.parent):
                measured = measure_start(source, as_begun_with(source, corpus), text=text)
                found |= {("--init-from", run.name): measured} if measured.distance < USELESS else {}
        except UserError:  # what cannot be read is not offered
            continue
    return found


def _known_language(corpus: Corpus, text: Text) -> dict[tuple[str, str], MeasuredStart]:
    """The start that knows the language of the text best, as a short part of the text tells; by the words of a command."""
    characters = corpus.tokenizer.characters
    if len(corpus.train) >= SHORT_FOR_START or characters is None:
        return {}
    sources = {}
    for name in start_names():
        try:
            card = read_card(name)
            known = np.isin([*characters], [*(card.state.tokenizer.characters or "")])
            is_of_script = corpus.counts[: len(characters)][known].sum() >= COMMON * corpus.counts.sum()
            if is_of_script and card.loss - EASIER < text.ngram_loss and _is_long_enough(corpus, start := load_start(name)):
                sources[name] = start
        except UserError:  # what cannot be read is not offered
            continue
    if not sources:
        return {}
    read = {name: as_begun_with(source, corpus) for name, source in sources.items()}
    quick = {name: measure_start(sources[name], read[name], text=text, characters=LANGUAGE_SAMPLE) for name in sources}
    best = min(quick, key=lambda name: quick[name].loss)
    return {("--start", best): measure_start(sources[best], read[best], text=text)}


def _is_long_enough(corpus: Corpus, source: Checkpoint) -> bool:
    """Whether a window of the model of `source` fits into each split, as a training needs."""
    return corpus.items is not None or min(len(corpus.train), len(corpus.val)) > source.state.config.model.block_size


def _best_way(
    corpus: Corpus,
    *,
    loss: float,
    ngram_loss: float,
    with_minutes: tuple[int, float] | None,
    checkpoints: Path,
    is_adapted: bool = False,
) -> tuple[float, list[str], str] | None:
    """The lowest loss to expect of another training, if it is clearly below `loss`; how its command begins; and why.

    `with_minutes` is what --minutes gives in place of this training: how many, and by how many nats the loss is lower. After a
    training that was itself an adaptation, only a start with a lower loss before training is named.
    """
    ways = []
    if start := known_start(corpus, ngram_loss=ngram_loss, checkpoints=checkpoints):
        why = f"about {start.expected:.2f} is expected: its loss on this text is {start.loss:.2f} before training"
        ways.append((start.loss if is_adapted else start.expected, start.words, why))
    if with_minutes is not None:
        after = loss - with_minutes[1]
        ways.append((after, ["--minutes", str(with_minutes[0])], f"about {after:.2f} is expected"))
    best = min(ways, default=None)
    return best if best is not None and best[0] < loss - WORTH else None


def _is_too_short(corpus: Corpus, loss: float, *, ngram_loss: float) -> bool:
    """Whether a training on this text alone, with this loss, needs a longer text rather than more time."""
    return loss >= ngram_loss and len(corpus.train) < SHORT


def better_way(
    corpus: Corpus,
    config: Config,
    *,
    expected: Expected | None,
    ngram_loss: float,
    with_minutes: tuple[int, float] | None,
    settings: Sequence[str],
    folder: Path,
    checkpoints: Path,
) -> str:
    """What is expected to give a clearly lower loss than the training of `config` in `folder`, which is about to begin.

    Empty if there is nothing. `expected` is the loss of this training, None if it is not known, and then the loss of an n-gram
    model is compared; `with_minutes` is that of `_best_way`. `settings` are those that the user gives.
    """
    own = ngram_loss if expected is None else expected.loss
    if way := _best_way(corpus, loss=own, ngram_loss=ngram_loss, with_minutes=with_minutes, checkpoints=checkpoints):
        _, words, why = way
        instead = "" if expected is None else f"; from this training {expected.loss:.2f}"
        words = [*words, *kept_settings(settings, words[0])]
        command = train_command(corpus, config, words, folder=folder, checkpoints=checkpoints)
        return f"{command or ' '.join(words)}   ({why}{instead})"
    if expected is not None and _is_too_short(corpus, expected.loss, ngram_loss=ngram_loss):
        return f"{LONGER_TEXT}   (on this text alone, a training may not beat an n-gram model)"
    return ""


def better_training(
    corpus: Corpus,
    config: Config,
    progress: Progress,
    *,
    seconds: float | None,
    is_memorised: bool,
    is_adapted: bool,
    began: int = 0,
    ngram_loss: float,
    with_minutes: tuple[int, float] | None = None,
    given: TrainOptions,
    folder: Path,
    checkpoints: Path,
) -> str:
    """What may give a lower loss than the run in `folder`, which has ended: a command if there is one; empty for nothing.

    What `better_way` names before a training is named after it too, unless the training learned nothing. `seconds` is how long
    its steps took, None if that is not known; `ngram_loss` is the loss of an n-gram model. The settings that the user has
    `given` for this run stay, but for those that the command replaces. `is_adapted` says that it began with trained weights,
    `began` after which step.
    """
    minutes, learned = max(2, math.ceil((seconds or 0) / 60)), not progress.gained_nothing(since=began)
    epochs = progress.step * config.chars_per_step / len(corpus.train)
    is_short_of_text = is_memorised or epochs > 0.9 * MAX_EPOCHS
    best_loss = math.inf if progress.best_loss is None else progress.best_loss
    with_minutes = with_minutes if learned else None
    way = _best_way(
        corpus,
        loss=best_loss,
        ngram_loss=ngram_loss,
        with_minutes=with_minutes,
        checkpoints=checkpoints,
        is_adapted=is_adapted,
    )
    if way is not None:
        words = way[1]
    elif is_adapted or config.train.teachers:
        return ""
    elif not learned:
        words = ["--find-lr"]
    elif given.minutes is not None and _is_too_short(corpus, best_loss, ngram_loss=ngram_loss):  # as `better_way` says
        return LONGER_TEXT
    elif config.optim.name != WITH_MINUTES and with_minutes is None:
        words = ["--minutes", str(ENOUGH if is_short_of_text else minutes)]
    elif not is_short_of_text:
        words = ["--minutes", str(2 * minutes)]
    elif config.optim.name == WITH_MINUTES and minutes <= ENOUGH and (given.minutes or 0) < ENOUGH:  # in two runs
        words = ["--minutes", str(ENOUGH)]
    else:
        return LONGER_TEXT if best_loss >= ngram_loss else ""
    words += kept_settings(given.settings, words[0])
    return train_command(corpus, config, words, folder=folder, checkpoints=checkpoints)
