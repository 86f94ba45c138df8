"""Circuits on OpenFlow switches, however these are reached.

What is on the switches is read before anything is changed, so no state of its own is needed: after
a restart of either side the rules that are still right stay untouched. A refusal undoes a change,
and a switch that comes back is brought up to date by a worker thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from network_provisioner.controllers.accounts import ByteLedger
from network_provisioner.controllers.base import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
    Queue,
)
from network_provisioner.controllers.board import Board
from network_provisioner.controllers.groups import Group, shares
from network_provisioner.controllers.plan import WAYS, Plan
from network_provisioner.controllers.reconcile import Reconciler
from network_provisioner.controllers.rules import FlowRule, same_but_lease
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.upkeep import Upkeep
from network_provisioner.errors import AdonError, InputError
from network_provisioner.topology import Topology

LOG = logging.getLogger(__name__)
MakeBoard = Callable[[dict[int, str], Callable[[int], None], Callable[[int], None]], Board]


class SwitchedController:
    """A :class:`~network_provisioner.controllers.base.Controller` on a :class:`Board`.

    ``name`` is the driver's. ``make_board`` is given the switches' names by datapath id, and what
    to call when one is up and when one of its rules has ended. ``shaper`` keeps the rates on the
    topology's devices. ``bandwidth`` says how rates are kept: one of
    :data:`~network_provisioner.controllers.plan.WAYS`, or "auto" for classes on the devices where
    the topology names any, else for meters where every switch has them, else not at all.
    ``shared``: another broker uses the same switches, so nothing is removed in the end.
    Thread-safe.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        make_board: MakeBoard,
        shaper: Shaper | None,
        clock: Callable[[], float],
        *,
        bandwidth: str = "auto",
        shared: bool = False,
    ) -> None:
        """Raises InputError for a ``bandwidth`` that cannot be had, and for a topology without
        switches, or one that lacks ports or MACs."""
        self._name = name
        self._topology = topology
        self._clock = clock
        self._bandwidth = bandwidth
        self._shared = shared
        self._keep = _first_choice(topology, shaper, bandwidth)
        switches = [node for node in topology.nodes.values() if node.kind == "switch"]
        self._dpids = {node.name: node.dpid for node in switches}
        names = {node.dpid: node.name for node in switches}
        if not names or 0 in names or len(names) < len(switches):
            raise InputError(
                f"topology: switches have the datapath ids {list(self._dpids.values())}, "
                "expected at least one switch, and a dpid above 0 of its own for each"
            )
        self._upkeep = Upkeep(self._bring_up_to_date, look_again=shared)
        self._board = make_board(names, self._upkeep.is_up, self._upkeep.has_ended)
        # One holder at a time changes switches or shaping.
        self._lock = threading.RLock()
        shaping = shaper if self._keep in ("dscp-htb", "queue") else None
        self._reconciler = Reconciler(topology, self._board, shaping, clock, self._keep)
        self._ledger = ByteLedger()
        self._running = False
        self._progress = threading.Condition()
        self._in_step: set[int] = set()
        self._failure: AdonError | None = None

    def capabilities(self) -> Capabilities:
        """See Controller."""
        return Capabilities(
            name=self._name,
            bandwidth=self._keep,
            flow_leases=True,
            real_packets=True,
            matches=True,
            multipath=self._board.native is not None,
            queues=self._keep == "dscp-htb",
        )

    def start(self, timeout_s: float) -> None:
        """Reach for the switches, wait for every one of the topology, lay the best-effort routes.

        Circuits left on the switches by an earlier run stay until the first ``apply`` says whether
        they are still wanted, so a broker that restarts does not disturb running transfers. Raises
        ControllerError where a switch does not connect in time, and MissingError for no ``tc``.
        """
        if self._running:
            return
        self._failure = None
        self._in_step.clear()
        self._board.open()
        self._running = True
        self._upkeep.start()
        everyone = set(self._dpids.values())
        with self._progress:
            self._progress.wait_for(
                lambda: self._failure is not None or self._in_step >= everyone, timeout_s
            )
            missing = everyone - self._in_step
            error: AdonError | None = self._failure
        if error is None and missing:
            names = ", ".join(self._board.label(dpid) for dpid in sorted(missing))
            error = ControllerError(
                f"{names} did not connect within {timeout_s:g} s {self._board.expectation()}"
            )
        if error is None:
            error = self._choose_meters(everyone)
        if error is not None:
            with self._lock:
                self._running = False
            self._disconnect()
            raise error

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        """See Controller. A switch that is away does not keep circuits from being *removed*."""
        can = self.capabilities()
        if queues and not can.queues:
            raise ControllerError(
                f"{len(queues)} queues were asked for, but bandwidth is kept by {can.bandwidth!r}, "
                "which has none; expected dscp-htb"
            )
        if not can.multipath and any(circuit.parts for circuit in circuits):
            raise ControllerError(f"the {self._name} controller cannot split circuits over paths")
        with self._lock:
            self._require_running()
            plan = self._reconciler.replace(circuits, queues, self._account_changes)
            first = (rule.key for g in plan.groups if g.data for rule in _first_rules(plan, g))
            self._ledger.retain(first, (c.id for c in circuits))

    def circuit_bytes(self, circuit_id: str) -> int:
        """See Controller. Circuits that share both sites and name no flows (or the same) share a
        counter: see ByteLedger."""
        with self._lock:
            if self._running:
                group = self._reconciler.plan().carrier(circuit_id)
                self._account([group] if group is not None else [])
            return self._ledger.bytes_of(circuit_id)

    def installed(self) -> list[str]:
        """See Controller. A circuit counts when all its rules, both ways, are on the switches.

        What a switch that does not answer carries is not known, so it does not count.
        """
        with self._lock:
            self._require_running()
            plan = self._reconciler.plan()
            seen = {s.rule.key: s.rule for s in self._reconciler.confirmed()}
        absent = {
            circuit_id
            for group in plan.groups
            for rule in plan.rules_of(group)
            if rule.key not in seen or not same_but_lease(seen[rule.key], rule)
            for circuit_id in (*group.data, *group.acks)
        }
        return sorted({i for group in plan.groups for i in group.data} - absent)

    def counters(self) -> list[LinkCounter]:
        """See Controller. Switches that do not answer are left out."""
        sent: dict[int, dict[int, int]] = {}
        for dpid in self._board.connected():
            try:
                sent |= self._board.sent_bytes({dpid})
            except ControllerError as error:
                LOG.warning("its ports are not counted: %s", error)
        at = self._clock()
        counters = []
        for link in self._topology.links:
            for switch, port in (link.ports or {}).items():
                count = sent.get(self._dpids.get(switch, 0), {}).get(port)
                if count is not None:
                    other = link.b if switch == link.a else link.a
                    counters.append(LinkCounter(switch, other, count, at))
        return counters

    def stop(self) -> None:
        """See Controller. Never fails: what cannot be removed is logged and ends by its lease."""
        with self._lock:
            if not self._running:
                return
            self._running = False
            if self._shared:
                self._reconciler.forget()
            else:
                self._reconciler.wipe()
            self._ledger = ByteLedger()
        self._disconnect()

    def _disconnect(self) -> None:
        self._board.close()
        self._upkeep.stop()

    def _require_running(self) -> None:
        if not self._running:
            raise ControllerError(f"the {self._name} controller is not started")

    def _account_changes(self, before: Plan, after: Plan) -> None:
        """Read the counters of groups whose circuits change, while all can still be told whose
        bytes they were."""
        later = {group.key: group for group in after.groups}
        self._account(
            group
            for group in before.groups
            if group.key in later and later[group.key].data != group.data
        )

    def _account(self, groups: Iterable[Group]) -> None:
        """Attribute the byte counters at these groups' first switch."""
        carrying = [group for group in groups if group.data]
        if not carrying:
            return
        circuits = {c.id: c for c in self._reconciler.circuits or ()}
        plan = self._reconciler.plan()
        counted = {s.rule.key: s.bytes for s in self._reconciler.counted(carrying)}
        for group in carrying:
            parts = shares(circuits, group)
            for rule in _first_rules(plan, group):
                if rule.key in counted:
                    self._ledger.observe(rule.key, counted[rule.key], parts)

    def _choose_meters(self, dpids: set[int]) -> AdonError | None:
        """Where rates can only be kept by meters, see whether every switch has them."""
        if self._keep != "none" or self._bandwidth not in ("auto", "meter"):
            return None
        native = self._board.native
        try:
            without = [d for d in sorted(dpids) if native is None or not native.can_meter(d)]
        except ControllerError as error:
            return error
        if not without:
            with self._lock:
                self._keep = "meter"
                self._reconciler.keep_by("meter")
            return None
        if self._bandwidth == "auto":
            return None
        names = ", ".join(self._board.label(dpid) for dpid in without)
        return ControllerError(f"{names} has no meters, expected them for bandwidth: meter")

    def _bring_up_to_date(self, dpid: int, fresh: bool) -> bool:
        """Returns whether rules had to be changed."""
        changed = False
        try:
            with self._lock:
                if self._running:
                    changed = self._reconciler.resync(dpid, fresh=fresh)
        except AdonError as error:
            LOG.warning("%s is not up to date: %s", self._board.label(dpid), error)
            with self._progress:
                self._failure = error
                self._progress.notify_all()
        else:
            with self._progress:
                self._in_step |= {dpid} & self._board.connected()
                self._progress.notify_all()
        return changed


def _first_choice(topology: Topology, shaper: Shaper | None, bandwidth: str) -> str:
    """How rates are kept, as far as it can be told before the switches are asked."""
    if bandwidth not in ("auto", *WAYS):
        raise InputError(
            f"controller: bandwidth is {bandwidth!r}, expected one of {', '.join(('auto', *WAYS))}"
        )
    if bandwidth == "auto":
        devices = any(link.devices for link in topology.links)
        return "dscp-htb" if devices and shaper is not None else "none"
    if bandwidth in ("dscp-htb", "queue") and shaper is None:
        raise InputError(f"controller: bandwidth {bandwidth!r} needs a shaper of the devices")
    # What the switches cannot do shows when they have connected.
    return "none" if bandwidth == "meter" else bandwidth


def _first_rules(plan: Plan, group: Group) -> list[FlowRule]:
    """The rules at a group's first switch that count its bytes."""
    rules = plan.rules_of(group)
    return [rule for rule in rules if rule.hop == 0 and rule.protocol != "arp"]
