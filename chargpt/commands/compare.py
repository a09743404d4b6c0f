"""`score --compare`: which of two models explains which line of a text better."""

import heapq
import itertools
import json
from typing import Any

from chargpt.analysis.scored_text import HEAD, LABEL, Line, Summary, Total, lines_of, score_pieces
from chargpt.commands.frame import stride_within
from chargpt.commands.texts import Text, check_not_empty
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError, one_line


def compare(texts: list[Text], first: LoadedModel, second: LoadedModel, *, stride: int | None, top: int, as_json: bool) -> int:
    """Print what each of the two models makes of the texts, and the `top` lines on which they differ most. Returns 0.

    `stride` None is half of each model's context. Raises UserError if the models read the text as different lines.
    """
    models, totals = (first, second), (Total(), Total())
    most: list[tuple[float, int, str, Line, Line]] = []
    numbers = itertools.count()  # so that lines are never compared
    for text in texts:
        for a, b in _pairs(text, models, totals, stride):
            entry = (abs(b.total - a.total), next(numbers), text.label, a, b)
            (heapq.heappush if len(most) < top else heapq.heappushpop)(most, entry)
    check_not_empty(texts, totals[0].ids)
    most.sort(key=lambda entry: (-entry[0], entry[1]))
    (_print_json if as_json else _print_table)(models, totals, most)
    return 0


def _pairs(text: Text, models: tuple[LoadedModel, ...], totals: tuple[Total, ...], stride: int | None) -> Any:
    """Each line of a text as scored by the first and by the second model."""

    def lines(loaded: LoadedModel, total: Total) -> Any:
        pieces = text.pieces(loaded.tokenizer, loaded.config.data)
        step = stride_within(stride, loaded.model.config.block_size)
        counted = Total()
        yield from lines_of(score_pieces(loaded.model, loaded.tokenizer, pieces, stride=step, total=counted))
        total.add(counted)

    for a, b in itertools.zip_longest(*(lines(loaded, total) for loaded, total in zip(models, totals))):
        if a is None or b is None or a.number != b.number:
            raise UserError(f"{text.label}: the two models read it as different lines; use models with the same data.newlines")
        yield a, b


def _print_table(models: tuple[LoadedModel, ...], totals: tuple[Total, ...], most: list[Any]) -> None:
    summary = Summary({}, texts=[(f"{'AB'[i]} {loaded.run}", total) for i, (loaded, total) in enumerate(zip(models, totals))])
    print(HEAD, *summary.table()[1:3], sep="\n")
    print(f"\n{'A bits':>9}{'B bits':>9}{'better':>8}{'by':>9}  line")
    for difference, _, label, a, b in most:
        better = "A" if a.total < b.total else "B" if b.total < a.total else ""
        where = f"{one_line(label)}:{a.number}" if len(label) < LABEL else f"…{one_line(label)[2 - LABEL :]}:{a.number}"
        print(f"{a.total:>9.1f}{b.total:>9.1f}{better:>8}{difference:>9.1f}  {where}: {one_line(a.text.rstrip())}")


def _print_json(models: tuple[LoadedModel, ...], totals: tuple[Total, ...], most: list[Any]) -> None:
    summary = Summary({}, texts=[(loaded.run, total) for loaded, total in zip(models, totals)])
    lines = [
        {"text": label, "line": a.number, "content": a.text, "bits": [round(a.total, 4), round(b.total, 4)]}
        for _, _, label, a, b in most
    ]
    print(json.dumps({"runs": summary.to_json()["texts"], "lines": lines}))
