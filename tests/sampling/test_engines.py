"""Both engines write what the definitions say: those of GPT.generate, and of refill and the penalty in plain Python.

The formulas are those of docs/sampling.md. The reference keeps no cache, and reads its whole context again for each character.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import clear_model, weights_of, written

from chargpt.kernels.decode import load_kernel
from chargpt.model import GPT, POSITIONS
from chargpt.sampling import c_texts, rules
from chargpt.sampling.c_texts import c_writer
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.prompt import first_id
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


SHAPES = [
    dict(n_layer=1, n_head=1, n_embd=2, vocab_size=1),
    dict(n_head=3, n_embd=6, vocab_size=5),  # fewer panels of hidden units than threads
    dict(n_layer=3, n_head=3, n_embd=30, vocab_size=65),
    dict(n_head=4, n_embd=128, block_size=150, vocab_size=300),
    dict(n_head=2, n_embd=132, block_size=64, vocab_size=130),
]


@pytest.mark.parametrize(("threads", "bias"), [(1, True), (3, False)])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['n_head']} of {shape['n_embd']}")
def test_the_logits_are_the_models(writer_of, positions, bias, threads, shape):
    torch.set_num_threads(threads)
    model = clear_model(positions=positions, bias=bias, **{**shape, "scale": 2.0})
    T = model.config.block_size
    ids = torch.randint(shape["vocab_size"], (3, T))
    expected, texts, read = model(ids).detach().numpy(), writer_of(model).new_texts(3), 0
    for piece in (1, 2, 1, T - 4):
        logits = texts.read(read, ids[:, read : read + piece].numpy())
        read += piece
        assert np.abs(logits - expected[:, read - 1]).max() < 1e-4


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("prompt_length", [1, 8, 24])
def test_the_text_is_that_of_the_plain_generate_also_past_the_block(writer_of, positions, temperature, prompt_length):
    model, options = small_model(positions=positions), SamplingOptions(temperature=temperature, overflow="exact")
    prompt = torch.randint(VOCAB, (1, prompt_length), generator=torch.Generator().manual_seed(1))
    for seed in range(2):
        whole = model.generate(prompt, 24, temperature=temperature, generator=torch.Generator().manual_seed(seed))
        assert written(writer_of(model), prompt.tolist(), 24, options, seed).tolist() == whole[:, prompt_length:].tolist()


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
def reference(model: GPT, prompt: list[int], length: int, sampling: SamplingOptions, seed: int, *, window: int = 1024):
    """The ids that follow `prompt`, and the log-probability of each under the model itself."""
    block_size, written, log_probabilities = model.config.block_size, [], []
    generator = torch.Generator().manual_seed(seed)
    for _ in range(length):
        text = prompt + written
        context = contexts(prompt, [*written, 0], block_size)[-1] if sampling.overflow == "refill" else text[-block_size:]
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


def check(writer_of, model: GPT, prompts: list[list[int]], length: int, window: int = 1024, **options):
    seeds, sampling = range(len(prompts)), SamplingOptions(**options)
    ids, values = map(np.concatenate, zip(*writer_of(model).pieces(prompts, length, sampling, seeds=seeds)))
    for seed in seeds:
        expected = reference(model, prompts[seed], length, sampling, seed, window=window)
        assert ids[:, seed].tolist() == expected[0]
        assert np.abs(values[:, seed] - np.array(expected[1])).max() < 1e-3


@pytest.mark.parametrize("prompt_length", [1, 8, 30])
@pytest.mark.parametrize("block_size", [1, 7, 8])
@pytest.mark.parametrize("positions", POSITIONS)
def test_refill_reads_the_last_half_of_a_full_context_and_what_follows(writer_of, block_size, prompt_length, positions):
    model = small_model(block_size=block_size, positions=positions)
    prompts = torch.randint(VOCAB, (2, prompt_length), generator=torch.Generator().manual_seed(1)).tolist()
    check(writer_of, model, prompts, 3 * block_size + 5, temperature=1.0)


@pytest.mark.parametrize("overflow", ["refill", "exact"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_penalty_makes_each_character_of_a_repetition_beyond_ten_r_times_less_likely(writer_of, temperature, overflow):
    passage = [0, 1, 2, 3, 4, 5, 6, 0, 2, 4, 6, 1]
    prompts = [passage + passage[:11], [3] * 23]  # repetitions begun by the prompt: of a passage, and of itself
    options = dict(temperature=temperature, repetition_penalty=4.0, overflow=overflow)
    check(writer_of, small_model(block_size=16), prompts, 40, **options)


def test_the_penalty_looks_at_the_last_characters_alone(writer_of, monkeypatch):
    for module in (rules, c_texts):
        monkeypatch.setattr(module, "WINDOW", 30)
    options = dict(temperature=0.3, repetition_penalty=4.0)
    check(writer_of, small_model(block_size=16), [[1, 2, 1, 2, 1, 2] * 4], 80, 30, **options)


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


RULES = [
    dict(temperature=0),
    dict(temperature=1e-320),
    dict(temperature=1.5, top_k=7, top_p=0.8, min_p=0.1),
    dict(top_k=10**9, min_p=1e-30),
    dict(top_k=4, overflow="exact"),
    dict(top_p=0.6),
    dict(min_p=0.2),
    dict(repetition_penalty=3.0),
]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("options", RULES, ids=str)
def test_a_device_that_chooses_itself_writes_the_same(positions, options):
    """What a CUDA graph contains, here without one: tests/gpu counts what it asks of a GPU."""
    model, sampling = clear_model(positions=positions, block_size=80, scale=8.0), SamplingOptions(**options)
    with torch.no_grad():
        model.token_embedding.weight[1::2] = model.token_embedding.weight[:-1:2]  # twins are equally likely
    here = Writer(partial(TorchTexts, model, chooses=True), 80)
    for prompts in ([[1]], [[2, 3, 4], [5, 1, 1], [0, 10, 4]]):
        more = {"seeds": range(len(prompts)), "never_sampled": (0, 3)}
        found, expected = (list(writer.pieces(prompts, 170, sampling, **more)) for writer in (here, torch_writer(model)))
        assert len(found) < len(expected) or "repetition_penalty" in options or "overflow" in options
        (ids, values), (expected_ids, expected_values) = (map(np.concatenate, zip(*pieces)) for pieces in (found, expected))
        assert np.array_equal(ids, expected_ids) and len(ids) == 170
        assert np.abs(values - expected_values).max() < 1e-4


def test_a_row_depends_on_its_own_prompt_and_seed_alone(writer_of):
    """Neither on the rows beside it nor on the state of torch's generator, which stays as it is."""
    writer, prompts, seeds = writer_of(small_model()), [[1, 2], [3, 4], [1, 2]], (7, 8, 9)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    together = written(writer, prompts, 16, SamplingOptions(temperature=1.0), *seeds).tolist()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    alone = [written(writer, [prompts[i]], 16, SamplingOptions(temperature=1.0), seeds[i])[0].tolist() for i in range(3)]
    assert together == alone and together[0] != together[2]


