"""Train a character-level GPT: text in, run out.

The story: options -> plan -> session. A session is one run in training. Its loop: evaluate and save when that is due, stop
when the run is finished (all steps, or no better loss for a while) or a signal came, take a step, record it. The speed is told
when it is known. With a time limit, the length of the run is then fitted to it: again and again halfway through the rest, and
when the speed changes. When the run has ended, its result is told. If it memorised its text, others like it may follow, and
then a student that learns from them: the next sessions.
"""

if __name__ == "__main__":  # checks the options, unless torchrun is used; imports this file, runs main() and exits
    from chargpt.launch import launch

    launch("train", options="chargpt.planning.cli", trains=True)

import time
from pathlib import Path

from chargpt.interrupt import Interrupt
from chargpt.planning.cli import TrainOptions, parse_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root
from chargpt.session.result import Result, conclude, give_up
from chargpt.session.session import Session
from chargpt.terminal import best_effort_output
from chargpt.training.parallel import Group, join_group
from chargpt.training.thread_spinning import ThreadSpinning
from chargpt.training.trainer import NotFinite


def main(argv: list[str] | None = None) -> int:
    """Train as the options in `argv` (default: the command line) say.

    Returns the exit code: 0, 3 after a step that was not finite, or that of a signal, such as 130. Raises UserError, code 2.
    """
    started, root = time.perf_counter(), project_root()
    with join_group() as group:  # of the processes that torchrun started, or of this one alone
        options = parse_options(argv) if group.is_first else TrainOptions()  # the others get what the first one decides
        if options.dry_run:  # as in `open_session`; writes nothing but the cache of the text
            print(make_plan(options, root=root, processes=group.size).describe())
            return 0
        if options.find_lr:
            from chargpt.session.rate_finder import find_learning_rate

            return find_learning_rate(options, root=root)
        with best_effort_output():  # from here on, a reader that leaves does not end the training
            session: Session | None = open_session(options, root=root, group=group, started=started)
            with group.interrupt as interrupt:  # from here on, Ctrl-C saves first
                while session is not None:
                    result = train(session, interrupt)
                    session = session.next() if result.may_go_on else None  # another teacher or the student, with what is left
            return result.code


def open_session(options: TrainOptions, *, root: Path, group: Group, started: float) -> Session:
    """A new run, or one that continues. The first of several processes decides. Raises UserError."""
    if not group.is_first:
        return Session.join(root=root, group=group, started=started)
    if group.restarted_after_save:  # torchrun has started the processes again: go on from the checkpoint
        from chargpt.session.resumed import options_of_restart

        options = options_of_restart(options, root=root)
    if options.resume:
        from chargpt.session.resumed import read_resumed

        return Session.resume(read_resumed(options, root=root), options, root=root, group=group, started=started)
    plan = make_plan(options, root=root, processes=group.size)  # encodes the text; times some steps to choose settings
    return Session.create(plan, options, root=root, group=group, started=started)


def train(session: Session, interrupt: Interrupt) -> Result:
    """Train one run, and tell how it ended.

    If numbers are not finite, the run ends with code 3; with train.on_nonfinite=rollback, it goes back to a checkpoint first,
    three times at most.
    """
    runtime = session.trainer.runtime
    with runtime.applied():  # also for the best sample and the report
        session.describe_run()  # times some steps, prints, and writes config.yaml; of a new run, details.txt too
        with ThreadSpinning(runtime) as spinning:  # threads spin while the machine is idle, and sleep while it is busy
            while True:
                try:
                    take_steps(session, interrupt, spinning)
                    break
                except NotFinite as problem:
                    if not session.can_roll_back:
                        return give_up(session, problem)
                    session.roll_back(problem)
            session.trainer.release()
            session.rename_to_teacher(interrupt)  # if a student follows, NAME becomes NAME-teacher
            return conclude(session, interrupt)


def take_steps(session: Session, interrupt: Interrupt, spinning: ThreadSpinning) -> None:
    """The loop, until the run is finished or a signal came. A step, an evaluation and a save may raise NotFinite."""
    with session.recording() as clock:
        while True:
            if session.due(interrupt).decide_on_student:  # once, before the rate falls
                with clock.paused():
                    session.decide_on_student(interrupt)  # a run without one gets the time of both
            due = session.due(interrupt)
            with clock.paused(evaluates=due.evaluate):
                if due.evaluate:
                    session.evaluate(interrupt)
                due = session.due(interrupt)  # a lower loss, or a signal, makes a save due
                if due.save:
                    session.save()
            if session.trainer.is_finished or due.is_stopping:  # after a signal during the save, one more step is saved
                return
            with spinning.watch():
                session.trainer.advance()
            session.trainer.progress.seconds += clock.step_done()
            session.journal.advance_bar()
            if session.due(interrupt).record:
                session.record(session.trainer.report())
            if session.due(interrupt).measure_speed:
                with clock.paused():
                    session.measure_speed(interrupt)  # with a time limit, it fits the length to it, and saves
