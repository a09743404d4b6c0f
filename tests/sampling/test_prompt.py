import pytest

from chargpt.sampling.prompt import encode_prompt, read_prompt
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer


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
