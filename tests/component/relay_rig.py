"""Two relays between two hosts, without switches: in the middle the kernel's routes lead packets to
them as redirect rules do. For tests that run in a box.

    client ── near ══════════ far ── server
               │               │
            relay ra        relay rb
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from waiting import until

from adon.machine import packages
from adon.machine.syscalls import CLONE_NEWNET
from examples.testbed import delaylink, netns
from examples.testbed.procs import Daemon
from network_provisioner.relay.sessions import Session

ROOT = Path(__file__).resolve().parents[2]
CLIENT, SERVER = "10.1.0.2", "10.2.0.2"
GATES = {"near": "169.254.0.1", "far": "169.254.0.2"}
AGENTS = {"ra": "10.3.0.1", "rb": "10.3.0.2"}
SIDES = {"ra": ("near", "client", CLIENT), "rb": ("far", "server", SERVER)}
SESSION = Session(
    "t", (f"{CLIENT}/32",), (f"{SERVER}/32",), True, "rb", AGENTS["rb"], 27001, "00" * 32,
    buffer_bytes=1 << 20,
)  # fmt: skip
_GATE = "10.8.0.1"  # what all of them send packets to
T = TypeVar("T")


def within(name: str, make: Callable[[], T]) -> T:
    """What ``make`` makes in a network namespace: its sockets stay there, for any user."""
    results: list[T] = []

    def enter() -> None:
        with Path(f"/run/netns/{name}").open() as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {name}")
        results.append(make())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return results[0]


class RelayRig:
    """The network, and the agents."""

    def __init__(self, folder: Path, undo: ExitStack, wan: dict[str, Any] | None = None) -> None:
        """``wan``: of a link as :mod:`examples.testbed.delaylink` makes it, None for a fast one."""
        self.folder, self._undo = folder, undo
        self.nft = packages.ensure("nftables", progress=print) / "wrap"
        self.agents: dict[str, Daemon] = {}
        for name in ("client", "near", "ra", "rb", "far", "server"):
            netns.add(name)
            undo.callback(netns.delete, name)
            netns.sysctl(name, netns.QUIET | {"net.ipv4.ip_forward": "1"})
        if wan is None:
            netns.batch("near", ["link add wan type veth peer name wan netns far"])
        else:
            self._link(wan)
        for name, (side, host, address) in SIDES.items():
            here, there = GATES[side], next(a for s, a in GATES.items() if s != side)
            batch = [f"addr add {here}/30 dev wan", "link set wan up"]
            netns.batch(side, batch)
            self._join(side, host, address)
            self._join(side, name, AGENTS[name])
            netns.batch(side, [
                *(f"route add {target} via {there}" for target in self._beyond(side)),
                f"route add default via {AGENTS[name]} dev {name} table 7",
            ])  # fmt: skip
        self.redirect(True)

    def _beyond(self, side: str) -> list[str]:
        return [
            target
            for name, (where, _, address) in SIDES.items()
            if where != side
            for target in (address, AGENTS[name])
        ]

    def _link(self, wan: dict[str, Any]) -> None:
        control = self.folder / "link"
        words = ["nice", "-n", "-20", sys.executable, "-m", "examples.testbed.delaylink"]
        words += ["tap-near", "tap-far", "--delay-s", str(wan["delay_s"])]
        link = Daemon([*words, "--control", str(control)], self.folder / "link.log")
        self._undo.callback(link.stop)
        link.wait(partial(delaylink.answers, control))
        self.change_link = partial(delaylink.control, control)
        self.change_link(**wan)
        for side in GATES:
            netns.batch(None, [f"link set tap-{side} netns {side}"])
            netns.batch(side, [f"link set tap-{side} name wan"])

    def _join(self, side: str, name: str, address: str) -> None:
        """A host on a device of its own, which sends everything to the middle."""
        netns.batch(side, [
            f"link add {name} type veth peer name eth0 netns {name}",
            f"link set {name} up", f"addr add {_GATE}/32 dev {name}",
            f"route add {address} dev {name}",
        ])  # fmt: skip
        netns.batch(name, [
            f"addr add {address}/32 dev eth0", "link set eth0 up",
            f"route add {_GATE} dev eth0", f"route add default via {_GATE} src {address}",
        ])  # fmt: skip

    def redirect(self, there: bool) -> None:
        """Whether the hosts' TCP is led to the agents."""
        word = "add" if there else "del"
        for side, host, _ in SIDES.values():
            other = next(a for s, _, a in SIDES.values() if s != side)
            netns.batch(side, [f"rule {word} iif {host} to {other} ipproto tcp lookup 7"])

    # -- the agents ----------------------------------------------------------------------------

    def start(self, name: str, *tls: str) -> None:
        """Start an agent, again where it was there; ``tls``: its certificate, key and authority."""
        if name in self.agents:
            self.agents[name].stop()
        self._sessions(name).write_text("[]", encoding="utf-8")
        self._status(name).unlink(missing_ok=True)
        env = {**os.environ, "PATH": f"{self.nft}:{os.environ['PATH']}"}
        words = [*netns.execute(name), sys.executable, "-m", "tests.relay_process", AGENTS[name]]
        words += [str(self._sessions(name)), str(self._status(name)), *tls]
        agent = Daemon(words, self.folder / f"{name}.log", env=env, cwd=ROOT)
        self.agents[name] = agent
        self._undo.callback(agent.stop)
        agent.wait(self._status(name).exists)

    def serve(self, *sessions: Session) -> None:
        """Have both agents serve these, said as for the client's side."""
        for name in self.agents:
            mine = [session if name == "ra" else mirrored(session) for session in sessions]
            self.tell(name, json.dumps([session.as_dict() for session in mine]))

    def tell(self, name: str, text: str) -> None:
        """Have an agent take in sessions."""
        new = self._sessions(name).with_suffix(".next")
        new.write_text(text, encoding="utf-8")
        new.replace(self._sessions(name))
        until(lambda: self.status(name)["read"] == text, f"{name} to read its sessions")

    def status(self, name: str) -> dict[str, Any]:
        """What an agent says of itself."""
        status: dict[str, Any] = json.loads(self._status(name).read_text(encoding="utf-8"))
        return status

    def idle(self) -> bool:
        """Whether no connection is open."""
        return not any(self.status(name)["connections"] for name in self.agents)

    def _sessions(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _status(self, name: str) -> Path:
        return self.folder / f"{name}.status"

    # -- the hosts -----------------------------------------------------------------------------

    def listen(self, port: int) -> socket.socket:
        """The server's socket."""
        return within("server", lambda: socket.create_server((SERVER, port), backlog=256))

    def connect(self, port: int, from_port: int = 0) -> socket.socket:
        """The client's."""
        sock = within("client", socket.socket)
        sock.settimeout(60)
        sock.bind((CLIENT, from_port))
        sock.connect((SERVER, port))
        return sock


def mirrored(session: Session) -> Session:
    """The same as the other agent has it."""
    return replace(
        session,
        near=session.far,
        far=session.near,
        source_here=not session.source_here,
        peer="ra",
        peer_address=AGENTS["ra"],
    )


@contextmanager
def relays(folder: Path, wan: dict[str, Any] | None = None) -> Iterator[RelayRig]:
    """The network with both agents, which serve :data:`SESSION`."""
    with ExitStack() as undo:
        rig = RelayRig(folder, undo, wan)
        for name in AGENTS:
            rig.start(name)
        rig.serve(SESSION)
        yield rig
