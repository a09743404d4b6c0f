"""`python -m chargpt losses`: where the loss of a model sits: classes of characters, positions in the context, confusions."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chargpt.commands.common import aligned, items_for, left_out, load_run, part_of_text, verb_parser
from chargpt.errors import UserError
from chargpt.formatting import one_line, plural, shown
from chargpt.json_lines import write_json
from chargpt.option_table import whole
from chargpt.screen import log

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    import numpy as np

    from chargpt.analysis.losses import LossBreakdown
    from chargpt.sampling.loaded_model import LoadedModel

MIN_SHARE = 0.005  # of the loss: a gain that is worth a longer context


def main(argv: Sequence[str]) -> int:
    """Print where the loss of a model sits. Returns the exit code. Raises UserError."""
    about = """Show where the loss of a model sits: by class of character, by position in the context (would a longer one
    help?), and which characters it takes for which others."""
    parser = verb_parser("losses", "RUN [TEXT] [option ...]", about, "run", "--device", "text")
    add = parser.add_argument
    add("--chars", type=whole(1).read, default=150_000, metavar="N", help="use the first N characters (default: 150000)")
    add("--pairs", type=whole(1).read, default=12, metavar="N", help="confused pairs to list (default: 12)")
    add("--json", action="store_true", help="one JSON object")
    options = parser.parse_intermixed_args(argv)
    from chargpt.analysis.losses import loss_breakdown, predict
    from chargpt.text.item_stream import ItemMarks

    loaded = load_run(options.run, device=options.device)
    data, block_size = loaded.config.data, loaded.config.model.block_size
    marks = ItemMarks.of(loaded.tokenizer, has_labels=bool(data.label_fields)) if data.items else None
    if marks and options.text is not None:
        ids, place = part_of_items(options.text, loaded, length=options.chars)
    else:
        ids, place = part_of_text(options.text, loaded, start=0, length=options.chars + 1)
    predictions = predict(loaded.model, ids, marks)
    report = loss_breakdown(predictions, loaded.tokenizer, block_size=block_size, most=options.pairs)
    alone = "item" if marks else f"piece of {block_size:,} characters"
    log(f"{place}; the model reads each {alone} alone, without the text before it")
    if options.json:
        values = dataclasses.asdict(report)
        values["classes"] = [{"class": row.pop("name"), **row} for row in values["classes"]]
        write_json({"run": loaded.run, "step": loaded.step, **values})
    else:
        print(*tables(report), sep="\n")
    return 0


def part_of_items(text: str, loaded: "LoadedModel", *, length: int) -> "tuple[np.ndarray, str]":
    """The first `length` ids of the items in a text, and a line that says how many items it has. Raises UserError."""
    from chargpt.text.item_stream import end_in, stream_of

    items = items_for(loaded, [text], {})
    if loaded.config.data.label_fields and not all(item.label for item in items):
        raise UserError(f"{shown(text)}: has no labels, which this run needs; give a table with them")
    if broken := [item.text for item in items if end_in(loaded.tokenizer) in item.text]:
        what = f"{shown(text)}: the item {broken[0]!r:.40} has a line end, and each line is an item of this run"
        raise UserError(f"{what}; remove that line end")
    ids, unknown = loaded.tokenizer.encode_known(stream_of(items, end=end_in(loaded.tokenizer)))
    first = f"the first {min(length, len(ids)):,} of {len(ids):,} characters"
    return ids[:length], one_line(f"{first} of {plural(len(items), 'item')} in {shown(text)}{left_out(unknown)}")


def tables(report: "LossBreakdown") -> list[str]:
    """The report as lines for a terminal."""
    classes = [["class", "characters", "share", "loss", "of all loss", "right"]]
    for row in report.classes:
        shares = (f"{share:.1%}" for share in (row.share_of_loss, row.right))
        classes.append([row.name, f"{row.characters:,}", f"{row.share:.1%}", f"{row.loss:.3f}", *shares])
    positions = [["position", "characters", "loss", "± of the mean"]]
    for band in report.positions:
        name = f"{band.first:,}" if band.first == band.last else f"{band.first:,} to {band.last:,}"
        positions.append([name, f"{band.characters:,}", f"{band.loss:.3f}", f"{band.error:.3f}"])
    pairs = [["text has", "model says", "times", "of all mistakes"]]
    pairs += [[one.character, one.prediction, f"{one.times:,}", f"{one.share_of_mistakes:.1%}"] for one in report.confused]
    loss = f"loss             {report.loss:.4f} nats per character ({report.loss / math.log(2):.4f} bits)"
    longer = f"longer context?  {advice(report)}"
    return [loss, "", *aligned(classes), "", *aligned(positions), longer, "", *aligned(pairs)]


def advice(report: "LossBreakdown") -> str:
    """Whether a longer context would help, judging by what the last doubling of it gained."""
    gain, error = report.last_doubling.gain, report.last_doubling.error
    if gain is None or error is None:
        return "not known: this needs two whole contexts of four characters or more, and a list of items has none"
    is_chance = gain <= 2 * error
    helps = "probably help" if gain >= MIN_SHARE * report.loss and not is_chance else "help little"
    size = f"{abs(gain):.3f} ± {error:.3f} {'lower' if gain >= 0 else 'higher'}"
    what = f"with twice the text before it, the loss of a character is {size}" + ", which may be chance" * is_chance
    return f"a larger model.block_size will {helps}: {what}"
