"""Runs inside a box for the bench P20: promises that are broken, or only look so, and a transfer
whose path gets worse.

    python -m tests.bench.promises_inside FOLDER

Writes one line of JSON for each thing that was tried, with its kind under ``what``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed import netns, traffic
from examples.testbed.layout import SWITCH_NETNS
from examples.testbed.network import Network
from network_provisioner.selection.promise import BROKEN, KEPT
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.drains import Drain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ovs_rig import in_netns
from promised_rig import PORT, Promised

MBPS = 1e6
RATE_BPS = 60 * MBPS
# The routed link is as large as the transit needs.
WIDE = replace(
    LAYOUT,
    links=tuple(replace(link, rate_bps=max(link.rate_bps, 150 * MBPS)) for link in LAYOUT.links),
)
L2 = WIDE.link("l2")
STAYS = {"triggers": {"throughput": {"action": "ignore"}}}
WATCH_S = 15.0
FILE_BYTES = 500_000_000
STAGE_S = 25.0
STAGES: tuple[Mapping[str, float], ...] = (
    {"loss": 0.02},
    {"loss": 0.0, "delay_s": L2.delay_s + 0.04},
    {"delay_s": L2.delay_s, "rate_bps": RATE_BPS / 2},
    {"rate_bps": L2.rate_bps},
)
"""What becomes of the first path, one after the other; there and back are 80 ms more."""
HEALTHY = {"loss": 0.0, "delay_s": L2.delay_s, "rate_bps": L2.rate_bps}
SLOW_SENDERS = {
    "paced": ("--bytes-per-s", "2000000"),
    "bursts": ("--bytes-per-s", "4000000", "--on", "1", "--off", "1"),
}
_THEIRS = "cookie=0x77"
# A receiver that takes 2 MB a second, and a sender with a small buffer.
_LAZY = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    print("ready", flush=True)
    while True:
        stream, _ = server.accept()
        try:
            while stream.recv(200_000):
                time.sleep(0.1)
        except OSError:
            pass
"""
_SMALL = """
import socket, sys
stream = socket.socket()
stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
stream.connect((sys.argv[1], int(sys.argv[2])))
while True:
    stream.sendall(bytes(1 << 16))
"""


class Running:
    """A program at a site, until it is stopped."""

    def __init__(self, site: str, *words: str) -> None:
        argv = [*in_netns(site), sys.executable, *words]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def ready(self) -> Running:
        """Once it says so."""
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"
        return self

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


ADDRESS = WIDE.host("tacc").address


def sink() -> Running:
    """At the receiver."""
    return Running("tacc", traffic.__file__, "sink", ADDRESS, str(PORT)).ready()


def say(what: str, **figures: Any) -> None:
    """One thing that was tried."""
    print(json.dumps({"what": what, **figures}), flush=True)


def broken(network: Network, folder: Path) -> None:
    """How long each fault takes to be told, and of which link."""
    faults: dict[str, tuple[Callable[[Promised], object], Callable[[Promised], object]]] = {
        "10 % loss": (
            lambda _: network.link("l2", loss=0.1), lambda _: network.link("l2", loss=0.0),
        ),
        "half of the rate": (
            lambda _: network.link("l2", rate_bps=RATE_BPS / 2),
            lambda _: network.link("l2", rate_bps=L2.rate_bps),
        ),
        "a detour by somebody's rule": (
            lambda p: p.rig.network.switches.ofctl("s1", "add-flow", _detour()),
            lambda p: p.rig.network.switches.ofctl("s1", "del-flows", f"{_THEIRS}/-1"),
        ),
        "a rule that somebody deleted": (
            lambda p: p.rig.network.switches.ofctl("s1", "del-flows", f"tcp,tp_dst={PORT}"),
            _nothing,
        ),
        "a shaper that somebody removed": (
            lambda _: netns.traffic_control(
                SWITCH_NETNS, [f"qdisc del dev {WIDE.device(L2, 's1')} root"]
            ),
            _nothing,
        ),
    }  # fmt: skip
    promised = Promised(network, folder, RATE_BPS, topology_from_dict(WIDE.topology()), STAYS)
    promised.start()
    try:
        with sink(), Running("mu", traffic.__file__, "send", ADDRESS, str(PORT),
                             "--bytes-per-s", str(10**9)):  # fmt: skip
            for name, (apply, undo) in faults.items():
                promised.until("a kept promise", lambda: promised.kept.state == KEPT)
                promised.news.clear()
                apply(promised)
                started, repairs = time.monotonic(), _repairs(promised)
                told_s = None
                while told_s is None and time.monotonic() - started < 3 * WATCH_S:
                    promised.observe()
                    if promised.kept.state == BROKEN or _repairs(promised) > repairs:
                        told_s = time.monotonic() - started
                kept = promised.kept
                why = kept.why if kept.state == BROKEN else "the switch was repaired"
                say("broken", fault=name, told_s=told_s, why=why, link=kept.link)
                undo(promised)
    finally:
        promised.stop()


