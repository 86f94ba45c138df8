"""Runs inside a box for the bench P21: each fault, three times, on a network that carries packets.

    python -m tests.bench.faults_inside BANDWIDTH FOLDER ROUNDS [DONE …]

``DONE`` are runs that are not to be made again, as FAULT/ROUND. Writes one line of JSON for each
run: see :class:`tests.bench.bench_p21.Run`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from adon.machine import packages
from examples.testbed import netns
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import ON_SWITCHES
from network_provisioner.client.broker import BrokerClient
from tests.bench.bench_p21 import Run
from tests.bench.fault_network import (
    API,
    LINKS,
    OPENFLOW_PORT,
    SWITCHES,
    Plant,
    State,
    differences,
    place,
    plain,
    target,
)

_LOOK_S = 0.05
_LIMIT_S = 40.0  # after which the network is made anew
_SETTLED_S = 0.5  # for packets that are under way
_DEAD = 'target="tcp:127.0.0.1:9"'
Step = Callable[[Plant], object]


def nothing(_: Plant) -> None:
    """Nobody has to undo it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a network, for ``hold_s``, and undone.

    ``where`` names the flows, sites, switches and links that it concerns: everything that passes
    one of them may lose packets. ``is_news``: somebody has to be told. ``quiet_s``: so long after
    its end it is held to go on, as documented. ``by``: the ways to keep rates that it is about.
    """

    name: str
    where: tuple[str, ...]
    apply: Step
    hold_s: float = 0.0
    undo: Step = nothing
    is_news: bool = True
    quiet_s: float = 0.0
    by: tuple[str, ...] = ("dscp-htb", "meter")


def ofctl(switch: str, *words: str) -> Step:
    """ovs-ofctl at a switch."""
    return lambda plant: plant.switches[switch].ofctl(switch, *words)


def vsctl(switch: str, *words: str) -> Step:
    """ovs-vsctl at a switch."""
    return lambda plant: plant.switches[switch].vsctl(*words)


def tc(*lines: str) -> Step:
    """Lines for tc, where the devices of s2 are."""
    return lambda _: netns.traffic_control(place("s2"), lines)


def ends(link: str, up: bool) -> Step:
    """Both ends of a link get their carrier, or lose it."""
    word = "up" if up else "down"
    lines = [f"link set {switch}-{link}.w {word}" for switch in LINKS[link]]
    return lambda _: netns.batch(None, lines)


def middle(link: str, up: bool) -> Step:
    """What is between the ends lets packets through, or does not."""
    return lambda _: netns.batch(None, [f"link set wire-{link} {'up' if up else 'down'}"])


def device(name: str, up: bool) -> Step:
    """A switch's device."""
    return lambda _: netns.batch(place(name), [f"link set {name} {'up' if up else 'down'}"])


def kill(*names: str) -> Step:
    """End programs of switches."""

    def step(plant: Plant) -> None:
        for name in names:
            os.kill(plant.switches[name].pid, signal.SIGKILL)

    return step


def start(*names: str) -> Step:
    """Start programs of switches."""

    def step(plant: Plant) -> None:
        for name in names:
            plant.switches[name].start_switch()

    return step


def send(switch: str, number: signal.Signals) -> Step:
    """Signal the program of a switch."""
    return lambda plant: os.kill(plant.switches[switch].pid, number)


def restart(number: signal.Signals) -> Step:
    """End the broker and start it."""

    def step(plant: Plant) -> None:
        plant.stop_broker(number)
        plant.start_broker()

    return step


def flap(link: str) -> Step:
    """Three times down for 2 s and up for 2 s."""

    def step(plant: Plant) -> None:
        for up in (False, True) * 3:
            ends(link, up)(plant)
            time.sleep(2.0)

    return step


def again(switch: str, seconds: float) -> Step:
    """Somebody deletes a switch's rules twice a second."""

    def step(plant: Plant) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ofctl(switch, "del-flows", "ip")(plant)
            time.sleep(0.5)

    return step


