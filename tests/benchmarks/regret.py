"""How much worse the choice of `--minutes` is than the best of five other recipes, on texts of many kinds.

    python tests/benchmarks/regret.py run RESULTS [--minutes 1,3] [--texts NAME,...] [--jobs N] [--corpora FOLDER]
    python tests/benchmarks/regret.py summary RESULTS

RESULTS gets a JSON object for each run, as soon as it has ended, and one with the regret of each text and time: rows for
docs/lab/results/regret.jsonl. A second call goes on with what is missing, so it can be stopped at any time.

Runs are those of train.py, but a simulated clock says how long a step takes: that of a machine with SPEED. So a run sees the
characters that fit into its time on that machine, whatever else this one does, and ends with the same bits again. Each job uses
one thread. All recipes and times for one text take about six times the sum of the times.

The best of six losses is low by chance too. A short text has a short validation split: 500 characters have a standard error of
0.09 nats. So the models are also tried on the FOLLOWING characters after the text, where its source goes on, which chose nothing.

The texts are made of files that a Debian system with Python has (documentation, manual pages, header files, Python's library),
and of two in FOLDER, if given: shakespeare.txt and chinese-poems.txt. They depend on the versions of these packages, so a row has
a hash of its text. Nothing was fitted to the texts that are held out.
"""

import argparse
import contextlib
import csv
import glob
import gzip
import hashlib
import inspect
import io
import itertools
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import train  # noqa: E402
from chargpt.config import Config  # noqa: E402
from chargpt.planning import budget, chosen_for_time, speeds  # noqa: E402
from chargpt.planning.cli import parse_options  # noqa: E402
from chargpt.planning.law import SHAPES  # noqa: E402
from chargpt.planning.plan import Opening, make_plan  # noqa: E402
from chargpt.runs.blank_model import blank_model  # noqa: E402
from chargpt.runs.load import find_checkpoint  # noqa: E402
from chargpt.runs.models import restore_model  # noqa: E402
from chargpt.session import session  # noqa: E402
from chargpt.settings import difference  # noqa: E402
from chargpt.training.evaluation import evaluate  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

# Characters a second of a model of a million parameters on the simulated machine: two cores with bfloat16.
SPEED = 33_000
# The power with which the speed falls as the parameters grow.
SPEED_POWER = 0.7
# The speed with Muon and rotary positions, as a share of that with AdamW and learned positions; about.
MUON_SPEED = 0.8
# Characters after a text on which the models are tried too.
FOLLOWING = 20_000
# Characters of a text that is made here, at most: it has no characters that follow.
MADE = 10**7
# The vocabulary for which parameters are counted: that of the text changes the time of a step less than its parameters.
VOCABULARY = 100

# --- The texts ---------------------------------------------------------------------------------------------------------------


class TextKind(NamedTuple):
    """A text of the benchmark."""

    kind: str
    characters: int  # at most
    make: Callable[[Path | None, int], str]  # from the folder of --corpora, so many; empty if what it is made of is absent
    is_held_out: bool  # whether nothing was fitted to it

    def text_and_following(self, folder: Path | None) -> tuple[str, str]:
        """The text, and the FOLLOWING characters of its source; empty if that ends before."""
        made = self.make(folder, self.characters + FOLLOWING)
        following = made[self.characters :]
        return made[: self.characters], following if len(following) == FOLLOWING else ""


def joined(pattern: str, characters: int) -> str:
    """The files that match `pattern`, in the order of their names, up to this many characters."""
    texts, length = [], 0
    for name in sorted(glob.glob(pattern, recursive=True)):
        if length >= characters:
            break
        with (
            contextlib.suppress(OSError, UnicodeDecodeError),
            (gzip.open if name.endswith(".gz") else open)(name, "rb") as file,
        ):
            texts.append(file.read().decode("utf-8"))
            length += len(texts[-1])
    return "\n".join(texts)[:characters]


def from_corpora(name: str) -> Callable[[Path | None, int], str]:
    """The first characters of a text in the folder of --corpora."""

    def make(folder: Path | None, characters: int) -> str:
        path = None if folder is None else folder / name
        return path.read_text(encoding="utf-8")[:characters] if path is not None and path.is_file() else ""

    return make


def from_files(pattern: str) -> Callable[[Path | None, int], str]:
    return lambda folder, characters: joined(pattern, characters)


