"""Switches that OpenDaylight controls, reached over RESTCONF.

Two ways lead to a switch. Best-effort routes stay, so they go into the configuration datastore, and
OpenDaylight lays them again whenever a switch comes back, also while no broker runs. A circuit's
rules have a lease: they are handed to the switch by RPC, which tells the switch's own refusal,
keeps the counters of a rule whose lease is renewed, and leaves nothing that would bring a circuit
back after its end. (The datastore does all three otherwise: a changed rule is removed and added
anew, a refused one is accepted in silence, an ended one returns with its switch.)
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from network_provisioner.controllers import odl_discovery, odl_flows
from network_provisioner.controllers.aids import Aid
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.board import Native
from network_provisioner.controllers.odl_ask import OdlAsk, Origin
from network_provisioner.controllers.odl_steps import OdlSteps, Step, name_of, run_wave
from network_provisioner.controllers.restconf import Restconf
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    OWNER_SHIFT,
    ROUTE_OWNER,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    SeenRule,
    is_stamp,
    same_but_lease,
)
from network_provisioner.topologies.discovery import Discovered

LOG = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.1


class OdlBoard:
    """A :class:`~network_provisioner.controllers.board.Board` behind OpenDaylight.

    ``names`` gives the datapath ids that are expected, with the switches' names. Which switches are
    there is looked up every ``poll_s``; ``settle_s`` is how long a switch may take to show what it
    was told.
    """

    def __init__(
        self,
        rest: Restconf,
        names: Mapping[int, str],
        on_up: Callable[[int], None],
        on_removed: Callable[[int], None],
        clock: Callable[[], float],
        *,
        poll_s: float = 1.0,
        settle_s: float = 10.0,
        discover_s: float = odl_discovery.SECONDS,
    ) -> None:
        self._rest = rest
        self._ask = OdlAsk(rest)
        self._steps = OdlSteps(rest, self.label)
        self._names = dict(names)
        self._on_up = on_up
        self._on_removed = on_removed
        self._clock = clock
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._discover_s = discover_s
        self._there: dict[int, Origin] = {}
        # When the next lease on a switch ends; nobody tells.
        self._next_end: dict[int, float] = {}
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    def open(self) -> None:
        """See Board. Asks once, so that a wrong address or password is told at once."""
        self._closing.clear()
        self._there = {}
        self._next_end = {}
        self._look()
        self._watcher = threading.Thread(target=self._watch, name="adon-odl", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """See Board."""
        self._closing.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        self._watcher = None

    @property
    def native(self) -> Native:
        """See Board."""
        return self

    def expectation(self) -> str:
        """See Board."""
        return f"to {self._rest.label}, expected the switches' controller to be set to it"

    def label(self, dpid: int) -> str:
        """See Board."""
        return f"switch {self._names.get(dpid, '?')} (dpid {dpid})"

    def is_named(self, dpid: int, name: str) -> bool:
        """See Board."""
        return self._names.get(dpid) == name

    def connected(self) -> set[int]:
        """See Board. While OpenDaylight does not answer: those that were, as far as is known."""
        return set(self._there)

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """See Board. A refused route is taken out of the configuration again."""
        absent = sorted(changes.keys() - self._there.keys())
        if absent:
            raise ControllerError(f"{', '.join(map(self.label, absent))} is not connected")
        try:
            for wave in self._waves(list(changes.values()), now):
                run_wave(wave, self._steps.barrier)
            self._settle(changes)
        except ControllerError:
            self._withdraw(rule for change in changes.values() for rule in change.add)
            raise
        for dpid, change in changes.items():
            self._note_ends(dpid, change.add)

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        """See Board."""
        configured = self._ask.configured(dpid, cookie, mask)
        run_wave([self._steps.forget(dpid, name) for name in configured], self._steps.barrier)
        run_wave([self._steps.delete_by_cookie(dpid, cookie, mask)], self._steps.barrier)

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """See Board."""
        seen: dict[int, list[SeenRule]] = {}
        odd: dict[int, set[int]] = {}
        for dpid in dpids:
            seen[dpid], odd[dpid] = self._ask.rules(dpid, cookie, mask, now)
            self._note_ends(dpid, [s.rule for s in seen[dpid]])
        return seen, odd

    def sent_bytes(self, dpids: set[int]) -> dict[int, dict[int, int]]:
        """See Board."""
        return {dpid: self._ask.sent_bytes(dpid) for dpid in dpids}

    # --- Native -------------------------------------------------------------------------------

    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        """See Native."""
        return [
            rule
            for dpid, cookies in wanted.items()
            for rule in self._ask.rules_of(dpid, cookies, now)
        ]

    def read_aids(self, dpids: set[int]) -> dict[int, list[Aid]]:
        """See Native. What is in a group is not known, so whoever wants one writes it anew."""
        return {dpid: [*self._ask.groups(dpid)] for dpid in dpids}

    def can_meter(self, dpid: int) -> bool:
        """See Native. OpenDaylight's update of a meter is an addition, which switches refuse
        (METEREXISTS), and to delete one deletes its rules: a rate could not be changed."""
        return False

    def discover(self) -> Discovered:
        """See Discovers."""
        return odl_discovery.discover(self._rest, self._steps, self.connected(), self._discover_s)

    # --- changing -----------------------------------------------------------------------------

    def _waves(self, changes: Sequence[Changes], now: float) -> list[list[Step]]:
        """What may be asked for at once; stamps come before anything else."""
        steps = self._steps
        adding = [rule for change in changes for rule in change.add]
        return [
            [steps.add(rule, now) for rule in adding if is_stamp(rule)],
            [steps.add_group(aid, there=False) for c in changes for aid in c.add_aids],
            [
                *(steps.add(rule, now) for rule in adding if not is_stamp(rule)),
                *(steps.add_group(aid, there=True) for c in changes for aid in c.change_aids),
            ],
            [steps.delete(rule) for change in changes for rule in change.delete],
            [steps.delete_group(aid) for change in changes for aid in change.delete_aids],
        ]

    def _settle(self, changes: Mapping[int, Changes]) -> None:
        """Return when the switches show what they were told. Raises ControllerError."""
        end = time.monotonic() + self._settle_s
        left = dict(changes)
        while True:
            late = {dpid: self._missing(dpid, change) for dpid, change in left.items()}
            left = {dpid: left[dpid] for dpid, what in late.items() if what}
            if not left:
                return
            if time.monotonic() >= end or self._closing.wait(_LOOK_AGAIN_S):
                dpid = min(left)
                raise ControllerError(
                    f"{self.label(dpid)} did not do what {self._rest.label} accepted for "
                    f"{late[dpid]} within {self._settle_s:g} s"
                )

    def _missing(self, dpid: int, change: Changes) -> str:
        """What a switch should have and has not, or should not have; "" where all is well."""
        now = self._clock()
        seen, _ = self._ask.rules(dpid, TRANSIT_OWNER << OWNER_SHIFT, ANY_OWNER_MASK, now)
        rules = {s.rule.key: s.rule for s in seen}
        for rule in change.add:
            found = rules.get(rule.key)
            if rule.expires_at > now and (found is None or not same_but_lease(found, rule)):
                return name_of(rule)
        added = {rule.key for rule in change.add}
        for rule in change.delete:
            if rule.key in rules and rule.key not in added:
                return name_of(rule)
        wanted = {aid.key for aid in (*change.add_aids, *change.change_aids)}
        gone = {aid.key for aid in change.delete_aids}
        if wanted or gone:
            groups = {group.key for group in self._ask.groups(dpid)}
            if wanted - groups or gone & groups:
                return "a group"
        return ""

    def _note_ends(self, dpid: int, rules: Iterable[FlowRule]) -> None:
        """Look at the switch when the first of these leases has ended, too."""
        ends = (rule.expires_at for rule in rules)
        self._next_end[dpid] = min(self._next_end.get(dpid, math.inf), min(ends, default=math.inf))

    def _withdraw(self, rules: Iterable[FlowRule]) -> None:
        for rule in rules:
            if rule.owner == ROUTE_OWNER:
                try:
                    self._steps.forget(rule.dpid, odl_flows.flow_id(rule)).run()
                except ControllerError as error:
                    LOG.warning("a route stays configured: %s", error)

    # --- watching -----------------------------------------------------------------------------

    def _watch(self) -> None:
        out = False
        while not self._closing.wait(self._poll_s):
            try:
                if out:
                    # Whatever happened meanwhile, nobody saw it.
                    self._there = {}
                self._look()
                out = False
            except ControllerError as error:
                if not out:
                    LOG.warning("switches are out of sight: %s", error)
                out = True
            now = self._clock()
            for dpid in [d for d, end in self._next_end.items() if end <= now]:
                self._next_end[dpid] = math.inf
                self._on_removed(dpid)

    def _look(self) -> None:
        """Take in which switches are there; tell of new ones, and of those that came back."""
        found = {d: origin for d, origin in self._ask.switches().items() if d in self._names}
        fresh = [dpid for dpid, origin in found.items() if self._there.get(dpid) != origin]
        ready = [dpid for dpid in fresh if self._answers(dpid)]
        self._there = {d: o for d, o in found.items() if d in ready or d not in fresh}
        for dpid in ready:
            self._on_up(dpid)

    def _answers(self, dpid: int) -> bool:
        """Whether the switch can be asked already; at first OpenDaylight only knows of it."""
        try:
            self._ask.rules(dpid, 0, 2**64 - 1, self._clock())
        except ControllerError as error:
            LOG.info("%s is not ready: %s", self.label(dpid), error)
            return False
        return True
