"""The model that everything beside model.py computes, and whether model.py computes it too.

model.py is the model, and anybody may change it. The C code, the exports and the exported page compute one fixed model, GPT-2's
with exact GELU, which is written here once more: the names and shapes of its weights, its positions, its logits. Whoever wants
to compute in place of model.py asks `is_standard` first. It compares the two by their numbers, so it needs no list of what may
have been changed. What was found of a file of model.py is kept in the user's folder for caches: sampling then needs no torch.
"""

import copy
import functools
import hashlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chargpt.config import ModelConfig
from chargpt.project import model_file, user_cache_folder

if TYPE_CHECKING:  # writing needs no torch
    from torch import Tensor

    from chargpt.model import GPT, GPTConfig

SINUSOID_SCALE = 0.08 * math.sqrt(2)  # as in model.py
TOKENS = "token_embedding.weight"
# The model in which they are compared: narrow, since a width changes no arithmetic, but with as many layers and places as this
# one up to the last number, since a layer may differ from the one before it, and a window of attention shows behind its end.
LAYERS, PLACES, MOST_HEADS, VOCABULARY, HEAD = (1, 2, 4, 8, 12), (1, 64, 256, 512), 2, 33, 8
BACKWARD = 32  # characters of the backward pass
DROPOUT = 0.5
# The largest difference, relative to the size of the numbers. Both compute in float64, but for tables of positions and the sum
# of the gradient of the embedding, which are float32.
BOUND = 1e-6
ROUGH_BOUND = 0.1  # the same in bfloat16, of the whole; measured: 0.007 to 0.02
IMPORT = re.compile(rb"^[ \t]*(?:import|from)\b(.*)", re.MULTILINE)
CHANGED = "model.py computes something else than the C code"
ANSWERS = {b"standard": True, b"changed": False}  # as they are kept


class Positions(NamedTuple):
    """One kind. `table` makes `GPT.position_table` of all positions, float32, from the weights of a model and its config."""

    table: Callable[[Mapping[str, Any], "ModelConfig | GPTConfig"], Any]
    rotates: bool = False  # the table rotates queries and keys; otherwise it is added to the embeddings


def _angles(config: "ModelConfig | GPTConfig", width: int) -> np.ndarray:
    return np.arange(config.block_size)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)


