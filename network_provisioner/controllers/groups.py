"""Circuits put together as the switches can tell them apart. Pure.

Rules match source and destination address, so all circuits from one site to another share one rule
per switch. A *group* is everything that flows from one site to another: the data of the circuits in
that direction and the acknowledgements of the circuits in the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from network_provisioner.controllers.base import Circuit
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology
from network_provisioner.units import format_rate

Pair = tuple[str, str]

# One 52 to 66 byte acknowledgement for every second 1500 byte segment is 2.2 %; rounded up.
ACK_SHARE = 0.03
# DSCP has six bits; 0 is best effort.
MARKS = 63


@dataclass(frozen=True, slots=True)
class Group:
    """All traffic from ``src`` to ``dst`` that has circuits.

    ``data`` are the ids of circuits from src to dst, ``acks`` of those from dst to src. ``min_bps``
    and ``max_bps`` add up over ``data``; ``ack_bps`` is what the acknowledgements need.
    ``lease_until`` is the end of the longest lease. ``mark`` is the DSCP value that names its HTB
    class, 0 where no device on its path is shaped.
    """

    src: str
    dst: str
    path: tuple[str, ...]
    data: tuple[str, ...]
    acks: tuple[str, ...]
    min_bps: float
    max_bps: float
    ack_bps: float
    lease_until: float
    mark: int = 0

    @property
    def pair(self) -> Pair:
        """Source and destination site."""
        return (self.src, self.dst)

    @property
    def text(self) -> str:
        """What it carries and where, in one line; the cookie is made of it."""
        return f"{'>'.join(self.path)}|{','.join(self.data)}|{','.join(self.acks)}"


def group_circuits(topology: Topology, circuits: Sequence[Circuit], now: float) -> list[Group]:
    """The groups of all circuits whose lease has not ended at ``now``, in a fixed order, unmarked.

    Where both directions between two sites have circuits on different paths, data decides: the
    acknowledgements of one follow the data path of the other. Raises InputError for circuits that
    are not well formed, that share a pair of sites but not the path, or that together guarantee
    more than a link carries.
    """
    by_pair: dict[Pair, list[Circuit]] = {}
    ids: set[str] = set()
    paths: set[tuple[str, ...]] = set()
    for circuit in circuits:
        _check(circuit)
        if circuit.path not in paths:  # circuits are many, the paths they share are few
            _check_path(topology, circuit)
            paths.add(circuit.path)
        if circuit.id in ids:
            raise InputError(f"circuit {circuit.id!r} is listed twice, expected one of each id")
        ids.add(circuit.id)
        if circuit.lease_until > now:
            by_pair.setdefault((circuit.path[0], circuit.path[-1]), []).append(circuit)
    for same_pair in by_pair.values():
        _check_one_path(same_pair)
    pairs = sorted({p for src, dst in by_pair for p in ((src, dst), (dst, src))})
    groups = [_group(p, by_pair.get(p, []), by_pair.get((p[1], p[0]), [])) for p in pairs]
    check_capacity(topology, groups)
    return groups


def check_capacity(topology: Topology, groups: Iterable[Group]) -> None:
    """Raises InputError where the guaranteed rates on a link direction exceed its capacity."""
    for (a, b), there in by_hop(groups).items():
        capacity = topology.link(a, b).capacity_bps
        asked = sum(group.min_bps for group in there)
        if asked > capacity * (1 + 1e-9):
            names = ", ".join(i for group in there for i in group.data)
            raise InputError(
                f"link {a}-{b} carries {format_rate(capacity)}, but circuits {names} are "
                f"guaranteed {format_rate(asked)} together"
            )


def by_hop(groups: Iterable[Group]) -> dict[Pair, list[Group]]:
    """The groups on every link direction that has any."""
    hops: dict[Pair, list[Group]] = {}
    for group in groups:
        for hop in pairwise(group.path):
            hops.setdefault(hop, []).append(group)
    return hops


def assign_marks(
    groups: Sequence[Group],
    sites: Sequence[str],
    shaped: frozenset[Pair],
) -> dict[Pair, int]:
    """A DSCP value for every group that crosses a shaped link direction.

    Each ordered pair of sites has a value of its own as long as 63 suffice (8 sites), so it stays
    when other circuits come and go. Beyond that, values are shared by groups that meet on no
    shaped device. Raises InputError where more than 63 groups meet on one.
    """
    rank = {site: i for i, site in enumerate(sites)}
    used: dict[Pair, set[int]] = {}
    marks: dict[Pair, int] = {}
    for group in groups:
        hops = [hop for hop in pairwise(group.path) if hop in shaped]
        if not hops:
            continue
        src, dst = rank[group.src], rank[group.dst]
        # Position among ordered pairs without (i, i).
        preferred = src * (len(sites) - 1) + dst - (dst > src)
        taken = set().union(*(used.get(hop, set()) for hop in hops))
        free = (m for i in range(MARKS) if (m := (preferred + i) % MARKS + 1) not in taken)
        mark = next(free, None)
        if mark is None:
            raise InputError(
                f"link {hops[0][0]}-{hops[0][1]} would carry more than {MARKS} groups of "
                f"circuits, but DSCP can name no more than {MARKS}"
            )
        marks[group.pair] = mark
        for hop in hops:
            used.setdefault(hop, set()).add(mark)
    return marks


def shares(circuits: Mapping[str, Circuit], group: Group) -> dict[str, float]:
    """How the bytes of a group are attributed to its circuits: by guaranteed rate, or evenly."""
    rates = {i: circuits[i].min_bps for i in group.data}
    total = sum(rates.values())
    if total <= 0:
        return {i: 1 / len(rates) for i in rates}
    return {i: rate / total for i, rate in rates.items()}


def _group(pair: Pair, data: list[Circuit], back: list[Circuit]) -> Group:
    path = data[0].path if data else tuple(reversed(back[0].path))
    return Group(
        src=pair[0],
        dst=pair[1],
        path=path,
        data=tuple(sorted(c.id for c in data)),
        acks=tuple(sorted(c.id for c in back)),
        min_bps=sum(c.min_bps for c in data),
        max_bps=sum(c.max_bps for c in data),
        ack_bps=ACK_SHARE * sum(c.max_bps for c in back),
        lease_until=max(c.lease_until for c in (*data, *back)),
    )


def _check_one_path(circuits: list[Circuit]) -> None:
    first = circuits[0]
    for other in circuits[1:]:
        if other.path != first.path:
            raise InputError(
                f"circuits {first.id!r} and {other.id!r} from {first.path[0]} to "
                f"{first.path[-1]} name the paths {'>'.join(first.path)} and "
                f"{'>'.join(other.path)}, expected one path for each pair of sites"
            )


def _check_path(topology: Topology, circuit: Circuit) -> None:
    label = f"circuit {circuit.id!r}"
    if len(circuit.path) < 3 or len(set(circuit.path)) != len(circuit.path):
        raise InputError(
            f"{label} has the path {'>'.join(circuit.path)!r}, expected two sites with switches "
            "between them and no node twice"
        )
    for end in (circuit.path[0], circuit.path[-1]):
        topology.site(end)
    for a, b in pairwise(circuit.path):
        topology.link(a, b)
    for name in circuit.path[1:-1]:
        if topology.nodes[name].kind == "site":
            raise InputError(f"{label} leads through the site {name!r}, expected switches only")


def _check(circuit: Circuit) -> None:
    label = f"circuit {circuit.id!r}"
    if not circuit.id:
        raise InputError("a circuit has an empty id, expected a name")
    if not (math.isfinite(circuit.min_bps) and circuit.min_bps >= 0):
        raise InputError(f"{label} has min_bps {circuit.min_bps!r}, expected 0 b/s or more")
    if math.isnan(circuit.max_bps) or circuit.max_bps < circuit.min_bps or circuit.max_bps <= 0:
        raise InputError(
            f"{label} has max_bps {circuit.max_bps!r}, expected more than 0 b/s and no less than "
            f"its min_bps {circuit.min_bps!r}"
        )
    if math.isnan(circuit.lease_until):
        raise InputError(f"{label} has no lease_until, expected Unix seconds")
