"""Both engines write what the definitions say: those of GPT.generate, and of refill and the penalty in plain Python.

The formulas are those of docs/sampling.md. The reference keeps no cache, and reads its whole context again for each character.
"""

import math
from functools import partial
from itertools import accumulate, cycle

import numpy as np
import pytest
import torch
from helpers import clear_model, weights_of, written

from chargpt.model import GPT, POSITIONS
from chargpt.sampling import c_texts, rules
from chargpt.sampling.c_texts import c_writer, load_kernel
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import TorchTexts, torch_writer
from chargpt.sampling.writer import Writer
from chargpt.text.tokenizer import Tokenizer

VOCAB = 7
FREE = 10  # characters that may repeat without a penalty
small_model = partial(clear_model, VOCAB)


@pytest.fixture(scope="module", params=["torch", "C"])
def writer_of(request, compiled):
    if request.param == "torch":
        return torch_writer
    kernel = compiled(load_kernel)
    return lambda model: c_writer(weights_of(model), model.config, kernel=kernel)


@pytest.mark.parametrize("positions, temperature, prompt_length", [*zip(POSITIONS, cycle((0.0, 0.7, 1.0)), cycle((24, 8, 1)))])
def test_the_text_is_that_of_the_plain_generate_also_past_the_block(writer_of, positions, temperature, prompt_length):
    model, options = small_model(positions=positions), SamplingOptions(temperature=temperature, overflow="exact")
    prompt = torch.randint(VOCAB, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    whole = model.generate(prompt, 24, temperature=temperature, generator=torch.Generator().manual_seed(1))
    assert written(writer_of(model), prompt.tolist(), 24, options, 1).tolist() == whole[:, prompt_length:].tolist()


def context_of(prompt: list[int], written: list[int], block_size: int) -> list[int]:
    """What the model reads after the ids `written` with refill.

    It begins with the last block_size ids of the prompt. An id that would make it longer than the block replaces it by the
    last half of the block, that id included.
    """
    context = prompt[-block_size:]
    for token_id in written:
        context = [*context, token_id]
        if len(context) > block_size:
            context = context[-max(1, block_size // 2) :]
    return context


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
def check(writer_of, model: GPT, prompts: list[list[int]], length: int, window: int = 1024, **options):
    """Asserts that the ids that follow each prompt, and their log-probabilities under the model itself, are as defined."""
    sampling, block_size, seeds = SamplingOptions(**options), model.config.block_size, range(len(prompts))
    ids, values = map(np.concatenate, zip(*writer_of(model).pieces(prompts, length, sampling, seeds=seeds)))
    for seed, prompt in enumerate(prompts):
        made, generator = list[int](), torch.Generator().manual_seed(seed)
        for value in values[:, seed]:
            text = prompt + made
            context = context_of(prompt, made, block_size) if sampling.overflow == "refill" else text[-block_size:]
            logits = model(torch.tensor([context]))[0, -1].double()
            weights = logits.clone()
            for token_id in range(VOCAB) if sampling.repetition_penalty > 1 else ():
                excess = max(0, longest_repetition(text, token_id, window) - FREE)
                weights[token_id] -= excess * math.log(sampling.repetition_penalty)
            if sampling.temperature == 0:
                made.append(int(weights.argmax()))
            else:
                sums = [*accumulate((weights / sampling.temperature).softmax(-1).tolist()[:-1]), 1]
                left = 1 - float(torch.rand(1, dtype=torch.float64, generator=generator))
                made.append(next(token_id for token_id, total in enumerate(sums) if total >= left))
            assert abs(value - float(logits.log_softmax(-1)[made[-1]])) < 1e-3
        assert ids[:, seed].tolist() == made


@pytest.mark.parametrize(("block_size", "prompt_length"), [(1, 1), (1, 8), (7, 1), (7, 30), (8, 8)])
def test_refill_reads_the_last_half_of_a_full_context_and_what_follows(writer_of, block_size, prompt_length):
    model = small_model(block_size=block_size, positions=[*POSITIONS][(block_size + prompt_length) % len(POSITIONS)])
    prompts = torch.randint(VOCAB, (2, prompt_length), generator=torch.Generator().manual_seed(1)).tolist()
    check(writer_of, model, prompts, 3 * block_size + 5, temperature=1.0)


PASSAGE = [0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1]
REPETITIONS = [PASSAGE + PASSAGE[:11], [3] * 23]  # begun by the prompt: of a passage, and of itself


@pytest.mark.parametrize(
    ("prompts", "window", "options"),
    [
        (REPETITIONS, 1024, dict(temperature=0.0)),
        (REPETITIONS, 1024, dict(temperature=0.7, overflow="exact")),
        ([[1, 2, 1, 2, 1, 2] * 4], 30, dict(temperature=0.3)),
    ],
)
def test_the_penalty_makes_each_character_of_a_repetition_beyond_ten_r_times_less_likely(
    writer_of, prompts, window, options, monkeypatch
):
    """It looks at the last characters alone."""
    for module in (rules, c_texts):
        monkeypatch.setattr(module, "WINDOW", window)
    check(writer_of, small_model(block_size=16), prompts, 40, window, repetition_penalty=4.0, **options)


@pytest.mark.parametrize("period", [1, 2, 5, 13])
def test_the_excess_is_that_of_the_formula_for_every_window(period, monkeypatch):
    text = ([*PASSAGE, 3][:period] * 60)[:60]
    seen = set()
    for window in range(2, 40):
        monkeypatch.setattr(rules, "WINDOW", window)
        expected = [max(0, longest_repetition(text, token_id, window) - FREE) for token_id in range(VOCAB)]
        penalised = rules.repetition_penalty(np.zeros((1, VOCAB), np.float32), math.e, np.array([text]))
        assert (-penalised).round().astype(int).tolist() == [expected], window
        seen.add(max(expected))
    assert len(seen) > 10


RULES = [
    dict(temperature=0),
    dict(temperature=1e-320),
    dict(temperature=1e300),
    dict(top_p=1e-320),
    dict(temperature=1.5, top_k=7, top_p=0.8, min_p=0.1),
    dict(top_k=10**9, min_p=1e-30),
    dict(top_k=4, overflow="exact"),
    dict(top_p=0.6),
    dict(min_p=0.2),
    dict(repetition_penalty=3.0),
]


@pytest.mark.parametrize(("options", "positions", "size"), [*zip(RULES, cycle(POSITIONS), [70] * 3 + [26] * 9)], ids=str)
def test_a_device_that_chooses_itself_writes_the_same(positions, options, size):
    """What a CUDA graph contains, here without one: tests/gpu counts what it asks of a GPU. With 70, the cache grows."""
    model, sampling = clear_model(positions=positions, block_size=size, scale=8.0), SamplingOptions(**options)
    with torch.no_grad():
        model.token_embedding.weight[1::2] = model.token_embedding.weight[:-1:2]  # twins are equally likely
    here, prompts = Writer(partial(TorchTexts, model, chooses=True), size), [[2, 3, 4], [5, 1, 1], [0, 10, 4]]
    more = {"seeds": range(len(prompts)), "never_sampled": (0, 3)}
    found, expected = (list(writer.pieces(prompts, 3 * size // 2, sampling, **more)) for writer in (here, torch_writer(model)))
    assert len(found) < len(expected) or "repetition_penalty" in options or "overflow" in options
    (ids, values), (expected_ids, expected_values) = (map(np.concatenate, zip(*pieces)) for pieces in (found, expected))
    assert np.array_equal(ids, expected_ids) and len(ids) == 3 * size // 2
    assert np.abs(values - expected_values).max() < 1e-4


def test_a_row_depends_on_its_own_prompt_and_seed_alone(writer_of):
    """Neither on the rows beside it nor on the state of torch's generator, which stays as it is."""
    writer, prompts, seeds = writer_of(small_model()), [[1, 2], [3, 4], [1, 2]], (7, 8, 9)
    before = torch.get_rng_state()
    together = written(writer, prompts, 16, SamplingOptions(temperature=1.0), *seeds).tolist()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    alone = [written(writer, [prompts[i]], 16, SamplingOptions(temperature=1.0), seeds[i])[0].tolist() for i in range(3)]
    assert together == alone and together[0] != together[2]


def test_a_text_from_nothing_starts_on_a_new_line_if_there_is_one():
    tokenizers = Tokenizer("\t\nab"), Tokenizer("ab"), Tokenizer("ab", folded=True), Tokenizer(None)
    assert [tokenizer.first_id for tokenizer in tokenizers] == [1, 0, 0, 10]
