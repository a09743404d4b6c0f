"""Makes a start: mixes texts of one language into a training text, and packs the run that has read it into chargpt/starts/.

    python tests/benchmarks/starts.py mix OUT TEXT[=SHARE] ... [--quotes „“] [--seed N]
    python tests/benchmarks/starts.py pack RUN NAME --language LANGUAGE --text "NAME: CHARACTERS: TERMS" ... --recipe COMMAND ...
    python tests/benchmarks/starts.py passages NAME TEXT
    python tests/benchmarks/starts.py measure START TEXT ... [SETTING ...] [--sizes 10000,30000,100000] [--seeds 1] [--ways start,chosen]

`mix` writes OUT.txt and OUT-validation.txt. A TEXT has one paragraph in each line; `.xz` and `.gz` files are unpacked. SHARE is
how much of the text is used (default: 1): 0.5 for half of its documents, 2 for each document twice. docs/starts.md has the
whole recipe.

A start shall know the text of any writer. So a text is cut into documents of some pages, and each document is written in one
of several forms: long lines, wrapped lines, lines like those of verse; with plain or typographic quotes. The documents of all
texts are then mixed. The end of each text is held out: no training text has anything of it.

`pack` rounds the weights of the best checkpoint to float16, and measures the loss before and after. It also writes the passages
of what the run has read, by which a training knows that a start has read its text; `passages` writes those of TEXT, which `mix`
has written again. `measure` trains on the first
characters of each TEXT, with the start and without it, and prints a row for each training. Without it, the ways are `default`
(no option) and the recipes of regret.py, whose simulated machine says how many steps fit into the time. `loss` and `start_loss`
are those on the text that follows, which chooses nothing: of the best checkpoint, and of the start before training.
"""

import argparse
import collections
import contextlib
import dataclasses
import gzip
import hashlib
import io
import itertools
import json
import lzma
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chargpt.runs.checkpoint_schema import SavedState
    from chargpt.text.cache import EncodedText

ROOT = Path(__file__).resolve().parents[2]

# Bytes of the weights of a start, at most.
LARGEST = 5_000_000
# Share of a text that is held out, from its end; a part of it validates.
HELD_OUT = 0.01
# Characters of each text that validate, at most.
VALIDATION = 20_000
# Characters of a document: least and most.
DOCUMENT = (2_000, 12_000)
# Occurrences for each character of the mix, below which a paragraph with such a character is left out.
RARE = 2e-6
# Forms of a document, and how often each of them is chosen.
FORMS = {"long lines": 0.35, "wrapped": 0.4, "no empty lines": 0.1, "verse": 0.15}
# Columns of wrapped lines, and of lines of verse.
WRAPPED, VERSE = (56, 80), (28, 52)
# Lines of a stanza.
STANZA = (3, 8)
# Kinds of quotes, and how often each of them is chosen.
QUOTES = {"of the text": 0.4, "plain": 0.3, "typographic": 0.3}
# Ways of training in `measure`, beside the recipes of regret.py: with the start, and with no option at all.
START, DEFAULT = "start", "default"
# What a training prints, in nats per character: the loss of the start before it, and that of an n-gram model.
PRINTED = {
    "start_val_loss": re.compile(r"^start .*its loss on your text is ([\d.]+)", re.MULTILINE),
    "ngram_loss": re.compile(r"^(?:start|expected) .*n-gram model .*has ([\d.]+)", re.MULTILINE),
}
# Characters of a text whose passages are found at a time.
HASHED = 2**22
# Characters that follow the text of a training, on which it is measured.
FOLLOWING = 20_000
# Typographic characters, and what a keyboard has for them.
KEYS = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "--", "…": "..."})


def numbers(text: str) -> list[int]:
    """An argparse type: 1,2,3."""
    return [int(number) for number in text.split(",")]


def read(path: Path) -> str:
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read()


def documents(text: str, *, chance: random.Random) -> Iterator[list[str]]:
    """The paragraphs of `text`, in documents; those of a list, which has no empty lines, stay in one."""
    gathered: list[str] = []
    size, wanted = 0, chance.randint(*DOCUMENT)
    for paragraph in text.split("\n"):
        if not paragraph.strip():
            continue
        gathered.append(paragraph.strip())
        size += len(paragraph)
        if size >= wanted:
            yield gathered
            gathered, size, wanted = [], 0, chance.randint(*DOCUMENT)
    if gathered:
        yield gathered


