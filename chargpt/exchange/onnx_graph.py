"""model.py as an ONNX graph: input_ids (batch, time) to logits, with the attention weights of each layer as further outputs.

Operators of opset 20, the first with the exact GELU. Comments give the shapes, in model.py's letters.
"""

import math
from typing import Any

import onnx
from onnx import TensorProto, helper

from chargpt.exchange.layouts import EPSILON
from chargpt.exchange.tensor_file import PlannedTensor, planned, transposed
from model import GPT

OPSET, IR_VERSION = 20, 9  # IR 9 came with opset 20


class GraphBuilder:
    """Nodes and weights of a graph. Each method adds one step and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[PlannedTensor] = []
        self.constants: list[TensorProto] = []

    def add(self, operator: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """A node; its result, or the list of its results if there are several."""
        stem = name or f"{operator.lower()}_{len(self.nodes)}"
        names = [stem] if outputs == 1 else [f"{stem}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def numbers(self, *values: int) -> str:
        """A list of whole numbers."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def scalar(self, value: float) -> str:
        """A number, float32."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def weight(self, plan: PlannedTensor) -> str:
        """A tensor of the model."""
        self.weights.append(plan)
        return plan.name

    def linear(self, x: str, name: str, module: Any) -> str:
        """A linear layer of x (B, T, .)."""
        y = self.add("MatMul", x, self.weight(transposed(f"{name}.weight", module.weight)))
        return y if module.bias is None else self.add("Add", y, self.weight(planned(f"{name}.bias", module.bias)))

    def norm(self, x: str, name: str, module: Any) -> str:
        """A LayerNorm of x (B, T, C)."""
        bias = [] if module.bias is None else [self.weight(planned(f"{name}.bias", module.bias))]
        weight = self.weight(planned(f"{name}.weight", module.weight))
        return self.add("LayerNormalization", x, weight, *bias, axis=-1, epsilon=EPSILON)


def build(model: GPT) -> GraphBuilder:
    """The graph of a model. Its input is `input_ids`; its outputs are `logits`, and `attention.0` and so on."""
    graph, config = GraphBuilder(), model.config
    length = graph.add("Shape", "input_ids", start=1, end=2)  # (1,): T
    visible = _causal_mask(graph, length)  # (T, T)
    embedding = graph.weight(planned("token_embedding.weight", model.token_embedding.weight))
    x = graph.add("Gather", embedding, "input_ids")  # (B, T, C)
    rotary = None
    if config.positions == "rotary":
        tables = dict(zip(("cos", "sin"), model.position_table(config.block_size)))  # (block_size, d/2) each
        rotary = [_rows(graph, planned(f"rotary.{name}", table), length) for name, table in tables.items()]
    else:
        table = planned("position_embedding.weight", model.position_table(config.block_size))
        x = graph.add("Add", x, _rows(graph, table, length))
    for i, block in enumerate(model.blocks):
        name = f"blocks.{i}"
        y = _attention(graph, graph.norm(x, f"{name}.norm_1", block.norm_1), i, block.attn, visible, rotary)
        x = graph.add("Add", x, y)
        y = graph.linear(graph.norm(x, f"{name}.norm_2", block.norm_2), f"{name}.mlp.up", block.mlp.up)
        y = graph.linear(graph.add("Gelu", y), f"{name}.mlp.down", block.mlp.down)
        x = graph.add("Add", x, y)
    columns = graph.add("Transpose", embedding, perm=[1, 0])  # (C, V); the file holds the embedding once
    graph.add("MatMul", graph.norm(x, "norm", model.norm), columns, name="logits")  # (B, T, V)
    return graph


def model_proto(graph: GraphBuilder, model: GPT, *, name: str) -> onnx.ModelProto:
    """The model without its weights, which are written after it."""
    config = model.config
    time, heads = ["batch", "time"], ["batch", config.n_head, "time", "time"]
    outputs = {"logits": [*time, model.vocab_size], **{f"attention.{i}": heads for i in range(config.n_layer)}}
    graph_proto = helper.make_graph(
        graph.nodes,
        name,
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, time)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output, shape in outputs.items()],
        graph.constants,
    )
    proto = helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="chargpt")
    proto.ir_version = IR_VERSION
    helper.set_model_props(proto, {"block_size": str(config.block_size)})
    return proto


def _causal_mask(graph: GraphBuilder, length: str) -> str:
    """True where a character may see another: itself and those before it, (T, T)."""
    zero, one = (graph.add("Squeeze", graph.numbers(value)) for value in (0, 1))
    position = graph.add("Range", zero, graph.add("Squeeze", length), one)  # (T,)
    seen, seeing = (graph.add("Unsqueeze", position, graph.numbers(axis)) for axis in (0, 1))
    return graph.add("LessOrEqual", seen, seeing)


def _rows(graph: GraphBuilder, table: PlannedTensor, length: str) -> str:
    """The first T rows of a table. Past the context there are fewer, and the graph stops with an error."""
    return graph.add("Slice", graph.weight(table), graph.numbers(0), length, graph.numbers(0))


def _attention(graph: GraphBuilder, x: str, i: int, module: Any, visible: str, rotary: list[str] | None) -> str:
    """`reference_attention` of layer i on x (B, T, C), between its projections."""
    rows, width = module.qkv.weight.shape
    head = width // module.n_head
    qkv = graph.add("Reshape", graph.linear(x, f"blocks.{i}.attn.qkv", module.qkv), graph.numbers(0, 0, 3, module.n_head, head))
    split = graph.add("Split", graph.add("Transpose", qkv, perm=[2, 0, 3, 1, 4]), outputs=3, axis=0, num_outputs=3)
    q, k, v = (graph.add("Squeeze", part, graph.numbers(0)) for part in split)  # (B, h, T, d)
    if rotary is not None:
        q, k = _rotate(graph, q, rotary), _rotate(graph, k, rotary)
    products = graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = graph.add("Mul", products, graph.scalar(1 / math.sqrt(head)))  # (B, h, T, T)
    hidden = graph.add("Where", visible, scores, graph.scalar(-math.inf))
    weights = graph.add("Softmax", hidden, name=f"attention.{i}", axis=-1)
    y = graph.add("Transpose", graph.add("MatMul", weights, v), perm=[0, 2, 1, 3])  # (B, T, h, d)
    return graph.linear(graph.add("Reshape", y, graph.numbers(0, 0, width)), f"blocks.{i}.attn.proj", module.proj)


def _rotate(graph: GraphBuilder, x: str, rotary: list[str]) -> str:
    """`rotate` of model.py: each pair (x[i], x[i + d/2]) of x (B, h, T, d) by the angle of its position."""
    cos, sin = rotary
    first, second = graph.add("Split", x, outputs=2, axis=-1, num_outputs=2)
    left = graph.add("Sub", graph.add("Mul", first, cos), graph.add("Mul", second, sin))
    right = graph.add("Add", graph.add("Mul", second, cos), graph.add("Mul", first, sin))
    return graph.add("Concat", left, right, axis=-1)
