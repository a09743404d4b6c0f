"""The ONNX graph is valid, and its input and outputs have the shapes that the model card names."""

import pytest

onnx = pytest.importorskip("onnx", reason="needs requirements-export.txt")


def test_the_graph_is_valid(make_model, each_shape):
    from chargpt.exchange.onnx_graph import build, model_proto

    model = make_model(**each_shape).model
    graph = build(model)
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
    from chargpt.exchange.onnx_graph import build

    model = make_model().model
    numbers = sum(plan.make().numel() for plan in build(model).weights)
    assert numbers == model.parameter_count()
