"""Brings switches and shaping from what is there to what is wanted, and back where that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from network_provisioner.controllers.base import Circuit, ControllerError
from network_provisioner.controllers.plan import Plan, default_routes, make_plan
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    OWNER_MASK,
    OWNER_SHIFT,
    ROUTE_OWNER,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    SeenRule,
    diff,
)
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.switches import SwitchBoard
from network_provisioner.errors import AdonError, InputError
from network_provisioner.topology import Topology

LOG = logging.getLogger(__name__)
_OURS = TRANSIT_OWNER << OWNER_SHIFT


class Reconciler:
    """The wanted circuits, and the steps that make the switches carry them.

    The truth is what the switches say: every step reads their rules first. Not thread-safe; its
    owner holds a lock around every call.
    """

    def __init__(
        self,
        topology: Topology,
        board: SwitchBoard,
        shaper: Shaper | None,
        clock: Callable[[], float],
    ) -> None:
        """Raises InputError for a topology whose best-effort routes cannot be laid."""
        self._topology = topology
        self._board = board
        self._shaper = shaper
        self._clock = clock
        self._routes = default_routes(topology, shaped=shaper is not None)
        # Switches that refused to be brought up to date, to be tried again.
        self._stale: set[int] = set()
        # None until somebody has said which circuits are wanted.
        self.circuits: tuple[Circuit, ...] | None = None

    def plan(self) -> Plan:
        """The plan for the wanted circuits whose lease has not ended."""
        return self._plan(self.circuits or ())

    def seen(self) -> list[SeenRule]:
        """The circuits' rules on all connected switches. Raises ControllerError."""
        found, _ = self._board.read_rules(self._board.connected(), _OURS, OWNER_MASK, self._clock())
        return [rule for rules in found.values() for rule in rules]

    def confirmed(self) -> list[SeenRule]:
        """The circuits' rules on all switches that answer."""
        rules: list[SeenRule] = []
        for dpid in self._board.connected():
            try:
                found, _ = self._board.read_rules({dpid}, _OURS, OWNER_MASK, self._clock())
            except ControllerError as error:
                LOG.warning("its rules do not count as installed: %s", error)
            else:
                rules += found[dpid]
        return rules

    def replace(
        self, circuits: Sequence[Circuit], observe: Callable[[Iterable[SeenRule]], None]
    ) -> Plan:
        """Make the switches carry exactly ``circuits``; returns the plan that is now in place.

        ``observe`` is given the rules as they were before. Raises ControllerError after having put
        back what was there; a switch that could not be put back is resynced when it answers again.
        """
        plan = self._plan(circuits)
        for dpid in self._stale & self._board.connected():
            self.resync(dpid, fresh=True)
        connected = self._board.connected()
        absent = {rule.dpid for rule in plan.rules} - connected
        if absent:
            names = ", ".join(self._board.label(dpid) for dpid in sorted(absent))
            raise ControllerError(f"{names} is not connected")
        before = self.seen()
        observe(before)
        shapes_before = self.plan().shapes
        try:
            if self._shaper is not None:
                self._shaper.grow(plan.shapes)
            self._change(diff((s.rule for s in before), plan.rules, self._clock()))
        except AdonError as error:
            self._put_back(connected, [s.rule for s in before])
            self._shape("restore shaping", lambda s: s.sync(shapes_before))
            raise ControllerError(str(error)) from error
        self.circuits = tuple(circuits)
        self._shape("remove idle classes", lambda s: s.shrink(plan.shapes))
        return plan

    def resync(self, dpid: int, *, fresh: bool) -> None:
        """Bring one switch and its devices to what is wanted now; nothing where it is away.

        ``fresh``: the switch has just connected, so what its devices do is not known. Raises
        ControllerError or MissingError, and remembers to try again.
        """
        if dpid not in self._board.connected():
            return
        self._stale.add(dpid)
        plan = self.plan()
        found, odd = self._board.read_rules({dpid}, _OURS, ANY_OWNER_MASK, self._clock())
        for cookie in odd[dpid]:
            self._board.delete_by_cookie(dpid, cookie, 2**64 - 1)
        there = [s.rule for s in found[dpid]]
        if self.circuits is None:
            # Circuits of an earlier run stay until the first `replace` says what is wanted.
            there = [rule for rule in there if rule.owner == ROUTE_OWNER]
        wanted = [rule for rule in (*self._routes, *plan.rules) if rule.dpid == dpid]
        if self._shaper is not None:
            if fresh:
                here = [s for s in plan.shapes if self._board.is_named(dpid, s.switch)]
                self._shaper.sync(here)
            else:
                self._shaper.grow(plan.shapes)
        self._change(diff(there, wanted, self._clock()))
        if self._shaper is not None and not fresh:
            self._shaper.shrink(plan.shapes)
        self._stale.discard(dpid)

    def wipe(self) -> None:
        """Remove every rule of ours and all shaping; what cannot be removed is logged."""
        for dpid in sorted(self._board.connected()):
            try:
                self._board.delete_by_cookie(dpid, _OURS, ANY_OWNER_MASK)
            except ControllerError as error:
                LOG.warning("rules were left behind: %s", error)
        self._shape("remove shaping", lambda s: s.clear())
        self.circuits = None
        self._stale.clear()

    def _plan(self, circuits: Sequence[Circuit]) -> Plan:
        try:
            return make_plan(
                self._topology, circuits, self._clock(), shaped=self._shaper is not None
            )
        except InputError as error:
            raise ControllerError(str(error)) from error

    def _change(self, changes: Changes) -> None:
        for step in changes.stages():
            per_switch: dict[int, Changes] = {}
            for dpid in {rule.dpid for rule in (*step.add, *step.delete)}:
                per_switch[dpid] = Changes(
                    add=tuple(rule for rule in step.add if rule.dpid == dpid),
                    delete=tuple(rule for rule in step.delete if rule.dpid == dpid),
                )
            self._board.send(per_switch, self._clock())

    def _put_back(self, dpids: set[int], before: list[FlowRule]) -> None:
        for dpid in dpids:
            self._stale.add(dpid)
            now = self._clock()
            try:
                found, _ = self._board.read_rules({dpid}, _OURS, OWNER_MASK, now)
                there = (s.rule for s in found[dpid])
                self._change(diff(there, [r for r in before if r.dpid == dpid], now))
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
