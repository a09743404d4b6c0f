"""What a GPU would run, on torch's meta device: no tensor is on the wrong device, and a step does not wait for it.

This file has no module of its own: it tests model.py, training and sampling together. The meta device computes shapes and
devices but no numbers. Where the code reads a number from it, these tests supply 2.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from chargpt import device
from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.device import send
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.planning.cli import TrainOptions, settings_in
from chargpt.planning.initial_settings import load_settings
from chargpt.sampling.surprisal import losses_of
from chargpt.sampling.torch_texts import TorchTexts
from chargpt.training.batches import Batches, on_device
from chargpt.training.evaluation import evaluate
from chargpt.training.runtime import Runtime
from chargpt.training.trainer import Trainer

META = torch.device("meta")
PRESETS = Path(__file__).parents[2] / "configs"
VOCABULARY = 7
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 5000).astype(np.uint8)
SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.1)
CONFIG = Config(model=SHAPE, train=TrainConfig(batch_size=4, accumulate=2))
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
READS = (Tensor.tolist, Tensor.__int__, Tensor.__float__, Tensor.__bool__, Tensor.numpy)


class RuntimeWithMemory(Runtime):
    """A device with memory for the whole text, as `Runtime` finds it only on a GPU."""

    def has_memory_for(self, ids: np.ndarray) -> bool:
        return True


class OneDevice(TorchDispatchMode):
    """Fails at an operation that mixes devices; only copies may. Counts copies between devices in `counts`.

    As in torch, tensors without dimensions on the CPU may be mixed with others, but they are counted: CUDA graphs cannot
    contain them.
    """

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # then torch has not replaced compound operations by their parts
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func in COPIES:
            source = tensors[-1]
            target = tensors[0].device if len(tensors) == 2 else torch.device(kwargs.get("device") or source.device)
            if source.device != target:
                is_free = kwargs.get("non_blocking", False) or func is COPIES[1] and len(args) > 2 and args[2]
                self.counts["reads" if source.is_meta else "copies that do not wait" if is_free else "copies that wait"] += 1
            if source.is_meta and not target.type == "meta":
                return torch.full(source.shape, 2, dtype=kwargs.get("dtype") or source.dtype, device=target)
        else:
            devices = {tensor.device for tensor in tensors if tensor.dim()}
            if len({tensor.device for tensor in tensors}) > max(1, len(devices)):
                self.counts["numbers on the CPU"] += 1
            assert len(devices) <= 1, f"{func} mixes {[(tensor.device.type, tuple(tensor.shape)) for tensor in tensors]}"
        if func is torch.ops.aten._fused_adamw_.tensor_lr:  # torch has none for the meta device
            return None
        if func is torch.ops.aten._local_scalar_dense.default and tensors[0].is_meta:
            self.counts["reads"] += 1
            return 2
        return func(*args, **kwargs)


class NumbersAreTwo(TorchFunctionMode):
    """Reading a tensor on the meta device gives 2 everywhere, and is counted."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in READS and args[0].is_meta:
            self.counts["reads"] += 1
            args = (torch.full(args[0].shape, 2, dtype=args[0].dtype), *args[1:])
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies to the meta device are those to a CUDA GPU, without which torch pins no memory."""
    monkeypatch.setattr(device, "COPY_AHEAD", ("meta",))
    monkeypatch.setattr(Tensor, "pin_memory", lambda values: values)


@contextmanager
def rehearsal() -> Iterator[Counter[str]]:
    """Within it, mixed devices are errors. Gives the number of copies between devices and of reads, as they grow."""
    counts: Counter[str] = Counter()
    with OneDevice(counts), NumbersAreTwo(counts):
        yield counts


def make_trainer(config: Config, *, is_resident: bool = True, precision: torch.dtype = torch.bfloat16, ids=IDS) -> Trainer:
    kind = RuntimeWithMemory if is_resident else Runtime
    model = GPT(config.model, VOCABULARY)
    return Trainer(model, ids, config, runtime=kind(device=META, precision=precision, threads=1, fewer_kernels=True))


def with_optimizer(config: Config, name: str) -> Config:
    return dataclasses.replace(config, optim=OptimConfig(name=name))


CASES = [  # positions, optimizer, biases, text on the device, precision
    ("learned", "adamw", False, True, torch.bfloat16),
    ("sinusoidal", "adamw", True, False, torch.float32),
    ("rotary", "muon", True, True, torch.bfloat16),
]
PRECISIONS = (torch.float32, torch.bfloat16)
OTHERS = [
    pytest.param(*case, marks=pytest.mark.nightly)
    for case in itertools.product(POSITIONS, ("adamw", "muon"), (False, True), (False, True), PRECISIONS)
    if case not in CASES
]


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # it is copied there, without its numbers
@pytest.mark.parametrize("positions, name, bias, is_resident, precision", [*CASES, *OTHERS])
def test_training_keeps_every_tensor_on_its_device(positions, name, bias, is_resident, precision):
    """Steps with dropout, accumulation and clipping, an evaluation, and a state that is saved and loaded."""
    model = dataclasses.replace(SHAPE, positions=positions, bias=bias)
    config = with_optimizer(dataclasses.replace(CONFIG, model=model), name)
    with rehearsal():
        trainer = make_trainer(config, is_resident=is_resident, precision=precision)
        trainer.step()
        trainer.check_weights()
        assert np.isfinite(evaluate(trainer.weights.working, IDS[:300]))
        state, weights = trainer.state(), trainer.weights
        kept = (*state.weights.values(), *state.optimizer.values(), weights.computing, weights.gradient)
        assert all(tensor.is_meta for tensor in kept)
        saved = ({key: torch.zeros(tensor.shape) for key, tensor in part.items()} for part in state[:2])  # on the CPU
        trainer.load(type(state)(*saved, state.progress, state.length))
        trainer.step()
        assert weights.vector.is_meta and trainer.progress.step == 2


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.yaml")))
def test_every_preset_trains_on_one_device(preset):
    """At its full width, since the meta device computes nothing; with one layer, since torch takes long for each call."""
    options = TrainOptions(config=preset, settings=settings_in(["model.n_layer=1", "runtime.device=cpu"]))
    trainer = make_trainer(load_settings(options, presets=PRESETS).loaded.values)
    with rehearsal():
        trainer.step()
    size = trainer.weights.computing.element_size()
    assert all(span.start * size % 16 == 0 for span in trainer.weights.spans.values())  # others are copied for a CUDA graph


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_does_not_wait_for_the_device(name):
    """With the text there, it reads nothing, and copies the starts of windows alone; reports and evaluations read once."""
    trainer = make_trainer(with_optimizer(CONFIG, name))
    with rehearsal() as counts:
        for _ in range(3):
            trainer.advance()
        assert counts == {"copies that do not wait": 3 * CONFIG.train.accumulate}
        trainer.report()
        assert counts["reads"] == 1
    with rehearsal() as counts:
        evaluate(trainer.weights.working, np.tile(IDS, 8))  # inputs and targets: three batches, and the rest of the text
        assert counts == {"reads": 1, "copies that do not wait": 2 * 4}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_the_text_is_copied_to_the_device_once(dtype):
    with rehearsal() as counts:
        ids = IDS.astype(dtype)
        resident = on_device(ids, META)
        batches = Batches(ids, 8, train=TrainConfig(batch_size=4), resident=resident)
        assert on_device(ids, META) is resident and on_device(ids.copy(), META) is not resident
        assert counts.pop("copies that wait") == 2
        for step in range(3):
            for ids in batches.windows(send(batches.fetch(step, 0, slice(None)), META)):
                assert ids.is_meta and ids.dtype == torch.int64 and ids.shape == (4, 8)
        assert counts == {"copies that do not wait": 3}


@pytest.mark.parametrize("positions", POSITIONS)
def test_writing_and_scoring_keep_every_tensor_on_its_device(positions):
    model = GPT(dataclasses.replace(SHAPE, positions=positions), VOCABULARY).to(META).eval()
    texts = TorchTexts(model, 2)
    with rehearsal() as counts:
        for position, count in ((0, 3), (3, 1), (0, 4)):
            assert texts.logits(position, torch.zeros(2, count, dtype=torch.long, device=META)).is_meta
    assert not counts
    idx = torch.zeros(2, 5, dtype=torch.long, device=META)
    with rehearsal():
        for temperature in (0, 1.0):
            assert model.generate(idx, 2, temperature=temperature).shape == (2, 7)
        assert model.attention(idx).shape == (1, 2, 2, 5, 5)
        assert sum(len(one) for one in losses_of(model, IDS[:200].astype(np.int64), stride=4)) == 199
