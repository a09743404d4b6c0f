"""The library speaks of arguments of Python, not of command-line options."""

import math

import pytest

from chargpt.arguments import check_number, in_python, notice_in_python, python_errors, whole_number
from chargpt.terminal import UserError


@pytest.mark.parametrize(
    ("program", "library"),
    [
        ("temperature: -1 given; use 0 or a number above 0", "temperature=-1: use 0 or a number above 0"),
        ("stop: 'É' given; use characters that this model can write", "stop='É': use characters that this model can write"),
        ("--device: cuda:9 given, but torch sees 0; use --device cpu", "device='cuda:9': torch sees 0; use device='cpu'"),
        ("--start: 'x' given, but there is no such start; use english", "start='x': there is no such start; use english"),
        ("--top-k: 'x' given; use a whole number", "top_k='x': use a whole number"),
        ("command line: train.max_steps: 'x' given; use a whole number", "train.max_steps='x': use a whole number"),
        ("lines: 2 given, but it writes no newlines; use --length", "lines=2: it writes no newlines; use length"),
        (
            "a: exists; continue it with --resume --run a, or choose another --run NAME",
            "a: exists; continue it with resume=True, run='a', or choose another run='NAME'",
        ),
        ("stopped; --resume --run p-teacher", "stopped; resume=True, run='p-teacher'"),
        (
            "a: exists; train it longer with --resume --run a train.max_steps=40",
            "a: exists; train it longer with resume=True, run='a', settings={'train.max_steps': 40}",
        ),
        ("leave out --config, --init-from and --vocab-from", "leave out config, init_from and vocab_from"),
        ("change them, or skip them with --unknown skip", "change them, or skip them with unknown='skip'"),
        ("train one with python train.py", "train one with chargpt.train"),
        ("leave --init-from out, or give a run", "leave init_from out, or give a run"),
        (
            "a: a checkpoint; make a run of it with python -m chargpt import ../out-nano --run NAME",
            "a: a checkpoint; make a run of it with python -m chargpt import ../out-nano --run NAME",
        ),
        ("a: with chargpt import b --run NAME; or not", "a: with chargpt import b --run NAME; or not"),
        (
            "train on it from the weights of this one with --init-from python-docs --run NAME",
            "train on it from the weights of this one with init_from='python-docs', run='NAME'",
        ),
        ("a.txt: no such file; give a file, - for standard input, or b", "a.txt: no such file; give a file, or b"),
        (
            "step 2: nan; continue with a lower rate, or with train.on_nonfinite=rollback",
            "step 2: nan; continue with a lower rate, or with settings={'train.on_nonfinite': 'rollback'}",
        ),
        (
            "own.yaml: has train.start: run sea, and more; add --init-from sea or the path of that run, or remove it",
            "own.yaml: has train.start: run sea, and more; add init_from='sea' or the path of that run, or remove it",
        ),
        ("nothing to change", "nothing to change"),
    ],
)
def test_a_message_of_a_program_becomes_one_of_the_library(program, library):
    assert in_python(program) == library


def test_an_error_is_raised_again_with_the_message_of_the_library():
    with pytest.raises(UserError, match="^top_k=-1: use more$"), python_errors():
        raise ValueError("top_k: -1 given; use more")
    with pytest.raises(KeyError), python_errors():
        raise KeyError("top_k: -1 given; use more")


def test_numbers_are_numbers():
    assert whole_number("length", 7) == 7
    with pytest.raises(UserError, match=f"^seed={2**63}: use a whole number from 0 to {2**63 - 1}$"):
        whole_number("seed", 2**63, most=2**63)
    for value in (-1, 1.0, "7", True, None, math.nan):
        with pytest.raises(UserError, match="^length=.*: use a whole number of 0 or more$"):
            whole_number("length", value)
    check_number("top_p", 1), check_number("top_p", 0.5)
    for value in ("1", None, True, [1.0]):
        with pytest.raises(UserError, match="^top_p=.*: use a number$"):
            check_number("top_p", value)


@pytest.mark.parametrize(
    ("program", "library"),
    [
        ("sample      python sample.py poems", "sample      chargpt.load('poems').generate()"),
        ("sample      chargpt sample poems", "sample      chargpt.load('poems').generate()"),
        (
            "stopped     at step 3, saved; continue with: python train.py --resume --run 'my poems'",
            "stopped     at step 3, saved; continue with: chargpt.train(resume=True, run='my poems')",
        ),
        (
            "result      for it: python train.py a.txt 'b c.txt' --minutes 2 train.seed=5 data.lowercase=true --run x-2",
            "result      for it: chargpt.train(['a.txt', 'b c.txt'], minutes=2, run='x-2', "
            "settings={'train.seed': 5, 'data.lowercase': True})",
        ),
        (
            "better      python train.py a.txt --init-from b   (0.5)",
            "better      chargpt.train('a.txt', init_from='b')   (0.5)",
        ),
        ("result      for it: python train.py a.txt --find-lr", "result      for it: python train.py a.txt --find-lr"),
        (
            "resumed     a/step-1, no steps to go; to train on, add train.max_steps=8, or --minutes M",
            "resumed     a/step-1, no steps to go; to train on, add settings={'train.max_steps': 8}, or minutes=M",
        ),
    ],
)
def test_a_notice_of_a_training_names_calls_and_arguments(program, library):
    assert notice_in_python(program) == library
