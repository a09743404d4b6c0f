"""Draws the pictures of docs/attention.md: `draw(name, panel, panel, ...)`.

A panel is a heat map, given as (title, table, row labels, column labels). Positive numbers are blue, negative ones are orange,
and a short dash marks -inf.
"""

import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

BLUE, ORANGE, INK, GREY = (26, 92, 158), (214, 96, 38), (40, 44, 52), (244, 245, 247)
DASH = (170, 176, 184)
# pixels for each point, so that pictures are sharp on any screen
SCALE = 2
# where pictures are written; those of the page are in docs/attention
FOLDER = Path("data/attention")

# title, table (rows, columns), and optionally the labels of the rows and of the columns
Panel = tuple[str, Tensor] | tuple[str, Tensor, str] | tuple[str, Tensor, str, str | list[str]]


def draw(name: str, *parts: Panel | str, cell: int = 44, digits: int | None = None, largest: float | None = None) -> None:
    """Save panels, and the strings between them, side by side as NAME.png in FOLDER.

    `cell` is the width of a cell in points, and `digits` how many decimals it shows (None: no numbers). Colours are relative to
    the largest number of the panel, or to `largest`.
    """
    panels = [p if isinstance(p, str) else _panel(*p, cell=cell, digits=digits, largest=largest) for p in parts]
    widths = [int(_font(20).getlength(p)) if isinstance(p, str) else p.width for p in panels]
    gap, height = 16 * SCALE, max(p.height for p in panels if not isinstance(p, str))
    image = Image.new("RGB", (sum(widths) + gap * (len(panels) + 1), height + 2 * gap), "white")
    x = gap
    for panel, width in zip(panels, widths):
        if isinstance(panel, str):
            ImageDraw.Draw(image).text((x, image.height / 2 + 14 * SCALE), panel, INK, _font(20), anchor="lm")
        else:
            image.paste(panel, (x, gap))
        x += width + gap
    FOLDER.mkdir(parents=True, exist_ok=True)
    image.quantize(128).save(FOLDER / f"{name}.png", optimize=True)


def _panel(
    title: str,
    table: Tensor,
    rows: str = "",
    columns: str | list[str] = "",
    *,
    cell: int,
    digits: int | None,
    largest: float | None,
) -> Image.Image:
    """One heat map as an image."""
    table, unit = table.detach(), cell * SCALE
    left, top = (24 if rows else 0) * SCALE, (48 if columns else 28) * SCALE
    width = max(left + table.size(1) * unit, int(_font(15).getlength(title)))
    image = Image.new("RGB", (width, top + table.size(0) * unit), "white")
    pen = ImageDraw.Draw(image)
    pen.text((left, 0), title, INK, _font(15))
    largest = largest or table[table.isfinite()].abs().max().item()
    for t, row in enumerate(table.tolist()):
        for s, value in enumerate(row):
            x, y = left + s * unit, top + t * unit
            strength = min(1.0, abs(value) / largest) if math.isfinite(value) else 0.0
            red, green, blue = (round(g + (c - g) * strength) for g, c in zip(GREY, BLUE if value > 0 else ORANGE))
            pen.rectangle((x, y, x + unit - SCALE, y + unit - SCALE), (red, green, blue))
            if math.isinf(value):
                pen.line((x + 0.4 * unit, y + 0.5 * unit, x + 0.6 * unit, y + 0.5 * unit), DASH, SCALE)
            elif digits is not None:
                ink = "white" if strength > 0.55 else INK
                pen.text((x + 0.5 * unit, y + 0.5 * unit), f"{value:.{digits}f}", ink, _font(12), anchor="mm")
    for t, label in enumerate(rows):
        pen.text((left - 6 * SCALE, top + (t + 0.5) * unit), label, INK, _font(13), anchor="rm")
    for s, label in enumerate(columns):
        pen.text((left + (s + 0.5) * unit, top - 7 * SCALE), label, INK, _font(13), anchor="ms")
    return image


def _font(points: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(points * SCALE)
