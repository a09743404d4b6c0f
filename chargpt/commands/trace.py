"""`python -m chargpt trace`: what a text, or what the model writes, has copied from the training text."""

import secrets
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chargpt.commands.common import aligned, load_run, verb_parser
from chargpt.errors import UserError
from chargpt.formatting import one_line, plural, shown
from chargpt.json_lines import write_json
from chargpt.option_table import typed, whole
from chargpt.project import project_root
from chargpt.sampling.prompt import read_prompt
from chargpt.screen import log

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.analysis.copies import Copies
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.corpus import Corpus

SHOWN_SIZES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)  # of n-grams, in the table
MAX_SHOWN = 200  # characters of a passage
PLACE = 28  # columns


def main(argv: Sequence[str]) -> int:
    """Print what texts or samples have copied from the training text. Returns the exit code. Raises UserError."""
    about = """Find the longest passages of a text that occur verbatim in the training split of the run's text, and count the
    n-grams that are new. With no TEXT, the texts are samples that the model writes. The training text must be in the cache. The
    first call makes an index of it there, which takes about a minute for 100 million characters."""
    parser = verb_parser("trace", "RUN [TEXT ...] [option ...]", about, "run", "--device")
    add = parser.add_argument
    add("texts", metavar="TEXT", nargs="*", default=[], help="files in UTF-8, or - for standard input")
    add("--samples", type=whole(1).read, default=5, metavar="N", help="samples to write if there is no TEXT (default: 5)")
    add("--length", type=whole(1).read, default=1000, metavar="N", help="characters in each sample (default: 1000)")
    add("--temperature", type=typed, default=1.0, metavar="T", help="temperature of the samples (default: 1)")
    add("--seed", type=whole(0).read, metavar="N", help="seed of the first sample (default: a new one each time)")
    add("--passages", type=whole(1).read, default=10, metavar="N", help="passages to list (default: 10)")
    add("--json", action="store_true", help="one JSON object, with every n from 2 to 32")
    options = parser.parse_intermixed_args(argv)
    from chargpt.analysis.copies import measure_copies
    from chargpt.text.places import find_places
    from chargpt.text.suffix_array import open_or_make_index

    loaded = load_run(options.run, device=options.device)
    corpus = loaded.corpus()
    index = open_or_make_index(corpus)
    labels, texts = texts_of(options, loaded, corpus)
    copies = measure_copies(texts, corpus, index, most=options.passages)
    found = [passage.place for passage in copies.passages]
    places = find_places(found, corpus, loaded.config.data, texts=loaded.texts, root=project_root())
    if len(places) < len(set(found)):
        reason = "the training text is shuffled, or its files have changed or are gone"
        log(f"{reason}, so line numbers are not those of your files, but of the program's copy of the text")
    newline, rows = corpus.tokenizer.ids_of("\n")[0], rows_of(copies, labels)
    for row, start in zip(rows, found):
        (file, place), line = places.get(start, (None, None)), int(np.count_nonzero(corpus.train[:start] == newline)) + 1
        row |= {"file": file, "line": place, "training_line": line}
    (longest, novel), unseen = copies.here, copies.unseen._asdict()
    result = {"characters": sum(map(len, texts)), "longest_copy": longest, "passages": rows, "novel": novel}
    result |= {"validation": unseen, "start": copied_from_start(loaded, labels, texts, most=options.passages)}
    if options.json:
        write_json({"run": loaded.run, "step": loaded.step, **result})
    else:
        print(*table(result), sep="\n")
    return 0


def texts_of(options: Namespace, loaded: "LoadedModel", corpus: "Corpus") -> tuple[list[str], list[str]]:
    """The names of the texts that the options name, or of samples, and the texts, normalised."""
    from chargpt.analysis.copies import write_samples

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
    """What `texts` have copied from the text of the run with which this one began; None if there is none, or it is gone."""
    from chargpt.analysis.copies import measure_copies
    from chargpt.runs.checkpoint import run_of
    from chargpt.runs.load import find_checkpoint
    from chargpt.text.corpus import cached_corpus
    from chargpt.text.suffix_array import open_or_make_index

    start, root = loaded.stage.start, project_root()
    if start is None or not start.is_run:
        return None
    try:
        beside = run_of(loaded.path.resolve()).with_name(start.name)
        state = find_checkpoint(str(beside), root)[0].state
        corpus = cached_corpus(state.texts, state.config.data, state.tokenizer, root=root, fingerprint=state.fingerprint)
    except UserError:
        corpus = None
    if corpus is None:
        what = f"this run started from the weights of the run {start.name!r}, but that run or its text is gone"
        log(f"{what}; passages copied from that text are not shown")
        return None
    copies = measure_copies(texts, corpus, open_or_make_index(corpus), most=most)
    found = {"longest_copy": copies.here.longest_copy, "passages": rows_of(copies, labels)}
    return {"name": str(start), "texts": state.texts, **found}


def rows_of(copies: "Copies", labels: list[str]) -> list[dict[str, Any]]:
    """The passages as JSON types."""
    return [
        {"length": found.length, "text": labels[found.text], "at": found.start + 1, "training_character": found.place + 1}
        | {"copies": found.copies, "passage": found.content}
        for found in copies.passages
    ]


def table(result: dict[str, Any]) -> list[str]:
    """The result as lines for a terminal."""
    unseen = result["validation"]
    compared = f"(in as much text that the model has not read, the validation split: {unseen['longest_copy']:,})"
    lines = [f"longest copy     {result['longest_copy']:,} characters of the training text {compared}"]
    places = [f"{row['file']}:{row['line']}" if row["file"] else f"line {row['training_line']:,}" for row in result["passages"]]
    lines += ["", *passage_table(result["passages"], places)]
    if start := result["start"]:
        name = one_line(f"{start['name']} ({', '.join(map(shown, start['texts']))})")
        lines += ["", f"longest copy     {start['longest_copy']:,} characters from the text of {name}, its start", ""]
        lines += passage_table(start["passages"], [f"character {row['training_character']:,}" for row in start["passages"]])
    sizes = [n for n in SHOWN_SIZES if n in result["novel"]]
    rows = [["  n", *map(str, sizes)]]
    for name, novel in (("  here", result["novel"]), ("  unseen text", unseen["novel"])):
        rows.append([name, *(f"{novel.get(n, float('nan')):.1%}" for n in sizes)])
    return [*lines, "", "n-grams that the training text does not have", *aligned(rows)]


def passage_table(rows: list[dict[str, Any]], places: list[str]) -> list[str]:
    """The passages, each with its place in the training text."""
    cells = [["length", "copies", "place", "passage (copies: how often it occurs in the training text)"]]
    for row, place in zip(rows, places):
        passage = row["passage"][:MAX_SHOWN].replace("\n", "↵") + " …" * (len(row["passage"]) > MAX_SHOWN)
        place = place if len(place) <= PLACE else f"…{place[1 - PLACE :]}"
        cells.append([f"{row['length']:,}", f"{row['copies']:,}", place, f"{passage}   ({row['text']})"])
    return aligned(cells)