def swap(switch: str, first: tuple[str, int], second: tuple[str, int]) -> Step:
    """Two ports of a switch are made anew, with these numbers."""
    words = ["del-port", first[0], "--", "del-port", second[0]]
    for name, number in (first, second):
        words += ["--", "add-port", switch, name]
        words += ["--", "set", "interface", name, f"ofport_request={number}"]
    return vsctl(switch, *words)


def away(switch: str) -> Step:
    """A switch has no controller, and who does not need it gets a path all the same."""

    def step(plant: Plant) -> None:
        vsctl(switch, "set", "controller", switch, _DEAD)(plant)
        time.sleep(2.0)
        plant.request_another()

    return step


def missing_at_start(plant: Plant) -> None:
    """A switch has no controller while the broker is started again."""
    plant.stop_broker(signal.SIGTERM)
    vsctl("s6", "set", "controller", "s6", _DEAD)(plant)
    plant.start_broker()
    plant.request_another()


def twin(plant: Plant) -> None:
    """Another switch has s2's datapath id."""
    plant.switches["s6"].add_bridge("twin", SWITCHES["s2"], {}, target("s6"))


def evict(plant: Plant) -> None:
    """A table has less room than there are rules, and those go whose leases end first."""
    there = plant.switches["s2"].ofctl("s2", "dump-flows").count("cookie=")
    table = ["--id=@t", "create", "flow_table", f"flow_limit={there}", "overflow_policy=evict"]
    vsctl("s2", *table, "--", "set", "bridge", "s2", "flow_tables:0=@t")(plant)
    for number in range(3):
        rule = f"cookie=0x77,priority=5,tcp,tp_dst={number},actions=drop"
        ofctl("s2", "add-flow", rule)(plant)


def no_eviction(plant: Plant) -> None:
    """The table has room again."""
    vsctl("s2", "clear", "bridge", "s2", "flow_tables")(plant)
    ofctl("s2", "del-flows", "cookie=0x77/-1")(plant)


def fill(plant: Plant) -> None:
    """Nothing more can be written where the broker keeps its state, and somebody wants a path."""
    store = plant.folder / "store" / "broker.sqlite"
    with contextlib.closing(sqlite3.connect(store, timeout=10.0)) as database:
        # Or there would be room in the log.
        truncate = "PRAGMA wal_checkpoint(TRUNCATE)"
        wait(lambda: "busy" if database.execute(truncate).fetchone()[0] else "", "room")
    with contextlib.suppress(OSError), (plant.folder / "store" / "full").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    with contextlib.suppress(AdonError):
        plant.request_another()


def empty(plant: Plant) -> None:
    """There is room again."""
    (plant.folder / "store" / "full").unlink()


def auxiliary(plant: Plant) -> None:
    """s2 opens a second connection, with auxiliary_id 1."""
    del plant
    words = struct.pack("!BBHI", 4, 0, 8, 1)
    words += struct.pack("!BBHIQIBBHII", 4, 6, 32, 2, SWITCHES["s2"], 0, 254, 1, 0, 0x4F, 0)
    with socket.create_connection(("127.0.0.1", OPENFLOW_PORT), 5.0) as line:
        line.sendall(words)
        time.sleep(1.0)


def connected(switch: str) -> Step:
    """A switch has its controller."""
    return vsctl(switch, "set", "controller", switch, f'target="{target(switch)}"')


