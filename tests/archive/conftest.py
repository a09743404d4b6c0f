"""The fixtures of a small run and of a browser."""

from run_fixtures import browser, corpus, run  # noqa: F401
