"""What the switches should carry: from circuits to flow rules, classes and meters. Pure.

How rates are kept is one of :data:`BANDWIDTH_METHODS`: by DSCP marks and classes on the devices
(``dscp-htb``), by the switch's queues, numbered like the marks (``queue``), by policing
(``meter``), or not.

A meter can hold traffic down but not hold bandwidth free. So best effort is held to what minima
leave, and a circuit to its ceiling, where somebody set one; circuits share the rest as TCP does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from network_provisioner.base.controller import Circuit, Queue
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.dscp import ACKS, SHARED, ClassKey, Marker, class_key
from network_provisioner.controllers.groups import (
    ACK_SHARE,
    Branch,
    CircuitGroup,
    Grouper,
    GroupKey,
    Pair,
    by_hop,
)
from network_provisioner.controllers.redirects import redirect_rules, shared_redirects
from network_provisioner.controllers.routes import (
    RateControl,
    SwitchHop,
    arp_rules,
    default_paths,
    group_rules,
    hop_key,
    route_rules,
    shaped_hops,
    switch_hops,
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
    check_queues,
    share_out,
)
from network_provisioner.topology.graph import Hop, Link, Path, Topology

# A policer that forgives too little halves TCP's rate, one that forgives too much is none: at
# 200 Mb/s a burst of 5 ms gave 119 Mb/s and one of 500 ms gave 222.
BURST_S = 0.1
# Where no class is known by a DSCP value: what is a circuit's, from its first switch to its last.
TAG = 1
BANDWIDTH_METHODS = ("dscp-htb", "queue", "meter", "none")
_Rules = tuple[FlowRule, ...]


def caps(topology: Topology, groups: Sequence[CircuitGroup]) -> dict[str, float]:
    """The rate, in b/s, of the meters: of every group with data whose ceiling is below what its
    paths have, by its key, and of best effort on every link direction on which circuits are
    guaranteed something, by its :func:`hop_key`.

    Without a ceiling nothing is dropped, and a ceiling is not lowered because others have one: what
    is idle belongs to all. Best effort is left what circuits are guaranteed no part of.
    """
    rates: dict[str, float] = {}
    taken: dict[Hop, float] = {}
    for group in groups:
        fits = sum(topology.path(branch.path).capacity_bps for branch in group.branches)
        if group.data and group.max_bps < fits:
            rates[group.key] = max(MIN_CLASS_BPS, group.max_bps)
        for branch in group.branches if group.min_bps > 0 else ():
            for a, b in pairwise(branch.path):
                taken[a, b] = taken.get((a, b), 0.0) + branch.min_bps
                taken[b, a] = taken.get((b, a), 0.0) + ACK_SHARE * branch.min_bps
    for hop, used in taken.items():
        capacity = topology.link(*hop).capacity_bps
        rates[hop_key(hop)] = max(BEST_EFFORT_SHARE * capacity, capacity - used)
    return rates


def meter(dpid: int, number: int, rate_bps: float) -> Meter:
    """A meter of that rate; OpenFlow counts in whole kb/s and kb."""
    kbps = max(1, round(rate_bps / 1000))
    return Meter(dpid, number, kbps, max(1, round(kbps * BURST_S)))


def device_shapes(
    topology: Topology,
    shaped: frozenset[Hop],
    groups: Sequence[CircuitGroup],
    queues: Sequence[Queue],
) -> tuple[DeviceShape, ...]:
    """The shape of the device of every ``shaped`` link direction, in a fixed order.

    Queues on other links are nobody's. Raises InputError for queues that make no sense.
    """
    check_queues(topology, queues)
    crossing = by_hop(groups, shaped)
    shapes = []
    for a, b in sorted(shaped):
        link = topology.link(a, b)
        here = [q for q in queues if q.hop == (a, b)]
        demands = _demands(topology, link, crossing.get((a, b), []), {q.name for q in here})
        classes, tree = share_out(link.capacity_bps, demands, here)
        device = (link.devices or {})[a]
        shapes.append(DeviceShape(a, device, link.capacity_bps, link.delay_s, classes, tree))
    return tuple(shapes)


def _demands(
    topology: Topology, link: Link, there: Sequence[tuple[CircuitGroup, Branch]], queues: set[str]
) -> list[ClassDemand]:
    """What every mark on a link direction asks for; several groups may share one."""
    by_mark: dict[int, list[tuple[CircuitGroup, Branch]]] = {}
    for group, branch in there:
        if branch.mark:
            by_mark.setdefault(branch.mark, []).append((group, branch))
    demands = []
    for mark, users in sorted(by_mark.items()):
        group, branch = users[0]
        key = class_key(topology, group, branch) or ""
        shared = key.startswith(SHARED)
        queue = group.queue if group.data and group.queue in queues else ""
        if shared and not queue:
            continue  # members of a queue that this link does not have are best effort here
        ceil = sum(
            branch.max_bps + branch.ack_bps if group.data else link.capacity_bps
            for group, branch in users
        )
        demands.append(
            ClassDemand(
                mark,
                math.fsum(branch.min_bps for _, branch in users),
                math.fsum(branch.ack_bps for _, branch in users),
                math.inf if shared else ceil,
                queue,
                shared=shared,
                prio=0 if key.startswith(ACKS) or any(g.sure for g, _ in users) else LAST_PRIO,
            )
        )
    return demands


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """What the switches should carry now.

    ``groups`` say why; ``rules`` and ``routes`` (best effort) are for the switches, with the
    ``entries`` they refer to; ``shapes`` lists every shaped device of the topology, also those on
    which nothing is reserved. Best effort goes over the ``default_paths``.
    """

    groups: tuple[CircuitGroup, ...]
    rules: _Rules
    shapes: tuple[DeviceShape, ...]
    routes: _Rules = ()
    entries: tuple[TableEntry, ...] = ()
    by_group: Mapping[GroupKey, _Rules] = field(default_factory=dict, repr=False)
    by_id: Mapping[str, CircuitGroup] = field(default_factory=dict, repr=False)
    default_paths: Sequence[Path] = ()

    def rules_of(self, group: CircuitGroup) -> _Rules:
        """The rules that carry one group, first switch first, then redirects, ARP last."""
        return self.by_group[group.key]

    def carrier(self, circuit_id: str) -> CircuitGroup | None:
        """The group that carries a circuit's data, None where none does."""
        return self.by_id.get(circuit_id)


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made of a group, and from what."""

    base: CircuitGroup
    group: CircuitGroup
    depends: tuple[int, int]
    rules: _Rules
    select: TableEntry | None
    redirects: _Rules

    @property
    def marks(self) -> tuple[int, ...]:
        return tuple(branch.mark for branch in self.group.branches)


class Planner:
    """Makes plans for one network, each from what the one before left to do.

    ``keep`` is one of :data:`BANDWIDTH_METHODS`. Not thread-safe.
    """

    def __init__(self, topology: Topology, keep: str = "dscp-htb") -> None:
        """Raises InputError for a topology whose best-effort routes cannot be laid."""
        if keep not in BANDWIDTH_METHODS:
            raise InputError(
                f"bandwidth is {keep!r}, expected one of {', '.join(BANDWIDTH_METHODS)}"
            )
        self._topology = topology
        self._keep = keep
        self._shaped = shaped_hops(topology) if keep in ("dscp-htb", "queue") else frozenset()
        self._hops: dict[tuple[str, ...], list[SwitchHop]] = {}
        self._grouper = Grouper(topology)
        self._marker = Marker(topology, self._shaped)
        self._made: dict[GroupKey, _Made] = {}
        # Marks seen on switches, by cookie, and by the number of a select group.
        self._there: dict[int, tuple[int, ...]] = {}
        self._dealt: dict[int, tuple[int, ...]] = {}
        self.avoid(())

    def avoid(self, failed: Collection[Hop]) -> None:
        """Lay best effort over other links than these from the next plan on."""
        self._default_paths = default_paths(self._topology, failed)
        self._plain = route_rules(self._topology, self._default_paths, self._rate_control({}))

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

    def plan(
        self, circuits: Sequence[Circuit], now: float, queues: Sequence[Queue] = ()
    ) -> SwitchPlan:
        """The plan for the circuits whose lease has not ended at Unix second ``now``.

        Raises InputError for circuits or queues that cannot all be had and for a topology that
        lacks a port, an address or a router's MAC on one of the paths.
        """
        grouped = self._grouper.group(circuits, now)
        numbers = our_numbers(g.key for g in grouped if len(g.branches) > 1)
        marks = self._marker.marks(grouped, self._recalled(grouped, numbers))
        groups = tuple(map(self._marked, grouped, marks))
        rates = caps(self._topology, groups) if self._keep == "meter" else {}
        meters = our_numbers(rates)
        control = self._rate_control(meters)
        shapes = device_shapes(self._topology, self._shaped, groups, queues)

        made = {}
        for base, group in zip(grouped, groups, strict=True):
            number = numbers[group.key] if len(group.branches) > 1 else 0
            depends = (number, control.meter(group.key))
            last = self._made.get(group.key)
            if last is not None and last.group is group and last.depends == depends:
                made[group.key] = last
            else:
                rules, select = group_rules(self._topology, group, control, number, self._walk)
                redirects = redirect_rules(self._topology, group, control)
                made[group.key] = _Made(base, group, depends, tuple(rules), select, redirects)
        redirected = shared_redirects({key: it.redirects for key, it in made.items()})
        by_group = {key: it.rules + redirected[key] for key, it in made.items()}
        self._add_arp(groups, by_group)
        entries: list[TableEntry] = [it.select for it in made.values() if it.select is not None]
        routes: Sequence[FlowRule] = self._plain
        if rates:
            routes = route_rules(self._topology, self._default_paths, control)
            entries += self._meters(groups, rates, meters)
        self._made = made
        return SwitchPlan(
            groups,
            _unique(by_group.values()),
            shapes,
            tuple(routes),
            tuple(entries),
            by_group,
            {circuit_id: group for group in groups for circuit_id in group.data},
            self._default_paths,
        )

    def _marked(self, base: CircuitGroup, marks: tuple[int, ...]) -> CircuitGroup:
        """A group with its branches' marks, the same object as long as neither changes."""
        last = self._made.get(base.key)
        if last is not None and last.base is base and last.marks == marks:
            return last.group
        marked = zip(base.branches, marks, strict=True)
        return replace(base, branches=tuple(replace(b, mark=mark) for b, mark in marked))

    def _recalled(
        self, groups: Iterable[CircuitGroup], numbers: Mapping[str, int]
    ) -> dict[ClassKey, int]:
        """The marks that these groups have on the switches, as far as they were read."""
        marks_by_class: dict[ClassKey, int] = {}
        if self._there or self._dealt:
            for group in groups:
                marks = self._there.get(make_cookie(TRANSIT_OWNER, group.text), ())
                if len(group.branches) > 1:
                    marks = self._dealt.get(numbers[group.key], ())
                for branch, mark in zip(group.branches, marks, strict=False):
                    key = class_key(self._topology, group, branch)
                    if key is not None:
                        marks_by_class[key] = mark
            self._there, self._dealt = {}, {}
        return marks_by_class

    def _rate_control(self, meters: Mapping[str, int]) -> RateControl:
        tag = TAG if self._keep in ("queue", "meter") else 0
        return RateControl(self._shaped, self._keep == "queue", tag, meters)

    def _walk(self, path: tuple[str, ...]) -> list[SwitchHop]:
        known = self._hops.get(path)
        if known is None:
            known = self._hops[path] = switch_hops(self._topology, path)
        return known

    def _add_arp(self, groups: Iterable[CircuitGroup], by_group: dict[GroupKey, _Rules]) -> None:
        """Adds rules for ARP to the groups with an end in a Science DMZ."""
        guarded: dict[Pair, list[CircuitGroup]] = {}
        nodes = self._topology.nodes
        for group in groups:
            if any(nodes[site].dmz for site in group.sites):
                guarded.setdefault(group.sites, []).append(group)
        for pair, there in guarded.items():
            ids = [i for g in there for i in (*g.data, *g.acks)]
            until = max(g.lease_until for g in there)
            path = (pair[0], *there[0].path[1:-1], pair[1])
            rules = tuple(arp_rules(self._topology, pair, ids, path, until))
            for group in there:
                by_group[group.key] += rules

    def _meters(
        self, groups: Iterable[CircuitGroup], rates: Mapping[str, float], numbers: Mapping[str, int]
    ) -> list[TableEntry]:
        meters: list[TableEntry] = []
        for group in groups:
            if group.key in rates:
                first = self._walk(group.path)[0].switch.dpid
                meters.append(meter(first, numbers[group.key], rates[group.key]))
        used = {hop for path in self._default_paths for hop in path.hops}
        for hop in sorted(used):
            node, key = self._topology.nodes[hop[0]], hop_key(hop)
            if node.kind == "switch" and key in rates:
                meters.append(meter(node.dpid, numbers[key], rates[key]))
        return meters


def make_plan(
    topology: Topology,
    circuits: Sequence[Circuit],
    now: float,
    queues: Sequence[Queue] = (),
    *,
    keep: str = "dscp-htb",
) -> SwitchPlan:
    """One plan, from nothing: see :meth:`Planner.plan`."""
    return Planner(topology, keep).plan(circuits, now, queues)


def _unique(parts: Iterable[_Rules]) -> _Rules:
    """All rules, redirects and those for ARP once, which several groups have."""
    return tuple({id(rule): rule for rules in parts for rule in rules}.values())
