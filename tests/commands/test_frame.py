"""The frame of the verbs: options first, then torch; a run, its text in the cache, and a part of a text."""

import io
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from chargpt.commands.frame import (
    add_run_options,
    corpus_of_run,
    json_line,
    load_run,
    page_file,
    part_of_text,
    print_json,
    run_verb,
    stride_within,
)
from chargpt.commands.verbs import VERBS
from chargpt.project import command
from chargpt.terminal import Parser, UserError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_help_needs_no_torch(verb):
    code = f"""
import sys
from chargpt.__main__ import main
try:
    main([{verb!r}, "--help"])
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "False\n" and f"usage: {command(verb)} " in done.stdout


def test_the_run_is_required_and_the_device_is_not(capsys):
    parser = Parser(prog="verb")
    add_run_options(parser)
    assert vars(parser.parse_args(["poems"])) == {"run": "poems", "device": "auto"}
    with pytest.raises(UserError, match="RUN"):
        parser.parse_args([])


def test_a_page_goes_into_a_folder_that_exists(tmp_path):
    parser = Parser(prog="verb")
    parser.add_argument("--out", type=page_file)
    assert parser.parse_args(["--out", str(tmp_path / "a.html")]).out == tmp_path / "a.html"
    mistakes = {
        tmp_path: "--out: .* is a folder",
        tmp_path / "no" / "a.html": "its folder does not exist",
        tmp_path / "poems.txt": "poems.txt' given; the name of a page ends in .html",
    }
    for name, problem in mistakes.items():
        with pytest.raises(UserError, match=problem):
            parser.parse_args(["--out", str(name)])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the administrator may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(tmp_path):
    tmp_path.chmod(0o500)
    parser = Parser(prog="verb")
    parser.add_argument("--out", type=page_file)
    with pytest.raises(UserError, match="cannot be written to"):
        parser.parse_args(["--out", str(tmp_path / "a.html")])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("text", ["\x9b2J", "\u202eabc", "\x7f\u2028", "é中"])
def test_json_commands_no_terminal(text, capsys):
    assert json_line(text, io.StringIO()) == f'"{text}"'
    shown = json_line([text], Terminal())
    assert json.loads(shown) == [text] and (shown == '["é中"]' if text == "é中" else shown.isascii())
    print_json({"a": text})
    assert json.loads(capsys.readouterr().out) == {"a": text}


def test_windows_are_no_further_apart_than_they_are_long():
    assert [stride_within(*pair) for pair in ((None, 64), (None, 1), (64, 64), (1, 64))] == [32, 1, 64, 1]
    with pytest.raises(UserError, match="--stride: 65 given; .* 64"):
        stride_within(65, 64)


def test_the_run_and_its_corpus_are_found(run, corpus, capsys):
    loaded = load_run(str(run), device="cpu")
    assert capsys.readouterr().err.startswith("run, step 500")
    assert corpus_of_run(loaded).fingerprint == corpus.fingerprint


def test_a_part_of_a_text(run, corpus, tmp_path, capsys):
    loaded = load_run(str(run), device="cpu")
    ids, place = part_of_text(None, loaded, start=3, length=5)
    assert (
        ids.tolist() == corpus.val[3:8].tolist() and place == f"characters 4 to 8 of the validation split ({len(corpus.val):,})"
    )
    (tmp_path / "a\x1b.txt").write_text("the~sea")
    ids, place = part_of_text(str(tmp_path / "a\x1b.txt"), loaded, start=0, length=50)
    assert corpus.tokenizer.decode(ids.tolist()) == "thesea" and "\x1b" not in place
    assert "left out 1 character that" in capsys.readouterr().err


def test_mistakes_are_one_line(run, tmp_path):
    with pytest.raises(UserError, match="--device: 'quantum' given"):
        run_verb(lambda argv: Namespace(device="quantum"), [], lambda options: load_run(str(run), device=options.device))
    loaded = load_run(str(run), device="cpu")
    (tmp_path / "a.txt").write_text("~~~")
    with pytest.raises(UserError, match="at least 1 are needed"):
        part_of_text(str(tmp_path / "a.txt"), loaded, start=0, length=5)
