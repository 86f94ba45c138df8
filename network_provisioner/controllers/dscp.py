"""Which DSCP value names which class, and which branch. Pure.

DSCP has six bits, and 0 is best effort: 63 values. A class has a value of its own on every device
that it crosses as long as they suffice; beyond, circuits share one (and one class, with the sum of
their rates) with others of the same queue: together they still have what they were guaranteed, but
no longer each from the others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from network_provisioner.base.errors import InputError
from network_provisioner.controllers.groups import Branch, CircuitGroup, GroupKey
from network_provisioner.topology.graph import Hop, Topology

MARKS = 63
# Text, because it is looked up often, and text remembers its hash.
ClassKey = str
_OWN = "own|"
SHARED, ACKS = "queue|", "acks|"


@dataclass(slots=True)
class _MarkNeed:
    """A class, where it needs a mark that others there do not have, and whether it may share."""

    key: ClassKey
    places: frozenset[Hashable]
    queue: str
    may_share: bool
    preferred: int


class Marker:
    """Gives marks again and again; a class keeps its mark as long as it can. Not thread-safe."""

    def __init__(self, topology: Topology, shaped: frozenset[Hop]) -> None:
        """``shaped`` are the link directions with classes."""
        self._shaped = shaped
        self._rank = {site: i for i, site in enumerate(topology.sites)}
        self._topology = topology
        self._crossed: dict[tuple[str, ...], frozenset[Hashable]] = {}
        self._uses: dict[GroupKey, tuple[CircuitGroup, list[_MarkNeed | None]]] = {}
        self._marks: dict[ClassKey, int] = {}

    def marks(
        self, groups: Sequence[CircuitGroup], recalled: Mapping[ClassKey, int]
    ) -> list[tuple[int, ...]]:
        """The marks of every group's branches; 0 where one needs none, which is on a path that is
        not shaped anywhere, and in a group with one branch.

        ``recalled`` marks, which were seen on switches, count more than those of before. Raises
        InputError where more than 63 queues, branches of one group, or the like meet.
        """
        uses = {}
        classes: dict[ClassKey, _MarkNeed] = {}
        for group in groups:
            last = self._uses.get(group.key)
            needs = last[1] if last is not None and last[0] is group else self._look_at(group)
            uses[group.key] = (group, needs)
            for use in needs:
                if use is not None:
                    other = classes.setdefault(use.key, use)
                    if not use.places <= other.places:
                        both = other.places | use.places
                        classes[use.key] = replace(other, places=both)
        marks = _assign(list(classes.values()), self._marks | dict(recalled))
        self._uses, self._marks = uses, marks
        return [
            tuple(marks[use.key] if use is not None else 0 for use in uses[group.key][1])
            for group in groups
        ]

    def _look_at(self, group: CircuitGroup) -> list[_MarkNeed | None]:
        """What each branch of a group needs a mark for."""
        needs: list[_MarkNeed | None] = []
        for branch in group.branches:
            key = class_key(self._topology, group, branch)
            places = self._places(branch.path)
            if len(group.branches) > 1:
                places |= {("branches", group.key, "")}
            if key is None or not places:
                needs.append(None)
                continue
            queue = group.queue if group.data else ""
            alone = len(group.branches) == 1 and key.startswith(_OWN)
            needs.append(_MarkNeed(key, places, queue, alone, self._preferred(key, group)))
        return needs

    def _places(self, path: tuple[str, ...]) -> frozenset[Hashable]:
        if path not in self._crossed:
            self._crossed[path] = frozenset(hop for hop in pairwise(path) if hop in self._shaped)
        return self._crossed[path]

    def _preferred(self, key: ClassKey, group: CircuitGroup) -> int:
        """Where to look first: a pair of sites has a mark of its own among up to 8 sites."""
        if key.startswith(_OWN) and not (group.flows or group.hosts) and len(group.branches) == 1:
            src, dst = self._rank[group.src], self._rank[group.dst]
            # Position among ordered pairs without (i, i).
            return src * (len(self._rank) - 1) + dst - (dst > src)
        return hashlib.sha256(key.encode()).digest()[0]


def class_key(topology: Topology, group: CircuitGroup, branch: Branch) -> ClassKey | None:
    """The class that a branch's traffic belongs to; None for best effort."""
    if len(group.branches) > 1:
        return f"{_OWN}{group.key}|{'>'.join(branch.path)}"
    if group.sure:
        return _OWN + group.key
    if group.queue:
        return (SHARED if group.data else ACKS) + group.queue
    # Guaranteed nothing; a class would only hold it down.
    held_down = group.data and branch.max_bps < topology.path(branch.path).capacity_bps
    return _OWN + group.key if held_down else None


class _Table:
    """Who has which mark where."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, dict[int, _MarkNeed]] = {}
        self._shares: dict[tuple[frozenset[Hashable], str], tuple[int, frozenset[int]]] = {}
        self._version = 0
        self.crowd: Counter[int] = Counter()
        self.full: set[frozenset[Hashable]] = set()

    def give(self, use: _MarkNeed, mark: int) -> None:
        """It has this mark from now on."""
        self.crowd[mark] += 1
        for place in use.places:
            there = self._taken.setdefault(place, {})
            if mark not in there:
                there[mark] = use
                self._version += 1

    def free(self, use: _MarkNeed, mark: int) -> bool:
        """Whether nobody has this mark where it is needed."""
        return all(mark not in self._taken.get(place, ()) for place in use.places)

    def shareable(self, use: _MarkNeed) -> frozenset[int]:
        """The marks that it can share with those who have them."""
        about = (use.places, use.queue)
        version, marks = self._shares.get(about, (-1, frozenset()))
        if version != self._version:
            marks = frozenset(m for m in range(1, MARKS + 1) if self._may_join(use, m))
            self._shares[about] = (self._version, marks)
        return marks

    def _may_join(self, use: _MarkNeed, mark: int) -> bool:
        holders = (self._taken.get(place, {}).get(mark) for place in use.places)
        return all(h is None or (h.may_share and h.queue == use.queue) for h in holders)


def _assign(uses: list[_MarkNeed], remembered: Mapping[ClassKey, int]) -> dict[ClassKey, int]:
    table = _Table()
    marks: dict[ClassKey, int] = {}
    befores = [remembered.get(use.key) for use in uses]
    # Those that cannot share come first, then those that keep what they have.
    order = sorted(
        range(len(uses)), key=lambda i: (uses[i].may_share, befores[i] is None, uses[i].preferred)
    )
    for i in order:
        use, before = uses[i], befores[i]
        mark: int | None = None
        if before is not None and table.free(use, before):
            mark = before
        elif use.places not in table.full:
            probe = ((use.preferred + i) % MARKS + 1 for i in range(MARKS))
            mark = next((m for m in probe if table.free(use, m)), None)
        if mark is None:
            table.full.add(use.places)
            together = table.shareable(use) if use.may_share else frozenset()
            if not together:
                raise InputError(_exhausted(use))
            if before in together:
                mark = before
            else:
                mark = min(together, key=lambda m: (table.crowd[m], m))
        assert mark is not None
        marks[use.key] = mark
        table.give(use, mark)
    return marks


def _exhausted(use: _MarkNeed) -> str:
    hops = sorted(place for place in use.places if isinstance(place, tuple) and len(place) == 2)
    where = f"link {hops[0][0]}-{hops[0][1]}" if hops else "a circuit with several paths"
    inside = f" of queue {use.queue!r}" if use.queue else ""
    return (
        f"{where} has no DSCP value left for circuits{inside}: queues and circuits with several "
        f"paths take all {MARKS} there"
    )
