"""A group of several processes: exchanges between pairs over torch.distributed, and what happens when one of them ends.

Everything is made of one operation, in which two processes send each other a range of a vector. Sums halve the range in each
of log2(size) rounds (recursive halving), and sharing the result doubles it again (Rabenseifner 2004; Thakur, Rabenseifner and
Gropp 2005). That is the traffic of a ring all-reduce, 2 (size - 1) / size vectors a process, in fewer messages. Unlike
an all-reduce of torch, it sums in an order that is fixed, and it lets a process update its part between the two halves.
Neighbours come first, so that most of the traffic stays inside a machine.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from chargpt.interrupt import SAVING, Interrupt
from chargpt.parallel.group import Group
from chargpt.parallel.parts import owned_by, rounds
from chargpt.terminal import UserError, message_for, one_line

JOINING = 300.0  # seconds until all processes have joined
PATIENCE = 3.0  # seconds at the start before a process says that it waits
LAST_WORDS = 5.0  # seconds to agree on who reports a failure
FAILURE = "failure"
BEGUN = "chargpt/begun"  # in the store of the launcher, which stays when it starts the processes again


class PeerLost(Exception):
    """Another process has ended, or does not answer."""


class SharedInterrupt(Interrupt):
    """An Interrupt that answers alike in all processes: whether a signal had come to one of them at the last exchange."""

    def __init__(self) -> None:
        super().__init__(notice="")
        self.agreed = 0  # the signal

    def __call__(self) -> bool:
        return self.agreed != 0

    @property
    def exit_code(self) -> int:
        return 128 + self.agreed if self.agreed else 0


class Processes(Group):
    """Several processes, started by torchrun or by anything that sets the same environment variables.

    Use it as a context manager. An error in one process ends all of them, and one of them reports it.
    """

    def __init__(
        self, rank: int, size: int, *, local_rank: int, restarts: int, joining: float = JOINING, patience: float = PATIENCE
    ) -> None:
        """Say after `patience` seconds what is waited for, and give up if not all have joined after `joining` seconds."""
        self.rank, self.size, self.local_rank, self.restarts = rank, size, local_rank, restarts
        self._joining, self._patience = joining, patience
        self.timeout = timedelta(minutes=5)
        self._interrupt, self._launcher = SharedInterrupt(), os.getppid()  # another parent later means that torchrun is gone
        self._devices: dist.ProcessGroup | None = None
        self._buffer = torch.empty(0)
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
        timeout, errors = timedelta(seconds=self._joining), []

        def connect() -> None:
            try:
                store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
                self._launcher_store, self.has_begun = store, store.check([BEGUN])  # asked by all before one can set it
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

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
                sys.__excepthook__(kind, error, trace)
            line = f"error: {one_line(who + (message or f'{type(error).__name__}, see above'))}"
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

    def note_begun(self) -> None:
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

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except dist.DistError as error:
            raise PeerLost(f"the launcher of the first machine does not answer ({_first_line(error)})") from None

    # Exchanges

    def exchange(self, values: Sequence[float] = ()) -> list[list[float]]:
        table = torch.zeros(self.size, 1 + len(values), dtype=torch.float64)
        wanted = self._interrupt.signal or (0 if os.getppid() == self._launcher else signal.SIGTERM)
        table[self.rank] = torch.tensor([wanted, *values], dtype=torch.float64)
        for bit in range(self.size.bit_length() - 1):
            first, other = self.rank >> bit << bit, (self.rank >> bit ^ 1) << bit
            self._swap(self.rank ^ 1 << bit, [table[first : first + (1 << bit)]], [table[other : other + (1 << bit)]])
        rows = table.tolist()
        agreed = int(max(row[0] for row in rows))
        if agreed and not self._interrupt.agreed and self.is_first:
            print(SAVING, end="", file=sys.stderr, flush=True)
        self._interrupt.agreed = agreed or self._interrupt.agreed
        return [row[1:] for row in rows]

    def from_first(self, values: Sequence[float]) -> list[float]:
        return self.exchange(values)[0]

    def broadcast(self, tensor: Tensor) -> None:
        data = tensor.cpu()
        for bit in range(self.size.bit_length() - 1):
            if self.rank < 1 << bit:
                self._swap(self.rank | 1 << bit, [data], [])
            elif self.rank < 2 << bit:
                self._swap(self.rank ^ 1 << bit, [], [data])
        if data is not tensor:
            tensor.copy_(data)

    def broadcast_text(self, text: str | None) -> str:
        data = torch.tensor(bytearray((text or "").encode()), dtype=torch.uint8)
        length = int(self.from_first([len(data)])[0])
        data = data if self.is_first else torch.empty(length, dtype=torch.uint8)
        self.broadcast(data)
        return bytes(data.tolist()).decode()

    def owned(self, count: int) -> range:
        return owned_by(self.rank, self.size, count)

    @torch.no_grad()
    def sum_parts(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        for partner, kept, given in rounds(self.rank, self.size, len(regions[0]) - 1):
            send, keep = ([vector[cuts[part.start] : cuts[part.stop]] for cuts in regions] for part in (given, kept))
            received = self._room_for(keep)
            self._swap(partner, send, received)
            for own, other in zip(keep, received):
                own += other

    @torch.no_grad()
    def gather_parts(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        for partner, kept, given in reversed([*rounds(self.rank, self.size, len(regions[0]) - 1)]):
            own, other = ([vector[cuts[part.start] : cuts[part.stop]] for cuts in regions] for part in (kept, given))
            self._swap(partner, own, other)

    def _room_for(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors of these lengths in a buffer that is used again."""
        total = sum(map(len, tensors))
        if len(self._buffer) < total:
            self._buffer = tensors[0].new_empty(total)
        return list(self._buffer[:total].split([len(tensor) for tensor in tensors]))

    def collect(self, own: Tensor, cuts: Sequence[int]) -> Tensor | None:
        own = own.cpu()
        if not self.is_first:
            self._swap(0, [own], [])
            return None
        start, whole = cuts[0], torch.empty(cuts[-1] - cuts[0], dtype=own.dtype)
        for rank in range(self.size):
            other = owned_by(rank, self.size, len(cuts) - 1)
            part = whole[cuts[other.start] - start : cuts[other.stop] - start]
            if rank:
                self._swap(rank, [], [part])
            else:
                part.copy_(own)
        return whole

    def _swap(self, partner: int, send: Sequence[Tensor], receive: Sequence[Tensor]) -> None:
        """Send tensors to another process and receive others from it, which it sends at the same time. Raises PeerLost."""
        try:
            if any(tensor.is_cuda for tensor in (*send, *receive)):
                work = [dist.P2POp(dist.isend, tensor, partner, self._devices) for tensor in send if len(tensor)]
                work += [dist.P2POp(dist.irecv, tensor, partner, self._devices) for tensor in receive if len(tensor)]
                for item in dist.batch_isend_irecv(work) if work else ():
                    item.wait()
                return
            work = [dist.irecv(tensor, partner, tag=i) for i, tensor in enumerate(receive) if len(tensor)]
            work += [dist.isend(tensor, partner, tag=i) for i, tensor in enumerate(send) if len(tensor)]
            for item in work:
                item.wait(self.timeout)
        except RuntimeError as error:
            raise PeerLost(f"rank {partner} on {self._hosts[partner]} {self._reason(error)}; continue with --resume") from None

    def _reason(self, error: RuntimeError) -> str:
        if "imed out" in str(error):
            return f"gave no answer in {self.timeout.seconds} seconds; is its machine or the network down?"
        if "losed" in str(error) or "reset" in str(error):
            return "has ended without a message: it was killed, or ran out of memory"
        return f"cannot be reached ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
