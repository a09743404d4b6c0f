"""Train a character-level GPT: text in, run out.

The story: options -> plan -> session. A session is one model of a run in training. Its loop: evaluate and save when that is
due, stop when all steps are taken, when the loss gets no better or a signal came, take a step, record it. The speed is told
when it is known. With a time limit, the number of steps is then fitted to it: again and again halfway through the rest, and
when the speed changes. A run has one model, unless that begins to memorise its text: then others may follow in the same run,
each in a session of its own, and the last one learns from all before it. When it has ended, the result is told.
"""

if __name__ == "__main__":  # checks the options, unless torchrun is used; imports this file, runs main() and exits
    from chargpt.launch import launch

    launch("train", options="chargpt.planning.ahead", trains=True)

import time
from collections.abc import Sequence
from pathlib import Path

from chargpt.errors import NotFinite
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind
from chargpt.planning.cli import TrainOptions, is_one_of_several, parse_options, parse_sweep
from chargpt.planning.plan import Opening, make_plan
from chargpt.program import best_effort_output
from chargpt.project import project_root
from chargpt.screen import notice
from chargpt.session.opening import open_plan
from chargpt.session.result import conclude, give_up
from chargpt.session.session import Session
from chargpt.training.group import Group
from chargpt.training.join import join_group


def main(asked: Sequence[str] | TrainOptions | None = None, *, started: float | None = None) -> int:
    """Train as `asked`: options that are read, or words (default: those of the command line), which may ask for several runs.

    The time of a run began when it `started`, on time.perf_counter; None: now.

    Returns the exit code: 0, 3 after a step that was not finite, or that of a signal, such as 130. Raises UserError, code 2.
    """
    if is_one_of_several():  # the first one reads the options, for one run
        return train_run(asked, started=started)
    runs, codes = parse_sweep(asked), list[int]()
    for number, options in enumerate(runs, start=1):
        if len(runs) > 1:
            notice(Kind.SWEEP, f"run {number} of {len(runs)}: {options.run}")
        codes.append(train_run(options, started=started if number == 1 else None))
        if codes[-1] > 128:  # a signal; a run that is lost does not hold up the others
            break
    return max(codes)


def train_run(asked: Sequence[str] | TrainOptions | None, *, started: float | None) -> int:
    """Train one run; see `main`."""
    started = time.perf_counter() if started is None else started
    with join_group() as group:  # of the processes that torchrun started, or of this one alone
        # The others get what the first one decides.
        options = parse_options(asked) if group.is_first else TrainOptions()
        root = project_root()
        if options.continue_:
            from chargpt.session.resuming import continued

            if (due := continued(options, root=root)) is None:
                return 0
            options = due
        if options.dry_run:  # as in `planned`; writes nothing but the cache of the text
            print(make_plan(options, root=root, group=group, started=started).describe())
            return 0
        if options.find_lr:
            from chargpt.session.rate_finder import find_learning_rate

            return find_learning_rate(options, root=root)
        with best_effort_output():  # from here on, a reader that leaves does not end the training
            opening = planned(options, root=root, group=group, started=started)
            with group.interrupt as interrupt:  # from here on, Ctrl-C saves first
                session: Session | None = open_session(opening, options, root=root, group=group)
                while session is not None:
                    code = train(session, interrupt)
                    session = session.next_stage() if code == 0 else None
            return code


def planned(options: TrainOptions, *, root: Path, group: Group, started: float) -> Opening | None:
    """A new run, which has no folder yet, or one that continues. The first of several processes decides. Raises UserError."""
    if group.is_first and (options.resume or group.restarted_after_save):  # in the latter case by torchrun
        from chargpt.session.resuming import open_saved

        return open_saved(options, root=root, group=group, started=started)
    # Encodes the text; chooses settings.
    return make_plan(options, root=root, group=group, started=started) if group.is_first else None


def open_session(opening: Opening | None, options: TrainOptions, *, root: Path, group: Group) -> Session:
    """The first session of what was `planned`. Raises UserError."""
    if opening is not None and opening.run is None:
        opening = open_plan(opening, options, checkpoints=root / "checkpoints")
    return Session(opening, options, root=root, group=group)


def train(session: Session, interrupt: Interrupt) -> int:
    """Train one model, and tell how it ended. Returns the exit code, 0 if another model may follow.

    If numbers are not finite, the code is 3; with train.on_nonfinite=rollback, it goes back to a checkpoint first,
    three times at most.
    """
    runtime = session.trainer.runtime
    with runtime.applied():  # also for the best sample and the report
        session.describe_run()  # prints, and writes config.yaml; of a new run, details.txt too
        while True:
            try:
                take_steps(session, interrupt)
                break
            except NotFinite as problem:
                if not session.can_roll_back:
                    return give_up(session, problem)
                session.roll_back(problem)
        session.trainer.release()
        return conclude(session, interrupt)


def take_steps(session: Session, interrupt: Interrupt) -> None:
    """The loop, until the run is finished or a signal came. A step, an evaluation and a save may raise NotFinite."""
    with session.recording() as watch:
        while True:
            if session.due(interrupt).decide_on_teachers:  # once, before the rate falls
                with watch.paused():
                    session.decide_on_teachers(interrupt)  # a run of one model gets the time of all
            due = session.due(interrupt)
            with watch.paused(evaluates=due.evaluate):
                if due.evaluate:
                    session.evaluate(interrupt)
                due = session.due(interrupt)  # a lower loss, or a signal, makes a save due
                if due.save:
                    session.save()
            if session.trainer.is_finished or due.is_stopping:  # after a signal during the save, one more step is saved
                return
            session.advance()
            if session.due(interrupt).record:
                session.record(session.trainer.report())
            if session.due(interrupt).sample:
                with watch.paused():
                    session.write_sample()  # early ones, so that one sees letters become words
            if session.is_speed_due:
                with watch.paused():
                    session.measure_speed(interrupt)  # with a time limit, it fits the length to it, and saves
