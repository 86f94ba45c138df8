"""The parts of a broker, joined, and the one turn in which they change anything.

    news of other brokers ─► what time brings ─► the change that was asked for ─► the switches

Whoever has the turn has the lock of this broker, and where several share a store, the store's turn
too: so it decides on all that was decided before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from network_provisioner.classes import Classes, Differentiator
from network_provisioner.clock import steady
from network_provisioner.controllers.base import Capabilities, Controller
from network_provisioner.decisions.admission import Admission, Limits, ThroughputOf
from network_provisioner.decisions.reservations import Ledger
from network_provisioner.dispatch import Dispatcher
from network_provisioner.errors import BrokerError
from network_provisioner.keeper import Keeper
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.pairs import Pairs
from network_provisioner.recovery import Recovery
from network_provisioner.roster import Roster
from network_provisioner.shares import Shares
from network_provisioner.small import BestEffortOf
from network_provisioner.store import Store, StoreError
from network_provisioner.switchboard import Switchboard
from network_provisioner.terms import Templates
from network_provisioner.timeshift import TimeShift
from network_provisioner.topology import Path, Topology
from network_provisioner.waitlist import Waitlist

log = logging.getLogger(__name__)

WATCHED = 32  # installed transits whose bytes one sweep looks for


class Engine:
    """Ledger, roster, shares, store and switches of one broker, and who moves them."""

    def __init__(
        self,
        topology: Topology,
        templates: Templates,
        controller: Controller,
        store: Store,
        throughput_of: ThroughputOf | None,
        clock: Callable[[], float],
        limits: Limits,
        policies: Differentiator | None,
        step: Callable[[str], None],
        best_effort_of: BestEffortOf | None = None,
    ) -> None:
        """As :class:`~network_provisioner.broker.Broker`."""
        self.templates = templates
        self._controller = controller
        self._store = store
        self._measured = throughput_of
        self._clock = steady(clock)
        self._latest = 0.0
        self._step = step
        self.lock = threading.Lock()

        self.ledger = Ledger.of(topology, limits.reservable)
        self.admission = Admission(topology, self.ledger, self._throughput, limits)
        self._pairs = Pairs(limits.pin_pairs)
        self.roster = Roster(self._patience, self._pairs, Waitlist(limits.aging_s))
        hops = [hop for link in topology.links for hop in ((link.a, link.b), (link.b, link.a))]
        shares = Shares(topology, {hop: self.ledger.capacity(hop) for hop in hops})
        self.switches = Switchboard(controller)
        self.keeper = Keeper(store, step)
        self.turnless = ""
        """Why the last turn could not be had, "" where it could."""
        classes = Classes(policies, shares, self.switches, self.now)
        self.life = Lifecycle(
            topology, self.roster, self.ledger, self.keeper, shares, self.switches, classes,
            self.now, step,
        )  # fmt: skip
        self._installer = self.life.installer
        self._recovery = Recovery(topology, self.ledger, self.keeper, self.life)
        self._timeshift = TimeShift(topology, self.roster, self.ledger, self.keeper, self.switches)
        self.dispatch = Dispatcher(
            topology, templates, self.admission, self.roster, self.life, limits,
            best_effort_of,
        )  # fmt: skip

    def now(self) -> float:
        """Unix seconds. A clock set back must not let new reservations begin before those that are
        live."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def start(self, timeout_s: float) -> None:
        """Connect the controller, then bring store, ledger and switches together again.

        Raises ControllerError, StoreError.
        """
        self._controller.start(timeout_s)
        self._trust(self._controller.capabilities())
        with self.lock, self._store.turn():
            now = self.now()
            self._recovery.adopt(self._store.active(), now)
            self._installer.begin(now)
            self.life.start_due(now)
            self.dispatch.serve_queue(now)
            self._installer.carry_out(now)

    @contextmanager
    def turn(self) -> Iterator[float]:
        """The lock, and the turn among brokers; Unix seconds now. What others did and what time
        brought is taken in first, and the switches know all of it at the end.

        Raises BrokerError ``store_unavailable`` where the turn cannot be had.
        """
        with self.lock, ExitStack() as stack:
            try:
                news = stack.enter_context(self._store.turn())
            except StoreError as error:
                if not self.turnless:  # once, and not with every sweep
                    log.warning("no turn to decide can be had: %s", error)
                self.turnless = str(error)
                raise BrokerError(str(error), "store_unavailable") from error
            self.turnless = ""
            self._step("the turn was taken")
            clock_set_s = self._clock.catch_up()
            self._latest += clock_set_s
            now = self.now()
            if clock_set_s:
                self._timeshift.carry_out(clock_set_s, now)
            if news:
                self._recovery.news(news, now)
            freed = self.dispatch.expire(now)
            self.life.start_due(now)
            if freed or news or clock_set_s:
                self.dispatch.serve_queue(now)
            if self._installer.starting:  # apart from a new one, so that it is clear who fails
                self._installer.carry_out(now)
            try:
                yield now
            finally:
                self._installer.carry_out(now)

    def sweep(self) -> None:
        """Do what time asks for, and what may wait about a second. Raises as :meth:`turn`."""
        moving = self.life.watch.moving(WATCHED)
        with self.turn() as now:
            self.keeper.again()
            self.life.watch.seen(moving, now)
            self.dispatch.serve_queue(now)
            self._installer.carry_out(now, everything=True)

    def _patience(self, template_name: str) -> float:
        template = self.templates.get(template_name)
        return template.patience_s if template else 0.0

    def _trust(self, can: Capabilities) -> None:
        """What decides about a path: reserved rates where the network keeps them, measurements
        where it does not. Without packets, what transfers reach tells nothing about a path."""
        self.admission.guaranteed = can.bandwidth != "none" or not can.real_packets
        if not can.real_packets:
            self._measured = self.dispatch.small.best_effort_of = None
        self._pairs.matches = self.switches.matches = can.matches
        self.dispatch.multipath = can.multipath

    def _throughput(self, path: Path) -> tuple[float, float] | None:
        if self._measured is None:
            return None
        try:
            return self._measured(path)
        except Exception:  # a foreign archive that fails costs its opinion, never the transfer
            log.exception("the measured throughput of %s cannot be had", "-".join(path.nodes))
            return None
