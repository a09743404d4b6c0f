"""Runs that are compared line by line: the numbers are those of each run alone, and the error is that of paired lines."""

import json
import random
import statistics

import pytest
from helpers import TOKENIZER, publish_run

from chargpt.__main__ import main
from chargpt.commands.score import runs_and_texts
from chargpt.errors import UserError

LINES = ["".join(random.Random(i).choices("abcdefgh ", k=4 + i % 7)) for i in range(40)]


@pytest.fixture
def runs(installed):
    for i, name in enumerate(("a", "b", "c")):
        publish_run(installed / "checkpoints" / name, TOKENIZER, steps=(500 + i,))  # other weights
    assert main(["export", "c", "--to", "safetensors", "kept.safetensors"]) == 0
    (installed / "text.txt").write_text("\n".join([*LINES[:20], "", *LINES[20:]]) + "\n")
    (installed / "other.txt").write_text("\n".join([*(line.replace("a", "h") for line in LINES[:20]), "", *LINES[20:]]) + "\n")
    (installed / "short.txt").write_text("\n".join(LINES[:5]))


def bits_of(capsys, *words: str) -> list[float]:
    assert main(["score", *words, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()][:-1]
    return [sum(filter(None, line["bits"])) for line in lines if line["content"].strip()]


@pytest.mark.parametrize(
    "words", ["a b text.txt", "a b c text.txt", "a text.txt b other.txt", "b a text.txt --stride 3", "a b text.txt other.txt"]
)
def test_the_comparison_is_that_of_the_bits_of_each_run_alone(words, runs, capsys):
    given, more = words.partition(" --")[0].split(), words.split()[words.split().index("--stride") :] if "--" in words else []
    alone = {run: bits_of(capsys, run, *texts, *more) for run, texts in runs_and_texts(given[0], given[1:]).items()}
    assert main(["score", *words.split(), "--json-array"]) == 0
    *lines, total = json.loads(capsys.readouterr().out)
    assert {len(bits) for bits in alone.values()} == {len(lines)} == {total["lines"]}
    first = alone[given[0]]
    for summary in total["runs"]:
        bits = alone[summary["run"]]
        assert [line["bits"][summary["run"]] for line in lines] == pytest.approx(bits, abs=0.01)
        assert summary["bits_per_line"] == pytest.approx(statistics.mean(bits), abs=0.01)
        if bits is not first:
            differences = [one - other for one, other in zip(bits, first)]
            assert summary["difference"] == pytest.approx(statistics.mean(differences), abs=0.01)
            assert summary["standard_error"] == pytest.approx(statistics.stdev(differences) / len(differences) ** 0.5, abs=0.01)
    main(["score", *words.split(), "--tsv"])
    head, *table = (row.split("\t") for row in capsys.readouterr().out.splitlines())
    assert (
        head[:3] == ["text", "line", "bits " + given[0]]
        and head[-1] == "content"
        and {len(row) for row in table} == {len(head)}
    )
    assert [float(row[2]) for row in table if row[-1].strip()] == pytest.approx(first, abs=0.01)


def test_a_table_with_tabs_has_a_row_for_each_line_whatever_is_in_it(runs, installed, capsys):
    (installed / "tabs.txt").write_text("a\tb\x1b\nc\r\nd")
    assert main(["score", "a", "tabs.txt", "--tsv"]) == 0
    assert [row.split("\t")[3] for row in capsys.readouterr().out.splitlines()] == ["content", "a\\tb\\x1b", "c", "d"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a text.txt b short.txt", "5 lines for b, and 41 for a; give texts with the same lines"),
        ("a b text.txt --lines", "--lines: given with 2 runs to compare; leave it out, or give --tsv"),
        ("a b text.txt --html x.html", "--html: given with 2 runs to compare"),
        ("a b -", "-: standard input can be read once, and 2 runs are compared; save it in a file"),
        ("a b text.txt --items", "a: was not trained on items"),
        ("a d text.txt", "d: no such file or folder"),
        ("a text.txt a other.txt", "a: given twice; give each run once"),
        ("a a text.txt", "a: given twice"),
    ],
)
def test_what_cannot_be_compared_is_told(words, says, runs):
    with pytest.raises(UserError, match=f"^{says}"):
        main(["score", *words.split()])


def test_a_word_that_is_there_as_a_text_is_a_text(runs, installed):
    publish_run(installed / "checkpoints" / "text.txt")
    publish_run(installed / "checkpoints" / "shakespeare")
    for word, is_text in (
        ("text.txt", True),
        ("shakespeare", True),
        ("-", True),
        ("checkpoints/shakespeare", False),
        ("b", False),
    ):
        assert (len(runs_and_texts("a", [word])) == 1) == is_text, word
