"""Items on standard output, as lines or JSON lines, and the table at the end: written, unique and new."""

import difflib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from chargpt.errors import UserError, shell_word
from chargpt.runs.load import corpus_in_cache
from chargpt.sampling.items import ATTEMPTS, LONGEST, NO_MATCH, TOO_LONG, TOO_SHORT, ItemFilter, ItemStats, write_items
from chargpt.sampling.loaded_run import LoadedRun
from chargpt.sampling.options import SampleOptions
from chargpt.sampling.text_generator import TextGenerator
from chargpt.terminal import escape_controls, json_line, log
from chargpt.text.cache import EncodedText
from chargpt.text.items import Item, end_in, item_prompt, items_in

# Items that are written if no number is given.
DEFAULT_ITEMS = 10
# Ids of a training text up to which its items are known without --new.
QUICK_TO_READ = 2**24
# Labels that an error lists.
LISTED = 12
# For each reason to refuse an item: the option that asks for it.
OPTIONS = {TOO_LONG: "--max-length", TOO_SHORT: "--min-length", NO_MATCH: "--match"}
NOT_IN_CACHE = "the training text of this run is not in the cache; train.py --resume encodes it again if it is unchanged"


def writes_items(options: SampleOptions, loaded: LoadedRun) -> bool:
    """Whether these options ask for items. Raises UserError if this run has none."""
    is_list = bool(loaded.config.data.items)
    asked = options.items or options.label is not None or options.new
    if asked and not is_list:
        given = "--items" if options.items else "--label" if options.label is not None else "--new"
        raise UserError(f"{given}: the run {loaded.run} was not trained on items; leave it out, or train with --items")
    of_text = options.sampling.lines or options.samples > 1 or options.sampling.stop or options.unseen
    return is_list and not of_text


def labels_of(options: SampleOptions, loaded: LoadedRun, corpus: EncodedText | None) -> Mapping[str, int]:
    """The labels to write, and how often each: the one that is given, or those of the training text. Raises UserError."""
    known = {} if corpus is None or corpus.items is None else corpus.items.labels
    if not loaded.config.data.label_fields:
        if options.label is not None:
            raise UserError(f"--label: {options.label!r} given, but the run {loaded.run} has no labels; leave it out")
        return {}
    if options.label is None:
        if not known:
            raise UserError(f"--label: {NOT_IN_CACHE}; give a label")
        return known
    label = loaded.tokenizer.normalizer.apply(" ".join(options.label.split()))
    if known and label not in known:
        close = difflib.get_close_matches(label, known, n=3, cutoff=0.4)
        raise UserError(f"--label: {label!r} given; use one of {_listed(dict.fromkeys([*close, *known]))}")
    if not known:
        log(f"--label: not checked; {NOT_IN_CACHE}")
    return {label: 1}


def _listed(labels: Iterable[str]) -> str:
    """The first LISTED of the labels, as they are typed in a shell, and how many more there are."""
    words = [shell_word(label) for label in labels]
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED:,} more" if len(words) > LISTED else "")


def beginning_of_items(options: SampleOptions, loaded: LoadedRun, *, root: Path) -> tuple[list[int], list[str]]:
    """With --interactive: the ids before an item, and what ends it. Raises UserError without a label where there are some."""
    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=root)
    labels = labels_of(options, loaded, corpus)
    if len(labels) > 1:
        raise UserError(f"--interactive: completes items of one label; give --label, one of {_listed(labels)}")
    tokenizer = loaded.tokenizer
    return tokenizer.encode(item_prompt(tokenizer, next(iter(labels), ""))).tolist(), [end_in(tokenizer)]


def print_items(
    options: SampleOptions,
    loaded: LoadedRun,
    generator: TextGenerator,
    *,
    file: TextIO,
    root: Path,
    stop: Callable[[], bool],
) -> None:
    """Write the items that the options ask for to `file`, and a table to standard error. Raises UserError.

    When `stop()` becomes true, no more items are made.
    """
    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=root)
    labels = labels_of(options, loaded, corpus)
    if options.new and corpus is None:
        raise UserError(f"--new: {NOT_IN_CACHE}")
    known = None
    if corpus is not None and (options.new or len(corpus.train) <= QUICK_TO_READ):
        known = frozenset(item.text for item in items_in(corpus.train, corpus.tokenizer, has_labels=bool(labels)))
    wanted = ItemFilter(
        count=options.items or DEFAULT_ITEMS,
        unique=options.sampling.unique,
        new=options.new,
        match=options.match,
        min_length=options.min_length,
        max_length=LONGEST if options.longest_item is None else options.longest_item,
    )
    beginning = loaded.tokenizer.normalizer.apply(options.prompt)
    started, stats = time.perf_counter(), ItemStats()
    for item in write_items(
        generator, wanted, labels=labels, seed=options.sampling.seed or 0, known=known, beginning=beginning, stats=stats
    ):
        if not options.json:
            text = f"{item.label}\t{item.text}" if item.label and options.label is None else item.text
            file.write((escape_controls(text) if file.isatty() else text) + "\n" * (1 + ("\n" in item.text)))
            file.flush()
        if stop():
            break
    seconds, written, refused = time.perf_counter() - started, len(stats.written), stats.refused.most_common()
    if options.json:
        _print_json(loaded, stats.written, known, file)
    why = ", ".join(f"{what} {count:,}" for what, count in refused)
    log(f"written   {written:>7,}  of {wanted.count:,} in {seconds:.1f} s" + (f"; refused: {why}" if why else ""))
    log(f"unique    {stats.unique:>7,}  {stats.unique / max(1, written):6.1%}")
    is_known = known is not None
    log(
        f"new       {stats.new:>7,}  {stats.new / max(1, written):6.1%}" if is_known else f"new       not known: {NOT_IN_CACHE}"
    )
    if written < wanted.count and refused:
        what_to_do = f"change {OPTIONS[refused[0][0]]}, " if refused[0][0] in OPTIONS else ""
        log(f"no more items: {ATTEMPTS:,} in a row were refused; {what_to_do}raise --temperature, or ask for less")


def _print_json(loaded: LoadedRun, items: Sequence[Item], known: frozenset[str] | None, file: TextIO) -> None:
    """A JSON object for each item, with its log-probability given the label, in nats, before any sampling rule."""
    from chargpt.sampling.loaded_model import LoadedModel, load_model  # imports torch, which computes losses

    model = loaded if isinstance(loaded, LoadedModel) else load_model(str(loaded.path), loaded.path, device="cpu")[0]
    for item, loss in zip(items, model.item_losses(items).tolist()):
        value: dict[str, object] = {"label": item.label} if item.label else {}
        value |= {"item": item.text, "log_probability": round(-loss, 4), "bits": round(loss / math.log(2), 4)}
        value |= {} if known is None else {"new": item.text not in known}
        file.write(json_line(value, file) + "\n")
    file.flush()
