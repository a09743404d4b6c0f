"""A group of several processes: collectives of torch.distributed, and what happens when one of the processes ends.

A sum has two halves (Rabenseifner 2004), and each process updates its parts between them. `reduce` gives a process its parts of
all vectors, by one all-to-all, which it adds in a fixed order. `share` gives the updated parts to all, by one broadcast from
each process. This is the traffic of a ring all-reduce, 2 (size - 1) / size vectors a process. An all-reduce of torch would add
in an order that depends on the number of processes, and leaves no room for the update between its halves.
"""

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from chargpt.errors import UserError
from chargpt.interrupt import SAVING, Interrupt
from chargpt.parallel.group import Group
from chargpt.terminal import message_for, one_line

JOINING = 300.0  # seconds until all processes have joined
PATIENCE = 3.0  # seconds at the start before a process says that it waits
ASKING = 2.0  # seconds in an exchange, after which a process asks whether the others are still there
LAST_WORDS = 5.0  # seconds to agree on who reports a failure
FAILURE = "failure"
BEGUN = "chargpt/begun"  # in the store of the launcher, which stays when it starts the processes again
PROBE = 99  # the tag of messages that are never sent

Answer = TypeVar("Answer")


def join_group() -> contextlib.AbstractContextManager[Group]:
    """The group that this process belongs to: that of torchrun's processes, or one by itself. A context manager.

    Raises UserError if the number of processes is not a power of two, or a variable of torchrun is not a number.
    """
    size = _number("WORLD_SIZE", default=1)
    if size == 1:
        return Group()
    rank = _number("RANK")
    if size & (size - 1):
        least = 1 << (size.bit_length() - 1)
        if rank:
            raise SystemExit(2)  # the first process says it
        raise UserError(f"--nproc-per-node: {size} processes in all; use a power of two, such as {least} or {2 * least}")
    if os.environ.get("MASTER_PORT", "").strip() == "0":  # each process would take another port
        raise UserError("MASTER_PORT: '0' given; use the same free port for all processes, such as 29500")
    local_rank, restarts = _number("LOCAL_RANK"), _number("TORCHELASTIC_RESTART_COUNT")
    local_size = _number("LOCAL_WORLD_SIZE") or size
    return Processes(rank, size, local_rank=local_rank, local_size=local_size, restarts=restarts)


def _number(name: str, *, default: int = 0) -> int:
    """The number in an environment variable that torchrun sets; `default` if it is missing or empty."""
    given = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,6}", given) or int(given) < default:
        raise UserError(f"{name}: {given!r} given; torchrun sets this variable to a number. Without torchrun, unset it")
    return int(given)


class PeerLost(Exception):
    """Another process has ended, or does not answer."""


class SharedInterrupt(Interrupt):
    """An Interrupt that answers alike in all processes: whether a signal had come to one of them at the last exchange."""

    def __init__(self) -> None:
        super().__init__(notice="")
        self.agreed_signal = 0

    @property
    def exit_code(self) -> int:
        return 128 + self.agreed_signal if self.agreed_signal else 0


