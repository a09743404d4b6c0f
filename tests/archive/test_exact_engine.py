"""The engine in C gives the bits of the reference in torch, for every shape, batch and number of threads."""

import pytest
import torch
from model_helpers import SHAPES, V, ids_for, new_model

from chargpt.archive.exact_model import CEngine, ExactWeights, TorchEngine, choose_engine
from chargpt.kernels import compiler
from chargpt.kernels.exact import load_kernel

needs_compiler = pytest.mark.skipif(not compiler.compilers(), reason="needs a C compiler")


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("config", SHAPES, ids=lambda config: f"{config.positions}-{config.n_embd}")
def test_it_gives_the_bits_of_the_reference(config, threads):
    weights, size = ExactWeights(new_model(config), V - 1), config.block_size
    reference, engine = TorchEngine(weights), CEngine(weights, load_kernel(), threads=threads)
    for texts in (7, 1, 4):
        ids = ids_for(config, texts)
        whole = reference.read(ids, start=0, wanted=size)
        assert torch.equal(engine.read(ids, start=0, wanted=size), whole)
        if size > 3:
            parts = [engine.read(ids[:, :3], start=0, wanted=2)]
            parts += [engine.read(ids[:, t : t + 1], start=t, wanted=1) for t in range(3, size)]
            assert torch.equal(torch.cat(parts, dim=1), whole[:, 1:])


@needs_compiler
def test_other_flags_of_the_compiler_change_no_bit(tmp_path):
    config = SHAPES[0]
    weights, ids = ExactWeights(new_model(config), V), ids_for(config, 6)
    expected = TorchEngine(weights).read(ids, start=0, wanted=5)
    for level in ("-O0", "-O1", "-O2"):
        kernel = load_kernel(tmp_path, extra=(level,))
        assert torch.equal(CEngine(weights, kernel, threads=1).read(ids, start=0, wanted=5), expected)


@needs_compiler
def test_all_sets_of_instructions_give_the_same_bits(tmp_path):
    config = SHAPES[0]
    weights, ids = ExactWeights(new_model(config), V), ids_for(config, 6)
    expected = TorchEngine(weights).read(ids, start=0, wanted=5)
    for instructions in set(compiler.available_instructions()) & set(compiler.EXACT.instructions):
        kernel = load_kernel(tmp_path, instructions=instructions)
        assert torch.equal(CEngine(weights, kernel, threads=1).read(ids, start=0, wanted=5), expected)


def test_without_a_compiler_the_reference_is_used(no_compiler):
    engine, name = choose_engine(new_model(SHAPES[0]), V)
    assert isinstance(engine, TorchEngine) and name.startswith("not compiled: no C compiler found; ")