def four_letters(folder: Path | None, characters: int) -> str:
    """A text of four letters with repeats: pieces of a few sequences, some of them reversed, with single letters exchanged."""
    draw = random.Random(4)
    sequences = ["".join(draw.choices("ACGT", k=draw.randint(20, 400))) for _ in range(60)]
    pieces = []
    while sum(map(len, pieces)) < 300_000:
        piece = draw.choice(sequences)[draw.randint(0, 19) :]
        piece = piece[::-1] if draw.random() < 0.3 else piece
        pieces.append("".join(draw.choice("ACGT") if draw.random() < 0.05 else letter for letter in piece))
        pieces.append("".join(draw.choices("ACGT", weights=(3, 2, 2, 3), k=draw.randint(0, 60))))
    return "".join(pieces)


def log_lines(folder: Path | None, characters: int) -> str:
    """The log of a server: times, levels, addresses and paths."""
    draw, seconds, lines = random.Random(5), 1_700_000_000.0, []
    paths = ["/", "/index.html", "/api/items", "/api/items/{}", "/static/app.js", "/login", "/search?q={}"]
    words = [word for word in joined("/usr/share/common-licenses/Artistic", 4000).lower().split() if word.isalpha()]
    for _ in range(2500):
        seconds += draw.expovariate(0.3)
        level = draw.choices(["INFO", "WARNING", "ERROR"], weights=(20, 3, 1))[0]
        address = f"10.0.{draw.randint(0, 3)}.{draw.randint(1, 254)}"
        path = draw.choice(paths).format(draw.choice(words) if draw.random() < 0.5 else draw.randint(1, 999))
        status = {"INFO": 200, "WARNING": 404, "ERROR": 500}[level]
        lines.append(f"{seconds:.3f} {level:<7} {address} GET {path} {status} {draw.randint(1, 900)} ms")
    return "\n".join(lines)


def unicode_table(folder: Path | None, characters: int) -> str:
    """A table of characters."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["code", "name", "category", "bidirectional", "east_asian_width"])
    for point in range(0x20, 0x3000):
        character = chr(point)
        if name := unicodedata.name(character, ""):
            categories = unicodedata.category(character), unicodedata.bidirectional(character)
            table.writerow([f"{point:04X}", name, *categories, unicodedata.east_asian_width(character)])
    return file.getvalue()


def library_sources() -> Iterator[tuple[str, str]]:
    """The name and the source of each module at the top of Python's library."""
    for path in sorted(glob.glob(f"{sysconfig.get_path('stdlib')}/*.py")):
        yield Path(path).stem, Path(path).read_text(encoding="utf-8")


def json_lines(folder: Path | None, characters: int) -> str:
    """Functions of Python's library: a JSON object for each."""
    found = re.compile(r'^( *)def (\w+)\((.*)\):\n +"""(.*?)"""', re.MULTILINE)
    lines = [
        json.dumps({"module": name, "function": function, "parameters": parameters, "doc": inspect.cleandoc(doc)})
        for name, source in library_sources()
        for _, function, parameters, doc in found.findall(source)
    ]
    return "\n".join(lines)[:300_000]


def names(folder: Path | None, characters: int) -> str:
    """A list of names in no order."""
    found = sorted({name for _, source in library_sources() for name in re.findall(r"\b[a-z]+_[a-z_]+\b", source)})
    random.Random(6).shuffle(found)
    return "\n".join(found)[:60_000]


DOC, MAN, LICENCES = "/usr/share/doc", "/usr/share/man", "/usr/share/common-licenses"
TEXTS = {
    "shakespeare-100k": TextKind("verse", 100_000, from_corpora("shakespeare.txt"), False),
    "chinese-poems": TextKind("Chinese", 600_000, from_corpora("chinese-poems.txt"), False),
    "licences": TextKind("prose", 250_000, from_files(f"{LICENCES}/*"), False),
    "manuals": TextKind("lines that repeat", 600_000, from_files(f"{MAN}/man1/*.1.gz"), False),
    "python-library": TextKind("source code", 500_000, from_files(f"{sysconfig.get_path('stdlib')}/*.py"), False),
    "changelogs": TextKind("a changelog", 400_000, from_files(f"{DOC}/*/changelog.Debian.gz"), False),
    "four-letters": TextKind("four letters", MADE, four_letters, False),
    "policy": TextKind("short prose", 5000, from_files(f"{DOC}/base-files/*"), True),
    "german": TextKind("German", 30_000, from_files(f"{MAN}/de/man1/*.1.gz"), True),
    "names": TextKind("a list of names", MADE, names, True),
    "log": TextKind("a log", MADE, log_lines, False),
    "readmes": TextKind("notes", 200_000, from_files(f"{DOC}/*/README*"), False),
    "json-lines": TextKind("JSON lines", MADE, json_lines, False),
    "russian": TextKind("Russian", 400_000, from_files(f"{MAN}/ru/man*/*.gz"), True),
    "japanese": TextKind("Japanese", 200_000, from_files(f"{MAN}/ja/man*/*.gz"), True),
    "perl-messages": TextKind("messages", 300_000, from_files("/usr/share/perl/*/pod/perldiag.pod"), True),
    "unicode-table": TextKind("CSV", MADE, unicode_table, True),
    "time-zones": TextKind("rules", 200_000, from_files("/usr/share/zoneinfo/tzdata.zi"), True),
    "locales": TextKind("settings", 200_000, from_files("/usr/share/i18n/locales/[b-d]*"), True),
    "c-headers": TextKind("a long text", 10_000_000, from_files("/usr/include/**/*.h"), True),
}

