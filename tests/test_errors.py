"""The command line and Python spell the same message, each in its own way, and a text in it stays as it is."""

import ast
import errno
import itertools
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import publish_run
from hypothesis import given
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.errors import (
    FULL,
    IN_PYTHON,
    TO_DO,
    Command,
    Given,
    Message,
    NotWritten,
    Option,
    UserError,
    join,
    python_errors,
    resuming,
)
from chargpt.exchange.export import publish
from chargpt.parser import Parser
from chargpt.program import problem_of
from chargpt.project import HOME, TYPED_HOME, command, shell_word
from chargpt.text.corpus import load_corpus
from chargpt.text.suffix_array import open_or_make_index

WRITERS: dict[str, Callable[[Path], object]] = {  # what writes files aside, and gives them their names
    "a checkpoint": lambda folder: publish_run(folder / "run"),
    "an export": lambda folder: publish(folder / "out", lambda path: path.write_text("x"), is_folder=False, force=False),
    "a text": lambda folder: load_corpus([str(folder / "text.txt")], DataConfig(), root=folder, block_size=8),
    "an index": lambda folder: open_or_make_index(
        load_corpus([str(folder / "text.txt")], DataConfig(cache="c"), root=folder, block_size=8)
    ),
}


@pytest.mark.parametrize(
    ("words", "typed", "called"),
    [
        (Option("minutes", 10), "--minutes 10", "minutes=10"),
        (Option("init_from"), "--init-from", "init_from"),
        (Option("resume", True), "--resume", "resume=True"),
        (Option("run", "my poems"), f"--run {shell_word('my poems')}", "run='my poems'"),
        (Option("train.max_steps", 500), "train.max_steps=500", "settings={'train.max_steps': 500}"),
        (Option("model.bias", True), "model.bias=true", "settings={'model.bias': True}"),
        (Option("optim.betas", (0.9, 0.99)), "optim.betas=0.9,0.99", "settings={'optim.betas': (0.9, 0.99)}"),
        (Option("train.max_steps"), "train.max_steps", "train.max_steps"),
        (Option("text"), "TEXT", "text"),
        (Given("top_k", -1), "--top-k: -1 given; ", "top_k=-1: "),
        (Given("minutes", -1.0), "--minutes: -1 given; ", "minutes=-1: "),
        (Given("device", "cuda:9", ", but "), "--device: 'cuda:9' given, but ", "device='cuda:9': "),
        (Given("prompt", b"x" * 10**7), f"--prompt: b'{'x' * 195}... given; ", f"prompt=b'{'x' * 195}...: "),
        (Command("sample", "poems"), f"{command('sample')} poems", "chargpt.load('poems').generate()"),
        (Command("train"), command("train"), "chargpt.train()"),
        (resuming("a", Option("train.patience", 0)), "--resume --run a train.patience=0", None),
        (
            Command("train", "a.txt", "b.txt", Option("minutes", 2), Option("train.seed", 5), Option("run", "x-2")),
            f"{command('train')} a.txt b.txt --minutes 2 train.seed=5 --run x-2",
            "chargpt.train(['a.txt', 'b.txt'], minutes=2, run='x-2', settings={'train.seed': 5})",
        ),
        (join(" or ", ["a", Option("run"), "b"]), "a or --run or b", "a or run or b"),
    ],
)
def test_each_edge_has_its_spelling(words, typed, called):
    assert str(words) == typed
    assert IN_PYTHON(words) == (called or "resume=True, run='a', settings={'train.patience': 0}")


@given(st.text(), st.text())
def test_a_text_is_never_changed(before, after):
    """A file may be called my--notes.txt, TEXT or --resume."""
    error = UserError(before, Option("run", "a"), Message(after))
    assert str(error) == f"{before}--run a{after}" and IN_PYTHON(error) == f"{before}run='a'{after}"


