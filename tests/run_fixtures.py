"""A run with random weights whose text is in a cache, and a browser."""

import os
import shutil
from pathlib import Path

import pytest
from helpers import SHAPE, publish_run

from chargpt.config import Config, DataConfig, TrainConfig
from chargpt.text.corpus import Corpus, load_corpus

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Corpus:
    """The encoded text of the fixture `text` with another end, in a cache of its own: no other test puts it into data/cache."""
    folder, end = tmp_path_factory.mktemp("corpus"), "This line is in no other text.\n"
    (folder / "own.txt").write_text(text.read_text(encoding="utf-8")[: -len(end)] + end, encoding="utf-8")
    return load_corpus([str(folder / "own.txt")], DataConfig(cache=str(folder / "cache")), root=folder, block_size=8)


@pytest.fixture(scope="module")
def run(corpus: Corpus) -> Path:
    """A run on that corpus, beside its cache."""
    folder = Path(corpus.texts[0]).parent
    config = Config(model=SHAPE, train=TrainConfig(batch_size=1), data=DataConfig(cache=str(folder / "cache")))
    return publish_run(folder / "run", corpus.tokenizer, config=config, fingerprint=corpus.fingerprint)


@pytest.fixture(scope="module")
def browser():
    """A headless browser by playwright; the test skips where the package or the browser is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}")
    flags = ["--disable-gpu"] + (["--no-sandbox"] if os.name != "nt" and os.geteuid() == 0 else [])
    with playwright.sync_playwright() as started:
        program = started.chromium.launch(executable_path=path, args=flags)
        yield program
        program.close()