class Processes(Group):
    """Several processes, started by torchrun or by anything that sets the same environment variables.

    Use it as a context manager. An error in one process ends all of them, and one of them reports it.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        local_rank: int,
        local_size: int = 1,
        restarts: int,
        joining: float = JOINING,
        patience: float = PATIENCE,
    ) -> None:
        """Say after `patience` seconds what is waited for, and give up if not all have joined after `joining` seconds."""
        self.rank, self.size, self.restarts = rank, size, restarts
        self.local_rank, self.local_size = local_rank, local_size
        self._joining, self._patience = joining, patience
        self.timeout = timedelta(minutes=5)
        self._interrupt, self._launcher = SharedInterrupt(), os.getppid()  # another parent later means that torchrun is gone
        self._devices: dist.ProcessGroup | None = None  # of GPUs; processors use the default one
        self._buffer = torch.empty(0)  # kept, since the system takes long to give a new one in each step
        self._stack = contextlib.ExitStack()

    # How processes come and go

    def __enter__(self) -> "Processes":
        if not self.is_first:  # the first one prints
            quiet = self._stack.enter_context(open(os.devnull, "w"))
            self._stack.enter_context(contextlib.redirect_stdout(quiet))
        try:
            self._join()
            self._hosts = self.meet("host", socket.gethostname())
        except (RuntimeError, ValueError, PeerLost) as error:
            what_to_do = "start all of them, with the same MASTER_ADDR and MASTER_PORT"
            raise UserError(
                f"rank {self.rank}: the processes cannot reach each other ({_first_line(error)}); {what_to_do}"
            ) from None
        return self

    def _join(self) -> None:
        """Connect with all other processes. Raises RuntimeError or ValueError if that fails, or takes too long.

        torch waits in C++, where no signal is noticed, so it waits in another thread.
        """
        timeout = timedelta(seconds=self._joining)
        errors: list[Exception] = []

        def connect() -> None:
            try:
                store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
                self._launcher_store = store
                self.restarted_after_save = store.check([BEGUN])  # asked by all before one can set it
                self._store = dist.PrefixStore(f"chargpt/{self.restarts}", store)
                dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=timeout)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(self._patience)
        if thread.is_alive() and self.rank in (0, self.size - 1):  # of these, one is there
            line = f"waiting until all {self.size} processes have joined, for at most {self._joining:.0f} seconds"
            print(f"rank {self.rank}: {line}", file=sys.stderr, flush=True)
        thread.join()
        if errors:
            raise errors[0]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, SystemExit):
            dist.destroy_process_group()
            self._stack.close()
            return
        message = str(error) if isinstance(error, PeerLost) else message_for(error)
        stopped = kind is KeyboardInterrupt  # while the run begins; later, the signal is remembered
        # No destructor may wait for a process that is gone, so the interpreter does not end in its usual way.
        code = 1 if message is None or isinstance(error, PeerLost) else 2
        code = 130 if stopped else code
        who = "" if self.is_first or isinstance(error, PeerLost) else f"rank {self.rank} on {self._hosts[self.rank]}: "
        if self._reports(f"{who}{message or type(error).__name__}", is_mistake=code == 2):
            if message is None and not stopped:
                sys.__excepthook__(type(error), error, trace)
            line = one_line(f"error: {who}{message or f'{type(error).__name__}, see above'}")
            print("stopped" if stopped else line, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _reports(self, text: str, *, is_mistake: bool) -> bool:
        """Whether this process is the one that reports the failure: the first to say so, in the store of the launcher.

        A mistake is often noticed by all at once; then it is the first process. Without a store that answers, it is the first
        process of each machine.
        """
        claim, answers = f"{self.rank}: {text}", []

        def ask() -> None:
            with contextlib.suppress(RuntimeError):
                if is_mistake and not self.is_first:
                    time.sleep(1)
                answers.append(self._store.compare_set(FAILURE, "", claim).decode(errors="replace"))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(LAST_WORDS)
        return answers == [claim] if answers else self.local_rank == 0

    def interrupt(self) -> Interrupt:
        return self._interrupt

    def describe(self) -> str:
        machines = len(set(self._hosts))
        return f"{self.size} on {machines} machine{'s' * (machines != 1)}"

    def prepare(self, device: torch.device, *, timeout: int) -> torch.device:
        self.timeout = timedelta(seconds=timeout)
        if dist.group.WORLD is not None:
            dist.group.WORLD.set_timeout(self.timeout)
        if device.type != "cuda":
            return device
        if device.index is not None:
            raise UserError(f"runtime.device: {device} given; with several processes use cuda, and each takes a GPU of its own")
        device = torch.device("cuda", self.local_rank)
        torch.cuda.set_device(device)
        if self._devices is None:
            self._devices = dist.new_group(backend="nccl", timeout=self.timeout)
        return device

    # The start, over the store: waits for as long as it takes, and notices a launcher that ends

    def note_save(self) -> None:
        self._ask(lambda: self._launcher_store.set(BEGUN, "yes"))

    def publish(self, name: str, text: str) -> None:
        self._ask(lambda: self._store.set(f"{name}/{self.rank}", text))

    def meet(self, name: str, text: str) -> list[str]:
        self.publish(name, text)
        return [self.read(name, rank) for rank in range(self.size)]

    def read(self, name: str, rank: int = 0) -> str:
        """What the process `rank` has published; waits for it."""
        key, started, has_said = f"{name}/{rank}", time.monotonic(), False
        while not self._ask(lambda: self._store.check([key])):
            time.sleep(min(0.1, 0.001 + (time.monotonic() - started) / 10))
            if self._ask(lambda: self._store.check([FAILURE]) and not self._store.check([key])):
                raise PeerLost("another process has failed")
            if self.rank == self.size - 1 and not has_said and time.monotonic() - started > self._patience:
                print(f"waiting for the text: rank {rank} on its machine reads and encodes it", file=sys.stderr, flush=True)
                has_said = True
        return self._ask(lambda: self._store.get(key)).decode()

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except dist.DistError as error:
            raise PeerLost(f"the launcher of the first machine does not answer ({_first_line(error)})") from None

    # The step

    @torch.no_grad()
    def reduce(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        for cuts in regions:
            ends = self._ends(cuts)
            own = vector[ends[self.rank] : ends[self.rank + 1]]
            received = self._room(self.size * len(own), like=vector)
            each, lengths = [len(own)] * self.size, [stop - start for start, stop in zip(ends, ends[1:])]
            sent, group = vector[ends[0] : ends[-1]], self._group_of(vector)
            with self._noticing_loss():
                self._finish(dist.all_to_all_single(received, sent, each, lengths, group=group, async_op=True), group)
            rows = received.view(self.size, len(own))
            while len(rows) > 2:
                rows = rows[::2].add_(rows[1::2])
            torch.add(rows[0], rows[1], out=own)

    @torch.no_grad()
    def share(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        group, begun = self._group_of(vector), []
        with self._noticing_loss():
            for ends in map(self._ends, regions):
                for rank, (start, stop) in enumerate(zip(ends, ends[1:])):
                    if start < stop:
                        begun.append(dist.broadcast(vector[start:stop], rank, group=group, async_op=True))
            for work in begun:
                self._finish(work, group)

    def exchange(self, values: Sequence[float] = ()) -> list[list[float]]:
        wanted = self._interrupt.signal or (0 if os.getppid() == self._launcher else signal.SIGTERM)
        row = torch.tensor([wanted, *values], dtype=torch.float64)
        table = torch.empty(self.size, len(row), dtype=torch.float64)
        with self._noticing_loss():
            self._finish(dist.all_to_all_single(table, row.repeat(self.size, 1), async_op=True))
        rows = table.tolist()
        agreed = int(max(row[0] for row in rows))
        if agreed and not self._interrupt.agreed_signal and self.is_first:
            print(SAVING, end="", file=sys.stderr, flush=True)
        self._interrupt.agreed_signal = agreed or self._interrupt.agreed_signal
        return [row[1:] for row in rows]

    def _ends(self, cuts: Sequence[int]) -> Sequence[int]:
        """The cuts of a region between processes."""
        return cuts[:: (len(cuts) - 1) // self.size]

    def _room(self, length: int, *, like: Tensor) -> Tensor:
        """A vector of this length in a buffer that is used again."""
        if len(self._buffer) < length:
            self._buffer = like.new_empty(length)
        return self._buffer[:length]

    def _group_of(self, tensor: Tensor) -> "dist.ProcessGroup | None":  # some builds of torch lack the class
        return self._devices if tensor.is_cuda else None

    # The state

    def from_first(self, values: Sequence[float]) -> list[float]:
        return self.exchange(values)[0]

    @torch.no_grad()
    def broadcast(self, tensor: Tensor) -> None:
        data = tensor.cpu()
        with self._noticing_loss():
            self._finish(dist.broadcast(data, 0, async_op=True))
        if data is not tensor:
            tensor.copy_(data)

    def broadcast_text(self, text: str | None) -> str:
        data = torch.tensor(bytearray((text or "").encode()), dtype=torch.uint8)
        length = int(self.from_first([len(data)])[0])
        data = data if self.is_first else torch.empty(length, dtype=torch.uint8)
        self.broadcast(data)
        return bytes(data.tolist()).decode()

    def collect(self, own: Tensor, cuts: Sequence[int]) -> Tensor | None:
        ends = self._ends(cuts)
        lengths = [stop - start for start, stop in zip(ends, ends[1:])] if self.is_first else [0] * self.size
        whole = torch.empty(sum(lengths), dtype=own.dtype)
        to_first = [len(own)] + [0] * (self.size - 1)
        with self._noticing_loss():
            self._finish(dist.all_to_all_single(whole, own.cpu(), lengths, to_first, async_op=True))
            self._finish(dist.barrier(async_op=True))  # a run ends with this exchange: no process leaves before it is over
        return whole if self.is_first else None

    # A loss

    @contextlib.contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Raise PeerLost for an error of torch.distributed in this block."""
        try:
            yield
        except RuntimeError as error:
            raise PeerLost(f"{self._reason(error)}; continue with --resume") from None

    def _finish(self, work: "dist.Work", group: "dist.ProcessGroup | None" = None) -> None:
        """Wait until `work` of processors has ended. Raises RuntimeError if it fails.

        If a connection closes, gloo ends only what it had not begun to send or to receive, and waits for the rest until the
        timeout. So this asks whether the other processes are there. One that has ended in its usual way sent all of its part
        before, so it counts as lost only if the work does not end soon after the question.
        """
        was_gone = False
        while group is None and not _ends_soon(work):
            if was_gone:
                raise RuntimeError("Connection closed")
            was_gone = any(map(self._is_gone, self._others()))
        work.wait()

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _reason(self, error: RuntimeError) -> str:
        others = self._others()
        is_late = any(word in str(error) for word in ("imed out", "timeout"))
        if is_late:  # after that, torch has no connection to any process
            known = others if self.size == 2 else []
        else:
            known = [rank for rank in others if self._is_gone(rank)]
        who = f"rank {known[0]} on {self._hosts[known[0]]}" if known else "another process"
        if is_late:
            return f"{who} gave no answer in {self.timeout.total_seconds():.0f} seconds; is its machine or the network down?"
        if known or "losed" in str(error) or "reset" in str(error):
            return f"{who} has ended without a message: it was killed, or ran out of memory"
        return f"{who} cannot be reached ({_first_line(error)})"

    def _is_gone(self, rank: int) -> bool:
        """Whether the connection to a process is closed: a message that will not come cannot be waited for."""
        try:
            dist.irecv(torch.empty(1), rank, tag=PROBE)
            return False
        except RuntimeError:
            return True


def _ends_soon(work: "dist.Work") -> bool:
    """Whether `work` ends within some seconds, also with an error, which its next `wait` raises."""
    with contextlib.suppress(RuntimeError):  # of the time that is over, or of the work
        work.wait(timedelta(seconds=ASKING))
    return work.is_completed()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
