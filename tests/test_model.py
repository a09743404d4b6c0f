"""The attention and the GPT, by the properties that make them what they are."""

import math

import pytest
import torch
import torch.nn.functional as F

from chargpt.model import (
    GPT,
    POSITIONS,
    CausalSelfAttention,
    GPTConfig,
    causal_attention,
    causal_mask,
    reference_attention,
    rotary_table,
    rotate,
    sinusoids,
)

SHAPE = dict(n_layer=2, n_head=2, n_embd=32, block_size=16, bias=True)


def make_model(vocab_size: int = 11, **settings) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(**{**SHAPE, **settings}), vocab_size).eval()


def random_ids(*shape: int, vocab_size: int = 11) -> torch.Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(1))


def test_worked_example():
    x = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    k = x @ torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    q = x @ torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    v = x @ torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    assert k.tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert q.tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert v.tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    assert (q @ k.T).tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    y, weights = reference_attention(q[None, None], k[None, None], v[None, None], scale=1.0)

    def printed(table: torch.Tensor) -> list[list[str]]:
        return [[f"{value:.2f}" for value in row] for row in table.tolist()]

    assert printed(weights[0, 0]) == [["0.06", "0.47", "0.47"], ["0.00", "0.98", "0.02"], ["0.00", "0.88", "0.12"]]
    assert printed(y[0, 0]) == [["1.94", "6.68", "1.60"], ["2.00", "7.96", "0.05"], ["2.00", "7.76", "0.36"]]


def test_mask_may_have_three_or_four_dimensions():
    q, k, v = torch.randn(3, 2, 4, 5, 8).unbind(0)
    mask = torch.rand(2, 5, 5) < 0.5
    mask |= torch.eye(5, dtype=torch.bool)
    three, weights = reference_attention(q, k, v, mask=mask)
    four, _ = reference_attention(q, k, v, mask=mask[:, None])
    assert torch.equal(three, four)
    assert weights.shape == (2, 4, 5, 5)
    assert (weights[~mask[:, None].expand_as(weights)] == 0).all()


def test_fused_heads_equal_separate_heads():
    torch.manual_seed(0)
    config = GPTConfig(**SHAPE)
    attention = CausalSelfAttention(config)
    x = torch.randn(2, 7, 32)
    W_q, W_k, W_v = attention.qkv.weight.split(32)
    b_q, b_k, b_v = attention.qkv.bias.split(32)
    heads = []
    for head in range(config.n_head):
        rows = slice(head * 16, (head + 1) * 16)
        q, k, v = (F.linear(x, W[rows], b[rows])[:, None] for W, b in ((W_q, b_q), (W_k, b_k), (W_v, b_v)))
        heads.append(reference_attention(q, k, v, mask=causal_mask(7)[None, None])[0][:, 0])
    torch.testing.assert_close(attention(x), attention.proj(torch.cat(heads, dim=-1)))


@pytest.mark.parametrize("d", [16, 64])
@pytest.mark.parametrize("scale", [1.0, None])
def test_scaling_keeps_the_variance_of_scores_at_one(d, scale):
    q, k, v = torch.randn(3, 1, 1, 600, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64).unbind(0)
    _, weights = reference_attention(q, k, v, scale=scale)
    log = weights.log()  # the scores, but for one number a row
    scores = log - log.mean(dim=-1, keepdim=True)
    assert scores.var().item() == pytest.approx(d if scale else 1, rel=0.1)


@pytest.mark.parametrize("positions", POSITIONS)
def test_causal_by_gradient(positions):
    model = make_model(positions=positions).double()
    vectors = model.token_embedding(random_ids(1, 10)).detach().requires_grad_()
    model.token_embedding.register_forward_hook(lambda *_: vectors)
    for t in (0, 4, 9):
        # A random mix of the logits: a plain sum could cancel.
        out = (model(random_ids(1, 10))[0, t] * torch.randn(11).double()).sum()
        (gradient,) = torch.autograd.grad(out, vectors)
        reached = gradient[0].abs().sum(dim=-1)
        assert (reached[: t + 1] > 0).all()
        assert (reached[t + 1 :] == 0).all()


def test_sinusoids_are_the_papers_and_shift_by_one_linear_map():
    length, width = 50, 16
    table = sinusoids(length, width)
    for pos in (0, 1, 7, 49):
        for i in range(width // 2):
            angle = pos / 10000 ** (2 * i / width)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    k = 5
    shift = torch.zeros(width, width)
    for i in range(width // 2):
        w = k / 10000 ** (2 * i / width)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[math.cos(w), math.sin(w)], [-math.sin(w), math.cos(w)]])
    torch.testing.assert_close(table[:-k] @ shift.T, table[k:], atol=1e-5, rtol=0)


