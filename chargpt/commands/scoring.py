"""What `score` does once its options are read: texts through the model, to the printer, the page and other programs."""

import argparse
import sys
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

from chargpt.analysis.baselines import Baselines, NgramMark
from chargpt.analysis.scored_text import UNKNOWN_BITS, Piece, Summary, Total, describe_unknown, lines_of, score_pieces
from chargpt.commands.compare import compare
from chargpt.commands.frame import corpus_of_run, load_run, stride_within
from chargpt.commands.score_output import ColourPrinter, JsonLinePrinter, LinePrinter, Printer
from chargpt.commands.texts import Text, check_not_empty, open_texts
from chargpt.pages.score_page import Page
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.printing import LEGEND, NO_TERMINAL
from chargpt.terminal import log
from chargpt.text.tokenizer import Tokenizer


def score(options: argparse.Namespace) -> int:
    """Score the texts that the options of `score` name. Returns the exit code. Raises UserError."""
    loaded = load_run(options.run, device=options.device)
    stride = stride_within(options.stride, loaded.model.config.block_size)
    with open_texts(options.texts, loaded) as texts:
        if options.compare is not None:
            other = load_run(options.compare, device=options.device)
            return compare(texts, loaded, other, stride=options.stride, top=options.top, as_json=options.json)
        return score_texts(options, loaded, texts, stride=stride)


def score_texts(options: argparse.Namespace, loaded: LoadedModel, texts: list[Text], *, stride: int) -> int:
    """Print what the options ask for, and write the page."""
    size = loaded.model.config.block_size
    facts = {"run": loaded.run, "step": loaded.step, "context": size, "stride": stride}
    summary, printer = Summary(facts), new_printer(options)
    others, ngram = Baselines(), NgramMark(lambda: corpus_of_run(loaded))
    page = Page() if options.html else None
    listeners = [listener for listener in (printer, page) if listener is not None]
    sizes = [text.size for text in texts]
    length = None if None in sizes else sum(sizes)
    with tqdm(total=length, unit="B", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        for text in texts:
            total = Total()
            summary.texts.append((text.label, total))
            for listener in listeners:
                listener.begin(text.label)
            pieces = _watched(text.pieces(loaded.tokenizer, loaded.config.data), loaded.tokenizer, summary, others, ngram, bar)
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
    say_notes(summary, loaded, options)
    return 0


def say_notes(summary: Summary, loaded: LoadedModel, options: argparse.Namespace) -> None:
    """What a reader of the table has to know."""
    facts, total = summary.facts, summary.total
    log(f"windows of {facts['context']:,} characters, one every {facts['stride']:,}")
    if total.unknown:
        log(describe_unknown(total, loaded.tokenizer))
    if summary.ngram is None:
        log("no n-gram mark: the training text of the run is not in the cache, or the text is too short")
    if options.html:
        log(f"page: {options.html}")


def new_printer(options: argparse.Namespace) -> Printer | None:
    """What prints the text, None if only the totals are wanted."""
    if options.json:
        return JsonLinePrinter(sys.stdout)
    if options.lines:
        return LinePrinter(sys.stdout)
    if options.surprise:
        log(LEGEND if sys.stdout.isatty() else NO_TERMINAL)
        return ColourPrinter(sys.stdout)
    return None


def _watched(
    pieces: Iterator[Piece], tokenizer: Tokenizer, summary: Summary, others: Baselines, ngram: NgramMark, bar: tqdm
) -> Iterator[Piece]:
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
