"""Training itself: a model, its optimizer and its batches, one step at a time. No folder, no clock, no output.

trainer = Trainer(model, ids, config, runtime=runtime)
while not trainer.is_finished:
    step = trainer.step()  # loss, gradient norm, learning rate
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.runs.checkpoint_schema import Progress
from chargpt.text.items import ItemMarks
from chargpt.training.batches import Batches
from chargpt.training.distillation import DistillationLoss, environment
from chargpt.training.evaluation import evaluate
from chargpt.training.item_batches import ItemBatches
from chargpt.training.learning_rate import is_falling, learning_rate, replanned
from chargpt.training.optimizer_kinds import make_optimizer
from chargpt.training.parallel import Group
from chargpt.training.runtime import Runtime
from chargpt.training.weights import FlatWeights

# By `checkpoint.best`: a new checkpoint is the best one if its loss is less than this many nats above the lowest loss before.
TOLERANCE = {"lowest": 0.0, "last": 0.1}


class NotFinite(Exception):
    """A loss, a gradient or a weight is not a finite number. `step` is the step, counted from 0, whose batch caused it."""

    def __init__(self, what: str, *, step: int) -> None:
        super().__init__(f"step {step + 1:,}: {what}")
        self.step = step


class Step(NamedTuple):
    """What a step reports."""

    loss: float  # mean over the batch, nats per character; with teachers, that of DistillationLoss
    grad_norm: float  # before clipping
    rate: float  # learning rate


class TrainerState(NamedTuple):
    """Everything that the rest of a training depends on, together with its config and its text."""

    weights: Mapping[str, Tensor]  # float32, by parameter name
    optimizer: Mapping[str, Tensor]
    progress: Progress


def _batches(ids: np.ndarray, config: Config, *, runtime: Runtime, marks: ItemMarks | None) -> Batches | ItemBatches:
    train, T = config.train, config.model.block_size
    size, accumulate, seed, device = train.batch_size, train.accumulate, train.seed, runtime.device
    if marks is None:
        resident = runtime.has_memory_for(ids)
        return Batches(ids, T, batch_size=size, accumulate=accumulate, seed=seed, device=device, resident=resident)
    labels = train.label_loss
    return ItemBatches(
        ids, T, marks=marks, counts_labels=labels, batch_size=size, accumulate=accumulate, seed=seed, device=device
    )


class Trainer:
    """A model in training on `ids`. `config` is the only copy of the settings; of those, `set_length` changes the length.

    With `marks`, the ids are those of a list of items.

    It learns from the predictions of `teachers` as well as from the text, if there are any.

    Each process of `group` computes its rows of a batch, and makes the same update from the sum of all gradients. All processes
    call the same methods in the same order.
    """

    def __init__(
        self,
        model: GPT,
        ids: np.ndarray,
        config: Config,
        *,
        runtime: Runtime,
        marks: ItemMarks | None = None,
        group: Group = Group(),
        teachers: Sequence[GPT] = (),
    ) -> None:
        self.config, self.runtime, self.group = config, runtime, group
        self.progress = Progress()
        self.environment = environment(runtime, teachers)
        self.weights = FlatWeights(model.to(runtime.device), runtime.precision, attention=runtime.attention, step=runtime.step)
        self.rows = group.rows(config.train.batch_size)  # of a batch, those that are computed here
        self.optimizer = make_optimizer(self.weights, config.optim)
        self._batches = _batches(ids, config, runtime=runtime, marks=marks)
        working = self.weights.working.train()
        distillation = DistillationLoss(working, teachers, runtime=runtime, ignores=marks is not None) if teachers else None
        self._loss = runtime.compiled(distillation or working)
        self._expected = distillation and distillation.expected
        self.kernel = self.weights.by_kernel()  # what computes in place of `weights.working`, if there is one

    @property
    def model(self) -> GPT:
        """The model in float32, as it is saved; `weights.working` is the one to compute with."""
        return self.weights.model

    @property
    def is_finished(self) -> bool:
        """Whether no step is left to take."""
        return self.progress.is_finished(self.config.train)

    def evaluate(self, ids: np.ndarray, *, marks: ItemMarks | None, interrupt: Interrupt) -> float | None:
        """The mean loss of the weights as they are over `ids`, which may be items: see `evaluate` of evaluation.py."""
        working = self.weights.working
        return evaluate(working, ids, kernel=self.kernel, marks=marks, interrupt=interrupt, group=self.group)

    def record_evaluation(self, loss: float | None, *, sample: str = "") -> None:
        """The validation loss of the weights as they are is `loss`, None without a validation split; they wrote `sample`."""
        last, config = self.progress.step - 1, self.config
        falling = is_falling(last, config.optim, max_steps=config.train.max_steps)
        tolerance = TOLERANCE[config.checkpoint.best]
        self.progress.record_evaluation(loss, sample=sample, is_falling=falling, tolerance=tolerance)

    def step(self) -> Step:
        """Take one step: the gradient of a batch, clipping, an update.

        Raises NotFinite, with the weights unchanged, when the loss or the gradient is not finite. A step in
        `progress.skipped` changes nothing and is not counted in the losses.
        """
        progress, step = self.progress, self.progress.step
        if step in progress.skipped:
            progress.step += 1
            return Step(0.0, 0.0, self.rate_of(step))
        with self.group.summing(self.weights.summed):
            self.weights.tail[0] = self._compute_gradient(step)
        # With the text on a GPU, this is the only point of a step that waits for it.
        loss, *flags, grad_norm = torch.cat((self.weights.tail, self.weights.gradient_norm().view(1))).tolist()
        self.group.read(flags)
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise NotFinite(f"loss {loss}, gradient norm {grad_norm}", step=step)
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

    def _compute_gradient(self, step: int) -> Tensor:
        """Compute the gradient of the own rows of the batch; their share of the loss."""
        train = self.config.train
        seed = ((train.seed * 1_000_003 + step) * self.group.size + self.group.rank) % 2**63  # of dropout
        if self.config.model.dropout:
            torch.manual_seed(seed)
        total = torch.zeros((), device=self.runtime.device)
        for micro in range(train.accumulate):
            total += self._add_gradient(step, micro, self.rows, seed=seed * train.accumulate + micro)
        return total

    def _add_gradient(self, step: int, micro: int, rows: slice, *, seed: int) -> Tensor | float:
        """Add the gradient of these rows of a micro-batch; their share of the loss."""
        idx, targets = self._batches.batch(step, micro, rows)
        shares = self.config.train.accumulate * self.group.size
        if self.kernel is not None:
            expected = None if self._expected is None else self._expected(idx, targets)
            begins = self.weights.begins_gradient()
            mean = self.kernel.add_gradient(idx, targets, scale=1 / shares, seed=seed, begins=begins, expected=expected)
            return mean / shares
        loss = self._loss(idx, targets) / shares
        self.weights.add_gradient(loss)
        return loss.detach()

    def rehearse(self, windows: int = 0) -> None:
        """Compute the gradient of one micro-batch of the next step and discard it: to measure the time that this takes.

        `windows` are those that are computed; 0 for all of this process.
        """
        rows = slice(self.rows.start, self.rows.start + windows) if windows else self.rows
        self._add_gradient(self.progress.step, 0, rows, seed=0)
        self._wait_for_device()
        self.weights.refresh()

    def rehearse_update(self) -> None:
        """Compute the products of an update and discard them: to measure the time that they take."""
        self.optimizer.rehearse()
        self._wait_for_device()

    def _wait_for_device(self) -> None:
        self.weights.gradient_norm().item()

    def rate_of(self, step: int) -> float:
        """The learning rate of a step: the schedule's, halved for every rollback."""
        rate = learning_rate(step, self.config.optim, max_steps=self.config.train.max_steps)
        return rate * 0.5 ** len(self.progress.skipped)

    def set_length(self, max_steps: int, *, min_evaluations: int, may_rise: bool = False) -> None:
        """Make the run `max_steps` long, with at least this many evaluations.

        After its peak, the rate does not rise, unless it `may_rise`: then it follows the new length as if the run had had it
        from its beginning. This may shorten the warm-up; a later extension of the run does not lengthen it again.
        """
        config = self.config
        step, before = (0, max_steps) if may_rise else (self.progress.step, config.train.max_steps)
        self.config = dataclasses.replace(
            config,
            train=dataclasses.replace(config.train, max_steps=max_steps, min_evaluations=min_evaluations),
            optim=replanned(config.optim, step=step, before=before, after=max_steps),
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
        self.optimizer.load(state.optimizer)
        self.progress = state.progress.copy()
        self.weights.refresh()

    def share(self) -> None:
        """Give every process the state of the first one."""
        self.progress = self.group.share(self.progress, self.weights.vector, *self.optimizer.vectors())
        self.weights.refresh()
