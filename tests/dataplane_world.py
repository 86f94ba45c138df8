"""A broker with policies on the testbed's real switches, and load in classes. Inside a box only.

A class is a project whose transfers run between the same two hosts as the other's, told apart by
their port alone. What arrives is counted at the receiving host, whatever the switches say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ipv6_world import add_ipv6, address_of, with_ipv6
from network_world import slower

from examples.soykb.scenario import LAYOUT
from examples.testbed import netns
from examples.testbed.layout import IN_SWITCHES, OPENFLOW_LISTEN
from examples.testbed.network import Network
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRequest
from network_provisioner.base.units import goodput
from network_provisioner.broker import Broker
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict

SRC, DST = "mu", "tacc"
WIDE = ("s1", "s2")
DEVICE = "s1-a"
"""What the class queues of ``WIDE`` lie on."""
PORTS = {"cms": 5101, "ligo": 5102}
RATE_BPS = 100e6
NARROW = slower(RATE_BPS)
"""The testbed with half the rate on the wide link, so that a busy machine can fill it."""
MIN_BPS = 10e6
_LOAD = Path(__file__).with_name("class_load.py")
_LEASE_S = 3600.0
TEMPLATES: dict[str, Any] = {
    "classes": {
        "qspec": {"min_throughput": "10 Mb/s"},
        "rspec": {"max_throughput": "100 Mb/s"},
        "patience": 0,
        "break_even": 0,
    }
}


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that had arrived of each class at a monotonic second."""

    at: float
    bytes: Mapping[str, int]

    def since(self, before: Reading) -> dict[str, float]:
        """Goodput of each class between two readings, in bits per second."""
        seconds = self.at - before.at
        return {name: goodput(n - before.bytes[name], seconds) for name, n in self.bytes.items()}


class Load:
    """Senders and a receiver of both classes."""

    def __init__(self, streams: int, version: int = 4) -> None:
        self._undo = ExitStack()
        address = address_of(LAYOUT.host(DST), version)
        self._sink = self._start(DST, "sink", address, *PORTS.values())
        assert self._sink.stdout is not None
        assert self._sink.stdout.readline() == "ready\n"
        self._senders = {
            name: self._start(SRC, "send", address, port, streams) for name, port in PORTS.items()
        }

    def _start(self, site: str, *words: object) -> subprocess.Popen[str]:
        inside = netns.execute(LAYOUT.host(site).netns)
        argv = [*inside, sys.executable, str(_LOAD), *map(str, words)]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._undo.callback(process.wait)
        self._undo.callback(process.kill)
        return process

    def turn(self, name: str, on: bool) -> None:
        """Let a class send, or not."""
        stdin = self._senders[name].stdin
        assert stdin is not None
        stdin.write("on\n" if on else "off\n")

    def read(self) -> Reading:
        """What has arrived so far."""
        assert self._sink.stdin is not None
        assert self._sink.stdout is not None
        self._sink.stdin.write("\n")
        answer = json.loads(self._sink.stdout.readline())
        return Reading(answer["at"], {n: answer["bytes"][str(p)] for n, p in PORTS.items()})

    def stop(self) -> None:
        """End all processes."""
        self._undo.close()


class Transfers:
    """The transfers of both classes, each with a transit while it sends."""

    def __init__(self, broker: Broker, load: Load) -> None:
        self._broker = broker
        self._load = load
        self._count = 0
        self.live: dict[str, tuple[str, Reading]] = {}

    def send(self, names: Iterable[str]) -> None:
        """Let exactly these classes send: a transit is asked for before, and given back after."""
        wanted = set(names)
        for name in sorted(self.live.keys() - wanted):
            self._load.turn(name, on=False)
            transit_id, begun = self.live.pop(name)
            now = self._load.read()
            moved = now.bytes[name] - begun.bytes[name]
            self._broker.release(transit_id, moved, now.at - begun.at, "success")
        for name in sorted(wanted - self.live.keys()):
            self._count += 1
            port = PORTS[name]
            request = TransitRequest(
                f"{name}-{self._count}",
                SRC,
                DST,
                min_bps=MIN_BPS,
                template="classes",
                lease_s=_LEASE_S,
                project=name,
                flows=(Flow(dst_ports=(port, port)),),
            )
            transit = self._broker.request(request)
            assert tuple(transit.grant.path) == (SRC, *WIDE, DST), transit.reason
            self.live[name] = transit.id, self._load.read()
            self._load.turn(name, on=True)


def classes(device: str = DEVICE) -> list[str]:
    """The HTB classes of a device of the switches, as the kernel has them."""
    words = [*IN_SWITCHES, "tc", "class", "show", "dev", device]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return sorted(line.strip() for line in done.stdout.splitlines())


class Plane:
    """The network, a broker in this process that is swept every second, and load."""

    def __init__(self, programs: Path, folder: Path, streams: int = 4, version: int = 4) -> None:
        """``programs``: Open vSwitch's; ``folder`` gets the logs and the broker's state;
        ``version``: load is sent over IPv4 or IPv6."""
        self._undo = ExitStack()
        self._stopped = threading.Event()
        try:
            self._undo.enter_context(Network(NARROW, programs, folder))
            if version == 6:
                add_ipv6(NARROW)
            self.topology = topology_from_dict(
                with_ipv6(NARROW) if version == 6 else NARROW.topology()
            )
            self.shaper = TcShaper(CommandRunner(IN_SWITCHES))
            store = SqliteStore(folder / "state.sqlite")
            self.policies = PolicyRegistry(self.topology, store)
            self.broker = Broker(
                self.topology,
                templates_from_dict(TEMPLATES),
                OpenFlowController(
                    self.topology, OPENFLOW_LISTEN, self.shaper, silent_after_s=120.0
                ),
                store,
                policies=self.policies,
            )
            self.broker.start(60.0)
            self._undo.callback(self.broker.stop)
            sweeper = threading.Thread(target=self._sweep, daemon=True)
            sweeper.start()
            self._undo.callback(sweeper.join)
            self._undo.callback(self._stopped.set)
            self.load = Load(streams, version)
            self._undo.callback(self.load.stop)
            self.transfers = Transfers(self.broker, self.load)
        except BaseException:
            self._undo.close()
            raise

    def _sweep(self) -> None:
        while not self._stopped.wait(1.0):
            self.broker.sweep()

    def send(self, names: Iterable[str]) -> None:
        """See :meth:`Transfers.send`."""
        self.transfers.send(names)

    def enforce(self, strategy: str, **more: Any) -> None:
        """Start a policy of both classes, in the place of the one before."""
        body = {"name": "classes", "type": "project", "specs": ["cms", "ligo"]}
        self.policies.post(body | {"strategy": strategy} | more)
        self.broker.sweep()

    def free(self) -> None:
        """No policy any more."""
        for policy in self.policies.listed(ended=True):
            self.policies.delete(policy["id"])
        self.broker.sweep()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
