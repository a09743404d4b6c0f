"""The interactive mode: typed text continues the text, commands do what /help says, Ctrl-C stops a text and then leaves."""

import io
import os
import signal
import sys

import pytest
import torch

from chargpt.sampling.interactive import HELP, HINT, Session
from chargpt.sampling.printing import TextPrinter, text_of
from chargpt.sampling.rules import Sampling
from chargpt.sampling.text_generator import TextGenerator
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

TOKENIZER = Tokenizer("\n /abcdefgh")


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
        session = Session(generator, printer=printer(sys.stdout), unknown="error", seed=5)
        assert session.run(TOKENIZER.encode(prompt).tolist()) == 0
        return capsys.readouterr()

    return talk


def continued(generator: TextGenerator, text: str, seed: int) -> str:
    return "".join(text_of(characters) for (characters,) in generator.write(TOKENIZER.encode(text).tolist(), [seed]))


def test_a_typed_line_continues_the_text_and_an_empty_one_goes_on(talk, generator):
    first = "ab" + continued(generator, "ab", 5)
    second = continued(generator, first, 6)
    third = "cd\n" + continued(generator, first + second + "cd\n", 7)
    assert talk("ab\n\ncd\\n\n")[0] == f"{first}\n{second}\n{third}\n"


def test_new_begins_another_text(talk, generator):
    first, other = "ab" + continued(generator, "ab", 5), "cd" + continued(generator, "cd", 6)
    assert talk("ab\n/new cd\n")[0] == talk("ab\n/new\ncd\n")[0] == f"{first}\n{other}\n"


def test_a_prompt_comes_first(talk, generator):
    assert talk("", prompt="ab")[0] == f"ab{continued(generator, 'ab', 5)}\n"


def test_an_empty_line_at_the_start_begins_a_text(talk, generator):
    assert talk("\n")[0] == continued(generator, "", 5) + "\n"


def test_a_hint_names_help_and_help_names_every_command(talk):
    out, err = talk("/help\n")
    assert not out and HINT in err and HELP in err
    assert "/help" in HINT and "/quit" in HINT and all(command in HELP for command in ("/new", "/help", "/quit", "//TEXT"))
    assert max(map(len, [HINT, *HELP.splitlines()])) <= 100


def test_quit_leaves(talk):
    assert talk("/quit\nab\n")[0] == ""


def test_a_text_may_begin_with_a_slash(talk, generator):
    assert talk("//a\n")[0] == f"/a{continued(generator, '/a', 5)}\n"


@pytest.mark.parametrize("mistake", ["xyz", "/nwe", "/new xyz", "/"])
def test_a_mistake_is_answered_and_changes_nothing(talk, generator, mistake):
    first = "ab" + continued(generator, "ab", 5)
    out, err = talk(f"ab\n{mistake}\n\n")
    assert out == f"{first}\n{continued(generator, first, 6)}\n" and err.count("error: ") == 1


def test_ctrl_c_stops_the_text_and_what_was_written_stays(talk, generator):
    class Interrupting(TextPrinter):
        printed = 0

        def add(self, characters):
            super().add(characters)
            self.printed += len(characters)
            if self.printed == 4:
                os.kill(os.getpid(), signal.SIGINT)

    whole = continued(generator, "ab", 5)
    out, _ = talk("ab\ncd\n", printer=Interrupting)
    begun = next(n for n in range(4, 7) if out.startswith(f"ab{whole[:n]}\n"))
    assert out == f"ab{whole[:begun]}\ncd{continued(generator, f'ab{whole[:begun]}cd', 6)}\n"


def test_ctrl_c_at_the_prompt_says_that_nothing_is_saved_and_the_second_leaves(generator, monkeypatch, capsys):
    class Keyboard:
        def __init__(self, *keys):
            self.keys = iter(keys)

        def readline(self) -> str:
            key = next(self.keys)
            if key is KeyboardInterrupt:
                raise key
            return key

    def code(*keys) -> int:
        monkeypatch.setattr(sys, "stdin", Keyboard(*keys))
        return Session(generator, printer=TextPrinter(sys.stdout), unknown="error", seed=5).run([])

    assert code(KeyboardInterrupt, "ab\n", KeyboardInterrupt, "") == 0
    out, err = capsys.readouterr()
    assert out.startswith("ab") and err.count("nothing is saved; Ctrl-C again") == 2
    assert code(KeyboardInterrupt, KeyboardInterrupt) == 130
    assert capsys.readouterr().err.endswith("\nstopped\n")
