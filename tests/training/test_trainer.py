"""Training without a folder or a clock: what a step does, what decides it, and what a state brings back."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from chargpt.config import Config, OptimConfig, RuntimeConfig, TrainConfig
from chargpt.training.runtime import choose_runtime
from chargpt.training.schedule import learning_rate
from chargpt.training.trainer import NotFinite, Trainer
from model import GPT, GPTConfig

CONFIG = Config(
    model=GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.1),
    train=TrainConfig(max_steps=20, batch_size=4, accumulate=2),
    optim=OptimConfig(learning_rate=1e-2, warmup_steps=2),
    runtime=RuntimeConfig(device="cpu", precision="float32", threads=1),
)
IDS = np.random.default_rng(0).integers(0, 7, 500).astype(np.uint8)


def make_trainer(config: Config = CONFIG) -> Trainer:
    torch.manual_seed(0)
    return Trainer(GPT(config.model, 7), IDS, config, runtime=choose_runtime(config))


def test_a_training_needs_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer, losses = make_trainer(), []
    while not trainer.is_finished:
        losses.append(trainer.step().loss)
    assert len(losses) == 20 and np.mean(losses[-5:]) < np.mean(losses[:5])
    assert list(tmp_path.iterdir()) == []


def test_a_step_reports_its_loss_its_gradient_and_the_rate_of_the_schedule():
    trainer = make_trainer()
    for step in range(5):
        loss, grad_norm, rate = trainer.step()
        assert rate == learning_rate(step, CONFIG.optim, max_steps=20)
        assert 0 < loss < 5 and grad_norm > 0
    assert trainer.progress.step == trainer.progress.loss_count == 5


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_loaded_state_continues_to_the_same_bits(name):
    config = dataclasses.replace(CONFIG, optim=dataclasses.replace(CONFIG.optim, name=name))
    whole, stopped = make_trainer(config), make_trainer(config)
    for _ in range(7):
        whole.step(), stopped.step()
    state, resumed = copy.deepcopy(stopped.state()), make_trainer(config)
    resumed.load(state)
    assert [whole.step() for _ in range(5)] == [resumed.step() for _ in range(5)]
    assert torch.equal(whole.weights.vector, resumed.weights.vector) and whole.progress == resumed.progress


def test_dropout_is_a_function_of_seed_and_step():
    """The same weights and the same batch, at two steps and with two seeds: the masks differ, and repeat."""

    def loss_at(step: int, seed: int = 1) -> float:
        config = dataclasses.replace(CONFIG, train=dataclasses.replace(CONFIG.train, seed=seed, batch_size=1, accumulate=1))
        trainer = make_trainer(dataclasses.replace(config, model=dataclasses.replace(config.model, dropout=0.5)))
        trainer._batches.batch = lambda step, micro, rows: (torch.arange(8)[None] % 7, torch.arange(1, 9)[None] % 7)
        trainer.progress.step = step
        return trainer.step().loss

    assert loss_at(3) == loss_at(3)
    assert len({loss_at(3), loss_at(4), loss_at(5), loss_at(3, seed=2)}) == 4


def test_a_loss_that_is_not_finite_leaves_the_weights_alone():
    trainer = make_trainer()
    trainer.step()
    before = trainer.weights.vector.clone()
    trainer.weights.working.register_forward_hook(lambda module, inputs, out: out * math.nan)
    with pytest.raises(NotFinite, match="step 2: loss nan") as caught:
        trainer.step()
    assert caught.value.step == 1 and torch.equal(before, trainer.weights.vector) and trainer.progress.step == 1


def test_weights_that_are_not_finite_are_noticed():
    trainer = make_trainer()
    trainer.step()
    trainer.check_weights()
    trainer.weights.vector[3] = math.inf
    with pytest.raises(NotFinite, match="step 1"):
        trainer.check_weights()


def test_a_skipped_step_changes_nothing_and_halves_the_rate_of_all():
    trainer = make_trainer()
    trainer.progress.skipped = [0]
    before = trainer.weights.vector.clone()
    trainer.step()
    assert torch.equal(before, trainer.weights.vector) and trainer.progress.step == 1 and trainer.progress.loss_count == 0
    assert trainer.step().rate == learning_rate(1, CONFIG.optim, max_steps=20) / 2


def test_the_length_is_the_only_setting_that_changes():
    trainer = make_trainer(dataclasses.replace(CONFIG, optim=dataclasses.replace(CONFIG.optim, warmup_steps=8)))
    trainer.set_length(10, min_evaluations=5)
    assert trainer.config.train.max_steps == 10 and trainer.config.optim.warmup_steps == 5
    assert trainer.config.steps_between_evaluations == trainer.config.steps_between_checkpoints == 2
    trainer.set_length(100, min_evaluations=0)
    assert trainer.config.optim.warmup_steps == 5  # a warm-up that is over does not begin again
    assert trainer.config.steps_between_evaluations == CONFIG.train.eval_interval
    assert trainer.config.steps_between_checkpoints == CONFIG.checkpoint.interval
    parts = {name: getattr(CONFIG, name) for name in ("train", "optim", "checkpoint")}
    assert dataclasses.replace(trainer.config, **parts) == CONFIG


def test_a_run_ends_at_its_length_or_without_patience():
    trainer = make_trainer(dataclasses.replace(CONFIG, train=dataclasses.replace(CONFIG.train, patience=2, eval_interval=5)))
    progress = trainer.progress
    for step, loss in ((0, 1.0), (5, 2.0)):
        progress.step = step
        progress.record_evaluation(loss)
        assert not trainer.is_finished
    progress.step = 10
    progress.record_evaluation(3.0)
    assert trainer.is_finished


def test_several_chunks_are_one_large_batch():
    model = dataclasses.replace(CONFIG.model, dropout=0.0)
    vectors = []
    for batch_size, accumulate in ((8, 1), (2, 4)):
        train = dataclasses.replace(CONFIG.train, batch_size=batch_size, accumulate=accumulate)
        trainer = make_trainer(dataclasses.replace(CONFIG, model=model, train=train))
        trainer.step()
        vectors.append(trainer.weights.gradient.clone())
    torch.testing.assert_close(*vectors)


def test_a_rehearsal_changes_nothing():
    rehearsed, other = make_trainer(), make_trainer()
    for _ in range(3):
        rehearsed.rehearse()
        assert rehearsed.step() == other.step()
    assert torch.equal(rehearsed.weights.vector, other.weights.vector) and rehearsed.progress == other.progress
