from fractions import Fraction

import numpy as np
import pytest

from chargpt.errors import UserError
from chargpt.sampling.cli import parse_options
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.prompt import encode_prompt, read_prompt
from chargpt.text.tokenizer import Tokenizer


def test_a_seed_and_a_length_are_always_set():
    assert parse_options([]).sampling.limit == 500 and parse_options(["--lines", "3"]).sampling.limit == 3000
    assert parse_options(["--lines", "3", "--length", "7"]).sampling.limit == 7
    assert parse_options([]).sampling.seed != parse_options([]).sampling.seed
    assert parse_options(["--seed", "5"]).sampling.seed == 5


@pytest.mark.parametrize("value", [np.float32(0.5), np.float16(0.5), np.int64(1), Fraction(1, 2)])
def test_a_number_of_another_library_is_one(value, recwarn):
    options = SamplingOptions(temperature=value, top_p=value, repetition_penalty=value + 1)
    assert (options.temperature, options.top_p) == (value, value) and type(options.top_p) is float and not recwarn


def test_a_match_may_begin_at_any_line_of_an_item():
    match = parse_options(["--match", "^M:6/8$"]).sampling.match
    assert match.search("X:1\nM:6/8\nK:G") and not match.search("X:1 M:6/8")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(r"X:1\nM:3/4", "X:1\nM:3/4"), (r"a\tb", "a\tb"), (r"\\n", r"\n"), (r"\begin\x", r"\begin\x"), ("\\", "\\")],
)
def test_a_prompt_and_a_stop_text_may_have_line_ends(typed, meant):
    options = parse_options(["--prompt", typed, "--stop", typed])
    assert (options.prompt, options.sampling.stop) == (meant, (meant,))


MISTAKES = ["--keep-stop", "--next 0", "--next 2 --lines 2", "--next 2 --new", "--as x", "--unseen", "--unique", "--match ("]
MODES = ["--json", "--samples 2", "--temperature 0,1", "--prompt-file -"]


@pytest.mark.parametrize("argv", [*MISTAKES, *(f"--{mode} {other}" for mode in ("interactive", "chat") for other in MODES)])
def test_what_cannot_be_meant_is_named(argv):
    with pytest.raises(UserError, match=f"^{argv.split()[0]}: .*; "):
        parse_options(argv.split())


def test_a_file_comes_without_its_byte_order_mark_and_with_every_other_character(tmp_path):
    (tmp_path / "prompt.txt").write_bytes("\ufeffab\r\nc\n".encode())
    assert read_prompt("", str(tmp_path / "prompt.txt")) == "ab\r\nc\n"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match="latin: byte 3 is not UTF-8"):
        read_prompt("", str(tmp_path / "latin"))


def test_characters_that_are_read_as_the_folded_one_are_named(capsys):
    tokenizer = Tokenizer("ab", folded=True)
    for unknown in ("error", "skip"):
        assert encode_prompt("aÉb’É", tokenizer, unknown=unknown) == [0, 2, 1, 2, 2]
        err = capsys.readouterr().err
        assert err.endswith(": É ’\n") and err.count("\n") == 1
    assert encode_prompt("ab", tokenizer, unknown="error") == [0, 1] and not capsys.readouterr().err
