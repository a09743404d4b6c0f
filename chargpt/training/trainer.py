"""Training itself: a model, its optimizer and its batches, one step at a time. No folder, no clock, no output.

trainer = Trainer(model, ids, config, runtime=runtime)
while not trainer.is_finished:
    step = trainer.step()  # loss, gradient norm, learning rate
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chargpt.config import Config
from chargpt.errors import NotFinite
from chargpt.graphs import Graphs
from chargpt.interrupt import Interrupt
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.runs.stage import Length, Progress
from chargpt.standard import is_standard
from chargpt.training.batches import Batches, on_device
from chargpt.training.group import FLAGS, Group
from chargpt.training.learning_rate import change_length, is_falling, learning_rate
from chargpt.training.optimizers import make_optimizer
from chargpt.training.runtime import Runtime
from chargpt.training.weights import FlatWeights

if TYPE_CHECKING:  # of a list of items
    from chargpt.text.item_stream import ItemMarks
    from chargpt.training.item_batches import ItemBatches

# By `checkpoint.best`: a new checkpoint is the best one if its loss is less than this many nats above the lowest loss before.
TOLERANCE = {"lowest": 0.0, "last": 0.1}
LAST_NORM = {"norm.weight", "norm.bias"}  # the parameters by which all logits are multiplied
TRAINED = "trained"  # the quantity of a checkpoint that holds them as they are in training
MOST_UNREAD = 1024  # steps on a GPU after which their numbers are read in any case


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
    length: Length


class Trainer:
    """A model in training on `ids` with the settings `config`, which stay; `set_length` changes its length.

    With `marks`, the ids are those of a list of items. It learns from the predictions of `teachers`, too, if there are any.
    Each process of `group` computes its rows of a batch, and makes the same update from the sum of all gradients. All processes
    call the same methods in the same order.

    A CPU and a GPU differ in two places, `_update` and `report`: a CPU reads the loss and the norm of a step before it updates,
    while a GPU does not wait for the host. There, a step that is not finite changes nothing, and `report` reads the numbers of
    all steps since it was called; `evaluate`, `state` and `check_weights` call it.
    """

    def __init__(
        self,
        model: GPT,
        ids: np.ndarray,
        config: Config,
        *,
        runtime: Runtime,
        marks: "ItemMarks | None" = None,
        group: Group = Group(),
        teachers: Sequence[GPT] = (),
        length: Length | None = None,
    ) -> None:
        """`length` is that of the settings if it is None."""
        self.config, self.runtime, self.group = config, runtime, group
        self.progress, self.length = Progress(), length or Length.of(config)
        # What must be equal for a resumed run, or for another process of it, to be equal to the bit.
        self.environment = runtime.environment()
        self.weights = FlatWeights(model.to(runtime.device), runtime.precision, quicken=runtime.quicken, step=runtime.step)
        self.rows = group.rows(config.train.batch_size)  # of a batch, those that are computed here
        self.optimizer = make_optimizer(self.weights, config.optim)
        train, T = config.train, config.model.block_size
        self._batches: Batches | ItemBatches
        if marks is None:
            resident = on_device(ids, runtime.device) if runtime.has_memory_for(ids) else None
            self._batches = Batches(ids, T, train=train, resident=resident)
        else:
            from chargpt.training import item_batches

            self._batches = item_batches.ItemBatches(ids, T, train=train, marks=marks)
        working = self.weights.working.train()
        self._expected: Callable[[Tensor, Tensor], Tensor] | None = None  # what the teachers predict
        if teachers:
            from chargpt.training.distillation import DistillationLoss

            distillation = DistillationLoss(working, teachers, runtime=runtime, ignores=marks is not None)
            self._expected, self.environment["teachers"] = distillation.expected, distillation.digest
        self._loss = runtime.compiled(distillation if teachers else working)
        self.kernel = self.weights.by_kernel()  # what computes in place of `weights.working`, if there is one
        self.notices: list[Notice] = []  # for the user; whoever shows them clears the list
        self._graphs, self._parts = Graphs(runtime.device), 1  # in which the rows of a micro-batch are computed
        self._last = Step(0.0, 0.0, 0.0)
        self._unread: list[tuple[int, float]] = []  # the number and the rate of each step whose numbers are on the GPU
        if runtime.runs_ahead:
            self._numbers = torch.zeros(MOST_UNREAD, FLAGS + 3, device=runtime.device)  # of each: loss, flags, norm, loss scale
            self._rate = torch.zeros((), device=runtime.device)
            update = Trainer._update_on_device
            self._run_update = torch.compile(update, dynamic=False) if runtime.compile else update

    @property
    def model(self) -> GPT:
        """The model in float32, as it is saved; `weights.working` is the one to compute with."""
        return self.weights.model

    @property
    def is_finished(self) -> bool:
        """Whether no step is left to take."""
        return self.progress.is_finished(self.length, patience=self.config.train.patience)

    def evaluate(
        self, ids: np.ndarray, *, marks: "ItemMarks | None", interrupt: Interrupt, temperatures: Sequence[float] = (1.0,)
    ) -> list[float] | None:
        """The mean losses of the weights as they are: see `evaluate_at` of evaluation.py. Raises NotFinite, as `report`."""
        from chargpt.training.evaluation import evaluate_at  # not every training has a validation split

        self.report()
        working = self.weights.working
        return evaluate_at(temperatures, working, ids, kernel=self.kernel, marks=marks, interrupt=interrupt, group=self.group)

    def calibrate(self, ids: np.ndarray, *, marks: "ItemMarks | None", interrupt: Interrupt) -> tuple[float, float] | None:
        """The lowest mean loss of the weights as they are, and the temperature that gives it: one of TEMPERATURES, or 1 before
        the first step, and if model.py is changed. None if a signal came; raises NotFinite, as `report`."""
        from chargpt.training.evaluation import TEMPERATURES

        tried = TEMPERATURES if self.progress.step > 0 and is_standard(self.config.model) else TEMPERATURES[:1]
        losses = self.evaluate(ids, marks=marks, interrupt=interrupt, temperatures=tried)
        return None if losses is None else min(zip(losses, tried))

    @property
    def temperature(self) -> float:
        """By which the weights as they are divide the logits in a checkpoint: 1 unless the last evaluation was theirs."""
        return self.progress.temperature if self.progress.evaluated == self.progress.step else 1.0

    @contextlib.contextmanager
    def calibrated(self, temperature: float) -> Iterator[GPT]:
        """The model with its logits divided by `temperature`, in this block: its last norm is. What computes steps stays."""
        parts = [part for name, part in self.model.named_parameters() if name in LAST_NORM]
        trained = [part.detach().clone() for part in parts]
        with torch.no_grad():
            try:
                for part in parts:
                    part.div_(temperature)
                yield self.model
            finally:
                for part, before in zip(parts, trained):
                    part.copy_(before)

    def record_evaluation(self, loss: float | None, *, temperature: float = 1.0, sample: str = "") -> None:
        """The validation loss of the weights as they are is `loss` at this `temperature`, None without a validation split; they
        wrote `sample`."""
        falling = is_falling(self.progress.step - 1, self.config.optim, self.length)
        tolerance, counted = TOLERANCE[self.config.checkpoint.best], self.progress.without_gain
        has_ended = self.progress.evaluated == self.progress.step and self.is_finished  # this evaluation is that of the mean
        self.progress.record_evaluation(loss, temperature=temperature, sample=sample, is_falling=falling, tolerance=tolerance)
        if has_ended:
            self.progress.without_gain = counted

    def step(self) -> Step:
        """`advance`, and its `report`."""
        self.advance()
        return self.report()

    def advance(self) -> None:
        """Take one step: the gradient of a batch, clipping, an update. On a GPU, do not wait for it. On a CPU, raises
        NotFinite, with the weights unchanged. A step in `progress.skipped` changes and counts nothing."""
        progress, step = self.progress, self.progress.step
        rate = self.rate_of(step)
        if step in progress.skipped:
            progress.step, self._last = step + 1, Step(0.0, 0.0, rate)
            self._average()
            return
        with self.group.summing(self.weights.summed):
            self._compute_gradient(step)
        self._update(step, rate)
        progress.step += 1
        progress.loss_count += 1
        self._average()

    def _average(self) -> None:
        """Count the weights of now in the mean of the last part of the run, which replaces them at its end."""
        if self.optimizer.mean is not None:
            self.optimizer.mean.lerp_(self.weights.vector, 1 / max(1.0, self._counted))
            self._end()

    @property
    def _counted(self) -> float:
        """The steps whose weights are in the mean; less than 1 before the last part of the run."""
        return self.progress.step - (1 - self.config.optim.average_fraction) * self.length.steps

    def _end(self) -> None:
        """If no step is left, replace the weights by their mean."""
        if self.progress.step >= self.length.steps:
            self.take_mean()

    @property
    def ends_early_with_mean(self) -> bool:
        """Whether patience has ended the run, and the weights have a mean that is to replace them."""
        return self.progress.step < self.length.steps and self.is_finished and self._counted > 1

    def take_mean(self) -> Tensor:
        """Replace the weights by their mean, if there is one. Returns those of the last step, to `restore` them."""
        last = self.weights.vector.clone()
        if self.optimizer.mean is not None:
            self.weights.vector.copy_(self.optimizer.mean)
            self.weights.refresh()
        return last

    def restore(self, last: Tensor, progress: Progress) -> None:
        """Go back to the weights and the progress of before `take_mean`."""
        self.weights.vector.copy_(last)
        self.weights.refresh()
        self.progress = progress

    def report(self) -> Step:
        """What the last step reports. Raises NotFinite for the first step since the last call that was not finite."""
        unread, self._unread = self._unread, []
        if unread:  # the only point at which the host waits for a GPU
            for (step, rate), numbers in zip(unread, self._numbers[: len(unread)].tolist()):
                self._count(step, rate, *numbers)
        if self._graphs.trouble:
            what = f"this GPU refuses CUDA graphs, which save time, so each step takes longer ({self._graphs.trouble})"
            self.notices, self._graphs.trouble = [*self.notices, Notice(Kind.SLOWER, what)], ""
        return self._last

    def _update(self, step: int, rate: float) -> None:
        """Clip the gradient, and update the weights, unless the loss or the gradient of `step` is not finite."""
        if not self.runtime.runs_ahead:
            norms = torch.linalg.vector_norm(self.weights.gradient).view(1)
            loss, *flags, norm = torch.cat((self.weights.tail, norms)).tolist()
            self._count(step, rate, loss, *flags, norm)
            limit = self.config.optim.grad_clip or math.inf
            if norm > limit:
                self.weights.gradient *= limit / norm
            self.optimizer.step(rate)
            self.weights.refresh()
            return
        self._rate.fill_(rate)
        self._graphs.run("update", functools.partial(self._run_update, self))
        self._numbers[len(self._unread)].copy_(self._row)
        self._unread.append((step, rate))
        if len(self._unread) == MOST_UNREAD:
            self.report()

    @torch.no_grad()
    def _update_on_device(self) -> None:
        """`_update` for a GPU, which decides nothing by the numbers."""
        weights, scaling = self.weights, self.optimizer.scaling
        scale = weights.tail.new_ones(1) if scaling is None else scaling[:1]
        norm = torch.linalg.vector_norm(weights.gradient) / scale
        self._row = torch.cat((weights.tail, norm, scale))
        total = weights.tail[0] + norm[0]
        skips = (total - total != 0).float()  # 1 where it is not finite, in fewer kernels than by isfinite
        limit = self.config.optim.grad_clip or math.inf
        weights.gradient *= (limit / norm).clamp(max=1) / scale
        self.optimizer.step(self._rate, skips)
        if scaling is not None:
            self.optimizer.rescale(norm[0].isfinite().logical_not().float())
        weights.refresh()

    def _count(self, step: int, rate: float, loss: float, *numbers: float) -> None:
        """Add the numbers of a step to the progress: flags of the group, the norm, and in float16 the scale of the loss."""
        *flags, norm, scale = (*numbers, 1.0)[: FLAGS + 2]
        self.group.read(flags)
        if not (math.isfinite(loss) and (math.isfinite(norm) or scale > 1)):
            raise NotFinite(f"step {step + 1:,}: loss {loss}, gradient norm {norm}", step=step)
        self.progress.loss_sum += loss
        self._last = Step(loss, norm if math.isfinite(norm) else self._last.grad_norm, rate)

    def _compute_gradient(self, step: int) -> None:
        """Compute gradient and loss of the own rows of the batch; where memory is too small, of fewer rows at once."""
        train, rows = self.config.train, self.rows
        seed = ((train.seed * 1_000_003 + step) * self.group.size + self.group.rank) % 2**63  # of dropout
        while True:
            if self.config.model.dropout:
                torch.manual_seed(seed)
            size = (rows.stop - rows.start) // self._parts
            try:
                for micro, start in itertools.product(range(train.accumulate), range(rows.start, rows.stop, size)):
                    begins = micro == 0 and start == rows.start
                    fetched = self._graphs.place(self._batches.fetch(step, micro, slice(start, start + size)))
                    add = functools.partial(self._add_gradient_of, fetched, seed=seed * train.accumulate + micro, begins=begins)
                    self._graphs.run(f"gradient {begins}", add)
                return
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
            self._halve_rows()  # after the block, whose error holds the tensors

    def _add_gradient_of(self, fetched: Tensor, *, seed: int, begins: bool) -> None:
        """Add the gradient of these rows of a micro-batch, and their share of the loss; the first one begins a new sum."""
        weights, shares = self.weights, self.config.train.accumulate * self.group.size * self._parts
        idx, targets = self._batches.windows(fetched)
        share: Tensor | float
        if self.kernel is not None:
            expected = None if self._expected is None else self._expected(idx, targets)
            mean = self.kernel.add_gradient(idx, targets, scale=1 / shares, seed=seed, begins=begins, expected=expected)
            share = mean / shares
        else:
            loss = self._loss(idx, targets) / shares
            scale = None if self.optimizer.scaling is None else self.optimizer.scaling[0]
            weights.add_gradient(loss, begins=begins, scale=scale)
            share = loss.detach()
        if begins:
            weights.tail[0] = share
        else:
            weights.tail[0] += share

    def _halve_rows(self) -> None:
        """From now on, compute half of the rows at once, or fewer if their number is odd."""
        count, before = self.rows.stop - self.rows.start, self._parts
        self._parts = next(parts for parts in range(2 * before, count + 1) if count % parts == 0)
        self.release()
        what = f"too little for {count // before:,} sequences at once, so steps now compute {count // self._parts:,} at a time"
        self.notices.append(Notice(Kind.MEMORY, what))

    def release(self) -> None:
        """Free the memory that only steps need; a further step takes it again."""
        self._graphs = Graphs(self.runtime.device)
        if self.runtime.device.type == "cuda":
            torch.cuda.empty_cache()

    def rate_of(self, step: int) -> float:
        """The learning rate of a step: the schedule's, halved for every rollback."""
        return learning_rate(step, self.config.optim, self.length) * 0.5 ** len(self.progress.skipped)

    def set_length(self, steps: int, *, interval: int, may_rise: bool = False) -> None:
        """Make the run `steps` long, with evaluations at this `interval`.

        After its peak, the rate does not rise, unless it `may_rise`: then it follows the new length as if the run had had it
        from its beginning. This may shorten the warm-up; a later extension of the run does not lengthen it again.
        """
        step, before = self.progress.step, self.length
        if may_rise:
            step, before = 0, Length.of(self.config, steps=steps)
        self.length = change_length(before, self.config.optim, step=step, steps=steps, interval=interval)
        self._end()

    def check_weights(self) -> None:
        """Raise NotFinite if a step, a weight or the optimizer's state is not finite: such a checkpoint must not be saved."""
        self.report()
        if not all(vector.isfinite().all() for vector in (self.weights.vector, *self.optimizer.vectors())):
            step = self.progress.step
            raise NotFinite(f"step {step:,}: the weights are not finite after this step", step=step - 1)

    def state(self) -> TrainerState:
        """The state, as views: the next step changes them. Raises NotFinite, as `report`. Weights that were evaluated have
        their temperature in their last norm; what training goes on with is beside them."""
        self.report()
        weights, optimizer, temperature = self.model.state_dict(), self.optimizer.tensors(), self.temperature
        for name in LAST_NORM & weights.keys() if temperature != 1 else ():
            optimizer[f"{name}/{TRAINED}"], weights[name] = weights[name], weights[name] / temperature
        return TrainerState(weights, optimizer, self.progress.copy(), self.length)

    def load(self, state: TrainerState) -> None:
        """Continue from `state`, which a trainer of the same model and optimizer gave."""
        self._unread = []
        trained = {name: state.optimizer.get(f"{name}/{TRAINED}", weights) for name, weights in state.weights.items()}
        self.model.load_state_dict(trained)
        self.optimizer.load(state.optimizer)
        self.progress, self.length = state.progress.copy(), state.length
        self.weights.refresh()

    def share(self) -> None:
        """Give every process the state of the first one."""
        state = (self.progress, self.length)
        self.progress, self.length = self.group.share(state, self.weights.vector, *self.optimizer.vectors())
        self.weights.refresh()
