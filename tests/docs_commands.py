"""Runs the commands of README and the guides as they are written, in copies of the project with small texts of the right names.

    python tests/docs_commands.py                  all pages, about half an hour on a busy machine
    python tests/docs_commands.py docs/items.md    one page

A line that ends well is "ok". What cannot be run, or only in a shorter form, is declared below with its reason. The blocks of
docs/attention.md are run by tests/test_docs.py, and the first two of README by .ci/run.
"""

import gzip
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WHOLE = ROOT / "docs" / "in-programs.md"  # tests/test_in_programs.py runs its programs
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "reference").glob("*.md"))]
PAGES.remove(WHOLE)
SECONDS = 150  # that a command may take
NETWORK = "needs a network"
MACHINES = "needs several machines"
NOT_RUN = {  # the beginning of a command: why it is not run
    "python3 -m venv .venv": "a new environment; .ci/run runs it",
    ".venv/bin/pip install": "a new environment; .ci/run runs it",
    "pip install": NETWORK,
    "uv": NETWORK,
    "chargpt": "needs the installed package; tests/test_wheel.py installs it",
    "python -m tensorboard.main": "a server, which does not end",
    "llama-completion": "needs llama.cpp",
    "python -m chargpt remove": "deletes the runs of the page",
    "python train.py poems.txt --home": "writes into a folder of the system",
    "nvidia-smi": "needs a GPU",
    "python train.py shakespeare --minutes 3 --device cuda": "needs a GPU",
    "python -m pytest -n 2 -m gpu": "needs a GPU",
    "python sample.py first-gpu": "needs a GPU",
    "torchrun --nnodes": MACHINES,
    "srun": MACHINES,
}
SHORTER = {  # a part of a command: what stands for it, and why
    "python train.py\n": ("python train.py train.max_steps=20\n", "three minutes"),
    "train.py shakespeare": ("train.py poems.txt", NETWORK),
    "--minutes 30": ("--minutes 0.3", "half an hour"),
    "--minutes 10 ": ("--minutes 0.3 ", "ten minutes"),
    "--minutes 3 ": ("--minutes 0.3 ", "three minutes"),
    "--minutes 3\n": ("--minutes 0.3\n", "three minutes"),
    "minutes=10": ("minutes=0.2", "ten minutes"),
    "--run rates": ("--run rates train.max_steps=20", "six trainings"),
    "train.max_steps=8000": ("train.max_steps=3000", "minutes"),
    "train.max_steps=500": ("train.max_steps=30", "a minute"),
    "python -m chargpt import DIR": ("python -m chargpt import ../gpt2-poems", "a name for the reader's own folder"),
}
TYPED = {"--interactive": "The sea\n/undo\nexit\n", "--chat": "Hello?\nexit\n"}  # a part of a command: what a person types
PACKAGES = {  # a part of a command or of Python code: the package that it needs
    "--to gguf": "gguf",
    "from transformers": "transformers",
    "faker.providers": "faker",
    "partialsmiles": "partialsmiles",
    "check.py": "partialsmiles",
}
SAVED = {
    "faker.providers": "names.py",
    "import partialsmiles": "check.py",
}  # a part of Python code: the file that the page names
POEMS, FAMILY = "python train.py poems.txt", 'python train.py "WhatsApp Chat with Family.txt" --run family'
NAMES = "python train.py names.csv --items name --label language"
EXPORT = "python -m chargpt export poems --to hf ../gpt2-poems"
BEFORE = {  # a page: what its reader has done already
    "docs/export.md": [POEMS, EXPORT],
    "docs/insight.md": [POEMS, "python train.py haiku.txt", NAMES],
    "docs/sampling.md": [POEMS, NAMES, FAMILY],
    "docs/training.md": [POEMS],
    "docs/reference/python.md": ["mkdir checkpoints/kept"],
}


class Command(NamedTuple):
    """A command of a page, or a block of Python."""

    page: str
    words: str
    is_python: bool = False


