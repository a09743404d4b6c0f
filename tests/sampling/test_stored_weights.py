"""Weights stored in fewer bytes: how far they are from the originals, and that both engines compute with the same ones."""

import numpy as np
import pytest
import torch
from helpers import clear_model, weights_of, written
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS
from chargpt.sampling.c_texts import PRECISIONS, CTexts, c_writer, pack, rounded, unpack
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer

VOCAB = 65
SMALLER = PRECISIONS[1:]


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


def random_model(precision: str, **shape) -> GPT:
    model = clear_model(VOCAB, **{"n_head": 3, "n_embd": 30, "block_size": 40, "scale": 2.0, **shape})
    weights = rounded(weights_of(model), precision)
    model.load_state_dict({name: torch.tensor(numbers) for name, numbers in weights.items()})
    return model


def matrices(rows: int, columns: int, seed: int) -> np.ndarray:
    """A matrix with rows of very different sizes."""
    random = np.random.default_rng(seed)
    return (10.0 ** random.integers(-6, 7, (rows, 1)) * random.standard_normal((rows, columns))).astype(np.float32)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
def test_each_number_is_as_close_as_promised(rows, columns, seed):
    matrix = matrices(rows, columns, seed)
    assert np.array_equal(unpack(*pack(matrix, "float32")), matrix)
    assert np.array_equal(unpack(*pack(matrix, "bfloat16")), torch.from_numpy(matrix).bfloat16().float().numpy())
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    assert (np.abs(unpack(*pack(matrix, "int8")) - matrix) <= largest / 254 * (1 + 1e-5)).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
def test_to_store_what_was_stored_changes_nothing(rows, columns, seed):
    for precision in SMALLER:
        numbers, scales = pack(matrices(rows, columns, seed), precision)
        again, new_scales = pack(unpack(numbers, scales), precision)
        assert np.array_equal(again, numbers)
        if scales is not None:
            np.testing.assert_allclose(new_scales, scales, rtol=3e-7)


def test_only_matrices_are_rounded():
    exact = dict(random_model("float32").named_parameters())
    for precision in SMALLER:
        for name, parameter in random_model(precision).named_parameters():
            is_kept = parameter.dim() == 1 or name.startswith("position")
            assert torch.equal(parameter, exact[name]) == is_kept, name


@pytest.mark.parametrize(("positions", "threads"), [*zip(POSITIONS, (1, 2, 1))])
@pytest.mark.parametrize("precision", SMALLER)
def test_the_engine_in_c_computes_with_the_rounded_weights(kernel, precision, positions, threads):
    torch.set_num_threads(threads)
    model = random_model(precision, positions=positions)
    ids, read = torch.randint(VOCAB, (3, 40)), 0
    engines = {n: CTexts(weights_of(model), model.config, n, kernel=kernel, precision=precision) for n in (1, 3)}
    expected = model(ids).detach().numpy()
    exact = random_model("float32", positions=positions)(ids).detach().numpy()
    for piece in (1, 2, 1, 30, 6):
        for texts, engine in engines.items():
            logits = engine.read(read, ids[:texts, read : read + piece].numpy())
            assert np.abs(logits - expected[:texts, read + piece - 1]).max() < 2e-5
            assert np.abs(logits - exact[:texts, read + piece - 1]).max() > 2e-4  # the bound can tell rounded weights apart
        read += piece


@pytest.mark.parametrize("precision", SMALLER)
def test_a_seed_gives_one_text_with_and_without_c(kernel, precision):
    model = random_model(precision)
    in_c = c_writer(weights_of(model), model.config, kernel=kernel, precision=precision)
    texts = [written(writer, [[1]], 60, SamplingOptions(), 0, 1, 2).tolist() for writer in (in_c, torch_writer(model))]
    assert texts[0] == texts[1]
