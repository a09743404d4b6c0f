"""What the tests of the text package need: load_corpus on files in a folder of the test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chargpt.config import DataConfig
from chargpt.text import source
from chargpt.text.corpus import Corpus, load_corpus


@pytest.fixture(autouse=True)
def short_time_of_doubt(monkeypatch) -> None:
    """A file is trusted to be unchanged a tenth of a second after its last change."""
    monkeypatch.setattr(source, "RACY_NS", 100_000_000)


@pytest.fixture
def load(tmp_path) -> Callable[..., Corpus]:
    """load_corpus with a cache of this test, half of the text for validation, and sequences of four characters."""

    def load(*texts: Path | str, block_size: int = 4, **changes: object) -> Corpus:
        more = {name: changes.pop(name) for name in ("tokenizer", "known", "asked", "earlier", "growth") if name in changes}
        config = DataConfig(**{"cache": str(tmp_path / ".cache"), "val_fraction": 0.5, **changes})
        return load_corpus([str(text) for text in texts], config, root=tmp_path, block_size=block_size, **more)

    return load
