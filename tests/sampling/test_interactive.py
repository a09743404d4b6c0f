import io
import sys

import pytest
import torch

from chargpt.sampling.interactive import interact
from chargpt.sampling.printing import TextPrinter, text_of
from chargpt.sampling.rules import Sampling
from chargpt.sampling.text_generator import TextGenerator
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

TOKENIZER = Tokenizer("\n abcdefgh")


@pytest.fixture
def generator() -> TextGenerator:
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=16, bias=True), TOKENIZER.vocab_size)
    return TextGenerator(model=model, tokenizer=TOKENIZER, sampling=Sampling(), length=10)


@pytest.fixture
def talk(generator, monkeypatch, capsys):
    """Run the interactive mode with these lines typed: standard output and standard error."""

    def talk(typed: str, *, prompt: str = "", printer: type = TextPrinter) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        interact(generator, TOKENIZER.encode(prompt).tolist(), printer=printer(sys.stdout), unknown="error", seed=5)
        return capsys.readouterr()

    return talk


def continued(generator: TextGenerator, text: str, seed: int) -> str:
    return "".join(text_of(characters) for (characters,) in generator.write(TOKENIZER.encode(text).tolist(), [seed]))


def test_each_line_is_continued_and_an_empty_one_goes_on(talk, generator):
    first = "ab" + continued(generator, "ab", 5)
    more = continued(generator, first, 6)
    other = "cd\n" + continued(generator, "cd\n", 7)
    assert talk("ab\n\ncd\\n\n")[0] == f"{first}\n{more}\n{other}\n"


def test_a_prompt_comes_first(talk, generator):
    assert talk("", prompt="ab")[0] == f"ab{continued(generator, 'ab', 5)}\n"


def test_an_empty_line_at_the_start_begins_a_text(talk, generator):
    assert talk("\n")[0] == continued(generator, "", 5) + "\n"


def test_a_mistake_is_answered_and_costs_nothing(talk, generator):
    out, err = talk("xyz\nab\n")
    assert out == f"ab{continued(generator, 'ab', 5)}\n" and "error: prompt: " in err


def test_ctrl_c_stops_the_text_and_not_the_program(talk, generator):
    class Interrupting(TextPrinter):
        printed = 0

        def add(self, characters):
            self.printed += len(characters)
            if self.printed == 4:
                raise KeyboardInterrupt
            super().add(characters)

    out, _ = talk("ab\ncd\n", printer=Interrupting)
    first, second = out.splitlines()[0], continued(generator, "cd", 6)
    assert first == "ab" + continued(generator, "ab", 5)[:3].splitlines()[0] and out.endswith(f"cd{second}\n")


def test_ctrl_c_at_the_prompt_says_how_to_leave(generator, monkeypatch, capsys):
    class Keyboard:
        keys = iter([KeyboardInterrupt, "ab\n", ""])

        def readline(self) -> str:
            key = next(self.keys)
            if key is KeyboardInterrupt:
                raise key
            return key

    monkeypatch.setattr(sys, "stdin", Keyboard())
    interact(generator, [], printer=TextPrinter(sys.stdout), unknown="error", seed=5)
    out, err = capsys.readouterr()
    assert out.startswith("ab") and "Ctrl-D leaves" in err
