"""A mistake is one line and exit code 2; output that cannot be written is dropped."""

import pytest

from chargpt.errors import UserError
from chargpt.formatting import escape_controls, one_line, shown
from chargpt.notices import Kind
from chargpt.program import run_program
from chargpt.screen import DIM, PLAIN, Screen, log, notice, notice_line, wrapped


def failing(error: BaseException):
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("--run: 'x' given; use y"), "error: --run: 'x' given; use y\n"),
        (UserError("a\nforged: line\x1b[2J"), "error: a\\nforged: line\\x1b[2J\n"),
        (FileNotFoundError(2, "No such file", "x.txt"), "error: x.txt: No such file; check the path"),
        (ImportError("libtorch.so: failed to map"), "error: libtorch.so: failed to map; it is installed, but not loaded: free"),
        (MemoryError(), "error: memory: there is not enough (none left)"),
        (RuntimeError("CUDA out of memory. Tried"), "error: memory: there is not enough (CUDA out of memory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, error, line):
    assert run_program(failing(error)) == 2
    said = capsys.readouterr().err
    assert said.startswith(line) and said.count("\n") == 1


def test_ctrl_c_is_130_and_success_is_the_programs_own_code(capsys):
    assert run_program(failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "stopped\n"
    assert run_program(lambda: 3) == 3


def test_notices_stand_in_two_columns_and_paths_are_short(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notice(Kind.RUN, shown(tmp_path / "a" / "b"))
    assert capsys.readouterr().out == f"run         {(tmp_path / 'a' / 'b').relative_to(tmp_path)}\n"
    assert shown("/elsewhere") == "/elsewhere" and one_line("中\t") == "中\\t"


def test_a_message_goes_to_standard_error_and_cannot_command_a_terminal(capsys):
    log("run \x1b[2J\nforged\r")
    assert capsys.readouterr() == ("", "run \\x1b[2J\\nforged\\r\n")


def test_control_characters_are_escaped_and_scripts_are_not():
    assert escape_controls("a\x1b]52;c;x\x07\r\0\x7f\x9b") == "a\\x1b]52;c;x\\x07\\r\\x00\\x7f\\x9b"
    assert escape_controls("\u202eabc\u202c\u2066\u2028\U000e0041") == "\\u202eabc\\u202c\\u2066\\u2028\\U000e0041"
    plain = "tab\tline\nДа 中文 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 שָׁלוֹם\u200f 👩\u200d🔬 e\u0301"
    assert escape_controls(plain) == plain


def test_in_a_terminal_a_notice_is_wrapped_between_words(monkeypatch):
    words = "some words with a-path/that-is-never/broken-because-it-would-not-work and an end"
    assert notice_line(Kind.WARNING, words) == f"warning     {words}"
    monkeypatch.setattr("chargpt.screen.terminal_width", lambda stream: 50)
    lines = wrapped(notice_line(Kind.WARNING, words)).split("\n")
    assert [line[:12].strip() for line in lines] == ["warning", "", ""]
    assert all(len(line) <= 50 or "/" in line for line in lines)
    assert " ".join(line.strip() for line in lines).split()[1:] == words.split()


def test_a_sample_is_shown_above_a_bar_alone_and_its_control_characters_are_not(capsys, monkeypatch):
    shown = Screen()
    shown.sample("ab\ncd")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(Screen, "bar_width", 20)
    shown.sample("\n  \nfirst\x1b[2J line that is long\n\nsecond\nthird", label="5")
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(DIM).removesuffix(PLAIN)[5:] for line in lines] == [lines[0][len(DIM) + 5 :][:15], "second"]
    assert lines[0].startswith(f"{DIM}   5 first") and "\x1b[2J" not in lines[0]
