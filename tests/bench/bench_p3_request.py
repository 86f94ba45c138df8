"""P3, the whole request: the decision, the store's two writes, and a controller that is told.

The controller is the simulated one: it makes the same plan as the real one and sends it nowhere.
The peer is the same broker with few live transits, because what grows with them is what is in
question: a controller is always told everything that should be there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from random import Random

from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.graph import Link, Node, Topology
from tests.bench import Figure, Tell, bench, percentiles, timed
from tests.made_transit import made_transit

SITES = 12
LIVE = (100, 10_000)
REQUESTS = 100
RATE_BPS = 1e6
TEMPLATES = {
    "small": {"qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "2 Mb/s"}}
}
POLICY = {
    "name": "all", "type": "project", "strategy": "7-3", "action": "start", "specs": ["cms", "*"]
}  # fmt: skip


def make_network() -> Topology:
    """Every site at a switch of its own, every two switches joined."""
    names = [(f"site{i}", f"switch{i}") for i in range(SITES)]
    nodes = [
        Node(site, "site", address=f"10.1.{i}.1", mac=f"02:00:00:00:00:{i:02x}")
        for i, (site, _) in enumerate(names)
    ]
    nodes += [Node(switch, "switch", dpid=i + 1) for i, (_, switch) in enumerate(names)]
    links = [Link(site, switch, 100e9, ports={switch: 100}) for site, switch in names]
    links += [
        Link(names[i][1], names[j][1], 100e9, 0.01, ports={names[i][1]: j, names[j][1]: i})
        for i, j in combinations(range(SITES), 2)
    ]
    return Topology(nodes, links)


def milliseconds_per_request(folder: Path, live: int, policed: bool = False) -> list[float]:
    """Milliseconds of each request, while ``live`` transits hold bandwidth; ``policed``: a policy
    governs every link and bounds what their class may reserve."""
    topology, rng = make_network(), Random(4)
    store = SqliteStore(folder / f"{live}-{policed}.sqlite")
    # Put there as a broker that ended leaves them: the new one takes them over.
    for number in range(live):
        i, j = rng.sample(range(SITES), 2)
        path = [f"site{i}", f"switch{i}", f"switch{j}", f"site{j}"]
        store.put(
            made_transit(
                f"old{number}", path[0], path[-1], TransitState.INSTALLED, "small",
                path=path, layer="l2", requested_bps=RATE_BPS, granted_bps=RATE_BPS,
                max_bps=2 * RATE_BPS, installed_at=time.time(), lease_until=time.time() + 3600,
            )
        )  # fmt: skip
    policies = PolicyRegistry(topology, store) if policed else None
    if policies is not None:
        links = [[link.a, link.b] for link in topology.links]
        policies.post(POLICY | {"time": [None, None], "links": links})
    controller = SimulatedController(topology)
    templates = templates_from_dict(TEMPLATES)
    broker = Broker(topology, templates, controller, store, policies=policies)
    broker.start()
    spent = []
    try:
        for number in range(REQUESTS):
            i, j = rng.sample(range(SITES), 2)
            ask = TransitRequest(
                f"new{number}", f"site{i}", f"site{j}", 10**9, template="small", lease_s=3600
            )
            transit, seconds = timed(lambda: broker.request(ask))  # noqa: B023
            spent.append(1e3 * seconds)
            if transit.state is not TransitState.INSTALLED:
                raise AssertionError(f"{transit.state}: {transit.reason}")
            broker.release(ask.id)
    finally:
        broker.stop()
    return spent


@bench("P3")
def whole_request(tell: Tell) -> Iterable[Figure]:
    """From the broker's door to its answer, without HTTP."""
    ms_by_live = {}
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        for live in LIVE:
            tell(f"{REQUESTS} requests with {live:,} live transits")
            ms_by_live[live] = milliseconds_per_request(Path(name), live)
        few, many = LIVE
        tell(f"the same with {many:,}, and a policy on every link")
        policed = milliseconds_per_request(Path(name), many, policed=True)
    peers = {f"with {few} live transits": ms_by_live[few]}
    what = f"whole request with {many:,} live transits"
    yield from percentiles(what, "ms", ms_by_live[many], peers, goal=10.0)
    what += ", a policy on every link"
    yield from percentiles(what, "ms", policed, {"no policy": ms_by_live[many]}, goal=10.0)
