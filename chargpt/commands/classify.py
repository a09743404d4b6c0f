"""`python -m chargpt classify`: the label that makes each item most likely, for a run on items with labels."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chargpt.commands.common import add_json_option, aligned, items_for, json_output, load_run, verb_parser
from chargpt.errors import UserError
from chargpt.formatting import escape_controls, one_line, plural
from chargpt.json_lines import write_json
from chargpt.notices import Kind
from chargpt.planning.cli import texts_and_settings
from chargpt.screen import log

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.analysis.item_facts import Guesses

EXAMPLE = 60  # characters of an item that a note shows, at most
SHOWN, WIDTH = 12, 12  # labels that the table of confusions shows, the most frequent, and the characters of a label in it


def main(argv: Sequence[str]) -> int:
    """Print the most likely label of each item that `argv` names, and the table. Returns the exit code. Raises UserError."""
    about = """Print the most probable label of each item, by Bayes' rule from the probabilities of the item and the frequencies
    of the labels. If the items have labels, also print the accuracy and a table of confusions."""
    parser = verb_parser("classify", "RUN [FILE ...] [section.key=value ...] [--json | --json-array]", about, "run", "--device")
    files = """a list of items, read as that of the run, with or without labels; a text without fields has an item in each line
    (default: the validation items of the run, for which only the table is printed); and data.items=..., data.label=... for
    another way of reading it"""
    parser.add_argument("words", nargs="*", metavar="FILE", help=files)
    add_json_option(parser.add_argument, "a JSON object for each item, with the probability of each label")
    options = parser.parse_intermixed_args(argv)
    texts, settings = texts_and_settings(options.words)
    from chargpt.analysis.item_facts import guess_labels

    loaded = load_run(options.run, device=options.device)
    if not loaded.config.data.label_fields:
        raise UserError(f"{loaded.run}: trained without labels; train a new run with --items and --label")
    items = items_for(loaded, texts, settings)
    guesses = guess_labels(loaded, items, loaded.labels())
    with json_output(options):
        for item, label, row in zip(items, guesses.best, guesses.probability.tolist()):
            if options.json:
                shares = {name: round(share, 6) for name, share in zip(guesses.labels, row)}
                write_json({"item": item.text, "label": item.label or None, "guess": label, "probability": shares})
            elif texts:
                print(f"{label}\t{max(row):.3f}\t{escape_controls(item.text)}".replace("\n", "\\n"))
    unknown = [item.text for item in items if loaded.tokenizer.encode_known(item.text)[1]]
    if unknown:
        example = one_line(unknown[0][:EXAMPLE])
        what = f"{len(unknown):,} of {len(items):,} items, such as {example}, have characters that the model has never seen"
        log(f"{what}; these characters were left out", Kind.NOTE)
    for line in confusions(guesses):
        log(line) if texts or options.json else print(line)
    return 0


def confusions(guesses: "Guesses") -> list[str]:
    """The accuracy, and a table: a row for each label of the items, a column for each label that was given."""
    confusion, accuracy = guesses.confusion, guesses.accuracy
    if accuracy is None:
        return [f"{plural(len(guesses.items), 'item')}; their labels are not known, so there is no accuracy"]
    items_of = {label: sum(confusion[label, other] for other in guesses.labels) for label in guesses.labels}
    most = max(guesses.labels, key=items_of.__getitem__)
    always, shown = items_of[most] / confusion.total(), guesses.labels[:SHOWN]
    short = {label: label if len(label) <= WIDTH else f"{label[: WIDTH - 1]}…" for label in shown}
    rows = [["", "right", *(short[label] for label in shown)]]
    for label in shown:
        right = confusion[label, label] / max(1, items_of[label])
        rows.append([short[label], f"{right:.1%}", *(f"{confusion[label, other]:,}" for other in shown)])
    error = math.sqrt(accuracy * (1 - accuracy) / confusion.total())
    said = f"accuracy {accuracy:.1%} ± {error:.1%} on {plural(confusion.total(), 'item')}; "
    said += f"always answering {most!r} would give {always:.1%}"
    more = [f"and {len(guesses.labels) - SHOWN:,} more labels"] * (len(guesses.labels) > SHOWN)
    return [said, *aligned(rows), *more]
