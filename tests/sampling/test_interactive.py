"""The interactive mode: typed text continues the text, commands do what /help says, Ctrl-C stops a text and then leaves."""

import io
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import clear_model, weights_of

from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.formatting import one_line
from chargpt.sampling.c_texts import c_engine, c_writer
from chargpt.sampling.cli import parse_options
from chargpt.sampling.interactive import Chat, Session, chat_of
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.printing import TextPrinter
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.torch_texts import torch_writer
from chargpt.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer("\n /abcdefgh")


@pytest.fixture
def generator() -> TextGenerator:
    """In C where it can be compiled, which takes a tenth of the time."""
    model = clear_model(TOKENIZER.vocab_size, n_layer=1, scale=1.0, block_size=16)
    kernel, _ = c_engine(model.config)
    writer = torch_writer(model) if kernel is None else c_writer(weights_of(model), model.config, kernel=kernel)
    return TextGenerator(writer=writer, tokenizer=TOKENIZER, options=SamplingOptions(length=10, seed=5))


@pytest.fixture
def talk(generator, monkeypatch, capsys, tmp_path):
    """Run the interactive mode with these lines typed, in the folder `tmp_path`: standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def talk(typed: str, *, printer: type = TextPrinter, chat: Chat | None = None, **settings) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert Session(generator.changed(**settings), printer=printer(sys.stdout), chat=chat).run([]) == 0
        return capsys.readouterr()

    return talk


def continued(generator: TextGenerator, text: str, seed: int) -> str:
    """What the model adds in a turn: up to the length, or to a line's end in the last quarter of it."""
    whole = "".join(text_of(characters) for (characters,) in generator.write([TOKENIZER.encode(text).tolist()], [seed]))
    if generator.options.lines:
        return whole
    nearest = generator.options.limit - generator.options.limit // 4
    return whole[: whole.find("\n", nearest - 1) + 1] or whole


def shown(*turns: str) -> str:
    """What is printed of these turns: each ends its line."""
    return "".join(turn if turn.endswith("\n") else f"{turn}\n" for turn in turns)


def test_a_typed_line_continues_the_text_an_empty_one_goes_on_and_new_begins_another(talk, generator):
    first = "ab" + continued(generator, "ab", 5)
    second = continued(generator, first, 6)
    third = "cd\n" + continued(generator, first + second + "cd\n", 7)
    assert talk("ab\n\ncd\\n\n")[0] == shown(first, second, third)
    other = "cd" + continued(generator, "cd", 6)
    assert talk("ab\n/new cd\n")[0] == talk("ab\n/new\ncd\n")[0] == shown(first, other)
    assert talk("//a\n")[0] == shown(f"/a{continued(generator, '/a', 5)}")  # a text that begins with a slash


@pytest.mark.parametrize("more", ["", "c", " d", "\\nd"])
def test_a_word_that_a_turn_has_begun_is_not_doubled_when_it_is_typed_again(talk, generator, more):
    for seed in range(4):
        first = "ab" + continued(generator, "ab", seed)
        word = re.search("[a-h]*$", first)[0]
        rest = more.replace("\\n", "\n")
        again = rest + continued(generator, first + rest, seed + 1)
        assert talk(f"ab\n{word}{more}\n", seed=seed)[0] == shown(first, again), word
        other = "h" if word.startswith("a") or not word else "a"
        typed = other + continued(generator, first + other, seed + 1)
        assert talk(f"ab\n{other}\n", seed=seed)[0] == shown(first, typed)


def test_a_turn_ends_with_a_line_if_one_ends_near_the_length(talk, generator):
    ends = 0
    for seed in range(16):
        out = talk("ab\n", length=40, seed=seed)[0]
        added, whole = out.removeprefix("ab"), continued(generator.changed(length=40, lines=99), "ab", seed)
        assert whole.startswith(added.removesuffix("\n"))
        near = whole.find("\n", 29)  # 30 characters or more, the newline included
        assert added == (whole + "\n" if near < 0 else whole[: near + 1])
        ends += near >= 0
    assert 2 < ends < 16


