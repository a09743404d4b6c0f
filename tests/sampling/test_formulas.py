"""Refill and the penalty on repetition, against their formulas in plain Python, for both decoders.

The formulas are those of docs/sampling.md. The reference keeps no cache, and reads its whole context again for each character.
"""

import functools
import math

import pytest
import torch

from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling import repetition
from chargpt.sampling.c_decoder import CDecoder
from chargpt.sampling.decoder import Decoder, pieces
from chargpt.sampling.options import SamplingOptions

VOCAB = 7
FREE = 10  # characters that may repeat without a penalty


@pytest.fixture(scope="module", params=["torch", "C"])
def decoder(request, compiled):
    if request.param == "torch":
        return Decoder
    return functools.partial(CDecoder, kernel=compiled(load_kernel))


def clear_model(**shape) -> GPT:
    """A model whose logits differ clearly, so that rounding decides nothing."""
    torch.manual_seed(0)
    config = GPTConfig(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, "bias": True, **shape})
    model = GPT(config, VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def contexts(prompt: list[int], written: list[int], block_size: int) -> list[list[int]]:
    """What the model reads for each of the ids `written` with refill.

    It begins with the last block_size ids of the prompt. An id that would make it longer than the block replaces it by the
    last half of the block, that id included.
    """
    context, read = prompt[-block_size:], []
    for token_id in written:
        read.append(list(context))
        context.append(token_id)
        if len(context) > block_size:
            context = context[-max(1, block_size // 2) :]
    return read


def longest_repetition(text: list[int], token_id: int, window: int) -> int:
    """The length of the longest end of text + [id] that occurs earlier, both within the last `window` ids of `text`."""
    text = text[-window:]
    longest = 0
    for end in range(len(text)):  # the earlier passage ends here, with the same id
        length = 0
        while length <= end and text[end - length] == (token_id if length == 0 else text[len(text) - length]):
            length += 1
        longest = max(longest, length)
    return longest


@torch.inference_mode()
def reference(
    model: GPT, prompt: list[int], length: int, sampling: SamplingOptions, seed: int, *, overflow: str, window: int = 1024
):
    """The ids that follow `prompt`, and the log-probability of each under the model itself."""
    block_size, written, log_probabilities = model.config.block_size, [], []
    generator = torch.Generator().manual_seed(seed)
    for _ in range(length):
        text = prompt + written
        context = contexts(prompt, [*written, 0], block_size)[-1] if overflow == "refill" else text[-block_size:]
        logits = model(torch.tensor([context]))[0, -1].double()
        weights = logits.clone()
        for token_id in range(VOCAB):
            excess = max(0, longest_repetition(text, token_id, window) - FREE)
            weights[token_id] -= excess * math.log(sampling.repetition_penalty)
        if sampling.temperature == 0:
            chosen = int(weights.argmax())
        else:
            shares = (weights / sampling.temperature).softmax(-1).tolist()
            left = 1 - float(torch.rand(1, dtype=torch.float64, generator=generator))
            chosen = next(token_id for token_id in range(VOCAB) if sum(shares[: token_id + 1]) >= left or token_id == VOCAB - 1)
        written.append(chosen)
        log_probabilities.append(float(logits.log_softmax(-1)[chosen]))
    return written, log_probabilities


@torch.inference_mode()
def check(
    decoder, model: GPT, prompts: list[list[int]], length: int, sampling: SamplingOptions, *, overflow: str, window: int = 1024
):
    seeds = range(len(prompts))
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    new = decoder(model, len(prompts), overflow=overflow)
    made = list(pieces(new, torch.tensor(prompts), length, sampling, generator=generators))
    ids, values = (torch.cat(column) for column in zip(*made))
    for seed in seeds:
        expected = reference(model, prompts[seed], length, sampling, seed, overflow=overflow, window=window)
        assert ids[:, seed].tolist() == expected[0]
        torch.testing.assert_close(values[:, seed].double(), torch.tensor(expected[1], dtype=torch.float64), rtol=0, atol=1e-3)


@pytest.mark.parametrize("prompt_length", [1, 8, 30])
@pytest.mark.parametrize("block_size", [1, 7, 8])
def test_refill_reads_the_last_half_of_a_full_context_and_what_follows(decoder, block_size, prompt_length):
    model = clear_model(block_size=block_size)
    prompts = torch.randint(VOCAB, (2, prompt_length), generator=torch.Generator().manual_seed(1)).tolist()
    check(decoder, model, prompts, 3 * block_size + 5, SamplingOptions(temperature=1.0), overflow="refill")


@pytest.mark.parametrize("positions", POSITIONS)
def test_refill_begins_at_the_first_position_again(decoder, positions):
    check(decoder, clear_model(positions=positions), [[1, 2]], 40, SamplingOptions(temperature=1.0), overflow="refill")


@pytest.mark.parametrize("overflow", ["refill", "exact"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_penalty_makes_each_character_of_a_repetition_beyond_ten_r_times_less_likely(
    decoder, temperature, overflow, penalty=4.0
):
    model, sampling = clear_model(block_size=16), SamplingOptions(temperature=temperature, repetition_penalty=penalty)
    passage = [0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1]
    prompts = [passage + passage[:11], [3] * 23]  # repetitions begun by the prompt: of a passage, and of itself
    check(decoder, model, prompts, 40, sampling, overflow=overflow)


def test_the_penalty_looks_at_the_last_characters_alone(decoder, monkeypatch):
    monkeypatch.setattr(repetition, "WINDOW", 30)
    sampling = SamplingOptions(temperature=0.3, repetition_penalty=4.0)
    check(decoder, clear_model(block_size=16), [[1, 2, 1, 2, 1, 2] * 4], 80, sampling, overflow="refill", window=30)


@pytest.mark.parametrize("period", [1, 2, 5, 13])
def test_the_excess_is_that_of_the_formula_for_every_window(period, monkeypatch):
    text = ([0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1, 3][:period] * 60)[:60]
    seen = set()
    for window in range(2, 40):
        monkeypatch.setattr(repetition, "WINDOW", window)
        expected = [max(0, longest_repetition(text, token_id, window) - FREE) for token_id in range(VOCAB)]
        assert repetition.Repetition(torch.tensor([text])).excess(VOCAB).tolist() == [expected], window
        seen.add(max(expected))
        writing = repetition.Repetition(torch.tensor([text[:3]]))
        for token_id in text[3:]:
            writing.append(torch.tensor([token_id]))
        assert writing.excess(VOCAB).tolist() == [expected], f"{window}, when written"
    assert len(seen) > 10
