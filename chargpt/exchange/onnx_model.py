"""`--to onnx`: a folder with model.onnx, which onnxruntime runs, in Python, browsers and elsewhere.

The graph is model.py in operators of opset 20, the first with the exact GELU: input_ids (batch, time) to logits, with the
attention weights of each layer as further outputs. Comments give the shapes, in model.py's letters.
"""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from chargpt.exchange.certificate import ROUNDING, certify
from chargpt.exchange.export import ExportOptions, installed, not_checked, version_of, write_json
from chargpt.exchange.layouts import EPSILON
from chargpt.exchange.model_card import write_card
from chargpt.exchange.tensor_file import PlannedTensor, content, planned, size, transposed
from chargpt.exchange.tokenizer_json import to_tokenizer_json
from chargpt.files import SyncedFile, leb128
from chargpt.model import GPT
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError

# The first operator set with the exact GELU, and the version of the format that came with it.
OPSET = 20
IR_VERSION = 9


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


def onnx_graph(model: GPT) -> GraphBuilder:
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


# Fields of onnx.proto that are written here, and protobuf's code for "bytes of a given length".
MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_RAW_DATA = 9
LENGTH_DELIMITED = 2
USAGE = """```python
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("model.onnx")
ids = tokenizer.encode("PROMPT").ids
(logits,) = session.run(["logits"], {"input_ids": np.array([ids], np.int64)})  # (batch, time, vocabulary)
```"""
NOTES = [
    "The input `input_ids` is int64 (batch, time); both are free, up to the context.",
    "The outputs are `logits`, float32 (batch, time, vocabulary), and `attention.0`, `attention.1` and so on, the attention "
    "weights of each layer, (batch, heads, time, time). Ask for those that you need.",
    "There is no cache of keys and values: each character that is written costs one pass over the text so far.",
]


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the folder; see `chargpt/exchange/export.py`."""
    os.mkdir(path)
    write_json(path / "tokenizer.json", to_tokenizer_json(loaded.tokenizer))
    graph = onnx_graph(loaded.model)
    write_model(path / "model.onnx", model_proto(graph, loaded.model, name="chargpt"), graph.weights)
    checked = _check(loaded, path / "model.onnx", options)
    write_card(path / "README.md", loaded, options, library="onnx", usage=USAGE, notes=NOTES, checks=[checked])
    return [f"checked     {checked}"]


def write_model(path: Path, proto: onnx.ModelProto, weights: list[PlannedTensor]) -> None:
    """Write `proto` with `weights` added as initializers, one at a time: protobuf itself would copy all of them twice.

    A message is its fields one after another, each with a number, a type, and for messages a length. Raises OSError.
    """
    graph = proto.graph.SerializeToString()
    heads = [_tensor_head(plan) for plan in weights]
    sizes = [len(head) + size(plan) for head, plan in zip(heads, weights)]
    fields = [_field(GRAPH_INITIALIZER, length) for length in sizes]
    total = len(graph) + sum(map(len, fields)) + sum(sizes)
    outside = onnx.ModelProto()
    outside.CopyFrom(proto)
    outside.ClearField("graph")
    with SyncedFile(path) as file:
        file.write(memoryview(outside.SerializeToString() + _field(MODEL_GRAPH, total) + graph))
        for field, head, plan in zip(fields, heads, weights):
            file.write(memoryview(field + head))
            file.write(content(plan))


def _tensor_head(plan: PlannedTensor) -> bytes:
    """A TensorProto up to its numbers."""
    tensor = TensorProto(dims=plan.shape, data_type=TensorProto.FLOAT, name=plan.name)
    return tensor.SerializeToString() + _field(TENSOR_RAW_DATA, size(plan))


def _field(number: int, length: int) -> bytes:
    """The beginning of a protobuf field that holds `length` bytes. Its numbers are LEB128."""
    return leb128(number << 3 | LENGTH_DELIMITED) + leb128(length)


def _check(loaded: LoadedModel, path: Path, options: ExportOptions) -> str:
    """Run the file with onnxruntime and compare; the result as a sentence. Raises UserError if they differ."""
    if not installed("onnxruntime"):
        return not_checked("onnxruntime")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def logits_of(ids: np.ndarray) -> np.ndarray:
        return session.run(["logits"], {"input_ids": ids})[0]

    target = f"onnxruntime {version_of('onnxruntime')}"
    certificate = certify(loaded, logits_of, options, target=target)
    ids = options.ids[None, : loaded.model.config.block_size]
    layers = [f"attention.{i}" for i in range(loaded.model.config.n_layer)]
    weights = np.stack(session.run(layers, {"input_ids": ids}))
    largest = np.abs(weights - loaded.model.attention(torch.from_numpy(ids)).numpy()).max()
    if not largest <= ROUNDING:
        raise UserError(f"{target}: attention weights differ by {largest:.1e}, more than {ROUNDING:.1e}; nothing was written")
    return f"{certificate.describe()}; attention weights differ by at most {largest:.1e}."
