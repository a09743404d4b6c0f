"""`python -m chargpt score`: how well a model predicts a text, in total, by line and by character.

The texts are read and normalised as the training text of the run was.
"""

import contextlib
import dataclasses
import heapq
import itertools
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from chargpt.commands.frame import (
    add_run_options,
    corpus_of_run,
    items_for,
    label_counts,
    load_run,
    page_file,
    print_json,
    run_verb,
    stride_within,
    verb_parser,
)
from chargpt.planning.cli import given_in, texts_and_settings
from chargpt.project import project_root
from chargpt.terminal import Parser, UserError, log, one_line, whole_number
from chargpt.text.source_bytes import Source, Sources

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.analysis.baselines import Baselines, NgramBits
    from chargpt.analysis.scored_text import Line, Piece, Summary, Total
    from chargpt.config import DataConfig
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.cache import EncodedText
    from chargpt.text.tokenizer import Tokenizer

# Settings of how a text is read. All others belong to the run.
READING = ("data.encoding", "data.field", "data.format", "data.pattern", "data.separator")
# Characters that are scored at a time.
PIECE = 2**14
# Lines or items that are printed, if --top does not say how many.
TOP = 20


def main(argv: Sequence[str]) -> int:
    """Score the texts that the options in `argv` name. Returns the exit code. Raises UserError."""
    return run_verb(parse_options, argv, score)


