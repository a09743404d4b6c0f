"""--find-lr: short trainings at a range of learning rates, the curve drawn, and a suggestion.

Each training starts from the same weights and sees the same batches. Its loss is the mean training loss of its last steps:
text that it has not seen before, unless the text is short. The validation split is not used.
"""

import copy
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from chargpt.config import Config
from chargpt.files import publish_file
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.planning.cli import TrainOptions
from chargpt.planning.plan import make_plan
from chargpt.planning.teachers import models_of
from chargpt.runs.run import folder_of
from chargpt.terminal import UserError, notice, shown
from chargpt.text.items import ItemMarks
from chargpt.training.runtime import Runtime, choose_runtime
from chargpt.training.thread_spinning import ThreadSpinning
from chargpt.training.trainer import NotFinite, Trainer

STEPS, LAST_STEPS = 200, 20  # of each training, and those whose loss counts
MIN_RATE, FACTOR, MAX_RATES = 1e-4, 2.0, 12  # rates tried: each twice the one before, 1e-4 to 0.2
HOPELESS = 0.3  # nats above the best: higher rates will not be better
WIDTH, HEIGHT, MARGIN = 720, 440, 64  # of the picture, in pixels
STOPPING = "\nstopping\na second signal stops at once\n"

Curve = list[tuple[float, float]]  # rate and loss, rates ascending


def find_learning_rate(options: TrainOptions, *, root: Path) -> int:
    """--find-lr: short trainings at a range of rates, a picture of the losses, and a suggestion. Returns the exit code.

    `root` is the folder of the project. Raises UserError.
    """
    plan = make_plan(options, root=root)
    for label, text, kind in (*plan.notices, *plan.choices):
        if kind != "summary":
            notice(label, text)
    model, corpus, config = plan.model, plan.corpus, short_config(plan.config)
    run = folder_of(corpus.name if options.run is None else options.run, root / "checkpoints")
    path = run.with_name(f"{run.name}-find-lr.png")
    with Interrupt(STOPPING) as interrupt:
        notice("sweep", f"{STEPS} steps at each rate, with its own schedule, until one is clearly too high")
        curve, runtime, teachers = [], choose_runtime(config), models_of(plan.teachers)
        for rate, loss in try_rates(
            model, corpus.train, config, runtime=runtime, marks=corpus.marks, teachers=teachers, interrupt=interrupt
        ):
            notice("rate", f"{rate:.4f}: loss {loss:.3f}" if loss < math.inf else f"{rate:.4f}: diverged")
            curve.append((rate, loss))
        if not any(loss < math.inf for _, loss in curve):
            if interrupt.came_here:
                return interrupt.exit_code
            raise UserError("--find-lr: every rate diverged; check for an extreme setting, such as optim.weight_decay")
        notice("suggested", f"optim.learning_rate={suggestion(curve):.1e}")
        record(curve, path)
        notice("drawn", shown(path))
    return interrupt.exit_code


def short_config(config: Config, *, steps: int = STEPS) -> Config:
    """`config` for one of the short trainings, its warm-up and schedule included."""
    optim = dataclasses.replace(
        config.optim,
        warmup_steps=min(config.optim.warmup_steps, steps // 10),
        start_decay=config.optim.start_decay * config.train.max_steps / steps,
    )
    return dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=steps), optim=optim)


def try_rates(
    model: GPT,
    ids: np.ndarray,
    config: Config,
    *,
    runtime: Runtime,
    interrupt: Interrupt,
    marks: ItemMarks | None = None,
    teachers: Sequence[GPT] = (),
) -> Iterator[tuple[float, float]]:
    """Yield each rate and the loss it leads to, until a rate is clearly too high or a signal comes. A loss may be infinite.

    `config` is that of one short training, see `short_config`; its learning rate is replaced. `model` is not changed.
    """
    best = math.inf
    for rate in (MIN_RATE * FACTOR**i for i in range(MAX_RATES)):
        at_rate = dataclasses.replace(config, optim=dataclasses.replace(config.optim, learning_rate=rate))
        trainer = Trainer(copy.deepcopy(model), ids, at_rate, runtime=runtime, marks=marks, teachers=teachers)
        loss = _final_loss(trainer, interrupt)
        if interrupt.came_here:
            return
        yield rate, loss
        best = min(best, loss)
        if loss > best + HOPELESS:
            return


