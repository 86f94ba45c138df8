"""P17: is a transfer with ADON ever given less than without it, on fast networks.

1,000 random requests on each network, one after the other on idle paths, as people make them who
configured nothing: some say what they need at least, name ports or an application, or are small.
What each may move at is read from what the switches are told: the lowest ceiling of its class or
queue on its path's devices, or its meter. Without ADON it would have all of the path that best
effort takes. The peer is the same with a ceiling of 1 Gb/s by default, as ADON had it once.

As root, the same is measured between two hosts of the testbed's switches, whose links are pairs of
veth: as much as they carry.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from adon.machine import box, packages
from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import LIVE, TransitRequest
from network_provisioner.broker import Broker
from network_provisioner.controllers.plan import Planner, SwitchPlan
from network_provisioner.controllers.routes import default_path
from network_provisioner.controllers.rules import Meter
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import BUILT_IN, templates_from_dict
from network_provisioner.topology.graph import Link, Node, Topology
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
RATES = (10e9, 40e9, 100e9)
REQUESTS = 1000
SITES = 8
METHODS = ("dscp-htb", "queue", "meter")
APPLICATIONS = ("", "soykb", "montage", "1000genome", "casa-wind")
BEFORE = {"default": {**BUILT_IN["default"], "rspec": {"max_throughput": "1 Gb/s"}}}


class Told(SimulatedController):
    """Keeps the circuits that it was told last."""

    circuits: Sequence[Circuit] = ()

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        super().apply(circuits, queues)
        self.circuits = circuits


def make_network(rate_bps: float, rng: Random) -> Topology:
    """Sites at switches of their own, each two of them joined by an overlay and some by a second
    one; links have the rate, or up to four times as much."""
    nodes = [
        Node(f"site{i}", "site", address=f"10.1.{i}.1", mac=f"02:00:00:00:00:{i:02x}")
        for i in range(SITES)
    ]
    nodes += [Node(f"s{i}", "switch", dpid=i + 1) for i in range(SITES)]
    ports = [0] * SITES

    def joined(a: int, b: int, **more: Any) -> Link:
        numbers = {}
        for switch in (a, b):
            ports[switch] += 1
            numbers[f"s{switch}"] = ports[switch]
        devices = {name: f"{name}-{number}" for name, number in numbers.items()}
        capacity, delay_s = rate_bps * rng.choice((1, 1, 2, 4)), rng.uniform(0.0, 0.3)
        return Link(f"s{a}", f"s{b}", capacity, delay_s, 0.0, "l2", numbers, devices, **more)

    links = [joined(*pair) for pair in combinations(range(SITES), 2)]
    links += [
        joined(*pair, name=f"again-{pair[0]}-{pair[1]}")
        for pair in combinations(range(SITES), 2)
        if rng.random() < 0.3
    ]
    links += [
        Link(f"site{i}", f"s{i}", rate_bps, ports={f"s{i}": 99}, devices={f"s{i}": f"s{i}-site"})
        for i in range(SITES)
    ]
    return Topology(nodes, links)


def make_request(number: int, rate_bps: float, rng: Random) -> TransitRequest:
    """One that sets no ceiling."""
    src, dst = rng.sample(range(SITES), 2)
    port = rng.randrange(1024, 65_536)
    return TransitRequest(
        f"r{number}",
        f"site{src}",
        f"site{dst}",
        size_bytes=rng.choice((None, round(10 ** rng.uniform(4, 15)))),
        min_bps=rng.choice((None, None, rate_bps * rng.uniform(1e-6, 0.85))),
        application=rng.choice(APPLICATIONS),
        flows=() if rng.random() < 0.5 else (Flow(dst_ports=(port, port)),),
    )


def allowed_bps(topology: Topology, plan: SwitchPlan, circuit: Circuit) -> float:
    """What the switches let a circuit have where all else is idle, b/s."""
    group = plan.carrier(circuit.id)
    assert group is not None
    hops = [*pairwise(group.path)]
    rates = [topology.link(*hop).capacity_bps for hop in hops]
    meters = {entry.number: entry.rate_kbps for entry in plan.entries if isinstance(entry, Meter)}
    rates += [1000 * meters[rule.meter] for rule in plan.rules_of(group) if rule.meter]
    for a, b in hops:
        device = (topology.link(a, b).devices or {}).get(a)
        for shape in plan.shapes:
            if shape.device == device:
                mark = group.branches[0].mark
                rates += [
                    traffic_class.ceil_bps
                    for traffic_class in shape.classes
                    if traffic_class.mark == mark
                ]
    return min(rates)


def fewer(
    tell: Callable[[str], None], rate_bps: float, templates: Mapping[str, Any] | None, count: int
) -> tuple[int, float, int]:
    """How many of the requests get less than without ADON, the smallest part that one gets, and
    how many of them have a path."""
    rng = Random(f"{rate_bps}")
    topology = make_network(rate_bps, rng)
    planners = [Planner(topology, method) for method in METHODS]
    less, least, live = 0, 1.0, 0
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        controller = Told(topology)
        store = SqliteStore(Path(folder) / "state.sqlite")
        broker = Broker(topology, templates_from_dict(templates), controller, store)
        broker.start()
        try:
            for number in range(count):
                request = make_request(number, rate_bps, rng)
                usual = default_path(topology, request.src, request.dst)
                assert usual is not None
                try:
                    transit = broker.request(request)
                except BrokerError:  # its minimum is above a ceiling that nobody asked for
                    less, least = less + 1, 0.0
                    continue
                if transit.state in LIVE:
                    live += 1
                    (circuit,) = controller.circuits
                    plans = [
                        planner.plan([circuit], circuit.lease_until - 1) for planner in planners
                    ]
                    lowest_bps = min(allowed_bps(topology, plan, circuit) for plan in plans)
                    part = lowest_bps / usual.capacity_bps
                    less += part < 1
                    least = min(least, part)
                    if part < 1 and templates is None:
                        tell(f"{part:.3g} of {usual.capacity_bps:.3g} b/s: {request}")
                broker.release(request.id)
        finally:
            broker.stop()
    return less, least, live


@bench("P17")
def never_slower(tell: Tell) -> Iterable[Figure]:
    """About a minute, and one more as root."""
    for rate_bps in RATES:
        what = f"{rate_bps / 1e9:.0f} Gb/s"
        less, least, live = fewer(tell, rate_bps, None, REQUESTS)
        before, cut, _ = fewer(tell, rate_bps, BEFORE, REQUESTS)
        tell(f"{what}: {live} of {REQUESTS} had a path of their own, the others went best effort")
        ours = "1 Gb/s by default"
        words = f"of {REQUESTS} requests at {what}, given less than without ADON"
        yield Figure(words, less, "requests", "lower", 0.0, {ours: before})
        yield Figure(f"smallest part of the path, {what}", least, "", "higher", 1.0, {ours: cut})


@bench("P17")
def over_veth(tell: Tell) -> Iterable[Figure]:
    """As root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    packages.ensure("openvswitch", progress=tell)
    words = [*box.command(), sys.executable, "-m", "tests.bench.rates_inside"]
    process = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    rates = json.loads(process.stdout.splitlines()[-1])
    without, ours = (median(rates[name]) for name in ("without", "with"))
    tell(f"rounds: {rates}")
    peers = {"without": without / 1e9, "1 Gb/s by default": median(rates["capped"]) / 1e9}
    name = "one stream over veth pairs, with a path"
    yield Figure(name, ours / 1e9, "Gb/s", "higher", None, peers)
