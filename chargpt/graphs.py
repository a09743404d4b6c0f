"""Functions that are recorded as CUDA graphs: the host starts all of their kernels by one call.

A step of a small model is some 300 kernels. A GPU computes them faster than the host can launch them one by one.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chargpt.device import send
from chargpt.formatting import one_line

# Calls before a function is recorded: in them, libraries allocate what they keep, and torch compiles what is to be compiled.
WARM_UP = 2


class Graphs:
    """The graphs of one training, which share their memory. On any device but a CUDA GPU, functions are called as they are.
    They have no arguments and no results, read and write tensors that stay where they are, and decide nothing by their
    numbers."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.trouble = device, ""
        self._records = device.type == "cuda"
        self._calls: Counter[str] = Counter()
        self._graphs: dict[str, Callable[[], object]] = {}
        self._pool: Any = None  # of the memory
        self._given: Tensor | None = None

    def run(self, name: str, function: Callable[[], object]) -> None:
        """What `function` does: the graph of this `name` runs in its place, if it has been recorded."""
        self._calls[name] += 1
        if self._records and self._calls[name] > WARM_UP and name not in self._graphs:
            try:
                self._graphs[name] = self.record(function)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as problem:  # what this GPU cannot record is launched kernel by kernel
                self._records, self.trouble = False, one_line(str(problem))[:200]
        self._graphs.get(name, function)()

    def record(self, function: Callable[[], object]) -> Callable[[], object]:
        """What repeats the kernels of `function`, which does not run now."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        self._pool = graph.pool()
        return graph.replay

    def place(self, values: Tensor) -> Tensor:
        """`values` of the host on the device, for a shape always at the same place; copied by `send`."""
        if self.device.type == "cpu" and not self._records:
            return values
        if self._given is None or self._given.shape != values.shape:
            self._given = torch.empty_like(values, device=self.device)
        return send(values, self.device, place=self._given)
