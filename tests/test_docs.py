"""The code in docs/attention.md runs and prints what the page shows, and the documentation links only to what exists."""

import json
import os
import re
import shlex
from pathlib import Path

import docs_commands
import messages
import pytest
from benchmarks import tables
from PIL import Image
from reference_pages import PYTHON_PAGE, SETTINGS_PAGE, WRITTEN

from chargpt.config import Config
from chargpt.option_table import entries
from chargpt.planning.cli import parse_sweep
from chargpt.project import HOME, TYPED_HOME
from chargpt.sampling.options import ItemKeywords, SamplingOptions, TextKeywords
from chargpt.settings import to_dict

ROOT = Path(__file__).parents[1]
ATTENTION = ROOT / "docs" / "attention.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "checkpoints" / "README.md",
    ROOT / "data" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")
END = "-- end of block --"
LAB = ROOT / "docs" / "lab"


def code_and_output(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the text block that follows it ("" for none)."""
    pairs: list[tuple[str, str]] = []
    for kind, body in BLOCK.findall(page):
        if kind == "python":
            pairs.append((body, ""))
        else:
            assert pairs and not pairs[-1][1], f"an output without code: {body[:60]!r}"
            pairs[-1] = (pairs[-1][0], body)
    return pairs


def same(shown: str, printed: str) -> bool:
    """Whether two outputs agree: words exactly, decimal numbers to one unit of the last digit shown."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed))
    return all(abs(float(a) - float(b)) < 1.01 * 10.0 ** -len(a.partition(".")[2]) for a, b in pairs)


@pytest.fixture(scope="module")
def outputs(programs, tmp_path_factory) -> tuple[list[str], Path]:
    """What each block of the page prints, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("page")
    code = f"\nprint({END!r})\n".join(code for code, _ in code_and_output(ATTENTION.read_text(encoding="utf-8")))
    code = f"import torch; torch.set_num_threads(1)\n{code}"  # two threads would wait for each other on a busy machine
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = programs.run(code=code, folder=folder, environment=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split(f"{END}\n"), folder


@pytest.mark.nightly
def test_the_attention_page_prints_what_it_shows(outputs):
    shown = [output for _, output in code_and_output(ATTENTION.read_text(encoding="utf-8"))]
    assert len(outputs[0]) == len(shown) > 10
    for expected, printed in zip(shown, outputs[0]):
        assert same(expected, printed), f"the page shows\n{expected}\nand prints\n{printed}"


@pytest.mark.nightly
def test_the_attention_page_draws_its_pictures(outputs):
    linked = re.findall(r'<img src="attention/(.+?)"', ATTENTION.read_text(encoding="utf-8"))
    drawn = outputs[1] / "data" / "attention"
    tracked = ROOT / "docs" / "attention"
    pictures = sorted(path.name for path in tracked.glob("*.png"))
    assert sorted(linked) == sorted(path.name for path in drawn.iterdir()) == pictures
    for name in linked:
        assert (tracked / name).stat().st_size < 100_000
        with Image.open(tracked / name) as old, Image.open(drawn / name) as new:
            assert old.size == new.size, f"{name}: run the blocks of docs/attention.md and copy the picture"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((.+?)\)", text) + re.findall(r'src="(.+?)"', text):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), f"{page.name}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_setting_and_preset_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"(?<![\w-])(?:chargpt|tests|docs|configs)/[a-z_/-]+\.[a-z]+", text):
        assert (ROOT / path).exists(), f"{page.name}: {path}"
    sections = to_dict(Config())
    for section, key in re.findall(rf"\b({'|'.join(sections)})\.([a-z0-9_]+)=", text):
        assert key in sections[section], f"{page.name}: {section}.{key}"
    for preset in re.findall(r"--config ([a-z-]+)(?![a-z.-])", text):
        assert (ROOT / "configs" / f"{preset}.yaml").exists(), f"{page.name}: --config {preset}"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_a_reference_page_is_what_the_code_says(page):
    assert page.read_text(encoding="utf-8").split() == WRITTEN[page]().split(), "run: python tests/reference_pages.py"


@pytest.mark.parametrize(("method", "keywords"), [("generate", TextKeywords), ("items", ItemKeywords)])
def test_the_page_of_the_library_names_every_keyword_that_is_no_sampling_rule(method, keywords):
    row, table = re.search(rf"^\| `{method}` \| .*", PYTHON_PAGE.read_text("utf-8"), re.M)[0], entries(SamplingOptions)
    assert not [name for name in keywords.__annotations__ if table[name].section != "rules" and f"`{name}`" not in row]


def test_every_setting_has_a_meaning():
    rows = re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \| (.+?) \| (.+?) \| (.+) \|$", SETTINGS_PAGE.read_text("utf-8"), re.M)
    assert [row[0] for row in rows] == [f"{section}.{key}" for section, keys in to_dict(Config()).items() for key in keys]
    assert all(len(row[3]) > 10 for row in rows)


@pytest.mark.parametrize("page", sorted(LAB.glob("*.md")), ids=lambda page: page.name)
def test_the_tables_of_the_laboratory_are_printed_from_their_rows(page):
    text = page.read_text(encoding="utf-8")
    assert tables.printed(text) == text, "run: python tests/benchmarks/tables.py"


def test_every_row_of_the_laboratory_is_in_a_table():
    shown = set(re.findall(r"<!-- table \S+ table=(\S+)", "".join(page.read_text("utf-8") for page in LAB.glob("*.md"))))
    rows = [json.loads(line) for path in (LAB / "results").glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert {row["table"] for row in rows} <= shown


def commands_of(text: str) -> list[list[str]]:
    """The commands of train.py in the blocks for a shell, each as a list of words."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if re.match(r"python train\.py\b", line)]
    return [shlex.split(line, comments=True)[2:] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_train_py_are_ones_that_it_understands(page, monkeypatch):
    for variable in (HOME, TYPED_HOME):  # which --home sets
        monkeypatch.setenv(variable, "")
    for words in commands_of(page.read_text(encoding="utf-8")):
        parse_sweep(words)


def test_the_two_commands_of_the_readme_are_the_first_ones():
    blocks = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    train = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python train.py"
    tests = ".venv/bin/pip install -r requirements.txt pytest pytest-xdist hypothesis && .venv/bin/python -m pytest"
    assert [block.strip() for block in blocks[:2]] == [train, tests]


def test_what_is_declared_of_the_commands_of_the_documentation_is_true_of_one():
    commands = [command for page in docs_commands.PAGES for command in docs_commands.commands_of(page)]
    words = [command.words + "\n" for command in commands]
    for beginning in docs_commands.NOT_RUN:
        assert any(text.startswith(beginning) for text in words), beginning
    for part in [*docs_commands.SHORTER, *docs_commands.TYPED, *docs_commands.PACKAGES]:
        assert any(part in text for text in words), part
    assert sum(not docs_commands.why_not(command) for command in commands) > 80


@pytest.mark.nightly
@pytest.mark.parametrize("page", docs_commands.PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_as_written(page, tmp_path):
    if page != ATTENTION:
        wrong = [(command.words, problem) for command, _, problem in docs_commands.run_page(page, tmp_path) if problem]
        assert not wrong


def test_messages_are_found_whole_and_sound_native():
    rows = [row for path in (ROOT / "chargpt" / "planning").glob("*.py") for row in messages.messages(path)]
    said = {text for _, kind, text in rows if kind != "text"}
    assert "--find-lr: works in one process; run python train.py --find-lr without torchrun" in said
    assert len(said) > 60
    for phrase in ("from which on", "as far as", "of its own", "omit "):
        assert not [text for text in said if phrase in text]
