"""What everything beside model.py computes, and that no other model.py is taken for it."""

import ast
import copy
import importlib.util
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import saved_state

from chargpt import changed_model, model, standard, standard_model
from chargpt.changed_model import (
    Differences,
    differences_of_attention,
    differences_of_cache,
    differences_of_model,
    standard_logits,
)
from chargpt.config import ModelConfig
from chargpt.project import model_file
from chargpt.runs.checkpoint_schema import what_changed
from chargpt.standard import is_standard
from chargpt.standard_model import standard_shapes

SOURCE = model_file().read_text(encoding="utf-8")
# What no other code computes in place of model.py: a reference, a picture, the first weights, a slow loop, a cache.
APART = {"reference_attention", "reference", "attention", "generate", "_initialise", "parameter_count", "KVCache", "new_cache"}
SHAPE = ModelConfig(n_layer=2, n_head=2, n_embd=16, block_size=12, bias=True, dropout=0.5)
SWAPPED = {ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.Mult(), ast.Pow: ast.Mult()}

OTHERS = {"gelu": ["silu", "relu"], "softmax": ["exp"], "sin": ["cos"], "tril": ["triu"], "dropout": ["alpha_dropout"]}


def module_of(source: str) -> ModuleType:
    """A module with this text in place of that of model.py."""
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("changed_model", loader=None))
    sys.modules[module.__name__] = module  # which dataclasses ask for
    exec(compile(source, "changed_model.py", "exec"), vars(module))
    return module