ENDS = [{"temperature": 1e-9}, {"temperature": 1e-320}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}]
OTHER_ENDS = [{"top_k": VOCAB}, {"top_k": 10**9}, {"top_p": 1.0}, {"min_p": 1e-30}]


@pytest.mark.parametrize(("one", "other"), [*((e, {"temperature": 0}) for e in ENDS), *((e, {}) for e in OTHER_ENDS)], ids=str)
def test_every_control_at_its_end_is_greedy_and_at_the_other_end_off(writer_of, one, other):
    writer = writer_of(small_model(scale=8.0))
    texts = [written(writer, [[1]], 30, SamplingOptions(**options), 0).tolist() for options in (one, other)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e30])
def test_what_is_never_sampled_never_appears(writer_of, temperature):
    banned = {0, 3, VOCAB - 1}
    ids = written(
        writer_of(small_model()), [[1]], 50, SamplingOptions(temperature=temperature), *range(4), never_sampled=[*banned]
    )
    assert not {*ids.flatten().tolist()} & banned


def test_a_text_from_nothing_starts_on_a_new_line_if_there_is_one():
    tokenizers = Tokenizer("\t\nab"), Tokenizer("ab"), Tokenizer("ab", folded=True), Tokenizer(None)
    assert [first_id(tokenizer) for tokenizer in tokenizers] == [1, 0, 0, 10]
