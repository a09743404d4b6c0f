"""`--to gguf`: every tensor and token is in the file, and llama.cpp computes nearly the same probabilities from it."""

import ast

import numpy as np
import pytest
from exchange_helpers import check_same, ids_of, options_of
from llama_cpp import LlamaCpp

gguf = pytest.importorskip("gguf", reason="needs the package gguf")


def test_the_file_holds_the_model(tmp_path, make_model, each_shape):
    from chargpt.exchange.gguf_model import gguf_tensors, write

    loaded = make_model(**each_shape)
    write(loaded, tmp_path / "out", options_of(loaded))
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
    expected = gguf_tensors(loaded.model)
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensors[name].dtype == np.float32
        assert np.array_equal(tensors[name].reshape(tensor.shape), tensor.detach().numpy())
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


@pytest.mark.nightly  # it takes a call for each position
def test_llama_cpp_computes_the_run_and_writes_the_same_text(tmp_path, make_model, each_shape, each_vocabulary):
    """Nearly: its GELU is the tanh approximation from a float16 table. A newline as the first id must not end a text."""
    pytest.importorskip("xllamacpp", reason="needs the package xllamacpp")
    from chargpt.exchange.gguf_model import write_gguf

    loaded = make_model(**each_shape, tokenizer=each_vocabulary)
    write_gguf(tmp_path / "x.gguf", loaded.model, loaded.tokenizer)
    vocab_size, known = loaded.model.vocab_size, loaded.model.vocab_size - loaded.tokenizer.folded
    llama = LlamaCpp(tmp_path / "x.gguf", vocab_size=vocab_size, context=24)
    is_bytes = each_vocabulary.characters is None
    expected = [bytes([i]) if is_bytes else each_vocabulary.decode([i]).encode() for i in range(known)]
    assert llama.token_bytes()[:known] == expected
    text = each_vocabulary.decode(ids_of(loaded)[:12])
    assert llama.prompt_length(text) == len(each_vocabulary.ids_of(text))
    check_same(
        loaded, llama.log_probabilities, tolerance=1e-3, longest=23, log_probabilities=True
    )  # it keeps room for one more
    if not each_vocabulary.folded:
        for prompt in ("a", "bad\n"):
            length = 24 - len(prompt) - 1
            assert prompt + llama.write(prompt, length) == loaded.generate(prompt, length=length, temperature=0)
