"""Brings switches and shaping from what is there to what is wanted, and back where that fails."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

from network_provisioner.controllers.aids import Aid
from network_provisioner.controllers.base import Circuit, ControllerError, Queue
from network_provisioner.controllers.beliefs import OURS, Beliefs
from network_provisioner.controllers.board import Board
from network_provisioner.controllers.groups import Group
from network_provisioner.controllers.plan import Plan, Planner
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    OWNER_MASK,
    ROUTE_OWNER,
    Changes,
    FlowRule,
    SeenRule,
    diff,
    diff_aids,
)
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.shaping import DeviceShape
from network_provisioner.errors import AdonError, InputError
from network_provisioner.topology import Topology

LOG = logging.getLogger(__name__)


class Reconciler:
    """The wanted circuits and queues, and the steps that make the switches carry them.

    The truth is what the switches say: every step asks them first. Not thread-safe; its owner holds
    a lock around every call.
    """

    def __init__(
        self,
        topology: Topology,
        board: Board,
        shaper: Shaper | None,
        clock: Callable[[], float],
        keep: str,
    ) -> None:
        """``keep`` is how rates are kept: see plan. Raises InputError for a topology whose
        best-effort routes cannot be laid."""
        self._topology = topology
        self._board = board
        self._shaper = shaper
        self._clock = clock
        self._beliefs = Beliefs(board, clock)
        # Switches that refused to be brought up to date, to be tried again.
        self._stale: set[int] = set()
        # None until somebody has said which circuits are wanted.
        self.circuits: tuple[Circuit, ...] | None = None
        self._queues: tuple[Queue, ...] = ()
        # When they were said, in the beliefs' epochs.
        self._epoch = 0
        self._current: tuple[Plan, float] | None = None
        self.keep_by(keep)

    def keep_by(self, keep: str) -> None:
        """Keep rates in another way from the next change on."""
        self._planner = Planner(self._topology, keep)
        self._current = None

    def plan(self) -> Plan:
        """The plan for the wanted circuits whose lease has not ended."""
        now = self._clock()
        if self._current is None or now >= self._current[1]:
            circuits = self.circuits or ()
            self._take(self._plan(circuits, self._queues), circuits)
        assert self._current is not None
        return self._current[0]

    def confirmed(self) -> list[SeenRule]:
        """The circuits' rules on all switches that answer."""
        rules: list[SeenRule] = []
        for dpid in self._board.connected():
            try:
                found, _ = self._board.read_rules({dpid}, OURS, OWNER_MASK, self._clock())
            except ControllerError as error:
                LOG.warning("its rules do not count as installed: %s", error)
            else:
                rules += found[dpid]
        return rules

    def counted(self, groups: Iterable[Group]) -> list[SeenRule]:
        """The rules of some groups at their first switch, with their bytes. Where that one does not
        answer, none."""
        rules = self.plan().by_group
        wanted: dict[int, set[int]] = {}
        for group in groups:
            first = rules[group.key][0]
            wanted.setdefault(first.dpid, set()).add(first.cookie)
        wanted = {d: cookies for d, cookies in wanted.items() if d in self._board.connected()}
        try:
            if self._board.native is not None:
                asked = {dpid: sorted(cookies) for dpid, cookies in wanted.items()}
                return self._board.native.read_bytes(asked, self._clock())
            found, _ = self._board.read_rules(set(wanted), OURS, OWNER_MASK, self._clock())
        except ControllerError as error:
            LOG.warning("its bytes are not counted: %s", error)
            return []
        return [seen for rules_there in found.values() for seen in rules_there]

    def replace(
        self,
        circuits: Sequence[Circuit],
        queues: Sequence[Queue],
        observe: Callable[[Plan, Plan], None],
    ) -> Plan:
        """Make the switches carry exactly ``circuits``; returns the plan that is now in place.

        ``observe`` is given the plans before and after while the rules are still as before. Raises
        ControllerError after having put back what was there; a switch that could not be put back is
        resynced when it answers again.
        """
        for dpid in self._stale & self._board.connected():
            self.resync(dpid, fresh=True)
        connected = self._board.connected()
        before = self.plan()
        if self._beliefs.look(connected):
            self._planner.recall(self._beliefs.rules(connected), self._beliefs.aids(connected))
        if self._shaper is not None and self._beliefs.taken_over(connected):
            self._shaper.doubt()
        plan = self._plan(circuits, queues)
        absent = {rule.dpid for rule in plan.rules} - connected
        if absent:
            names = ", ".join(self._board.label(dpid) for dpid in sorted(absent))
            raise ControllerError(f"{names} is not connected")
        observe(before, plan)
        there, aids_there = self._beliefs.rules(connected), self._beliefs.aids(connected)
        changes = self._changes(there, aids_there, plan, connected)
        epoch = max(self._beliefs.epoch(connected), self._epoch)
        try:
            if self._shaper is not None:
                self._shaper.grow(plan.shapes)
            self._beliefs.change(changes, epoch + 1)
        except AdonError as error:
            self._put_back(connected, there, aids_there)
            self._shape("restore shaping", lambda s: _restore(s, before.shapes))
            raise ControllerError(str(error)) from error
        self.circuits, self._queues = tuple(circuits), tuple(queues)
        self._epoch = epoch + bool(changes)
        self._take(plan, self.circuits)
        self._shape("remove idle classes", lambda s: s.shrink(plan.shapes))
        return plan

    def resync(self, dpid: int, *, fresh: bool) -> bool:
        """Bring one switch and its devices to what is wanted now; nothing where it is away.

        ``fresh``: the switch has just connected, so what its devices do is not known. A switch that
        somebody changed who knows of later wishes is left to them. Returns whether rules had to be
        changed. Raises ControllerError or MissingError, and remembers to try again.
        """
        if dpid not in self._board.connected():
            return False
        self._stale.add(dpid)
        self._beliefs.forget({dpid})
        self._beliefs.look({dpid})
        latest = self._beliefs.epoch({dpid})
        if self.circuits is not None and latest > self._epoch and self._beliefs.foreign(dpid):
            LOG.info("%s is kept by another broker", self._board.label(dpid))
            self._stale.discard(dpid)
            return False
        plan = self.plan()
        there, aids = self._beliefs.rules({dpid}), self._beliefs.aids({dpid})
        if self.circuits is None:
            # Circuits of an earlier run stay until the first `replace` says what is wanted.
            there, aids = [rule for rule in there if rule.owner == ROUTE_OWNER], []
        if self._shaper is not None:
            here = [s for s in plan.shapes if self._board.is_named(dpid, s.switch)]
            if self.circuits is None:
                self._shaper.begin(here)
            elif fresh:
                self._shaper.sync(here)
            else:
                self._shaper.grow(plan.shapes)
        changes = self._changes(there, aids, plan, {dpid})
        self._beliefs.change(changes, max(latest, self._epoch))
        if self._shaper is not None and not fresh and self.circuits is not None:
            self._shaper.shrink(plan.shapes)
        self._stale.discard(dpid)
        return bool(changes)

    def wipe(self) -> None:
        """Remove every rule of ours and all shaping; what cannot be removed is logged."""
        for dpid in sorted(self._board.connected()):
            try:
                self._board.delete_by_cookie(dpid, OURS, ANY_OWNER_MASK)
                if self._board.native is not None:
                    aids = tuple(self._board.native.read_aids({dpid})[dpid])
                    self._board.send({dpid: Changes(delete_aids=aids)}, self._clock())
            except ControllerError as error:
                LOG.warning("rules were left behind: %s", error)
        self._shape("remove shaping", lambda s: s.clear())
        self.forget()

    def forget(self) -> None:
        """Know nothing any more: neither what is wanted, nor what is there."""
        self._beliefs = Beliefs(self._board, self._clock)
        self.circuits, self._queues, self._epoch = None, (), 0
        self._current = None
        self._stale.clear()

    def _plan(self, circuits: Sequence[Circuit], queues: Sequence[Queue]) -> Plan:
        try:
            return self._planner.plan(circuits, self._clock(), queues)
        except InputError as error:
            raise ControllerError(str(error)) from error

    def _take(self, plan: Plan, circuits: Sequence[Circuit]) -> None:
        """This plan holds until the next lease ends."""
        now = self._clock()
        ends = (c.lease_until for c in circuits if c.lease_until > now)
        self._current = plan, min(ends, default=math.inf)

    def _changes(
        self, there: list[FlowRule], aids: list[Aid], plan: Plan, dpids: set[int]
    ) -> Changes:
        """What brings these switches from what is there to the plan."""
        wanted = [rule for rule in (*plan.routes, *plan.rules) if rule.dpid in dpids]
        rules = diff(there, wanted, self._clock())
        about = diff_aids(aids, [aid for aid in plan.aids if aid.dpid in dpids])
        return Changes(
            rules.add, rules.delete, about.add_aids, about.change_aids, about.delete_aids
        )

    def _put_back(self, dpids: set[int], rules: list[FlowRule], aids: list[Aid]) -> None:
        for dpid in dpids:
            self._stale.add(dpid)
            self._beliefs.forget({dpid})
            try:
                self._beliefs.look({dpid})
                before = [rule for rule in rules if rule.dpid == dpid]
                about = diff_aids(
                    self._beliefs.aids({dpid}), [aid for aid in aids if aid.dpid == dpid]
                )
                back = diff(self._beliefs.rules({dpid}), before, self._clock())
                self._beliefs.change(
                    Changes(
                        back.add, back.delete, about.add_aids, about.change_aids, about.delete_aids
                    ),
                    max(self._beliefs.epoch({dpid}), self._epoch),
                )
            except ControllerError as error:
                LOG.warning("not put back yet: %s", error)
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
