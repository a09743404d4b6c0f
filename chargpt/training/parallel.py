"""Several processes that train one run, by torch.distributed as torchrun starts it.

Each computes its rows of a batch; one all_reduce sums the gradients, the losses and two flags; then all make the same update.
The first one alone reads options, decides, prints and writes. If one is lost, torchrun and torch's own timeouts end the others.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

from chargpt.errors import UserError
from chargpt.formatting import one_line
from chargpt.interrupt import SAVING, Interrupt
from chargpt.program import problem_of
from chargpt.screen import log
from chargpt.training.group import FLAGS, Group, T

PATIENCE = 5.0  # seconds of waiting for other processes, before a line says so
SAVED = "chargpt/saved"  # in the store of the launcher, which stays when it starts the processes again


class PeerFailed(Exception):
    """Another process has failed, and reports it; with a message, it is lost."""


class SharedInterrupt(Interrupt):
    """An Interrupt on which all processes act in the same step: after they have read that a signal came to one of them. It
    stays active: as soon as one process has ended, torchrun sends SIGTERM to the others, which may be telling the result."""

    is_read = False

    def __exit__(self, *error: object) -> None:
        """The process ends now."""

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal or signal.SIGTERM) if self.is_read else 0


class Processes(Group):
    """The processes that torchrun has started, `rank` being this one. Every method raises PeerFailed if another one is lost."""

    def __init__(self, rank: int, size: int, *, local_rank: int = 0, local_size: int = 1, restarts: int = 0) -> None:
        self.rank, self.size, self.local_rank, self.local_size, self.restarts = rank, size, local_rank, local_size, restarts
        self.is_first = rank == 0
        self.interrupt: SharedInterrupt = SharedInterrupt(notice="")
        self.timeout: timedelta | None = None  # of every exchange; None: torch's own
        self._has_decided = False

    def __enter__(self) -> "Processes":
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # torch waits where Python notices no signal
        what = f"waiting for {self.size - 1} more of WORLD_SIZE={self.size} processes; to train with one, unset WORLD_SIZE"
        waiting = threading.Timer(PATIENCE, log, [what])
        waiting.daemon = True
        waiting.start()
        try:
            self._store, _, _ = next(dist.rendezvous("env://"))
            self.restarted_after_save = self._store.check([SAVED])  # asked by all before one can set it
            store = dist.PrefixStore(f"chargpt/{self.restarts}", self._store)
            # By its own choice, torch takes NCCL alone where there is a GPU, and that cannot exchange tensors of processors.
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=self.timeout)
        except (RuntimeError, ValueError) as error:
            what = f"process {self.rank} (the first is 0): cannot reach the others ({_first_line(error)})"
            variables = "environment variables MASTER_ADDR and MASTER_PORT to the address and port of process 0"
            raise UserError(f"{what}; in every process, set the {variables}") from None
        finally:
            waiting.cancel()
        if self.is_first:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        else:
            sys.stdout = open(os.devnull, "w")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt)
        problem = None if error is None else problem_of(error)
        message = None if problem is None else str(problem)
        code = 0 if error is None else 130 if is_stopped else 2 if message else 1
        code = int(error.code or 0) if isinstance(error, SystemExit) else code
        if self.is_first and not self._has_decided:
            with contextlib.suppress(PeerFailed):
                self.share(code)  # the others wait for what it decides, and end in the same way
        if error is None or isinstance(error, SystemExit):
            return dist.destroy_process_group()
        if isinstance(error, PeerFailed):
            message = str(error) if self.is_first else ""
            time.sleep(0 if message else 1)  # the one that has failed reports it, before torchrun ends it as this one has ended
        elif message is None and not is_stopped:
            sys.__excepthook__(type(error), error, trace)
            message = f"{type(error).__name__}, see above"
        who = "" if self.is_first else f"process {self.rank} (the first is 0): "
        if said := "stopped" if is_stopped else message and f"error: {who}{one_line(message)}":
            print(said, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # no destructor may wait for a process that is gone

    def device(self, asked: torch.device) -> torch.device:
        if asked.type != "cuda":
            return asked
        if asked.index is not None:
            raise UserError(f"runtime.device: {asked} given; with several processes use cuda, and each takes one GPU")
        if (count := torch.cuda.device_count()) < self.local_size:
            what = f"each of the {self.local_size} processes needs one, and this machine has {count}"
            raise UserError(f"GPUs: {what}; start fewer with --nproc-per-node {count}, or add --device cpu")
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    @contextlib.contextmanager
    def summing(self, vector: Tensor) -> Iterator[None]:
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # the others are in this exchange, or will be
            failure = error
        vector[-2], vector[-1] = float(self.interrupt.came_here), float(failure is not None)
        with _noticing_loss():
            dist.all_reduce(vector)
        if failure is not None:  # what has failed in all is reported by the first one
            raise failure if self.is_first or vector[-1] < self.size else PeerFailed()

    def read(self, flags: Sequence[float]) -> None:
        came, failed = flags
        if failed:
            raise PeerFailed()
        if came and not self.interrupt.is_read:
            self.interrupt.is_read = True
            if self.is_first:
                print(SAVING, end="", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        flags = torch.zeros(FLAGS)
        with self.summing(flags):
            yield
        self.read(flags.tolist())

    def share(self, value: T, *tensors: Tensor) -> T:
        values, self._has_decided = [value], True
        with _noticing_loss():
            dist.broadcast_object_list(values, src=0)
        self.broadcast(*tensors)
        return values[0]

    def broadcast(self, *tensors: Tensor) -> None:
        with _noticing_loss():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def note_save(self) -> None:
        with _noticing_loss():
            self._store.set(SAVED, "yes")


@contextlib.contextmanager
def _noticing_loss() -> Iterator[None]:
    """Raise PeerFailed for an error of torch.distributed in this block."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):  # of this one
        raise
    except RuntimeError as error:
        raise PeerFailed(f"another process is lost ({_first_line(error)}); start all again, with --resume") from None


def _first_line(error: Exception) -> str:
    """What an error of torch says first, without its places in the source."""
    return re.sub(r"\[[^]]*\](:\d+)?", "", str(error)).strip().partition("\n")[0].partition(". ")[0][:200].strip()
