"""`--to onnx`: a folder with model.onnx, which onnxruntime runs, in Python, browsers and elsewhere."""

import os
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto

from chargpt.exchange.certificate import ROUNDING, certify
from chargpt.exchange.extras import installed, not_checked, version_of
from chargpt.exchange.hugging_face import write_json
from chargpt.exchange.model_card import write_card
from chargpt.exchange.onnx_graph import build, model_proto
from chargpt.exchange.target import ExportOptions
from chargpt.exchange.tensor_file import PlannedTensor, content, size
from chargpt.exchange.tokenizer_json import to_tokenizer_json
from chargpt.files import SyncedFile
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError

# Fields of onnx.proto that are written here, and protobuf's code for "bytes of a given length".
MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA, LENGTH_DELIMITED = 7, 5, 9, 2
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
    """Write the folder; see `chargpt/exchange/target.py`."""
    os.mkdir(path)
    write_json(path / "tokenizer.json", to_tokenizer_json(loaded.tokenizer))
    graph = build(loaded.model)
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
    """The beginning of a protobuf field that holds `length` bytes."""
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """A number in protobuf's form: seven bits a byte, lowest first, the top bit set in all but the last."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


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
