"""What running applications hold at the campus edge, from a file that people read and write,
and what runs now.

running:
- application: neuroblastoma
  priority: 8                       # higher is more important
  workers: {tacc: 4}
  bandwidth: {"mu>tacc": 500 Mb/s}  # between sites, or between neighbours of the network
  layer: l2                         # of its path; leave out where it has none
waiting:                            # the scheduler's queue
- {application: montage, priority: 3}

HTCondor is asked what its pool runs now, the broker what its network carries. Site selection is
better off with the answers and works without them. A source that does not answer is named in one
line, and the catalogs and the archive are used instead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from adon.config.yamlfile import read_yaml
from condor_plugins.pool.sitepool import SitePool, pool_from_json
from network_provisioner.base import fields
from network_provisioner.base.errors import AdonError, BrokerError, InputError, did_you_mean
from network_provisioner.base.units import parse_rate
from network_provisioner.client.broker import BrokerClient, bad_answer
from network_provisioner.topology.graph import LAYERS, Link, Node, Topology
from site_selector.estimates.running import Holding, Live, bandwidth_of, workers_of
from site_selector.wholefile import write_whole

_MOST_WORKERS = 10**9
_MOST_PRIORITY = 10**6

Say = Callable[[str], None]
"""Takes one line for people."""
_POOL_TIMEOUT_S = 15.0  # a collector that drops packets lets the bindings wait much longer
BROKER_TIMEOUT_S = 2.0


def ignore(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An application in the scheduler's queue."""

    application: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """Who runs, and who waits, the most important first."""

    running: tuple[Holding, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    def with_running(self, holding: Holding) -> Holdings:
        """A copy with an application that was given its resources, and waits no more."""
        rest = tuple(w for w in self.waiting if w.application != holding.application)
        return Holdings((*self.running, holding), rest)

    def with_waiting(self, entry: Waiting) -> Holdings:
        """A copy with an application in the queue: behind those that are as important."""
        rest = [w for w in self.waiting if w.application != entry.application]
        return Holdings(self.running, tuple(sorted([*rest, entry], key=lambda w: -w.priority)))

    def place_of(self, application: str) -> int:
        """The place in the queue, from 1."""
        return 1 + [w.application for w in self.waiting].index(application)


def read_holdings(path: Path, sites: Iterable[str], topology: Topology | None) -> Holdings:
    """Read the file. Raises InputError with one line."""
    data = read_yaml(path)
    try:
        return parse_holdings(data, list(sites), topology)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse_holdings(data: object, sites: Sequence[str], topology: Topology | None) -> Holdings:
    """The holdings in parsed YAML. Raises InputError."""
    fields.known_keys(data, ("running", "waiting"), "holdings")
    assert isinstance(data, Mapping)
    running = [_holding(item, sites, topology) for item in _entries(data, "running")]
    waiting = []
    for item in _entries(data, "waiting"):
        name = fields.text(item, "application", "waiting: an application")
        fields.known_keys(item, ("application", "priority"), f"waiting: {name!r}")
        waiting.append(Waiting(name, _priority(item, name)))
    names = [h.application for h in running] + [w.application for w in waiting]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"application {name!r} is listed twice, expected it once")
    return Holdings(tuple(running), tuple(sorted(waiting, key=lambda w: -w.priority)))


def save_holdings(path: Path, holdings: Holdings) -> None:
    """Write the file, all or nothing. Raises InputError."""
    text = yaml.safe_dump(holdings_dict(holdings), sort_keys=False, allow_unicode=True)
    write_whole(path, lambda stream: stream.write(text), "the holdings")


def holdings_dict(holdings: Holdings) -> dict[str, Any]:
    """As :func:`parse_holdings` reads it, rates in bits per second."""
    running = []
    for holding in holdings.running:
        item: dict[str, Any] = {
            "application": holding.application, "priority": holding.priority,
            "workers": {}, "bandwidth": {},
        }  # fmt: skip
        for name, amount in holding.amounts.items():
            kind, _, subject = name.partition(" ")
            if kind == "bandwidth":
                item["bandwidth"][subject] = float(amount)
            else:
                item["workers"][subject.removeprefix("at ")] = int(amount)
        running.append(item | ({"layer": holding.layer} if holding.layer else {}))
    return {
        "running": running,
        "waiting": [
            {"application": w.application, "priority": w.priority} for w in holdings.waiting
        ],
    }


