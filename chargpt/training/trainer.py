"""Training itself: a model, its optimizer and its batches, one step at a time. No folder, no clock, no output.

trainer = Trainer(model, ids, config, runtime=runtime)
while not trainer.is_finished:
    step = trainer.step()  # loss, gradient norm, learning rate
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config
from chargpt.runs.saved_state import Progress
from chargpt.training.batches import Batches
from chargpt.training.optimizers import make_optimizer
from chargpt.training.runtime import Runtime
from chargpt.training.schedule import learning_rate
from chargpt.training.weights import FlatWeights
from model import GPT


class NotFinite(Exception):
    """A loss, a gradient or a weight is not a finite number. `step` is the step, counted from 0, whose batch caused it."""

    def __init__(self, what: str, *, step: int) -> None:
        super().__init__(f"step {step + 1:,}: {what}")
        self.step = step


class Step(NamedTuple):
    """What a step reports."""

    loss: float  # mean over the batch, nats per character
    grad_norm: float  # before clipping
    rate: float  # learning rate


class TrainerState(NamedTuple):
    """Everything that the rest of a training depends on, together with its config and its text."""

    weights: Mapping[str, Tensor]  # float32, by parameter name
    optimizer: Mapping[str, Tensor]
    progress: Progress


class Trainer:
    """A model in training on `ids`. `config` is the only copy of the settings; of those, `set_length` changes the length."""

    def __init__(self, model: GPT, ids: np.ndarray, config: Config, *, runtime: Runtime) -> None:
        self.config, self.runtime = config, runtime
        self.progress = Progress()
        self.weights = FlatWeights(model.to(runtime.device), runtime.precision, attention=runtime.attention)
        self.optimizer = make_optimizer(self.weights, config.optim)
        self._batches = Batches(
            ids,
            config.model.block_size,
            batch_size=config.train.batch_size,
            accumulate=config.train.accumulate,
            seed=config.train.seed,
            device=runtime.device,
            resident=runtime.has_memory_for(ids),
        )
        self._loss = runtime.compiled(self.weights.working.train())

    @property
    def model(self) -> GPT:
        """The model in float32, as it is saved; `weights.working` is the one to compute with."""
        return self.weights.model

    @property
    def is_finished(self) -> bool:
        """Whether the run has taken all its steps, or its last `train.patience` evaluations did not improve the loss."""
        progress, train = self.progress, self.config.train
        if progress.step >= train.max_steps:
            return True
        if not train.patience or progress.best_step is None:
            return False
        return progress.evaluated - progress.best_step >= train.patience * self.config.steps_between_evaluations

    def step(self) -> Step:
        """Take one step: the gradient of a batch, clipping, an update.

        Raises NotFinite, with the weights unchanged, when the loss or the gradient is not finite. A step in
        `progress.skipped` changes nothing and is not counted in the losses.
        """
        progress, step = self.progress, self.progress.step
        if step in progress.skipped:
            progress.step += 1
            return Step(0.0, 0.0, self.rate_of(step))
        loss, grad_norm = self._gradient(step)
        limit = self.config.optim.grad_clip or math.inf
        if grad_norm > limit:
            self.weights.gradient *= limit / grad_norm
        rate = self.rate_of(step)
        self.optimizer.step(rate)
        self.weights.refresh()
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        return Step(loss, grad_norm, rate)

    def _gradient(self, step: int) -> tuple[float, float]:
        """Compute the gradient of a step's batch; its loss, and the gradient's norm."""
        chunks = self.config.train.accumulate
        if self.config.model.dropout:
            # Dropout, like the batch, is a function of (seed, step).
            torch.manual_seed((self.config.train.seed * 1_000_003 + step) % 2**63)
        total = torch.zeros((), device=self.runtime.device)
        for chunk in range(chunks):
            part = self._loss(*self._batches.batch(step, chunk)) / chunks
            self.weights.add_gradient(part)
            total += part.detach()
        # With the text on a GPU, this is the only point of a step that waits for it.
        loss, grad_norm = torch.stack((total, self.weights.gradient_norm())).tolist()
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise NotFinite(f"loss {loss}, gradient norm {grad_norm}", step=step)
        return loss, grad_norm

    def rehearse(self) -> None:
        """Compute the gradient of one chunk of the next step and discard it: to measure the time that this takes."""
        self.weights.add_gradient(self._loss(*self._batches.batch(self.progress.step)))
        self.weights.gradient_norm().item()  # waits for the device
        self.weights.refresh()

    def rate_of(self, step: int) -> float:
        """The learning rate of a step: the schedule's, halved for every rollback."""
        rate = learning_rate(step, self.config.optim, max_steps=self.config.train.max_steps)
        return rate * 0.5 ** len(self.progress.skipped)

    def set_length(self, max_steps: int, *, min_evaluations: int) -> None:
        """Make the run `max_steps` long, with at least so many evaluations.

        The warm-up stays as short as it now becomes, even if the run is extended later.
        """
        config = self.config
        self.config = dataclasses.replace(
            config,
            train=dataclasses.replace(config.train, max_steps=max_steps, min_evaluations=min_evaluations),
            optim=dataclasses.replace(config.optim, warmup_steps=min(config.optim.warmup_steps, max_steps // 2)),
        )

    def check_weights(self) -> None:
        """Raise NotFinite if a weight is not finite: such weights must not be saved."""
        if not self.weights.are_finite():
            raise NotFinite("the weights are not finite after it", step=self.progress.step - 1)

    def state(self) -> TrainerState:
        """The state, as views: the next step changes them."""
        return TrainerState(self.model.state_dict(), self.optimizer.tensors(), self.progress.copy())

    def load(self, state: TrainerState) -> None:
        """Continue from `state`, which a trainer of the same model and optimizer gave."""
        self.model.load_state_dict(state.weights)
        self.weights.refresh()
        self.optimizer.load(state.optimizer)
        self.progress = state.progress.copy()