def test_settings_change_the_next_turns_and_are_shown(talk, generator):
    for name, value, prompt_seed in (("temperature", 0, 5), ("length", 25, 5), ("seed", 9, 9)):
        out, err = talk(f"/{name} {value}\nab\n")
        changed = generator.changed(**{name: value})
        assert out == shown(f"ab{continued(changed, 'ab', prompt_seed)}") and f"{name} {value}\n" in err
    last, first = continued(generator, "ab", 2**63 - 1), continued(generator, "cd", 0)
    assert talk("ab\n/new cd\n", seed=2**63 - 1)[0] == shown(f"ab{last}", f"cd{first}")
    assert talk("/temperature\n/length\n/seed\n")[1].split("> ")[1:4] == ["temperature 0.8\n", "length 10\n", "seed 5\n"]


def test_undo_takes_back_a_turn_and_the_next_one_draws_from_the_next_seed(talk, generator):
    first = "ab" + continued(generator, "ab", 5)
    second, again = (continued(generator, first, seed) for seed in (6, 7))
    out, err = talk("ab\n\n/undo\n\n")
    assert out == shown(first, second, again) and one_line(first) in err
    assert talk("ab\n/undo\n/undo\ncd\n")[1].count("error: /undo: there is no turn to take back") == 1
    assert talk("ab\n/new\n/undo\n\n")[0] == shown(first, second)
    assert "the text is now empty" in talk("ab\n/undo\n")[1]
    assert "ends with: ab" in err and "ends with: …" in talk("ab\n\n/undo\n", length=100)[1]


@pytest.mark.parametrize("turn", ["cd", "", "//a", "/new", "/new cd"])
@pytest.mark.parametrize("before", ["ab\n", "ab\n/new cd\n", "ab\n/new\nab\n/undo\nab\n"])
def test_undo_takes_back_any_turn_whole(talk, before, turn):
    told = talk(f"{before}/save 1.txt\n{turn}\n/undo\n/save 2.txt\n")[1]
    assert told.count("characters saved") == 2, told
    assert Path("1.txt").read_bytes() == Path("2.txt").read_bytes()


def test_save_writes_the_exact_text_and_never_replaces_a_file(talk, generator, tmp_path):
    first = "ab" + continued(generator, "ab", 5)
    text = first + continued(generator, first, 6)
    _, err = talk("/save a.txt\nab\n\n/save a.txt\n/new cd\n/save a.txt\n/save\n/save .\n/save no/such\n/save \0\n")
    assert (tmp_path / "a.txt").read_bytes().decode() == text and [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert f"{len(text)} characters saved in a.txt" in err and "'a.txt' cannot be written (File exists); choose a name" in err
    assert err.count("error: /save: ") == 6


MISTAKES = ["xyz", "/nwe", "/new xyz", "/", "/temperature -1", "/temperature hot", "/temperature nan", "/length 0"]
MISTAKES += ["/length x", "/seed -1", "/seed 1.5", "/undo 2", "/help me", "/quit now", "/save"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_and_changes_nothing(talk, generator, mistake):
    first = "ab" + continued(generator, "ab", 5)
    out, err = talk(f"ab\n{mistake}\n\n")
    assert out == shown(first, continued(generator, first, 6))
    (line,) = (line for line in err.splitlines() if "error: " in line)
    assert "; " in line


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
    assert out == shown(f"ab{whole[:begun]}", f"cd{continued(generator, f'ab{whole[:begun]}cd', 6)}")


def test_ctrl_c_at_the_prompt_says_that_the_text_is_not_saved_and_the_second_leaves(generator, monkeypatch, capsys):
    def code(*keys) -> int:
        waiting = iter(keys)

        def readline() -> str:
            if (key := next(waiting)) is KeyboardInterrupt:
                raise key
            return key

        monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=readline))
        return Session(generator, printer=TextPrinter(sys.stdout)).run([])

    assert code(KeyboardInterrupt, "ab\n", KeyboardInterrupt, "") == 0
    out, err = capsys.readouterr()
    assert out.startswith("ab") and err.count("the text is not saved: /save FILE saves it; to leave without saving") == 2
    assert code(KeyboardInterrupt, KeyboardInterrupt) == 130
    assert capsys.readouterr().err.endswith("\nstopped\n")


