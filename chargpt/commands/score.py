"""`python -m chargpt score`: how well a model predicts a text, in total, by line and by character."""

import dataclasses
import math
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.common import add_json_option, aligned, items_for, json_output, load_run, page_file, text_in, verb_parser
from chargpt.errors import TextTooShort, UserError
from chargpt.formatting import one_line
from chargpt.json_lines import write_json
from chargpt.option_table import whole
from chargpt.planning.cli import by_fields, texts_and_settings
from chargpt.project import project_root
from chargpt.runs.checkpoint import KEPT, has_steps
from chargpt.runs.load import means_start, places_of
from chargpt.screen import log
from chargpt.settings import COMMAND_LINE, Settings, Source, Tree, names_in
from chargpt.text.source import NAMES

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    import numpy as np

    from chargpt.analysis.scored_text import Line, Summary, Total
    from chargpt.config import DataConfig
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.item_stream import Item

# Settings of how a text is read. All others belong to the run.
READING = ("data.encoding", "data.field", "data.format", "data.pattern", "data.separator")
Lines = list[tuple[str, "Line"]]  # each with the name of its text
TOP = 20  # items that are printed, if --top does not say how many


def main(argv: Sequence[str]) -> int:
    """Score the texts that the options in `argv` name. Returns the exit code. Raises UserError."""
    options = parse_options(argv)
    with json_output(options):
        if len(options.runs) > 1:
            compare(options)
        else:
            loaded = load_run(options.run, device=options.device)
            score_items(options, loaded) if options.items else score_texts(options, loaded)
    return 0