def written(paragraphs: list[str], *, is_list: bool, quotes: str, chance: random.Random) -> str:
    """A document in a form and with quotes of its own."""
    kind = chance.choices([*QUOTES], [*QUOTES.values()])[0]
    if kind != "of the text":
        paragraphs = [plain(paragraph) for paragraph in paragraphs]
    if kind == "typographic":
        paragraphs = [typographic(paragraph, quotes=quotes) for paragraph in paragraphs]
    if is_list:
        return "\n".join(paragraphs)
    form = chance.choices([*FORMS], [*FORMS.values()])[0]
    if form == "long lines":
        return "\n\n".join(paragraphs)
    if form == "no empty lines":
        return "\n".join(paragraphs)
    if form == "wrapped":
        columns = chance.randint(*WRAPPED)
        return "\n\n".join("\n".join(lines(paragraph, columns)) for paragraph in paragraphs)
    columns, stanza, has_capitals = chance.randint(*VERSE), chance.randint(*STANZA), chance.random() < 0.6
    verse = [line for paragraph in paragraphs for line in lines(paragraph, columns)]
    verse = [line[0].upper() + line[1:] for line in verse] if has_capitals else verse
    return "\n\n".join("\n".join(verse[start : start + stanza]) for start in range(0, len(verse), stanza))


def lines(paragraph: str, columns: int) -> list[str]:
    """A paragraph in lines of at most so many columns; a longer word has a line of its own."""
    return re.findall(rf"\S(?:.{{0,{columns - 1}}}(?=\s|$)|\S*)", paragraph)


def plain(text: str) -> str:
    """`text` with the quotes and dashes of a keyboard."""
    return re.sub(r"(?<!\S)«\s([^«»]*)\s»", r'"\1"', text).translate(KEYS)


def typographic(text: str, *, quotes: str) -> str:
    """A plain `text` with the pair `quotes`, apostrophes and dashes as in print."""
    text = re.sub(r"""(^|[\s([-])"(?=\S)""", rf"\1{quotes[0]}", text).replace('"', quotes[1])
    text = re.sub(r"(^|[\s([-])'(?=\w)", r"\1‘", text).replace("'", "’")
    return text.replace("--", "—").replace("...", "…")


def mix(sources: list[tuple[Path, float]], *, quotes: str, seed: int) -> tuple[str, str]:
    """The training text and the validation text."""
    chance = random.Random(seed)
    training, validation = list[str](), list[str]()
    for path, share in sources:
        text = read(path)
        is_list = "\n\n" not in text
        end = text.rfind("\n", 0, round(len(text) * (1 - HELD_OUT)))
        held_out = text[max(end, text.rfind("\n", 0, len(text) - VALIDATION)) :]
        held_documents = documents(held_out, chance=chance)
        validation += [written(found, is_list=is_list, quotes=quotes, chance=chance) for found in held_documents]
        used = 0
        for found in documents(text[:end], chance=chance):
            times = int(share) + (chance.random() < share % 1)
            training += [written(found, is_list=is_list, quotes=quotes, chance=chance) for _ in range(times)]
            used += times * sum(map(len, found))
        print(f"{path.name}: {len(text):,} characters, {used:,} used, {len(held_out):,} for validation")
    chance.shuffle(training)
    chance.shuffle(validation)
    counts = collections.Counter[str]()
    for document in training:
        counts.update(document)
    known = {character for character, count in counts.items() if count >= RARE * counts.total()}
    print(f"{counts.total():,} characters, {len(known)} kept of {len(counts)} distinct")
    return joined(training, known=known), joined(validation, known=known)


def joined(texts: list[str], *, known: set[str]) -> str:
    """The documents, with two empty lines between them, without the paragraphs that have a character that is not `known`."""
    kept = []
    for text in texts:
        separator = "\n\n" if "\n\n" in text else "\n"
        if not known.issuperset(text):
            text = separator.join(part for part in text.split(separator) if known.issuperset(part))
        kept += [text] * bool(text)
    return "\n\n\n".join(kept) + "\n"


