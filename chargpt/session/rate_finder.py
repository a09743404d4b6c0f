"""--find-lr: short trainings at a range of learning rates, a table of their losses, and a suggestion.

Each training starts from the same weights and sees the same batches. Its loss is the mean training loss of its last steps:
text that it has not seen before, unless the text is short. The validation split is not used.
"""

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

from chargpt.errors import NotFinite, UserError
from chargpt.formatting import shown
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind
from chargpt.planning.cli import TrainOptions
from chargpt.planning.plan import Opening, make_plan
from chargpt.screen import notice
from chargpt.session.tensorboard import EventFile
from chargpt.training.trainer import Trainer

STEPS, LAST_STEPS = 200, 20  # of each training, and those whose loss counts
MIN_RATE, FACTOR, MAX_RATES = 1e-4, 2.0, 12  # rates tried: each twice the one before, 1e-4 to 0.2
HOPELESS = 0.3  # nats above the best: higher rates will not be better
STOPPING = "\nstopping\nCtrl-C again stops at once\n"


def find_learning_rate(options: TrainOptions, *, root: Path) -> int:
    """Make the sweep, with its losses in the folder NAME-find-lr for TensorBoard. Returns the exit code. Raises UserError."""
    plan = make_plan(options, root=root)
    for kind, text, _ in plan.notices:
        notice(kind, text)
    assert plan.folder is not None
    folder = plan.folder.with_name(f"{plan.folder.name}-find-lr")
    with plan.runtime.applied(), Interrupt(STOPPING) as interrupt:
        notice(Kind.SWEEP, f"tries rising learning rates, for {STEPS} steps each, until one is clearly too high")
        found, losses = dict[float, float](), dict[float, list[float]]()
        for rate, loss, losses[rate] in try_rates(plan, steps=STEPS, interrupt=interrupt):
            found[rate] = loss
            result = f"loss {loss:.3f}" if loss < math.inf else "training failed"
            notice(Kind.TRIED, f"learning rate {rate:.4f}: {result}")
        best = min(found, key=found.__getitem__, default=math.inf)
        if found.get(best, math.inf) == math.inf:
            if interrupt.came_here:
                return interrupt.exit_code
            what = "training fails at every learning rate, since the loss grows without limit"
            raise UserError(f"--find-lr: {what}; undo an extreme setting, such as a large optim.weight_decay")
        notice(Kind.SUGGESTED, f"optim.learning_rate={best:.4f}")
        for old in folder.glob("rate-*/events.out.tfevents.*"):  # of an earlier sweep
            old.unlink()
        for rate, values in losses.items():
            place = folder / f"rate-{rate:.4f}"
            place.mkdir(parents=True, exist_ok=True)
            events = EventFile(place, purge_step=0)
            with events.file:
                for step, loss in enumerate(values, 1):
                    events.log(step, {"find-lr/loss": loss})
        notice(Kind.CURVES, f"to see the losses of each rate: python -m tensorboard.main --logdir {shown(folder)}")
    return interrupt.exit_code


def try_rates(plan: Opening, *, steps: int, interrupt: Interrupt) -> Iterator[tuple[float, float, list[float]]]:
    """Yield each rate, its loss (infinite if it diverges) and those of its steps, until one is too high or a signal comes."""
    best, corpus, (optim, train) = math.inf, plan.corpus, (plan.config.optim, plan.config.train)
    warmup, decay = min(optim.warmup_steps, steps // 10), optim.start_decay * train.max_steps / steps
    for rate in (MIN_RATE * FACTOR**i for i in range(MAX_RATES)):
        config = dataclasses.replace(
            plan.config,
            train=dataclasses.replace(train, max_steps=steps),
            optim=dataclasses.replace(optim, learning_rate=rate, warmup_steps=warmup, start_decay=decay),
        )
        model, losses = copy.deepcopy(plan.model), list[float]()
        trainer = Trainer(model, corpus.train, config, runtime=plan.runtime, marks=corpus.marks, teachers=plan.teachers)
        with contextlib.suppress(NotFinite):
            while not trainer.is_finished and not interrupt.came_here:
                losses.append(trainer.step().loss)
        if interrupt.came_here:
            return
        loss = sum(losses[-LAST_STEPS:]) / LAST_STEPS if len(losses) == steps else math.inf
        yield rate, loss, losses
        best = min(best, loss)
        if loss > best + HOPELESS:
            return
