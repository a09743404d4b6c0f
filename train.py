"""Train a character-level GPT: text in, run out.

The steps: read the options; begin a run, or continue one; step, log, evaluate and save until the run is finished or a signal
comes; say how it ended. Everything that this file calls is in chargpt/.
"""

if __name__ == "__main__":  # checks the options, imports this file as a module, runs its main() and exits
    import _signal  # needs no file

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `launch` sets a handler, Ctrl-C is no traceback
    from chargpt.launch import launch

    launch("train", options="chargpt.planning.cli")

import math
import sys
import time

from chargpt.analysis.metrics_log import extra_metrics, read_metrics
from chargpt.interrupt import Interrupt
from chargpt.pages.final_report import write_final_report
from chargpt.parallel.processes import join_group
from chargpt.planning.advice import better_training
from chargpt.planning.cli import parse_options
from chargpt.planning.clock import TimeBudget, longest_run
from chargpt.planning.forecast import outlook
from chargpt.planning.plan import make_plan
from chargpt.project import project_root
from chargpt.runs.run import Run
from chargpt.runs.saved_state import SavedState
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.session.choices import print_choices
from chargpt.session.monitor import Monitor, open_monitor
from chargpt.session.notices import Notices
from chargpt.session.processes import Training, check_options
from chargpt.session.second_run import decided, describe, is_time_to_decide, is_undecided, measure
from chargpt.session.start import become_teacher, begin, pupil_of, roll_back
from chargpt.session.verdict import after_divergence, began_trained, is_memorised, next_command, verdict
from chargpt.terminal import best_effort_output, clock, escape_controls, one_line, say, shown, wrapped
from chargpt.text.corpus import Corpus
from chargpt.text.report import mark_to_beat
from chargpt.training.evaluation import evaluate, validation_part
from chargpt.training.thread_waiting import ThreadWaiting
from chargpt.training.trainer import NotFinite, Trainer

MAX_ROLLBACKS = 3


def main(argv: list[str] | None = None) -> int:
    started, root = time.perf_counter(), project_root()
    with join_group() as group:
        options = parse_options(argv)
        check_options(options, group)
        if options.dry_run:
            print(make_plan(options, root=root).describe())
            return 0
        if options.find_lr:
            from chargpt.session.rate_finder import find_learning_rate  # and what draws its curve

            return find_learning_rate(options, root=root)
        with best_effort_output():  # from here on, a reader that leaves does not end the training
            notices = Notices(verbose=options.verbose)
            training = begin(options, root=root, group=group, notices=notices)
            with group.interrupt() as interrupt:
                deadline = None if training.seconds is None else started + training.seconds
                code = describe_and_train(training, interrupt, notices, deadline=deadline)
                if code or not (pupil := pupil_of(training)):
                    return code
                deadline, notices = (deadline or time.perf_counter()) + pupil.seconds, Notices(verbose=options.verbose)
                return describe_and_train(pupil, interrupt, notices, deadline=deadline)


def describe_and_train(training: Training, interrupt: Interrupt, notices: Notices, *, deadline: float | None) -> int:
    """Say what was chosen, and train. Returns the exit code."""
    print_choices(training, notices)
    return train_to_the_end(training, interrupt, deadline=deadline)


def train_to_the_end(training: Training, interrupt: Interrupt, *, deadline: float | None) -> int:
    """Train, say how it ended, and return the exit code. A step that is not finite ends the run or rolls it back."""
    trainer, corpus, run, _ = training
    least = trainer.config.train.min_evaluations
    writer = SampleWriter(
        corpus.tokenizer,
        trainer.config.model,
        device=trainer.runtime.device,
        length=trainer.config.train.sample_length if trainer.group.is_first else 0,
        seed=trainer.config.train.seed,
    )
    with ThreadWaiting(trainer.runtime) as waiting:  # also for the last sample and the report
        while True:
            steps_left = trainer.config.train.max_steps - trainer.progress.step
            budget = TimeBudget(steps_left=steps_left, deadline=deadline, min_evaluations=least)
            try:
                monitor = train(training, interrupt, waiting, writer, budget)
                if not trainer.group.is_first:
                    return interrupt.exit_code
                if trainer.config.train.pupil_minutes and not interrupt():
                    become_teacher(training)
                return conclude(training, interrupt, monitor, writer)
            except NotFinite as problem:
                give_up = trainer.config.train.on_nonfinite == "stop" or len(trainer.progress.skipped) >= MAX_ROLLBACKS
                if give_up or run.checkpoint is None:
                    if not trainer.group.is_first:
                        return 3
                    advice = after_divergence(run.checkpoint, trainer.config, name=run.name(project_root() / "checkpoints"))
                    print(wrapped(f"error: {one_line(problem)}; {one_line(advice)}", sys.stderr), file=sys.stderr)
                    return 3
                roll_back(trainer, run, without=problem.step)
                deadline = budget.deadline
                say("rollback", f"{problem}; back to {shown(run.checkpoint)}, at half the rate and without that batch")


