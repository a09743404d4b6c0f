"""Refill and the penalty on repetition, against their formulas in plain Python, for both engines.

The formulas are those of docs/sampling.md. The reference keeps no cache, and reads its whole context again for each character.
"""

import math

import numpy as np
import pytest
import torch
from helpers import weights_of

from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling import c_texts, rules
from chargpt.sampling.c_texts import c_writer
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer

VOCAB = 7
FREE = 10  # characters that may repeat without a penalty


@pytest.fixture(scope="module", params=["torch", "C"])
def writer_of(request, compiled):
    if request.param == "torch":
        return torch_writer
    kernel = compiled(load_kernel)
    return lambda model: c_writer(weights_of(model), model.config, kernel=kernel)


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


def check(writer_of, model: GPT, prompts: list[list[int]], length: int, sampling, *, overflow: str, window: int = 1024):
    seeds, options = range(len(prompts)), sampling.changed(overflow=overflow)
    made = list(writer_of(model).pieces(prompts, length, options, seeds=seeds))
    ids, values = (np.concatenate(column) for column in zip(*made))
    for seed in seeds:
        expected = reference(model, prompts[seed], length, sampling, seed, overflow=overflow, window=window)
        assert ids[:, seed].tolist() == expected[0]
        assert np.abs(values[:, seed] - np.array(expected[1])).max() < 1e-3


@pytest.mark.parametrize("prompt_length", [1, 8, 30])
@pytest.mark.parametrize("block_size", [1, 7, 8])
def test_refill_reads_the_last_half_of_a_full_context_and_what_follows(writer_of, block_size, prompt_length):
    model = clear_model(block_size=block_size)
    prompts = torch.randint(VOCAB, (2, prompt_length), generator=torch.Generator().manual_seed(1)).tolist()
    check(writer_of, model, prompts, 3 * block_size + 5, SamplingOptions(temperature=1.0), overflow="refill")


@pytest.mark.parametrize("positions", POSITIONS)
def test_refill_begins_at_the_first_position_again(writer_of, positions):
    check(writer_of, clear_model(positions=positions), [[1, 2]], 40, SamplingOptions(temperature=1.0), overflow="refill")


@pytest.mark.parametrize("overflow", ["refill", "exact"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_penalty_makes_each_character_of_a_repetition_beyond_ten_r_times_less_likely(
    writer_of, temperature, overflow, penalty=4.0
):
    model, sampling = clear_model(block_size=16), SamplingOptions(temperature=temperature, repetition_penalty=penalty)
    passage = [0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1]
    prompts = [passage + passage[:11], [3] * 23]  # repetitions begun by the prompt: of a passage, and of itself
    check(writer_of, model, prompts, 40, sampling, overflow=overflow)


def test_the_penalty_looks_at_the_last_characters_alone(writer_of, monkeypatch):
    for module in (rules, c_texts):
        monkeypatch.setattr(module, "WINDOW", 30)
    sampling = SamplingOptions(temperature=0.3, repetition_penalty=4.0)
    check(writer_of, clear_model(block_size=16), [[1, 2, 1, 2, 1, 2] * 4], 80, sampling, overflow="refill", window=30)


@pytest.mark.parametrize("period", [1, 2, 5, 13])
def test_the_excess_is_that_of_the_formula_for_every_window(period, monkeypatch):
    text = ([0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1, 3][:period] * 60)[:60]
    seen = set()
    for window in range(2, 40):
        monkeypatch.setattr(rules, "WINDOW", window)
        expected = [max(0, longest_repetition(text, token_id, window) - FREE) for token_id in range(VOCAB)]
        penalised = rules.repetition_penalty(np.zeros((1, VOCAB), np.float32), math.e, np.array([text]))
        assert (-penalised).round().astype(int).tolist() == [expected], window
        seen.add(max(expected))
    assert len(seen) > 10
