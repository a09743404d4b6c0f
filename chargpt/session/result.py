"""How a run ended: the code of the program, what the user is told, and what to type next."""

import math

from chargpt.errors import Command, Message, NotFinite, Option, Words, join, resuming
from chargpt.formatting import escape_controls, plural, up_to_a_word
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind
from chargpt.planning.budget import longest_run
from chargpt.planning.cli import TrainOptions
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.metrics import KNOWN, NEW, read_metrics
from chargpt.runs.run import Run
from chargpt.runs.stage import Progress, Start
from chargpt.screen import notice, screen
from chargpt.session.session import Session
from chargpt.text.corpus import Corpus
from chargpt.text.examination import REPEATS
from chargpt.text.facts import NGRAM_MODEL
from chargpt.training.evaluation import bits_per_item

FAR = 0.5  # nats from the training loss up to the validation loss: a larger difference is told
NOTHING = 0.005  # nats: a loss below this is printed as 0.00, and the text repeats itself
# Nats above the best validation loss: more than the noise of an evaluation. Any difference from the training loss is then told.
RISEN = 0.02
MINUTES = 10  # minutes that are named for a better model


def conclude(session: Session, interrupt: Interrupt) -> int:
    """Tell how a model ended, and of the last one what to type next. Returns the exit code: that of a signal before, or 0."""
    trainer, run = session.trainer, session.run
    if run is None:
        return interrupt.exit_code
    has_learned = trainer.progress.evaluated or trainer.is_finished
    for problem in run.take_place() if has_learned else ():  # done before with an evaluation, but on Windows
        notice(Kind.WARNING, problem)
    screen().saved(run.folder)
    if not interrupt.agreed:
        _tell_end(session)
        if session.stage.is_last:
            _tell_result(session, run, interrupt)
        return 0
    model = session.stage.name
    where = f"at step {trainer.progress.step:,}{' of ' * bool(model)}{model}"
    notice(Kind.STOPPED, Message(f"{where}, saved; continue with: ", resuming(run.name(session.checkpoints), verb="train")))
    return interrupt.exit_code


def _tell_end(session: Session) -> None:
    """Show the best sample of the last model; say what loss a model has reached, and if it ended early."""
    progress, which, early = session.trainer.progress, "", ""
    if session.stage.is_last and progress.best_sample:
        screen().lines(f"\n{escape_controls(up_to_a_word(progress.best_sample)).strip()}\n")
        which = " (its sample is above)" if progress.best_step != progress.step else ""
    if progress.step < session.trainer.length.steps:
        evaluations = plural(session.trainer.config.train.patience, "evaluation")
        early = f"; ended early, at step {progress.step:,}, since the loss was no lower in {evaluations}"
    notice(Kind.DONE, f"{reached(session)}{which}{early}")


def _tell_result(session: Session, run: Run, interrupt: Interrupt) -> None:
    """Say how good the last model is, and what gives a better one; write the report, unless a signal came before."""
    progress, corpus = session.trainer.progress, session.corpus
    if progress.val_loss is not None:
        happened = what_happened(progress, start=session.stage.start, ngram_loss=corpus.facts.ngram_loss)
        memory = "; the text repeats lines, so a low loss is partly memory" * bool(REPEATS.find(corpus))
        notice(Kind.RESULT, f"{happened}{memory}")
    if grown := on_parts(session, run):
        notice(Kind.GROWN, grown)
    if better := better_way(session.options, session.state(), corpus):
        notice(Kind.BETTER, better)
    sample = Message(Command("sample", run.name(session.checkpoints)))
    if session.follower is not None:
        said = session.follower.finish(left=-math.inf if interrupt.came_here else session.budget.left)
        notice(said.kind, said.text)
    notice(Kind.SAMPLE, sample)


