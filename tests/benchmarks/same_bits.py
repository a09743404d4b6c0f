"""Whether this tree trains, evaluates and writes with the same bits as another commit, on this machine.

    python tests/benchmarks/same_bits.py BASE [--only WORD] [--keep FOLDER]

BASE is checked out into a temporary folder. Both trees then make the short trainings of `ROWS`, in float32 and, where the
processor has instructions for it, in bfloat16, and for each one the SHA-256 of the weights, of a sample and of the validation
losses is compared. A row whose arithmetic was changed on purpose is in `CHANGED` with the reason, and does not count. The
exit code is 1 if another row differs.
"""

import argparse
import contextlib
import hashlib
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900  # for all rows of a tree, at most
SMALL = [
    "model.n_layer=2", "model.n_head=2", "model.n_embd=32", "model.block_size=32", "train.batch_size=8", "train.max_steps=24",
    "train.eval_interval=8", "train.sample_length=40", "optim.warmup_steps=4", "checkpoint.interval=8", "runtime.threads=2",
]  # fmt: skip
MUON = ["optim.name=muon", "model.positions=rotary", "model.bias=true", "optim.learning_rate=0.01"]
# name -> the trainings of it, one after the other: words for train.py, without the run's name. FIRST and TEACHERS are others.
# A training named teach-N is a run of its own before the last one, which learns from all of them.
ROWS: dict[str, list[list[str]]] = {
    "adamw": [["TEXT", *SMALL]],
    "muon": [["TEXT", *SMALL, *MUON]],
    "sinusoidal": [["TEXT", *SMALL, "model.positions=sinusoidal", "model.bias=true"]],
    "dropout": [["TEXT", *SMALL, "model.dropout=0.2"]],
    "accumulate": [["TEXT", *SMALL, "train.accumulate=2", *MUON]],
    "torch": [["TEXT", *SMALL, "runtime.step=torch", "model.dropout=0.1"]],
    "items": [["ITEMS", "--items", "name", "--label", "kind", *SMALL, "train.label_loss=true"]],
    "labels": [["ITEMS", "--items", "name", "--label", "kind,sound", *SMALL]],
    "table": [["ITEMS", "data.field=name", *SMALL]],
    "chat": [["CHAT", *SMALL]],
    "wide": [["TEXT", *SMALL, *MUON, "model.n_layer=3", "model.n_embd=96", "model.n_head=3", "model.block_size=64"]],
    "epochs": [["TEXT", *SMALL[:-6], "--epochs", "0.2"]],
    "start": [["TEXT", "--start", "english", "train.max_steps=4", "train.eval_interval=2", "train.sample_length=40"]],
    "init-from": [["FIRST"], ["TEXT", "--init-from", "FIRST", *SMALL[4:], "optim.start_decay=0.001"]],
    "resume": [
        ["TEXT", *SMALL, *MUON, "model.dropout=0.1"],
        ["--resume", "train.max_steps=40", "train.eval_interval=16"],
    ],
    "staged": [["TEXT", *SMALL, "train.teachers=2", "model.dropout=0.1"]],
    "averaged": [["TEXT", *SMALL, *MUON, "optim.average_fraction=0.4"]],
    "student": [["teach-1"], ["TEXT", *SMALL, *MUON, "TEACHERS"]],
    "student-of-3": [["teach-1"], ["teach-2"], ["teach-3"], ["TEXT", *SMALL, "TEACHERS"]],
}
CHANGED: dict[str, str] = {}  # row -> why its bits are others than those of BASE


def corpus(folder: Path) -> dict[str, str]:
    """A text of words and a list with labels, the same in each call, by their words in ROWS."""
    draw = random.Random(7)
    words = ["".join(draw.choice("etaoinshrdlu") for _ in range(draw.randint(1, 8))) for _ in range(400)]
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))).capitalize() + draw.choice(".?!") for _ in range(900)]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{draw.choice(words)}{draw.choice(words)},{draw.choice(['north', 'south'])}" for _ in range(600)]
    rows = [f"{row},{len(row) % 3}" for row in dict.fromkeys(rows)]
    (folder / "names.csv").write_text("name,kind,sound\n" + "\n".join(rows) + "\n")
    messages = (f"1/{n % 28 + 1}/24, 9:15 PM - {'Ann' if n % 3 else 'Ben'}: {line}\n" for n, line in enumerate(lines))
    notice = "1/1/24, 9:14 PM - Messages and calls are end-to-end encrypted. No one outside of this chat can read them.\n"
    (folder / "chat.txt").write_text("".join([notice, *messages]))
    return {"TEXT": str(folder / "words.txt"), "ITEMS": str(folder / "names.csv"), "CHAT": str(folder / "chat.txt")}


