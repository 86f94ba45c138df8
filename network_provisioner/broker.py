"""The broker: gives transfers their paths, and takes them back whatever happens.

    request ─► admission decides ─► held (store) ─► controller ─► installed
    release or lease ended ─► released/expired (store) ─► the queue is served ─► controller

Decisions are in :mod:`~network_provisioner.decisions.admission`, the steps in
:mod:`~network_provisioner.lifecycle`, and :mod:`~network_provisioner.engine` joins them. Here is
what clients may ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from network_provisioner.classes import Differentiator
from network_provisioner.controllers.base import Controller, ControllerError
from network_provisioner.decisions.admission import Limits, ThroughputOf
from network_provisioner.engine import Engine
from network_provisioner.errors import BrokerError
from network_provisioner.flows import Flow
from network_provisioner.followers import Followers, Recorder
from network_provisioner.model import LIVE, Transit, TransitRequest
from network_provisioner.netload import check_window, describe_load
from network_provisioner.store import Store
from network_provisioner.terms import Templates, check, check_flows, check_lease, fingerprint
from network_provisioner.topologies import discovery
from network_provisioner.topology import Topology

# What changes too often to be saved each time.
_CHANGING = ("granted_bps", "queue", "byte_seconds", "metered_at")


class Broker:
    """Serves transits. Thread-safe."""

    def __init__(
        self,
        topology: Topology,
        templates: Templates,
        controller: Controller,
        store: Store,
        recorder: Recorder | None = None,
        throughput_of: ThroughputOf | None = None,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        policies: Differentiator | None = None,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``throughput_of`` gives a path's measured throughput (b/s) and its age (s), or None;
        ``clock`` gives Unix seconds; ``policies`` say which transfers share queues; ``step`` is
        told of each step of a transit as it begins or ends (for tests that stop there). Call
        :meth:`start` before anything else."""
        self.topology = topology
        self.templates = templates
        self.limits = limits or Limits()
        self._controller = controller
        self._store = store
        self._engine = Engine(
            topology,
            templates,
            controller,
            store,
            throughput_of,
            clock,
            self.limits,
            policies,
            step,
        )
        self._followers = Followers(recorder, policies, self._engine.life.ended)

    def start(self, timeout_s: float = 10.0) -> None:
        """Connect the controller, then bring store, ledger and switches together again.

        Raises ControllerError, StoreError.
        """
        self._engine.start(timeout_s)
        self._followers.tell()

    def stop(self) -> None:
        """Take our rules off the switches and close the store. Live transits stay in the store and
        come back with the next start, until their leases end. Raises ControllerError."""
        with self._engine.lock:
            try:
                self._controller.stop()
            finally:
                self._store.close()

    # -- what clients ask --------------------------------------------------------------------

    def request(self, request: TransitRequest) -> Transit:
        """Get a path for a transfer, or a place in the queue, or best effort, with the reason.

        Idempotent: an id that was asked before gives the same transit as it is now. Switches that
        refuse give a transit that ``failed``. Raises BrokerError: ``bad_request``, ``bad_time``,
        ``unknown_site``, ``unknown_template``, ``impossible_rate``, ``conflict`` (the id is taken
        by a request with other terms), ``store_unavailable``.
        """
        return self.submit(request)[0]

    def submit(self, request: TransitRequest) -> tuple[Transit, bool]:
        """As :meth:`request`, and whether the transit is new."""
        check(request)
        with self._engine.turn() as now:
            transit = self._engine.life.find(request.id)
            new = transit is None
            if transit is None:
                transit = self._engine.dispatch.create(request, now)
                self._engine.life.installer.carry_out(now)
            else:
                _check_same(transit, request)
            answer = transit.copy()
        self._followers.tell()
        return answer, new

    def release(
        self, transit_id: str, bytes_moved: int = 0, seconds: float = 0.0, outcome: str = ""
    ) -> Transit:
        """Give a path back and report what the transfer moved. Idempotent.

        Who waited leaves the queue. A transit that had ended keeps its state. The first report that
        is not empty counts, and goes to the recorder. Raises BrokerError ``unknown_transit``,
        ``bad_request``, ``store_unavailable`` (the turn cannot be had: nothing changed).
        """
        if bytes_moved < 0 or not 0 <= seconds < float("inf"):
            raise BrokerError(
                f"{bytes_moved!r} bytes in {seconds!r} s, expected 0 or more", "bad_request"
            )
        with self._engine.turn() as now:
            transit = _known(transit_id, self._engine.life.find(transit_id))
            active = transit.id in self._engine.roster.all
            told = self._engine.dispatch.finish(transit, bytes_moved, seconds, outcome, now)
            if active:
                self._engine.dispatch.serve_queue(now)
                self._engine.life.installer.carry_out(now)
            answer = transit.copy()
            if told:
                self._followers.reported(answer)
        self._followers.tell()
        return answer

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a live lease last at least ``lease_s`` from now (at most ``Limits.max_lease_s``, and
        no longer than to the end that was asked for); that of one that has yet to start, from its
        start.

        Never shortens one; a transit that is not live comes back unchanged. Raises BrokerError
        ``unknown_transit``, ``bad_request``, ``conflict`` (others hold the time after it),
        ``controller_unavailable``, ``store_unavailable``: the lease is as before.
        """
        check_lease(lease_s)
        with self._engine.turn() as now:
            transit = _known(transit_id, self._engine.life.find(transit_id))
            until = max(now, transit.start) + min(lease_s, self.limits.max_lease_s)
            if transit.end:
                until = min(until, transit.end)
            if transit.state in LIVE and until > transit.lease_until:
                self._engine.life.extend(transit, until, now)
            answer = transit.copy()
        self._followers.tell()
        return answer

    def report_flows(self, transit_id: str, flows: Sequence[Flow]) -> Transit:
        """Say which packets a transit carries, once its application knows. No flows: all between
        its two sites.

        Raises BrokerError ``unknown_transit``, ``bad_request``, ``conflict`` (it has ended, or the
        packets go another way already), ``controller_unavailable``, ``store_unavailable``: they are
        as before.
        """
        check_flows(flows)
        with self._engine.turn() as now:
            transit = _known(transit_id, self._engine.life.find(transit_id))
            if transit.id not in self._engine.roster.all:
                raise BrokerError(
                    f"transit {transit_id!r} is {transit.state}, expected one that has not ended",
                    "conflict",
                )
            self._engine.life.mark(transit, [flow.as_dict() for flow in flows], now)
            answer = transit.copy()
        self._followers.tell()
        return answer

    def get(self, transit_id: str) -> Transit:
        """The transit as it was last saved, with what it is granted now. Raises BrokerError
        ``unknown_transit``.

        Like the other questions, it does not wait for work on the switches.
        """
        return self._as_now(_known(transit_id, self._engine.keeper.find(transit_id)))

    def list(
        self, state: str | None = None, workflow: str | None = None, limit: int = 10_000
    ) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), oldest first."""
        return [self._as_now(t) for t in self._store.find(state, workflow, limit)]

    def count(self) -> dict[str, int]:
        """How many transits there are in each state. Raises StoreError."""
        return self._store.count()

    def problem(self) -> str:
        """What is out of step now, in words; "" where nothing is."""
        if self._engine.switches.out_of_step:
            return "the switches did not take the last change"
        if self._engine.turnless:
            return "the store cannot be had"  # the log has its words, which not everybody may read
        return "the store did not take the last change" if self._engine.keeper.behind else ""

    def health(self) -> dict[str, Any]:
        """Whether the service works: its controller, and how many transits live and wait."""
        can = self._controller.capabilities()
        live, queued = self._engine.roster.count()
        problem = self.problem()
        return {
            "status": "degraded" if problem else "ok",
            "problem": problem,
            "controller": asdict(can),
            "live": live,
            "queued": queued,
        }

    def describe_topology(
        self, at: float | None = None, until: float | None = None
    ) -> dict[str, Any]:
        """Nodes, and links with what is reserved in each direction now or ``at`` a later time, and
        by whom ``until`` another; JSON-ready. Raises BrokerError ``bad_time``."""
        with self._engine.lock:
            now = self._engine.now()
            when = now if at is None else at
            check_window(when, until, now)
            live = self._engine.roster.on_switches() if when <= now else ()
            return describe_load(self.topology, self._engine.ledger, max(when, now), until, live)

    def discover(self) -> dict[str, Any]:
        """What the controller finds where it looks around, and in words where the topology says
        something else; JSON-ready. Takes seconds, during which others are served.

        Raises BrokerError ``conflict`` for a controller that cannot, ``controller_unavailable``.
        """
        return discovery.report(self.topology, self._controller)

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
        """Do what time asks for: begin and end what is due, serve the queue, see who moves bytes,
        share what many have, follow the policies, mend the switches.

        Call it about once a second; requests do the urgent part of it themselves. Raises
        BrokerError ``store_unavailable``.
        """
        self._engine.sweep()
        self._followers.tell()

    # -- within ------------------------------------------------------------------------------

    def _as_now(self, saved: Transit) -> Transit:
        """With what is only in memory yet."""
        live = self._engine.roster.all.get(saved.id)
        if live is not None and live.state in LIVE and saved.state in LIVE:
            for name in _CHANGING:
                setattr(saved, name, getattr(live, name))
            saved.parts = [dict(part) for part in live.parts]
        return saved


def _check_same(transit: Transit, request: TransitRequest) -> None:
    same = transit.asked in ("", fingerprint(request))  # "": from before fingerprints were kept
    if same and (transit.src, transit.dst) == (request.src, request.dst):
        return
    raise BrokerError(
        f"id {request.id!r} is taken by a transit from {transit.src!r} to {transit.dst!r} that was "
        "asked for on other terms, expected an id of its own for each request",
        "conflict",
    )


def _known(transit_id: str, found: Transit | None) -> Transit:
    if found is None:
        raise BrokerError(
            f"unknown transit {transit_id!r}, expected the id of one that was asked for here",
            "unknown_transit",
        )
    return found
