"""A model in one file: it is read as a run, and whatever else a file of that name holds is one clear line."""

import json

import numpy as np
import pytest
from exchange_helpers import VOCABULARIES, publish_model

from chargpt.errors import UserError
from chargpt.exchange import tensor_file
from chargpt.exchange.export import ExportOptions
from chargpt.runs.load import load_kept
from chargpt.sampling.loaded_model import load_model


@pytest.fixture
def run(tmp_path):
    path = publish_model(tmp_path / "sea", tokenizer=VOCABULARIES["characters"], positions="rotary")
    return load_model(str(path), tmp_path, device="cpu")[0]


@pytest.fixture
def kept(run, tmp_path):
    """The file that `export --to safetensors` writes of a run."""
    tensor_file.write(run, tmp_path / "kept.safetensors", ExportOptions(name="sea", texts=[]))
    return tmp_path / "kept.safetensors"


def test_a_kept_model_writes_what_its_run_writes(run, kept, tmp_path):
    loaded, warnings = load_model(str(kept), tmp_path, device="cpu")
    assert (loaded.run, loaded.texts, warnings) == ("kept.safetensors", [], [])
    assert loaded._what() == run._what().replace("sea", "kept.safetensors")
    assert loaded.generate("abc", seed=3, length=50) == run.generate("abc", seed=3, length=50)


def rewritten(data: bytes, **changes: object) -> bytes:
    """A kept file whose header has other metadata; None removes one."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    found = header["__metadata__"] | {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in changes.items()
    }
    header["__metadata__"] = {name: value for name, value in found.items() if value != "null"}
    content = json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data[8 + size :]


SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 24, "dropout": 0.0, "bias": True, "positions": "rotary"}
WRONG = {
    "another depth": {"model": SHAPE | {"n_layer": 3}},
    "a model of petabytes": {"model": SHAPE | {"n_embd": 2**30}},
    "a setting of no model": {"model": SHAPE | {"code": "import os"}},
    "no shape": {"model": None},
    "a shape that is a list": {"model": [1, 2]},
    "no vocabulary": {"vocabulary": None},
    "characters that are not sorted": {"vocabulary": VOCABULARIES["characters"].to_json() | {"characters": "ba"}},
    "a step below 0": {"state": {"step": -1}},
    "a loss of model.py that is no number": {"state": {"model_loss": "low"}},
    "a model.py that is none": {"state": {"model_source": "model.py"}},
    "a loss that is no number": {"state": {"step": 3, "val_loss": "low"}},
    "an endless loss": {"state": '{"step": 3, "val_loss": 1e999}'},
    "a state that is nested without end": {"state": "[" * 100_000},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG.keys())
def test_what_no_page_has_kept_is_one_line(kept, changes):
    kept.write_bytes(rewritten(kept.read_bytes(), **changes))
    with pytest.raises(UserError, match="kept.safetensors") as error:
        load_kept(kept)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("keep", [0, 7, 8, 300, -1, -4000])
def test_a_file_that_is_cut_off_is_one_line(kept, keep):
    kept.write_bytes(kept.read_bytes()[:keep])
    with pytest.raises(UserError, match="kept.safetensors"):
        load_kept(kept)


def test_a_weight_that_is_no_number_is_one_line(kept):
    data = bytearray(kept.read_bytes())
    data[-4:] = np.float32("nan").tobytes()
    kept.write_bytes(data)
    with pytest.raises(UserError, match="infinite or undefined"):
        load_kept(kept)


def test_what_is_known_of_the_training_is_shown(kept):
    kept.write_bytes(rewritten(kept.read_bytes(), state={"step": 70, "val_loss": 1.25, "texts": ["poem.txt"]}))
    assert load_kept(kept).state.progress.best_loss == 1.25 and load_kept(kept).step == 70


@pytest.mark.parametrize(("more", "warns"), [(0.0, False), (0.01, True)])
def test_an_export_of_another_model_py_is_told(more, warns, kept, tmp_path):
    """`--to safetensors` is the only export of a changed model.py, which may have been put back since."""
    size = int.from_bytes(kept.read_bytes()[:8], "little")
    state = json.loads(json.loads(kept.read_bytes()[8 : 8 + size])["__metadata__"]["state"])
    of_another = {"model_source": "a" * 64, "model_loss": state["model_loss"] + more}
    kept.write_bytes(rewritten(kept.read_bytes(), state=state | of_another))
    _, warnings = load_model(str(kept), tmp_path, device="cpu")
    assert [str(line).startswith("model.py computes something else") for line in warnings] == [True] * warns
