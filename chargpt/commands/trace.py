"""`python -m chargpt trace`: what a text, or what the model writes, has copied from the training text."""

import secrets
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chargpt.commands.frame import add_run_options, load_run, print_json, run_verb, verb_parser
from chargpt.errors import UserError
from chargpt.terminal import escape_controls, log, number, one_line, plural, shown, whole_number

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.analysis.copies import Novelty
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.corpus import Corpus
    from chargpt.text.tokenizer import Tokenizer

SHOWN_SIZES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)  # of n-grams, in the table
MAX_SHOWN = 200  # characters of a passage
PLACE = 28  # columns


def main(argv: Sequence[str]) -> int:
    """Print what texts or samples have copied from the training text. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "trace",
        "RUN [TEXT ...] [option ...]",
        "Find the longest passages of a text that occur verbatim in the training split of the run's text, and count "
        "the n-grams that are new. With no TEXT, the texts are samples that the model writes. The training text must be in the "
        "cache. The first call makes an index of it there, which takes about a minute for 100 million characters.",
    )
    add_run_options(parser)
    add = parser.add_argument
    add("texts", metavar="TEXT", nargs="*", default=[], help="files in UTF-8, or - for standard input")
    add("--samples", type=whole_number(1), default=5, metavar="N", help="samples to write if there is no TEXT (default: 5)")
    add("--length", type=whole_number(1), default=1000, metavar="N", help="characters in each sample (default: 1000)")
    add("--temperature", type=number, default=1.0, metavar="T", help="temperature of the samples (default: 1)")
    add("--seed", type=whole_number(0), metavar="N", help="seed of the first sample (default: a new one each time)")
    add("--passages", type=whole_number(1), default=10, metavar="N", help="passages to list (default: 10)")
    add("--json", action="store_true", help="one JSON object, with every n from 2 to 32")
    return run_verb(parser.parse_intermixed_args, argv, print_copies)


def print_copies(options: Namespace) -> None:
    """Print the table, or JSON."""
    from chargpt.analysis.copies import Novelty
    from chargpt.project import project_root
    from chargpt.text.places import find_places
    from chargpt.text.suffix_array import open_index, open_or_make_index

    loaded = load_run(options.run, device=options.device)
    corpus = loaded.corpus()
    started = time.monotonic()
    index = open_index(corpus)
    if index is None:
        index = open_or_make_index(corpus)
        log(f"indexed {len(corpus.train):,} characters in {time.monotonic() - started:.1f} s; the index is kept in the cache")
    labels, texts = texts_of(options, loaded, corpus)
    ids = [loaded.tokenizer.ids_of(text) for text in texts]  # -1 for an unknown character
    size = sum(map(len, ids))
    novelty, unseen = Novelty(ids, index), Novelty([np.asarray(corpus.val[:size])], index)
    rows = passages_of(novelty, labels, ids, corpus.tokenizer, most=options.passages)
    found = [row["training_character"] - 1 for row in rows]
    places = find_places(found, corpus, loaded.config.data, texts=loaded.texts, root=project_root())
    if len(places) < len(set(found)):
        reason = "the training text is shuffled, or its files have changed or are gone"
        log(f"{reason}, so line numbers are those of the encoded text")
    newline = corpus.tokenizer.ids_of("\n")[0]
    for row, start in zip(rows, found):
        (file, place), line = places.get(start, (None, None)), int(np.count_nonzero(corpus.train[:start] == newline)) + 1
        row |= {"file": file, "line": place, "training_line": line}
    result = {
        "characters": size,
        "longest_copy": novelty.longest,
        "passages": rows,
        "novel": novelty.novel_shares(),
        "validation": {"longest_copy": unseen.longest, "novel": unseen.novel_shares()},
        "start": copied_from_start(loaded, labels, texts, most=options.passages),
    }
    if options.json:
        print_json({"run": loaded.run, "step": loaded.step, **result})
    else:
        print(*table(result), sep="\n")


def texts_of(options: Namespace, loaded: "LoadedModel", corpus: "Corpus") -> tuple[list[str], list[str]]:
    """The names of the texts that the options name, or of samples, and the texts, normalised."""
    from chargpt.analysis.copies import write_samples
    from chargpt.sampling.prompt import read_prompt

    if options.texts:
        names = ["standard input" if text == "-" else shown(text) for text in options.texts]
        texts = [loaded.tokenizer.normalized(read_prompt("", text)) for text in options.texts]
        for name, text in zip(names, texts):
            if len(text) < 2:
                raise UserError(f"{name}: {len(text)} characters; give a text of at least two")
        return names, texts
    seed = secrets.randbits(32) if options.seed is None else options.seed
    seeds = range(seed, seed + options.samples)
    counts = None if corpus.items is None else corpus.items.labels
    samples = write_samples(loaded, counts, seeds=seeds, length=options.length, temperature=options.temperature)
    log(f"{plural(len(seeds), 'sample')} of {options.length:,} characters, temperature {options.temperature:g}, seed {seed}")
    return [f"sample {i + 1}" for i in range(len(seeds))], samples


def copied_from_start(loaded: "LoadedModel", labels: list[str], texts: list[str], *, most: int) -> dict[str, Any] | None:
    """What `texts` have copied from the training text of the run with whose weights this one began, as JSON types.

    None if it began with none, or, with a line that says so, if that run is not beside this one or its text is not in the
    cache. The texts of the starts that come with the program never are.
    """
    from chargpt.analysis.copies import Novelty
    from chargpt.project import project_root
    from chargpt.runs.load import corpus_in_cache, find_checkpoint
    from chargpt.runs.models import RUN
    from chargpt.text.suffix_array import open_or_make_index

    start = loaded.config.train.start
    if not start.startswith(RUN):
        return None
    problem = f"this run began with {one_line(start)}, and copies of its text cannot be found"
    try:
        state = find_checkpoint(str(loaded.path.resolve().parent.with_name(start.removeprefix(RUN))), project_root())[0].state
    except UserError as error:
        log(f"{problem}: {error}")
        return None
    corpus = corpus_in_cache(state.config, state.tokenizer, state.fingerprint, root=project_root())
    if corpus is None:
        log(f"{problem}: that text is not in the cache")
        return None
    ids = [corpus.tokenizer.ids_of(text) for text in texts]
    ids = [np.where(np.isin(text, corpus.tokenizer.never_sampled), -1, text) for text in ids]  # without a folded character
    novelty = Novelty(ids, open_or_make_index(corpus))
    passages = passages_of(novelty, labels, ids, corpus.tokenizer, most=most)
    return {"name": start, "texts": state.texts, "longest_copy": novelty.longest, "passages": passages}


def passages_of(
    novelty: "Novelty", labels: list[str], texts: list[np.ndarray], tokenizer: "Tokenizer", *, most: int
) -> list[dict[str, Any]]:
    """The longest passages that `texts` have copied, at most `most`, as JSON types."""
    return [
        {
            "length": found.length,
            "text": labels[found.text],
            "at": found.start + 1,
            "training_character": found.place + 1,
            "copies": found.copies,
            "passage": tokenizer.decode(texts[found.text][found.start : found.start + found.length]),
        }
        for found in novelty.passages(most)
    ]


def table(result: dict[str, Any]) -> list[str]:
    """The result as lines for a terminal."""
    unseen = result["validation"]
    lines = [
        f"longest copy     {result['longest_copy']:,} characters; in as much text that the model has not read "
        f"(the validation split), {unseen['longest_copy']:,}",
        "",
        f"{'length':>7}  {'copies':>6}  {'place':<{PLACE}}  passage (copies: how often it occurs in the training text)",
    ]
    lines += [line_of(row, place_of(row)) for row in result["passages"]]
    if start := result["start"]:
        name = one_line(f"{start['name']} ({', '.join(map(shown, start['texts']))})")
        lines += ["", f"longest copy     {start['longest_copy']:,} characters from the text of {name}, its start", ""]
        lines += [line_of(row, f"character {row['training_character']:,}") for row in start["passages"]]
    sizes = [n for n in SHOWN_SIZES if n in result["novel"]]
    lines += [
        "",
        "n-grams that the training text does not have",
        f"{'  n':<16}" + "".join(f"{n:>7}" for n in sizes),
        f"{'  here':<16}" + "".join(f"{result['novel'][n]:>7.1%}" for n in sizes),
        f"{'  unseen text':<16}" + "".join(f"{unseen['novel'].get(n, float('nan')):>7.1%}" for n in sizes),
    ]
    return lines


def line_of(row: dict[str, Any], place: str) -> str:
    """A line of the table, for a passage."""
    passage = row["passage"].replace("\n", "↵")
    cut = " …" if len(passage) > MAX_SHOWN else ""
    content = one_line(escape_controls(passage[:MAX_SHOWN]))
    return f"{row['length']:>7,}  {row['copies']:>6,}  {place:<{PLACE}}  {content}{cut}   ({one_line(row['text'])})"


def place_of(row: dict[str, Any]) -> str:
    """The file and the line of a passage, at most PLACE columns; without a file, the line in the training text."""
    if row["file"] is None:
        return f"line {row['training_line']:,}"
    label = f"{one_line(row['file'])}:{row['line']}"
    return label if len(label) <= PLACE else f"…{label[1 - PLACE :]}"
