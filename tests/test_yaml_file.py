"""What a YAML file may hold. Its mistakes in settings are in test_config.py."""

import pytest

from chargpt.terminal import UserError
from chargpt.yaml_file import MAX_BYTES, read_yaml


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_yaml(tmp_path / "missing.yaml")


@pytest.mark.parametrize("number", ["010", "0x10", "1:30", "0b1", "+07"])
def test_only_decimal_numbers_are_numbers(tmp_path, number):
    (tmp_path / "my.yaml").write_text(f"train:\n  max_steps: {number}\n")
    with pytest.raises(UserError, match="line 2: .* not a decimal number"):
        read_yaml(tmp_path / "my.yaml")


def test_plain_yaml_is_read_as_it_is(tmp_path):
    (tmp_path / "my.yaml").write_text("train:\n  max_steps: -10\n  seed: 1_000\nmodel:\n  bias: on\n  n: 0\n")
    assert read_yaml(tmp_path / "my.yaml") == {"train": {"max_steps": -10, "seed": 1000}, "model": {"bias": True, "n": 0}}


def test_a_file_that_is_far_too_large_is_refused(tmp_path):
    (tmp_path / "my.yaml").write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(UserError, match="larger than"):
        read_yaml(tmp_path / "my.yaml")


@pytest.mark.parametrize("value", ["!!int {a: b}", "!!int [1]", "!!bool x", "!!timestamp abc", '!!float ""'])
def test_a_tag_that_does_not_fit_its_value_is_one_line(tmp_path, value):
    (tmp_path / "my.yaml").write_text(f"train:\n  max_steps: {value}\n")
    with pytest.raises(UserError, match="not valid YAML"):
        read_yaml(tmp_path / "my.yaml")


@pytest.mark.parametrize(("value", "says"), [("4\0", "U\\+0000 is not allowed"), ("9" * 5000, "a number of 5,000 digits")])
def test_what_yaml_cannot_read_is_named_with_its_line(tmp_path, value, says):
    (tmp_path / "my.yaml").write_text(f"train:\n  max_steps: {value}\n")
    with pytest.raises(UserError, match=f"line 2: .*{says}") as caught:
        read_yaml(tmp_path / "my.yaml")
    assert "\n" not in str(caught.value)
