"""What a training takes in memory: each copy of the weights that is kept is counted, and what a step on a GPU keeps."""

import itertools

import pytest
import torch
from torch import Tensor

from chargpt.config import Config, ModelConfig, OptimConfig, TrainConfig
from chargpt.gpu import quicken
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.planning.memory import bytes_of_state, memory_needed
from chargpt.runs.checkpoint_schema import parameter_count


@pytest.mark.parametrize("width", [32, 1024])
def test_every_kept_copy_of_the_weights_is_counted(width):
    model = ModelConfig(n_embd=width)
    parameters = parameter_count(model, 60)

    def needed(start: float, average: float) -> tuple[int, int]:
        config = Config(model=model, optim=OptimConfig(start_decay=start, average_fraction=average))
        return bytes_of_state(config, parameters), memory_needed(config, vocab_size=60)

    for number in (0, 1):
        found = {pair: needed(*pair)[number] for pair in itertools.product((0.0, 0.1), repeat=2)}
        copy = found[0.1, 0.0] - found[0.0, 0.0]
        assert copy == found[0.0, 0.1] - found[0.0, 0.0] == 4 * parameters
        assert found[0.1, 0.1] == found[0.0, 0.0] + 2 * copy


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_numbers_that_a_step_on_a_gpu_keeps_are_those_that_autograd_saves(positions):
    """Within a factor of 1.3. tests/gpu/ compares them with what torch allocates."""
    shape = ModelConfig(n_layer=4, n_head=2, n_embd=64, block_size=32, positions=positions)
    model = GPT(GPTConfig(**vars(shape)), 7)
    quicken(model, is_standard=True)
    kept, own = dict[int, int](), {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def count(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and (at := tensor.untyped_storage().data_ptr()) not in own:
            kept[at] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        idx = torch.randint(7, (8, 33))
        loss = model(idx[:, :-1], idx[:, 1:])
    config, on = Config(model=shape, train=TrainConfig(batch_size=8)), {"device": "cuda", "precision": torch.bfloat16}
    state = bytes_of_state(config, parameter_count(shape, 7))
    told = (memory_needed(config, vocab_size=7, **on) - state) / torch.bfloat16.itemsize
    assert loss.requires_grad and 1 / 1.3 < told / sum(kept.values()) < 1.3


def test_a_gpu_needs_less_than_a_cpu_and_half_of_it_in_half_the_precision():
    config = Config(model=ModelConfig(n_layer=6, n_head=6, n_embd=384, block_size=256), train=TrainConfig(batch_size=64))
    state = bytes_of_state(config, parameter_count(config.model, 0))
    cpu, gpu = (memory_needed(config, vocab_size=0, device=device) - state for device in ("cpu", "cuda"))
    half = memory_needed(config, vocab_size=0, device="cuda", precision=torch.bfloat16) - state
    assert 2 * half == gpu < cpu