# --- The recipes -------------------------------------------------------------------------------------------------------------

CHOSEN = "chosen"
REGRET = "regret"


def recipes(chosen: Config, minutes: float) -> dict[str, list[str]]:
    """What to add to `train.py TEXT` for each recipe. `chosen` are the settings that are chosen for the time."""
    time, one = [f"--minutes={minutes:g}", "--start=none"], "train.teachers=0"
    shape = (chosen.model.n_layer, chosen.model.n_embd)
    place = SHAPES.index(shape)
    ways = {
        CHOSEN: time,
        "one run": [*time, one],
        "two runs": [
            *time,
            "train.teachers=1",
            f"model.n_layer={shape[0]}",
            f"model.n_embd={shape[1]}",
        ],
        "AdamW": [*time, one, "optim.name=adamw", "model.positions=learned", "model.bias=false"],
    }
    for way, at in (("one size larger", place + 1), ("one size smaller", place - 1)):
        if 0 <= at < len(SHAPES):
            ways[way] = [*time, f"model.n_layer={SHAPES[at][0]}", f"model.n_embd={SHAPES[at][1]}"]
    return ways


# --- The simulated machine ---------------------------------------------------------------------------------------------------


class Machine:
    """The module `time` of a machine on which steps and evaluations take the time that SPEED says, and all else none."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0  # seconds

    def perf_counter(self) -> float:
        return self.now

    process_time = perf_counter

    def thread_time(self) -> float:
        self.now, self.worked = self.now + 0.001, self.worked + 0.001
        return self.worked


def speed(config: Config, teachers: int = 0) -> float:
    """Characters a second of training, with so many teachers."""
    parameters = blank_model(config.model, VOCABULARY).parameter_count()
    factor = 1.0 if config.optim.name == "muon" else 1 / MUON_SPEED
    factor /= 1 + chosen_for_time.TEACHER_TIME * teachers
    return factor * SPEED * (1e6 / parameters) ** SPEED_POWER


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Train on the simulated machine in this block."""
    machine, advance, evaluate = Machine(), Trainer.advance, Trainer.evaluate

    def timed_step(trainer: Trainer) -> None:
        expected: Any = trainer._expected  # a method of its DistillationLoss
        teachers = 0 if expected is None else len(expected.__self__.teachers)
        machine.now += trainer.config.chars_per_step / speed(trainer.config, teachers)
        advance(trainer)

    def timed_evaluate(trainer, ids, **more):
        parameters = trainer.model.parameter_count()
        machine.now += len(ids) / speeds.EVALUATES_FASTER / (SPEED * (1e6 / parameters) ** SPEED_POWER)
        return evaluate(trainer, ids, **more)

    with contextlib.ExitStack() as stack:
        for module in (train, budget, session):
            stack.enter_context(mock.patch.object(module, "time", machine))
        stack.enter_context(mock.patch.object(Trainer, "advance", timed_step))
        stack.enter_context(mock.patch.object(Trainer, "evaluate", timed_evaluate))
        timed = mock.patch.object(speeds, "training_speed", lambda config, _, teachers=(): speed(config, len(teachers)))
        stack.enter_context(timed)
        stack.enter_context(mock.patch.object(speeds, "speeds_file", lambda: Path(os.devnull, "none")))
        yield


# --- Runs --------------------------------------------------------------------------------------------------------------------


def planned(words: list[str]) -> Opening:
    return make_plan(parse_options(words), root=ROOT)


