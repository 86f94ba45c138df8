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

from network_provisioner import advance, asking
from network_provisioner.asking import Answer
from network_provisioner.classes import Differentiator
from network_provisioner.controllers.base import Controller
from network_provisioner.decisions.admission import Limits, ThroughputOf
from network_provisioner.engine import Engine
from network_provisioner.errors import BrokerError
from network_provisioner.flows import Flow
from network_provisioner.followers import Followers, Recorder
from network_provisioner.model import LIVE, Transit, TransitRequest
from network_provisioner.questions import Questions, known
from network_provisioner.reports import Report
from network_provisioner.small import BestEffortOf
from network_provisioner.store import Store
from network_provisioner.terms import Templates, check, check_flows, check_lease, check_size
from network_provisioner.topology import Topology


class Broker(Questions):
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
        best_effort_of: BestEffortOf | None = None,
    ) -> None:
        """``throughput_of`` gives a path's measured throughput (b/s) and its age (s), or None, and
        ``best_effort_of`` that of transfers without a path between two sites; ``clock`` gives Unix
        seconds; ``policies`` say which transfers share queues; ``step`` is told of each step of a
        transit as it begins or ends (for tests that stop there). Call :meth:`start` before
        anything else."""
        self.templates = templates
        self.limits = limits or Limits()
        engine = Engine(
            topology,
            templates,
            controller,
            store,
            throughput_of,
            clock,
            self.limits,
            policies,
            step,
            best_effort_of,
        )
        super().__init__(topology, controller, store, engine)
        self._followers = Followers(recorder, policies, engine.life.ended)

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
                asking.check_same(transit, request)
            answer = transit.copy()
        self._followers.tell()
        return answer, new

    def ask(self, requests: Sequence[TransitRequest]) -> list[Answer]:
        """Answer several requests together, each for itself and in their order: one turn, and one
        word to the switches for all of them.

        Like :meth:`request`, but an id whose transit has ended is asked for anew, under the first
        of ``ID.2``, ``ID.3``, … that has not; what was reserved in advance under an id is begun
        where there is room; and the size may be known better than before. What would be raised for
        one of them is its answer's ``error``. Raises BrokerError ``bad_request`` (too many),
        ``store_unavailable``.
        """
        if len(requests) > asking.MOST:
            raise BrokerError(
                f"{len(requests)} requests, expected at most {asking.MOST}", "bad_request"
            )
        with self._engine.turn() as now:
            answers = asking.ask(self._engine, requests, now)
            self._engine.life.installer.carry_out(now)
            answers = [answer.copy() for answer in answers]
        self._followers.tell()
        return answers

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **used: int,
    ) -> Transit:
        """Give a path back and report what the transfer moved, and ``used``: ``streams``,
        ``buffer_bytes``, ``threads``, and its failed attempts, ``retries``. Idempotent.

        Who waited leaves the queue. A transit that had ended keeps its state. The first report that
        is not empty counts, and goes to the recorder. Raises BrokerError ``unknown_transit``,
        ``bad_request``, ``store_unavailable`` (the turn cannot be had: nothing changed).
        """
        report = Report(bytes_moved, seconds, outcome, **used)
        report.check()
        with self._engine.turn() as now:
            transit = known(transit_id, self._engine.life.find(transit_id))
            active = transit.id in self._engine.roster.all
            told = self._engine.dispatch.finish(transit, report, now)
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
            transit = known(transit_id, self._engine.life.find(transit_id))
            until = max(now, transit.start) + min(lease_s, self.limits.max_lease_s)
            if transit.end:
                until = min(until, transit.end)
            if transit.state in LIVE and until > transit.lease_until:
                self._engine.life.extend(transit, until, now)
            answer = transit.copy()
        self._followers.tell()
        return answer

    def shift(
        self, transit_id: str, start: float, end: float, size_bytes: int | None = None
    ) -> Transit:
        """Move what was reserved in advance to other times (Unix seconds), all or nothing; one that
        is in use may only end at another time.

        Raises BrokerError ``unknown_transit``, ``bad_request``, ``bad_time``, ``conflict`` (no room
        then, or it has begun or ended), ``controller_unavailable``, ``store_unavailable``: it is as
        before.
        """
        check_size(size_bytes)
        with self._engine.turn() as now:
            transit = known(transit_id, self._engine.life.find(transit_id))
            advance.shift(self._engine, transit, start, end, size_bytes, now)
            self._engine.life.installer.carry_out(now)
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
            transit = known(transit_id, self._engine.life.find(transit_id))
            if transit.id not in self._engine.roster.all:
                raise BrokerError(
                    f"transit {transit_id!r} is {transit.state}, expected one that has not ended",
                    "conflict",
                )
            self._engine.life.mark(transit, [flow.as_dict() for flow in flows], now)
            answer = transit.copy()
        self._followers.tell()
        return answer

    def sweep(self) -> None:
        """Do what time asks for: begin and end what is due, serve the queue, see who moves bytes,
        share what many have, follow the policies, mend the switches.

        Call it about once a second; requests do the urgent part of it themselves. Raises
        BrokerError ``store_unavailable``.
        """
        self._engine.sweep()
        self._followers.tell()
