"""`score --compare`: the lines on which two models differ most, with the bits that each of them gives."""

import json

import pytest
from helpers import publish_run

import chargpt
from chargpt.__main__ import main
from chargpt.terminal import UserError
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

LINES = ["abcd efgh\n", "a\n", "feed a cab\n", "bad egg\n", "hh hh hh hh hh\n"] * 3


@pytest.fixture
def runs(tmp_path):
    return [publish_run(tmp_path / name, steps=(step,)) for name, step in (("first", 500), ("second", 1000))]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(LINES))
    return path


def test_the_lines_that_differ_most_come_first(runs, file, capsys):
    first, second = map(str, runs)
    assert main(["score", first, str(file), "--compare", second, "--json", "--top", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    differences = [abs(a - b) for a, b in (line["bits"] for line in result["lines"])]
    assert len(differences) == 4 and differences == sorted(differences, reverse=True)
    assert main(["score", second, str(file), "--compare", first, "--json", "--top", "4"]) == 0
    swapped = json.loads(capsys.readouterr().out)
    assert [line["line"] for line in swapped["lines"]] == [line["line"] for line in result["lines"]]
    every = main(["score", first, str(file), "--compare", second, "--json", "--top", "99"])
    assert every == 0 and len(json.loads(capsys.readouterr().out)["lines"]) == len(LINES)
    assert [run["loss"] for run in result["runs"]] == [
        pytest.approx(chargpt.load(run).score("".join(LINES), stride=8), abs=1e-5) for run in runs
    ]


def test_the_table_names_the_better_model(runs, file, capsys):
    assert main(["score", str(runs[0]), str(file), "--compare", str(runs[1])]) == 0
    out = capsys.readouterr().out
    assert "A first" in out and "B second" in out
    rows = [line.split() for line in out.splitlines() if "a.txt:" in line]
    assert len(rows) == len(LINES)
    assert all((row[2] == "A") == (float(row[0]) < float(row[1])) for row in rows if row[2] in "AB")


def test_a_model_that_reads_other_lines_cannot_be_compared(runs, file, tmp_path):
    file.write_bytes(b"ab\rcd\n")
    folding = Tokenizer("\n abcdefgh", normalizer=TextNormalizer(newlines="fold"))
    other = publish_run(tmp_path / "folding", folding)
    with pytest.raises(UserError, match="different lines"):
        main(["score", str(runs[0]), str(file), "--compare", str(other)])
