"""Two network namespaces of this machine, joined by a cable: for everything that matters here, two machines."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

ADDRESSES = ("10.77.15.1", "10.77.15.2")


@dataclass(frozen=True)
class Machines:
    """The names of the namespaces; the network interface has the same name in both."""

    names: tuple[str, str]
    interface: str = "wire"

    def command(self, number: int, words: list[str]) -> list[str]:
        """`words` as a command that runs on machine `number`."""
        return ["ip", "netns", "exec", self.names[number], "env", f"GLOO_SOCKET_IFNAME={self.interface}", *words]

    def torchrun(self, number: int, torchrun: list[str], processes: int) -> list[str]:
        """The torchrun command of machine `number`, up to the program."""
        static = ["--nnodes", "2", "--node-rank", str(number), "--master-addr", ADDRESSES[0], "--master-port", "29515"]
        return self.command(number, [*torchrun, *static, "--nproc-per-node", str(processes), "--"])

    def limit(self, rate: str) -> None:
        """Limit the cable to a rate such as 100mbit, in both directions."""
        for name in self.names:
            shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", self.interface, *shape], check=True)


@contextmanager
def two_machines() -> Iterator[Machines]:
    """Skips the test where namespaces cannot be made."""
    if not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("needs root and the ip program (iproute2) for two network namespaces")
    machines = Machines((f"chargpt-{os.getpid()}-a", f"chargpt-{os.getpid()}-b"))
    try:
        for name in machines.names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        ends = [["name", machines.interface, "netns", name] for name in machines.names]
        _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for name, address in zip(machines.names, ADDRESSES):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", machines.interface)
            _ip("-n", name, "link", "set", machines.interface, "up")
        yield machines
    finally:
        for name in machines.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot make network namespaces here: {done.stderr.strip()}")