def rows_of(results: Path) -> list[dict]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def append(results: Path, row: dict) -> None:
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def compare(name: str, text: str, following: str, minutes: float, results: Path) -> str:
    """Run the recipes for a text and a time that have no row yet, and write their rows. Returns a line about them."""
    torch.set_num_threads(1)
    about = {
        "table": REGRET,
        "text": name,
        "kind": TEXTS[name].kind,
        "held_out": "yes" if TEXTS[name].is_held_out else "no",
        "characters": len(text),
        "hash": hashlib.sha256(text.encode()).hexdigest()[:12],
        "minutes": minutes,
    }
    done = {row["recipe"]: row for row in rows_of(results) if about.items() <= row.items()}
    about |= {
        "machine": f"simulated: {SPEED:,} (1e6 / parameters)^{SPEED_POWER}",
        "commit": commit(),
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as folder, simulated(), contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder, f"{name}.txt")
        path.write_text(text, encoding="utf-8")
        common = [str(path), f"data.cache={folder}/cache", "runtime.threads=1", "train.sample_length=0"]
        chosen = planned([*common, f"--minutes={minutes:g}", "--start=none", f"--run={folder}/plan"])
        for number, (recipe, words) in enumerate(recipes(chosen.config, minutes).items()):
            if recipe in done:
                continue
            run = [*common, *words, f"--run={folder}/{number}"]
            plan = planned(run)
            if recipe != CHOSEN and not difference(plan.config, chosen.config):
                row = {**done[CHOSEN], "recipe": recipe}
            else:
                row = {**about, "recipe": recipe, **trained(run, plan, Path(folder, str(number)), following=following)}
            append(results, row)
            done[recipe] = row
    if REGRET not in done:
        lowest, mine = min(done.values(), key=lambda row: row["loss"]), done[CHOSEN]
        row = {**about, "recipe": REGRET, "regret": round(mine["loss"] - lowest["loss"], 4), "best": lowest["recipe"]}
        if all("following" in each for each in done.values()):
            least = min(each["following"] for each in done.values())
            row["regret_following"] = round(mine["following"] - least, 4)
        append(results, row)
        done[REGRET] = row
    return f"{name}, {minutes:g} minutes: regret {done[REGRET]['regret']:.3f}, best: {done[REGRET]['best']}"


def trained(run: list[str], plan: Opening, folder: Path, *, following: str) -> dict:
    """Train, and return what a row says of it."""
    if code := train.main(run):
        raise RuntimeError(f"{run}: ended with {code}")
    config, (checkpoint, _) = plan.config, find_checkpoint(str(folder), folder)
    model, tokenizer = restore_model(checkpoint), checkpoint.state.tokenizer
    ids, _ = tokenizer.encode_known(following)
    return {
        "loss": round(float(checkpoint.state.progress.best_loss or math.nan), 4),
        **({"following": round(float(evaluate(model, ids) or math.nan), 4)} if following else {}),
        "model": f"{config.model.n_layer}x{config.model.n_embd}, context {config.model.block_size}",
        "runs": checkpoint.state.stage.number,
        "rate": config.optim.learning_rate,
        "weight_decay": config.optim.weight_decay,
        "dropout": config.model.dropout,
    }


def commit() -> str:
    found = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip()


def run(results: Path, *, minutes: Iterable[float], chosen: Iterable[str], jobs: int, corpora: Path | None) -> None:
    """Run what has no row yet: short times first."""
    texts = {name: TEXTS[name].text_and_following(corpora) for name in chosen}
    for name in [name for name, (text, _) in texts.items() if not text]:
        print(f"{name}: left out, since it is not on this machine", flush=True)
        del texts[name]
    with ProcessPoolExecutor(jobs) as pool:
        work = itertools.product(sorted(minutes), texts.items())
        futures = [pool.submit(compare, name, *text, time, results) for time, (name, text) in work]
        for future in as_completed(futures):
            problem = future.exception()
            print(future.result() if problem is None else f"{type(problem).__name__}: {problem}", flush=True)


def summary(results: Path) -> None:
    """Print the regret of the texts that are held out and of the others."""
    for held_out, texts in (("yes", "texts that are held out"), ("no", "other texts")):
        ends = [row for row in rows_of(results) if row["held_out"] == held_out and row["recipe"] == REGRET]
        for key, where in (("regret", "their validation splits"), ("regret_following", "the characters that follow")):
            if found := [row[key] for row in ends if key in row]:
                print(f"{texts}, on {where}: {statistics.mean(found):.3f} in the mean and {max(found):.3f} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    command = commands.add_parser("run", help="run what has no row yet")
    command.add_argument("results", type=Path)
    command.add_argument("--minutes", default="1,3,10", help="times, separated by commas")
    command.add_argument("--texts", default=",".join(TEXTS), help="names, separated by commas")
    command.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    command.add_argument("--corpora", type=Path, help="a folder with shakespeare.txt and chinese-poems.txt")
    commands.add_parser("summary", help="print the regret so far").add_argument("results", type=Path)
    options = parser.parse_args()
    if options.command == "summary":
        summary(options.results)
    else:
        times = [float(minutes) for minutes in options.minutes.split(",")]
        chosen, corpora = options.texts.split(","), options.corpora
        run(options.results, minutes=times, chosen=chosen, jobs=options.jobs, corpora=corpora)


if __name__ == "__main__":
    main()
