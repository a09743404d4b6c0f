import pytest

from chargpt.sampling.options import parse_options
from chargpt.terminal import UserError


def test_a_seed_and_a_length_are_always_set():
    assert parse_options([]).sampling.limit == 500 and parse_options(["--lines", "3"]).sampling.limit == 3000
    assert parse_options(["--lines", "3", "--length", "7"]).sampling.limit == 7
    assert parse_options([]).sampling.seed != parse_options([]).sampling.seed
    assert parse_options(["--seed", "5"]).sampling.seed == 5


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