def test_sinusoidal_table_stands_beside_the_token_embedding():
    # Neither drowns the other: between what a token embedding has at the start and what it grows to.
    model = make_model(positions="sinusoidal", n_embd=128, vocab_size=200)
    size = model.token_embedding.weight.std().item()
    assert size <= model.position_table(16).square().mean().sqrt().item() <= 4 * size


def test_rotary_scores_depend_on_distance_alone():
    table = rotary_table(20, 8)
    q, k = torch.randn(2, 1, 1, 1, 8).unbind(0)
    turned_q, turned_k = rotate(q.expand(1, 1, 20, 8), table), rotate(k.expand(1, 1, 20, 8), table)
    scores = (turned_q @ turned_k.transpose(-2, -1))[0, 0]
    for distance in range(-19, 20):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_sequences_of_a_batch_never_see_each_other(positions):
    model = make_model(positions=positions)
    idx = random_ids(3, 12)
    together = model(idx)
    for row in range(3):
        torch.testing.assert_close(together[row], model(idx[row : row + 1])[0])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_fast_path_equals_reference(positions, bias):
    model = make_model(positions=positions, bias=bias)
    attention = model.blocks[0].attn
    x = torch.randn(2, 9, 32)
    _, rotary = model._embed(random_ids(2, 9))
    y, _ = reference_attention(*attention.heads(x, rotary), mask=causal_mask(9)[None, None])
    torch.testing.assert_close(attention(x, rotary), attention.proj(y.transpose(1, 2).reshape(2, 9, 32)))


@pytest.mark.parametrize("T, S", [(9, 9), (1, 9), (4, 9), (1, 1)])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
def test_fast_attention_equals_reference_in_every_precision(T, S, dtype, tolerance):
    q, k, v = torch.randn(2, 3, T, 8), torch.randn(2, 3, S, 8), torch.randn(2, 3, S, 8)
    expected, _ = reference_attention(q, k, v, mask=causal_mask(T, S)[None, None])
    found = causal_attention(q.to(dtype), k.to(dtype), v.to(dtype))
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("prefill", [1, 5, 16])
def test_cached_equals_uncached_at_every_position(positions, prefill):
    model = make_model(positions=positions)
    idx = random_ids(2, 16)
    cache = model.new_cache(2)
    parts = [model(idx[:, :prefill], cache=cache)]
    parts += [model(idx[:, t : t + 1], cache=cache) for t in range(prefill, 16)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(idx))


@pytest.mark.parametrize("positions", POSITIONS)
def test_attention_weights_are_those_that_the_model_uses(positions):
    model = make_model(positions=positions)
    idx = random_ids(2, 9)
    weights = model.attention(idx)
    assert weights.shape == (2, 2, 2, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 2, 9))
    assert not weights.triu(1).any()
    # The same by hand: the stream that each layer of the fast path reads, and the reference's weights there.
    streams = []
    for block in model.blocks:
        block.attn.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0]))
    logits = model(idx)
    for layer, block in enumerate(model.blocks):
        q, k, _ = block.attn.heads(streams[layer], model._embed(idx)[1])
        expected = reference_attention(q, k, k, mask=causal_mask(9)[None, None])[1]
        torch.testing.assert_close(weights[layer], expected)
    assert torch.equal(model(idx), logits) and not weights.requires_grad


def test_attention_weights_follow_a_changed_block_and_a_changed_attention_is_no_other_one(monkeypatch):
    model, idx = make_model(), random_ids(2, 9)
    other = [model.blocks[0].attn.register_forward_pre_hook(lambda _, given: (given[0] + 1, *given[1:]))]
    streams = []
    other.append(model.blocks[1].attn.register_forward_pre_hook(lambda _, given: streams.append(given[0])))
    weights = model.attention(idx)
    expected = model.blocks[1].attn.reference(streams[0])[1]
    for hook in other:
        hook.remove()
    torch.testing.assert_close(weights[1], expected)
    assert not torch.allclose(weights, model.attention(idx))
    monkeypatch.setattr("model.causal_attention", lambda q, k, v: v)
    with pytest.raises(ValueError, match="reference computes something else than forward"):
        model.attention(idx)
    assert not any(block.attn._forward_hooks for block in model.blocks)


def test_positions_beyond_the_prepared_table_are_computed_when_they_are_used(monkeypatch):
    idx = random_ids(1, 16)
    for positions in filter(POSITIONS.get, POSITIONS):
        monkeypatch.setattr("model.TABLE_NUMBERS", 2**22)
        whole = make_model(positions=positions)
        monkeypatch.setattr("model.TABLE_NUMBERS", 3 * 32)
        growing = make_model(positions=positions)
        growing.load_state_dict(whole.state_dict())
        with torch.inference_mode():
            for length in (2, 3, 4, 11, 16):
                assert torch.equal(growing(idx[:, :length]), whole(idx[:, :length]))
        assert torch.equal(growing.position_table(16), whole.position_table(16))
        growing.train()(idx, idx).backward()  # a table made without gradients serves training
        assert "_table" not in growing.state_dict()
        low = make_model(positions=positions).bfloat16()
        assert torch.equal(low.position_table(16), whole.position_table(16).bfloat16())


