"""The embedded OpenFlow 1.3 controller: circuits on real switches.

It runs inside the broker's process. The switches connect to it; it reads what is on them before it
changes anything, so it needs no state of its own: after a restart of either side the rules that are
still right stay untouched. Each change is confirmed by barriers, a refusal undoes it, and a switch
that comes back is brought up to date by a worker thread.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from network_provisioner.controllers.accounts import ByteLedger
from network_provisioner.controllers.base import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
)
from network_provisioner.controllers.groups import shares
from network_provisioner.controllers.reconcile import Reconciler
from network_provisioner.controllers.rules import SeenRule, same_but_lease
from network_provisioner.controllers.shaper import Shaper
from network_provisioner.controllers.switches import SwitchBoard, parse_listen
from network_provisioner.errors import AdonError, InputError
from network_provisioner.topology import Topology

LOG = logging.getLogger(__name__)


class OpenFlowController:
    """A :class:`~network_provisioner.controllers.base.Controller` for OpenFlow 1.3 switches.

    ``listen`` is ``HOST:PORT`` for the switches to connect to. ``shaper`` keeps the rates on the
    topology's devices; without one, circuits choose paths but guarantee nothing. Thread-safe.
    """

    def __init__(
        self,
        topology: Topology,
        listen: str,
        shaper: Shaper | None = None,
        *,
        clock: Callable[[], float] = time.time,
        reply_timeout_s: float = 5.0,
    ) -> None:
        """Raises InputError for a topology without switches, or one that lacks ports or MACs."""
        self._topology = topology
        self._address = parse_listen(listen)
        self._clock = clock
        self._shapes = shaper is not None
        switches = [node for node in topology.nodes.values() if node.kind == "switch"]
        self._dpids = {node.name: node.dpid for node in switches}
        names = {node.dpid: node.name for node in switches}
        if not names or 0 in names or len(names) < len(switches):
            raise InputError(
                f"topology: switches have the datapath ids {list(self._dpids.values())}, "
                "expected at least one switch, and a dpid above 0 of its own for each"
            )
        self._board = SwitchBoard(names, self._switch_is_up, self._rule_ended, reply_timeout_s)
        # One holder at a time changes switches or shaping.
        self._lock = threading.RLock()
        self._reconciler = Reconciler(topology, self._board, shaper, clock)
        self._ledger = ByteLedger()
        self._running = False
        # (dpid, whether the switch has just connected), None to end the worker.
        self._wakeups: queue.SimpleQueue[tuple[int, bool] | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._progress = threading.Condition()
        self._in_step: set[int] = set()
        self._failure: AdonError | None = None

    def capabilities(self) -> Capabilities:
        """See Controller."""
        return Capabilities(
            name="openflow",
            bandwidth="dscp-htb" if self._shapes else "none",
            flow_leases=True,
            real_packets=True,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, for a ``listen`` with port 0."""
        return self._board.port

    def start(self, timeout_s: float) -> None:
        """Listen, wait for every switch of the topology, lay the best-effort routes.

        Circuits left on the switches by an earlier run stay until the first ``apply`` says whether
        they are still wanted, so a broker that restarts does not disturb running transfers. Raises
        ControllerError where a switch does not connect in time, and MissingError for no ``tc``.
        """
        if self._running:
            return
        self._failure = None
        self._in_step.clear()
        self._board.open(*self._address)
        self._running = True
        self._worker = threading.Thread(target=self._work, name="adon-resync", daemon=True)
        self._worker.start()
        everyone = set(self._dpids.values())
        with self._progress:
            self._progress.wait_for(
                lambda: self._failure is not None or self._in_step >= everyone, timeout_s
            )
            error, missing = self._failure, everyone - self._in_step
        if error is None and missing:
            names = ", ".join(self._board.label(dpid) for dpid in sorted(missing))
            error = ControllerError(
                f"{names} did not connect to {self._address[0]}:{self.port} within "
                f"{timeout_s:g} s, expected the switches' controller to be set to that address"
            )
        if error is not None:
            with self._lock:
                self._running = False
            self._disconnect()
            raise error

    def apply(self, circuits: Sequence[Circuit]) -> None:
        """See Controller. A switch that is away does not keep circuits from being *removed*."""
        with self._lock:
            self._require_running()
            plan = self._reconciler.replace(circuits, self._account)
            self._ledger.retain((g.pair for g in plan.groups), (c.id for c in circuits))

    def circuit_bytes(self, circuit_id: str) -> int:
        """See Controller. Circuits that share both sites share a counter: see ByteLedger."""
        with self._lock:
            if self._running:
                self._account(self._reconciler.confirmed())
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
            self._reconciler.wipe()
            self._ledger = ByteLedger()
        self._disconnect()

    def _disconnect(self) -> None:
        self._board.close()
        self._wakeups.put(None)
        if self._worker is not None:
            self._worker.join()
            self._worker = None

    def _require_running(self) -> None:
        if not self._running:
            raise ControllerError("the OpenFlow controller is not started")

    def _account(self, seen: Iterable[SeenRule]) -> None:
        """Attribute the byte counters at each group's first switch."""
        circuits = {c.id: c for c in self._reconciler.circuits or ()}
        counted = {s.rule.key: s.bytes for s in seen}
        plan = self._reconciler.plan()
        for group in plan.groups:
            first = plan.rules_of(group)[0]
            if group.data and first.key in counted:
                self._ledger.observe(group.pair, counted[first.key], shares(circuits, group))

    def _switch_is_up(self, dpid: int) -> None:
        self._wakeups.put((dpid, True))

    def _rule_ended(self, dpid: int) -> None:
        self._wakeups.put((dpid, False))

    def _work(self) -> None:
        """Bring switches up to date that connected again or whose rules ended by themselves."""
        while (wakeup := self._wakeups.get()) is not None:
            dpid, fresh = wakeup
            try:
                with self._lock:
                    if self._running:
                        self._reconciler.resync(dpid, fresh=fresh)
            except AdonError as error:
                LOG.warning("%s is not up to date: %s", self._board.label(dpid), error)
                with self._progress:
                    self._failure = error
                    self._progress.notify_all()
            else:
                with self._progress:
                    self._in_step.add(dpid)
                    self._progress.notify_all()
