"""Brings switches and shaping from what is there to what is wanted, and back where that fails."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from network_provisioner.base.controller import Circuit, ControllerError, Queue
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.controllers.backend import SwitchBackend, port_devices, switch_names
from network_provisioner.controllers.groups import CircuitGroup
from network_provisioner.controllers.plan import Planner, SwitchPlan
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    EARLIER_S,
    LATER_S,
    OURS,
    OWNER_MASK,
    UNCOUNTED,
    Changes,
    FlowRule,
    SeenRule,
    SelectGroup,
    TableEntry,
    diff,
    diff_entries,
    item_text,
    same_but_lease,
)
from network_provisioner.controllers.shaping.shapes import DeviceShape, Shaper
from network_provisioner.controllers.switch_state import SwitchState
from network_provisioner.topology.graph import Hop, Topology

LOG = logging.getLogger(__name__)
# What a switch has is read rule by rule at least so often, whatever its fingerprint says.
CHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class Transition:
    """From one plan to another on these switches, and what the latter is for."""

    switches: set[int]
    before: SwitchPlan
    after: SwitchPlan
    circuits: tuple[Circuit, ...]
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Resync:
    """What was found when one switch was compared with what it should have: whether its rules
    ``changed``, how many things were ``missing`` or wrong, by kind, and an ``example`` of them."""

    changed: bool = False
    missing: Mapping[str, int] = field(default_factory=dict)
    example: str = ""

    def __str__(self) -> str:
        what = ", ".join(f"{number} {kind}" for kind, number in self.missing.items())
        return f"{what} were missing or wrong, such as {self.example}"


class Reconciler:
    """The desired circuits and queues, and the steps that make the switches carry them.

    The truth is what the switches say: every step asks them first. Not thread-safe; its owner holds
    a lock around every call.
    """

    def __init__(
        self,
        topology: Topology,
        backend: SwitchBackend,
        shaper: Shaper | None,
        clock: Callable[[], float],
        keep: str,
        unused: Sequence[Shaper] = (),
    ) -> None:
        """``keep`` is how rates are kept: see plan. ``unused`` are shapers that an earlier
        configuration may have laid something by. Raises InputError for a topology whose
        best-effort routes cannot be laid."""
        self._topology = topology
        self._names = switch_names(topology)
        self._backend = backend
        self._shaper = shaper
        self._unused = unused
        self._devices = sorted(
            {device for link in topology.whole_links for device in (link.devices or {}).values()}
        )
        self._clock = clock
        self._state = SwitchState(backend, clock)
        # Switches that refused to be brought up to date, to be tried again.
        self._stale: set[int] = set()
        # What each switch looked like before it was compared last and nothing had to be changed,
        # and the monotonic second of that.
        self._fingerprints: dict[int, tuple[Hashable, float]] = {}
        # How many rules of ours each switch has room for, as far as it said.
        self._room: dict[int, int] = {}
        # None until somebody has said which circuits are wanted.
        self.circuits: tuple[Circuit, ...] | None = None
        self._queues: tuple[Queue, ...] = ()
        # When they were said, in the switch state's epochs.
        self._epoch = 0
        self._current: tuple[SwitchPlan, float] | None = None
        # The plans that devices, and each switch, were brought to last.
        self._shaped: SwitchPlan | None = None
        self._brought: dict[int, SwitchPlan] = {}
        self._failed: frozenset[Hop] = frozenset()
        self._ends = {device: end for end, device in port_devices(topology).items()}
        self._queued: set[str] = set()  # the devices that had all their queues
        self.keep_by(keep)

    def keep_by(self, keep: str) -> None:
        """Keep rates in another way from the next change on."""
        self._keep = keep
        self._planner = Planner(self._topology, keep)
        self._failed = frozenset()
        self._current = None
        self._fingerprints.clear()

    def avoid(self, failed: frozenset[Hop]) -> None:
        """Lay best effort over other links than these from the next change on."""
        if failed != self._failed:
            self._failed = failed
            self._planner.avoid(failed)
            self._current = None

    def plan(self) -> SwitchPlan:
        """The plan for the desired circuits whose lease has not ended."""
        now = self._clock()
        if self._current is None or now >= self._current[1]:
            circuits = self.circuits or ()
            self._take(self._plan(circuits, self._queues), circuits)
        assert self._current is not None
        return self._current[0]

    def confirmed(self) -> list[SeenRule]:
        """The circuits' rules on all switches that answer."""
        rules: list[SeenRule] = []
        for dpid in self._backend.connected():
            try:
                rules_by_switch, _ = self._backend.read_rules(
                    {dpid}, OURS, OWNER_MASK, self._clock()
                )
            except ControllerError as error:
                LOG.warning("its rules do not count as installed: %s", error)
            else:
                rules += rules_by_switch[dpid]
        return rules

    def counted(self, groups: Iterable[CircuitGroup]) -> list[SeenRule]:
        """The rules of some groups at their first switch, with their bytes. Where that one does not
        answer, none; nor where two sites have no addresses of one family."""
        rules = self.plan().by_group
        return self.counted_by(rule for group in groups for rule in rules[group.key][:1])

    def counted_by(self, rules: Iterable[FlowRule]) -> list[SeenRule]:
        """Rules with their bytes, of the switches that answer and count: all with a cookie of
        these."""
        wanted: dict[int, set[int]] = {}
        for rule in rules:
            wanted.setdefault(rule.dpid, set()).add(rule.cookie)
        there = wanted.keys() & self._backend.connected()
        try:
            seen = self._backend.read_bytes({d: sorted(wanted[d]) for d in there}, self._clock())
        except ControllerError as error:
            if there <= self._backend.connected():  # else that is said already
                LOG.warning("its bytes are not counted: %s", error)
            return []
        return [rule for rule in seen if rule.bytes != UNCOUNTED]

    def prepare(self, circuits: Sequence[Circuit], queues: Sequence[Queue]) -> Transition:
        """What will change where exactly these are wanted; nothing does so yet. Raises
        ControllerError for what cannot be had: also for a new circuit over a switch that is away.
        Those that were there before get their rules on that switch when it is back."""
        unready = {}
        for dpid in self._stale & self._backend.connected():
            try:
                self.resync(dpid, fresh=True)
            except ControllerError as error:
                unready[dpid] = str(error)
        connected = self._backend.connected() - unready.keys()
        before = self.plan()
        changed, silent = self._refresh(connected)
        unready |= silent
        connected -= silent.keys()
        if changed:
            self._planner.recall(self._state.rules(connected), self._state.entries(connected))
        if self._shaper is not None and self._state.taken_over(connected):
            self._shaper.doubt()
        after = self._plan(circuits, queues)
        needed = self._needed(after, circuits)
        label = self._backend.label
        for dpid in needed & connected:
            if self.lack(dpid, after):
                self._note_room(dpid)  # it may have more by now than when it was asked
        unready |= {
            dpid: f"{label(dpid)} {why}"
            for dpid in needed & (connected | unready.keys())
            if (why := self.lack(dpid, after))
        }
        absent = needed - (connected - unready.keys())
        if absent:
            away = [label(dpid) for dpid in sorted(absent - unready.keys())]
            problems = [f"{', '.join(away)} is not connected"] if away else []
            problems += [unready[dpid] for dpid in sorted(absent & unready.keys())]
            raise ControllerError("; ".join(dict.fromkeys(problems)))
        return Transition(connected, before, after, tuple(circuits), tuple(queues))

    def _refresh(self, dpids: set[int]) -> tuple[bool, dict[int, str]]:
        """Whether anything of these had to be read anew, and which of them cannot be, with why."""
        try:
            return self._state.refresh(dpids), {}
        except ControllerError as error:  # of which of them?
            self._state.forget(dpids)
            left = dpids & self._backend.connected()
            silent = dict.fromkeys(dpids - left, str(error))
        for dpid in left:
            try:
                self._state.refresh({dpid})
            except ControllerError as error:
                silent[dpid] = str(error)
        return True, silent

    def lack(self, dpid: int, plan: SwitchPlan | None = None) -> str:
        """In words, that a switch's table is too small for a plan, that of now if none is given;
        "" where it is not, as far as it said."""
        plan, room = plan or self.plan(), self._room.get(dpid)
        if room is None or len(plan.routes) + len(plan.rules) < room:  # they are for all switches
            return ""
        wanted = 1 + sum(rule.dpid == dpid for rule in (*plan.routes, *plan.rules))
        if wanted <= room:
            return ""
        return f"has room for {room} rules of ours in its flow table, expected {wanted}"

    def _needed(self, plan: SwitchPlan, circuits: Sequence[Circuit]) -> set[int]:
        """The switches on the paths of circuits that were not there before, or went another way."""
        if self.circuits is None:  # after a restart all of them were there
            return set()
        had = {c.id: [part.path for part in c.all_parts] for c in self.circuits}
        new = {c.id for c in circuits if had.get(c.id) != [part.path for part in c.all_parts]}
        return {
            rule.dpid
            for group in plan.groups
            if new & {*group.data, *group.acks}
            for rule in plan.rules_of(group)
        }

    def apply(self, prepared: Transition) -> None:
        """Make it so. Raises ControllerError after having put
        back what was there; a switch that could not be put back is resynced when it answers."""
        switches, plan = prepared.switches, prepared.after
        there = self._state.rules(switches), self._state.entries(switches)
        epoch = max(self._state.epoch(switches), self._epoch)
        if self.circuits is None and self._unused:
            self._remove_unused()
            if self._shaper is not None:  # Open vSwitch takes whatever is on a device off with it
                self._shaper.doubt()
        try:
            if self._shaper is not None:
                self._shaper.grow(plan.shapes)
            changed = self._bring(switches, (*plan.routes, *plan.rules), plan.entries, epoch + 1)
        except AdonError as error:
            self._put_back(switches, *there)
            self._shape("restore shaping", lambda s: _restore(s, prepared.before.shapes))
            raise ControllerError(str(error)) from error
        self.circuits, self._queues = prepared.circuits, prepared.queues
        self._epoch = epoch + bool(changed)
        self._take(plan, self.circuits)
        for dpid in self._names.keys() - switches:
            self._fingerprints.pop(dpid, None)
        self._shape("remove idle classes", lambda s: s.shrink(plan.shapes))
        self._shaped = plan
        self._brought.update(dict.fromkeys(switches, plan))

    def is_as_before(self, dpid: int, fingerprint: Hashable) -> bool:
        """Whether a switch still looks as it did when it was compared lately."""
        before, at = self._fingerprints.get(dpid, (None, -math.inf))
        return before == fingerprint and time.monotonic() - at < CHECK_S

    def resync(self, dpid: int, *, fresh: bool, fingerprint: Hashable = None) -> Resync:
        """Bring one switch and its devices to what is wanted now; nothing where it is away.

        ``fresh``: what its devices do is to be looked at as well. ``fingerprint`` is what the
        switch looked like before. A switch that another broker changed which decided later is left
        to it. Raises ControllerError or MissingError, and remembers to try again.
        """
        self._fingerprints.pop(dpid, None)
        if dpid not in self._backend.connected():
            return Resync()
        was_stale = dpid in self._stale
        self._stale.add(dpid)
        self._state.forget({dpid})
        self._state.refresh({dpid})
        latest = self._state.epoch({dpid})
        if self.circuits is not None and latest > self._epoch and self._state.foreign(dpid):
            LOG.info("%s is kept by another broker", self._backend.label(dpid))
            self._stale.discard(dpid)
            self._fingerprints[dpid] = fingerprint, time.monotonic()
            return Resync()
        self._note_room(dpid)
        plan = self.plan()
        rules, entries = [*plan.routes, *plan.rules], list(plan.entries)
        if self.circuits is None:
            # What is there of an earlier run stays until it is said what is wanted: a route that
            # is another one by now changes on all switches together, the first one last.
            there_before = self._state.rules({dpid})
            keys = {rule.key for rule in there_before}
            rules = [*there_before, *(rule for rule in plan.routes if rule.key not in keys)]
            entries = self._state.entries({dpid})
        if self._shaper is not None:
            if self.circuits is None:
                self._shaper.begin(self._shapes_at(dpid, plan))
            elif fresh:
                self._shaper.sync(self._shapes_at(dpid, plan))
            else:
                self._shaper.grow(plan.shapes)
        wrong, other = self._wrong(dpid, self._brought.get(dpid, plan))
        changes = self._bring({dpid}, rules, entries, max(latest, self._epoch))
        if self.circuits is not None:
            self._brought[dpid] = plan
        if self._shaper is not None and not fresh and self.circuits is not None:
            self._shaper.shrink(plan.shapes)
        if not changes:
            self._fingerprints[dpid] = fingerprint, time.monotonic()
        self._stale.discard(dpid)
        if was_stale:  # what is wrong there is of our own making
            return Resync(bool(changes))
        repairs = Counter({"rules": len(wrong), "groups and meters": len(other)})
        example = next(map(item_text, (*wrong, *other)), "")
        return Resync(bool(changes), +repairs, example)

    def _wrong(self, dpid: int, plan: SwitchPlan) -> tuple[list[FlowRule], list[TableEntry]]:
        """What is not on a switch as it was brought there: rules, and groups and meters. What has
        changed with time since, as a lease has ended, is no fault."""
        now = self._clock()
        seen = {rule.key: rule for rule in self._state.rules({dpid})}
        changes = diff(seen, [r for r in (*plan.routes, *plan.rules) if r.dpid == dpid], now)
        wrong = [
            r
            for r in changes.add
            if r.expires_at > now + EARLIER_S
            and (r.key not in seen or not same_but_lease(seen[r.key], r))
        ]
        wrong += [rule for rule in changes.delete if rule.expires_at > now + LATER_S]
        there = self._state.entries({dpid})
        # OpenDaylight does not say what is in a group, so each is written again.
        known = {e.key for e in there if not isinstance(e, SelectGroup) or e.buckets}
        entries = diff_entries(there, [e for e in plan.entries if e.dpid == dpid])
        return wrong, [
            *entries.add_entries,
            *(entry for entry in entries.change_entries if entry.key in known),
        ]

    def _note_room(self, dpid: int) -> None:
        free = self._backend.free_entries(dpid)
        self._room.pop(dpid, None)
        if free is not None:
            self._room[dpid] = free + len(self._state.rules({dpid})) + 1  # and the stamp

    def check_devices(self, dpids: Iterable[int]) -> dict[int, Resync | AdonError]:
        """Have the devices of these switches do what they should: what was wrong on each switch, or
        why it still is."""
        shaper = self._shaper
        if shaper is None or self.circuits is None:
            return {}
        plan = self.plan()
        if plan is not self._shaped:  # what was for leases that have ended is no fault
            self._shape("change classes", lambda s: s.grow(plan.shapes))
            self._shape("remove idle classes", lambda s: s.shrink(plan.shapes))
            self._shaped = plan
        shapes = {dpid: self._shapes_at(dpid, plan) for dpid in dpids}
        if self._keep == "queue":
            shaper.doubt(self._without_queues(shapes))
        try:
            wrong = shaper.sync([shape for here in shapes.values() for shape in here])
        except AdonError:  # on which of them?
            wrong = None
        results: dict[int, Resync | AdonError] = {}
        for dpid, here in shapes.items():
            try:
                at = shaper.sync(here) if wrong is None else wrong
            except AdonError as error:
                results[dpid] = error
            else:
                at = [shape.device for shape in here if shape.device in at]
                count = Counter({"devices' classes": len(at)})
                results[dpid] = Resync(bool(at), +count, "".join(at[:1]))
        return results

    def _without_queues(self, shapes: Mapping[int, Sequence[DeviceShape]]) -> list[str]:
        """The devices that have lost queues, though a database may say that they have them."""
        lost = []
        for dpid, here in shapes.items():
            try:
                there = self._backend.queues(dpid)
            except ControllerError as error:
                LOG.info("queues are not known: %s", error)
                continue
            for shape in here:
                numbers = {n for end, n in there if (dpid, end) == self._ends[shape.device]}
                if numbers >= {0, *(c.mark for c in shape.classes)}:
                    self._queued.add(shape.device)
                elif shape.device in self._queued:  # else the switch may not say
                    lost.append(shape.device)
        return lost

    def _shapes_at(self, dpid: int, plan: SwitchPlan) -> list[DeviceShape]:
        return [shape for shape in plan.shapes if shape.switch == self._names[dpid]]

    def clear(self) -> None:
        """Remove every rule of ours and all shaping; what cannot be removed is logged."""
        for dpid in sorted(self._backend.connected()):
            try:
                self._backend.delete_by_cookie(dpid, OURS, ANY_OWNER_MASK)
                entries = tuple(self._backend.read_entries({dpid})[dpid])
                self._backend.send({dpid: Changes(delete_entries=entries)}, self._clock())
            except ControllerError as error:
                LOG.warning("rules were left behind: %s", error)
        self._shape("remove shaping", lambda s: s.remove(self._devices))
        self._remove_unused()
        self.forget()

    def _remove_unused(self) -> None:
        """Take off the devices what rates were kept by before the configuration was changed."""
        for shaper in self._unused if self._devices else ():
            try:
                shaper.remove(self._devices)
            except AdonError as error:  # most likely it was never used
                LOG.info("no shaping of another kind was looked for: %s", error)

    def forget(self) -> None:
        """Know nothing any more: neither what is wanted, nor what is there."""
        self._state = SwitchState(self._backend, self._clock)
        self.circuits, self._queues, self._epoch = None, (), 0
        self._current = None
        self._stale.clear()
        self._fingerprints.clear()
        self._shaped, self._brought = None, {}

    def _plan(self, circuits: Sequence[Circuit], queues: Sequence[Queue]) -> SwitchPlan:
        try:
            return self._planner.plan(circuits, self._clock(), queues)
        except InputError as error:
            raise ControllerError(str(error)) from error

    def _take(self, plan: SwitchPlan, circuits: Sequence[Circuit]) -> None:
        """This plan holds until the next lease ends."""
        now = self._clock()
        ends = (c.lease_until for c in circuits if c.lease_until > now)
        self._current = plan, min(ends, default=math.inf)

    def _bring(
        self,
        dpids: set[int],
        rules: Iterable[FlowRule],
        entries: Iterable[TableEntry],
        epoch: int,
    ) -> Changes:
        """Bring these switches from what is there to these rules, groups and meters. Returns what
        had to be changed."""
        wanted = [rule for rule in rules if rule.dpid in dpids]
        changes = diff(self._state.rules(dpids), wanted, self._clock())
        changes |= diff_entries(
            self._state.entries(dpids), [entry for entry in entries if entry.dpid in dpids]
        )
        self._state.change(changes, epoch)
        return changes

    def _put_back(self, dpids: set[int], rules: list[FlowRule], entries: list[TableEntry]) -> None:
        for dpid in dpids:
            self._stale.add(dpid)
            self._state.forget({dpid})
            try:
                self._state.refresh({dpid})
                self._bring({dpid}, rules, entries, max(self._state.epoch({dpid}), self._epoch))
            except ControllerError as error:
                LOG.warning("not restored yet: %s", error)
            else:
                self._stale.discard(dpid)

    def _shape(self, what: str, step: Callable[[Shaper], None]) -> None:
        """A shaping step that traffic does not depend on: a failure is logged."""
        if self._shaper is None:
            return
        try:
            step(self._shaper)
        except AdonError as error:
            LOG.warning("could not %s: %s", what, error)


def _restore(shaper: Shaper, shapes: Sequence[DeviceShape]) -> None:
    """What is on the devices is one or the other, or half of it."""
    shaper.doubt()
    shaper.grow(shapes)
    shaper.shrink(shapes)
