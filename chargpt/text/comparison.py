"""Compares a text that has grown with those of earlier runs: what they have learned from, what they hold out, what is new.
Files may be renamed, moved or added anywhere: passages are recognised by the hashes of all their windows of WINDOW characters;
in long texts, of a share of these."""

import dataclasses
import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chargpt.config import DataConfig
from chargpt.text.cache import EncodedText
from chargpt.text.document import TRAIN, VAL
from chargpt.text.growth import Growth, Stretch
from chargpt.text.ids import Cutter, Part, Split, split_of
from chargpt.text.reading import TextReader
from chargpt.text.tokenizer import CODE_POINTS, FOLDED, code_points

WINDOW = 32  # characters, a power of two
MOST_MARKS = 2**19  # windows that are compared, about
FACTOR = 0x9E3779B97F4A7C15  # odd, so that no character is lost from a hash
FAR_APART = 8  # times the mean distance of the windows that are compared: by chance, no two neighbours are so far apart
CERTAIN = 2 * WINDOW  # characters that agree by chance in no text, unless it is a formula
# Of the training text, that was known, and the characters of a block of it: see docs/lab/growth.md.
REPEATED, BLOCK = 0.5, 2000
LEAST_REPEATED = 10 * BLOCK  # characters, beside a sentence or two that are new
MOST_BLOCKS = 5_000  # larger ones, of a long text: the state of a run lists them
GAP = 500  # characters: a shorter unknown passage between two known ones stays on their side, as an edit or a poem between
LEAST = 0.01  # of a text, that an earlier run must have read; with less, it quotes that one, but does not go on from it
_Kind = tuple[int | None, bool]  # the side of a passage, and whether it is new
NEW, BOTH = 2, 3  # sides, beside TRAIN and VAL; of a window that is in both, little follows


def compare(earlier: Sequence[EncodedText], config: DataConfig, read: Callable[[DataConfig], TextReader]) -> Growth:
    """How the text that is read with `config` goes on from those of earlier runs, of which there is one at least. If it has
    little of them, it has no stretches. `read` gives a reader of the text with other settings."""
    reader, comparison = read(dataclasses.replace(config, split="position")), Comparison(earlier)
    for _, piece in reader:
        comparison.add(code_points(piece))
    passages = comparison.passages()
    known = sum(passage.end - passage.start for passage in passages if not passage.is_new)
    goes_on = known and known >= LEAST * passages[-1].end
    stretches = divided(passages, config, ends=reader.ends) if goes_on else []
    return Growth(earlier=[text.fingerprint for text in earlier], stretches=stretches)


def held_out_by_all(texts: Sequence[EncodedText]) -> str:
    """What the validation splits of several texts have in common, in the order of the first."""
    first, *others = texts
    shared = first.tokenizer.decode(first.val)
    for other in others:
        comparison = Comparison([other])
        comparison.add(code_points(shared))
        shared = "".join(shared[one.start : one.end] for one in comparison.passages() if one.side == VAL)
    return shared


@dataclass(frozen=True)
class Passage:
    """A part of a text: what an earlier run has learned from (TRAIN), or holds out (VAL), what is in neither (None), or NEW."""

    start: int  # in characters of the text
    end: int
    side: int | None
    is_new: bool  # also between two passages that are known, and then on their side