EVERYTHING = tuple(SWITCHES)
ONE_RULE = "udp,nw_src=10.10.0.1,nw_dst=10.10.0.4,tp_dst=6002"
NORTH, HILL = ("s4-north", 4), ("s4-hill", 7)
FAULTS = (
    Fault("all rules of a switch deleted", ("s3",), ofctl("s3", "del-flows")),
    Fault("one rule deleted", ("plain",), ofctl("s5", "del-flows", ONE_RULE)),
    Fault(
        "one rule modified", ("plain",), ofctl("s5", "mod-flows", f"{ONE_RULE},actions=drop")
    ),
    Fault("groups deleted", ("split",), ofctl("s1", "del-groups")),
    Fault("meters deleted", ("s1",), ofctl("s1", "del-meters"), by=("meter",)),
    Fault(
        "tc qdisc del", ("east23",), tc("qdisc del dev s2-east23 root"), by=("dscp-htb",)
    ),
    Fault(
        "queues of a device removed",
        ("east23",),
        tc("filter del dev s2-east23 parent 7ad0:"),
        by=("dscp-htb",),
    ),
    Fault("switch program killed and started", ("s2",), kill("s2"), 2.0, start("s2")),
    Fault("all switch programs killed and started", EVERYTHING, kill(*SWITCHES), 2.0,
          start(*SWITCHES)),
    Fault("SIGSTOP of a switch for 8 s", ("s2",), send("s2", signal.SIGSTOP), 8.0,
          send("s2", signal.SIGCONT)),
    Fault("controller connection away for 4 s", (),
          away("s2"), 2.0, connected("s2")),
    Fault("a switch missing at the broker's start", (), missing_at_start, 2.0, connected("s6")),
    Fault("auxiliary connection", (), auxiliary, is_news=False),
    Fault("two switches with one dpid", (), twin, 4.0, vsctl("s6", "del-br", "twin")),
    Fault("link down for 1 s", ("lower",), ends("lower", False), 1.0, ends("lower", True)),
    Fault("link down for 10 s", ("west51",), ends("west51", False), 10.0, ends("west51", True)),
    Fault("only link down for 1 s", ("s6",), ends("branch", False), 1.0, ends("branch", True)),
    Fault("link silent for 5 s, ports up", ("east34",), middle("east34", False), 5.0,
          middle("east34", True)),
    Fault("link flaps every 2 s", ("lower",), flap("lower"), quiet_s=15.0),
    Fault("DTN's port bounces for 1 s", ("north",), device("s4-north", False), 1.0,
          device("s4-north", True)),
    Fault("two ports swap their numbers", ("north", "hill"),
          swap("s4", (NORTH[0], HILL[1]), (HILL[0], NORTH[1])), 4.0, swap("s4", NORTH, HILL)),
    Fault("broker killed and started", (), restart(signal.SIGKILL), is_news=False),
    Fault("broker ended and started", (), restart(signal.SIGTERM), is_news=False),
    Fault("fail_mode changed", (), vsctl("s2", "set", "bridge", "s2", "fail_mode=standalone"),
          5.0, vsctl("s2", "set", "bridge", "s2", "fail_mode=secure")),
    Fault("table full, rules evicted", ("s2",), evict, 4.0, no_eviction),
    Fault("another controller keeps deleting", ("s5",), again("s5", 6.0)),
    Fault("store full for 4 s", (), fill, 4.0, empty),
)  # fmt: skip


