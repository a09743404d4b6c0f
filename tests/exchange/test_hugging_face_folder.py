"""A folder of transformers: our own exports come back to the bit, and what cannot be represented is named in one line."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import safetensors.torch
import torch
from exchange_helpers import VOCABULARIES, options_of, publish_model

from chargpt.errors import UserError
from chargpt.exchange import hugging_face, model_card
from chargpt.exchange.hugging_face import read_folder
from chargpt.sampling.loaded_model import load_model


@pytest.fixture
def exported(tmp_path, make_model):
    """Called with the arguments of make_model: the LoadedModel, and its folder."""

    def export(**shape):
        loaded = make_model(**shape)
        hugging_face.write(loaded, tmp_path / "hf", options_of(loaded))
        return loaded, tmp_path / "hf"

    return export


@pytest.fixture(scope="module")
def good_folders(tmp_path_factory):
    """An export with learned and one with rotary positions, by these names; tests change copies."""
    root = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_card, "SAMPLE_LENGTH", 20)
        for positions in ("learned", "rotary"):
            run = publish_model(root / "runs" / positions, positions=positions, tokenizer=VOCABULARIES["characters"])
            loaded, _ = load_model(str(run), root, device="cpu")
            hugging_face.write(loaded, root / positions, options_of(loaded))
    return root


@pytest.fixture
def folder(good_folders, tmp_path, request):
    """A copy of the export with learned positions, or with those that the test is called with."""
    positions = request.node.callspec.params.get("positions", "learned") if hasattr(request.node, "callspec") else "learned"
    return shutil.copytree(good_folders / positions, tmp_path / "hf")


def change_json(path, **changes):
    document = json.loads(path.read_text())
    for key, value in changes.items():
        document[key] = value
    path.write_text(json.dumps(document))


def change_tensors(folder, change):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_an_export_of_each_shape_and_vocabulary_comes_back_to_the_bit(exported, each_shape, vocabulary):
    loaded, folder = exported(**each_shape, tokenizer=VOCABULARIES[vocabulary])
    found = read_folder(folder)
    assert found.tokenizer == loaded.tokenizer and asdict(found.shape) == asdict(loaded.model.config)
    expected = loaded.model.state_dict()
    assert found.weights.keys() == expected.keys()
    assert all(torch.equal(found.weights[name], expected[name]) for name in expected)


def test_another_order_of_the_vocabulary_is_the_same_model(exported):
    loaded, folder = exported()
    order = np.random.default_rng(0).permutation(loaded.model.vocab_size)
    document = json.loads((folder / "tokenizer.json").read_text())
    characters = loaded.tokenizer.characters
    document["model"]["vocab"] = {characters[old]: new for new, old in enumerate(order)}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    change_tensors(folder, lambda t: t.update({"transformer.wte.weight": t["transformer.wte.weight"][torch.from_numpy(order)]}))
    found = read_folder(folder)
    assert found.tokenizer == loaded.tokenizer
    assert torch.equal(found.weights["token_embedding.weight"], loaded.model.token_embedding.weight)


def test_half_precision_and_a_stored_output_matrix_are_read(folder):

    def change(tensors):
        for name in tensors:
            tensors[name] = tensors[name].half()
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 24, 24, dtype=torch.uint8)

    change_tensors(folder, change)
    assert read_folder(folder).weights["token_embedding.weight"].dtype == torch.float32


def test_a_norm_with_a_bias_in_a_model_without_biases_is_kept(exported):
    """Starcoder2 has biases of norms always: the run then has biases everywhere, zero where there were none."""
    _, folder = exported(positions="rotary", bias=False)
    change_tensors(folder, lambda tensors: tensors["model.norm.bias"].fill_(0.5))
    found = read_folder(folder)
    assert found.shape.bias and found.weights["norm.bias"].eq(0.5).all() and not found.weights["blocks.0.attn.qkv.bias"].any()


@pytest.mark.parametrize(
    "positions, changes, problem",
    [
        ("learned", {"activation_function": "gelu_new"}, "activation_function is gelu_new, and only gelu"),
        ("learned", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
        ("learned", {"n_inner": 100}, "n_inner is 100"),
        ("learned", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("learned", {"model_type": "llama"}, "model_type is llama"),
        ("learned", {"vocab_size": 50257}, "vocab_size is 50257"),
        ("learned", {"n_layer": "2"}, "a whole number of 1 or more"),
        ("learned", {"n_embd": 2**30}, "weights"),
        ("learned", {"n_head": 3}, "use a multiple of n_head"),
        ("learned", {"n_layer": 1}, "so it is no plain GPT-2"),
        ("learned", {"n_layer": 3}, "is missing"),
        ("rotary", {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act"),
        ("rotary", {"num_key_value_heads": 1}, "num_key_value_heads is 1"),
        ("rotary", {"sliding_window": 8}, "sliding_window is 8"),
        ("rotary", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rope_theta is 500000"),
        ("rotary", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_type is linear"),
        ("rotary", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    ],
)
def test_what_cannot_be_represented_is_named_in_one_line(folder, positions, changes, problem):
    change_json(folder / "config.json", **changes)
    with pytest.raises(UserError, match=problem) as raised:
        read_folder(folder)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_each_file_is_needed_whole(folder, name):
    shutil.copytree(folder, folder.with_name("copy"))
    data = (folder / name).read_bytes()
    for damaged in (None, b"", data[:50], b"\0" * 100, b"[]", b"[" * 100_000, data[:-3]):
        (folder / name).unlink(missing_ok=True)
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        with pytest.raises(UserError) as raised:
            read_folder(folder)
        assert "\n" not in str(raised.value)
    (folder / name).unlink()
    (folder / name).symlink_to(folder.with_name("copy") / name)
    with pytest.raises(UserError):  # a folder from elsewhere must not choose what is read on this machine
        read_folder(folder)