@pytest.mark.parametrize("word", ["exit", "quit", "exit ", "/quit"])
def test_a_word_leaves_every_mode(word, talk, generator):
    assert talk(f"ab\n{word}\ncd\n")[0] == shown("ab" + continued(generator, "ab", 5))
    assert talk(f"ab\n{word}\ncd\n", chat=Chat("a ", "b ", ["\na "]))[0].count("b ") >= 1


def test_a_chat_puts_the_names_and_an_answer_ends_at_the_next_one(talk, generator):
    chat, answers = Chat("a ", "b ", ["\na", "\nc"]), list[str]()
    stopping, text = generator.changed(stop=chat.ends, length=60), ""
    for seed, typed in enumerate(["hg", "", "fe"], 5):
        text += "\n" * (bool(text) and not text.endswith("\n")) + (f"a {typed}\n" if typed else "") + "b "
        answers.append(continued(stopping, text, seed))
        text += answers[-1]
        assert not any(end in answers[-1] for end in chat.ends)
    assert [talk("/help\n", chat=mode)[1].count("let the model answer") for mode in (chat, None)] == [1, 0]
    assert talk("hg\n\nfe\n", chat=chat, stop=chat.ends, length=60)[0] == shown(*(f"b {answer}" for answer in answers))


NOVEL = "A novel.\n" * 40
TWO = "Ben: hi\nOma: hello\n"


@pytest.mark.parametrize(
    "text, given, expected",
    [
        (TWO, "--as=Ben", Chat("Ben: ", "Oma: ", ["\nBen: "])),
        ("<u> hi\n<a> hello\n", "--with=a", Chat("<u> ", "<a> ", ["\n<u> "])),
        (f"{TWO}Ada L: a: b\n", "--as=Ben --with=Oma", Chat("Ben: ", "Oma: ", ["\nBen: ", "\nAda L: "])),
        ("", "--as=Ben --with=Oma", Chat("Ben: ", "Oma: ", ["\nBen: "])),
        (f"{TWO}{NOVEL}", "--as=Ben --with=Oma", Chat("Ben: ", "Oma: ", ["\nBen: "])),
        (f"{TWO}Ada: a\n", "--as=Ben", "--with is not given.*Ben .2 lines.*Ada .2 lines"),
        (TWO, "--as=Bem --with=Oma", "--as: 'Bem' given, but did you mean Ben?"),
        (TWO, "--as=xyz --with=Oma", "--as: 'xyz' given, but use one of Ben"),
        (TWO, "--as=Ben --with=Ben", "--with: 'Ben' given, the same as --as"),
        ("", "--as=Ben", "--with is not given.*no copy of the training text"),
        (NOVEL, "--as=Ben --with=Oma", "the training text of x is no conversation, .* use --interactive"),
        (f"{NOVEL}Note: a\nAda: a\n", "--as=Ben", "the training text of x is no conversation"),
    ],
)
def test_names_come_from_the_text(text, given, expected):
    corpus, options = None, parse_options(["--chat", *given.split()])
    if text:
        tokenizer = Tokenizer("".join(sorted(set(text))))
        corpus = SimpleNamespace(tokenizer=tokenizer, train=tokenizer.encode(text * 2))
    loaded = SimpleNamespace(config=Config(), run="x", find_corpus=lambda: corpus)
    if isinstance(expected, Chat):
        assert chat_of(options, loaded) == expected
    else:
        with pytest.raises(UserError, match=expected):
            chat_of(options, loaded)
