"""Circuits put together as the switches can tell them apart. Pure.

A *group* is everything between two sites, one way, that one set of rules carries: the packets that
a circuit's hosts and flows name, or all that none names. Circuits of one pair of sites that name
neither are one group, as are those that name the same. The acknowledgements of a group's data are a
group of the other direction, or part of the data there.

A group has one *branch* for each path that it takes at the same time.

Switches match ranges of ports as values under masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from network_provisioner.base.controller import Circuit, Redirect
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow, Ports
from network_provisioner.base.units import MAX_RATE_BPS, format_rate
from network_provisioner.controllers.rules import PORT_BITS, Masked
from network_provisioner.topology.graph import Hop, Topology

# Each is a rule on every switch of the path, and one more for the acknowledgements.
MAX_MATCHES = 128

Pair = tuple[str, str]
"""Two sites: packets go from the first to the second."""
# Text, because it is looked up often, and text remembers its hash.
GroupKey = str

# One 52 to 66 byte acknowledgement for every second 1500 byte segment is 2.2 %; rounded up.
ACK_SHARE = 0.03


def port_masks(ports: Ports) -> list[Masked]:
    """The fewest aligned values under masks for a range of ports, both ends included, in order.

    One port is one, and 50000–51000 is nine; the worst range needs 30.
    """
    first, last = ports
    masks = []
    while first <= last:
        # The largest block that begins here: as aligned as ``first``, no longer than what is left.
        size = first & -first or PORT_BITS + 1
        while size > last - first + 1:
            size >>= 1
        masks.append((first, PORT_BITS & ~(size - 1)))
        first += size
    return masks


def matches(flow: Flow) -> list[tuple[Masked | None, Masked | None]]:
    """Source and destination port of every rule that a flow needs; None matches any port."""
    sources = port_masks(flow.src_ports) if flow.src_ports else [None]
    targets = port_masks(flow.dst_ports) if flow.dst_ports else [None]
    return [(src, dst) for src in sources for dst in targets]


def reverse(flow: Flow) -> Flow:
    """The packets that answer a flow's."""
    return Flow(flow.protocol, flow.dst_ports, flow.src_ports)


def overlap(flow: Flow, other: Flow) -> bool:
    """Whether a packet may belong to both."""
    return (
        flow.protocol == other.protocol
        and _meet(flow.src_ports, other.src_ports)
        and _meet(flow.dst_ports, other.dst_ports)
    )


def _meet(ports: Ports | None, other: Ports | None) -> bool:
    return ports is None or other is None or (ports[0] <= other[1] and other[0] <= ports[1])


def check_overlap(groups: Iterable[tuple[Sequence[Flow], Circuit]]) -> None:
    """Raises InputError where two groups' flows have packets in common.

    Each group is given by its flows and one of its circuits. Those that are exactly the same are
    one group, and not to be given twice.
    """
    by_pair: dict[tuple[str, ...], list[tuple[Flow, Circuit]]] = {}
    for flows, circuit in groups:
        pair = (circuit.path[0], circuit.path[-1], *circuit.hosts)
        by_pair.setdefault(pair, []).extend((flow, circuit) for flow in flows)
    for named in by_pair.values():
        # Along the ports that more of them name, only neighbours can meet.
        targets = sum(flow.dst_ports is not None for flow, _ in named)
        by_target = 2 * targets >= len(named)

        def first(entry: tuple[Flow, Circuit], by_target: bool = by_target) -> int:
            ports = entry[0].dst_ports if by_target else entry[0].src_ports
            return ports[0] if ports else 0

        open_: list[tuple[int, Flow, Circuit]] = []
        for flow, circuit in sorted(named, key=first):
            begin = first((flow, circuit))
            open_ = [entry for entry in open_ if entry[0] >= begin]
            for _, other, holder in open_:
                if holder is not circuit and overlap(flow, other):
                    raise InputError(
                        f"circuits {holder.id!r} and {circuit.id!r} both name packets of "
                        f"{_words(flow)} from {circuit.path[0]} to {circuit.path[-1]}, expected "
                        "ports of its own for each, or exactly the same"
                    )
            ports = flow.dst_ports if by_target else flow.src_ports
            open_.append((ports[1] if ports else 65535, flow, circuit))


def _words(flow: Flow) -> str:
    ends = (("source", flow.src_ports), ("destination", flow.dst_ports))
    named = [f"{what} port {p[0]}–{p[1]}" for what, p in ends if p]
    return " ".join([flow.protocol, *named])


def paths_of(circuit: Circuit) -> tuple[tuple[str, ...], ...]:
    """All paths that a circuit takes at the same time."""
    return tuple(part.path for part in circuit.all_parts)


