"""Says what will be trained, before the first step."""

from chargpt.planning.forecast import describe_training
from chargpt.runs.run import DETAILS
from chargpt.session.notices import Notices
from chargpt.session.processes import Training
from chargpt.terminal import shown


def print_choices(training: Training, notices: Notices) -> None:
    """Say what will be trained, and unless the training is finished, how long it takes. A new run keeps it in details.txt."""
    trainer, corpus, run, seconds = training
    for notice in describe_training(trainer, corpus, seconds=seconds):
        notices.add(notice)
    notices.release()
    curves = f"python -m tensorboard.main --logdir {shown(run.folder.parent)}"
    notices.detail("run", f"{shown(run.folder)}   (curves: {curves})")
    for problem in (run.write_config(trainer.config), run.write_details(notices.lines) if run.saved is None else None):
        if problem:
            notices.say("warning", problem)
    every_choice = f"{DETAILS} there" if run.saved is None else "--verbose"
    notices.summary("run", f"{shown(run.folder)}   (every choice: {every_choice}; curves: {curves})")
