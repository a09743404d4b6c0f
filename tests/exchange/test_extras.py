"""A package that is not installed costs one line that says what to run."""

import pytest

from chargpt.exchange.extras import installed, not_checked, require, version_of
from chargpt.terminal import UserError


def test_a_missing_package_is_named_with_the_command():
    assert installed("torch") and not installed("a_package_that_is_not_there")
    with pytest.raises(UserError, match="--to gguf: needs the package a_package.*pip install -r requirements-export.txt"):
        require("a_package_that_is_not_there", target="gguf")
    require("torch", target="gguf")
    assert "Not checked with llama.cpp" in not_checked("llama.cpp") and version_of("torch")[0].isdigit()