def pack(run: str, name: str, *, language: str, texts: list[str], licence: str, recipe: list[str]) -> None:
    """Write chargpt/starts/NAME: a checkpoint with weights in float16, and a card."""
    sys.path.insert(0, str(ROOT))
    import safetensors.torch
    import torch

    from chargpt.config import DataConfig
    from chargpt.runs.checkpoint import WEIGHTS
    from chargpt.runs.load import CARD, STARTS, find_checkpoint
    from chargpt.runs.models import loss_of, restore_model
    from chargpt.settings import Settings
    from chargpt.standard import model_source
    from chargpt.text.corpus import load_corpus
    from chargpt.training.evaluation import evaluate

    source, warnings = find_checkpoint(run, ROOT / "checkpoints")
    print(*warnings, sep="\n", end="")
    model, config = restore_model(source), source.state.config
    data, own, losses = config.data, source.state, list[float]()
    corpus = load_corpus(own.texts, data, root=ROOT, block_size=config.model.block_size, tokenizer=own.tokenizer)
    rounded = {key: tensor.to(torch.float16) for key, tensor in source.weights.items()}
    for weights in (source.weights, {key: tensor.float() for key, tensor in rounded.items()}):
        model.load_state_dict(weights)
        losses.append(evaluate(model, corpus.val))
    data = safetensors.torch.save(rounded)
    assert len(data) <= LARGEST, f"{len(data):,} bytes; use a smaller model, at most {LARGEST:,}"
    named = [text.split(": ", 2) for text in texts]
    plain = dataclasses.replace(config, data=DataConfig(newlines=config.data.newlines, normalize=config.data.normalize))
    state = dataclasses.replace(source.state, settings=Settings(plain), texts=[found for found, _, _ in named], environment={})
    state = dataclasses.replace(state, model_source=model_source(), model_loss=loss_of(model))
    card = {
        "language": language,
        "loss": round(losses[1], 4),
        "rounding": round(losses[1] - losses[0], 5),
        "read": source.step * config.chars_per_step,
        "texts": [{"name": found, "characters": int(size.replace(",", "")), "terms": terms} for found, size, terms in named],
        "licence": licence,
        "recipe": recipe,
    }
    folder = STARTS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(data)
    write_state(folder, state)
    (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{folder}: {len(data):,} bytes, loss {losses[0]:.4f}, {losses[1]:.4f} in float16")
    write_passages(folder, corpus)


def write_passages(folder: Path, corpus: "EncodedText") -> None:
    """Write the passages of the training split, so that `has_read` of chargpt/text/passages.py finds them."""
    import numpy as np

    from chargpt.text.passages import PASSAGES, passages_of

    parts = [corpus.train[start : start + HASHED] for start in range(0, len(corpus.train), HASHED)]
    found = np.unique(np.concatenate([passages_of(part, corpus.tokenizer.characters or "") for part in parts]))
    # Numbers that stand for nothing, where two are farther apart than 16 bits can say.
    far = [np.arange(low, high, 2**16 - 1)[1:] for low, high in itertools.pairwise([0, *found.tolist()]) if high - low >= 2**16]
    gaps = np.diff(np.union1d(found, np.concatenate([found, *far])), prepend=0)
    gaps.astype("<u2").tofile(folder / PASSAGES)
    print(f"{folder / PASSAGES}: {len(found):,} passages, {2 * len(gaps):,} bytes")


def passages(name: str, text: str) -> None:
    """`write_passages` of a start that is there already, from a text."""
    sys.path.insert(0, str(ROOT))
    from chargpt.config import DataConfig
    from chargpt.runs.load import STARTS
    from chargpt.text.corpus import load_corpus

    with tempfile.TemporaryDirectory() as cache:
        config = DataConfig(cache=cache, val_fraction=0.0)
        write_passages(STARTS / name, load_corpus([text], config, root=ROOT, block_size=1))


def write_state(folder: Path, state: "SavedState") -> None:
    """Write the state.json of a start, which names its weights as they are."""
    from chargpt.project import STATE
    from chargpt.runs.checkpoint import WEIGHTS
    from chargpt.runs.checkpoint_schema import seal

    data = (folder / WEIGHTS).read_bytes()
    files = {WEIGHTS: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
    (folder / STATE).write_bytes(seal(state, files, folder / STATE))


def renew() -> None:
    """Write the states of all starts in the format of now, as the model.py of now computes them. The weights stay."""
    sys.path.insert(0, str(ROOT))
    from chargpt.runs.checkpoint_schema import FORMAT
    from chargpt.runs.load import STARTS, load_start, start_names
    from chargpt.runs.models import loss_of, restore_model
    from chargpt.standard import model_source

    for name in start_names():
        checkpoint = load_start(name)
        loss = loss_of(restore_model(checkpoint))
        write_state(STARTS / name, dataclasses.replace(checkpoint.state, model_source=model_source(), model_loss=loss))
        print(f"{STARTS / name}: format {FORMAT}, loss {loss} on ids that stand for nothing")


def measure(
    start: str, paths: list[Path], *, sizes: list[int], seeds: list[int], ways: list[str], minutes: float, settings: list[str]
) -> None:
    """Print a row for each training. The time is that of the machine that regret.py simulates: other work changes no row."""
    import regret

    import chargpt
    from chargpt.runs.load import find_checkpoint

    own = chargpt.load(start=start)
    for path, size, way, seed in itertools.product(paths, sizes, ways, seeds):
        text, said, began = read(path), io.StringIO(), time.perf_counter()
        following = text[size : size + FOLLOWING]
        with tempfile.TemporaryDirectory() as folder, regret.simulated(), contextlib.redirect_stdout(said):
            part, run = Path(folder) / "text.txt", Path(folder) / "run"
            part.write_text(text[:size], encoding="utf-8", newline="\n")
            common = [str(part), f"data.cache={folder}/cache", "runtime.threads=1", "train.sample_length=0"]
            words = {START: ["--start", start], DEFAULT: ["--start", "none"]}.get(way)
            if words is None:
                chosen = regret.planned([*common, f"--minutes={minutes:g}", "--start=none", f"--run={run}"]).config
                words = regret.recipes(chosen, minutes)[way]
            words = [*words, f"train.seed={seed}", *settings]
            if code := regret.train.main([*common, *words, f"--run={run}"]):
                sys.exit(f"train.py {' '.join(words)}: ended with {code}")
            checkpoint = find_checkpoint(str(run), run)[0]
            loss = chargpt.load(run).score(following, unknown="skip")
        config, val_loss = checkpoint.state.config, checkpoint.state.progress.best_loss
        row = {"table": "starts", "text": path.stem, "characters": size, "way": way, "seed": seed, "loss": round(loss, 3)}
        row |= {"start_loss": round(own.score(following, unknown="skip"), 3), "val_loss": val_loss and round(val_loss, 3)}
        row |= {name: float(found[1]) for name, pattern in PRINTED.items() if (found := pattern.search(said.getvalue()))}
        row |= {"model": f"{config.model.n_layer}x{config.model.n_embd}", "runs": checkpoint.state.stage.number}
        row |= {"seconds": round(time.perf_counter() - began), "commit": regret.commit()}
        print(json.dumps(row | {"command": f"train.py TEXT {' '.join(words)}"}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a start.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    mixing = verbs.add_parser("mix", help="mix texts into a training text and a validation text")
    mixing.add_argument("out", type=Path, help="writes OUT.txt and OUT-validation.txt")
    mixing.add_argument("texts", nargs="+", help="TEXT, or TEXT=SHARE")
    mixing.add_argument("--quotes", default="“”", help="the typographic quotes of the language, opening and closing")
    mixing.add_argument("--seed", type=int, default=1)
    verbs.add_parser("renew", help="write the states of all starts in the format of now")
    finding = verbs.add_parser("passages", help="write the passages of TEXT, which a start has read, beside its weights")
    finding.add_argument("name")
    finding.add_argument("text")
    packing = verbs.add_parser("pack", help="write the weights of a run and a card into chargpt/starts/NAME")
    packing.add_argument("run")
    packing.add_argument("name")
    packing.add_argument("--language", required=True)
    packing.add_argument("--text", dest="texts", action="append", required=True, help="NAME: CHARACTERS: TERMS")
    packing.add_argument("--licence", default="MIT, as this program")
    packing.add_argument("--recipe", action="append", default=[], help="a command that made the run")
    measuring = verbs.add_parser("measure", help="print a row for each training, with the start and without it")
    measuring.add_argument("start")
    measuring.add_argument("words", nargs="+", metavar="TEXT", help="texts, and settings as section.key=value")
    measuring.add_argument("--sizes", type=numbers, default=[10_000, 30_000, 100_000])
    measuring.add_argument("--seeds", type=numbers, default=[1])
    measuring.add_argument("--ways", default=f"{START},chosen", help=f"{START}, {DEFAULT}, or recipes of regret.py")
    measuring.add_argument("--minutes", type=float, default=3, help="the time of a recipe of regret.py")
    options = vars(parser.parse_args())
    verb = options.pop("verb")
    if verb == "renew":
        renew()
        return
    if verb == "passages":
        passages(**options)
        return
    if verb == "pack":
        pack(options.pop("run"), options.pop("name"), **options)
        return
    if verb == "measure":
        words = options.pop("words")
        texts = [Path(word) for word in words if "=" not in word]
        settings = [word for word in words if "=" in word]
        measure(options.pop("start"), texts, ways=options.pop("ways").split(","), settings=settings, **options)
        return
    split = [text.partition("=") for text in options["texts"]]
    sources = [(Path(name), float(share or 1)) for name, _, share in split]
    training, validation = mix(sources, quotes=options["quotes"], seed=options["seed"])
    for ending, text in (("", training), ("-validation", validation)):
        path = options["out"].with_name(f"{options['out'].name}{ending}.txt")
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{path}: {len(text):,} characters")


if __name__ == "__main__":
    main()
