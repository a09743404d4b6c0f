"""One vector, its gradient, and a copy that follows: the same training as with fifty parameters."""

import torch

from chargpt.model import GPT, GPTConfig
from chargpt.training.weights import FlatWeights


def make(precision: torch.dtype = torch.float32) -> tuple[GPT, FlatWeights]:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(GPT(GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8, bias=True), 7))
    return models[0], FlatWeights(models[1], precision)


IDX = torch.randint(7, (4, 9), generator=torch.Generator().manual_seed(3))


def test_every_parameter_is_a_view_of_the_vector_and_none_is_changed():
    model, weights = make()
    assert weights.vector.numel() == model.parameter_count()
    for name, parameter in weights.model.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))
        assert parameter.data_ptr() == weights.vector[weights.spans[name]].data_ptr()
    weights.vector.zero_()
    assert not any(parameter.any() for parameter in weights.model.parameters())


def test_the_working_copy_follows_in_its_precision():
    model, weights = make(torch.bfloat16)
    assert all(parameter.dtype == torch.bfloat16 for parameter in weights.working.parameters())
    weights.vector += 0.25
    assert not torch.equal(weights.working.norm.weight.float(), weights.model.norm.weight)
    weights.refresh()
    for name, parameter in weights.working.named_parameters():
        assert torch.equal(parameter, weights.model.get_parameter(name).bfloat16())
    loss = weights.working(IDX[:, :-1], IDX[:, 1:])
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, weights.model(IDX[:, :-1], IDX[:, 1:]), atol=0.05, rtol=0.05)
    weights.add_gradient(loss, begins=True)
    assert weights.gradient.dtype == torch.float32


def test_gradients_in_bfloat16_stay_right_over_many_characters():
    """Sums over 4,096 characters, of the norms' gains and biases and of a frequent character's embedding."""
    config, found = GPTConfig(n_layer=1, n_head=1, n_embd=32, block_size=256, bias=True), {}
    often = 1 / torch.arange(1.0, 66)
    idx = torch.multinomial(often, 16 * 257, replacement=True, generator=torch.Generator().manual_seed(1)).view(16, 257)
    for precision in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        weights = FlatWeights(GPT(config, 65), precision)
        weights.add_gradient(weights.working(idx[:, :-1], idx[:, 1:]), begins=True)
        found[precision] = weights.gradient
    exact, rough = found.values()
    for name, span in weights.spans.items():
        assert (rough[span] - exact[span]).norm() < 0.03 * exact[span].norm(), name


def test_in_float32_both_models_have_the_same_tensors_and_only_one_the_attention():
    model, _ = make()

    def quicken(working: GPT) -> None:
        for block in working.blocks:
            block.attn.fused = lambda qkv, n_head, rotary: qkv[..., : qkv.size(-1) // 3]

    weights = FlatWeights(model, torch.float32, quicken=quicken)
    for kind in ("parameters", "buffers"):
        assert all(one is other for one, other in zip(getattr(weights.working, kind)(), getattr(model, kind)(), strict=True))
    assert all(block.attn.fused is None for block in model.blocks) and all(block.attn.fused for block in weights.working.blocks)