def _sinusoids(_: Mapping[str, np.ndarray], config: "ModelConfig | GPTConfig") -> np.ndarray:
    angle, table = _angles(config, config.n_embd), np.zeros((config.block_size, config.n_embd))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)[:, : config.n_embd // 2]
    return table.astype(np.float32) * np.float32(SINUSOID_SCALE)


def _rotations(_: Mapping[str, np.ndarray], config: "ModelConfig | GPTConfig") -> np.ndarray:
    angle = _angles(config, config.n_embd // config.n_head)
    return np.stack((np.cos(angle), np.sin(angle))).astype(np.float32)


KINDS = {
    "learned": Positions(lambda weights, _: weights["position_embedding.weight"]),
    "sinusoidal": Positions(_sinusoids),
    "rotary": Positions(_rotations, rotates=True),
}


def has_positions(config: "ModelConfig | GPTConfig") -> bool:
    """Whether the positions of this model are among KINDS. Pairs of numbers of a head are rotated."""
    kind = KINDS.get(config.positions)
    return kind is not None and config.n_embd % config.n_head == 0 and not (kind.rotates and config.n_embd // config.n_head % 2)


def standard_shapes(config: "ModelConfig | GPTConfig", vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights of a standard model."""
    C = config.n_embd
    shapes: dict[str, tuple[int, ...]] = {TOKENS: (vocab_size, C)}
    if config.positions == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    of_block = {"norm_1": (C,), "attn.qkv": (3 * C, C), "attn.proj": (C, C)}
    of_block |= {"norm_2": (C,), "mlp.up": (4 * C, C), "mlp.down": (C, 4 * C)}
    layers = {f"blocks.{i}.{name}": shape for i in range(config.n_layer) for name, shape in of_block.items()}
    for name, shape in (layers | {"norm": (C,)}).items():
        shapes[f"{name}.weight"] = shape
        if config.bias:
            shapes[f"{name}.bias"] = shape[:1]
    return shapes


def check_shapes(weights: Mapping[str, Any], config: "ModelConfig | GPTConfig", vocab_size: int) -> None:
    """Raise ValueError unless these weights, of torch or NumPy, are those of a standard model: code in C reads no others."""
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if shapes != (needed := standard_shapes(config, vocab_size)):
        name = next(name for name in (*needed, *shapes) if shapes.get(name) != needed.get(name))
        raise ValueError(f"{name} is {shapes.get(name, 'missing')}, not {needed.get(name, 'there')}")


def attention(qkv: "Tensor", n_head: int, rotary: "Tensor | None" = None) -> "Tensor":
    """The outputs of the heads side by side (B, T, C), from queries, keys and values (B, T, 3 C), as `fused` of model.py."""
    import torch

    B, T, _ = qkv.shape
    q, k, v = (part.view(B, T, n_head, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1))  # (B, h, T, d)
    if rotary is not None:
        cosine, sine = rotary.to(qkv.dtype)
        halves = (x.chunk(2, dim=-1) for x in (q, k))
        q, k = (torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1) for a, b in halves)
    hidden = torch.ones(T, T, dtype=torch.bool, device=qkv.device).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.size(-1))).masked_fill(hidden, -math.inf)
    return (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, T, -1)


def standard_logits(
    weights: "Mapping[str, Tensor]", config: "ModelConfig | GPTConfig", idx: "Tensor", *, dropout: float = 0.0
) -> "Tensor":
    """The logits (B, T, V) of ids (B, T) by the arithmetic that everything beside model.py has. Slow and readable."""
    import torch
    import torch.nn.functional as F

    def linear(name: str, x: "Tensor") -> "Tensor":
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, x: "Tensor") -> "Tensor":
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    kind, tokens = KINDS[config.positions], weights[TOKENS]
    table = torch.as_tensor(kind.table(weights, config))[..., : idx.size(1), :].to(tokens)
    rotary = table if kind.rotates else None
    x = F.dropout(F.embedding(idx, tokens) + (0 if kind.rotates else table), dropout)
    for block in (f"blocks.{i}" for i in range(config.n_layer)):
        y = attention(linear(f"{block}.attn.qkv", norm(f"{block}.norm_1", x)), config.n_head, rotary)
        x = x + F.dropout(linear(f"{block}.attn.proj", y), dropout)
        y = F.gelu(linear(f"{block}.mlp.up", norm(f"{block}.norm_2", x)))
        x = x + F.dropout(linear(f"{block}.mlp.down", y), dropout)
    return F.linear(norm("norm", x), tokens)


def is_standard(config: "ModelConfig | GPTConfig", *, dropout: float = 0.0) -> bool:
    """Whether model.py, as it is now, computes the standard model in a shape like this one: weights, logits, loss, gradient.

    The gradient is that of a training with so much `dropout`. It takes some 20 ms, once for each kind of shape. Where model.py
    is not loaded, what was found of its file before is enough, and torch is not needed.
    """
    if not has_positions(config):
        return False
    with_dropout = _is_standard(_shape_like(config, DROPOUT))  # which says the same of a model without
    return with_dropout or not dropout and _is_standard(_shape_like(config, 0.0))


def _is_standard(shape: ModelConfig) -> bool:
    loaded = sys.modules.get("chargpt.model")
    if loaded is None or _is_of_file(parts := _parts_of(loaded)):
        return _file_is_standard(shape, model_source())
    return _same_model(shape, parts)  # a notebook has replaced something, or the file has changed since it was loaded


def has_standard_attention(config: "ModelConfig | GPTConfig") -> bool:
    """Whether other code may compute the attention of model.py, its `fused`. All else of it may be changed."""
    from chargpt import model

    shape = _shape_like(config, config.dropout)
    return has_positions(config) and (is_standard(config) or _same_attention(shape, _parts_of(model)))


def _shape_like(config: "ModelConfig | GPTConfig", dropout: float) -> ModelConfig:
    """The shape in which a model like this one is compared: one width for all, one dropout, and a few numbers of layers."""
    heads = min(config.n_head, MOST_HEADS)
    return ModelConfig(
        n_layer=next((layers for layers in LAYERS if layers >= config.n_layer), LAYERS[-1]),
        n_head=heads,
        n_embd=heads * HEAD,
        block_size=next((places for places in PLACES if places >= config.block_size), PLACES[-1]),
        dropout=DROPOUT if dropout else 0.0,
        bias=config.bias,
        positions=config.positions,  # type: ignore[arg-type]
    )


class _Parts(dict[str, Any]):
    """What a module like model.py has: functions, classes with their methods, constants. A notebook may replace some."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def _parts_of(module: ModuleType) -> _Parts:
    parts = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    for name, kind in [(name, value) for name, value in parts.items() if isinstance(value, type)]:
        parts |= {f"{name}.{key}": part for key, part in vars(kind).items() if callable(part) or not key.startswith("__")}
    return _Parts({name: dict(part) if isinstance(part, dict) else part for name, part in parts.items()})  # tables may change


@functools.lru_cache(maxsize=64)
def _file_is_standard(shape: ModelConfig, source: str) -> bool:
    """`is_standard` of the file model.py, whose SHA-256 is `source`. The answer is kept in the user's folder for caches."""
    own = Path(__file__).read_bytes()
    key = hashlib.sha256(b"\0".join((own, source.encode(), str(shape).encode()))).hexdigest()
    kept: Path | None = None
    with suppress(RuntimeError, OSError, KeyError):  # a user without a home; a file that cannot be read, or of another program
        kept = user_cache_folder() / "chargpt" / f"model-{key[:32]}"
        return ANSWERS[kept.read_bytes()]
    if (parts := _parts_of_file()) is None:
        return False
    answer = _same_model(shape, parts)
    if kept is not None:
        from chargpt.files import publish_file  # needs filelock, which writing does without

        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            publish_file(kept, next(written for written, found in ANSWERS.items() if found == answer))
    return answer


@functools.cache
def _parts_of_file() -> _Parts | None:
    """What the file model.py has, which is executed once more; None if it is not that of `model_source` any more, or fails."""
    try:
        spec = importlib.util.spec_from_file_location("_model_of_file", model_file())
        assert spec is not None and spec.loader is not None
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)  # which dataclasses ask for
        spec.loader.exec_module(module)
        return _parts_of(module) if model_source.__wrapped__() == model_source() else None
    except Exception:  # the file is anybody's; whoever uses it will say what is wrong
        return None
    finally:
        sys.modules.pop("_model_of_file", None)


@functools.lru_cache(maxsize=8)
def _is_of_file(parts: _Parts) -> bool:
    """Whether a loaded module is as the file model.py has it."""
    of_file = _parts_of_file() or _Parts()
    return parts.keys() == of_file.keys() and all(_plain(parts[name]) == _plain(of_file[name]) for name in parts)


def _plain(part: Any) -> object:
    """A part of a module, so that it is equal to the same part of another module."""
    if isinstance(part, dict):
        return {name: _plain(value) for name, value in part.items()}
    if isinstance(part, (int, float, str, tuple)):
        return part
    return getattr(part, "__code__", type(part))


@functools.lru_cache(maxsize=64)
def _same_model(shape: ModelConfig, parts: _Parts) -> bool:
    """Whether the GPT of a module with these `parts` computes what `standard_logits` does."""
    return _within_bound(lambda: _differences(_random_model(shape, parts), shape))


@functools.lru_cache(maxsize=64)
def _same_attention(shape: ModelConfig, parts: _Parts) -> bool:
    """Whether the GPT of a module with these `parts` gives the same with `attention` in place of its own."""

    def differences() -> "Iterator[float]":
        gpt, idx = _random_model(shape, parts), _random_ids(shape)
        own = _loss_and_gradient(gpt, gpt(idx[:, :-1], idx[:, 1:]))
        for block in gpt.blocks:
            block.attn.fused = attention
        yield from map(_distance, _loss_and_gradient(gpt, gpt(idx[:, :-1], idx[:, 1:])), own)

    return _within_bound(differences)


def _within_bound(differences: "Callable[[], Iterator[float]]") -> bool:
    """Whether all differences are small. The code is anybody's: what raises an error is not the same, and is told elsewhere."""
    import torch

    from chargpt.device import one_thread

    random, dtype = torch.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with one_thread(), torch.inference_mode(False), torch.enable_grad():
            return all(found <= BOUND for found in differences())
    except Exception:
        return False
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(random)


def _differences(gpt: "GPT", shape: ModelConfig) -> "Iterator[float]":
    """How far a GPT of this shape is from the standard model in each of its results."""
    import torch

    weights, idx = dict(gpt.named_parameters()), _random_ids(shape)
    state = {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()}
    yield 0.0 if state == standard_shapes(shape, VOCABULARY) and weights.keys() == state.keys() else math.inf
    inputs, targets, cross_entropy = idx[:, :-1], idx[:, 1:], torch.nn.functional.cross_entropy
    with torch.no_grad():
        right = standard_logits(weights, shape, inputs)
        yield _distance(gpt(inputs), right)
        yield _distance(gpt(inputs, targets), cross_entropy(right[0], targets[0]))
        yield from _differences_of_cache(gpt, idx, right)
        for block in gpt.blocks:
            block.attn.fused = attention
        yield _distance(gpt(inputs), right)
        for block in gpt.blocks:
            block.attn.fused = None
        rough = copy.deepcopy(gpt).to(torch.bfloat16)(inputs).double()  # which may take another path
        yield 0.0 if torch.linalg.vector_norm(rough - right) < ROUGH_BOUND * torch.linalg.vector_norm(right) else math.inf
    inputs, targets = inputs[:, :BACKWARD], targets[:, :BACKWARD]
    with _numbered_dropout():
        found = gpt.train()(inputs, targets)
    with _numbered_dropout():
        right = standard_logits(weights, shape, inputs, dropout=shape.dropout)
    losses = found, cross_entropy(right[0], targets[0])
    yield from map(_distance, *(_loss_and_gradient(gpt, loss) for loss in losses))


def _random_model(shape: ModelConfig, parts: _Parts) -> "GPT":
    """A GPT in float64 and evaluation mode, whose weights let every part of it count, as those of a trained model do."""
    import torch

    gpt = parts["GPT"](parts["GPTConfig"](**vars(shape)), VOCABULARY).to("cpu", torch.float32).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in gpt.parameters():
            numbers = torch.randn(parameter.shape, generator=random, device="cpu")
            is_gain = parameter.dim() == 1 and bool((parameter == 1).all())
            scale = 0.3 if parameter.dim() < 2 else 1.5 / math.sqrt(parameter.size(-1))
            parameter.copy_(is_gain + scale * numbers)
    return gpt.double()  # a later cast to float32 loses nothing


def _random_ids(shape: ModelConfig) -> "Tensor":
    """A text of one character more than the context, (1, T + 1)."""
    import torch

    return torch.randint(VOCABULARY, (1, shape.block_size + 1), generator=torch.Generator().manual_seed(1), device="cpu")


def _loss_and_gradient(gpt: "GPT", loss: "Tensor") -> "list[Tensor]":
    import torch

    gradient = torch.autograd.grad(loss, [*gpt.parameters()], allow_unused=True, materialize_grads=True)
    return [loss.detach(), *gradient]


def _numbered_dropout() -> AbstractContextManager[object]:
    """In this block, each call of dropout drops what follows from its number: the same in two models that call it alike."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Numbered(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(zip(("input", "p", "training"), args)) | (kwargs or {})
            if func is not torch.nn.functional.dropout:
                return func(*args, **(kwargs or {}))
            x, p = given["input"], given.get("p", 0.5)
            if not (p and given.get("training", True)):
                return x
            self.calls += 1
            kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.calls), device="cpu") >= p
            return x * kept / (1 - p)

    return Numbered()


def _distance(found: "Tensor", right: "Tensor") -> float:
    """The largest difference of two tensors of one shape, relative to the largest number; infinite for anything else."""
    if found.shape != right.shape:
        return math.inf
    largest = float((found - right).abs().max() / right.abs().max().clamp(min=1e-9))
    return largest if math.isfinite(largest) else math.inf


def has_exact_cache(config: "ModelConfig | GPTConfig") -> bool:
    """Whether model.py reads a text with a cache as it does without. If not, or if it has none, texts are written without."""
    from chargpt import model

    return is_standard(config) or _same_cache(_shape_like(config, 0.0), _parts_of(model))


@functools.lru_cache(maxsize=64)
def _same_cache(shape: ModelConfig, parts: _Parts) -> bool:
    """Whether the GPT of a module with these `parts` gives the same logits with a cache as without."""

    def differences() -> "Iterator[float]":
        gpt, idx = _random_model(shape, parts), _random_ids(shape)
        yield from _differences_of_cache(gpt, idx, gpt(idx[:, :-1]).detach())

    return _within_bound(differences)


def _differences_of_cache(gpt: "GPT", idx: "Tensor", right: "Tensor") -> "Iterator[float]":
    """How far the logits of the ids (1, T + 1) are from the `right` ones (1, T, V), read with a cache in three parts."""
    cache, read, size = gpt.new_cache(1), 0, right.size(1)
    for end in sorted({-(-size // 2), size - 1, size} - {0}):  # several characters, more of them, and one
        yield _distance(gpt(idx[:, read:end], cache=cache).detach(), right[:, read:end])
        read = end


def model_loss(
    logits_of: Callable[[list[int]], np.ndarray], config: "ModelConfig | GPTConfig", vocab_size: int
) -> float | None:
    """The mean loss on ids that stand for nothing, in nats: it tells whether another model.py computes the same.

    `logits_of` gives the logits (T, V) of T ids. None if the loss is not finite.
    """
    size = min(config.block_size, BACKWARD)
    ids = [(7919 * i * i + 104729 * i) % vocab_size for i in range(size + 1)]
    logits = logits_of(ids[:-1]).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(size), ids[1:]]
    return float(losses.mean()) if math.isfinite(losses.sum()) else None


@functools.cache
def model_source() -> str:
    """The SHA-256 of the file model.py, and of those in its folder that it imports, when this process began to use it."""
    files, found = [model_file()], list[bytes]()
    for file in files:  # it grows meanwhile
        if file.is_file():
            found.append(file.read_bytes())
            names = {name.decode() for line in IMPORT.findall(found[-1]) for name in re.findall(rb"\w+", line)}
            files += [path for name in sorted(names) if (path := file.with_name(f"{name}.py")) not in files]
    return hashlib.sha256(b"\0".join(found)).hexdigest()
