"""Verbs that look into a run take it first, and a device."""

import io
import json
import os

import pytest

from chargpt.commands.options import add_run_options, json_line, page_file, print_json, say, stride_within
from chargpt.terminal import Parser, UserError


def test_the_run_is_required_and_the_device_is_not(capsys):
    parser = Parser(prog="verb")
    add_run_options(parser)
    assert vars(parser.parse_args(["poems"])) == {"run": "poems", "device": "auto"}
    with pytest.raises(UserError, match="RUN"):
        parser.parse_args([])


def test_notices_go_to_standard_error(capsys):
    say("done")
    assert capsys.readouterr() == ("", "done\n")


def test_a_notice_is_one_line_without_control_characters(capsys):
    say("run \x1b[2J\nforged")
    assert capsys.readouterr().err == "run \\x1b[2J\\nforged\n"


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
