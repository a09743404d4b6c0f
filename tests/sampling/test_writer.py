"""A writer with the engine in PyTorch continues a text exactly as the plain reference, `GPT.generate`, does."""

from functools import partial

import numpy as np
import pytest
import torch
from helpers import written as ids_of

from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.prompt import first_id
from chargpt.sampling.torch_texts import TorchTexts, torch_writer
from chargpt.sampling.writer import Writer
from chargpt.text.tokenizer import Tokenizer

BLOCK, VOCAB = 8, 11


def tiny_model(positions: str = "learned", *, block_size: int = BLOCK, seed: int = 0) -> GPT:
    """A random model whose opinions are strong enough to tell: its weights are several times GPT-2's."""
    torch.manual_seed(seed)
    config = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=block_size, positions=positions, bias=True, dropout=0.1)
    model = GPT(config, VOCAB)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model.eval()


def written(model: GPT, prompts: list[list[int]], length: int, options: SamplingOptions, *seeds: int, **more):
    return ids_of(torch_writer(model), prompts, length, options, *seeds, **more).tolist()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("prompt_length", [1, BLOCK, 3 * BLOCK])
def test_the_stream_is_the_plain_reference(positions, temperature, prompt_length):
    model = tiny_model(positions)
    prompt = torch.randint(VOCAB, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    reference = model.generate(prompt, 3 * BLOCK, temperature=temperature, generator=torch.Generator().manual_seed(5))
    ids = written(model, prompt.tolist(), 3 * BLOCK, SamplingOptions(temperature=temperature, overflow="exact"), 5)
    assert ids == reference[:, prompt_length:].tolist()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("pieces", [[1] * BLOCK, [BLOCK - 2, 1, 1], [3, 4, 1]])
def test_reading_in_pieces_is_reading_at_once(positions, pieces):
    model = tiny_model(positions)
    ids = torch.randint(VOCAB, (2, sum(pieces)))
    texts, read = TorchTexts(model, 2), 0
    for piece in pieces:
        logits = texts.logits(read, ids[:, read : read + piece])
        read += piece
        torch.testing.assert_close(logits, model(ids[:, :read])[:, -1].detach(), rtol=1e-3, atol=1e-3)


RULES = [
    SamplingOptions(temperature=0),
    SamplingOptions(temperature=1e-320),
    SamplingOptions(temperature=1.5, top_k=7, top_p=0.8, min_p=0.1),
    SamplingOptions(top_k=10**9, min_p=1e-30),
    SamplingOptions(top_k=4, overflow="exact"),
    SamplingOptions(top_p=0.6),
    SamplingOptions(min_p=0.2),
    SamplingOptions(repetition_penalty=3.0),
]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("options", RULES, ids=SamplingOptions.describe)
def test_a_device_that_chooses_itself_writes_the_same(positions, options):
    """What a CUDA graph contains, here without one: tests/gpu counts what it asks of a GPU."""
    model = tiny_model(positions, block_size=80)
    with torch.no_grad():
        model.token_embedding.weight[1::2] = model.token_embedding.weight[:-1:2]  # twins are equally likely
    here = Writer(partial(TorchTexts, model, chooses=True), 80)
    for prompts in ([[1]], [[2, 3, 4], [5, 1, 1], [0, 10, 4]]):
        more = {"seeds": range(len(prompts)), "never_sampled": (0, 3)}
        found, expected = (list(writer.pieces(prompts, 170, options, **more)) for writer in (here, torch_writer(model)))
        assert len(found) < len(expected) or "repetition_penalty" in options.rules_in_use() or options.overflow == "exact"
        (ids, values), (expected_ids, expected_values) = (map(np.concatenate, zip(*pieces)) for pieces in (found, expected))
        assert np.array_equal(ids, expected_ids) and len(ids) == 170
        assert np.abs(values - expected_values).max() < 1e-4


def test_a_row_depends_on_its_own_prompt_and_generator_alone():
    model, prompts, seeds = tiny_model(), [[1, 2], [3, 4], [1, 2]], (7, 8, 9)
    together = written(model, prompts, 2 * BLOCK, SamplingOptions(temperature=1.0), *seeds)
    alone = [written(model, [prompts[i]], 2 * BLOCK, SamplingOptions(temperature=1.0), seeds[i])[0] for i in range(3)]
    assert together == alone and together[0] != together[2]


def test_the_global_random_state_neither_matters_nor_moves():
    model = tiny_model()
    before = torch.get_rng_state()
    first = written(model, [[1]], 20, SamplingOptions(), 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert written(model, [[1]], 20, SamplingOptions(), 3) == first


@pytest.mark.parametrize("one", [{"temperature": 1e-9}, {"temperature": 1e-320}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}])
def test_every_control_at_its_end_is_greedy(one):
    greedy = written(tiny_model(), [[1]], 30, SamplingOptions(temperature=0), 0)
    assert written(tiny_model(), [[1]], 30, SamplingOptions(**one), 0) == greedy


@pytest.mark.parametrize(
    "off",
    [{"top_k": VOCAB}, {"top_k": 10**9}, {"top_p": 1.0}, {"min_p": 1e-30}],
    ids=str,
)
def test_every_control_at_its_other_end_is_off(off):
    assert written(tiny_model(), [[1]], 30, SamplingOptions(**off), 0) == written(tiny_model(), [[1]], 30, SamplingOptions(), 0)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e30])
def test_what_is_never_sampled_never_appears(temperature):
    banned = (0, 3, VOCAB - 1)
    ids = written(tiny_model(), [[1]] * 4, 50, SamplingOptions(temperature=temperature), 0, 1, 2, 3, never_sampled=banned)
    assert not {token_id for row in ids for token_id in row} & set(banned)


def test_a_text_from_nothing_starts_on_a_new_line_if_there_is_one():
    assert first_id(Tokenizer("\t\nab")) == 1
    assert first_id(Tokenizer("ab")) == 0
    assert first_id(Tokenizer("ab", folded=True)) == 0
    assert first_id(Tokenizer(None)) == 10
