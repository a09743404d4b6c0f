"""Processes that the tests of this folder share."""

from collections.abc import Iterator

import pytest
from parallel.jobs import JobServer


@pytest.fixture(scope="module")
def server(tmp_path_factory, session_root, pytestconfig) -> Iterator[JobServer]:
    chosen = {name: pytestconfig.getoption(name) for name in ("precision", "step")}
    server = JobServer(tmp_path_factory.mktemp("jobs"), root=session_root, **chosen)
    yield server
    server.close()
