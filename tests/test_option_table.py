"""A new option of a program is one entry: its --help, its keyword, its check and its reference page come from there."""

import json
import shutil
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WEIGHTS = shutil.ignore_patterns("starts", "*.so", "web")
# Where the new entry stands, and the entry.
ENTRIES = {
    "chargpt/planning/cli.py": (
        "    run: str",
        'knots: float | None = once(IN_EPOCHS, "K", excludes="minutes", since="w")("sail")',
    ),
    "chargpt/sampling/cli.py": (
        "    json: bool",
        'knell: int | None = output(None, whole(1), excludes="samples")("toll")',
    ),
    "chargpt/sampling/options.py": (
        "    top_k: int",
        'top_x: int = rule(0, whole(0), "X", off=0, c="int")("only X")',
    ),
}
USE = """
import inspect, json, os, sys
sys.path[:0] = [os.getcwd(), "tests"]
import chargpt
import reference_pages as pages
from chargpt.planning.cli import parse_options as train
from chargpt.sampling import c_texts
from chargpt.sampling.cli import parse_options as sample

def told(function, *given, **named):
    try:
        return str(function(*given, **named))
    except (ValueError, RuntimeError) as error:
        return str(error)

methods = (chargpt.train, chargpt.LoadedModel.generate, chargpt.LoadedModel.stream, chargpt.LoadedModel.items)
print(json.dumps({
    "help": [pages.help_of("train"), pages.help_of("text"), pages.help_of("sample")],
    "kept": [train(["--knots", "3"]).knots, sample(["--top-x", "5"]).sampling.rules()["top_x"], sample(["--knell", "2"]).knell],
    "checks": [
        told(train, ["--knots", "-1"]), told(chargpt.train, knots="fast"), told(sample, ["--top-x", "-1"]),
        told(sample, ["--knell", "1", "--samples", "2"]),
        told(train, ["--knots", "1", "--minutes", "2"]), told(chargpt.train, knots=1, minutes=2), told(train, ["--knot", "1"]),
    ],
    "signatures": [str(inspect.signature(method)) for method in methods],
    "pages": [page() for page in (pages.python_page, pages.sampling_page, pages.arguments_stub)],
    "in C": [name for name, _ in c_texts.Rules._fields_],
}))
"""


@pytest.fixture(scope="module")
def made(programs, tmp_path_factory) -> dict[str, list]:
    """What a copy of the sources, with a new entry in each table, makes of them."""
    folder = tmp_path_factory.mktemp("copy") / "chargpt"
    shutil.copytree(ROOT / "chargpt", folder / "chargpt", ignore=WEIGHTS)
    for name in (
        "docs/sampling.md",
        "docs/reference/python.md",
        "tests/reference_pages.py",
        "train.py",
        "sample.py",
        "model.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name, (place, entry) in ENTRIES.items():
        before, found, after = (folder / name).read_text("utf-8").partition(place)
        assert found
        (folder / name).write_text(f"{before}    {entry}\n{found}{after}", encoding="utf-8")
    done = programs.run(code=USE, anew=True, folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_new_entry_is_an_option_in_the_help(made):
    of_train, of_text, of_sample = (" ".join(words.split()) for words in made["help"])
    assert "--knots K sail" in of_train and "--knots K sail" in of_text and "--top-x X only X --top-k K" in of_sample
    assert "--knell N toll --json" in of_sample and made["kept"] == [3, 5, 2]


def test_a_new_entry_is_checked_in_the_words_of_the_shell_and_of_python(made):
    use = "use a number above 0, up to 1,000,000"
    assert made["checks"] == [
        f"--knots: -1 given; {use}",
        f"knots='fast': {use}",
        "--top-x: -1 given; use a whole number of 0 or more",
        "--knell: --samples given as well; leave out one of the two",
        "--knots: cannot be used with --minutes, since w; leave out --minutes",
        "knots: cannot be used with minutes, since w; leave out minutes",
        "--knot: no such option; did you mean --knots?",
    ]


def test_a_new_entry_is_a_keyword_with_its_type(made):
    train, *others = made["signatures"]
    assert "knots: float | None = None" in train and all("top_x: int = 0" in shown for shown in others)
    _, _, stub = made["pages"]
    assert stub.count("    knots: float | None\n") == 1 and stub.count("    top_x: int\n") == 2


def test_a_new_entry_has_a_row_in_its_reference_page_and_a_field_in_c(made):
    python, sampling, _ = made["pages"]
    assert "| `knots` | `--knots K`: sail |" in python and "| `--top-x X` | only X |" in sampling
    assert made["in C"].index("top_x") + 1 == made["in C"].index("top_k")


CALLS = """
import chargpt
model = chargpt.train("poems.txt", minutes="1h30", run="a", teacher=["b"], settings={"train.max_steps": 5}, device="cpu")
one: str = model.generate("The sea", length=20, stop=["a", "b"], top_k=3)
several: list[str] = model.generate(["a", "b"], lines=2, overflow="exact")
pieces: list[str] = list(chargpt.load("a", precision="int8").stream("a", seed=1))
labels: list[str] = [item.label for item in model.items(3, match="^A", min_length=2)]
"""
MISTAKES = {
    'chargpt.train(minuets=1)': '"minuets"',
    'chargpt.train(resume="a")': '"resume"',
    'chargpt.load("a").stream(top_k="3")': '"top_k"',
    'chargpt.load("a").items(lines=3)': '"lines"',
}  # fmt: skip


@pytest.mark.nightly
def test_a_strict_type_checker_knows_every_keyword_in_the_project_of_a_user(tmp_path):
    api = pytest.importorskip("mypy.api")
    lines = textwrap.dedent(CALLS) + "\n".join(MISTAKES)
    (tmp_path / "mine.py").write_text(lines)
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n[mypy-chargpt.*]\nfollow_imports = silent\n"
    )
    said, _, _ = api.run([f"{tmp_path}/mine.py", "--config-file", f"{tmp_path}/mypy.ini", "--cache-dir", f"{tmp_path}/cache"])
    errors = [line for line in said.splitlines() if ": error: " in line]
    assert len(errors) == len(MISTAKES), said
    assert all(word in error for word, error in zip(MISTAKES.values(), errors))