def commands_of(page: Path) -> Iterator[Command]:
    """The commands in the blocks of a page, without comments, and its blocks of Python."""
    name = page.relative_to(ROOT).as_posix()
    for kind, body in re.findall(r"^```(bash|python)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        if kind == "python":
            yield Command(name, body, is_python=True)
        else:
            lines = (re.sub(r"\s+#\s.*", "", line).strip() for line in body.splitlines())
            yield from (Command(name, line) for line in lines if line)


def why_not(command: Command) -> str:
    """Why a command is not run; empty if it is."""
    reasons = [] if command.is_python else [why for beginning, why in NOT_RUN.items() if command.words.startswith(beginning)]
    absent = [package for part, package in PACKAGES.items() if part in command.words]
    reasons += [f"needs the package {package}" for package in absent if importlib.util.find_spec(package) is None]
    return reasons[0] if reasons else ""


def as_run(command: Command) -> str:
    """The command, shorter where it is declared."""
    words = command.words + "\n"
    for part, (shorter, _) in SHORTER.items():
        words = words.replace(part, shorter)
    return words.strip()


def make_texts(folder: Path) -> None:
    """Write small texts with the names that the pages use, as a reader would have them."""
    draw = random.Random(0)
    words = (
        "the calm sea and stone under a moving light keeps its own hours while rain falls on green hills and we sing".split()
    )
    names = [
        a + b + c for a in ("An", "Be", "Ca", "Do", "El", "Fi") for b in ("na", "ri", "lo", "mu") for c in ("", "s", "n", "ta")
    ]

    def lines(count: int) -> list[str]:
        return [" ".join(draw.choices(words, k=draw.randint(4, 8))).capitalize() + "." for _ in range(count)]

    def write(name: str, content: list[str], *, encoding: str = "utf-8") -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(content) + "\n", encoding=encoding)

    for name in ("poems.txt", "plays.txt", "haiku.txt", "letters.txt", "more/one.txt", "lines.txt", "novels/one/a.txt"):
        write(name, lines(60))
    for name in ("novels/b.txt", "poems/Keats/one.txt", "poems/Keats/two.txt", "poems/Blake/one.txt", "poems/Blake/two.txt"):
        write(name, lines(30))
    write("my.txt", lines(120))
    write("old.txt", [*lines(60), "Caf\u00e9"], encoding="cp1252")
    write("start.txt", ["The sea"])
    write("src/a.py", [f"def {name.lower()}(x):\n    return x + {i}\n" for i, name in enumerate(names)])
    table = ["body,year", *[f"{line},{1915 + i % 2}" for i, line in enumerate(lines(120))]]
    write("letters.csv", table)
    write("notes/a.csv", ["text,year", *table[1:]])
    (folder / "dump.csv.gz").write_bytes(gzip.compress("\n".join(table).encode()))
    (folder / "dump.gz").write_bytes(gzip.compress("\n".join(lines(60)).encode()))
    (folder / "letters.jsonl.gz").write_bytes(
        gzip.compress("\n".join(json.dumps({"body": line}) for line in lines(90)).encode())
    )
    write("names.txt", sorted(names))
    write("new-names.txt", names[:20])
    write("log.txt", names[:20])
    languages = ["Finnish", "English", "Slovak"]
    write("names.csv", ["name,language", *[f"{name},{languages[i % 3]}" for i, name in enumerate(names)]])
    write("more-names.csv", ["name,language", *[f"{name},{languages[i % 3]}" for i, name in enumerate(names[:30])]])
    write(
        "people.csv", ["name,country,gender", *[f"{n},{('France', 'Italy')[i % 2]},{'fm'[i % 2]}" for i, n in enumerate(names)]]
    )
    for index, language in enumerate(languages):
        write(f"names/{language}.txt", names[index::3])
    write("recipes.jsonl", [json.dumps({"steps": line, "cuisine": draw.choice(["thai", "greek"])}) for line in lines(60)])
    write("fortunes.txt", [f"{line}\n" for line in lines(60)])
    genes = ["".join(draw.choices("ACGT", k=40)) for _ in range(60)]
    write("genes.fasta", [f">gene{i} [{('Homo sapiens', 'Mus musculus')[i % 2]}]\n{gene}" for i, gene in enumerate(genes)])
    write("tunes.abc", [f"X:{i}\nK:{'GD'[i % 2]}\n{' '.join(draw.choices('GABcde', k=16))}|\n" for i in range(60)])
    molecules = ["".join(draw.choices(["C", "N", "O", "C=C", "C(C)"], k=5)) for _ in range(80)]
    write("molecules.smi", [f"{molecule} {('drug', 'dye')[i % 2]}" for i, molecule in enumerate(molecules)])
    write("qm9.txt", molecules)
    for volume in "abcd":
        rows = [
            f"{volume.upper()}{i:02}\tOpening {i}\t1. {draw.choice(['e4', 'd4'])} {draw.choice(['e5', 'c5'])}"
            for i in range(30)
        ]
        write(f"{volume}.tsv", ["eco\tname\tpgn", *rows])
    talk = [(draw.choice(["Ben", "Oma"]), line) for line in lines(120)]
    chat = [f"1/2/24, {1 + i // 60}:{i % 60:02} PM - {name}: {said}" for i, (name, said) in enumerate(talk)]
    write("WhatsApp Chat with Family.txt", chat)
    write("family.txt", chat)
    said = [
        {"id": i, "type": "message", "date": "2024-01-01", "from": name, "text": text} for i, (name, text) in enumerate(talk)
    ]
    write("result.json", [json.dumps({"name": "Family", "type": "personal_chat", "id": 1, "messages": said}, indent=1)])
    write("my.yaml", ["train:", "  max_steps: 50"])


