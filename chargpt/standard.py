"""The model that everything beside model.py computes, and whether model.py computes it too.

model.py is the model, and anybody may change it. The C code, the exports and the exported page compute one fixed model, GPT-2's
with exact GELU, which is written here once more: the names and shapes of its weights, its positions, its logits. Whoever wants
to compute in place of model.py asks `is_standard` first. It compares the two by their numbers, so it needs no list of what may
have been changed. Only of the very file that comes with chargpt is the answer known: sampling then needs no torch.
"""

import copy
import functools
import hashlib
import math
import random
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chargpt.config import ModelConfig
from chargpt.project import model_file

if TYPE_CHECKING:  # writing needs no torch
    from torch import Tensor

    from chargpt.model import GPT, GPTConfig

SINUSOID_SCALE = 0.08 * math.sqrt(2)  # as in model.py
TOKENS = "token_embedding.weight"
# `model_source` of the model.py that comes with chargpt. A test compares it, and says what to write here after a change.
UNCHANGED = "ab310f4b43bbdafcb7bc810bb51d0fd4deee2fbe4e739800347f4ef57a2a1059"
# The numbers of layers and places in which the two are compared, each up to the last one; the vocabulary; the width of a narrow
# head; and of a model that is as wide as this one, at most. Steps in C are for narrower ones.
LAYERS, PLACES, VOCABULARY, HEAD, WIDEST = (1, 2, 4, 8, 16, 32), (1, 64, 256, 512, 1024, 2048), 33, 8, 1024
BACKWARD = 32  # characters of the backward pass
# The largest difference, relative to the size of the numbers. Both compute in float64, but for tables of positions and the sum
# of the gradient of the embedding, which are float32.
BOUND = 1e-6
ROUGH_BOUND = 0.1  # the same in bfloat16, of the whole; measured: 0.007 to 0.02
IMPORT = re.compile(rb"^[ \t]*(?:import|from)\b(.*)", re.MULTILINE)
CHANGED = "model.py computes something else than the C code"


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
    """Whether model.py, as it is now, computes the standard model in shapes like this one: weights, logits, loss, gradient.

    The gradient is that of a training with so much `dropout`. Of the model.py that comes with chargpt it is known, and torch is
    not needed; of another one, the comparison takes about 0.1 s, once for each kind of shape.
    """
    return has_positions(config) and _holds(_differences, config, dropout=dropout)


def has_standard_attention(config: "ModelConfig | GPTConfig") -> bool:
    """Whether other code may compute the attention of model.py, its `fused`. All else of it may be changed."""
    return has_positions(config) and _holds(_differences_of_attention, config, dropout=config.dropout)


def has_exact_cache(config: "ModelConfig | GPTConfig") -> bool:
    """Whether model.py reads a text with a cache as it does without. If not, or if it has none, texts are written without."""
    return _holds(_differences_of_cache, config, dropout=0.0)


Differences = Callable[["GPT", ModelConfig], Iterator[float]]  # how far two results of a GPT of this shape are from each other


def _holds(differences: Differences, config: "ModelConfig | GPTConfig", *, dropout: float) -> bool:
    """Whether all `differences` of model.py are small. The tests have found it of the one that comes with chargpt."""
    if "chargpt.model" not in sys.modules and model_source() == UNCHANGED:
        return True
    from chargpt.model import GPT

    parts = _parts_of(vars(sys.modules[GPT.__module__]))  # in a checkout, chargpt.model has copies of their names alone
    return _is_unchanged(parts) or all(_are_small(differences, shape, parts) for shape in _shapes_like(config, dropout))