def changes(node: ast.AST) -> Iterator[tuple[str, dict[str, object]]]:
    """The names of the changes of a node in one operator, number, comparison, condition or statement, and its new fields."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield "operator", {"op": SWAPPED[type(node.op)]}
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from (("number", {"value": node.value + 1}), ("factor", {"value": node.value * 1.001}))
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "truth", {"value": not node.value}
    if isinstance(node, ast.UnaryOp):
        yield "sign", {"op": ast.UAdd() if isinstance(node.op, ast.USub) else ast.USub()}
    if isinstance(node, ast.Compare):
        yield "comparison", {"ops": [ast.NotEq() for _ in node.ops]}
    if isinstance(node, ast.IfExp):
        yield "branches", {"body": node.orelse, "orelse": node.body}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for other in OTHERS.get(node.func.attr, ()):
            yield other, {"func": ast.Attribute(node.func.value, other), "keywords": []}
    if isinstance(node, (ast.Assign, ast.Expr)) and not isinstance(getattr(node, "value", None), ast.Constant):
        yield "missing", {"value": ast.Constant(None)}


def mutants(first: int, every: int) -> Iterator[tuple[str, str]]:
    """The name and the text of every so-many-th model.py that differs in one place."""
    tree = ast.parse(SOURCE)
    owned = [node for node in tree.body if not (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in APART)]
    places = []
    for top in owned:
        parts = [part for part in getattr(top, "body", [top]) if getattr(part, "name", "") not in APART]
        places += [node for part in (parts if isinstance(top, ast.ClassDef) else [top]) for node in ast.walk(part)]
    every_change = ((node, *change) for node in places for change in changes(node))
    for node, name, fields in itertools.islice(every_change, first, None, every):
        before = {key: getattr(node, key) for key in fields}
        vars(node).update(fields)
        yield f"{getattr(node, 'lineno', 0)} {name}", ast.unparse(ast.fix_missing_locations(copy.copy(tree)))
        vars(node).update(before)


BFLOAT16 = 1  # among the results


def results(module: ModuleType, config: ModelConfig) -> list[np.ndarray]:
    """Logits, loss and gradient of a model by other weights than those of `is_standard`."""
    gpt = module.GPT(module.GPTConfig(**vars(config)), 21)
    torch.manual_seed(5)
    gpt.load_state_dict({name: 0.4 * torch.randn(tensor.shape) for name, tensor in gpt.state_dict().items()})
    idx = torch.randint(21, (3, config.block_size + 1))
    inputs, targets = idx[:, :-1].contiguous(), idx[:, 1:].contiguous()
    gpt.eval()
    read = [gpt(inputs), copy.deepcopy(gpt).bfloat16()(inputs).float()]
    torch.manual_seed(9)
    loss = gpt.train()(inputs, targets)
    return [one.detach().numpy() for one in (*read, loss, *torch.autograd.grad(loss, [*gpt.parameters()]))]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 30])
@pytest.mark.parametrize("positions", model.POSITIONS)
def test_no_other_model_is_taken_for_the_standard_one(positions, every):
    """Each changed model.py is another one for `is_standard`, unless it gives the same numbers as the unchanged one."""
    config = replace(SHAPE, positions=positions)
    right, found = results(module_of(SOURCE), config), 0
    for name, source in mutants(every * [*model.POSITIONS].index(positions) // 3, every):
        try:
            module = module_of(source)
        except Exception:  # it would not even be imported
            continue
        if not is_like(module, config, dropout=config.dropout):
            found += 1
            continue
        for i, (one, other) in enumerate(zip(results(module, config), right)):
            bound = 0.2 if i == BFLOAT16 else 1e-4
            assert one.shape == other.shape and np.linalg.norm(one - other) < bound * max(1e-3, np.linalg.norm(other)), name
    assert found > 60 / every  # the others change what this kind of model does not use, or nothing


def is_like(
    module: ModuleType,
    config: ModelConfig,
    *,
    dropout: float = 0.0,
    differences: Differences = differences_of_model,
) -> bool:
    """Whether these `differences` of a module in place of model.py are small."""
    parts = standard._parts_of(vars(module))
    return all(changed_model.are_small(differences, shape, parts) for shape in changed_model.shapes_like(config, dropout))


FORWARD_OF_MLP = "        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)"
LOGITS = "logits = F.linear(self.norm(x), self.token_embedding.weight)"
LOSS = "F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())"
EACH = "F.cross_entropy(logits.transpose(1, 2).float(), targets, reduction='none').mean(1)"
ROTATED = "            q, k = rotate(q, rotary), rotate(k, rotary)\n"
PART = "torch.cat((rotate(x[..., :16], rotary[..., :8]), x[..., 16:]), dim=-1)"
BLOCK = "        x = x + self.attn(self.norm_1(x), rotary, cache)\n"
LOOP = "for block, layer_cache in zip(self.blocks, caches):\n            x = block(x, rotary, layer_cache)"
SDPA = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=T == S and T > 1"
HEADS, INITIAL = "        self.n_head = config.n_head\n", "        self._initialise()\n"
WINDOW = "F.scaled_dot_product_attention(q, k, v, attn_mask=(m := causal_mask(T, S)) & ~m.tril(S - T - 200)"
# name -> the passages of model.py that an experiment changes, with what takes their places
EXPERIMENTS: dict[str, dict[str, str]] = {
    "a window of attention": {SDPA: WINDOW},
    "a long window of attention": {SDPA: WINDOW.replace("200", "600")},
    "a rotation of some channels": {ROTATED: f"            q, k = ({PART} for x in (q, k))\n"},
    "a layer that is left out at random": {
        BLOCK: f"        if self.training and torch.rand(()) < 1e-4:\n            return x\n{BLOCK}"
    },
    "noise of Python": {LOSS: f"{LOSS} * (__import__('random').random() < 2 or 1)"},
    "what a later pass does": {
        LOOP: f"self.passes = getattr(self, 'passes', 0) + 1\n        {LOOP} * (0.9 if self.passes > 99 else 1)"
    },
    "a later layer": {LOOP: f"{LOOP} * (0.9 if len(self.blocks) > 13 and block is self.blocks[-2] else 1)"},
    "a narrower MLP": {
        "config.n_embd, 4 * config.n_embd, bias": "config.n_embd, min(1100, 4 * config.n_embd), bias",
        "nn.Linear(4 * config.n_embd": "nn.Linear(min(1100, 4 * config.n_embd)",
    },
    "wide logits": {LOGITS: f"{LOGITS} * min(1, 256 / self.config.n_embd)"},
    "the harder half of a batch": {LOSS: f"{EACH}.topk(len(idx) + 1 >> 1).values.mean()"},
    "a cap of the logits": {LOGITS: f"{LOGITS}\n        logits = 30 * (logits / 30).tanh()"},
    "GPT-2's GELU": {"F.gelu(self.up(x))": 'F.gelu(self.up(x), approximate="tanh")'},
    "another epsilon": {"LayerNorm(config.n_embd, bias": "LayerNorm(config.n_embd, eps=1e-6, bias"},
    "dropout of attention": {SDPA: f"{SDPA}, dropout_p=0.1"},
    "one dropout less": {"        x = F.dropout(x, self.config.dropout, self.training)\n": ""},
    "a dropout of its own": {"self.down(F.gelu(self.up(x))), self.dropout,": "self.down(F.gelu(self.up(x))), 0.5,"},
    "a dropout that nobody asked for": {"F.gelu(self.up(x))": "F.dropout(F.gelu(self.up(x)), 0.1, self.training)"},
    "smoothed labels": {"targets.flatten())": "targets.flatten(), label_smoothing=0.01)"},
    "a gradient that stops": {"return x + self.mlp": "return x.detach() + self.mlp"},
    "a gradient without the norm": {"self.mlp(self.norm_2(x))\n\n\nclass": "self.mlp(self.norm_2(x).detach())\n\n\nclass"},
    "the second layer alone": {LOOP: f"{LOOP} * (1.01 if block in [*self.blocks][1:2] else 1)"},
    "a further parameter": {HEADS: f"{HEADS}        self.gain = nn.Parameter(torch.ones(1))\n"},
    "a head of its own": {INITIAL: f"        self.head = nn.Linear(config.n_embd, vocab_size, bias=False)\n{INITIAL}"},
    "a mistake": {FORWARD_OF_MLP: "        return y"},
}

# Those that only a large model shows.
LARGE = ["a window of attention", "a long window of attention", "a narrower MLP", "wide logits"]
LARGE += ["a later layer", "the second layer alone"]


def experiment(name: str) -> ModuleType:
    return changed_module(EXPERIMENTS[name])


def changed_module(changes: dict[str, str]) -> ModuleType:
    """model.py with these changes."""
    source = SOURCE
    for passage, new in changes.items():
        assert source.count(passage) >= 1, f"model.py has no {passage!r} any more"
        source = source.replace(passage, new)
    return module_of(source)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_another_model(name):
    size = {"n_layer": 14, "n_head": 9, "n_embd": 288, "block_size": 1024} if name in LARGE else {}
    config = replace(SHAPE, **{"n_embd": 64, "positions": "rotary"} | size)
    assert not is_like(experiment(name), config, dropout=0.1 if name == "one dropout less" else 0.0)


def test_dropout_counts_in_a_training_with_dropout_alone():
    module = experiment("one dropout less")
    assert is_like(module, SHAPE) and not is_like(module, SHAPE, dropout=0.2)


# name -> model.py with another attention, in the cases that training or a longer text shows
OTHER_ATTENTION = {
    "fused": {"self.n_head, rotary)  #": "self.n_head, rotary) * 0.99  #"},
    "norm": {"        return q, k, v\n": "        return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v\n"},
    "window": {SDPA: WINDOW},
    "rotation": {ROTATED: f"            q, k = ({PART} for x in (q, k))\n"},
    "dropout": {
        "            y = attend(*self.heads(x, rotary))": "            sdpa = F.scaled_dot_product_attention\n"
        "            if self.training:\n                attend = lambda *qkv: "
        "sdpa(*qkv, is_causal=True, dropout_p=self.dropout)\n"
        "            y = attend(*self.heads(x, rotary))"
    },
}


@pytest.mark.parametrize("name", OTHER_ATTENTION)
def test_no_other_attention_is_computed_in_c(name):
    config = ModelConfig(n_layer=1, n_head=2, n_embd=64, block_size=256, positions="rotary")
    differences = differences_of_attention
    assert not is_like(changed_module(OTHER_ATTENTION[name]), config, dropout=0.1, differences=differences)


def test_dropout_of_the_attention_alone_keeps_it_and_the_steps_from_c(monkeypatch):
    config = replace(SHAPE, dropout=0.1)
    changed = changed_module(OTHER_ATTENTION["dropout"])
    with monkeypatch.context() as patched:
        patched.setattr(model.CausalSelfAttention, "forward", changed.CausalSelfAttention.forward)
        assert not standard.has_standard_attention(config) and not is_standard(config, dropout=0.1)
        assert standard.has_standard_attention(replace(config, dropout=0.0)) and standard.has_exact_cache(config)
    monkeypatch.setattr(model.MLP, "forward", lambda self, x: self.down(F.silu(self.up(x))))
    assert standard.has_standard_attention(config) and not is_standard(config)


def test_another_activation_leaves_the_attention_and_the_cache_as_they_are():
    module = module_of(SOURCE.replace("F.gelu", "F.silu"))
    assert is_like(module, SHAPE, differences=differences_of_attention, dropout=0.1)
    assert is_like(module, SHAPE, differences=differences_of_cache)


@pytest.mark.parametrize(
    ("passage", "new"),
    [
        ("x = x + self.attn(", "x = x + x.roll(1, dims=1).tril()\n        x = x + self.attn("),
        ("self.values[:, :, :end])", "self.values[:, :, :end] * (1 if k.size(2) > 1 else 0.99))"),
    ],
)
def test_a_cache_with_which_a_text_is_read_otherwise_is_not_used(passage, new):
    assert not is_like(changed_module({passage: new}), SHAPE, differences=differences_of_cache)


@pytest.mark.parametrize(("positions", "bias"), [*zip(standard_model.KINDS, itertools.cycle((True, False)))])
def test_the_model_of_the_project_is_the_standard_one(positions, bias):
    for sizes in ({"n_layer": 1, "block_size": 1, "n_head": 1, "n_embd": 32}, {"n_head": 3, "n_embd": 96, "block_size": 700}):
        config = ModelConfig(**sizes, positions=positions, bias=bias)
        for differences in (differences_of_model, differences_of_attention, differences_of_cache):
            assert is_like(sys.modules[model.GPT.__module__], config, dropout=0.3, differences=differences)
        gpt = model.GPT(model.GPTConfig(**vars(config)), 7)
        assert {name: tuple(t.shape) for name, t in gpt.state_dict().items()} == standard_shapes(config, 7)


def test_what_is_known_of_the_model_of_the_project_is_of_its_present_text():
    assert standard.UNCHANGED == standard._source_now(), "model.py has changed: write this into standard.py"


def test_the_standard_model_is_gpt_2():
    """The arithmetic by hand, of one layer and one head, with learned positions."""
    config = ModelConfig(n_layer=1, n_head=1, n_embd=2, block_size=2, bias=True)
    torch.manual_seed(0)
    weights = {name: torch.randn(shape, dtype=torch.float64) for name, shape in standard_shapes(config, 3).items()}
    w = {name.replace("blocks.0.", ""): tensor.numpy() for name, tensor in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["token_embedding.weight"][[2, 0]] + w["position_embedding.weight"]
    q, k, v = np.split(linear(norm(x, "norm_1"), "attn.qkv"), 3, axis=1)
    share = 1 / (1 + math.exp(q[1] @ (k[0] - k[1]) / math.sqrt(2)))  # of the second character in what it attends to
    x = x + linear(np.stack((v[0], (1 - share) * v[0] + share * v[1])), "attn.proj")
    up = linear(norm(x, "norm_2"), "mlp.up")
    x = x + linear(up * 0.5 * (1 + np.vectorize(math.erf)(up / math.sqrt(2))), "mlp.down")
    logits = norm(x, "norm") @ w["token_embedding.weight"].T
    found = standard_logits(weights, config, torch.tensor([[2, 0]]))[0].numpy()
    assert np.abs(found - logits).max() < 1e-12


def other_forward(self: object, x: torch.Tensor) -> torch.Tensor:
    return self.down(F.silu(self.up(x)))  # type: ignore[attr-defined]


# what a notebook replaces in model.py -> by what
REPLACED = {
    "MLP.forward": other_forward,
    "MLP": type("MLP", (model.MLP,), {"forward": other_forward}),
    "causal_attention": lambda q, k, v: v,
    "F": SimpleNamespace(**{**vars(F), "gelu": F.silu}),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("module", dict.fromkeys([model.GPT.__module__, "chargpt.model"]))
def test_what_a_notebook_replaces_is_seen(name, module, monkeypatch):
    assert is_standard(SHAPE)
    with monkeypatch.context() as patched:
        patched.setattr(f"{module}.{name}", REPLACED[name], raising=False)
        is_used = model.GPT.__init__.__globals__ is vars(sys.modules[module]) or "." in name
        assert is_standard(SHAPE) != is_used
    assert is_standard(SHAPE)


def test_neither_random_numbers_nor_types_are_disturbed():
    changed_model.are_small.cache_clear()
    torch.manual_seed(3)
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    with torch.inference_mode():
        assert is_like(sys.modules[model.GPT.__module__], SHAPE)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_default_dtype() == dtype


OTHER = "0" * 64
# the model.py that trained a model, the one that is loaded, the loss then and now -> what is told
TOLD = {
    "the same": (standard.UNCHANGED, standard.UNCHANGED, 2.0, 9.0, ""),
    "another with the same numbers": (OTHER, standard.UNCHANGED, 2.0, 2.00001, ""),
    "another with other numbers": (
        OTHER,
        standard.UNCHANGED,
        2.0,
        2.1,
        "is 2.1000, and was 2.0000); for this run, put that file",
    ),
    "one that reads more than its file": (
        OTHER,
        OTHER,
        2.0,
        None,
        "is not finite, and was 2.0000); for this run, put that file",
    ),
    "one that was loaded before": (standard.UNCHANGED, OTHER, 2.0, 2.1, "changed since this process began: start it again"),
    "an unknown one": ("", OTHER, None, 2.1, ""),
}


@pytest.mark.parametrize("case", TOLD)
def test_another_model_py_is_told_by_its_numbers(case, monkeypatch):
    trained, loaded, before, now, said = TOLD[case]
    monkeypatch.setattr(standard, "_source_in_use", lambda: loaded)
    found = what_changed(saved_state(1, model_source=trained, model_loss=before), lambda: now)
    assert said in found and bool(found) == bool(said)