def check_circuit(circuit: Circuit) -> None:
    """Raises InputError for rates, leases, flows or parts that make no sense."""
    label = f"circuit {circuit.id!r}"
    if not circuit.id:
        raise InputError("a circuit has an empty id, expected a name")
    _check_rates(label, circuit.min_bps, circuit.max_bps)
    if math.isnan(circuit.lease_until):
        raise InputError(f"{label} has no lease_until, expected Unix seconds")
    flows = circuit.redirect.flows if circuit.redirect else circuit.flows
    needed = sum(len(matches(flow)) for flow in flows)
    if len(circuit.hosts) not in (0, 2):
        raise InputError(f"{label} names the hosts {circuit.hosts}, expected two or none")
    if needed > MAX_MATCHES:
        raise InputError(
            f"{label} names ports that need {needed} rules on each switch, expected at most "
            f"{MAX_MATCHES}: ranges that begin and end at round binary numbers need fewer"
        )
    if circuit.parts:
        _check_parts(circuit, label)


def check_path(topology: Topology, circuit_id: str, path: tuple[str, ...]) -> None:
    """Raises InputError for a path that is none, or that leads through a site or a relay."""
    label = f"circuit {circuit_id!r}"
    if len(path) < 3 or len(set(path)) != len(path):
        raise InputError(
            f"{label} has the path {'>'.join(path)!r}, expected two sites with switches "
            "between them and no node twice"
        )
    if topology.end(path[0]).kind != topology.end(path[-1]).kind:
        raise InputError(
            f"{label} joins {path[0]} and {path[-1]}, expected two sites or two relays"
        )
    for a, b in pairwise(path):
        topology.link(a, b)
    for name in path[1:-1]:
        kind = topology.nodes[name].kind
        if kind in ("site", "relay"):
            raise InputError(f"{label} leads through the {kind} {name!r}, expected switches only")


def _check_parts(circuit: Circuit, label: str) -> None:
    paths = paths_of(circuit)
    if circuit.path != paths[0]:
        raise InputError(f"{label} has a path that is not its first part's, expected that one")
    if len(set(paths)) != len(paths):
        raise InputError(f"{label} has two parts on one path, expected paths of their own")
    for part in circuit.parts:
        _check_rates(f"{label}, a part", part.min_bps, part.max_bps)
    # One switch deals the connections out, so all parts begin at it.
    if len({(path[:2], path[-1]) for path in paths}) > 1:
        raise InputError(
            f"{label} has parts that begin with "
            f"{' and '.join(sorted({'>'.join(path[:2]) for path in paths}))}, expected the same "
            "two sites and the same first switch"
        )