def give_up(session: Session, problem: NotFinite) -> int:
    """Tell what is saved of a run that ends with a step that was not finite, and what to do."""
    if (run := session.run) is None:
        return 3
    others: list[Words] = ["a lower optim.learning_rate"]
    if session.trainer.environment["precision"] != "float32":
        others.append(Option("runtime.precision", "float32"))
    what: list[Words] = ["nothing is saved yet; start again with "]
    if run.checkpoint is not None:
        last = f"this step was not saved; continue from the last checkpoint, {run.checkpoint.name}, with "
        what = [last, resuming(run.name(session.checkpoints)), " and "]
        if session.trainer.config.train.on_nonfinite == "stop":
            others.append(Option("train.on_nonfinite", "rollback"))
    screen().error(NotFinite("training failed at ", problem, "; ", *what, join(", or with ", others)))
    return 3


def reached(session: Session) -> str:
    """The losses of a model that has ended, in nats per character."""
    progress, train = session.trainer.progress, session.trainer.config.train
    if progress.val_loss is None:
        learned = "" if progress.train_loss is None else f"; training loss {progress.train_loss:.4f}"
        return f"{progress.step:,} steps on all of the text, without a validation loss{learned}"
    item = bits_per_item(progress.val_loss, session.corpus.val, train.eval_chars, session.corpus.marks)
    bits = f"{progress.val_loss / math.log(2):.4f} bits per character" + (f", {item:.2f} per item" if item else "")
    best = "" if progress.best_step == progress.step else f"; lowest {progress.best_loss:.4f}, at step {progress.best_step:,}"
    return f"validation loss {progress.val_loss:.4f} ({bits}){best}"


def on_parts(session: Session, run: Run) -> str:
    """The losses on both parts of a text that has grown, before the training and of its best model; empty for other texts."""
    session.journal.flush()
    curves, best, said = read_metrics(run.folder)[-1].curves, session.trainer.progress.best_step, []
    for name, where in ((KNOWN, f"on what {session.stage.start} holds out"), (NEW, "on the new text")):
        losses = dict(curves.get(name, ()))
        if best is not None and {0, best} <= losses.keys():
            said.append(f"{where} {losses[0]:.3f} before, {losses[best]:.3f} now")
    return "; ".join(said)


def what_happened(progress: Progress, *, start: Start | None, ngram_loss: float) -> str:
    """What a run that has ended has reached, beside an n-gram model. All losses are in nats per character."""
    val_loss, best_loss, train_loss = progress.val_loss, progress.best_loss, progress.train_loss
    assert val_loss is not None and best_loss is not None
    if max(ngram_loss, best_loss) < NOTHING:
        return "there is nothing to learn from this text: each character follows from those before it"
    if progress.best_step == 0 < progress.step:
        if start is not None:
            return f"training did not improve the model; samples use the weights of the start, whose loss is {best_loss:.2f}"
        return "the loss only rose: try a lower optim.learning_rate"
    better = "worse" if best_loss > ngram_loss else "better"
    compared = f"{better} than {NGRAM_MODEL}: your model has a loss of {best_loss:.2f}, the n-gram model {ngram_loss:.2f}"
    if train_loss is None or val_loss - train_loss <= (0 if val_loss > best_loss + RISEN else FAR):
        return compared
    return f"{compared}; your model knows its training text better ({train_loss:.2f} there, {val_loss:.2f} on new text)"


def better_way(options: TrainOptions, state: SavedState, corpus: Corpus) -> Message | None:
    """What gives a better model of this text than this `state`, if the program has decided on the training; else None."""
    decides = options.settings.keys() & {"model", "optim", "train"} or options.config is not None
    has_nothing = max(corpus.facts.ngram_loss, state.progress.best_loss or 0.0) < NOTHING
    steps, longest = state.stage.length.steps, longest_run(state.config, characters=len(corpus.train))
    has_read_enough = state.stage.start is not None and (steps >= longest or state.progress.step < steps)
    if decides or options.resume or options.minutes or options.epochs or has_read_enough or has_nothing:
        return None
    return Message("for a better model, run the same command with ", Option("minutes", MINUTES), " and ", Option("run", "NAME"))
