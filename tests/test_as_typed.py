"""What is typed, or run, in another way than meant is told in one line; machines and disks with limits are respected."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import write

from chargpt.errors import UserError
from chargpt.parser import Parser
from chargpt.processor import core_count, quota
from chargpt.sampling.options import typed_list
from chargpt.text.facts import _is_sorted


@given(st.sampled_from("–—−"), st.integers(1, 2), st.sampled_from(["minutes", "run=a", "items"]))
def test_a_dash_of_a_word_processor_is_named_with_the_option_that_is_meant(dash, times, option):
    with pytest.raises(UserError, match=f"dash of a word processor; type --{option.partition('=')[0]}$"):
        Parser().parse_args(["poems.txt", dash * times + option, "3"])


CUT = [["--prompt", "'The", "river'"], ["--prompt", "“The", "river”"], ["data.pattern='*.py'"], ["«The", "sea»"]]


@pytest.mark.parametrize("words", CUT)
def test_quotes_that_a_shell_left_are_named(words):
    with pytest.raises(UserError, match="quotes that this shell does not know; type double quotes"):
        Parser().parse_args(words)


@given(st.lists(st.sampled_from(["'Tis the sea", "“He said” it", "it's", "–", "— he", "don't", "“He said"]), max_size=3))
def test_what_may_be_meant_is_taken(words):
    parser = Parser()
    parser.add_argument("words", nargs="*")
    assert parser.parse_args(["--", *words]).words == words


@given(st.integers(0, 999))
def test_a_decimal_comma_is_no_list_of_temperatures(number):
    text = f"0,{number}"
    if number <= 2:
        assert typed_list(text) == [0, number]
    else:
        with pytest.raises(Exception, match=f"did you mean 0.{number}"):
            typed_list(text)
    assert typed_list("0.5,0.7") == [0.5, 0.7] and typed_list("1,2") == [1, 2]


NAMES = st.lists(st.text("abcdefgh", min_size=2, max_size=8), min_size=60, max_size=90, unique=True)


@given(NAMES, st.sampled_from(["{:04} ", "{:02}:15 <", "[{}] "]))
def test_numbers_and_times_in_order_make_no_sorted_list_and_sorted_names_behind_them_do(names, stamp):
    def lists(names):
        lines = [stamp.format(number) + name for number, name in enumerate(names)]
        return "\n".join(lines[:50]), "\n".join(lines[50:])

    assert _is_sorted(*lists(sorted(names)))
    assert not _is_sorted(*lists([*sorted(names)[1::2], *sorted(names)[::2]]))
    assert not _is_sorted(*lists([""] * len(names)))


QUOTAS = [
    ({"cpu.max": "150000 100000"}, 2),
    ({"cpu.max": "max 100000"}, 0),
    ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "1000"}, 0),
    ({}, 0),
]


@pytest.mark.parametrize("files, cores", QUOTAS)
def test_the_quota_of_a_container_limits_the_cores(files, cores, tmp_path):
    for name, content in files.items():
        write(tmp_path / name, content)
    assert quota(tmp_path) == cores and core_count() >= 1


def test_a_process_that_waits_for_others_says_so(programs):
    code = "import chargpt.training.join as j, chargpt.training.parallel as p; p.PATIENCE = 0.1; j.join_group().__enter__()"
    variables = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with programs.start(code=code, environment=os.environ | variables) as one:
        said = next((line for line in one.stderr if b"waiting" in line), b"")
    assert b"waiting for 1 more of WORLD_SIZE=2 processes; to train with one, unset WORLD_SIZE" in said
