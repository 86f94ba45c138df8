"""The broker: gives transfers their paths, and takes them back whatever happens.

    request ─► admission decides ─► held (store) ─► controller ─► installed
    release or lease ended ─► released/expired (store) ─► controller ─► the queue is served

Decisions are in :mod:`~network_provisioner.admission`, the steps in
:mod:`~network_provisioner.lifecycle`; here is what clients may ask, and one lock around it.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from network_provisioner.admission import Admission, Limits, ThroughputOf
from network_provisioner.controllers.base import Capabilities, Controller, ControllerError
from network_provisioner.dispatch import Dispatcher
from network_provisioner.errors import BrokerError
from network_provisioner.lifecycle import Lifecycle
from network_provisioner.model import LIVE, Transit, TransitRequest, TransitState
from network_provisioner.reservations import Ledger, describe_load
from network_provisioner.roster import Roster
from network_provisioner.store import Store
from network_provisioner.template import Template
from network_provisioner.terms import check, check_lease
from network_provisioner.topology import Path, Topology

log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Takes what was measured of a transfer, once for each transit that is reported."""

    def record(self, transit: Transit) -> object:
        """Keep bytes, seconds, goodput. Whatever it raises is logged and goes no further."""
        ...


class Broker:
    """Serves transits. Thread-safe."""

    def __init__(
        self,
        topology: Topology,
        templates: Mapping[str, Template],
        controller: Controller,
        store: Store,
        recorder: Recorder | None = None,
        throughput_of: ThroughputOf | None = None,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
    ) -> None:
        """``throughput_of`` gives a path's measured throughput (b/s) and its age (s), or None;
        ``clock`` gives Unix seconds. Call :meth:`start` before anything else."""
        self.topology = topology
        self.templates = dict(templates)
        self.limits = limits or Limits()
        self._controller = controller
        self._store = store
        self._recorder = recorder
        self._measured = throughput_of
        self._clock = clock
        self._latest = 0.0
        self._ledger = Ledger.of(topology, self.limits.reservable)
        self._admission = Admission(topology, self._ledger, self._throughput, self.limits)
        self._roster = Roster(self.templates)
        self._life = Lifecycle(self._roster, self._ledger, store, controller, self._now)
        self._dispatch = Dispatcher(
            topology, self.templates, self._admission, self._roster, self._life, self.limits
        )
        self._lock = threading.Lock()
        self._to_record: deque[Transit] = deque()

    def start(self, timeout_s: float = 10.0) -> None:
        """Connect the controller, then bring store, ledger and switches together again.

        Raises ControllerError, StoreError.
        """
        with self._lock:
            self._controller.start(timeout_s)
            self._trust(self._controller.capabilities())
            now = self._now()
            self._life.adopt(now)
            self._dispatch.serve_queue(now)

    def stop(self) -> None:
        """Take our rules off the switches and close the store. Live transits stay in the store and
        come back with the next start, until their leases end. Raises ControllerError."""
        with self._lock:
            try:
                self._controller.stop()
            finally:
                self._store.close()

    # -- what clients ask --------------------------------------------------------------------

    def request(self, request: TransitRequest) -> Transit:
        """Get a path for a transfer, or a place in the queue, or best effort, with the reason.

        Idempotent: an id that was asked before gives the same transit as it is now. Switches that
        refuse give a transit that ``failed``. Raises BrokerError: ``bad_request``,
        ``unknown_site``, ``unknown_template``, ``impossible_rate``, ``store_unavailable``.
        """
        return self.submit(request)[0]

    def submit(self, request: TransitRequest) -> tuple[Transit, bool]:
        """As :meth:`request`; the second value says whether the transit is new."""
        check(request)
        with self._lock:
            now = self._now()
            self._dispatch.expire(now)
            transit = self._life.find(request.id)
            new = transit is None
            if transit is None:
                transit = self._dispatch.create(request, now)
            elif (transit.src, transit.dst) != (request.src, request.dst):
                raise BrokerError(
                    f"id {request.id!r} is taken by a transit from {transit.src!r} to "
                    f"{transit.dst!r}, expected an id of its own for each transit",
                    "bad_request",
                )
            return copy.deepcopy(transit), new

    def release(
        self, transit_id: str, bytes_moved: int = 0, seconds: float = 0.0, outcome: str = ""
    ) -> Transit:
        """Give a path back and report what the transfer moved. Idempotent.

        Who waited leaves the queue. A transit that had ended keeps its state. The first report that
        is not empty counts, and goes to the recorder. Raises BrokerError ``unknown_transit``,
        ``bad_request``.
        """
        if bytes_moved < 0 or not 0 <= seconds < float("inf"):
            raise BrokerError(
                f"{bytes_moved!r} bytes in {seconds!r} s, expected 0 or more", "bad_request"
            )
        with self._lock:
            now = self._now()
            self._dispatch.expire(now)
            transit = _known(transit_id, self._life.find(transit_id))
            told = self._dispatch.finish(transit, bytes_moved, seconds, outcome, now)
            answer = copy.deepcopy(transit)
            if told:
                self._to_record.append(answer)
        self._flush_records()
        return answer

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a live lease last at least ``lease_s`` from now (at most ``Limits.max_lease_s``).

        Never shortens one; a transit that is not live comes back unchanged. Raises BrokerError
        ``unknown_transit``, ``bad_request``, ``controller_unavailable`` (the lease is as before).
        """
        check_lease(lease_s)
        with self._lock:
            now = self._now()
            self._dispatch.expire(now)
            transit = _known(transit_id, self._life.find(transit_id))
            until = now + min(lease_s, self.limits.max_lease_s)
            if transit.state in LIVE and until > transit.lease_until:
                self._life.extend(transit, until, now)
            return copy.deepcopy(transit)

    def get(self, transit_id: str) -> Transit:
        """The transit as it was last saved. Raises BrokerError ``unknown_transit``.

        Like the other questions, it does not wait for work on the switches.
        """
        return copy.deepcopy(_known(transit_id, self._life.saved(transit_id)))

    def list(
        self, state: str | None = None, workflow: str | None = None, limit: int = 10_000
    ) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), oldest first."""
        return self._store.find(state, workflow, limit)

    def health(self) -> dict[str, Any]:
        """Whether the service works: its controller, and how many transits live and wait."""
        can = self._controller.capabilities()
        states = [t.state for t in list(self._roster.all.values())]
        problem = self._life.degraded()
        return {
            "status": "degraded" if problem else "ok",
            "problem": problem,
            "controller": {
                "name": can.name,
                "bandwidth": can.bandwidth,
                "flow_leases": can.flow_leases,
                "real_packets": can.real_packets,
            },
            "live": sum(s in LIVE for s in states),
            "queued": sum(s is TransitState.QUEUED for s in states),
        }

    def describe_topology(self) -> dict[str, Any]:
        """Nodes, and links with what is reserved in each direction now, JSON-ready."""
        with self._lock:
            return describe_load(self.topology, self._ledger, self._now())

    def on_switches(self) -> dict[str, Any]:
        """What the switches say: bytes sent on every link direction, and circuits installed.

        JSON-ready. Raises BrokerError ``controller_unavailable``.
        """
        try:
            counters = self._controller.counters()
            installed = self._controller.installed()
        except ControllerError as error:
            raise BrokerError(str(error), "controller_unavailable") from error
        return {"counters": [asdict(counter) for counter in counters], "installed": installed}

    def sweep(self) -> None:
        """Do what time asks for: end leases and patience, serve the queue, mend the switches.

        Call it about once a second; requests do the urgent part of it themselves.
        """
        with self._lock:
            now = self._now()
            self._dispatch.expire(now)
            self._life.mend(now)
            self._dispatch.serve_queue(now)

    # -- within ------------------------------------------------------------------------------

    def _trust(self, can: Capabilities) -> None:
        """What decides about a path: reserved rates where the network keeps them, measurements
        where it does not. Without packets, what transfers reach tells nothing about a path."""
        self._admission.guaranteed = can.bandwidth != "none" or not can.real_packets
        if not can.real_packets:
            self._measured = None

    def _now(self) -> float:
        # A clock set back must not let new reservations begin before those that are live.
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _throughput(self, path: Path) -> tuple[float, float] | None:
        if self._measured is None:
            return None
        try:
            return self._measured(path)
        except Exception:  # a foreign archive that fails costs its opinion, never the transfer
            log.exception("the measured throughput of %s cannot be had", "-".join(path.nodes))
            return None

    def _flush_records(self) -> None:
        while self._recorder is not None and self._to_record:
            try:
                transit = self._to_record.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                self._recorder.record(transit)
            except Exception:  # a foreign recorder that fails must not fail the release
                log.exception("transit %s was not recorded", transit.id)


def _known(transit_id: str, found: Transit | None) -> Transit:
    if found is None:
        raise BrokerError(
            f"unknown transit {transit_id!r}, expected the id of one that was asked for here",
            "unknown_transit",
        )
    return found
