"""Processes that the tests of this folder share."""

from collections.abc import Iterator

import pytest
from parallel.jobs import JobServer


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[JobServer]:
    server = JobServer(tmp_path_factory.mktemp("jobs"))
    yield server
    server.close()