def hashes(run: Path, sample) -> dict[str, str]:
    """The SHA-256 of the newest weights of `run`, of the text that `sample` writes from it, and of its validation losses."""
    from safetensors.numpy import load_file

    last = sorted(run.rglob("model.safetensors"), key=lambda path: (len(path.parts), path.parent.name))[-1]
    weights = hashlib.sha256()
    for name, values in sorted(load_file(last).items()):
        weights.update(name.encode() + values.tobytes())
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = sample([str(run), "--length", "120", "--seed", "5", "--device", "cpu", "--samples", "1"])
    assert code == 0, f"sample.py ended with code {code}"
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    losses = [row["val/loss"] for row in rows if "val/loss" in row]
    assert losses and out.getvalue()
    hashed = {"sample": out.getvalue(), "loss": repr(losses)}
    return {"weights": weights.hexdigest()} | {name: hashlib.sha256(text.encode()).hexdigest() for name, text in hashed.items()}


def teacher_words(tree: Path, teachers: list[Path]) -> list[str]:
    """How a training names its teachers in `tree`: by --teacher, or by a setting that earlier versions had."""
    if "    teacher: " in (tree / "chargpt/planning/cli.py").read_text():
        return [word for teacher in teachers for word in ("--teacher", str(teacher))]
    return [f"train.teachers={','.join(map(str, teachers))}"]


def train_rows(tree: Path, folder: Path, precision: str, only: str) -> None:
    """Make the trainings of each row with the code of `tree`, in `folder`, and print the hashes of each as JSON."""
    sys.path.insert(0, str(tree))
    from sample import main as sample
    from train import main as train

    known, cache = corpus(folder), [f"data.cache={folder / 'cache'}"]

    def run(words: list[str], target: Path) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            code = train([*words, "--run", str(target)])
        assert code == 0, f"train.py ended with code {code}"

    common = [f"runtime.precision={precision}", *cache]
    for name, trainings in ROWS.items():
        if only not in name:
            continue
        row, teachers = folder / name, list[Path]()
        for words in trainings:
            target = row
            if words == ["FIRST"] or words[0].startswith("teach-"):
                target = folder / f"{name}-{words[0].lower()}"
                seed = f"train.seed={len(teachers)}"
                words = ["TEXT", *SMALL, *MUON, seed] if words != ["FIRST"] else ["TEXT", *SMALL]
                teachers.append(target)
            words = [known.get(word, word) for word in words]
            words = [str(teachers[0]) if word == "FIRST" else word for word in words]
            if "TEACHERS" in words:
                words = [word for word in words if word != "TEACHERS"] + teacher_words(tree, teachers)
            run([*words, *([] if "--resume" in words else common)], target)
        print("ROW " + json.dumps({"row": name, "precision": precision, **hashes(row, sample)}), flush=True)


def of_tree(tree: Path, precisions: list[str], only: str, keep: Path | None) -> dict[tuple[str, str], dict[str, str]]:
    """The hashes of each row and precision with the code of `tree`."""
    found = {}
    for precision in precisions:
        with tempfile.TemporaryDirectory() as own:
            folder = Path(own) if keep is None else keep / f"{'this' if tree == ROOT else 'base'}-{precision}"
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, __file__, "--tree", str(tree), "--folder", str(folder), "--precision", precision]
            done = subprocess.run([*command, "--only", only], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode:
                raise SystemExit(f"{tree}, {precision}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
            for line in done.stdout.splitlines():
                if line.startswith("ROW "):
                    row = json.loads(line[4:])
                    found[row.pop("row"), row.pop("precision")] = row
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", metavar="BASE", help="a commit")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this word")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs there")
    for hidden in ("--tree", "--folder", "--precision"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tree:
        train_rows(Path(options.tree), Path(options.folder), options.precision, options.only)
        return 0
    if options.base is None:
        parser.error("BASE: a commit is needed")
    sys.path.insert(0, str(ROOT))
    from chargpt.device import cpu_precision

    has_bfloat16 = "bfloat16" in str(cpu_precision())
    precisions = ["float32", "bfloat16"] if has_bfloat16 else ["float32"]
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", options.base], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        base = of_tree(Path(folder), precisions, options.only, options.keep)
        this = of_tree(ROOT, precisions, options.only, options.keep)
    differ = 0
    print(
        f"| row | precision | weights | sample | loss | (of this tree; {options.base} has the same unless it says so)\n|---|---|---|---|---|"
    )
    for (row, precision), own in this.items():
        cells = [own[what][:12] + ("" if own[what] == base[row, precision][what] else " DIFFERS") for what in own]
        is_other = any("DIFFERS" in cell for cell in cells)
        differ += is_other and row not in CHANGED
        print(f"| {row} | {precision} | {' | '.join(cells)} |{' ' + CHANGED.get(row, '') if is_other else ''}")
    print(f"{len(this) - differ} of {len(this)} rows are the same, or changed on purpose" if this else "no row has that word")
    return 1 if differ or not this else 0


if __name__ == "__main__":
    sys.exit(main())
