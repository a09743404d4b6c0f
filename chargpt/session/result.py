"""How a run ended: the code of the program, what the user is told, and what to type next."""

import math
from pathlib import Path

from chargpt.config import Config
from chargpt.errors import Command, Message, Option, Words, resuming
from chargpt.interrupt import Interrupt
from chargpt.pages.report_page import up_to_a_word, write_final_report
from chargpt.planning.cli import TrainOptions
from chargpt.runs.checkpoint import best, newest
from chargpt.runs.checkpoint_schema import CheckpointError, Progress
from chargpt.runs.models import restore_model
from chargpt.runs.starts import start_names
from chargpt.session.session import Session
from chargpt.session.stages import name_of_stage
from chargpt.terminal import escape_controls, notice, plural, screen, shown
from chargpt.text.corpus import Corpus
from chargpt.text.report import about_repeats
from chargpt.training.evaluation import validation_split
from chargpt.training.learning_rate import never_falls
from chargpt.training.trainer import NotFinite

# Nats from the training loss up to the validation loss: a larger difference is told.
FAR = 0.5
# Nats: a loss below this is printed as 0.00, and the text repeats itself.
NOTHING = 0.005
# Nats above the best validation loss: more than the noise of an evaluation.
RISEN = 0.02
# Characters of a text below which a start gives a lower loss than a training from scratch.
SHORT = 300_000
# Characters of each split that a start needs: more than its context.
SHORTEST_SPLIT = 257
# Minutes that are named for a better model.
MINUTES = 10


def conclude(session: Session, interrupt: Interrupt) -> int:
    """Tell how the training of a model ended; of the last one, write the report, and say what to type next.

    Returns the exit code of the program if nothing follows: that of a signal, unless it comes only now, or 0.
    """
    trainer, run = session.trainer, session.run
    progress, train = trainer.progress, trainer.config.train
    if run is None:
        return interrupt.exit_code
    for problem in run.take_place():  # on Windows, where it waits until nothing is open
        notice("warning", problem)
    screen().saved(run.folder)
    name = run.name(session.checkpoints)
    if interrupt.agreed:
        again = resuming(name, verb="train")
        which = "".join(f" of {name}" for name in [name_of_stage(trainer.config, session.stage)] if name)
        if session.page.is_written:
            session.write_page(run, is_training=False)
        notice("stopped", Message(f"at step {progress.step:,}{which}, saved; continue with: ", again))
        return interrupt.exit_code
    is_last = session.stage > train.teachers
    shows = train.sample_length > 0 and is_last
    if shows:
        screen().lines(f"\n{escape_controls(up_to_a_word(best_sample(session, interrupt))).strip()}\n")
    which = ", whose sample is above" if shows and progress.best_step != progress.step else ""
    notice("done", f"{reached(session)}{which}{why_early(progress, trainer.config)}")
    if not is_last:
        return 0
    if progress.val_loss is not None:
        happened = what_happened(progress, trainer.config, ngram_loss=session.corpus.facts.ngram_loss)
        memory = "; lines repeat, so the loss also measures memory" * len(about_repeats(session.corpus))
        notice("result", f"{happened}{memory}")
    if better := better_way(session.options, trainer.config, session.corpus, progress):
        notice("better", better)
    if not interrupt.came_here:
        device, sample = str(trainer.runtime.device), Message(Command("sample", name))
        ends = screen().spelled(Message("stopped while the report was written: the run is complete; write text with: ", sample))
        notice(*write_final_report(run.folder, session.corpus, device=device, if_stopped=ends))
        session.page.open(run)
    notice("sample", Message(Command("sample", name)))
    return 0


def reached(session: Session) -> str:
    """The losses of a model that has ended, in nats per character."""
    progress, config = session.trainer.progress, session.trainer.config
    if progress.val_loss is None:
        learned = "" if progress.train_loss is None else f"; training loss {progress.train_loss:.4f}"
        return f"{progress.step:,} steps on all of the text, without a validation loss{learned}"
    bits, per_item = progress.val_loss / math.log(2), ""
    if session.corpus.marks is not None:
        split = validation_split(session.corpus.val, config.train.eval_chars)
        if characters := session.corpus.marks.characters_per_item(split):
            per_item = f", {bits * characters:.2f} per item"
    loss = f"validation loss {progress.val_loss:.4f} ({bits:.4f} bits per character{per_item})"
    return f"{loss}, {best_of(progress, config)}"


def give_up(session: Session, problem: NotFinite) -> int:
    """Tell what is saved of a run that ends with a step that was not finite, and what to do."""
    if session.run is not None:
        name = session.run.name(session.checkpoints)
        what_to_do = after_divergence(session.run.checkpoint, session.trainer.config, name=name)
        screen().error(Message(f"{problem}; ", what_to_do))
    return 3


def best_sample(session: Session, interrupt: Interrupt) -> str:
    """The sample of the best checkpoint; if none was kept, it is written now."""
    assert session.run is not None
    progress, device = session.trainer.progress, session.trainer.runtime.device
    if progress.best_sample:
        return progress.best_sample
    if progress.best_step == progress.step:
        return session.writer.write(session.trainer.model, interrupt)
    model, _, _ = restore_model(best(session.run.place)[0])
    return session.writer.write(model.to(device), interrupt)