def parse_options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`, with texts and settings told apart. Raises UserError for what cannot be given together."""
    about = """How well a trained model predicts a text: bits per character and per byte, beside gzip, bzip2, xz and an n-gram
    model. The first character of a text is not predicted. A character that the model does not know costs 20.1 bits, a choice
    among all code points of Unicode, and the model does not see it. Several runs are compared line by line: score A B TEXT, or
    score A TEXT_A B TEXT_B for the same lines in two spellings."""
    parser = verb_parser("score", "RUN [RUN ...] [TEXT ...] [section.key=value ...] [option ...]", about, "run", "--device")
    add = parser.add_argument
    texts = """a file, a folder, - for standard input, or a named corpus, read as in training; several give a line each and a
    total (default: the validation split of the run's own text); and settings of how a TEXT is read: """
    add("words", nargs="*", default=[], metavar="TEXT", help=texts + ", ".join(f"{key}=..." for key in READING))
    stride = """begin a window every N characters; each character is then predicted from at least the context less N characters
    (default: half of the context). If N is the whole context, the windows are those of the validation loss"""
    add("--stride", type=whole(1).read, metavar="N", help=stride)
    top = f"with --items, how many are printed (default: {TOP}); with --lines, the N lines of most bits (default: all)"
    add("--top", type=whole(1).read, metavar="N", help=top)
    output = parser.add_argument_group("what is printed, besides the totals, which then go to standard error")
    either = output.add_mutually_exclusive_group().add_argument
    add = output.add_argument
    add("--items", action="store_true", help="for a run on items: the bits of each item, the --top most surprising first")
    either("--lines", action="store_true", help="the bits of each line")
    either("--tsv", action="store_true", help="the bits of each line as a table with tabs, for another program")
    add_json_option(either, "a JSON object for each line, with the bits of each character, and one of totals")
    what = "also write a page that shows the text coloured, to open in a browser"
    add("--html", type=page_file, metavar="FILE", help=what)
    options = parser.parse_intermixed_args(argv)
    words, options.settings = texts_and_settings(options.words)
    options.runs = runs_and_texts(options.run, words)
    options.texts = options.runs[options.run]
    for key in sorted(set(names_in(options.settings)) - set(READING)):
        raise UserError(f"{key}: score takes this setting from the run; leave it out (these can be set: {', '.join(READING)})")
    if options.settings and not options.texts:
        raise UserError(f"{names_in(options.settings)[0]}: given without a TEXT to read; add one, or leave it out")
    if options.items and (options.lines or options.html):
        raise UserError(f"--items: {'--lines' if options.lines else '--html'} given as well; leave out one of the two")
    if options.top is not None and not (options.items or options.lines):
        raise UserError("--top: given without --items or --lines; add one of them, or leave it out")
    of_one = [name for name in ("top", "lines", "html") if getattr(options, name)]
    if of_one and len(options.runs) > 1:
        raise UserError(f"--{of_one[0]}: given with {len(options.runs)} runs to compare; leave it out, or give --tsv")
    if len(options.runs) > 1 and "-" in options.texts:
        raise UserError(f"-: standard input can be read once, and {len(options.runs)} runs are compared; save it in a file")
    return options


def scored_items(texts: Sequence[str], loaded: "LoadedModel", options: Namespace) -> "tuple[list[Item], np.ndarray]":
    """The items in `texts` and their bits under the model, float64 (items,). Raises UserError."""
    from chargpt.analysis.item_facts import guess_labels
    from chargpt.analysis.scored_text import UNKNOWN_BITS

    items = items_for(loaded, texts, options.settings)
    unlabelled = bool(loaded.config.data.label_fields) and not all(item.label for item in items)
    losses = guess_labels(loaded, items, loaded.labels()).losses if unlabelled else loaded.item_losses(items)
    return items, losses / math.log(2) + [UNKNOWN_BITS * len(loaded.tokenizer.encode_known(item.text)[1]) for item in items]


def score_items(options: Namespace, loaded: "LoadedModel") -> None:
    """Print the most surprising items with their bits, and the mean of all. Raises UserError."""
    items, bits = scored_items(options.texts, loaded, options)
    rows = [["bits", "bits/char", "item"]]
    for number in (-bits).argsort(kind="stable")[: options.top or TOP].tolist():
        item, total = items[number], float(bits[number])
        each = total / (len(item.text) + 1)  # its end is predicted too
        if options.json:
            write_json({"number": number + 1, "label": item.label or None, "item": item.text, "bits": round(total, 4)})
        rows.append([f"{total:.2f}", f"{each:.3f}", f"{number + 1}: " + f"{item.label} " * bool(item.label) + item.text])
    if not options.json:
        print(*aligned(rows), sep="\n")
    characters = sum(len(item.text) + 1 for item in items)
    mean = f"{bits.mean():.3f} bits per item, or {bits.sum() / characters:.4f} per character"
    log(f"loss of the model on the {len(items):,} items: {mean}; lower is better")


def stride_for(options: Namespace, loaded: "LoadedModel") -> int:
    """How many characters apart windows begin. Raises UserError, also for a run whose text is no text."""
    if loaded.config.data.label_fields:
        raise UserError(f"{loaded.run}: was trained on items with labels, so only items can be scored; add --items")
    context = loaded.model.config.block_size
    if options.stride is not None and options.stride > context:
        raise UserError(f"--stride: {options.stride:,} given; use {context:,} or less, the characters the model reads at once")
    return options.stride or max(1, context // 2)


def scored_texts(
    names: Sequence[str], loaded: "LoadedModel", options: Namespace
) -> "tuple[list[tuple[str, str]], list[tuple[str, Total]], list[tuple[str, list[Line]]]]":
    """The texts that `names` mean, and their sums and lines under the model, each with its label. Raises UserError."""
    from tqdm import tqdm

    from chargpt.analysis.scored_text import lines_of, score_text

    stride, texts = stride_for(options, loaded), read_texts(names, loaded, options.settings)
    whole, form = sum(len(text) for _, text in texts), {"unit_scale": True, "delay": 1, "leave": False, "disable": None}
    with tqdm(total=whole, unit="char", **form) as bar:
        scored = [score_text(loaded.model, loaded.tokenizer, text, stride=stride, progress=bar.update) for _, text in texts]
    totals = [(label, total) for (label, _), (_, total) in zip(texts, scored)]
    return texts, totals, [(label, lines_of(text, bits)) for (label, text), (bits, _) in zip(texts, scored)]


def score_texts(options: Namespace, loaded: "LoadedModel") -> None:
    """Print what the options ask for, and write the page. Raises UserError if no character can be predicted."""
    from chargpt.analysis.baselines import compressed_sizes, ngram_bits, share_in_training
    from chargpt.analysis.scored_text import UNKNOWN_BITS, Summary, describe_unknown
    from chargpt.pages.page import publish_page
    from chargpt.pages.score_page import score_page
    from chargpt.text.examination import MAX_OVERLAP
    from chargpt.text.facts import NGRAM_MODEL

    texts, totals, lines = scored_texts(options.texts, loaded, options)
    content, tokenizer, size = "".join(text for _, text in texts), loaded.tokenizer, loaded.model.config.block_size
    data, ids, corpus = content.encode("utf-8", "surrogateescape"), tokenizer.ids_of(content), loaded.find_corpus()
    stride = stride_for(options, loaded)
    summary = Summary(
        facts={"run": loaded.run, "step": loaded.step, "context": size, "stride": stride},
        texts=totals,
        characters=len(content),
        bytes=len(data),
        sizes=compressed_sizes(data),
        ngram=None if corpus is None else ngram_bits(corpus, ids, unknown=UNKNOWN_BITS),
    )
    total = summary.total
    if not total.ids:
        names = texts[0][0] if len(texts) == 1 else f"each of the {len(texts):,} texts"
        raise TextTooShort(f"{names}: too short; give a text of two characters or more")
    if options.html:
        publish_page(options.html, score_page(lines, summary))
    if options.json:
        for label, line in ((label, line) for label, found in lines for line in found):
            bits_of_line = [None if math.isnan(value) else round(value, 4) + 0.0 for value in line.bits.tolist()]
            write_json({"text": label, "line": line.number, "content": line.text, "bits": bits_of_line})
        write_json(summary.to_json())
    elif options.tsv:
        print_tsv({loaded.run: [(label, line) for label, found in lines for line in found]})
    elif options.lines:
        print(*table_of_lines(lines, top=options.top), sep="\n")
    print(*table(summary), sep="\n", file=sys.stderr if options.json or options.lines or options.tsv else sys.stdout)
    log(f"the model reads the text in pieces of {size:,} characters that overlap; one begins every {stride:,} characters")
    if total.unknown:
        log(describe_unknown(total, tokenizer))
    if summary.ngram is None:
        what = "the text is too short, or the program has no copy of the training text of this run"
        log(f"no comparison with {NGRAM_MODEL}: {what}")
    if options.html:
        log(f"page: {options.html}")
    if options.texts and corpus is not None and (share := share_in_training(corpus, ids)) > MAX_OVERLAP:
        log(f"{share:.0%} of the text is lines that the model was trained on, so these are not losses on new text")


def table(summary: "Summary") -> list[str]:
    """The losses and sizes of the texts, and of other programs."""
    rows = [["", "characters", "bytes", "size", "bits/char", "bits/byte", "loss"]]
    for label, one in summary.rows:
        bits = [f"{one.bits_per_character:.4f}", f"{one.bits_per_byte:.4f}", f"{one.loss:.4f}"]
        rows.append([label, f"{one.characters:,}", f"{one.bytes:,}", f"{math.ceil(one.bits / 8):,}", *bits])
    for name, size in summary.sizes.items():
        bits = [f"{8 * size / max(1, count):.4f}" for count in (summary.characters, summary.bytes)]
        rows.append([name, f"{summary.characters:,}", f"{summary.bytes:,}", f"{size:,}", *bits, ""])
    if summary.ngram is not None:
        order, bits_per_id = summary.ngram
        bits = [f"{value:.4f}" for value in (*summary.ngram_bits, bits_per_id * math.log(2))]
        rows.append([f"order-{order} n-gram", "", "", "", *bits])
    return aligned(rows)


def table_of_lines(texts: "Sequence[tuple[str, list[Line]]]", *, top: int | None) -> list[str]:
    """The lines of all texts with their bits and their places; or the `top` ones of most bits among them."""
    every = [(f"{label}:{line.number}: {line.text.rstrip()}", line) for label, lines in texts for line in lines]
    chosen = sorted(every, key=lambda one: -one[1].total)[:top] if top else every
    cells = [["" if math.isnan(line.mean) else f"{line.mean:.3f}", f"{line.total:.1f}", content] for content, line in chosen]
    return aligned([["bits/char", "bits", "line"], *cells])


def reading_of(loaded: "LoadedModel", settings: Tree) -> "DataConfig":
    """How a text is read for a model: as the training text of its run, but for `settings`. Raises UserError."""
    given = Settings(loaded.config).give(settings, source=Source.USER, where=COMMAND_LINE)
    data, tokenizer = by_fields(given, settings).values.data, loaded.tokenizer
    reading = dataclasses.replace(tokenizer.settings(data), split="position")
    if data.newlines == "auto" and tokenizer.folded and "\r" not in (tokenizer.characters or ""):
        return dataclasses.replace(reading, newlines="fold")  # a line end \r\n would be a rare character and a \n
    return reading


def read_texts(names: Sequence[str], loaded: "LoadedModel", settings: Tree) -> list[tuple[str, str]]:
    """The texts that `names` mean, or the validation split of the run, normalised, each with its label. Raises UserError."""
    from chargpt.analysis.scored_text import text_of
    from chargpt.text.corpus import check_effect
    from chargpt.text.source import Sources
    from chargpt.text.sources import select_sources

    if not names:
        return [("validation split", text_of(loaded.corpus().val, loaded.tokenizer))]
    data = dataclasses.replace(reading_of(loaded, settings), val_text="")
    sources = select_sources(names, data, root=project_root())
    check_effect(settings.get("data", {}), data, names, sources)
    return [(source.label, text_in(Sources(train=[source], val=[], notes=[]), data)) for source in sources.train]


def is_run(word: str) -> bool:
    """Whether a word among the texts names a run or a kept file: nothing else of that name is there."""
    is_text = word in ("-", *NAMES) or Path(word).exists() and not has_steps(Path(word))
    is_kept, checkpoints = Path(word).suffix == KEPT and Path(word).is_file(), project_root() / "checkpoints"
    return is_kept or (not is_text and (means_start(word, checkpoints) or any(map(has_steps, places_of(word, checkpoints)))))


def runs_and_texts(run: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Each run with its texts: those that follow it, and without any those of the last run, which are then the same. Raises
    UserError for a run that is given twice."""
    found: dict[str, list[str]] = {run: []}
    for word in words:
        if word in found:
            raise UserError(f"{word}: given twice; give each run once, and score other texts with it by a command of their own")
        if is_run(word):
            found[word] = []
        else:
            found[[*found][-1]].append(word)
    return {name: texts or [*found.values()][-1] for name, texts in found.items()}


def lines_of_runs(options: Namespace, unit: str) -> dict[str, Lines]:
    """The lines, or items, of the texts of each run with their bits; as many of each. Raises UserError."""
    import numpy as np

    from chargpt.analysis.scored_text import Line

    columns, fingerprints = dict[str, Lines](), set()
    for name, texts in options.runs.items():
        loaded = load_run(name, device=options.device)
        fingerprints.add(loaded.fingerprint)
        if options.items:
            items = zip(*scored_items(texts, loaded, options))
            columns[name] = [(item.label, Line(n, item.text, np.array([bits]))) for n, (item, bits) in enumerate(items, 1)]
        else:
            columns[name] = [(label, line) for label, lines in scored_texts(texts, loaded, options)[2] for line in lines]
    if len(fingerprints) > 1 and not any(options.runs.values()):
        what = "trained on different texts, so they have no validation split in common; add a TEXT"
        raise UserError(f"{' '.join(columns)}: {what}")
    first = next(iter(columns))
    for name, lines in columns.items():
        if len(lines) != len(columns[first]):
            what = f"{len(lines):,} {unit}s for {name}, and {len(columns[first]):,} for {first}"
            raise UserError(f"{what}; give texts with the same {unit}s, in the same order")
    return columns


def compare(options: Namespace) -> None:
    """Print the bits of each line, or item, under each run, or means, beside those of the first one. Raises UserError."""
    unit = "item" if options.items else "line"
    columns = lines_of_runs(options, unit)
    first = next(iter(columns))
    spoken = [row for row in zip(*columns.values()) if all(line.text.strip() for _, line in row)]
    if len(spoken) < 2:
        raise UserError(f"{first}: fewer than two {unit}s that are not blank; give a longer text")
    summary = against_first(columns, spoken, unit)
    if options.json:
        for row in spoken:
            (text, line), bits = row[0], {name: round(one.total, 4) for name, (_, one) in zip(columns, row)}
            write_json({"text": text, "line": line.number, "content": line.text, "bits": bits})
        write_json({f"{unit}s": len(spoken), "runs": summary})
    elif options.tsv:
        print_tsv(columns)
    cells = [[f"{value:.3f}" if isinstance(value, float) else value or "" for value in one.values()] for one in summary]
    table = aligned([["", f"bits/{unit}", "difference", "±"], *cells])
    print(*table, sep="\n", file=sys.stderr if options.json or options.tsv else sys.stdout)
    log(f"on {len(spoken):,} {unit}s; fewer bits are better; ±: the standard error of the mean difference to {first} in one")


def against_first(
    names: Iterable[str], rows: "Sequence[Sequence[tuple[str, Line]]]", unit: str
) -> list[dict[str, str | float | None]]:
    """The mean bits of a line or an item under each run, and the mean difference to the first run with its standard error."""
    import numpy as np

    bits = np.array([[line.total for _, line in row] for row in rows])  # (lines, runs)
    differences = bits - bits[:, :1]
    errors = differences.std(axis=0, ddof=1) / math.sqrt(len(rows))
    means = np.stack([bits.mean(axis=0), differences.mean(axis=0), errors], axis=1).round(4).tolist()
    means[0][1:] = None, None
    return [
        dict(zip(("run", f"bits_per_{unit}", "difference", "standard_error"), (name, *row))) for name, row in zip(names, means)
    ]


def print_tsv(columns: dict[str, Lines]) -> None:
    """A table with tabs: each line with its bits under each run, and the differences to the first one."""
    names = [*map(one_line, columns)]
    head = [*(f"bits {name}" for name in names), *(f"difference {name}" for name in names[1:])]
    print("text", "line", *head, "content", sep="\t")
    for (text, line), *others in zip(*columns.values()):
        totals = [line.total, *(other.total for _, other in others)]
        numbers = [f"{number:.4f}" for number in (*totals, *(total - totals[0] for total in totals[1:]))]
        print(one_line(text), line.number, *numbers, one_line(line.text.rstrip("\n")), sep="\t")
