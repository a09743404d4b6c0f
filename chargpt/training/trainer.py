"""Training itself: a model, its optimizer and its batches, one step at a time. No folder, no clock, no output.

trainer = Trainer(model, ids, config, runtime=runtime)
while not trainer.is_finished:
    step = trainer.step()  # loss, gradient norm, learning rate
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.parallel.group import Group, ranges
from chargpt.runs.checkpoint_schema import Progress
from chargpt.text.items import ItemMarks
from chargpt.training.batches import Batches
from chargpt.training.distillation import DistillationLoss, environment
from chargpt.training.evaluation import evaluate
from chargpt.training.item_batches import ItemBatches
from chargpt.training.learning_rate import is_falling, learning_rate, replanned
from chargpt.training.optimizer_kinds import make_optimizer
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

    `teachers` are the models that `config.train.teachers` names, in the same order.

    The batch is cut into `train.chunks` chunks, and the vector of weights into as many parts. Each process of `group` computes
    the gradients of its own chunks, sums them with those of the others, and updates its own parts. A chunk and a part are
    computed in the same way by any process, and sums are binary trees over the chunks, so any number of processes gives the
    same bits. All processes call the same methods in the same order.
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
        assert len(teachers) == len(config.train.teacher_names), config.train.teachers
        self.config, self.runtime, self.group = config, runtime, group
        self.progress = Progress()
        self.environment = environment(runtime, teachers)
        self.weights = FlatWeights(model.to(runtime.device), runtime.precision, attention=runtime.attention, step=runtime.step)
        self._count = count = config.train.chunks or group.size
        self._own = own = group.own(count)
        self._rows = config.train.batch_size // count
        self.optimizer = make_optimizer(self.weights, config.optim, group=group, parts=count)
        self._parts = [ranges(self.optimizer.regions, part) for part in own]
        self._spans = [slice(cuts[own.start], cuts[own.stop]) for cuts in self.optimizer.regions]
        self._partial = [torch.empty_like(self.weights.vector) for _ in range(len(own).bit_length() - 1)]
        self._batches = _batches(ids, config, runtime=runtime, marks=marks)
        working = self.weights.working.train()
        distillation = DistillationLoss(working, teachers, runtime=runtime, ignores=marks is not None) if teachers else None
        self._loss = runtime.compiled(distillation or working)
        self._expected = distillation and distillation.expected
        self.kernel = self.weights.by_kernel()  # what computes in place of `weights.working`, if there is one

    @property
    def model(self) -> GPT:
        """The model in float32, as it is saved; `weights.working` is the one to compute with.

        With several processes, each has only its own part up to date: see `whole_model`.
        """
        return self.weights.model

    @property
    def is_finished(self) -> bool:
        """Whether no step is left to take."""
        return self.progress.is_finished(self.config.train)

    def evaluate(self, ids: np.ndarray, *, marks: ItemMarks | None, interrupt: Interrupt) -> float | None:
        """The mean loss of the weights as they are over `ids`, which may be items: see `evaluate` of evaluation.py."""
        working = self.weights.working
        return evaluate(working, ids, kernel=self.kernel, marks=marks, interrupt=interrupt, group=self.group)

    def record_evaluation(self, loss: float) -> None:
        """The validation loss of the weights as they are is `loss`."""
        last, config = self.progress.step - 1, self.config
        falling = is_falling(last, config.optim, max_steps=config.train.max_steps)
        self.progress.record_evaluation(loss, is_falling=falling, tolerance=TOLERANCE[config.checkpoint.best])

    def step(self) -> Step:
        """Take one step: the gradient of a batch, clipping, an update.

        Raises NotFinite, with the weights unchanged, when the loss or the gradient is not finite. A step in
        `progress.skipped` changes nothing and is not counted in the losses.
        """
        progress, step = self.progress, self.progress.step
        if step in progress.skipped:
            progress.step += 1
            return Step(0.0, 0.0, self.rate_of(step))
        losses = [self._gradient_of_chunk(step, chunk) for chunk in self._own]
        self.group.reduce(self.weights.gradient, self.optimizer.regions)
        loss, grad_norm = self._loss_and_norm(losses)
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise NotFinite(f"loss {loss}, gradient norm {grad_norm}", step=step)
        limit = self.config.optim.grad_clip or math.inf
        if grad_norm > limit:
            for span in self._spans:
                self.weights.gradient[span] *= limit / grad_norm
        rate = self.rate_of(step)
        self.optimizer.step(rate)
        for span in self._spans:
            self.weights.refresh(span)
        self.group.share(self.weights.computing, self.optimizer.regions)
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        return Step(loss, grad_norm, rate)

    def _gradient_of_chunk(self, step: int, chunk: int) -> Tensor:
        """Add the gradient of a chunk of the batch to those of the chunks before it; the chunk's share of the loss."""
        accumulate, seed = self.config.train.accumulate, self._dropout_seed(step, chunk)
        if self.config.model.dropout:
            torch.manual_seed(seed)
        total = torch.zeros((), device=self.runtime.device)
        self.weights.new_gradient()
        for micro in range(accumulate):
            total += self._add_gradient(step, micro, self._rows_of(chunk), seed=seed * accumulate + micro)
        self._add_to_tree(chunk - self._own.start)
        return total

    def _dropout_seed(self, step: int, chunk: int) -> int:
        """Dropout, like the batch, is a function of (seed, step, chunk)."""
        return ((self.config.train.seed * 1_000_003 + step) * self._count + chunk) % 2**63

    def _add_gradient(self, step: int, micro: int, rows: slice, *, seed: int) -> Tensor | float:
        """Add the gradient of these rows of a micro-batch; their share of the loss."""
        idx, targets = self._batches.batch(step, micro, rows)
        shares = self.config.train.accumulate * self._count
        if self.kernel is not None:
            expected = None if self._expected is None else self._expected(idx, targets)
            begins = self.weights.begins_gradient()
            mean = self.kernel.add_gradient(idx, targets, scale=1 / shares, seed=seed, begins=begins, expected=expected)
            return mean / shares
        loss = self._loss(idx, targets) / shares
        self.weights.add_gradient(loss)
        return loss.detach()

    def _rows_of(self, chunk: int) -> slice:
        return slice(chunk * self._rows, (chunk + 1) * self._rows)

    def _add_to_tree(self, number: int) -> None:
        """Add up the gradients of this process's chunks as a binary tree; the last one leaves the sum in the gradient."""
        level = 0
        while number >> level & 1:
            self.weights.gradient += self._partial[level]
            level += 1
        if level < len(self._partial):
            self._partial[level].copy_(self.weights.gradient)

    def _loss_and_norm(self, losses: list[Tensor]) -> tuple[float, float]:
        """The loss of the batch and the norm of its gradient, from the `losses` of the own chunks and the own parts."""
        norms = [self.weights.gradient_norm(span) for part in self._parts for span in part]
        # With the text on a GPU, this is the only point of a step that waits for it.
        values = iter(torch.stack((*losses, *norms)).tolist())
        mine = [next(values) for _ in losses]
        mine += [math.fsum(next(values) ** 2 for _ in part) for part in self._parts]
        reports, loss = self.group.exchange(mine), 0.0
        for value in (value for report in reports for value in report[: len(losses)]):
            loss += value  # one after the other: the sum() of Python 3.12 rounds differently
        return loss, math.sqrt(math.fsum(square for report in reports for square in report[len(losses) :]))

    def rehearse(self, windows: int = 0) -> None:
        """Compute the gradient of one micro-batch of the next step and discard it: to measure the time that this takes.

        `windows` are those of each chunk that are computed; 0 for all.
        """
        for chunk in self._own:
            first = chunk * self._rows
            rows = slice(first, first + (windows or self._rows))
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
        if not all(finite for (finite,) in self.group.exchange([self.weights.are_finite()])):
            raise NotFinite("the weights are not finite after it", step=self.progress.step - 1)

    def state(self) -> TrainerState:
        """The state, as views: the next step changes them. The optimizer's is on the first process alone."""
        return TrainerState(self.whole_model().state_dict(), self.optimizer.tensors(), self.progress.copy())

    def whole_model(self) -> GPT:
        """`model`, with the parts that other processes have updated."""
        if self.weights.computing is not self.weights.vector:
            self.group.share(self.weights.vector, self.optimizer.regions)
        return self.model

    def load(self, state: TrainerState | None) -> None:
        """Continue from `state`, which a trainer of the same model and optimizer gave: that of the first process."""
        if state is not None:
            self.model.load_state_dict(state.weights)
        self.share_weights()
        self.optimizer.load({} if state is None else state.optimizer)
        progress = self.group.broadcast_text(None if state is None else json.dumps(dataclasses.asdict(state.progress)))
        self.progress = Progress(**json.loads(progress))

    def share_weights(self) -> None:
        """Give every process the weights of the first one."""
        self.group.broadcast(self.weights.vector)
        self.weights.refresh()
        self.optimizer.begin()
