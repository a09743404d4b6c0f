"""Training without a folder or a clock: what a step does, what decides it, and what a state brings back."""

import copy
import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from helpers import batch_of, length_of
from optimizer_reference import ReferenceOptimizer, clipped

from chargpt.config import Config, OptimConfig, RuntimeConfig, TrainConfig
from chargpt.interrupt import Interrupt
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import StepKernel
from chargpt.model import GPT, GPTConfig
from chargpt.runs.stage import Length
from chargpt.training.batches import Batches
from chargpt.training.evaluation import TEMPERATURES, evaluate
from chargpt.training.learning_rate import learning_rate
from chargpt.training.parallel import Processes
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import TRAINED, NotFinite, Trainer

CONFIG = Config(
    model=GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.1),
    train=TrainConfig(max_steps=20, batch_size=4, accumulate=2),
    optim=OptimConfig(learning_rate=1e-2, warmup_steps=2),
    runtime=RuntimeConfig(device="cpu", precision="float32", threads=1),
)
IDS = np.random.default_rng(0).integers(0, 7, 500).astype(np.uint8)


# Of a model whose steps a kernel computes, in pieces.
NATIVE = dataclasses.replace(
    CONFIG,
    model=dataclasses.replace(CONFIG.model, n_embd=32, block_size=32),
    train=TrainConfig(max_steps=20, batch_size=32, accumulate=2),
    runtime=dataclasses.replace(CONFIG.runtime, step="native"),
)


def make_trainer(config: Config = CONFIG, *, teachers: Sequence[GPT] = ()) -> Trainer:
    torch.manual_seed(0)
    return Trainer(GPT(config.model, 7), IDS, config, runtime=choose_runtime(config), teachers=teachers)


@pytest.fixture
def native() -> Config:
    """NATIVE, where it can be compiled."""
    try:
        StepKernel(torch.float32)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return NATIVE


@pytest.mark.parametrize("clip", [0.1, 1e9, 0.0])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_steps_are_those_of_plain_training_in_float64(name, clip):
    """Batches, gradient, clipping, rate and update together, against autograd and the papers' formulas in float64."""
    model = dataclasses.replace(CONFIG.model, dropout=0.0, n_layer=2)
    optim = OptimConfig(name=name, learning_rate=2e-2, weight_decay=0.2, grad_clip=clip, warmup_steps=2)
    config = dataclasses.replace(CONFIG, model=model, optim=optim)
    trainer = make_trainer(config)
    plain = copy.deepcopy(trainer.model).double()
    parameters = dict(plain.named_parameters())
    reference = ReferenceOptimizer(
        {key: value.detach().numpy() for key, value in parameters.items()},
        name=name,
        betas=optim.betas,
        momentum=optim.momentum,
        decay=optim.weight_decay,
    )
    together = dataclasses.replace(config.train, batch_size=8, accumulate=1)  # the two micro-batches as one
    batches = Batches(IDS, model.block_size, train=together)
    for step in range(4):
        found = trainer.step()
        loss = logits_loss(plain, *batch_of(batches, step))
        gradients = dict(zip(parameters, (g.numpy() for g in torch.autograd.grad(loss, list(parameters.values())))))
        norm = math.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert (found.loss, found.grad_norm) == pytest.approx((loss.item(), norm), rel=1e-4)
        assert norm > 0.1  # so that 0.1 clips
        reference.step(clipped(gradients, clip or math.inf), learning_rate(step, optim, length_of(optim, 20)))
        for key, parameter in parameters.items():
            parameter.data = torch.from_numpy(reference.values[key])
            np.testing.assert_allclose(trainer.model.get_parameter(key).detach(), reference.values[key], atol=2e-5, err_msg=key)