def best_of(progress: Progress, config: Config) -> str:
    """The loss of the best checkpoint, and the lowest loss if that is another one, for a message."""
    best_loss, lowest_loss = _losses(progress)[1], progress.lowest_loss
    best = f"best {best_loss:.4f} at step {progress.best_step:,}"
    if lowest_loss is None or f"{lowest_loss:.4f}" == f"{best_loss:.4f}":
        return best
    why = "but checkpoint.best is last" if config.checkpoint.best == "last" else "before checkpoint.best was changed"
    return f"{best}; an earlier one had {lowest_loss:.4f}, {why}"


def why_early(progress: Progress, config: Config) -> str:
    """Why the run ended before its last step; empty if it did not."""
    if progress.step >= config.train.max_steps:
        return ""
    since = "" if never_falls(config.optim, max_steps=config.train.max_steps) else " while the learning rate fell"
    evaluations = plural(config.train.patience, "evaluation")
    return f"; ended at step {progress.step:,}, since {evaluations} brought no better loss{since}"


def better_way(options: TrainOptions, config: Config, corpus: Corpus, progress: Progress) -> Message | None:
    """What gives a better model of this text, if the user has left the model and its training to the program; else None.

    `progress` is what the run has reached.
    """
    decides = options.settings.keys() & {"model", "optim", "train"}
    if decides or options.config is not None or options.resume or config.train.start:
        return None
    if progress.val_loss is not None and _nothing_to_learn(progress, corpus.facts.ngram_loss):
        return None
    has_letters = corpus.tokenizer.characters is not None and not config.data.max_vocab
    is_short = corpus.characters < SHORT and min(len(corpus.train), len(corpus.val)) >= SHORTEST_SPLIT
    if is_short and has_letters and corpus.items is None and (starts := start_names()):
        first, *others = starts
        start = Option("start", first)
        return Message(
            "a short text learns more from a start: add ", start, f" (or {', '.join(others)}) and ", Option("run", "NAME")
        )
    if options.minutes is None and options.epochs is None:
        more = (Option("minutes", MINUTES), " and ", Option("run", "NAME"))
        return Message("for a better model, run the same command with ", *more)
    return None


def what_happened(progress: Progress, config: Config, *, ngram_loss: float) -> str:
    """What a run that has ended has reached, beside an n-gram model. All losses are in nats per character."""
    if _nothing_to_learn(progress, ngram_loss):
        return "there is nothing to learn from this text: each character follows from those before it"
    val_loss, best_loss = _losses(progress)
    compared = f"its loss is {ngram_loss:.2f}, that of this run {best_loss:.2f}"
    if progress.best_step == 0 < progress.step:
        if config.train.start:
            return f"training did not improve the model; samples use the weights of the start, whose loss is {best_loss:.2f}"
        return "the loss only rose: try a lower optim.learning_rate"
    if best_loss > ngram_loss:
        return f"no better than an n-gram model: {compared}"
    if not overfits(progress):
        return f"better than an n-gram model: {compared}"
    best = f"its best checkpoint, of step {progress.best_step:,}"
    losses, used = f"validation loss {val_loss:.2f}", ""
    if _has_risen(progress):
        losses, used = f"validation loss {best_loss:.2f} at best and {val_loss:.2f} at the end", f"; samples use {best}"
    if progress.train_loss is not None:
        losses += f", training loss {progress.train_loss:.2f}"
    return f"the model knows its training text better than new text: {losses}{used}"


def _nothing_to_learn(progress: Progress, ngram_loss: float) -> bool:
    return ngram_loss < NOTHING and _losses(progress)[1] < NOTHING


def overfits(progress: Progress) -> bool:
    """Whether the model predicts its training text much better than other text."""
    has_risen = _has_risen(progress)
    if progress.train_loss is None:
        return has_risen
    return _losses(progress)[0] - progress.train_loss > (0 if has_risen else FAR)


def _has_risen(progress: Progress) -> bool:
    val_loss, best_loss = _losses(progress)
    return val_loss > best_loss + RISEN


def _losses(progress: Progress) -> tuple[float, float]:
    """The last validation loss and the best one of a run that has been evaluated."""
    assert progress.val_loss is not None and progress.best_loss is not None
    return progress.val_loss, progress.best_loss


def after_divergence(checkpoint: Path | None, config: Config, *, name: str) -> Message:
    """What is saved of the run `name` after a step that was not finite, and what to do. `checkpoint` is its last one.

    What has been damaged since it was saved is not named.
    """
    if checkpoint is None:
        what = "nothing is saved yet; start again with "
        return Message(what, Option("runtime.precision", "float32"), ", or without ", Option("init_from"))
    other: list[Words] = [", or with ", Option("train.on_nonfinite", "rollback")] if config.train.on_nonfinite == "stop" else []
    try:
        good = newest(checkpoint.parent)[0].path
    except CheckpointError as problem:
        what = f"this step was not saved, and nothing of the run can be read ({problem}); start again with "
        return Message(what, Option("run", "NAME"))
    what = f"this step was not saved. The last good checkpoint is {shown(good)}; continue from it with "
    return Message(what, resuming(name), " and a lower optim.learning_rate", *other)
