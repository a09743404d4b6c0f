"""Processes that the tests of this folder share."""

from collections.abc import Iterator

import pytest
from parallel.jobs import JobServer
from programs import PIPE

STDERR = 2


@pytest.fixture(scope="module")
def server(programs, tmp_path_factory) -> Iterator[JobServer]:
    with programs.start("parallel.job_server", stdin=PIPE, stderr=STDERR) as process:
        yield JobServer(tmp_path_factory.mktemp("jobs"), process.with_text())
