import io
import sys

import pytest
import torch

from chargpt.sampling.decoder import Sampling
from chargpt.sampling.interactive import converse
from chargpt.sampling.printing import plain
from chargpt.sampling.text_generator import Writer
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

TOKENIZER = Tokenizer("\n abcdefgh")


@pytest.fixture
def writer() -> Writer:
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=16, bias=True), TOKENIZER.vocab_size)
    return Writer(model=model, tokenizer=TOKENIZER, sampling=Sampling(), length=10)


@pytest.fixture
def talk(writer, monkeypatch, capsys):
    """The conversation in which these lines are typed: standard output and standard error."""

    def talk(typed: str, *, prompt: str = "", paint=plain) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        converse(writer, encode(prompt), encode=encode, seed=5, paint=paint)
        return capsys.readouterr()

    return talk


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text).tolist()


def continued(writer: Writer, text: str, seed: int) -> str:
    return "".join(plain(characters) for (characters,) in writer.write(encode(text), [seed]))


def test_each_line_is_continued_and_an_empty_one_goes_on(talk, writer):
    first = "ab" + continued(writer, "ab", 5)
    more = continued(writer, first, 6)
    other = "cd\n" + continued(writer, "cd\n", 7)
    assert talk("ab\n\ncd\\n\n")[0] == f"{first}\n{more}\n{other}\n"


def test_a_prompt_comes_first(talk, writer):
    assert talk("", prompt="ab")[0] == f"ab{continued(writer, 'ab', 5)}\n"


def test_an_empty_line_at_the_start_begins_a_text(talk, writer):
    assert talk("\n")[0] == continued(writer, "", 5) + "\n"


def test_a_mistake_is_answered_and_costs_nothing(talk, writer):
    out, err = talk("xyz\nab\n")
    assert out == f"ab{continued(writer, 'ab', 5)}\n" and "error: prompt: " in err


def test_ctrl_c_stops_the_text_and_not_the_program(talk, writer):
    shown = []

    def paint(characters):
        shown.extend(characters)
        if len(shown) == 4:
            raise KeyboardInterrupt
        return plain(characters)

    out, _ = talk("ab\ncd\n", paint=paint)
    first, second = out.splitlines()[0], continued(writer, "cd", 6)
    assert first == "ab" + continued(writer, "ab", 5)[:3].splitlines()[0] and out.endswith(f"cd{second}\n")


def test_ctrl_c_at_the_prompt_says_how_to_leave(writer, monkeypatch, capsys):
    class Keyboard:
        keys = iter([KeyboardInterrupt, "ab\n", ""])

        def readline(self) -> str:
            key = next(self.keys)
            if key is KeyboardInterrupt:
                raise key
            return key

    monkeypatch.setattr(sys, "stdin", Keyboard())
    converse(writer, [], encode=encode, seed=5, paint=plain)
    out, err = capsys.readouterr()
    assert out.startswith("ab") and "Ctrl-D leaves" in err