def train(
    training: Training, interrupt: Interrupt, waiting: ThreadWaiting, writer: SampleWriter, budget: TimeBudget
) -> Monitor:
    """The loop: evaluate and save when due, stop when finished, step, report. Returns what has recorded it."""
    trainer, corpus, run, _ = training
    progress, log_interval = trainer.progress, trainer.config.train.log_interval
    with open_monitor(trainer, run) as monitor:
        while True:
            if is_time_to_decide(trainer):
                with budget.outside_steps(comes_once=True):
                    decide_on_second_run(training, interrupt, monitor, budget)
            with budget.outside_steps():
                if should_evaluate(trainer):
                    evaluate_and_sample(trainer, corpus, monitor, interrupt, writer)
                if should_save(trainer, run, interrupt):
                    save(trainer, corpus, run, monitor, budget)
            if trainer.is_finished or interrupt():
                return monitor
            with waiting.watch():
                step = trainer.step()
            budget.step_done()
            monitor.step_done()
            if progress.step % log_interval == 0 and progress.loss_count:
                speed = budget.steps_per_second() * trainer.config.chars_per_step
                monitor.log_training(progress.step, progress.take_mean_loss(), step, chars_per_second=speed)
                if slower := budget.slowdown():
                    monitor.say("slow", slower)
            due = budget.is_due(progress.step)
            if due if budget.deadline is None else trainer.group.from_first([due])[0]:  # with a deadline, one clock decides
                with budget.outside_steps():
                    plan_length(trainer, corpus, run, monitor, budget)


def should_evaluate(trainer: Trainer) -> bool:
    progress, interval = trainer.progress, trainer.config.steps_between_evaluations
    due = trainer.is_finished or progress.evaluated is None or progress.step - progress.evaluated >= interval
    return due and progress.evaluated != progress.step


def evaluate_and_sample(trainer: Trainer, corpus: Corpus, monitor: Monitor, interrupt: Interrupt, writer: SampleWriter) -> None:
    """The loss over the validation part, and a sample; a signal that comes meanwhile discards both."""
    progress = trainer.progress
    part = validation_part(corpus.val, trainer.config.train.eval_chars)
    loss = evaluate(trainer.weights.working, part, interrupt=interrupt, group=trainer.group)
    if loss is None:
        return
    if not math.isfinite(loss):
        raise NotFinite(f"the validation loss after it is {loss}", step=progress.step - 1)
    model, is_first = trainer.whole_model(), trainer.group.is_first
    sample = writer.write(model, interrupt) if is_first else ""
    trainer.group.exchange()  # a signal may have come
    if not interrupt():
        trainer.record_evaluation(loss)
        seen = extra_metrics(trainer.weights.working, corpus, trainer.config.train, sample=sample) if is_first else {}
        monitor.log_evaluation(progress.step, loss, best=progress.best_loss, sample=sample, seen=seen)


def should_save(trainer: Trainer, run: Run, interrupt: Interrupt) -> bool:
    progress, saved = trainer.progress, run.saved
    if saved and (saved.progress, saved.config) == (progress, trainer.config):
        return False
    is_best = progress.best_step == progress.step
    outdated = saved is not None and saved.progress.step == progress.step  # by an evaluation or a change of settings
    planned = progress.evaluated == progress.step and trainer.config.train.min_evaluations > 0
    is_changed = saved is not None and saved.config != trainer.config
    is_due = planned or is_changed or progress.step % trainer.config.checkpoint.interval == 0
    return is_best or outdated or is_due or trainer.is_finished or interrupt()


def save(trainer: Trainer, corpus: Corpus, run: Run, monitor: Monitor, budget: TimeBudget) -> None:
    """Publish a checkpoint of finite weights, after everything logged so far is on disk."""
    trainer.check_weights()
    monitor.flush()
    weights, optimizer, progress = trainer.state()
    state = SavedState(
        config=trainer.config,
        tokenizer=corpus.tokenizer,
        texts=corpus.texts,
        fingerprint=corpus.fingerprint,
        progress=progress,
        environment=trainer.environment,
        seconds_left=budget.seconds_left(is_undecided=is_undecided(trainer.config)),
    )
    for problem in run.save(state, weights=weights, training=optimizer):
        monitor.say("warning", problem)
    if run.saved_again:
        monitor.say("saved", f"{run.checkpoint.name}, since step {progress.step:,} was saved before")