def logits_loss(model: GPT, idx: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean loss in the precision of the model; `model(idx, targets)` would compute it in float32."""
    return torch.nn.functional.cross_entropy(model(idx).flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("taught", [False, True], ids=["alone", "with a teacher"])
def test_steps_by_the_kernel_are_those_of_torch(native, taught):
    """Losses and gradients, without dropout, whose masks are others."""
    config = dataclasses.replace(native, model=dataclasses.replace(native.model, dropout=0.0))
    teachers = [GPT(config.model, 7)] * taught
    by_kernel = make_trainer(config, teachers=teachers)
    by_torch = make_trainer(dataclasses.replace(config, runtime=CONFIG.runtime), teachers=teachers)
    assert by_kernel.runtime.step is not None
    for _ in range(5):
        assert by_kernel.step() == pytest.approx(by_torch.step(), rel=1e-4)
    torch.testing.assert_close(by_kernel.weights.vector, by_torch.weights.vector, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["adamw", "muon", "by the kernel"])
def test_a_loaded_state_continues_to_the_same_bits(name, request):
    is_native = name == "by the kernel"
    optim = dataclasses.replace(CONFIG.optim, name="adamw" if is_native else name, average_fraction=0.75)
    config = dataclasses.replace(request.getfixturevalue("native") if is_native else CONFIG, optim=optim)
    whole, stopped = make_trainer(config), make_trainer(config)
    for trainer in (whole, stopped):
        for _ in range(7):
            trainer.step()
        trainer.record_evaluation(1.0, temperature=1.3)
        assert f"norm.weight/{TRAINED}" in trainer.state().optimizer
    state, resumed = copy.deepcopy(stopped.state()), make_trainer(config)
    resumed.load(state)
    assert [whole.step() for _ in range(13)] == [resumed.step() for _ in range(13)]
    assert torch.equal(whole.weights.vector, resumed.weights.vector) and whole.progress == resumed.progress


def test_a_state_holds_the_model_with_its_temperature_and_training_does_not_see_it():
    trainer = make_trainer(dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, bias=True)))
    trainer.step()
    before, idx = trainer.weights.vector.clone(), torch.from_numpy(IDS[None, :8].astype(np.int64))
    trainer.record_evaluation(1.0, temperature=1.3)
    expected = trainer.model.eval()(idx) / 1.3
    saved = GPT(trainer.model.config, 7).eval()
    saved.load_state_dict(trainer.state().weights)
    torch.testing.assert_close(saved(idx), expected)
    with pytest.raises(KeyboardInterrupt), trainer.calibrated(1.3) as model:
        assert torch.equal(model(idx), saved(idx))
        raise KeyboardInterrupt
    assert torch.equal(trainer.weights.vector, before)
    trainer.step()  # its temperature is that of other weights
    assert all(torch.equal(trainer.state().weights[name], weights) for name, weights in trainer.model.state_dict().items())


def test_the_temperature_is_the_one_with_the_lowest_loss_and_1_of_a_new_or_changed_model(monkeypatch):
    trainer = make_trainer(dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, bias=True)))
    assert trainer.calibrate(IDS, marks=None, interrupt=Interrupt())[1] == 1  # nothing is learned
    trainer.step()
    for sureness in (0.01, 3.0, 100.0):
        with torch.no_grad():
            trainer.model.norm.weight.fill_(sureness)
        trainer.weights.refresh()
        found = trainer.calibrate(IDS, marks=None, interrupt=Interrupt())
        losses = {}
        for temperature in TEMPERATURES:
            with trainer.calibrated(temperature) as model:
                losses[temperature] = evaluate(model, IDS)
        assert found == pytest.approx((min(losses.values()), min(losses, key=losses.__getitem__)))
    monkeypatch.setattr("chargpt.training.trainer.is_standard", lambda config: False)
    assert trainer.calibrate(IDS, marks=None, interrupt=Interrupt()) == (pytest.approx(losses[1.0]), 1.0)


def test_dropout_is_a_function_of_seed_step_and_micro_batch():
    """With the same weights and the same characters everywhere, the masks differ, and repeat."""

    def losses_at(step: int, seed: int = 1) -> list[float]:
        config = dataclasses.replace(CONFIG, train=dataclasses.replace(CONFIG.train, seed=seed, batch_size=1))
        trainer = make_trainer(dataclasses.replace(config, model=dataclasses.replace(config.model, dropout=0.5)))
        trainer._batches.fetch = lambda step, micro, rows: torch.arange(9)[None] % 7
        losses = []
        trainer.weights.working.register_forward_hook(lambda module, inputs, out: losses.append(out.item()))
        trainer.progress.step = step
        trainer.step()
        return losses

    assert losses_at(3) == losses_at(3)
    assert len({*losses_at(3), *losses_at(4), *losses_at(5), *losses_at(3, seed=2)}) == 8


def test_every_mask_of_dropout_by_the_kernel_is_another_one(native):
    """On a text of one character, where all windows are equal: no two losses are, for no seed, step, process or micro-batch.

    A second row has a mask of its own, too, so two rows have another loss than one.
    """
    losses = []
    for rows, seed, rank in itertools.product((1, 2), (1, 2), (0, 1)):
        train = dataclasses.replace(native.train, seed=seed, batch_size=2 * rows, accumulate=2)
        config = dataclasses.replace(native, train=train, model=dataclasses.replace(native.model, dropout=0.5))
        torch.manual_seed(0)
        group, ids = Processes(rank, 2), np.zeros(500, np.uint8)  # which exchanges nothing here
        trainer = Trainer(GPT(config.model, 7), ids, config, runtime=choose_runtime(config), group=group)
        kernel, whole = trainer.kernel, trainer.kernel.add_gradient
        kernel.add_gradient = lambda *batch, **more: losses.append(whole(*batch, **more)) or losses[-1]
        for step in (0, 1, 2, 3):
            trainer._compute_gradient(step)
    assert len(losses) == len({*losses}) == 2 * 2 * 2 * 4 * 2


def test_what_is_not_finite_is_noticed_and_leaves_the_weights_alone():
    trainer = make_trainer()
    trainer.step()
    trainer.check_weights()
    before = trainer.weights.vector.clone()
    hook = trainer.weights.working.register_forward_hook(lambda module, inputs, out: out * math.nan)
    with pytest.raises(NotFinite, match="step 2: loss nan") as caught:
        trainer.step()
    hook.remove()
    assert caught.value.step == 1 and torch.equal(before, trainer.weights.vector) and trainer.progress.step == 1
    for vector in (trainer.weights.vector, trainer.optimizer.vectors()[-1]):
        trainer.check_weights()
        kept, vector[3] = vector[3].clone(), math.inf
        with pytest.raises(NotFinite, match="step 1"):
            trainer.check_weights()
        vector[3] = kept


def test_a_skipped_step_changes_nothing_and_halves_the_rate_of_all():
    trainer = make_trainer()
    trainer.progress.skipped = [0]
    before = trainer.weights.vector.clone()
    trainer.step()
    assert torch.equal(before, trainer.weights.vector) and trainer.progress.step == 1 and trainer.progress.loss_count == 0
    assert trainer.step().rate == learning_rate(1, CONFIG.optim, length_of(CONFIG.optim, 20)) / 2


@pytest.mark.parametrize(
    ("name", "precision", "fraction", "stop", "skipped", "counted"),
    [
        ("muon", "float32", 0.0, 20, [], 1),
        ("muon", "float32", 0.25, 20, [], 5),
        ("adamw", "bfloat16", 1.0, 20, [], 20),
        ("adamw", "bfloat16", 0.01, 20, [], 1),
        ("muon", "float32", 0.25, 16, [], 1),
        ("adamw", "bfloat16", 0.25, 20, [19], 5),
    ],
)
def test_a_run_ends_with_the_mean_of_its_last_weights(name, precision, fraction, stop, skipped, counted):
    """Also if it is shortened to the steps that it has taken, and if its last batch is skipped."""
    optim = dataclasses.replace(CONFIG.optim, name=name, average_fraction=fraction)
    runtime = dataclasses.replace(CONFIG.runtime, precision=precision)
    averaged = make_trainer(dataclasses.replace(CONFIG, optim=optim, runtime=runtime))
    plain = make_trainer(dataclasses.replace(CONFIG, optim=dataclasses.replace(optim, average_fraction=0.0), runtime=runtime))
    averaged.progress.skipped, plain.progress.skipped, vectors = skipped.copy(), skipped.copy(), []
    for _ in range(stop):
        averaged.step(), plain.step()
        vectors.append(plain.weights.vector.clone())
    if stop < 20:
        assert torch.equal(averaged.weights.vector, vectors[-1])
        averaged.set_length(stop, interval=1)
    mean = torch.stack(vectors[-counted:]).mean(0)
    torch.testing.assert_close(averaged.weights.vector, mean, rtol=1e-5, atol=1e-6)
    weights = averaged.weights
    assert averaged.is_finished and torch.equal(weights.computing, weights.vector.to(weights.precision))


def test_a_run_that_patience_ends_can_end_with_the_mean_of_its_last_weights():
    train = dataclasses.replace(CONFIG.train, patience=1)
    optim = dataclasses.replace(CONFIG.optim, schedule="cosine", warmup_steps=0, average_fraction=0.75)
    trainer, vectors = make_trainer(dataclasses.replace(CONFIG, train=train, optim=optim)), []
    trainer.record_evaluation(1.0)
    for _ in range(1, 13):
        assert not trainer.ends_early_with_mean
        trainer.step()
        vectors.append(trainer.weights.vector.clone())
    before = trainer.progress.copy()
    trainer.record_evaluation(2.0)
    assert trainer.ends_early_with_mean
    last = trainer.take_mean()
    assert torch.equal(last, vectors[-1])
    torch.testing.assert_close(trainer.weights.vector, torch.stack(vectors[5:]).mean(0), rtol=1e-5, atol=1e-6)
    trainer.record_evaluation(0.5)
    assert trainer.is_finished and (trainer.progress.best_step, trainer.progress.best_loss) == (12, 0.5)
    trainer.restore(last, before)
    assert torch.equal(trainer.weights.vector, last) and not trainer.is_finished


def test_the_length_changes_and_no_setting():
    config = dataclasses.replace(CONFIG, optim=dataclasses.replace(CONFIG.optim, warmup_steps=8))
    trainer = make_trainer(config)
    trainer.set_length(10, interval=2)
    assert trainer.length == Length(steps=10, warmup=5, interval=2)
    trainer.progress.step = 5
    trainer.set_length(100, interval=7)
    assert trainer.length == Length(steps=100, warmup=5, interval=7), "a warm-up that is over does not begin again"
    trainer.set_length(200, interval=7, may_rise=True)
    assert trainer.length == Length(steps=200, warmup=8, interval=7) and trainer.config == config


@pytest.mark.parametrize(
    ("optim", "last"),
    [
        ({"schedule": "cosine"}, 10),
        ({"decay_fraction": 1.0}, 10),
        ({"decay_fraction": 0.0}, 10),
        ({"final_fraction": 1.0}, 10),
        ({"decay_fraction": 0.7}, 20),
        ({"decay_fraction": 0.5}, 30),
        ({"decay_fraction": 0.51}, 30),  # the evaluation after 20 steps comes before the first lower rate is used
        ({"decay_fraction": 0.001}, 10),  # less than a step
        ({"schedule": "cosine", "warmup_steps": 20}, 30),
        ({"decay_fraction": 1.0, "warmup_steps": 100}, 30),
    ],
)
def test_patience_counts_evaluations_after_the_rate_begins_to_fall(optim, last):
    """The first one is the best, and two more end the run of 40 steps; where the rate never falls, all count."""
    train = dataclasses.replace(CONFIG.train, patience=2, max_steps=40)
    trainer = make_trainer(dataclasses.replace(CONFIG, train=train, optim=dataclasses.replace(CONFIG.optim, **optim)))
    for step in range(0, last + 1, 5):
        assert not trainer.is_finished
        trainer.progress.step = step
        trainer.record_evaluation(1.0 + step)
    assert trainer.is_finished