def test_the_memory_of_a_cache_and_a_table_follows_what_is_written():
    for positions in filter(POSITIONS.get, POSITIONS):
        model = make_model(positions=positions, block_size=2**22)
        cache = model.new_cache(1)
        for length in (1, 99):
            model(random_ids(1, length), cache=cache)
        assert cache[0].length == 100 and cache[0].keys.size(2) == 128
        assert model.position_table(100).untyped_storage().nbytes() <= 4 * 2**22


def test_too_long_a_sequence_is_refused():
    model = make_model()
    with pytest.raises(ValueError, match="block_size"):
        model(random_ids(1, 17))
    cache = model.new_cache(1)
    model(random_ids(1, 16), cache=cache)
    with pytest.raises(ValueError, match="block_size"):
        model(random_ids(1, 1), cache=cache)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("vocab_size", [65, 1000])
def test_untrained_loss_is_that_of_a_guess(positions, vocab_size):
    model = make_model(vocab_size, positions=positions, n_embd=64)
    idx = random_ids(16, 17, vocab_size=vocab_size)
    assert model(idx[:, :-1], idx[:, 1:]).item() == pytest.approx(math.log(vocab_size), rel=0.05)


def test_loss_is_the_mean_over_all_characters():
    model = make_model()
    idx = random_ids(4, 9)
    logits, targets = model(idx[:, :-1]), idx[:, 1:]
    expected = -logits.log_softmax(-1).gather(-1, targets[..., None]).mean()
    torch.testing.assert_close(model(idx[:, :-1], targets), expected)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_the_expectation(p):
    """In training a value is 0 with probability p, and otherwise 1 / (1 - p) times its value in evaluation."""
    model, found = make_model(dropout=p, n_embd=64, n_layer=1), {}
    idx = random_ids(16, 8)
    block, x = model.blocks[0], torch.randn(16, 8, 64)
    block.register_forward_pre_hook(lambda module, inputs: found.setdefault(module.training, inputs[0]))
    for mode in (True, False):
        model.train(mode)(idx)
    pairs = [(found[True], found[False])]  # the embeddings
    pairs += [(part.train()(x), part.eval()(x)) for part in (block.attn, block.mlp)]
    for dropped, whole in pairs:
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], whole[kept] / (1 - p))
        assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.03)  # of 8,192 values


def test_initial_weights_keep_what_they_read_and_write_little():
    model = make_model(n_layer=4, n_embd=128, n_head=4, vocab_size=500)
    block, x = model.blocks[2], torch.randn(1000, 128)
    for reads in (block.attn.qkv, block.mlp.up):
        assert reads(x).std().item() == pytest.approx(1.0, rel=0.03)
    for projection in (model.blocks[0].attn.proj, model.blocks[3].mlp.down):
        assert projection.weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * 4), rel=0.03)
        assert not projection.bias.any()


def test_one_parameter_for_embedding_and_logits():
    model = make_model()
    names = [name for name, p in model.named_parameters() if p.shape == (11, 32)]
    assert names == ["token_embedding.weight"]
    assert not any("lm_head" in name for name in model.state_dict())


def test_generate_crops_the_context_and_is_repeatable():
    model = make_model()
    prompt = random_ids(2, 20)
    out = model.generate(prompt, 10, generator=torch.Generator().manual_seed(3))
    assert out.shape == (2, 30)
    assert torch.equal(out[:, :20], prompt)
    assert torch.equal(out, model.generate(prompt, 10, generator=torch.Generator().manual_seed(3)))
    greedy = model.generate(prompt, 1, temperature=0)
    assert torch.equal(greedy[:, -1], model(prompt[:, -16:])[:, -1].argmax(-1))


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_generate_draws_no_impossible_id(monkeypatch, extreme):
    """With the smallest and the largest random number, and ids of probability 0 at both ends."""
    model = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=4, block_size=8, bias=True), 5).eval()
    with torch.no_grad():  # every logit is the sum of the id's embedding
        model.norm.weight.zero_()
        model.norm.bias.fill_(1)
        model.token_embedding.weight.copy_(torch.tensor([-1000.0, 0, 1, 0, -1000])[:, None].expand(5, 4))
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: torch.full(shape, extreme, dtype=torch.float64))
    assert model.generate(torch.tensor([[2]]), 1)[0, 1] == (3 if extreme == 0 else 1)
