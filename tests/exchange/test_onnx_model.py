"""`--to onnx`: the file is what onnx itself would write, and onnxruntime computes the same logits and attention weights."""

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx", reason="needs requirements-export.txt")


def test_the_file_is_read_by_onnx(tmp_path, make_model, make_options, monkeypatch):
    from chargpt.exchange import onnx_model

    monkeypatch.setattr(onnx_model, "installed", lambda package: False)
    loaded = make_model()
    (line,) = onnx_model.write(loaded, tmp_path / "out", make_options(loaded))
    assert "Not checked with onnxruntime" in line
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "model.onnx", "tokenizer.json"}
    proto = onnx.load(tmp_path / "out" / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    assert np.array_equal(found["token_embedding.weight"], loaded.model.token_embedding.weight.detach().numpy())
    assert np.array_equal(found["blocks.1.mlp.up.weight"], loaded.model.blocks[1].mlp.up.weight.detach().numpy().T)


def test_onnxruntime_computes_the_model(tmp_path, make_model, make_options, each_shape):
    """Any batch, any length, and the attention weights as well. `write` compares logits at every position, and greedy text."""
    runtime = pytest.importorskip("onnxruntime", reason="needs requirements-export.txt")
    from chargpt.exchange.onnx_model import write

    loaded = make_model(**each_shape)
    (line,) = write(loaded, tmp_path / "out", make_options(loaded))
    assert "onnxruntime" in line and "attention weights differ by at most" in line
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    for batch, length in ((1, 1), (3, 7), (2, 24)):
        ids = torch.randint(loaded.model.vocab_size, (batch, length))
        logits, weights = session.run(["logits", "attention.1"], {"input_ids": ids.numpy()})
        with torch.no_grad():
            assert np.abs(logits - loaded.model(ids).numpy()).max() < 1e-4
            assert np.abs(weights - loaded.model.attention(ids)[1].numpy()).max() < 1e-5
    with pytest.raises(Exception, match="(?i)broadcast|dimension|invalid"):  # an error, not a wrong result
        session.run(["logits"], {"input_ids": np.zeros((1, 25), np.int64)})


def test_a_graph_that_computes_something_else_is_not_published(tmp_path, make_model, make_options, monkeypatch):
    pytest.importorskip("onnxruntime", reason="needs requirements-export.txt")
    from chargpt.exchange import onnx_model
    from chargpt.terminal import UserError

    monkeypatch.setattr(onnx_model, "EPSILON", 1e-2)
    loaded = make_model()
    with pytest.raises(UserError, match="logits differ by"):
        onnx_model.write(loaded, tmp_path / "out", make_options(loaded))


def test_the_graph_is_valid(make_model, each_shape):
    from chargpt.exchange.onnx_model import model_proto, onnx_graph

    model = make_model(**each_shape).model
    graph = onnx_graph(model)
    proto = model_proto(graph, model, name="x")
    for plan in graph.weights:
        proto.graph.initializer.append(
            onnx.helper.make_tensor(plan.name, onnx.TensorProto.FLOAT, plan.shape, plan.make().flatten().tolist())
        )
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(proto, strict_mode=True), full_check=True)
    shapes = {
        value.name: [dimension.dim_param or dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in [*proto.graph.input, *proto.graph.output]
    }
    heads = ["batch", 2, "time", "time"]
    expected = {"input_ids": ["batch", "time"], "logits": ["batch", "time", model.vocab_size]}
    assert shapes == {**expected, "attention.0": heads, "attention.1": heads}


def test_no_weight_is_stored_twice(make_model):
    from chargpt.exchange import onnx_model

    model = make_model().model
    numbers = sum(plan.make().numel() for plan in onnx_model.onnx_graph(model).weights)
    assert numbers == model.parameter_count()
