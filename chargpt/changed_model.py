"""Whether model.py, when it was changed, still computes the standard model: both are run, and their numbers compared."""

import copy
import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from chargpt.config import ModelConfig
from chargpt.device import one_thread
from chargpt.gpu import attention
from chargpt.standard_model import KINDS, TOKENS, Parts, standard_shapes

if TYPE_CHECKING:
    from chargpt.model import GPT, GPTConfig

# The numbers of layers and places in which the two are compared, each up to the last one; the vocabulary; the width of a narrow
# head; and of a model that is as wide as this one, at most. Steps in C are for narrower ones.
LAYERS, PLACES, VOCABULARY, HEAD, WIDEST = (1, 2, 4, 8, 16, 32), (1, 64, 256, 512, 1024, 2048), 33, 8, 1024
BACKWARD = 32  # characters of the backward pass
# The largest difference, relative to the size of the numbers. Both compute in float64, but for tables of positions and the sum
# of the gradient of the embedding, which are float32.
BOUND = 1e-6
ROUGH_BOUND = 0.1  # the same in bfloat16, of the whole; measured: 0.007 to 0.02

Differences = Callable[["GPT", ModelConfig], Iterator[float]]  # how far two results of a GPT of this shape are from each other


def standard_logits(
    weights: Mapping[str, Tensor], config: "ModelConfig | GPTConfig", idx: Tensor, *, dropout: float = 0.0
) -> Tensor:
    """The logits (B, T, V) of ids (B, T) by the arithmetic that everything beside model.py has. Slow and readable."""

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, x: Tensor) -> Tensor:
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


def shapes_like(config: "ModelConfig | GPTConfig", dropout: float) -> Iterator[ModelConfig]:
    """The shapes in which a model like this one is compared: one as deep, one as wide, and one with as long a context. A layer
    may differ from the one before it, a part of a head may be treated apart, and a window of attention shows behind its end."""
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


@functools.lru_cache(maxsize=256)
def are_small(differences: Differences, shape: ModelConfig, parts: Parts) -> bool:
    """Whether all differences are small, and a further pass would give the same: it draws no number but for dropout, and counts
    nothing. Code that raises an error, which is told elsewhere, is not the same."""
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


def differences_of_model(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far a GPT is from the standard model in each of its results."""
    weights = dict(gpt.named_parameters())
    state = {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()}
    yield 0.0 if state == standard_shapes(shape, VOCABULARY) and weights.keys() == state.keys() else math.inf
    inputs, targets = _random_ids(shape, texts=1)
    with torch.no_grad():
        right = standard_logits(weights, shape, inputs)
        yield _distance(gpt(inputs), right)
        yield _distance(gpt(inputs, targets), F.cross_entropy(right[0], targets[0]))
    inputs, targets = _random_ids(shape, texts=2, most=BACKWARD)
    with torch.no_grad():  # in bfloat16, which may take another path
        right = standard_logits(weights, shape, inputs)
        rough = copy.deepcopy(gpt).to(torch.bfloat16)(inputs).double()
        yield 0.0 if torch.linalg.vector_norm(rough - right) < ROUGH_BOUND * torch.linalg.vector_norm(right) else math.inf

    def standard_loss() -> Tensor:
        logits = standard_logits(weights, shape, inputs, dropout=shape.dropout)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    gpt.train()
    yield from _differences_in_training(gpt, lambda: gpt(inputs, targets), standard_loss)


def differences_of_attention(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far a GPT is from itself with `attention` in place of its own."""
    inputs, targets = _random_ids(shape, texts=1)

    def loss(fused: Callable[..., Tensor] | None) -> Tensor:
        for block in gpt.blocks:
            block.attn.fused = fused
        return gpt(inputs, targets)

    yield _distance(loss(attention).detach(), loss(None).detach())
    inputs, targets = _random_ids(shape, texts=2, most=BACKWARD)
    gpt.train()
    yield from _differences_in_training(gpt, lambda: loss(None), lambda: loss(attention))


def _differences_in_training(gpt: "GPT", own: Callable[[], Tensor], other: Callable[[], Tensor]) -> Iterator[float]:
    """How far two losses and their gradients are from each other."""
    results = []
    for loss_of in (own, other):
        with _NumberedDropout():
            loss = loss_of()
        gradient = torch.autograd.grad(loss, [*gpt.parameters()], allow_unused=True, materialize_grads=True)
        results.append([loss.detach(), *gradient])
    yield from map(_distance, *results)


def differences_of_cache(gpt: "GPT", shape: ModelConfig) -> Iterator[float]:
    """How far the logits that a GPT gives with a cache are from those without, for a text that is read in three parts."""
    (idx, _), read, size = _random_ids(shape, texts=1), 0, shape.block_size
    right, cache = gpt(idx).detach(), gpt.new_cache(1)
    for end in sorted({-(-size // 2), size - 1, size} - {0}):  # several characters, more of them, and one
        yield _distance(gpt(idx[:, read:end], cache=cache).detach(), right[:, read:end])
        read = end


def _random_model(shape: ModelConfig, parts: Parts) -> "GPT":
    """A GPT in float64 and evaluation mode, whose weights let every part of it count, as those of a trained model do."""
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
    plain = [value for module in gpt.modules() for value in vars(module).values() if isinstance(value, (int, float, str))]
    return torch.get_rng_state().tolist(), random.getstate(), plain, [buffer.tolist() for buffer in gpt.buffers()]


def _random_ids(shape: ModelConfig, *, texts: int, most: int = PLACES[-1]) -> tuple[Tensor, Tensor]:
    """Ids as long as the context, `most` at most, and those that follow each of them, (texts, T)."""
    size = texts, min(shape.block_size, most) + 1
    idx = torch.randint(VOCABULARY, size, generator=torch.Generator().manual_seed(1), device="cpu")
    return idx[:, :-1], idx[:, 1:]


class _NumberedDropout(TorchFunctionMode):
    """In this block, each call of dropout drops what follows from its number: the same in two models that call it alike."""

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


def _distance(found: Tensor, right: Tensor) -> float:
    """The largest difference of two tensors of one shape, relative to the largest number; infinite for anything else."""
    if found.shape != right.shape:
        return math.inf
    largest = float((found - right).abs().max() / right.abs().max().clamp(min=1e-9))
    return largest if math.isfinite(largest) else math.inf