def make_room(words: str, folder: Path) -> None:
    """Remove the run or the export that a command would make: the commands of a block are often alternatives."""
    if exported := re.search(r"export (\S+) --to (\S+)$", words):
        for path in folder.glob(f"{exported[1]}?{exported[2]}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if re.search("--resume|--dry-run|--find-lr", words) or not re.search(r"train\.py|chargpt import", words):
        return
    given = re.search(r"--run (\S+)", words)
    text = re.search(r'train\.py +("[^"]+"|[^\s=]+)', words)
    name = given[1] if given else Path(text[1].strip('"')).name.partition(".")[0] if text else "python-docs"
    shutil.rmtree(folder / "checkpoints" / ("stdin" if name in ("-", "") else name), ignore_errors=True)


def run(command: Command, folder: Path) -> str:
    """Run a command in `folder`. Returns what it printed if it fails, else nothing."""
    words = as_run(command)
    make_room(words, folder)
    for name in [name for part, name in SAVED.items() if part in command.words]:
        (folder / name).write_text(command.words, encoding="utf-8")
    typed = "".join(text for part, text in TYPED.items() if part in words)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"}
    program = [sys.executable, "-c", words] if command.is_python else ["bash", "-o", "pipefail", "-c", words]
    options = {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": SECONDS}
    try:
        done = subprocess.run(program, input=typed.encode(), **options)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        return f"longer than {SECONDS} s"
    return "" if done.returncode == 0 else done.stdout.decode("utf-8", "replace")[-1500:] or f"exit code {done.returncode}"


def run_page(page: Path, place: Path) -> Iterator[tuple[Command, str, str]]:
    """Each command of a page, why it is not run, and what is wrong with it, in a copy of the project in the folder `place`."""
    folder = place / "project"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    make_texts(folder)
    name = page.relative_to(ROOT).as_posix()
    for command in [*[Command(name, words) for words in BEFORE.get(name, [])], *commands_of(page)]:
        reason = why_not(command)
        yield command, reason, "" if reason else run(command, folder)


def main() -> int:
    pages = [ROOT / word for word in sys.argv[1:]] or [page for page in PAGES if page.name != "attention.md"]
    failed = 0
    for page in pages:
        with tempfile.TemporaryDirectory() as place:
            started = time.monotonic()
            for command, reason, problem in run_page(page, Path(place)):
                failed += bool(problem)
                took, started = time.monotonic() - started, time.monotonic()
                result = f"not run: {reason}" if reason else f"FAILED in {took:.0f} s" if problem else f"ok, {took:.0f} s"
                print(
                    f"{command.page}: {as_run(command).splitlines()[0]}  [{result}]",
                    problem,
                    sep="\n" * bool(problem),
                    flush=True,
                )
    return min(1, failed)


if __name__ == "__main__":
    sys.exit(main())