def _check_rates(label: str, min_bps: float, max_bps: float) -> None:
    if not (math.isfinite(min_bps) and min_bps >= 0):
        raise InputError(f"{label} has min_bps {min_bps!r}, expected 0 b/s or more")
    if math.isnan(max_bps) or max_bps < min_bps or max_bps <= 0:
        raise InputError(
            f"{label} has max_bps {max_bps!r}, expected more than 0 b/s and no less than "
            f"its min_bps {min_bps!r}"
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """One path of a group. ``ack_bps`` is what the acknowledgements on it need.

    ``mark`` is the DSCP value that names its class on shaped devices and its branch on switches, 0
    where neither is needed.
    """

    path: tuple[str, ...]
    min_bps: float
    max_bps: float
    ack_bps: float = 0.0
    mark: int = 0


@dataclass(frozen=True, slots=True)
class CircuitGroup:
    """Traffic from ``src`` to ``dst`` that has circuits.

    ``flows`` are its packets as they go this way, empty for all that no other group names, and
    ``hosts`` the addresses of source and destination, empty for all of both sites. ``data`` are
    the ids of circuits from src to dst, ``acks`` of those from dst to src. ``lease_until`` is
    the end of the longest lease. ``queue`` is the queue its data shares (or the data that it
    answers), "" for none; ``sure`` whether any of it was guaranteed a rate. Where ``src`` and
    ``dst`` are relays, ``redirect`` says which packets they carry, as data flows.
    """

    src: str
    dst: str
    flows: tuple[Flow, ...]
    branches: tuple[Branch, ...]
    data: tuple[str, ...]
    acks: tuple[str, ...]
    lease_until: float
    queue: str = ""
    sure: bool = True
    key: GroupKey = ""
    """What tells it from all others."""
    hosts: tuple[str, ...] = ()
    redirect: Redirect | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """Its path, the first where it has several."""
        return self.branches[0].path

    @property
    def sites(self) -> Pair:
        """The sites whose packets it carries, as they go this way."""
        if self.redirect is None:
            return self.src, self.dst
        there = self.redirect.src, self.redirect.dst
        return there if self.data else there[::-1]

    @property
    def min_bps(self) -> float:
        """What its data is guaranteed."""
        return sum(branch.min_bps for branch in self.branches)

    @property
    def max_bps(self) -> float:
        """What its data may take."""
        return sum(branch.max_bps for branch in self.branches)

    @property
    def text(self) -> str:
        """What it carries and where, in one line; the cookie is made of it."""
        paths = "+".join(">".join(branch.path) for branch in self.branches)
        hosts = f"|{'>'.join(self.hosts)}" if self.hosts else ""
        return f"{paths}|{self.flows or ''}|{','.join(self.data)}|{','.join(self.acks)}{hosts}"


@dataclass(frozen=True, slots=True)
class _Named:
    """The packets between two sites that a circuit names."""

    flows: tuple[Flow, ...]
    hosts: tuple[str, ...]

    @property
    def answers(self) -> _Named:
        """Those that answer them."""
        flows = tuple(sorted(map(reverse, self.flows), key=repr))
        return _Named(flows, self.hosts[::-1])

    def key(self, src: str, dst: str) -> GroupKey:
        """The group that carries them from one site to the other."""
        hosts = f"|{'>'.join(self.hosts)}" if self.hosts else ""
        return f"{src}>{dst}|{self.flows or ''}{hosts}"


@dataclass(frozen=True, slots=True)
class _CheckedCircuit:
    """A circuit that was checked, and the groups of its data and of what answers them."""

    circuit: Circuit
    named: _Named
    data_key: GroupKey
    ack_key: GroupKey


class Grouper:
    """Groups circuits again and again; what stays the same is looked at once. Not thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._paths: set[tuple[str, ...]] = set()  # that are known to be possible
        self._known: dict[str, _CheckedCircuit] = {}
        self._groups: dict[GroupKey, tuple[list[Circuit], list[Circuit], CircuitGroup]] = {}

    def group(self, circuits: Sequence[Circuit], now: float) -> list[CircuitGroup]:
        """The groups of all circuits whose lease has not ended at ``now``, in a fixed order,
        unmarked. A group whose circuits are the same objects as before is the same object.

        Where both directions have circuits on different paths, data decides: the acknowledgements
        of one follow the data path of the other. Acknowledgements of data with several paths take
        the first. Raises InputError for circuits that are not well formed, that one group would
        carry but on different paths, that name the same packets in part, or that together
        guarantee more than a link carries.
        """
        data: dict[GroupKey, list[Circuit]] = {}
        acks: dict[GroupKey, list[Circuit]] = {}
        named: dict[GroupKey, _Named] = {}
        known: dict[str, _CheckedCircuit] = {}
        for circuit in circuits:
            entry = self._known.get(circuit.id)
            if entry is None or entry.circuit is not circuit:
                entry = self._look_at(circuit)
            if circuit.id in known:
                raise InputError(f"circuit {circuit.id!r} is listed twice, expected one of each id")
            known[circuit.id] = entry
            if circuit.lease_until > now:
                data.setdefault(entry.data_key, []).append(circuit)
                acks.setdefault(entry.ack_key, []).append(circuit)
                named[entry.data_key] = entry.named
                named[entry.ack_key] = entry.named.answers
        groups = {}
        for key in sorted(named):
            there, back = data.get(key, []), acks.get(key, [])
            before = self._groups.get(key)
            if before is not None and _same(before[0], there) and _same(before[1], back):
                groups[key] = before
            else:
                _check_same_paths(there)
                made = _group(self._topology, key, named[key], there, back)
                groups[key] = (there, back, made)
        if data.keys() != {key for key, (there, _, _) in self._groups.items() if there}:
            # Relays open connections from other ports than those of circuits.
            distinct = [(key, there[0]) for key, there in data.items() if not there[0].redirect]
            check_overlap([(named[key].flows, circuit) for key, circuit in distinct])
        circuit_groups = [group for _, _, group in groups.values()]
        check_capacity(self._topology, circuit_groups)
        self._known, self._groups = known, groups
        return circuit_groups

    def _look_at(self, circuit: Circuit) -> _CheckedCircuit:
        """Checks a circuit."""
        check_circuit(circuit)
        for path in paths_of(circuit):
            if path not in self._paths:  # circuits are many, the paths they share are few
                check_path(self._topology, circuit.id, path)
                self._paths.add(path)
        src, dst = circuit.path[0], circuit.path[-1]
        named = _Named(tuple(sorted(set(circuit.flows), key=repr)), circuit.hosts)
        return _CheckedCircuit(circuit, named, named.key(src, dst), named.answers.key(dst, src))


def check_capacity(topology: Topology, groups: Iterable[CircuitGroup]) -> None:
    """Raises InputError where the guaranteed rates on a link direction exceed its capacity; nothing
    is guaranteed on a relay's link."""
    demanded: dict[Hop, float] = {}
    for group in groups:
        for branch in group.branches:
            if branch.min_bps > 0:
                for hop in pairwise(branch.path[1:-1] if group.redirect else branch.path):
                    demanded[hop] = demanded.get(hop, 0.0) + branch.min_bps
    for (a, b), rate in demanded.items():
        capacity = topology.link(a, b).capacity_bps
        if rate > capacity * (1 + 1e-9):
            there = by_hop(groups)[a, b]
            names = ", ".join(
                i for group, branch in there if branch.min_bps > 0 for i in group.data
            )
            raise InputError(
                f"link {a}-{b} carries {format_rate(capacity)}, but circuits {names} are "
                f"guaranteed {format_rate(rate)} together"
            )


def by_hop(
    groups: Iterable[CircuitGroup], hops: frozenset[Hop] | None = None
) -> dict[Hop, list[tuple[CircuitGroup, Branch]]]:
    """The groups on every link direction that has any, with the branch that crosses it.

    ``hops``: those to look at, None for all.
    """
    crossing: dict[Hop, list[tuple[CircuitGroup, Branch]]] = {}
    for group in groups:
        for branch in group.branches:
            for hop in pairwise(branch.path):
                if hops is None or hop in hops:
                    crossing.setdefault(hop, []).append((group, branch))
    return crossing


def shares(circuits: Mapping[str, Circuit], group: CircuitGroup) -> dict[str, float]:
    """How the bytes of a group are attributed to its circuits: by guaranteed rate, or evenly."""
    rates = {i: circuits[i].min_bps for i in group.data if i in circuits}
    total = sum(rates.values())
    if total <= 0:
        return {i: 1 / len(rates) for i in rates}
    return {i: rate / total for i, rate in rates.items()}


def _group(
    topology: Topology,
    key: GroupKey,
    named: _Named,
    data: list[Circuit],
    back: list[Circuit],
) -> CircuitGroup:
    needed = sum(_ack_bps(topology, c) for c in back)
    if data:
        rates = [
            (same[0].path, math.fsum(p.min_bps for p in same), math.fsum(p.max_bps for p in same))
            for same in zip(*(c.all_parts for c in data), strict=True)
        ]
        most = sum(min(ceil, MAX_RATE_BPS) for _, _, ceil in rates)
        branches = tuple(
            Branch(path, low, ceil, needed * min(ceil, MAX_RATE_BPS) / most)
            for path, low, ceil in rates
        )
    else:
        branches = (Branch(tuple(reversed(back[0].path)), 0.0, 0.0, needed),)
    queues = {c.queue for c in data or back}
    path = branches[0].path
    return CircuitGroup(
        src=path[0],
        dst=path[-1],
        flows=named.flows,
        branches=branches,
        data=tuple(sorted(c.id for c in data)),
        acks=tuple(sorted(c.id for c in back)),
        lease_until=max(c.lease_until for c in (*data, *back)),
        # What the switches cannot tell apart cannot be in two queues.
        queue=queues.pop() if len(queues) == 1 else "",
        sure=any(c.min_bps > 0 for c in (*data, *back)),
        key=key,
        hosts=named.hosts,
        redirect=(data or back)[0].redirect,
    )


def _same(before: list[Circuit], now: list[Circuit]) -> bool:
    """Whether both are the same objects."""
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _ack_bps(topology: Topology, circuit: Circuit) -> float:
    """What a circuit's acknowledgements are guaranteed: nothing where its data is not."""
    if circuit.min_bps <= 0 and not circuit.queue:
        return 0.0
    fits = sum(topology.path(path).capacity_bps for path in paths_of(circuit))
    return ACK_SHARE * min(circuit.max_bps, fits)


def _check_same_paths(circuits: list[Circuit]) -> None:
    for other in circuits[1:]:
        first = circuits[0]
        if paths_of(other) != paths_of(first):
            first_paths, other_paths = (
                " and ".join(">".join(p) for p in paths_of(c)) for c in (first, other)
            )
            raise InputError(
                f"circuits {first.id!r} and {other.id!r} from {first.path[0]} to "
                f"{first.path[-1]} name the paths {first_paths} and {other_paths}, expected one "
                "path for what the switches cannot tell apart"
            )
