from pathlib import Path

import pytest

from chargpt.sampling.options import parse_options
from chargpt.terminal import UserError

ROOT = Path(__file__).parents[2]


def test_a_seed_and_a_length_are_always_set():
    assert parse_options([]).sampling.limit == 500 and parse_options(["--lines", "3"]).sampling.limit == 3000
    assert parse_options(["--lines", "3", "--length", "7"]).sampling.limit == 7
    assert parse_options([]).sampling.seed != parse_options([]).sampling.seed
    assert parse_options(["--seed", "5"]).sampling.seed == 5


@pytest.mark.parametrize("other", [["--json"], ["--samples", "2"], ["--temperature", "0,1"], ["--prompt-file", "-"]])
def test_what_does_not_go_together_is_named(other):
    with pytest.raises(UserError, match="--interactive: .* given as well"):
        parse_options(["--interactive", *other])
    with pytest.raises(UserError, match="--lines"):
        parse_options(["--unseen"])
