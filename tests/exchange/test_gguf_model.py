"""`--to gguf`: every tensor and token is in the file, and llama.cpp computes nearly the same probabilities from it."""

import ast

import numpy as np
import pytest
from page_helpers import new_model

from chargpt.exchange.export import installed
from chargpt.text.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf", reason="needs requirements-export.txt")


@pytest.fixture(autouse=True)
def without_llama_cpp(request, monkeypatch):
    """It takes a call for each position: only nightly tests run it."""
    if "nightly" not in request.keywords:
        monkeypatch.setattr("chargpt.exchange.gguf_model.installed", lambda package: False)


def test_the_file_holds_the_model(tmp_path, make_model, make_options, each_shape):
    from chargpt.exchange.gguf_model import write

    loaded = make_model(**each_shape)
    first, second = write(loaded, tmp_path / "out", make_options(loaded))
    assert "equal to the bit" in first and "Not checked with llama.cpp" in second
    reader = gguf.GGUFReader(tmp_path / "out" / "model.gguf")
    field = {name: field.contents() for name, field in reader.fields.items()}
    architecture = "starcoder2" if each_shape["positions"] == "rotary" else "gpt2"
    assert field["general.architecture"] == architecture
    expected = {
        "context_length": 24,
        "embedding_length": 16,
        "block_count": 2,
        "attention.head_count": 2,
        "feed_forward_length": 64,
    }
    assert {name: field[f"{architecture}.{name}"] for name in expected} == expected
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert np.array_equal(tensors["blk.1.ffn_up.weight"], loaded.model.blocks[1].mlp.up.weight.detach().numpy())
    assert not tensors["blk.0.attn_norm.bias"].any() or each_shape["bias"]


def test_tokens_are_the_bytes_of_the_characters(each_vocabulary):
    """RWKV's form is that of Python's bytes literals."""
    from chargpt.exchange.gguf_model import gguf_tokens

    tokens = gguf_tokens(each_vocabulary)
    assert len(tokens) == each_vocabulary.vocab_size
    found = [ast.literal_eval('b"' + token.replace('"', '\\"') + '"') for token in tokens]
    expected = [bytes([value]) for value in range(256)]
    if each_vocabulary.characters is not None:
        expected = [character.encode() for character in each_vocabulary.characters] + [b"<folded>"] * each_vocabulary.folded
    assert found == expected


def test_quotes_and_backslashes_are_kept():
    from chargpt.exchange.gguf_model import gguf_tokens

    assert gguf_tokens(Tokenizer("\t\n\"'\\é")) == ["\\x09", "\\x0a", '"', "'", "\\x5c", "\\xc3\\xa9"]


def test_a_context_of_one_character_is_not_checked(tmp_path, monkeypatch, make_options):
    """llama.cpp would end the process."""
    from chargpt.exchange import gguf_model

    monkeypatch.setattr(gguf_model, "installed", lambda package: True)
    loaded = new_model(tmp_path, Tokenizer("ab"), block_size=1)
    assert "does not run a context of one character" in gguf_model.write(loaded, tmp_path / "out", make_options(loaded))[-1]


@pytest.mark.nightly
@pytest.mark.skipif(not installed("xllamacpp"), reason="needs xllamacpp")
def test_llama_cpp_computes_the_model(tmp_path, make_model, make_options, each_shape, each_vocabulary):
    from chargpt.exchange.gguf_model import write

    loaded = make_model(**each_shape, tokenizer=each_vocabulary)
    _, line = write(loaded, tmp_path / "out", make_options(loaded))
    assert "log-probabilities on 60 random characters differ by at most" in line and "gives the same ids" in line
