"""Start or nothing: a short trial on the text decides whether a run begins with a start, not its language or length alone.

Each start that knows the characters of the text predicts a little of it. The best one, and another if it is near, are trained
for some steps. Where that leads in the time of the run, `expected_loss` says; of a training from nothing, the law says it
(law.py). The lower loss wins. docs/lab/trial.md has the runs to which the constants were fitted.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chargpt.config import Config, RuntimeConfig
from chargpt.errors import Message, Option
from chargpt.notices import Kind, Notice
from chargpt.planning import law
from chargpt.planning.adaptation import adapt, begun, distance_of, loss_on
from chargpt.planning.chosen_for_time import Job, Verdict, loss_by_law
from chargpt.planning.initial_settings import Asked, shape_of
from chargpt.planning.law import Text
from chargpt.project import NO_START
from chargpt.runs.blank_model import LOADED_SOURCE
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import CARD, STARTS, load_start, start_names
from chargpt.settings import COMMAND_LINE, apply
from chargpt.standard import is_standard
from chargpt.text.corpus import Corpus
from chargpt.text.passages import has_read
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

KNOWN = 0.8  # share of the text whose characters a start must know
GLANCED = 2000  # characters of the validation split that all starts predict; the best one predicts MEASURED
# Starts that are trained, at most: of a far text, a smaller one may learn more in the time. One whose loss is more than NEAR
# times that of the best one is not: in the steps of a trial, it does not catch up.
TRIED, NEAR = 2, 1.5
LONG_ENOUGH = 20.0  # seconds of a run in which starts may be trained, which takes up to four on two slow cores
WINDOWS, STEPS = 4, 8  # sequences in a step of the trial, and its steps
# An adaptation ends at what the law expects from nothing with the same size and length, times exp(GAIN) if the start predicts
# the text as well as n-grams after its trial, more by POWER of how many times worse it is, and by LENGTH of how many times
# longer than AS_LONG characters the text is: from a short one, a training from nothing learns less than the law says; fitted.
GAIN, POWER, LENGTH, AS_LONG = -0.28, 0.29, 0.05, 180_000
NOTHING_LEFT = 1e-3  # nats: of a text that repeats itself, neither n-grams nor a start may have any left
TRIALS = "trial.json"  # in the entry of the text in the cache


class Trial(NamedTuple):
    """What a start has shown on a text. Losses are in nats per character."""

    start: str
    before: float  # its loss on the text
    after: float  # its loss after `seen` characters of a training
    seen: int  # 0: it was not trained


def try_starts(asked: Asked, job: Job, *, expected: float) -> Verdict:
    """Whether the best start for a text gives a lower loss than is `expected` from nothing. None of those has read the text."""
    enough, losses = expected if job.seconds >= LONG_ENOUGH else math.inf, dict[Trial, float]()
    load, notices, names = functools.cache(load_start), list[Notice](), start_names()
    for name in [name for name in names if has_read(STARTS / name, job.corpus)]:
        names.remove(name)
        what = f"{name} has read this text, so its losses would look too good, and it is not used; to use it, add "
        notices.append(Notice(Kind.START, Message(f"the model {what}", Option("start", name))))
    for trial in trials_of(job.corpus, asked.settings.values.runtime, names, load, enough=enough):
        start = load(trial.start)
        begins = asked.settings.choose(trial.start, model=shape_of(start.state.config.model))
        adapted = adapt(begins, job, asked, distance=distance_of(start, trial.before))
        losses[trial] = expected_loss(trial, job.text, adapted.values)
    if not losses:
        return Verdict(notices)
    best, loss = min(losses.items(), key=lambda one: one[1])
    pays, about = loss < expected, f"a loss of about {loss:z.2f}{' or less' * (not best.seen)}"
    both = f"{about} is expected with the model {best.start}, and {expected:z.2f} from nothing; to begin with "
    said = Message(both, "nothing" if pays else "it", ", add ", Option("start", NO_START if pays else best.start))
    notices.append(Notice(Kind.START, said, "line" if pays else "detail"))
    return Verdict(notices, load(best.start), best.before) if pays else Verdict(notices)


def expected_loss(trial: Trial, text: Text, config: Config) -> float:
    """The loss of a run from this start with the settings `config`, in nats per character: no higher than its trial's, and no
    lower than the law ever says.

    What the law does not know of a text, it does not know of both ways, so their comparison is surer than each of them.
    """
    if not trial.seen:
        return trial.before
    ngram, seen = max(NOTHING_LEFT, text.ngram_loss * text.copying), config.train.max_steps * config.chars_per_step
    nothing = loss_by_law(config, text, seen=seen)
    behind, longer = max(NOTHING_LEFT, trial.after) / ngram, text.characters / AS_LONG
    learned = nothing * math.exp(GAIN + POWER * math.log(behind) + LENGTH * math.log(longer))
    return min(trial.after, max(law.FLOOR * ngram, learned))


def trials_of(
    corpus: Corpus, runtime: RuntimeConfig, names: Sequence[str], load: Callable[[str], Checkpoint], *, enough: float
) -> list[Trial]:
    """The trials of those of the starts `names` that are best for a text, from the cache or made now; none if none of them
    knows its characters. `load` gives a start.

    If the best one has a loss below `enough` before any training, it alone is named, and not trained.
    """
    of = [LOADED_SOURCE, *names, *((STARTS / name / CARD).stat().st_mtime for name in names)]

    def measure() -> list[Trial]:
        known = {name: start for name in names if _knows(start := load(name), corpus)}
        glanced = {name: loss_on(corpus, begun(start, corpus)[0], characters=GLANCED) for name, start in known.items()}
        near = [name for name in sorted(glanced, key=glanced.__getitem__) if glanced[name] <= NEAR * min(glanced.values())]
        trials = list[Trial]()
        for name in near[:TRIED]:
            trials.append(_tried(name, known[name], corpus, runtime, enough=enough))
            if not trials[0].seen:
                break
        return trials

    def read(found: list[list]) -> list[Trial]:
        trials = [Trial(*fields) for fields in found]
        if not all(trial.seen or trial.before < enough for trial in trials):
            raise ValueError("not good enough without a training")
        return trials

    return corpus.kept(TRIALS, of, measure, read, by="*")


def _knows(start: Checkpoint, corpus: Corpus) -> bool:
    """Whether the start knows the characters of the text, but for a few, and model.py computes what its weights mean."""
    known, characters = start.state.tokenizer.characters or "", corpus.tokenizer.characters or ""
    counts = [int(count) for character, count in zip(characters, corpus.counts) if character in known]
    return sum(counts) >= KNOWN * corpus.characters and is_standard(start.state.config.model)


def _tried(name: str, start: Checkpoint, corpus: Corpus, runtime: RuntimeConfig, *, enough: float) -> Trial:
    """The trial of one start: a training of STEPS steps, whose rate falls to its end; none if it is good `enough` before. The
    caller has applied the runtime."""
    model, _ = begun(start, corpus)
    before = loss_on(corpus, model)
    if before < enough:
        return Trial(name, before, before, 0)
    optim = {"name": WITH_MINUTES, "learning_rate": OPTIMIZERS[WITH_MINUTES].start_rates[1], "warmup_steps": 2}
    tree = {"optim": {**optim, "decay_fraction": 1.0}, "train": {"batch_size": WINDOWS, "max_steps": STEPS}}
    shape = dataclasses.replace(start.state.config.model, dropout=0.0)
    config = apply(dataclasses.replace(Config(), model=shape, runtime=runtime), tree, where=COMMAND_LINE)
    trainer = Trainer(model, corpus.train, config, runtime=choose_runtime(config))
    while not trainer.is_finished:
        trainer.step()
    after = loss_on(corpus, trainer.model)
    trainer.release()
    return Trial(name, before, after, STEPS * config.chars_per_step)
