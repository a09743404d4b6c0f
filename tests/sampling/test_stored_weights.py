"""Weights stored in fewer bytes: how far they are from the originals, and that both decoders compute with the same ones."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling.c_decoder import CDecoder
from chargpt.sampling.decoder import Decoder, pieces
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stored_weights import PRECISIONS, pack, round_weights, unpack

VOCAB = 65
SMALLER = PRECISIONS[1:]


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


def random_model(precision: str, **shape) -> GPT:
    torch.manual_seed(0)
    model = GPT(GPTConfig(**{"n_layer": 2, "n_head": 3, "n_embd": 30, "block_size": 40, "bias": True, **shape}), VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    round_weights(model, precision)
    return model


def matrices(rows: int, columns: int, seed: int) -> torch.Tensor:
    """A matrix with rows of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-6, 7, (rows, 1), generator=generator)
    return sizes * torch.randn(rows, columns, generator=generator)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
def test_each_number_is_as_close_as_promised(rows, columns, seed):
    matrix = matrices(rows, columns, seed)
    assert torch.equal(unpack(*pack(matrix, "float32")), matrix)
    assert ((unpack(*pack(matrix, "bfloat16")) - matrix).abs() <= 2**-8 * matrix.abs()).all()
    largest = matrix.abs().amax(dim=1, keepdim=True)
    assert ((unpack(*pack(matrix, "int8")) - matrix).abs() <= largest / 254 * (1 + 1e-5)).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
def test_to_store_what_was_stored_changes_nothing(rows, columns, seed):
    for precision in SMALLER:
        numbers, scales = pack(matrices(rows, columns, seed), precision)
        again, new_scales = pack(unpack(numbers, scales), precision)
        assert torch.equal(again, numbers)
        if scales is not None:
            torch.testing.assert_close(new_scales, scales, rtol=3e-7, atol=0)


def test_only_matrices_are_rounded():
    exact = dict(random_model("float32").named_parameters())
    for precision in SMALLER:
        for name, parameter in random_model(precision).named_parameters():
            is_kept = parameter.dim() == 1 or name.startswith("position")
            assert torch.equal(parameter, exact[name]) == is_kept, name


@pytest.mark.parametrize(("positions", "threads"), zip(POSITIONS, (1, 2, 1)))
@pytest.mark.parametrize("precision", SMALLER)
def test_the_decoder_in_c_computes_with_the_rounded_weights(kernel, precision, positions, threads):
    torch.set_num_threads(threads)
    model = random_model(precision, positions=positions)
    ids, read = torch.randint(VOCAB, (3, 40)), 0
    decoders = [CDecoder(model, texts, kernel=kernel, precision=precision) for texts in (1, 3)]
    with torch.no_grad():
        expected = model(ids)
    exact = random_model("float32", positions=positions)(ids).detach()
    for piece in (1, 2, 1, 30, 6):
        read += piece
        for decoder in decoders:
            texts = len(decoder.window)
            logits = decoder.read(ids[:texts, read - piece : read])
            torch.testing.assert_close(logits, expected[:texts, read - 1], rtol=0, atol=2e-5)
            assert (logits - exact[:texts, read - 1]).abs().max() > 2e-4  # the bound can tell rounded weights from others


@pytest.mark.parametrize("precision", SMALLER)
def test_a_seed_gives_one_text_with_and_without_c(kernel, precision):
    model = random_model(precision)
    texts = []
    for decoder in (Decoder, functools.partial(CDecoder, kernel=kernel, precision=precision)):
        generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
        made = pieces(decoder(model, 3), torch.ones(3, 1, dtype=torch.long), 60, SamplingOptions(), generator=generators)
        texts.append(torch.cat([piece.ids for piece in made]))
    assert torch.equal(*texts)
