"""`python -m chargpt score`: how well a model predicts a text, in total, by line and by character.

The texts are read and normalised as the training text of the run was.
"""

import contextlib
import dataclasses
import heapq
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from chargpt.commands.frame import (
    add_run_options,
    items_for,
    load_run,
    page_file,
    print_json,
    run_verb,
    stride_within,
    verb_parser,
)
from chargpt.errors import UserError
from chargpt.planning.cli import settings_in, texts_and_settings
from chargpt.project import project_root
from chargpt.terminal import Parser, log, one_line, whole_number
from chargpt.text.source import Source, Sources

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    import numpy as np

    from chargpt.analysis.scored_text import Line, Piece, Summary
    from chargpt.config import DataConfig
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.tokenizer import Tokenizer

# Settings of how a text is read. All others belong to the run.
READING = ("data.encoding", "data.field", "data.format", "data.pattern", "data.separator")
# Characters that are scored at a time.
PIECE = 2**14
# Items that are printed, if --top does not say how many.
TOP = 20


def main(argv: Sequence[str]) -> int:
    """Score the texts that the options in `argv` name. Returns the exit code. Raises UserError."""
    return run_verb(parse_options, argv, score)


def parse_options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`, with texts and settings told apart. Raises UserError."""
    options = _parser().parse_intermixed_args(argv)
    options.texts, options.settings = texts_and_settings(options.words)
    given = {f"{section}.{name}" for section, values in settings_in(options.settings).items() for name in values}
    for key in sorted(given - set(READING)):
        raise UserError(f"{key}: given, but score takes this setting from the run; use one of {', '.join(READING)}")
    if options.settings and not options.texts:
        raise UserError(f"{options.settings[0]}: given without a TEXT to read; add one, or leave it out")
    if options.items and (options.lines or options.html):
        raise UserError(f"--items: {'--lines' if options.lines else '--html'} given as well; leave out one of the two")
    if options.top is not None and not (options.items or options.lines):
        raise UserError("--top: given without --items or --lines; add one of them, or leave it out")
    return options


def _parser() -> Parser:
    parser = verb_parser(
        "score",
        "RUN [TEXT ...] [section.key=value ...] [option ...]",
        "How well a trained model predicts a text: bits per character and per byte, beside gzip, bzip2, xz "
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
        "--top",
        type=whole_number(1),
        metavar="N",
        help=f"with --items, how many are printed (default: {TOP}); with --lines, the N lines of most bits (default: all)",
    )
    output = parser.add_argument_group("what is printed, besides the totals, which then go to standard error")
    either = output.add_mutually_exclusive_group().add_argument
    output.add_argument(
        "--items", action="store_true", help="for a run on items: the bits of each item, the --top most surprising first"
    )
    either("--lines", action="store_true", help="the bits of each line")
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
    if loaded.config.data.label_fields:
        raise UserError(f"{loaded.run}: was trained on items with labels, which it reads and does not predict; add --items")
    stride = stride_within(options.stride, loaded.model.config.block_size)
    with open_texts(options.texts, loaded, settings=options.settings) as texts:
        score_texts(options, loaded, texts, stride=stride)


def score_items(options: Namespace, loaded: "LoadedModel") -> None:
    """Print the most surprising items with their bits, and the mean of all. Raises UserError."""
    from chargpt.analysis.item_labels import guess_labels
    from chargpt.analysis.scored_text import UNKNOWN_BITS

    items = items_for(loaded, options.texts, options.settings)
    unlabelled = bool(loaded.config.data.label_fields) and not all(item.label for item in items)
    losses = guess_labels(loaded, items, loaded.labels()).losses if unlabelled else loaded.item_losses(items)
    bits = losses / math.log(2) + [UNKNOWN_BITS * len(loaded.tokenizer.encode_known(item.text)[1]) for item in items]
    if not options.json:
        print(f"{'bits':>9}{'bits/char':>11}  item")
    for number in (-bits).argsort(kind="stable")[: options.top or TOP].tolist():
        item, total = items[number], float(bits[number])
        each = total / (len(item.text) + 1)  # its end is predicted too
        if options.json:
            print_json({"number": number + 1, "label": item.label or None, "item": item.text, "bits": round(total, 4)})
        else:
            print(f"{total:>9.2f}{each:>11.3f}  {number + 1}: {one_line(f'{item.label} ' * bool(item.label) + item.text)}")
    characters = sum(len(item.text) + 1 for item in items)
    log(f"{len(items):,} items: {bits.mean():.3f} bits per item, {bits.sum() / characters:.4f} per character")


def score_texts(options: Namespace, loaded: "LoadedModel", texts: "list[Text]", *, stride: int) -> None:
    """Print what the options ask for, and write the page. Raises UserError if no character can be predicted."""
    import numpy as np

    from chargpt.analysis.baselines import Baselines, NgramBits
    from chargpt.analysis.scored_text import UNKNOWN_BITS, Summary, Total, describe_unknown, lines_of, score_pieces
    from chargpt.pages.score_page import Page
    from chargpt.text.report import MAX_OVERLAP

    size, tokenizer = loaded.model.config.block_size, loaded.tokenizer
    summary = Summary({"run": loaded.run, "step": loaded.step, "context": size, "stride": stride})
    others, ngram, page = Baselines(), NgramBits(lambda: loaded.corpus()), Page() if options.html else None
    printed = _Printed(options)

    def watched(pieces: "Iterator[Piece]") -> "Iterator[Piece]":
        """The same pieces; other programs compress them, and the progress bar shows how far the text is read."""
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

    sizes = [text.size for text in texts]
    length = None if None in sizes else sum(filter(None, sizes))
    with tqdm(total=length, unit="B", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        for text in texts:
            total = Total()
            summary.texts.append((text.label, total))
            printed.begin(text)
            if page:
                page.begin(text.label)
            scored = score_pieces(loaded.model, tokenizer, watched(text.pieces(tokenizer)), stride=stride, total=total)
            for line in lines_of(scored):
                printed.add(text, line)
                if page:
                    page.add(line)
    total = summary.total
    if not total.ids:
        names = texts[0].label if len(texts) == 1 else f"{len(texts):,} texts"
        raise UserError(f"{names}: no character to predict; give a text of at least two")
    summary.sizes, summary.ngram = others.sizes(), ngram.bits(unknown=UNKNOWN_BITS)
    if page:
        page.write(options.html, summary)
    printed.end(summary)
    log(f"the model reads windows of {size:,} characters, one every {stride:,}")
    if total.unknown:
        log(describe_unknown(total, tokenizer))
    if summary.ngram is None:
        log("no n-gram model: the training text of the run is not in the cache, or the text is too short")
    if options.html:
        log(f"page: {options.html}")
    if options.texts and (share := ngram.in_training()) > MAX_OVERLAP:
        log(f"{share:.0%} of the text is lines of the run's training text, so this is not a loss on new text")


class _Printed:
    """The lines of texts as `options` ask for them: none, all of them, as JSON, or at the end the --top of most bits."""

    def __init__(self, options: Namespace) -> None:
        self._options, self._lines = options, 0
        self._most: list[tuple[float, int, str]] = []  # a heap: bits, minus the place among all lines, and what is printed
        if options.lines:
            print(f"{'bits/char':>9}{'bits':>10}  line")

    def begin(self, text: "Text") -> None:
        """The lines of a text follow."""
        from chargpt.text.formats import fields_of, read_head

        source = text.content
        if (
            self._options.lines
            and isinstance(source, Source)
            and fields_of(source, read_head(source), text.reading) is not None
        ):
            log(f"{text.label}: line numbers count the lines of the field that was read, not those of the file")
        if self._options.lines and not self._options.top:
            print(f"{'':>19}  {one_line(text.label)}")

    def add(self, text: "Text", line: "Line") -> None:
        """The next line of the text that has begun."""
        self._lines += 1
        if self._options.json:
            bits = [None if math.isnan(value) else round(value, 4) + 0.0 for value in line.bits.tolist()]
            print_json({"text": text.label, "line": line.number, "content": line.text, "bits": bits})
        elif self._options.lines:
            top, mean = self._options.top, "" if math.isnan(line.mean) else f"{line.mean:.3f}"
            place = f"{one_line(text.label)}:{line.number}" if top else line.number
            row = f"{mean:>9}{line.total:>10.1f}  {place}: {one_line(line.text.rstrip())}"
            if not top:
                print(row)
            else:
                (heapq.heappush if len(self._most) < top else heapq.heappushpop)(self._most, (line.total, -self._lines, row))

    def end(self, summary: "Summary") -> None:
        """The totals; beside lines, on standard error."""
        if self._options.json:
            print_json(summary.to_json())
        for _, _, row in sorted(self._most, reverse=True):
            print(row)
        file = sys.stderr if self._options.json or self._options.lines else sys.stdout
        print(*summary.table(), sep="\n", file=file)


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of a known name: a source to read, or the ids of the validation split of the run."""

    label: str
    content: "Source | np.ndarray"
    reading: "DataConfig"  # how the source is read

    @property
    def size(self) -> int | None:
        """The number of bytes to read, or of ids; None if it is known only after reading."""
        return self.content.size if isinstance(self.content, Source) else len(self.content)

    def pieces(self, tokenizer: "Tokenizer") -> Iterator[str | bytes]:
        """The text, normalised for the model of this tokenizer, in parts of at most PIECE characters.

        They are bytes for a vocabulary of bytes. Raises UserError.
        """
        from chargpt.text.reading import TextReader

        is_bytes = tokenizer.characters is None
        if not isinstance(self.content, Source):
            for start in range(0, len(self.content), PIECE):
                ids = self.content[start : start + PIECE]
                yield ids.tobytes() if is_bytes else tokenizer.decode(ids)
            return
        sources = Sources(train=[self.content], val=[], notes=[])
        for _, piece in TextReader(sources, self.reading, progress=tqdm(disable=True)):
            whole = piece.encode("latin-1") if is_bytes else piece
            for start in range(0, len(whole), PIECE):
                part = whole[start : start + PIECE]
                yield part if isinstance(part, str) else bytes(part)


def reading_of(loaded: "LoadedModel", settings: Sequence[str]) -> "DataConfig":
    """How a text is read for a model: as the training text of its run, but for `settings`. Raises UserError."""
    from chargpt.config import COMMAND_LINE, Settings, Source
    from chargpt.planning.settings import by_fields

    typed = settings_in(settings)
    given = Settings(loaded.config).give(typed, source=Source.USER, where=COMMAND_LINE)
    data, tokenizer = by_fields(given, typed).values.data, loaded.tokenizer
    reading = dataclasses.replace(tokenizer.settings(data), split="position")
    if data.newlines == "auto" and tokenizer.folded and "\r" not in (tokenizer.characters or ""):
        return dataclasses.replace(reading, newlines="fold")  # a line end \r\n would be a rare character and a \n
    return reading


@contextlib.contextmanager
def open_texts(names: Sequence[str], loaded: "LoadedModel", *, settings: Sequence[str] = ()) -> Iterator[list[Text]]:
    """The texts that `names` mean, as TEXT of train.py, read with `settings`; without a name, the run's validation split.

    Raises UserError, also if that validation split is in no cache, and for a setting that does nothing.
    """
    from chargpt.text.corpus import check_effect
    from chargpt.text.sources import select_sources

    data, root = reading_of(loaded, settings), project_root()
    if not names:
        yield [Text(label="validation split", content=loaded.corpus().val, reading=data)]
        return
    sources = select_sources(names, val_text="", pattern=data.pattern, root=root, copies=root / "data" / "cache")
    check_effect(settings_in(settings).get("data", {}), dataclasses.replace(data, val_text=""), names, sources)
    yield [Text(label=source.label, content=source, reading=data) for source in sources.train]
