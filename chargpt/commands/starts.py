"""`python -m chargpt starts`: the models that come with the program and know a language."""

from collections.abc import Sequence

from chargpt.commands.common import aligned, verb_parser
from chargpt.formatting import one_line


def main(argv: Sequence[str]) -> int:
    """Print the list, or a start in full. Returns the exit code. Raises UserError."""
    about = """List the models that come with the program and know a language: train.py TEXT --start NAME begins with one, so
    that a short text is enough, and sample.py --start NAME writes with it. The loss is that of a held-out part of their texts,
    in nats per character."""
    parser = verb_parser("starts", "[NAME]", about)
    parser.add_argument("name", nargs="?", metavar="NAME", help="a start, to print its texts, their terms and how it was made")
    options = parser.parse_args(list(argv))
    from chargpt.runs.load import read_card, start_names

    if options.name is None:
        rows = [["start", "language", "parameters", "characters read", "loss", "texts"]]
        for name in start_names():
            card = read_card(name)
            texts = ", ".join(str(text["name"]) for text in card.texts)
            rows.append([name, card.language, f"{card.state.parameters:,}", f"{card.read:,}", f"{card.loss:.3f}", texts])
        print(*aligned(rows), sep="\n")
    else:
        card = read_card(options.name)
        print(f"{card.name}: {card.language}, {card.state.parameters:,} parameters, {card.read:,} characters read")
        print(f"loss {card.loss:.4f} nats per character, {card.rounding:+.4f} of it from rounding to float16")
        print(f"licence of the weights: {card.licence}\n\ntexts:")
        for text in card.texts:
            print(one_line(f"  {text['name']}: {text['characters']:,} characters, {text['terms']}"))
        print("\nmade with:", *(one_line(f"  {command}") for command in card.recipe), sep="\n")
    return 0