def _shapes_like(config: "ModelConfig | GPTConfig", dropout: float) -> Iterator[ModelConfig]:
    """The shapes in which a model like this one is compared: one as deep, one as wide, and one with as long a context.

    A layer may differ from the one before it, a part of a head may be treated apart, and a window of attention shows behind its
    end. All of it at once would take too long.
    """
    layers, places = (
        next((size for size in sizes if size >= given), sizes[-1])
        for sizes, given in ((LAYERS, config.n_layer), (PLACES, config.block_size))
    )
    width = config.n_embd // config.n_head
    wide = min(width, WIDEST)
    for n_layer, n_head, head, block_size in (
        (layers, min(config.n_head, 2), HEAD, min(places, BACKWARD)),
        (1, min(config.n_head, WIDEST // wide), wide, min(places, HEAD)),
        (min(layers, 4), 1, HEAD, places),
    ):
        sizes = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_head * head, "block_size": block_size}
        kind = {"dropout": dropout, "bias": config.bias, "positions": config.positions}
        yield ModelConfig(**sizes, **kind)  # type: ignore[arg-type]


class _Parts(dict[str, Any]):
    """What a module like model.py has: functions, classes with their methods, constants. A notebook may replace some."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def _parts_of(module: Mapping[str, Any]) -> _Parts:
    parts = {name: value for name, value in module.items() if not name.startswith("__")}
    for name, kind in [(name, value) for name, value in parts.items() if isinstance(value, type)]:
        parts |= {f"{name}.{key}": part for key, part in vars(kind).items() if callable(part) or not key.startswith("__")}
    return _Parts({name: dict(part) if isinstance(part, dict) else part for name, part in parts.items()})  # tables may change


@functools.lru_cache(maxsize=8)
def _is_unchanged(parts: _Parts) -> bool:
    """Whether a loaded module is the model.py that comes with chargpt: the file is, and what it has is what it had at first."""
    if model_source() != UNCHANGED or _source_now() != UNCHANGED:
        return False
    first = _parts_of(runpy.run_path(str(model_file()), run_name="unchanged_model"))  # whatever Python had compiled before
    return parts.keys() == first.keys() and all(_plain(parts[name]) == _plain(first[name]) for name in parts)


def _plain(part: Any) -> object:
    """A part of a module, so that it is equal to the same part of another module."""
    if isinstance(part, dict):
        return {name: _plain(value) for name, value in part.items()}
    return getattr(part, "__code__", part.__qualname__ if isinstance(part, type) else part)


@functools.lru_cache(maxsize=256)
def _are_small(differences: Differences, shape: ModelConfig, parts: _Parts) -> bool:
    """Whether all differences are small, and a further pass would give the same: it draws no number but for dropout, and counts
    nothing. The code is anybody's: what raises an error is not the same, and is told elsewhere.
    """
    import torch

    from chargpt.device import one_thread

    states, dtype = (torch.get_rng_state(), random.getstate()), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with one_thread(), torch.inference_mode(False), torch.enable_grad():
            gpt = _random_model(shape, parts)
            before = _all_but_weights(gpt)
            return all(found <= BOUND for found in differences(gpt, shape)) and _all_but_weights(gpt.eval()) == before
    except Exception:
        return False
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(states[0])
        random.setstate(states[1])


def _differences(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far a GPT is from the standard model in each of its results."""
    import torch
    from torch.nn.functional import cross_entropy

    weights = dict(gpt.named_parameters())
    state = {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()}
    yield 0.0 if state == standard_shapes(shape, VOCABULARY) and weights.keys() == state.keys() else math.inf
    inputs, targets = _random_ids(shape, texts=1)
    with torch.no_grad():
        right = standard_logits(weights, shape, inputs)
        yield _distance(gpt(inputs), right)
        yield _distance(gpt(inputs, targets), cross_entropy(right[0], targets[0]))
    inputs, targets = _random_ids(shape, texts=2, most=BACKWARD)
    with torch.no_grad():  # in bfloat16, which may take another path
        right = standard_logits(weights, shape, inputs)
        rough = copy.deepcopy(gpt).to(torch.bfloat16)(inputs).double()
        yield 0.0 if torch.linalg.vector_norm(rough - right) < ROUGH_BOUND * torch.linalg.vector_norm(right) else math.inf

    def standard_loss() -> "Tensor":
        logits = standard_logits(weights, shape, inputs, dropout=shape.dropout)
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    gpt.train()
    yield from _differences_in_training(gpt, lambda: gpt(inputs, targets), standard_loss)


def _differences_of_attention(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far a GPT is from itself with `attention` in place of its own."""
    inputs, targets = _random_ids(shape, texts=1)

    def loss(fused: Callable[..., "Tensor"] | None) -> "Tensor":
        for block in gpt.blocks:
            block.attn.fused = fused
        return gpt(inputs, targets)

    yield _distance(loss(attention).detach(), loss(None).detach())
    inputs, targets = _random_ids(shape, texts=2, most=BACKWARD)
    gpt.train()
    yield from _differences_in_training(gpt, lambda: loss(None), lambda: loss(attention))


def _differences_in_training(gpt: "GPT", own: Callable[[], "Tensor"], other: Callable[[], "Tensor"]) -> Iterator[float]:
    """How far two losses and their gradients are from each other."""
    import torch

    results = []
    for loss_of in (own, other):
        with _numbered_dropout():
            loss = loss_of()
        gradient = torch.autograd.grad(loss, [*gpt.parameters()], allow_unused=True, materialize_grads=True)
        results.append([loss.detach(), *gradient])
    yield from map(_distance, *results)


def _differences_of_cache(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far the logits that a GPT gives with a cache are from those without, for a text that is read in three parts."""
    (idx, _), read, size = _random_ids(shape, texts=1), 0, shape.block_size
    right, cache = gpt(idx).detach(), gpt.new_cache(1)
    for end in sorted({-(-size // 2), size - 1, size} - {0}):  # several characters, more of them, and one
        yield _distance(gpt(idx[:, read:end], cache=cache).detach(), right[:, read:end])
        read = end


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


def _all_but_weights(gpt: "GPT") -> tuple[object, ...]:
    """What else decides the next result of a model: random numbers, plain attributes, buffers."""
    import torch

    plain = [value for module in gpt.modules() for value in vars(module).values() if isinstance(value, (int, float, str))]
    return torch.get_rng_state().tolist(), random.getstate(), plain, [buffer.tolist() for buffer in gpt.buffers()]


def _random_ids(shape: ModelConfig, *, texts: int, most: int = PLACES[-1]) -> "tuple[Tensor, Tensor]":
    """Ids as long as the context, `most` at most, and those that follow each of them, (texts, T)."""
    import torch

    size = texts, min(shape.block_size, most) + 1
    idx = torch.randint(VOCABULARY, size, generator=torch.Generator().manual_seed(1), device="cpu")
    return idx[:, :-1], idx[:, 1:]


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


def model_source() -> str:
    """The SHA-256 of model.py, and of those files beside it that it imports: as they were when this process loaded it."""
    return _source_in_use() if "chargpt.model" in sys.modules else _source_now()


def is_outdated(source: str) -> bool:
    """Whether model.py is the one of this `model_source`, but not what this process has loaded."""
    return source == _source_now() != model_source()


def _source_now() -> str:
    files, found = [model_file()], list[bytes]()
    for file in files:  # it grows meanwhile
        if file.is_file():
            found.append(file.read_bytes().replace(b"\r\n", b"\n"))
            names = {name.decode() for line in IMPORT.findall(found[-1]) for name in re.findall(rb"\w+", line)}
            beside = [path for name in sorted(names) for path in _modules(file.with_name(name))]
            files += [path for path in dict.fromkeys(beside) if path not in files]
    return hashlib.sha256(b"\0".join(found)).hexdigest()


_source_in_use = functools.cache(_source_now)


def _modules(path: Path) -> list[Path]:
    """The files of a module or a package of this path without its suffix."""
    return [path.with_suffix(".py"), *sorted(path.rglob("*.py"))]