def _entries(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return fields.items(data, key, "holdings") if data.get(key) is not None else []


def _holding(item: Mapping[str, Any], sites: Sequence[str], topology: Topology | None) -> Holding:
    name = fields.text(item, "application", "running: an application")
    label = f"running: {name!r}"
    known = ("application", "priority", "workers", "bandwidth", "layer")
    fields.known_keys(item, known, label)
    layer = item.get("layer", "")
    if layer not in ("", *LAYERS):
        raise InputError(f"{label}: layer is {layer!r}, expected one of {', '.join(LAYERS)}")
    amounts: dict[str, float] = {}
    workers = fields.mapping(
        item, "workers", label, lambda v, what: fields.whole(v, what, _MOST_WORKERS)
    )
    for site, count in (workers or {}).items():
        if site not in sites:
            near = did_you_mean(site, sites)
            raise InputError(
                f"{label}: workers at {site!r}, expected one of {', '.join(sites)}{near}"
            )
        amounts[workers_of(site)] = float(count)
    for path, rate in (fields.mapping(item, "bandwidth", label, parse_rate) or {}).items():
        for resource in _resources(path, layer, sites, topology, label):
            amounts[resource] = amounts.get(resource, 0.0) + rate
    return Holding(name, amounts, _priority(item, name), layer)


def _resources(
    path: str, layer: str, sites: Sequence[str], topology: Topology | None, label: str
) -> list[str]:
    """The links that a path between sites or neighbours leads over."""
    src, arrow, dst = path.partition(">")
    if topology is None:
        if not arrow or src not in sites or dst not in sites:
            raise InputError(
                f"{label}: bandwidth of {path!r}, expected SITE>SITE with {', '.join(sites)}"
            )
        return [bandwidth_of(src, dst)]
    nodes = topology.nodes
    if not arrow or src not in nodes or dst not in nodes:
        raise InputError(
            f"{label}: bandwidth of {path!r}, expected NODE>NODE with {', '.join(nodes)}"
        )
    if src in topology.sites and dst in topology.sites:
        paths = topology.candidate_paths(src, dst)
        fitting = [p for p in paths if p.layer == layer] if layer else paths
        if not fitting:
            raise InputError(f"{label}: the network has no path {path} in layer {layer or 'any'}")
        return [bandwidth_of(a, b) for a, b in fitting[0].hops]
    topology.link(src, dst)
    return [bandwidth_of(src, dst)]


def _priority(item: Mapping[str, Any], name: str) -> int:
    return fields.whole(item.get("priority", 0), f"{name!r}: priority", _MOST_PRIORITY)


def ask(
    pool: str | None,
    broker: BrokerClient | None,
    *,
    topology: Topology | None = None,
    say: Say = ignore,
    broker_may_rest: bool = False,
) -> Live:
    """Ask the collector ``pool`` (``host:port``, "" for that of CONDOR_CONFIG, None for nobody) and
    the ``broker`` (None for nobody).

    ``topology`` is what is assumed of the network where the broker does not answer, about which
    nothing is said where it ``broker_may_rest``.
    """
    site_pools = None
    if pool is not None:
        try:
            site_pools = ask_pool(pool)
        except AdonError as error:
            say(f"{error}; the archive and the catalogs are used instead")
    if broker is not None:
        try:
            network, used = ask_network(broker)
            return Live(site_pools, network, used, "what is reserved now (broker)")
        except BrokerError as error:
            if not (broker_may_rest and error.code == "unreachable"):
                say(f"{error}; the network is taken as {'idle' if topology else 'the catalogs'}")
    return Live(site_pools, topology)


def ask_pool(collector: str) -> dict[str, SitePool]:
    """Every site of the pool now. Raises AdonError if HTCondor cannot be asked.

    In a process of its own: the bindings read their configuration once, and wait as long as they
    like for a collector that does not answer.
    """
    where = f"HTCondor at {collector}" if collector else "HTCondor"
    command = [sys.executable, "-P", "-m", "condor_plugins.collector"]
    command += [collector] if collector else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_POOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise AdonError(f"{where} did not answer within {_POOL_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise AdonError(f"{where} did not answer: {why.rstrip('.')}")
    site_pools = pool_from_json(done.stdout)
    if not any(site.slots for site in site_pools.values()):
        raise AdonError(
            f"{where} has no slot that names its site (AdonSite or PegasusSite of its startd)"
        )
    return site_pools


def ask_network(broker: BrokerClient) -> tuple[Topology, dict[tuple[str, str], float]]:
    """The broker's network, and what is reserved on each directed link now in bits per second.

    Raises BrokerError.
    """
    data = broker.topology()
    with bad_answer(broker.url, "topology"):
        return network_from_broker(data)


def network_from_broker(
    data: Mapping[str, Any],
) -> tuple[Topology, dict[tuple[str, str], float]]:
    """What ``GET /v1/topology`` answers, as a topology and what is reserved on its links.

    Raises InputError if the network is none, KeyError, TypeError or ValueError if the answer
    is something else.
    """
    links = [
        Link(
            str(item["a"]),
            str(item["b"]),
            float(item["capacity_bps"]),
            float(item["delay_s"]),
            float(item["loss"]),
            str(item["layer"]),
        )
        for item in data["links"]
    ]
    nodes = [Node(str(item["name"]), str(item["kind"])) for item in data["nodes"]]
    used = {
        (str(load["from"]), str(load["to"])): float(load["reserved_bps"])
        for item in data["links"]
        for load in item["load"]
    }
    return Topology(nodes, links), used