@dataclass
class Watch:
    """Asks for health all the time, and reads the log."""

    plant: Plant
    at: float | None = None
    words: str = ""
    reports: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, since: float) -> None:
        """Note the first report after a monotonic second, and how many there are."""
        client = BrokerClient(f"http://{API}", 0.5)
        before = _repairs(client)
        read = self.plant.log.stat().st_size
        problem = ""
        while not self._over.wait(_LOOK_S):
            now, reports = time.monotonic(), []
            with contextlib.suppress(AdonError):
                health = client.health()
                if health["problem"] not in ("", problem):
                    reports.append(health["problem"])
                problem = health["problem"]
                count = _count(health)
                if count > before:
                    reports.append("repaired")
                before = count
            with self.plant.log.open() as log:
                log.seek(read)
                warnings = (line.partition(" WARNING ")[2].strip() for line in log.readlines())
                lines = [*filter(None, warnings)]
                read = log.tell()
            reports = lines or reports
            self.reports += len(lines)
            if reports and self.at is None:
                self.at, self.words = now - since, reports[0]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """As long as this lasts."""
        thread = threading.Thread(target=self.run, args=[time.monotonic()], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def _repairs(client: BrokerClient) -> int:
    with contextlib.suppress(AdonError):
        return _count(client.health())
    return 0


def _count(health: dict[str, object]) -> int:
    switches: Sequence[dict[str, dict[str, int]]] = health["switches"]  # type: ignore[assignment]
    return sum(sum(switch["repairs"].values()) for switch in switches)


@dataclass(frozen=True, slots=True)
class Before:
    """What a network is like with its transits, and without."""

    full: State
    bare: State
    paths: dict[str, set[str]]

    def differs(self, after: Before) -> list[str]:
        """What is there beside, or missing, after another look."""
        return [
            line
            for old, new in ((self.bare, after.bare), (self.full, after.full))
            for line in differences(plain(old), plain(new))
        ]


def look(plant: Plant) -> Before:
    """With transits that are asked for anew. Raises TimeoutError."""
    plant.release()
    bare = plant.state()
    plant.request()
    wait(plant.problem, "transits")
    return Before(plant.state(), bare, plant.paths())


def wait(problem: Callable[[], str], what: str, limit_s: float = _LIMIT_S) -> str:
    """Until there is no problem; the last one. Raises TimeoutError."""
    begun, last = time.monotonic(), ""
    while words := problem():
        last = words
        if time.monotonic() > begun + limit_s:
            raise TimeoutError(f"no {what} within {limit_s:g} s: {words}")
        time.sleep(_LOOK_S)
    return last


def difference(plant: Plant, before: Before) -> str:
    """What is not there again, "" for nothing. A transit on another path than before has its
    minimum there, and the switches have its rules."""
    if problem := plant.problem():
        return problem
    if plant.paths() == before.paths:
        return " | ".join(differences(before.full, plant.state())[:4])
    with contextlib.suppress(AdonError):
        missing = {*plant.ids.values()} - {*plant.client.counters()["installed"]}
        return f"not installed: {', '.join(sorted(missing))}" if missing else ""
    return "the broker does not say what is installed"


def measure(plant: Plant, fault: Fault, number: int, before: Before) -> tuple[Run, Before]:
    """One fault, and what the network is like after it, with transits that are asked for anew.
    Raises TimeoutError where they get no path."""
    concerned = {name for name, on in before.paths.items() if on & set(fault.where)}
    watch, back_s, left, last = Watch(plant), None, [], ""
    began = time.monotonic()
    with watch.watching():
        fault.apply(plant)
        time.sleep(fault.hold_s)
        fault.undo(plant)
        ended = time.monotonic()
        with contextlib.suppress(TimeoutError):
            last = wait(lambda: difference(plant, before), "return", _LIMIT_S)
            back_s = max(0.0, time.monotonic() - ended - fault.quiet_s)
    until = time.monotonic()
    time.sleep(_SETTLED_S)
    lost = plant.lost(began, until)
    if back_s is None:
        left = [plant.client.health()["problem"], *(
            f"{name} {t.state}: {t.reason}"
            for name, t in plant.transits().items() if t.state not in ON_SWITCHES
        ), *differences(before.full, plant.state())]  # fmt: skip
    else:
        before, was = look(plant), before
        left = was.differs(before)
    own, others = (
        [lost[name] for name in lost if (name in concerned) is inside] for inside in (True, False)
    )
    run = Run(
        plant.bandwidth,
        fault.name,
        number,
        fault.is_news,
        watch.at,
        watch.words,
        watch.reports,
        max((gap for _, gap in own), default=0.0),
        max((gap for _, gap in others), default=0.0),
        sum(count for count, _ in others),
        back_s,
        left,
        last,
    )
    return run, before


def main(bandwidth: str, folder: Path, rounds: int, done: set[str]) -> None:
    """All faults in turn, on a network that is made anew when one of them has spoilt it."""
    programs = packages.ensure("openvswitch", progress=lambda _: None) / "wrap"
    left = [
        (fault, number)
        for number in range(rounds)
        for fault in FAULTS
        if bandwidth in fault.by and f"{fault.name}/{number}" not in done
    ]
    made = 0
    while left:
        made += 1
        here = folder / str(made)
        here.mkdir(parents=True)
        with Plant(programs, here, bandwidth) as plant:
            before = look(plant)
            while left:
                fault, number = left.pop(0)
                try:
                    run, before = measure(plant, fault, number, before)
                except Exception as error:  # whatever a fault leads to is a result
                    traceback.print_exc()
                    words = f"{type(error).__name__}: {error}"
                    run = Run(bandwidth, fault.name, number, fault.is_news, left=[words])
                print(json.dumps(asdict(run)), flush=True)
                if run.back_s is None or run.left:
                    break


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), set(sys.argv[4:]))
