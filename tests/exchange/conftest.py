"""Fixtures for the tests of exports and imports."""

from collections.abc import Callable

import pytest
from exchange_helpers import VOCABULARIES, publish_model
from run_fixtures import browser  # noqa: F401

from chargpt.exchange import model_card
from chargpt.model import POSITIONS
from chargpt.sampling.loaded_model import LoadedModel, load_model
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def short_samples(monkeypatch) -> None:
    """Model cards with samples of a few characters: every export writes one."""
    monkeypatch.setattr(model_card, "SAMPLE_LENGTH", 20)


@pytest.fixture
def make_model(tmp_path) -> Callable[..., LoadedModel]:
    """Called with positions, bias and a tokenizer: a LoadedModel on the CPU, and its run in tmp_path/NAME."""

    def make(name: str = "poems", **shape: object) -> LoadedModel:
        shape = {"tokenizer": VOCABULARIES["characters"], **shape}
        loaded, _ = load_model(str(publish_model(tmp_path / name, **shape)), tmp_path, device="cpu")
        return loaded

    return make


@pytest.fixture(params=[f"{positions}{biases}" for positions in POSITIONS for biases in ("-biases", "")])
def each_shape(request) -> dict[str, object]:
    """The keyword arguments of `make_model` for each kind of positions and biases."""
    positions, _, biases = request.param.partition("-")
    return {"positions": positions, "bias": bool(biases)}


@pytest.fixture(params=VOCABULARIES)
def each_vocabulary(request) -> Tokenizer:
    """A tokenizer of each kind."""
    return VOCABULARIES[request.param]