class Comparison:
    """Compares a text, while it is read, with those of earlier runs."""

    def __init__(self, earlier: Sequence[EncodedText]) -> None:
        self._read_as = np.arange(CODE_POINTS, dtype=np.uint32)  # one character for all that an earlier run does not tell apart
        for text in earlier:
            if text.tokenizer.folded:
                self._read_as[np.isin(self._read_as, code_points(text.tokenizer.characters or ""), invert=True)] = ord(FOLDED)
        total = sum(text.characters for text in earlier)
        self._bits = max(0, math.ceil(math.log2(max(1, total) / MOST_MARKS)))  # of a hash, that are 0 in those compared
        hashes = [np.unique(np.concatenate([self._marks(_points(text, side))[1] for text in earlier])) for side in (TRAIN, VAL)]
        known, first, times = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
        self._known = np.append(known, np.uint64(2**64 - 1))  # so that a search always ends at one
        self._sides = np.append(np.where(times > 1, BOTH, first >= len(hashes[TRAIN])), NEW)  # TRAIN is 0, and VAL 1
        self._tail, self._size, self._found = np.empty(0, np.uint32), 0, [(np.empty(0, np.int64), np.empty(0, np.int64))]

    def add(self, points: np.ndarray) -> None:
        """Compare the next code points, uint32 (n_characters,)."""
        points, start = np.concatenate([self._tail, points]), self._size - len(self._tail)
        places, hashes = self._marks(points)
        nearest = np.searchsorted(self._known, hashes)
        sides = np.where(self._known[nearest] == hashes, self._sides[nearest], NEW)
        self._found.append((places + start, sides))
        self._tail, self._size = points[1 - WINDOW :], start + len(points)

    def passages(self) -> list[Passage]:
        """The passages of the text that was added, in their order, without gaps; one that is NEW if nothing is known."""
        found, done, chance = list[Passage](), 0, max(CERTAIN, FAR_APART << self._bits)
        for known in self._certain():
            before, around = known.start - done, {known.side, *(one.side for one in found[-1:])}
            if before > (max(GAP, chance) if found and around != {None} else chance):
                found.append(Passage(done, known.start, NEW, True))
            elif found and (before > chance or (before > 0 and len(around) > 1)):
                found.append(Passage(done, known.start, known.side if len(around) == 1 else None, before > chance))
            start = found[-1].end if found else 0
            found.append(dataclasses.replace(known, start=start))
            done = known.end
        if found and self._size - done <= chance:
            found[-1] = dataclasses.replace(found[-1], end=self._size)
        elif self._size > done:
            found.append(Passage(done, self._size, NEW, True))
        return found

    def _certain(self) -> Iterator[Passage]:
        """The known passages that are long enough to be no chance, each as long as its windows say. One that is in both splits
        of a text is in neither now, and if it is short, it says nothing."""
        places, sides = (np.concatenate(parts) for parts in zip(*self._found))
        says = np.ones(len(places), bool)
        for first, last in _equal(sides):
            says[first : last + 1] = sides[first] != BOTH or places[last] - places[first] > GAP
        places, sides = places[says], sides[says]
        for first, last in _equal(sides):
            if sides[first] != NEW and (end := places[last] + WINDOW) - places[first] >= CERTAIN:
                yield Passage(int(places[first]), int(end), None if sides[first] == BOTH else int(sides[first]), False)

    def _marks(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the windows of code points begin that are compared, and their hashes, both (n_windows,)."""
        hashes = window_hashes(self._read_as[points])
        places = np.flatnonzero(hashes >> np.uint64(64 - self._bits) == 0) if self._bits else np.arange(len(hashes))
        return places, hashes[places]


def window_hashes(points: np.ndarray) -> np.ndarray:
    """The hash of each window of WINDOW code points, uint64 (n_windows,)."""
    hashes, size, power = points.astype(np.uint64) + np.uint64(1), 1, FACTOR
    while size < WINDOW:  # two neighbours make a window of twice the size
        hashes = hashes[:-size] * np.uint64(power) + hashes[size:]
        size, power = 2 * size, power * power % 2**64
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(FACTOR)
    return hashes


def _equal(sides: np.ndarray) -> Iterator[tuple[int, int]]:
    """The first and the last place of each stretch of equal sides (n,)."""
    cuts = np.flatnonzero(np.diff(sides)) + 1
    return zip([0, *cuts], [*(cuts - 1), len(sides) - 1]) if len(sides) else iter([])


def _points(text: EncodedText, side: int) -> np.ndarray:
    """The code points of one side of an encoded text, or its bytes if these are the vocabulary; uint32."""
    ids, tokenizer = (text.train, text.val)[side], text.tokenizer
    return ids.astype(np.uint32) if tokenizer.characters is None else code_points(tokenizer.decode(ids))


def divided(passages: Sequence[Passage], config: DataConfig, *, ends: Sequence[int]) -> list[Stretch]:
    """The stretches of a text with these passages: what is known stays on its side, and what is new is divided among itself, as
    `config` says: with data.split=document, by documents, which end at `ends`."""
    passages = [*_by_document(passages, ends)] if config.split == "document" else passages
    sizes: dict[_Kind, list[int]] = {kind: [] for kind in ((NEW, True), (TRAIN, True), (TRAIN, False))}
    for one in passages:
        sizes.setdefault((one.side, one.is_new), []).append(one.end - one.start)
    of_new = _division(sizes[NEW, True], config)
    learned = Split(stretches=tuple(of_new)).size(TRAIN) + sum(sizes[TRAIN, True])
    repeated = _repeated(sum(sizes[TRAIN, False]), learned)
    cutters: dict[_Kind, Cutter] = {(NEW, True): Cutter(of_new), (TRAIN, False): Cutter(repeated)}
    stretches = list[Stretch]()
    for passage in passages:
        whole = passage.end - passage.start
        cutter = cutters.get((passage.side, passage.is_new)) or Cutter([(whole, passage.side)])
        for size, split in cutter.cut(whole):
            if stretches and (stretches[-1].split, stretches[-1].is_new) == (split, passage.is_new):
                size += stretches.pop().size
            stretches.append(Stretch(size, split, passage.is_new))
    return stretches


def _repeated(known: int, learned: int) -> list[Part]:
    """The stretches of a text of which `known` characters were learned, if there are `learned` new ones: blocks of it, spread
    evenly, are learned again. The whole would take most of the time, and teach little. If nothing is new, all of it is left."""
    wanted = max(LEAST_REPEATED, learned * REPEATED / (1 - REPEATED))
    if not learned or wanted >= known:
        return [(known, TRAIN)]
    blocks = min(MOST_BLOCKS, max(1, round(wanted / BLOCK)))
    again = round(wanted / blocks)
    starts = [known * number // blocks for number in range(blocks + 1)]
    return [each for start, end in pairwise(starts) for each in ((again, TRAIN), (end - start - again, None))]


def _by_document(passages: Sequence[Passage], ends: Sequence[int]) -> Iterator[Passage]:
    """The same, but that what is new ends where a document does. What is between two splits is a document of its own."""
    for passage in passages:
        passage = dataclasses.replace(passage, side=NEW) if passage.is_new and passage.side is None else passage
        within = ends[bisect(ends, passage.start) : bisect(ends, passage.end - 1)] if passage.side == NEW else []
        edges = pairwise([passage.start, *within, passage.end])
        yield from (dataclasses.replace(passage, start=start, end=end) for start, end in edges)


def _division(sizes: Sequence[int], config: DataConfig) -> Sequence[Part]:
    """The stretches of new passages of these sizes, joined: of documents, if there are enough of them, whole ones validate."""
    if config.split != "document":
        return split_of(sum(sizes), config).stretches
    if len(sizes) * config.val_fraction < 1:
        return split_of(sum(sizes), dataclasses.replace(config, split="position")).stretches
    done, found = [0, 0], list[Part]()
    for size in sizes:
        side = VAL if done[VAL] < config.val_fraction * sum(done) else TRAIN
        done[side] += size
        found.append((size, side))
    return found
