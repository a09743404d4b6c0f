"""GPT-2's and Starcoder2's names for the same weights: there and back is the same model, to the bit."""

from dataclasses import replace

import torch

from chargpt.exchange.layouts import (
    GPT2,
    STARCODER2,
    read_weights,
    transformers_config,
    transformers_tensors,
    with_biases,
)
from chargpt.exchange.tensor_file import TensorSource


def test_there_and_back_is_the_same_model(make_model, each_shape):
    model = make_model(**each_shape).model
    config, source = model.config, TensorSource("x", transformers_tensors(model))
    layout, shape = STARCODER2 if config.positions == "rotary" else GPT2, config
    if config.positions == "sinusoidal":
        shape = replace(config, positions="learned")
    found = read_weights(source, layout, shape, model.vocab_size, is_transposed=layout is GPT2)
    source.check_all_read(found["token_embedding.weight"], except_for="")
    found, bias = with_biases(found)
    table = found.pop("position_embedding.weight", None)
    expected = model.state_dict()
    if config.positions == "learned":
        assert torch.equal(table, expected.pop("position_embedding.weight"))
    assert bias == config.bias and found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_config_names_the_exact_activation_and_the_whole_shape(make_model):
    gpt2, starcoder2 = (transformers_config(make_model(name, positions=name).model) for name in ("learned", "rotary"))
    assert gpt2["activation_function"] == starcoder2["hidden_act"] == "gelu"
    assert (gpt2["n_layer"], gpt2["n_head"], gpt2["n_embd"], gpt2["n_inner"], gpt2["n_positions"]) == (2, 2, 16, 64, 24)
    assert starcoder2["num_key_value_heads"] == starcoder2["num_attention_heads"] == 2 and starcoder2["sliding_window"] is None
