"""Which learning rate suits this text and this shape: short trainings at a range of them, the curve drawn, and a suggestion."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch.utils.tensorboard import summary

from chargpt.training.metrics import EventFile

LOWEST, FACTOR, MOST = 1e-4, 2.0, 12  # rates tried: each the double of the one before, 1e-4 to 0.2
HOPELESS = 0.3  # nats above the best: higher rates will not come back
WIDTH, HEIGHT, MARGIN = 720, 440, 64  # of the picture, in pixels

Curve = list[tuple[float, float]]  # rate and loss, rates ascending


def sweep(loss_at: Callable[[float], float], *, stop: Callable[[], bool] = lambda: False) -> Iterator[tuple[float, float]]:
    """Each rate and the loss that it led to, as they come, until a rate is clearly too high or `stop()`. A loss may be infinite."""
    best = math.inf
    for i in range(MOST):
        rate = LOWEST * FACTOR**i
        loss = loss_at(rate)
        if stop():
            return
        loss = loss if math.isfinite(loss) else math.inf
        yield rate, loss
        best = min(best, loss)
        if loss > best + HOPELESS:
            return


def suggestion(curve: Curve) -> float:
    """The rate with the lowest loss: between the rates tried, where a parabola through the best and its neighbours has it."""
    losses = [loss for _, loss in curve]
    i = losses.index(min(losses))
    if not 0 < i < len(curve) - 1 or math.isinf(losses[i + 1]) or math.isinf(losses[i - 1]):
        return curve[i][0]
    left, middle, right = losses[i - 1 : i + 2]
    bend = left - 2 * middle + right
    return curve[i][0] * FACTOR ** (0.5 * (left - right) / bend if bend > 0 else 0.0)


def record(curve: Curve, folder: Path) -> Path:
    """Draw the curve into `folder`, as a picture and for TensorBoard; the picture's path."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = draw(curve)
    path = folder / "find-lr.png"
    picture.save(path)
    events = EventFile(folder, purge_step=0)
    for rate, loss in curve:
        if math.isfinite(loss):
            events.add(round(rate * 1e6), summary.scalar("find-lr/loss by millionths", loss))
    events.add(0, summary.image("find-lr", np.asarray(picture), dataformats="HWC"))
    events.file.close()
    return path


def draw(curve: Curve) -> Image.Image:
    """Loss against rate, the rate on a logarithmic axis, the suggestion marked."""
    shown = [(rate, loss) for rate, loss in curve if math.isfinite(loss)]
    losses = [loss for _, loss in shown]
    low, high = math.log10(curve[0][0]), math.log10(curve[-1][0] * FACTOR**0.5)
    bottom, top = min(losses), max(losses)
    span = max(top - bottom, 1e-3)

    def at(rate: float, loss: float) -> tuple[float, float]:
        x = MARGIN + (math.log10(rate) - low) / (high - low) * (WIDTH - 2 * MARGIN)
        return x, HEIGHT - MARGIN - (loss - bottom) / span * (HEIGHT - 2 * MARGIN)

    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
    for rate, _ in curve:
        x, y = at(rate, bottom)
        pen.line([(x, MARGIN), (x, y)], fill="#e4e4e4")
        pen.text((x, y + 8), f"{rate:.1e}".replace("e-0", "e-"), fill="#444444", font=font, anchor="ma")
    for part in range(5):
        loss = bottom + span * part / 4
        x, y = at(curve[0][0], loss)
        pen.line([(x, y), (WIDTH - MARGIN, y)], fill="#e4e4e4")
        pen.text((x - 8, y), f"{loss:.2f}", fill="#444444", font=font, anchor="rm")
    best = suggestion(curve)
    x, y = at(best, bottom)
    pen.line([(x, MARGIN), (x, y)], fill="#d62728", width=2)
    pen.text((x, MARGIN - 8), f"suggested {best:.1e}".replace("e-0", "e-"), fill="#d62728", font=font, anchor="mb")
    pen.line([at(rate, loss) for rate, loss in shown], fill="#1f77b4", width=3)
    for rate, loss in shown:
        x, y = at(rate, loss)
        pen.ellipse([x - 4, y - 4, x + 4, y + 4], fill="#1f77b4")
    pen.text((WIDTH / 2, HEIGHT - 12), "learning rate", fill="#000000", font=font, anchor="mb")
    pen.text((MARGIN, 14), "training loss at the end, nats per character", fill="#000000", font=font, anchor="lt")
    return picture