def _final_loss(trainer: Trainer, interrupt: Interrupt) -> float:
    """Train to the end; the mean loss of the last steps, infinite if the training diverges."""
    losses = []
    try:
        with ThreadSpinning(trainer.runtime) as spinning:
            while not trainer.is_finished and not interrupt.came_here:
                with spinning.watch():
                    losses.append(trainer.step().loss)
    except NotFinite:
        return math.inf
    return sum(losses[-LAST_STEPS:]) / LAST_STEPS


def suggestion(curve: Curve) -> float:
    """The rate with the lowest loss: the minimum of a parabola through the best rate tried and its neighbours."""
    losses = [loss for _, loss in curve]
    i = losses.index(min(losses))
    if not 0 < i < len(curve) - 1 or math.isinf(losses[i + 1]) or math.isinf(losses[i - 1]):
        return curve[i][0]
    left, middle, right = losses[i - 1 : i + 2]
    bend = left - 2 * middle + right
    return curve[i][0] * FACTOR ** (0.5 * (left - right) / bend if bend > 0 else 0.0)


def record(curve: Curve, path: Path) -> None:
    """Draw the curve into a picture, which replaces that of an earlier sweep. Raises OSError."""
    png = io.BytesIO()
    draw(curve).save(png, "png")
    path.parent.mkdir(parents=True, exist_ok=True)
    publish_file(path, png.getvalue())


def draw(curve: Curve) -> Image.Image:
    """A picture of loss against rate on a logarithmic axis, with the suggestion marked."""
    finite = [(rate, loss) for rate, loss in curve if math.isfinite(loss)]
    bottom, top = min(loss for _, loss in finite), max(loss for _, loss in finite)
    low, high = math.log10(curve[0][0]), math.log10(curve[-1][0] * FACTOR**0.5)
    span = max(top - bottom, 1e-3)

    def at(rate: float, loss: float) -> tuple[float, float]:
        x = MARGIN + (math.log10(rate) - low) / (high - low) * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - (loss - bottom) / span * (HEIGHT - 2 * MARGIN)

    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
    for rate, _ in curve:
        x, y = at(rate, bottom)
        pen.line([(x, MARGIN), (x, y)], fill="#e4e4e4")
        pen.text((x, y + 8), _short(rate), fill="#444444", font=font, anchor="ma")
    for part in range(5):
        loss = bottom + span * part / 4
        x, y = at(curve[0][0], loss)
        pen.line([(x, y), (WIDTH - MARGIN, y)], fill="#e4e4e4")
        pen.text((x - 8, y), f"{loss:.2f}", fill="#444444", font=font, anchor="rm")
    best = suggestion(curve)
    x, y = at(best, bottom)
    pen.line([(x, MARGIN), (x, y)], fill="#d62728", width=2)
    pen.text((x, MARGIN - 8), f"suggested {_short(best)}", fill="#d62728", font=font, anchor="mb")
    pen.line([at(rate, loss) for rate, loss in finite], fill="#1f77b4", width=3)
    for rate, loss in finite:
        x, y = at(rate, loss)
        pen.ellipse([x - 4, y - 4, x + 4, y + 4], fill="#1f77b4")
    pen.text((WIDTH / 2, HEIGHT - 12), "learning rate", fill="#000000", font=font, anchor="mb")
    pen.text((MARGIN, 14), "training loss at the end, nats per character", fill="#000000", font=font, anchor="lt")
    return picture


def _short(rate: float) -> str:
    return f"{rate:.1e}".replace("e-0", "e-")
