"""The page that `score --html` writes: one file without a network, the text coloured by surprise above everything else."""

import math
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, groupby, islice

from chargpt.analysis.scored_text import Line, Summary
from chargpt.markup import is_shown
from chargpt.pages.page import LEVELS, page, render, source, stretches

MAX_CHARACTERS = 200_000  # that the page shows: more would make a browser slow
LISTED, SHORTEST = 10, 12  # the most surprising lines that are listed, and the characters of such a line
# The code of the bits of a character for the script: its place is the number of quarters of a bit.
STEPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."


def score_page(texts: Sequence[tuple[str, Sequence[Line]]], summary: Summary) -> str:
    """The page for texts, each a label and its lines, and for what the `summary` says of them all.

    It shows lines until they have MAX_CHARACTERS. The most surprising ones are listed also from what is not shown.
    """
    every = [line for _, lines in texts for line in lines]
    ends = list(accumulate(len(line.text) for line in every))
    fitting = sum(end <= MAX_CHARACTERS for end in ends)
    ranked = [i for i, line in enumerate(every) if len(line.text.strip()) >= SHORTEST and not math.isnan(line.mean)]
    ranked.sort(key=lambda i: -every[i].mean)
    numbered = enumerate(every[:fitting], 1)
    bars = [(f"model {summary.facts['run']}", summary.total.bits_per_byte)]
    if summary.ngram is not None:
        bars.append((f"order-{summary.ngram[0]} n-gram model of its training text", summary.ngram_bits[1]))
    bars += [(name, 8 * size / max(1, summary.bytes)) for name, size in summary.sizes.items()]
    body = render(
        "score.html.j2",
        facts=summary.facts,
        bars=bars,  # name and bits per byte, that of the model first
        longest=max(value for _, value in bars) or 1.0,
        texts=summary.rows,
        worst=[(i + 1 if i < fitting else None, every[i]) for i in ranked[:LISTED]],  # the place that it links to
        levels=[0, *LEVELS],
        characters=ends[fitting - 1] if fitting else 0,
        all_characters=ends[-1] if ends else 0,
        shown=[(label, list(islice(numbered, len(lines)))) for label, lines in texts],
        symbols=symbols,
        stretches=stretches,
        code_of=code_of,
    )
    script = f'const steps = "{STEPS}";\n{source("score.js")}'
    return page(f"How well {summary.facts['run']} predicts a text", body=body, style=source("score.css"), script=script)


def code_of(bits: float) -> str:
    """The bits of a character as one character, for the script."""
    if math.isnan(bits):
        return "-"
    step = round(4 * bits)
    return STEPS[step] if step < len(STEPS) else "+"


def symbols(text: str) -> list[tuple[str, str | None]]:
    """`text` in stretches, each with a title or None: one shown character for each, so that the script can count them.

    What is invisible, or could reorder a line, is replaced by a symbol, whose title says what it is.
    """
    return [
        ("".join(shown for shown, _ in group), title) for title, group in groupby(map(_symbol, text), key=lambda pair: pair[1])
    ]


def _symbol(character: str) -> tuple[str, str | None]:
    if character == "\n":
        return "⏎", ""
    if character == "\t" or unicodedata.category(character) != "Cc" and is_shown(character):
        return character, None
    point = ord(character)
    return chr(0x2400 + point) if point < 0x20 else "\u2421" if point == 0x7F else "\ufffd", f"U+{point:04X}"
