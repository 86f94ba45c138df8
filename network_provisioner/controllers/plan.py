"""What the switches should carry: from circuits to flow rules, classes and meters. Pure.

How rates are kept is one of :data:`WAYS`: by DSCP marks and classes on the devices (``dscp-htb``),
by the switch's queues, numbered like the marks (``queue``), by policing (``meter``), or not.

A meter can hold traffic down but not hold bandwidth free. So circuits on a link are held to what
fits together, and so is best effort beside them, to what they leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from network_provisioner.base.errors import InputError
from network_provisioner.controllers.base import Circuit, Queue
from network_provisioner.controllers.dscp import ACKS, SHARED, ClassKey, Marker, class_key
from network_provisioner.controllers.groups import (
    Group,
    Grouper,
    GroupKey,
    Lane,
    Pair,
    by_hop,
)
from network_provisioner.controllers.routes import (
    Step,
    Way,
    arp_rules,
    default_paths,
    group_rules,
    hop_key,
    route_rules,
    shaped_hops,
    steps,
)
from network_provisioner.controllers.rules import (
    TRANSIT_OWNER,
    FlowRule,
    Meter,
    SelectGroup,
    TableEntry,
    make_cookie,
    our_numbers,
)
from network_provisioner.controllers.shaping.shapes import (
    BEST_EFFORT_SHARE,
    LAST_PRIO,
    MIN_CLASS_BPS,
    ClassDemand,
    DeviceShape,
    share_out,
)
from network_provisioner.topology.graph import Link, Topology

# A policer that forgives too little halves TCP's rate, one that forgives too much is none: at
# 200 Mb/s a burst of 5 ms gave 119 Mb/s and one of 500 ms gave 222.
BURST_S = 0.1


def caps(topology: Topology, groups: Sequence[Group]) -> dict[str, float]:
    """The rate, in b/s, of the meter of every group with data, by its key, and of best effort on
    every link direction that circuits cross, by its :func:`hop_key`.

    A group gets its ceiling where the ceilings of all fit, otherwise less, but never less than it
    was guaranteed: on every link all give up the same part of what they may take beyond that.
    """
    crossing = by_hop(groups)
    part: dict[Pair, float] = {}
    for hop, there in crossing.items():
        usable = topology.link(*hop).capacity_bps * (1 - BEST_EFFORT_SHARE)
        sure = sum(lane.min_bps for _, lane in there)
        more = sum(_ceiling(topology, hop, lane.max_bps) - lane.min_bps for _, lane in there)
        part[hop] = min(1.0, max(0.0, (usable - sure) / more)) if more > 0 else 1.0
    rates: dict[str, float] = {}
    taken = dict.fromkeys(crossing, 0.0)
    for group in groups:
        total = 0.0
        for lane in group.lanes:
            hops = list(pairwise(lane.path))
            least = min(_ceiling(topology, hop, lane.max_bps) for hop in hops)
            extra = max(0.0, least - lane.min_bps) * min(part[hop] for hop in hops)
            for hop in hops:
                taken[hop] += lane.min_bps + extra + lane.ack_bps
            total += lane.min_bps + extra
        if group.data:
            rates[group.key] = max(MIN_CLASS_BPS, total)
    for hop, used in taken.items():
        capacity = topology.link(*hop).capacity_bps
        rates[hop_key(hop)] = max(BEST_EFFORT_SHARE * capacity, capacity - used)
    return rates


def meter(dpid: int, number: int, rate_bps: float) -> Meter:
    """A meter of that rate; OpenFlow counts in whole kb/s and kb."""
    kbps = max(1, round(rate_bps / 1000))
    return Meter(dpid, number, kbps, max(1, round(kbps * BURST_S)))


def _ceiling(topology: Topology, hop: Pair, max_bps: float) -> float:
    return min(max_bps, topology.link(*hop).capacity_bps)


def device_shapes(
    topology: Topology,
    shaped: frozenset[Pair],
    groups: Sequence[Group],
    queues: Sequence[Queue],
) -> tuple[DeviceShape, ...]:
    """The shape of the device of every ``shaped`` link direction, in a fixed order.

    Queues on other links are nobody's. Raises InputError for queues that make no sense.
    """
    for queue in queues:
        _check_queue(topology, queue)
    crossing = by_hop(groups, shaped)
    shapes = []
    for a, b in sorted(shaped):
        link = topology.link(a, b)
        here = [q for q in queues if q.hop == (a, b)]
        asked = _demands(topology, link, crossing.get((a, b), []), {q.name for q in here})
        classes, tree = share_out(link.capacity_bps, asked, here)
        device = (link.devices or {})[a]
        shapes.append(DeviceShape(a, device, link.capacity_bps, link.delay_s, classes, tree))
    return tuple(shapes)


def _demands(
    topology: Topology, link: Link, there: Sequence[tuple[Group, Lane]], queues: set[str]
) -> list[ClassDemand]:
    """What every mark on a link direction asks for; several groups may share one."""
    by_mark: dict[int, list[tuple[Group, Lane]]] = {}
    for group, lane in there:
        if lane.mark:
            by_mark.setdefault(lane.mark, []).append((group, lane))
    asked = []
    for mark, users in sorted(by_mark.items()):
        group, lane = users[0]
        key = class_key(topology, group, lane) or ""
        shared = key.startswith(SHARED)
        queue = group.queue if group.data and group.queue in queues else ""
        if shared and not queue:
            continue  # members of a queue that this link does not have are best effort here
        ceil = sum(
            lane.max_bps + lane.ack_bps if group.data else link.capacity_bps
            for group, lane in users
        )
        asked.append(
            ClassDemand(
                mark,
                math.fsum(lane.min_bps for _, lane in users),
                math.fsum(lane.ack_bps for _, lane in users),
                math.inf if shared else ceil,
                queue,
                shared=shared,
                prio=0 if key.startswith(ACKS) or any(g.sure for g, _ in users) else LAST_PRIO,
            )
        )
    return asked


def _check_queue(topology: Topology, queue: Queue) -> None:
    label = f"queue {queue.name!r} on link {'>'.join(queue.hop)}"
    if not queue.name:
        raise InputError(f"a queue on link {'>'.join(queue.hop)} has no name, expected one")
    topology.link(*queue.hop)
    if not (math.isfinite(queue.rate_bps) and queue.rate_bps >= 0):
        raise InputError(f"{label} has rate_bps {queue.rate_bps!r}, expected 0 b/s or more")
    if math.isnan(queue.ceil_bps) or queue.ceil_bps < queue.rate_bps or queue.ceil_bps <= 0:
        raise InputError(
            f"{label} has ceil_bps {queue.ceil_bps!r}, expected more than 0 b/s and no less than "
            f"its rate_bps {queue.rate_bps!r}"
        )


WAYS = ("dscp-htb", "queue", "meter", "none")
_Rules = tuple[FlowRule, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the switches should carry now.

    ``groups`` say why; ``rules`` and ``routes`` (best effort) are for the switches, with the
    ``entries`` they refer to; ``shapes`` lists every shaped device of the topology, also those on
    which nothing is reserved.
    """

    groups: tuple[Group, ...]
    rules: _Rules
    shapes: tuple[DeviceShape, ...]
    routes: _Rules = ()
    entries: tuple[TableEntry, ...] = ()
    by_group: Mapping[GroupKey, _Rules] = field(default_factory=dict, repr=False)
    by_id: Mapping[str, Group] = field(default_factory=dict, repr=False)

    def rules_of(self, group: Group) -> _Rules:
        """The rules that carry one group, first switch first, ARP last."""
        return self.by_group[group.key]

    def carrier(self, circuit_id: str) -> Group | None:
        """The group that carries a circuit's data, None where none does."""
        return self.by_id.get(circuit_id)


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made of a group, and from what."""

    base: Group
    group: Group
    depends: tuple[int, int]
    rules: _Rules
    select: TableEntry | None

    @property
    def marks(self) -> tuple[int, ...]:
        return tuple(lane.mark for lane in self.group.lanes)


class Planner:
    """Makes plans for one network, each from what the one before left to do.

    ``keep`` is one of :data:`WAYS`. Not thread-safe.
    """

    def __init__(self, topology: Topology, keep: str = "dscp-htb") -> None:
        """Raises InputError for a topology whose best-effort routes cannot be laid."""
        if keep not in WAYS:
            raise InputError(f"bandwidth is {keep!r}, expected one of {', '.join(WAYS)}")
        self._topology = topology
        self._keep = keep
        self._shaped = shaped_hops(topology) if keep in ("dscp-htb", "queue") else frozenset()
        self._default_paths = default_paths(topology)
        self._steps: dict[tuple[str, ...], list[Step]] = {}
        self._grouper = Grouper(topology)
        self._marker = Marker(topology, self._shaped)
        self._made: dict[GroupKey, _Made] = {}
        # Marks seen on switches, by cookie, and by the number of a select group.
        self._there: dict[int, tuple[int, ...]] = {}
        self._dealt: dict[int, tuple[int, ...]] = {}
        self._plain = route_rules(topology, self._default_paths, self._way({}))

    def routes(self) -> list[FlowRule]:
        """The best-effort rules where there are no circuits."""
        return self._plain

    def recall(self, rules: Iterable[FlowRule], entries: Iterable[TableEntry]) -> None:
        """Take in what is on the switches: what is marked there already keeps its marks."""
        self._there = {}
        for rule in rules:
            mark = rule.queue if self._keep == "queue" else rule.dscp
            if mark:
                self._there[rule.cookie] = (mark,)
        self._dealt = {
            entry.number: tuple(b.mark for b in entry.buckets)
            for entry in entries
            if isinstance(entry, SelectGroup)
        }

    def plan(self, circuits: Sequence[Circuit], now: float, queues: Sequence[Queue] = ()) -> Plan:
        """The plan for the circuits whose lease has not ended at Unix second ``now``.

        Raises InputError for circuits or queues that cannot all be had and for a topology that
        lacks a port, an address or a router's MAC on one of the paths.
        """
        found = self._grouper.group(circuits, now)
        numbers = our_numbers(g.key for g in found if len(g.lanes) > 1)
        marks = self._marker.marks(found, self._recalled(found, numbers))
        groups = tuple(map(self._marked, found, marks))
        rates = caps(self._topology, groups) if self._keep == "meter" else {}
        meters = our_numbers(rates)
        way = self._way(meters)
        shapes = device_shapes(self._topology, self._shaped, groups, queues)

        made = {}
        for base, group in zip(found, groups, strict=True):
            number = numbers[group.key] if len(group.lanes) > 1 else 0
            depends = (number, way.meter(group.key))
            last = self._made.get(group.key)
            if last is not None and last.group is group and last.depends == depends:
                made[group.key] = last
            else:
                rules, select = group_rules(self._topology, group, way, number, self._walk)
                made[group.key] = _Made(base, group, depends, tuple(rules), select)
        by_group = {key: it.rules for key, it in made.items()}
        self._add_arp(groups, by_group)
        entries: list[TableEntry] = [it.select for it in made.values() if it.select is not None]
        routes: Sequence[FlowRule] = self._plain
        if rates:
            routes = route_rules(self._topology, self._default_paths, way)
            entries += self._meters(groups, rates, meters)
        self._made = made
        return Plan(
            groups,
            _unique(by_group.values()),
            shapes,
            tuple(routes),
            tuple(entries),
            by_group,
            {circuit_id: group for group in groups for circuit_id in group.data},
        )

    def _marked(self, base: Group, marks: tuple[int, ...]) -> Group:
        """A group with its lanes' marks, the same object as long as neither changes."""
        last = self._made.get(base.key)
        if last is not None and last.base is base and last.marks == marks:
            return last.group
        lanes = zip(base.lanes, marks, strict=True)
        return replace(base, lanes=tuple(replace(lane, mark=mark) for lane, mark in lanes))

    def _recalled(self, groups: Iterable[Group], numbers: Mapping[str, int]) -> dict[ClassKey, int]:
        """The marks that these groups have on the switches, as far as they were read."""
        found: dict[ClassKey, int] = {}
        if self._there or self._dealt:
            for group in groups:
                marks = self._there.get(make_cookie(TRANSIT_OWNER, group.text), ())
                if len(group.lanes) > 1:
                    marks = self._dealt.get(numbers[group.key], ())
                for lane, mark in zip(group.lanes, marks, strict=False):
                    key = class_key(self._topology, group, lane)
                    if key is not None:
                        found[key] = mark
            self._there, self._dealt = {}, {}
        return found

    def _way(self, meters: Mapping[str, int]) -> Way:
        return Way(self._shaped, self._keep == "queue", meters)

    def _walk(self, path: tuple[str, ...]) -> list[Step]:
        found = self._steps.get(path)
        if found is None:
            found = self._steps[path] = steps(self._topology, path)
        return found

    def _add_arp(self, groups: Iterable[Group], by_group: dict[GroupKey, _Rules]) -> None:
        """Adds rules for ARP to the groups with an end in a Science DMZ."""
        guarded: dict[Pair, list[Group]] = {}
        nodes = self._topology.nodes
        for group in groups:
            if nodes[group.src].dmz or nodes[group.dst].dmz:
                guarded.setdefault((group.src, group.dst), []).append(group)
        for pair, there in guarded.items():
            ids = [i for g in there for i in (*g.data, *g.acks)]
            until = max(g.lease_until for g in there)
            rules = tuple(arp_rules(self._topology, pair, ids, there[0].path, until))
            for group in there:
                by_group[group.key] += rules

    def _meters(
        self, groups: Iterable[Group], rates: Mapping[str, float], numbers: Mapping[str, int]
    ) -> list[TableEntry]:
        found: list[TableEntry] = []
        for group in groups:
            if group.key in rates:
                first = self._walk(group.path)[0].switch.dpid
                found.append(meter(first, numbers[group.key], rates[group.key]))
        used = {hop for path in self._default_paths for hop in path.hops}
        for hop in sorted(used):
            node, key = self._topology.nodes[hop[0]], hop_key(hop)
            if node.kind == "switch" and key in rates:
                found.append(meter(node.dpid, numbers[key], rates[key]))
        return found


def make_plan(
    topology: Topology,
    circuits: Sequence[Circuit],
    now: float,
    queues: Sequence[Queue] = (),
    *,
    keep: str = "dscp-htb",
) -> Plan:
    """One plan, from nothing: see :meth:`Planner.plan`."""
    return Planner(topology, keep).plan(circuits, now, queues)


def _unique(parts: Iterable[_Rules]) -> _Rules:
    """All rules, those for ARP once, which several groups have."""
    return tuple({id(rule): rule for rules in parts for rule in rules}.values())