def parse_options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`, with texts and settings told apart. Raises UserError."""
    options = _parser().parse_intermixed_args(argv)
    options.texts, options.settings = texts_and_settings(options.words)
    _check(options)
    if options.top is None and not options.lines:
        options.top = TOP
    return options


def _check(options: Namespace) -> None:
    """Raise UserError for options that contradict each other, or that do nothing."""
    for key in sorted(given_in(options.settings) - set(READING)):
        raise UserError(f"{key}: given, but score takes this setting from the run; use one of {', '.join(READING)}")
    if options.settings and not options.texts:
        raise UserError(f"{options.settings[0]}: given without a TEXT to read; add one, or leave it out")
    others = {"--items": options.items, "--lines": options.lines, "--surprise": options.surprise, "--html": options.html}
    if options.compare is not None and any(others.values()):
        other = next(name for name, given in others.items() if given)
        raise UserError(f"--compare: {other} given as well; leave out one of the two")
    for name in ("--lines", "--surprise", "--html"):
        if options.items and others[name]:
            raise UserError(f"--items: {name} given as well; leave out one of the two")
    if options.top is not None and not (options.compare or options.items or options.lines):
        raise UserError("--top: given without --compare, --items or --lines; add one of them, or leave it out")


def _parser() -> Parser:
    parser = verb_parser(
        "score",
        "RUN [TEXT ...] [section.key=value ...] [option ...]",
        "How well a trained model predicts a text: bits per character and per byte, beside gzip, bzip2, xz, zstd "
        "and an n-gram model. The first character of a text is not predicted. A character that the model does not know costs "
        "20.1 bits, a choice among all code points of Unicode, and the model does not see it.",
    )
    add = parser.add_argument
    add_run_options(parser)
    add(
        "words",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="a file, a folder, - for standard input, or a named corpus, read as in training; several give a line each and a "
        "total (default: the validation split of the run's own text); and settings of how a TEXT is read: "
        + ", ".join(f"{key}=..." for key in READING),
    )
    add(
        "--stride",
        type=whole_number(1),
        metavar="N",
        help="begin a window every N characters; each character is then predicted from at least the context less N characters "
        "(default: half of the context). If N is the whole context, the windows are those of the validation loss",
    )
    add(
        "--compare",
        metavar="RUN",
        help="score with this run too, and print the lines on which the two differ most, in bits, most different first",
    )
    add(
        "--top",
        type=whole_number(1),
        metavar="N",
        help=f"how many lines (--compare) or items (--items) are printed (default: {TOP}); with --lines, the N lines of most "
        "bits",
    )
    output = parser.add_argument_group("what is printed, besides the totals, which then go to standard error")
    either = output.add_mutually_exclusive_group().add_argument
    output.add_argument(
        "--items", action="store_true", help="for a run on items: the bits of each item, the --top most surprising first"
    )
    either("--lines", action="store_true", help="the bits of each line")
    either("--surprise", action="store_true", help="the text, each character coloured by how little the model expected it")
    either(
        "--json", action="store_true", help="a JSON object for each line, with the bits of each character, and one of totals"
    )
    output.add_argument(
        "--html", type=page_file, metavar="FILE", help="also write a page that shows the text coloured, to open in a browser"
    )
    return parser


def score(options: Namespace) -> None:
    """Score the texts. Raises UserError."""
    loaded = load_run(options.run, device=options.device)
    if options.items:
        score_items(options, loaded)
        return
    _check_labels(loaded, is_compared=options.compare is not None)
    others = [] if options.compare is None else [load_run(options.compare, device=options.device)]
    for other in others:
        _check_labels(other, is_compared=True)
    stride = stride_within(options.stride, loaded.model.config.block_size)
    with open_texts(options.texts, loaded, settings=options.settings) as texts:
        if others:
            compare(options, texts, loaded, *others)
        else:
            score_texts(options, loaded, texts, stride=stride)


def _check_labels(loaded: "LoadedModel", *, is_compared: bool) -> None:
    """Raise UserError for a run on items with labels."""
    if loaded.config.data.label_fields:
        what_to_do = "score it alone, with --items" if is_compared else "use --items"
        raise UserError(f"{loaded.run}: was trained on items with labels, which are given and not predicted; {what_to_do}")


def score_items(options: Namespace, loaded: "LoadedModel") -> None:
    """Print the most surprising items with their bits, and the mean of all. Raises UserError."""
    from chargpt.analysis.item_labels import guess_labels
    from chargpt.analysis.scored_text import UNKNOWN_BITS

    items = items_for(loaded, options.texts, options.settings)
    unlabelled = bool(loaded.config.data.label_fields) and not all(item.label for item in items)
    losses = guess_labels(loaded, items, label_counts(loaded)).losses if unlabelled else loaded.item_losses(items)
    bits = losses / math.log(2) + [UNKNOWN_BITS * len(loaded.tokenizer.encode_known(item.text)[1]) for item in items]
    if not options.json:
        print(f"{'bits':>9}{'bits/char':>11}  item")
    for number in (-bits).argsort(kind="stable")[: options.top].tolist():
        item, total = items[number], float(bits[number])
        each = total / (len(item.text) + 1)  # its end is predicted too
        if options.json:
            print_json({"number": number + 1, "label": item.label or None, "item": item.text, "bits": round(total, 4)})
        else:
            print(f"{total:>9.2f}{each:>11.3f}  {number + 1}: {one_line(f'{item.label} ' * bool(item.label) + item.text)}")
    characters = sum(len(item.text) + 1 for item in items)
    log(f"{len(items):,} items: {bits.mean():.3f} bits per item, {bits.sum() / characters:.4f} per character")


def score_texts(options: Namespace, loaded: "LoadedModel", texts: "list[Text]", *, stride: int) -> None:
    """Print what the options ask for, and write the page."""
    from chargpt.analysis.baselines import Baselines, NgramBits
    from chargpt.analysis.scored_text import UNKNOWN_BITS, Summary, Total, lines_of, score_pieces
    from chargpt.commands.score_output import new_printer, print_notes
    from chargpt.pages.score_page import Page
    from chargpt.text.report import MAX_OVERLAP

    size = loaded.model.config.block_size
    facts = {"run": loaded.run, "step": loaded.step, "context": size, "stride": stride}
    summary, printer = Summary(facts), new_printer(options)
    others, ngram = Baselines(), NgramBits(lambda: corpus_of_run(loaded))
    page = Page() if options.html else None
    listeners = [listener for listener in (printer, page) if listener is not None]
    sizes = [text.size for text in texts if text.size is not None]
    length = sum(sizes) if len(sizes) == len(texts) else None
    with tqdm(total=length, unit="B", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        for text in texts:
            total = Total()
            summary.texts.append((text.label, total))
            for listener in listeners:
                listener.begin(text.label)
            if options.lines and text.has_fields(loaded):
                log(f"{text.label}: the lines are those of the field that was read; their numbers are not those of the file")
            pieces = _watched(text.pieces(loaded), loaded.tokenizer, summary, others, ngram, bar)
            for line in lines_of(score_pieces(loaded.model, loaded.tokenizer, pieces, stride=stride, total=total)):
                for listener in listeners:
                    listener.add(line)
    check_not_empty(texts, summary.total.ids)
    summary.sizes, summary.ngram = others.sizes(), ngram.bits(unknown=UNKNOWN_BITS)
    if page is not None:
        page.write(options.html, summary)
    if printer is not None:
        printer.end(summary)
    print(*summary.table(), sep="\n", file=sys.stdout if printer is None else sys.stderr)
    print_notes(summary, loaded.tokenizer, page=options.html)
    if options.texts and (share := ngram.in_training()) > MAX_OVERLAP:
        log(f"{share:.0%} of the text is lines of the run's training text, so this is not a loss on new text")


def compare(options: Namespace, texts: "list[Text]", first: "LoadedModel", second: "LoadedModel") -> None:
    """Print what each of the two models makes of the texts, and the `options.top` lines on which they differ most.

    The stride None is half of each model's context. Raises UserError if the models read the text as different lines.
    """
    from chargpt.analysis.scored_text import Total
    from chargpt.commands.score_output import Difference, print_comparison, print_json_comparison

    models, totals = (first, second), (Total(), Total())
    most: list[Difference] = []
    numbers = itertools.count()
    for text in texts:
        for a, b in _pairs(text, models, totals, options.stride):
            entry = Difference(abs(b.total - a.total), next(numbers), text.label, a, b)
            (heapq.heappush if len(most) < options.top else heapq.heappushpop)(most, entry)
    check_not_empty(texts, totals[0].ids)
    most.sort(key=lambda entry: (-entry.bits, entry.number))
    scored = [(loaded.run, total) for loaded, total in zip(models, totals)]
    (print_json_comparison if options.json else print_comparison)(scored, most)


def _pairs(
    text: "Text", models: "tuple[LoadedModel, ...]", totals: "tuple[Total, ...]", stride: int | None
) -> "Iterator[tuple[Line, Line]]":
    """Each line of a text as scored by the first and by the second model."""
    from chargpt.analysis.scored_text import Total, lines_of, score_pieces

    def lines(loaded: "LoadedModel", total: "Total") -> "Iterator[Line]":
        step = stride_within(stride, loaded.model.config.block_size)
        counted = Total()
        yield from lines_of(score_pieces(loaded.model, loaded.tokenizer, text.pieces(loaded), stride=step, total=counted))
        total.add(counted)

    for a, b in itertools.zip_longest(*(lines(loaded, total) for loaded, total in zip(models, totals))):
        if a is None or b is None or a.number != b.number:
            raise UserError(f"{text.label}: the two models read it as different lines; use models with the same data.newlines")
        yield a, b


def _watched(
    pieces: "Iterator[Piece]",
    tokenizer: "Tokenizer",
    summary: "Summary",
    others: "Baselines",
    ngram: "NgramBits",
    bar: tqdm,
) -> "Iterator[Piece]":
    """The same pieces; other programs compress them, and the progress bar shows how far the text is read."""
    import numpy as np

    for piece in pieces:
        if isinstance(piece, bytes):
            data, ids = piece, np.frombuffer(piece, np.uint8)
            summary.characters += int(((ids & 0xC0) != 0x80).sum())
        else:
            data, ids = piece.encode("utf-8", "surrogatepass"), tokenizer.ids_of(piece)
            summary.characters += len(piece)
        summary.bytes += len(data)
        others.add(data)
        ngram.add(ids.astype(np.int64))
        bar.update(len(data))
        yield piece


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of a known name: a source to read, or an encoded text, of which the validation split is meant."""

    label: str
    content: "Source | EncodedText"
    settings: Sequence[str] = ()  # section.key=value, how the source is read

    @property
    def size(self) -> int | None:
        """The number of bytes to read, or of ids; None if it is known only after reading."""
        return self.content.size if isinstance(self.content, Source) else len(self.content.val)

    def has_fields(self, loaded: "LoadedModel") -> bool:
        """Whether one field of its records is read, and not the file as it is."""
        from chargpt.text.structure import fields_of, read_head

        config = reading_of(loaded, self.settings)
        return isinstance(self.content, Source) and fields_of(self.content, read_head(self.content), config) is not None

    def pieces(self, loaded: "LoadedModel") -> Iterator[str | bytes]:
        """The text, normalised for a model, in parts of at most PIECE characters: bytes for a vocabulary of bytes.

        Raises UserError.
        """
        is_bytes = loaded.tokenizer.characters is None
        for piece in self._parts(loaded):
            if isinstance(piece, bytes) and not is_bytes:
                piece = piece.decode("ascii")
            for start in range(0, len(piece), PIECE):
                part = piece[start : start + PIECE]
                yield part if isinstance(part, str) else bytes(part)

    def _parts(self, loaded: "LoadedModel") -> Iterator[str | bytes]:
        from chargpt.text.reading import TextReader

        if not isinstance(self.content, Source):
            yield from _decoded(self.content, loaded.tokenizer)
            return
        sources = Sources(train=[self.content], val=[], notes=[])
        for _, piece in TextReader(sources, reading_of(loaded, self.settings), progress=tqdm(disable=True), hashed=False):
            yield piece


def reading_of(loaded: "LoadedModel", settings: Sequence[str]) -> "DataConfig":
    """How a text is read for a model: as the training text of its run, but for `settings`. Raises UserError."""
    from chargpt.config import apply_overrides
    from chargpt.planning.settings import by_fields

    config = apply_overrides(loaded.config, settings)
    data, tokenizer = by_fields(config, given_in(settings)).data, loaded.tokenizer
    reading = dataclasses.replace(tokenizer.settings(data), split="position")
    if data.newlines == "auto" and tokenizer.folded and "\r" not in (tokenizer.characters or ""):
        return dataclasses.replace(reading, newlines="fold")  # a line end \r\n would be a rare character and a \n
    return reading


def _decoded(encoded: "EncodedText", tokenizer: "Tokenizer") -> Iterator[str | bytes]:
    """The validation split of an encoded text for a model with this tokenizer, which may be another one than its own."""
    own, ids = encoded.tokenizer, encoded.val
    if own.characters is None and tokenizer.characters is None:
        yield from (ids[start : start + PIECE].tobytes() for start in range(0, len(ids), PIECE))
        return
    stream = own.stream()
    pushed = (stream.push(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE))
    decoded = itertools.chain(pushed, (stream.finish() for _ in range(1)))  # the end of it when all is pushed
    for piece in tokenizer.normalizer.apply_in_pieces(decoded):
        yield piece.encode() if tokenizer.characters is None else piece


@contextlib.contextmanager
def open_texts(names: Sequence[str], loaded: "LoadedModel", *, settings: Sequence[str] = ()) -> Iterator[list[Text]]:
    """The texts that `names` mean, as TEXT of train.py, read with `settings`; without a name, the run's validation split.

    Raises UserError, also if that validation split is in no cache, and for a setting that does nothing.
    """
    from chargpt.text.corpus import check_effect
    from chargpt.text.sources import select_sources

    if not names:
        yield [Text(label="validation split", content=corpus_of_run(loaded))]
        return
    data, root = reading_of(loaded, settings), project_root()
    sources = select_sources(names, val_text="", pattern=data.pattern, root=root, copies=root / "data" / "cache")
    with contextlib.closing(sources):
        check_effect(given_in(settings), names, dataclasses.replace(data, val_text=""), sources)
        yield [Text(label=source.label, content=source, settings=settings) for source in sources.train]


def check_not_empty(texts: Sequence[Text], predicted: int) -> None:
    """Raise UserError if none of their characters was `predicted`: the first one of a text is not."""
    if not predicted:
        names = texts[0].label if len(texts) == 1 else f"{len(texts):,} texts"
        raise UserError(f"{names}: no character to predict; give a text of two or more")