def decide_on_second_run(training: Training, interrupt: Interrupt, monitor: Monitor, budget: TimeBudget) -> None:
    """Measure whether the model memorises its text. If not, there is no second run, and this one gets the rest of the time."""
    trainer, corpus, run, _ = training
    losses, before = measure(trainer, corpus, interrupt), trainer.config
    if losses is None:  # a signal came; a resumed run decides
        return
    trainer.config = decided(losses, before)
    monitor.say(*describe(losses, before))
    if budget.deadline is not None and not trainer.config.train.pupil_minutes:
        budget.deadline += 60 * before.train.pupil_minutes
        if not budget.is_first:
            plan_length(trainer, corpus, run, monitor, budget)


def plan_length(trainer: Trainer, corpus: Corpus, run: Run, monitor: Monitor, budget: TimeBudget) -> None:
    """The speed is known: fit the run to its time, if that is limited, and say how long it takes and what to expect."""
    is_first, step, before = budget.is_first, trainer.progress.step, trainer.config
    budget.measure()
    if budget.deadline is not None:
        longest = longest_run(before, characters=len(corpus.train))
        fits = budget.length_that_fits(step, eval_interval=before.train.eval_interval, longest=max(step, longest))
        max_steps, evaluations = map(int, trainer.group.from_first(fits))
        trainer.set_length(max_steps, min_evaluations=evaluations)
        monitor.set_total(trainer.config.train.max_steps)
    max_steps = trainer.config.train.max_steps
    budget.plan(step, max_steps)
    if budget.deadline is not None:
        if not should_evaluate(trainer):  # otherwise it is saved after the evaluation
            save(trainer, corpus, run, monitor, budget)  # from now on a resumed run knows its length
        if problem := run.write_config(trainer.config):
            monitor.say("warning", problem)
    seconds = budget.seconds_for(max_steps - step, eval_interval=trainer.config.steps_between_evaluations)
    monitor.say("pace", f"{1000 * budget.seconds_per_step:.1f} ms a step; {max_steps:,} steps, done in {clock(seconds)}")
    if is_first:
        speed, parameters = trainer.config.chars_per_step / budget.seconds_per_step, trainer.model.parameter_count()
        monitor.say("outlook", outlook(corpus, trainer.config, parameters=parameters, characters_per_second=speed))


def conclude(training: Training, interrupt: Interrupt, monitor: Monitor, writer: SampleWriter) -> int:
    """Say how the run ended, as `monitor` recorded it, and what to type next; returns the exit code."""
    trainer, corpus, run, _ = training
    progress, name = trainer.progress, run.name(project_root() / "checkpoints")
    if interrupt():
        say("stopped", f"at step {progress.step:,}, saved; continue with: python train.py --resume --run {name}")
        return interrupt.exit_code
    if trainer.config.train.sample_length:
        sample = writer.write(trainer.model, interrupt) if monitor.sample is None else monitor.sample
        print(f"\n{escape_controls(sample).strip()}\n")
    if progress.step < trainer.config.train.max_steps:
        patience = trainer.config.train.patience
        again = f"continue with --resume --run {name} train.patience=0"
        say("ended", f"at step {progress.step:,}: no better loss in {patience} evaluations; {again}")
    best = f"best {progress.best_loss:.4f} at step {progress.best_step:,}"
    say("done", f"validation loss {progress.val_loss:.4f} ({progress.val_loss / math.log(2):.4f} bits per character), {best}")
    mark = mark_to_beat(corpus)
    log, train_loss = read_metrics(run.folder), monitor.train_loss
    is_adapted = began_trained(log.curve("val/loss"), vocabulary=corpus.tokenizer.vocab_size)
    command = better_training(
        corpus,
        trainer.config,
        progress,
        seconds=log.training_seconds(trainer.config.chars_per_step),
        is_memorised=is_memorised(progress, train_loss=train_loss),
        is_adapted=is_adapted,
        folder=run.folder,
        checkpoints=project_root() / "checkpoints",
    )
    result = verdict(progress, trainer.config, mark=mark, train_loss=train_loss, is_adapted=is_adapted, command=command)
    say("verdict", result)
    if not interrupt():
        say(*write_final_report(run.folder, corpus, device=str(trainer.runtime.device), ngram_loss=mark))
    say("sample", next_command(trainer.config, name=name, stopped=bool(interrupt())))
    return interrupt.exit_code if trainer.config.train.pupil_minutes else 0  # a signal that comes late ends what follows