def _nothing(_: Promised) -> None:
    """The broker puts it right."""


def _repairs(promised: Promised) -> int:
    return sum(sum(switch.repairs.values()) for switch in promised.rig.openflow.switches())


def _detour() -> str:
    match = f"{_THEIRS},priority=60000,tcp,tp_dst={PORT}"
    return f"{match},actions=output:{WIDE.port(WIDE.link('l3'), 's1')}"


def accused(network: Network, folder: Path) -> None:
    """How many looks at slow senders say that the network is to blame."""
    promised = Promised(network, folder, RATE_BPS, topology_from_dict(WIDE.topology()), STAYS)
    promised.start()
    try:
        for name, words in SLOW_SENDERS.items():
            argv = (traffic.__file__, "send", ADDRESS, str(PORT), *words)
            _watch(promised, name, sink(), Running("mu", *argv))
        lazy = Running("tacc", "-c", _LAZY, ADDRESS, str(PORT)).ready()
        argv = (traffic.__file__, "send", ADDRESS, str(PORT), "--bytes-per-s", str(10**9))
        _watch(promised, "receiver", lazy, Running("mu", *argv))
        _watch(promised, "buffer", sink(), Running("mu", "-c", _SMALL, ADDRESS, str(PORT)))
    finally:
        promised.stop()


def _watch(promised: Promised, name: str, receiver: Running, sender: Running) -> None:
    with receiver, sender:
        for _ in range(6):  # what came before is forgotten
            promised.observe()
        states = []
        for _ in range(round(WATCH_S)):
            promised.observe()
            states.append(promised.kept.state)
        say("slow", sender=name, states={s: states.count(s) for s in set(states)},
            why=promised.kept.why)  # fmt: skip


def moved(network: Network, folder: Path, moves: bool) -> None:
    """Seconds of a transfer while its first path gets worse and better again."""
    template = {} if moves else STAYS
    promised = Promised(network, folder, RATE_BPS, topology_from_dict(WIDE.topology()), template)
    promised.start()
    try:
        seconds, retransmitted = _transfer(promised, [dict(stage) for stage in STAGES])
        say("moved" if moves else "stayed", seconds=seconds, retransmitted=retransmitted,
            moves=promised.transit.grant.moves)  # fmt: skip
    finally:
        network.link("l2", **HEALTHY)
        promised.stop()


def cost(network: Network, folder: Path) -> None:
    """Seconds and bytes that a move alone costs, with both paths well."""
    for moves in (False, True):
        place = folder / f"cost{moves}"
        place.mkdir()
        promised = Promised(network, place, RATE_BPS, topology_from_dict(WIDE.topology()), STAYS)
        promised.start()
        try:
            seconds, retransmitted = _transfer(promised, [{}] if moves else [], 100_000_000)
            say("cost", moves=promised.transit.grant.moves, seconds=seconds,
                retransmitted=retransmitted)  # fmt: skip
        finally:
            promised.stop()


def _transfer(
    promised: Promised, stages: list[dict[str, float]], n_bytes: int = FILE_BYTES
) -> tuple[float, int]:
    """How long it takes, and how many bytes were sent again. A stage without settings drains the
    first path, which moves the transit."""
    retransmitted = 0
    argv = (traffic.__file__, "send", ADDRESS, str(PORT), "--bytes", str(n_bytes))
    with sink(), Running("mu", *argv) as sender:
        started = time.monotonic()
        due = started + 5.0
        while sender.process.poll() is None:
            promised.observe()
            retransmitted = max(retransmitted, _retransmitted())
            if stages and time.monotonic() >= due:
                stage, due = stages.pop(0), time.monotonic() + STAGE_S
                if stage:
                    promised.rig.network.link("l2", **stage)
                else:
                    promised.broker.drain(Drain("s1-s2", 0.0))
        return time.monotonic() - started, retransmitted


def _retransmitted() -> int:
    counts = re.findall(r"bytes_retrans:(\d+)", Promised.ss())
    return max(map(int, counts), default=0)


def main(folder: Path) -> None:
    """Everything, one after the other."""
    programs = packages.ensure("openvswitch", progress=lambda _: None) / "wrap"
    with Network(WIDE, programs, folder) as network:
        for number, step in enumerate((broken, accused, cost)):
            (folder / str(number)).mkdir()
            step(network, folder / str(number))
        for number in range(3):
            for moves in (False, True):
                place = folder / f"moved{number}{moves}"
                place.mkdir()
                moved(network, place, moves)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
