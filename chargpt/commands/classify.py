"""`python -m chargpt classify`: the label that makes each item most likely, for a run on items with labels."""

from argparse import Namespace
from collections.abc import Sequence

from chargpt.commands.frame import add_run_options, items_for, load_run, print_json, run_verb, verb_parser
from chargpt.errors import UserError
from chargpt.planning.cli import texts_and_settings
from chargpt.terminal import escape_controls, log, one_line

# Characters of an item that a note shows, at most.
EXAMPLE = 60


def main(argv: Sequence[str]) -> int:
    """Classify the items that the options in `argv` name. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "classify",
        "RUN [FILE ...] [section.key=value ...] [--json]",
        "Print the most probable label of each item, by Bayes' rule from the probabilities of the item and the frequencies of "
        "the labels. If the items have labels, also print the accuracy and a table of confusions.",
    )
    add_run_options(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help="a list of items, read as that of the run, with or without labels; a text without fields has an item in each line "
        "(default: the validation items of the run, for which only the table is printed); and data.items=..., data.label=... "
        "for another way of reading it",
    )
    parser.add_argument("--json", action="store_true", help="a JSON object for each item, with the probability of each label")
    return run_verb(parser.parse_intermixed_args, argv, classify)


def classify(options: Namespace) -> None:
    """Print the most likely label of each item, and the table. Raises UserError."""
    from chargpt.analysis.items import describe_guesses, guess_labels

    loaded = load_run(options.run, device=options.device)
    if not loaded.config.data.label_fields:
        raise UserError(f"{loaded.run}: a run without labels; train with --items and --label")
    texts, settings = texts_and_settings(options.words)
    items = items_for(loaded, texts, settings)
    guesses = guess_labels(loaded, items, loaded.labels())
    for item, label, row in zip(items, guesses.best, guesses.probability.tolist()):
        if options.json:
            shares = {name: round(share, 6) for name, share in zip(guesses.labels, row)}
            print_json({"item": item.text, "label": item.label or None, "guess": label, "probability": shares})
        elif texts:
            print(f"{label}\t{max(row):.3f}\t{escape_controls(item.text)}".replace("\n", "\\n"))
    unknown = [item.text for item in items if loaded.tokenizer.encode_known(item.text)[1]]
    if unknown:
        example = one_line(unknown[0][:EXAMPLE])
        log(f"note: {len(unknown):,} of {len(items):,} items have characters that the model has never seen, such as: {example}")
    for line in describe_guesses(guesses):
        log(line) if texts or options.json else print(line)