@given(st.lists(st.text(), max_size=3), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_offered_is_one_call_of_python_and_the_same_words_of_a_shell(texts, name, number):
    offered = Command("train", *texts, Option("run", name), Option("minutes", number), Option("data.field", name))
    call = ast.parse(IN_PYTHON(offered), mode="eval").body
    assert isinstance(call, ast.Call)
    found = [ast.literal_eval(argument) for argument in call.args]
    assert found == ([] if not texts else [texts[0] if len(texts) == 1 else texts])
    assert {word.arg: ast.literal_eval(word.value) for word in call.keywords} == {
        "run": name,
        "minutes": number,
        "settings": {"data.field": name},
    }
    words = shlex.split(str(offered).removeprefix(command("train")))
    assert words == [*texts, "--run", name, "--minutes", str(number), f"data.field={name}"]


def test_an_error_keeps_its_type_at_the_edge_of_the_library_and_reads_as_python():
    class Own(UserError):
        pass

    with pytest.raises(Own, match="^top_k=-1: use more$"), python_errors():
        raise Own(Given("top_k", -1), "use more")
    with pytest.raises(KeyError), python_errors():
        raise KeyError("--top-k")


def test_the_message_of_an_error_within_another_has_its_own_spelling_too():
    inner = UserError("a: damaged; use another ", Option("run"))
    outer = UserError(inner, ", or ", Option("init_from"))
    assert str(outer) == "a: damaged; use another --run, or --init-from"
    assert IN_PYTHON(outer) == "a: damaged; use another run, or init_from"


@pytest.mark.parametrize(
    ("word", "posix", "windows"),
    [
        ("poems", "poems", "poems"),
        (r"sub\poems.txt", r"'sub\poems.txt'", r"sub\poems.txt"),
        ("my poems.txt", "'my poems.txt'", '"my poems.txt"'),
        ("", "''", '""'),
    ],
)
def test_a_word_of_a_command_is_quoted_as_the_shell_of_the_system_wants_it(word, posix, windows, monkeypatch):
    for system, quoted in (("posix", posix), ("nt", windows)):
        monkeypatch.setattr("chargpt.errors.os.name", system)
        assert shell_word(word) == quoted
        monkeypatch.undo()


@pytest.mark.parametrize(("number", "writer"), [*zip([*TO_DO, errno.ENXIO], itertools.cycle(WRITERS))])
def test_what_is_advised_follows_the_error_of_the_system_wherever_a_write_fails(writer, number, tmp_path, monkeypatch):
    """A disk to which nobody may write is not told to be freed, and no caller is blamed for a full one."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the sea and the stone\n" * 20)
    if writer == "an index":  # of a text that is there
        load_corpus(["text.txt"], DataConfig(cache="c"), root=tmp_path, block_size=8)

    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(NotWritten) as error:
        WRITERS[writer](tmp_path)
    says = f"{problem_of(error.value)}"
    assert os.strerror(number) in says and ".tmp-" not in says
    assert says.endswith(TO_DO.get(number, "check the path, its permissions and the free space on its disk"))
    assert ("free some space" in says) == (number in FULL)
    assert str(problem_of(OSError(number, os.strerror(number), "x"))).endswith(TO_DO.get(number, "space on its disk"))


def test_a_gpu_that_fails_is_one_line_that_says_how_to_go_on():
    """That of a card which lacks memory is another one."""
    says = str(problem_of(torch.AcceleratorError("CUDA error: an illegal memory access\nCompile with `TORCH_USE_CUDA_DSA`")))
    assert says.startswith("GPU: it has failed (CUDA error: an illegal memory access); start again, a training with --resume,")
    assert str(problem_of(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))).startswith("memory: ")


@pytest.mark.parametrize("words, home", [(["--home", "a b"], ["--home", "a b"]), (["--home=/c"], ["--home", "/c"]), ([], [])])
def test_whoever_has_typed_home_is_offered_commands_with_it(words, home, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["app.py", "--home", "of another program"])
    for variable in (HOME, TYPED_HOME):
        monkeypatch.setenv(variable, "")  # which --home sets
    Parser().parse_args(words)
    offered, arguments = Command("sample", "poems"), Command("", Option("run", "a"))
    assert shlex.split(str(offered))[2:] == ["poems", *home] and str(arguments) == "--run a"
    assert IN_PYTHON(offered) == "chargpt.load('poems').generate()"
