"""What the switches should carry: from circuits to flow rules, classes and meters. Pure.

How rates are kept is one of :data:`WAYS`: by DSCP marks and classes on the devices (``dscp-htb``),
by the switch's queues, numbered like the marks (``queue``), by policing (``meter``), or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.controllers import metering
from network_provisioner.controllers.aids import Aid, SelectGroup, our_numbers
from network_provisioner.controllers.base import Circuit, Queue
from network_provisioner.controllers.devices import device_shapes
from network_provisioner.controllers.groups import Group, Grouper, GroupKey, Pair
from network_provisioner.controllers.marks import ClassKey, Marker, class_key
from network_provisioner.controllers.routes import (
    Way,
    arp_rules,
    default_paths,
    group_rules,
    route_rules,
    shaped_hops,
)
from network_provisioner.controllers.rules import (
    TRANSIT_OWNER,
    FlowRule,
    make_cookie,
)
from network_provisioner.controllers.shaping import DeviceShape
from network_provisioner.controllers.steps import Step, steps
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology

WAYS = ("dscp-htb", "queue", "meter", "none")
_Rules = tuple[FlowRule, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the switches should carry now.

    ``groups`` say why; ``rules`` and ``routes`` (best effort) are for the switches, with the
    ``aids`` they refer to; ``shapes`` lists every shaped device of the topology, also those on
    which nothing is reserved.
    """

    groups: tuple[Group, ...]
    rules: _Rules
    shapes: tuple[DeviceShape, ...]
    routes: _Rules = ()
    aids: tuple[Aid, ...] = ()
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
    select: Aid | None

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

    def recall(self, rules: Iterable[FlowRule], aids: Iterable[Aid]) -> None:
        """Take in what is on the switches: what is marked there already keeps its marks."""
        self._there = {}
        for rule in rules:
            mark = rule.queue if self._keep == "queue" else rule.dscp
            if mark:
                self._there[rule.cookie] = (mark,)
        self._dealt = {
            aid.number: tuple(b.mark for b in aid.buckets)
            for aid in aids
            if isinstance(aid, SelectGroup)
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
        rates = metering.caps(self._topology, groups) if self._keep == "meter" else {}
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
        aids: list[Aid] = [it.select for it in made.values() if it.select is not None]
        routes: Sequence[FlowRule] = self._plain
        if rates:
            routes = route_rules(self._topology, self._default_paths, way)
            aids += self._meters(groups, rates, meters)
        self._made = made
        return Plan(
            groups,
            _unique(by_group.values()),
            shapes,
            tuple(routes),
            tuple(aids),
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
    ) -> list[Aid]:
        found: list[Aid] = []
        for group in groups:
            if group.key in rates:
                first = self._walk(group.path)[0].switch.dpid
                found.append(metering.meter(first, numbers[group.key], rates[group.key]))
        used = {hop for path in self._default_paths for hop in path.hops}
        for hop in sorted(used):
            node, key = self._topology.nodes[hop[0]], metering.hop_key(hop)
            if node.kind == "switch" and key in rates:
                found.append(metering.meter(node.dpid, numbers[key], rates[key]))
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
