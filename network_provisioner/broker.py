"""The broker: gives transfers their paths, and takes them back whatever happens.

    request ─► admission decides ─► held (ledger, store) ─► controller ─► installed
    release or lease ended ─► released/expired (ledger, store) ─► the queue is served ─► controller

Every change happens in a cycle, under this broker's lock:

    what time brings ─► the change that was asked for ─► the switches

Where several brokers share a store, one of them leads. The others answer what the store says, and
start when they are elected.

Decisions are pure and in :mod:`~network_provisioner.selection.admission`; what becomes of a transit
(ledger, store, switches) in :mod:`~network_provisioner.transits.lifecycle`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from network_provisioner.base.clock import steady
from network_provisioner.base.controller import Controller, StandsBy
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import (
    LIVE,
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.request_ids import latest, numbered
from network_provisioner.policies.policy import Differentiator
from network_provisioner.queries import Queries, TransitRecorder, notify
from network_provisioner.selection.admission import Admission, BestEffortOf
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.path_selector import MetricsOf, PathSelector
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.selection.terms import (
    check,
    check_own,
    check_same,
    decline_reason,
    is_claim,
    is_recorded,
    same_owner,
)
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.connections import (
    Connection,
    ReportedConnections,
    ReportedSockets,
    SocketPeriod,
)
from network_provisioner.state.disks import DiskSample, ReportedDisks
from network_provisioner.state.ledger import Ledger
from network_provisioner.state.network_state import NetworkState
from network_provisioner.stores.store import ClockError, Leader, Store, StoreError
from network_provisioner.templates.lookup import Templates
from network_provisioner.templates.match import DEFAULT
from network_provisioner.topology.drains import Drain, Drains
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.link_failures import LinkFailures, News
from network_provisioner.transits.advance import AdvanceReservations
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.held_packets import HeldPackets
from network_provisioner.transits.io_aware import DiskRateOf, IoAware
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.modifications import Modifications
from network_provisioner.transits.placement import Placement, SpaceOf
from network_provisioner.transits.promises import Promises
from network_provisioner.transits.reevaluation import Reevaluation
from network_provisioner.transits.relaying import Relaying
from network_provisioner.transits.reports import TransferReport
from network_provisioner.transits.repository import Repository
from network_provisioner.transits.rerouting import Draining, Rerouting
from network_provisioner.transits.standing import StandingCircuits
from network_provisioner.transits.tuning import FiguresOf, TransferTuning
from network_provisioner.transits.waiting import WaitingTransits

log = logging.getLogger(__name__)
T = TypeVar("T")

_FAILED_LINKS = ("network", "failed_links")  # the document that says which
_READ_AT_START = 1000  # of the newest transits
_WRITE_EVERY_S = 0.9  # a small write, for health: with each sweep that is not early
WATCHED = 32  # installed transits whose bytes one sweep looks for


class Broker(Queries):
    """Serves transits. Thread-safe."""

    def __init__(
        self,
        topology: Topology,
        templates: Templates,
        controller: Controller,
        store: Store,
        recorder: TransitRecorder | None = None,
        metrics_of: MetricsOf | None = None,
        clock: Callable[[], float] = time.time,
        limits: BrokerLimits | None = None,
        policies: Differentiator | None = None,
        best_effort_of: BestEffortOf | None = None,
        disk_rate_of: DiskRateOf | None = None,
        figures_of: FiguresOf | None = None,
        space_of: SpaceOf | None = None,
    ) -> None:
        """``metrics_of`` gives what was measured of a path, ``figures_of`` what transfers over it
        are tuned by, ``best_effort_of`` the throughput (b/s) of transfers without one between two
        sites and its age (s), or None, ``disk_rate_of`` what disks were found to take, and
        ``space_of`` what is free on them;
        ``clock`` gives Unix seconds; ``policies`` say which transfers share queues. Call
        :meth:`start` before anything else."""
        self.topology = topology
        # Told once of each change of links and switches.
        self.link_listeners: list[Callable[[News], None]] = []
        self.other_problems = []
        self._limits = limits = limits or BrokerLimits()
        self._controller = controller
        self._store = store
        self._recorder = recorder
        self._policies = policies
        self._clock = steady(clock)
        self._latest = 0.0
        self._lock = threading.Lock()
        self._written_at = 0.0
        self._unstarted = "the broker is starting"
        self._start_ended = threading.Event()
        self._reported: deque[Transit] = deque()  # for the recorder
        self._undecided = ""
        self._complaints: dict[str, str] = {}  # of listeners, by what they could not do

        self._ledger = Ledger.of(topology, limits.reservable)
        self._active = ActiveTransits(templates, limits.pin_pairs, limits.aging_s)
        connections = ReportedConnections(topology, self._active.ports)
        self._disks = ReportedDisks()
        self._sockets = ReportedSockets(topology)
        self._repository = Repository(store)
        drains = Drains(topology)
        self._failures = LinkFailures(topology, controller, drains)
        self._state = state = NetworkState(
            topology, self._ledger, self._active, self._failures.unusable, drains=drains
        )
        self._tuning = TransferTuning(
            topology, templates, _guarded(figures_of, None, "what a path is like")
        )
        self.relaying = Relaying(topology, self._active, self._repository, self._tuning)
        self._desired = desired = DesiredState(state, controller, policies, self.relaying)
        self._lifecycle = lifecycle = Lifecycle(state, self._repository, desired, self._now)
        measured: MetricsOf = _guarded(metrics_of, {}, "what was measured of a path")
        selector = PathSelector(state, limits, measured)
        best_effort = _guarded(best_effort_of, None, "what best effort reaches")
        self._admission = admission = Admission(
            state, selector, limits, lifecycle.setup_times, best_effort, policies
        )
        self._requests = requests = RequestBuilder(state, selector, templates, limits, connections)
        self._placement = placement = Placement(
            state, admission, lifecycle, _guarded(space_of, None, "the free space of a site")
        )
        self._advance = AdvanceReservations(
            state, requests, admission, lifecycle, placement, desired
        )
        self._rerouting = Rerouting(state, self._failures, admission, lifecycle, desired, placement)
        self._waiting = WaitingTransits(self._active, admission, lifecycle, desired, placement)
        self._standing = StandingCircuits(
            requests, self._active, lifecycle, placement, self._waiting
        )
        self._modifications = Modifications(state, requests, admission, lifecycle, connections)
        disk_rate = _guarded(disk_rate_of, None, "what a disk takes")
        self.io_aware = IoAware(
            state, desired, self._modifications, self._disks, disk_rate, self._clock
        )
        self._draining = Draining(state, drains, admission, lifecycle, store)
        self.promises = Promises(
            state, desired, self._repository, controller, self._sockets, self._disks, self._clock
        )
        self._reevaluation = Reevaluation(
            state, admission, lifecycle, self._modifications, self.promises
        )
        self._held = HeldPackets(state, lifecycle, desired)

    def stand_by(self) -> None:
        """Have the switches connect, and change nothing until :meth:`start`. Raises
        ControllerError."""
        if isinstance(self._controller, StandsBy):
            self._controller.stand_by()

    def follow(self, leader: Leader) -> None:
        """Another broker leads: nothing is decided here."""
        self.leader, self._unstarted = leader, f"the broker at {leader.address} leads"

    def start(self, timeout_s: float = 10.0, leader: Leader | None = None) -> None:
        """Connect the controller, waiting so long for switches, then bring store, ledger and
        switches together again. Others may ask meanwhile: changes wait. ``leader`` says of which
        term we lead, of brokers that share the store.

        Raises ControllerError, StoreError.
        """
        self.leader = leader or self._store.elect()
        self._unstarted = "the broker is starting"
        try:
            self._start(timeout_s, self.leader)
        except BaseException as error:
            self._unstarted = f"the broker could not start: {error}"
            raise
        else:
            self._unstarted = ""
        finally:
            self._start_ended.set()
        self._notify()

    def _start(self, timeout_s: float, leader: Leader) -> None:
        if leader.term and isinstance(self._controller, StandsBy):
            self._controller.lead(leader.term, self._store.leads)
        self._controller.start(timeout_s)
        self._state.can = can = self._controller.capabilities()
        self._active.pairs.matches = can.matches
        known = self._store.document(*_FAILED_LINKS)
        with self._lock:
            now = self._now()
            if known is not None:
                self._failures.recall(known.body)
            self._draining.recall()
            self.relaying.begin(self._state.tells_packets_apart, now)
            self._lifecycle.adopt(self._store.active(), now)
            self._rerouting.take_in(now)
            self._lifecycle.begin(now)
            self._lifecycle.start_due(now)
            self._waiting.serve(now)
            self._lifecycle.apply(now)
        with suppress(StoreError):  # what cannot be read is told by health from the beginning
            self.list(limit=_READ_AT_START)

    def stop(self) -> None:
        """Leave the switches and close the store. Rules stay on the switches, and live transits in
        the store, until their leases end: the next start goes on with them. Raises
        ControllerError."""
        with self._lock:
            try:
                self._controller.stop()
            finally:
                self._store.resign()
                self._store.close()

    # -- the cycle ---------------------------------------------------------------------------

    @contextmanager
    def _cycle(self) -> Iterator[float]:
        """The lock; Unix seconds now. What time brought is taken in first, and the switches know
        all of it at the end.

        Raises BrokerError ``store_unavailable`` where this broker may not decide, ``busy`` where
        the start has failed that it waited for.
        """
        self._start_ended.wait()
        self.check_started()
        with self._lock:
            try:
                self._store.check_leads()
                doubted = self._store.doubted()
            except StoreError as error:
                if not self._undecided:  # once, and not with every sweep
                    log.warning("nothing can be decided: %s", error)
                readable = isinstance(error, ClockError)
                # The log has the words of others, which not everybody may read.
                self._undecided = str(error) if readable else "the store is unavailable"
                raise BrokerError(str(error), "store_unavailable") from error
            self._undecided = ""
            clock_set_s = self._clock.catch_up()
            self._latest += clock_set_s
            now = self._now()
            if clock_set_s and self._clock.follows:  # else leases are by a clock that is right
                self._lifecycle.move_time(clock_set_s, now)
            if doubted:
                self._lifecycle.take_in(doubted, now)
            with self._repository.together():
                freed = self._expire(now)
            self._lifecycle.start_due(now)
            with self._repository.together():
                links = self._rerouting.take_in(now)
            if freed or doubted or clock_set_s or links:
                self._waiting.serve(now)
            # Apart from a new one, so that it is clear who fails.
            if links or self._lifecycle.starting:
                self._lifecycle.apply(now)
            try:
                yield now
            finally:
                self._lifecycle.apply(now)
        self._notify()

    def _now(self) -> float:
        """Unix seconds. A clock set back must not let new reservations begin before those that are
        live."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _notify(self) -> None:
        """Tell recorder and policies what became of transits: outside of the cycle, for they may
        take their time, and may fail."""
        if self._recorder is not None:
            notify(self._reported, [self._recorder.record], "recorded", self._complaints)
        if self._policies is None:
            self._lifecycle.ended.clear()
        else:
            notify(self._lifecycle.ended, [self._policies.ended], "accounted for", self._complaints)
        for news in (
            self._failures.news, self.promises.news, self._draining.news, self._reevaluation.news
        ):  # fmt: skip
            notify(news, self.link_listeners, "told", self._complaints)
        try:
            self._failures.save(partial(self._store.put_document, *_FAILED_LINKS, keep=1))
            self._complaints.pop("saved", None)
        except StoreError as error:
            if self._complaints.get("saved") != str(error):
                log.warning("failed links are not saved: %s", error)
            self._complaints["saved"] = str(error)

    def sweep(self) -> None:
        """Do what time asks for: begin and end what is due, serve the queue, see who moves bytes
        and gets what was promised, share what many have, follow the policies, mend the switches,
        try whether the store can be written.

        Call it about once a second; requests do the urgent part of it themselves. It does nothing
        before the broker has started. Raises BrokerError ``store_unavailable``.
        """
        if self._unstarted:
            return
        if not 0 <= self._clock() - self._written_at < _WRITE_EVERY_S:
            self._written_at = self._clock()
            self._try_store()
        moving = self._lifecycle.moving(WATCHED)
        counted = self.promises.count()
        with self._cycle() as now:
            self._repository.retry()
            self._lifecycle.mark_active(moving, now)
            self.promises.follow(counted, now)
            self._reevaluation.follow(now)
            self.io_aware.follow(now)
            self._desired.follow_relays(now)
            self._waiting.serve(now)
            self._rerouting.improve(now)
            self._lifecycle.apply(now, everything=True)

    def has_news(self) -> bool:
        """Whether links have failed, or work again, or an agent of relays is lost, since the last
        cycle: then a sweep is due. Waits for nobody."""
        return self._failures.has_news() or self.relaying.has_news()

    def _done(self, transit: Transit, now: float) -> Transit:
        """The transit as it is once the switches know of it."""
        self._lifecycle.apply(now)
        return transit.copy()

    # -- requests ----------------------------------------------------------------------------

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
        request = self._named_now(request)
        try:
            check(request)
            with self._cycle() as now:
                known = self._lifecycle.find(request.id)
                if known is None:
                    check_own(request, self._lifecycle.find)
                    return self._done(self._create(request, now), now), True
                check_same(known, request)
                return known.copy(), False
        except BrokerError as refusal:
            _note_refusal(request, refusal)
            raise

    def ask(self, requests: Sequence[TransitRequest]) -> list[RequestAnswer]:
        """Answer several requests together, each for itself and in their order: one cycle, and one
        word to the switches for all of them.

        Like :meth:`request`, but an id whose transit has ended is asked for anew, under the first
        of ``ID.2``, ``ID.3``, … that has not; what was reserved in advance under an id is begun
        where there is room; and the size may be known better than before. What would be raised for
        one of them is its answer's ``error``. Raises BrokerError ``store_unavailable``.
        """
        with self._cycle() as now:
            answers = [self._answer(request, now) for request in requests]
            if not self.relaying.unable:  # it counts with how transfers are tuned
                for request, answer in zip(requests, answers, strict=True):
                    self._tuning.service(request, answer.transit)
            self._lifecycle.apply(now)
            return [
                replace(answer, service=self._tuning.service(request, answer.transit)).copy()
                for request, answer in zip(requests, answers, strict=True)
            ]

    def _named_now(self, request: TransitRequest) -> TransitRequest:
        """With the names of today, where somebody says the sites' former ones."""
        names = self.topology.renamed
        src, dst = (names.get(site, site) for site in (request.src, request.dst))
        return replace(request, src=src, dst=dst)

    def _answer(self, request: TransitRequest, now: float) -> RequestAnswer:
        transit, new, error = None, False, None
        request = self._named_now(request)
        try:
            check(request)
            transit, new = self._transit_for(request, now)
        except BrokerError as refusal:
            error = refusal
            _note_refusal(request, refusal)
        except StoreError as problem:
            error = BrokerError(str(problem), "store_unavailable")
        return RequestAnswer(transit, Service(), error, new)

    def _transit_for(self, request: TransitRequest, now: float) -> tuple[Transit, bool]:
        """What a request gets that may be repeated, and whether it is new:

        unknown id ─► a new transit          live or queued ─► as it is
        ended ─► its next id                 reserved in advance ─► begun
        """
        check_own(request, self._lifecycle.find)
        number, known = latest(request.id, self._lifecycle.find, user=request.user)
        next_request = replace(request, id=numbered(request.id, number))
        if known is None:
            before = self._lifecycle.find(numbered(request.id, number - 1)) if number > 1 else None
            if before is not None and is_recorded(before, request):
                return before, False
            check(next_request)  # a number makes an id longer
            return self._create(next_request, now), True
        if request.best_effort:
            if not same_owner(known, request):
                check_same(known, request)
        elif is_claim(known, request):
            if known.state is TransitState.QUEUED:  # for a later start: now it is for this one
                return self._create_instead(known, next_request, now), False
            self._advance.claim(known, next_request, now)
        else:
            check_same(known, request)
            if request.size_bytes is not None and request.size_bytes != known.request.size_bytes:
                wanted = known.copy()
                wanted.request = replace(known.request, size_bytes=request.size_bytes)
                self._lifecycle.amend(known, wanted, now)
        return known, False

    def _create(self, request: TransitRequest, now: float) -> Transit:
        """The transit of a checked request: held, queued, or best effort.

        Raises BrokerError ``unknown_template``, ``unknown_site``, ``impossible_rate``,
        ``bad_time``, ``conflict``, ``store_unavailable``.
        """
        transit, template, terms = self._requests.build(request, now)
        reason = decline_reason(request)
        if request.best_effort:  # it is under way without one, or was: there is no door to open
            self._lifecycle.decline(transit, reason, now)
        elif reason:
            self._placement.use_best_effort(transit, reason, now)
        elif not self._placement.lacks_space(transit, now) and (
            reason := self._admission.too_small(transit, template, now)
        ):
            self._placement.use_best_effort(
                transit, self._standing.sharing(transit, template, reason, now), now
            )
        else:
            self._requests.check_possible(request, terms, template)
            if reason := self._admission.over_quota(transit, now):
                self._placement.use_best_effort(transit, reason, now)
                return transit
            self.io_aware.begin(transit, template)
            claims = self._active.waitlist.claims_before(transit, now)
            self._placement.place(transit, template, claims, now, arriving=True)
        return transit

    def _create_instead(self, known: Transit, request: TransitRequest, now: float) -> Transit:
        """The transit of a request instead of one that waits. Raises BrokerError as
        :meth:`_create`, with nothing changed."""
        self._lifecycle.forget(known.id)
        try:
            return self._create(request, now)
        except BrokerError:
            self._lifecycle.resume(known, now)
            self._repository.save_later([known])  # what was not saved of it before still is to be
            raise

    def advise(
        self, src: str, dst: str, rate_bps: float | None = None, template: str = DEFAULT,
        user: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """As :meth:`~network_provisioner.transits.tuning.TransferTuning.advise`."""
        return self._tuning.advise(src, dst, rate_bps, template, user)

    # -- the queue, and the end ----------------------------------------------------------------

    def _expire(self, now: float) -> bool:
        """End the leases and the patience that are over; whether that left room for others."""
        freed = False
        for transit in self._active.due(now):
            if transit.lost_path:
                reason = f"{transit.reason}; its lease ended without another path"
                self._lifecycle.end(transit, TransitState.EXPIRED, reason, now)
            elif transit.state is TransitState.QUEUED:
                waited = now - transit.request.requested_at
                self._placement.use_best_effort(
                    transit, f"waited {waited:.0f} s: {transit.reason}", now
                )
            elif transit.grant.expected_end and now < (until := self._admission.usual_end(transit)):
                if self._waiting.goes_on(transit, until, now):
                    continue
            else:
                over = "its end has passed" if 0 < transit.request.end <= now else "its lease ended"
                self._lifecycle.end(transit, TransitState.EXPIRED, f"{transit.reason}; {over}", now)
            freed = True
        self._held.expire(now)
        return freed

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        vouched: bool = True,
        note: str = "",
        **used: int,
    ) -> Transit:
        """Give a path back and report what the transfer moved, and ``used``: ``streams``,
        ``buffer_bytes``, ``threads``, its failed attempts, ``retries``, and how many ``files``. A
        ``note``, such as why it was slow, is added to the transit's reason. Idempotent.

        Who waited leaves the queue. A transit that had ended keeps its state. The first report that
        is not empty counts, and goes to the recorder; what cannot be is marked, and unless it is
        ``vouched`` for, its user alone decides by it. Raises BrokerError ``unknown_transit``,
        ``store_unavailable``: the cycle cannot begin and nothing changed, or it is free but a
        broker that starts anew would not know; then it is to be given back again.
        """
        report = TransferReport(bytes_moved, seconds, outcome, note=note, **used)
        with self._cycle() as now:
            transit = self._known(transit_id)
            active = transit.id in self._active.all
            first = report.has_transfer and not (transit.usage.bytes or transit.usage.seconds)
            transit.usage.vouched = transit.usage.vouched and (vouched or not first)
            if active or first or transit.grant.released_at == 0:
                report.write_into(transit, first, self._admission.most_bps(transit), now)
                if active:
                    self._lifecycle.reported(transit, report.bytes, now)
                    self._lifecycle.end(transit, TransitState.RELEASED, transit.reason, now)
                    self._waiting.serve(now)
                else:
                    self._lifecycle.end_late(transit, now)
            answer = self._done(transit, now)
            if first and self._recorder is not None:
                self._reported.append(answer)
            if not self._repository.keeps(transit.id):
                raise BrokerError(
                    f"transit {transit.id} holds no path any more, but that could not be "
                    "recorded; repeat the request",
                    "store_unavailable",
                )
            return answer

    # -- changes of what a transit has -----------------------------------------------------------

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Make a live lease last at least ``lease_s`` from now, at most
        ``BrokerLimits.max_lease_s``, and no longer than to the end that was asked for; that of one
        that has yet to start, from its start.

        Never shortens one; a transit that is not live comes back unchanged. Raises BrokerError
        ``unknown_transit``, ``conflict`` (others hold the time after it),
        ``controller_unavailable``, ``store_unavailable``: the lease is as before.
        """
        with self._cycle() as now:
            transit = self._known(transit_id)
            until = max(now, transit.request.start) + min(lease_s, self._limits.max_lease_s)
            if transit.request.end:
                until = min(until, transit.request.end)
            if transit.state in LIVE and until > transit.grant.lease_until:
                self._waiting.extend(transit, until, now)
            elif transit.lost_path and until > transit.grant.lease_until:
                wanted = transit.copy()
                wanted.grant.lease_until = until
                self._lifecycle.modify(transit, wanted, now, "the lease was not renewed")
                self._active.waitlist.ask_again(transit)
                self._waiting.serve(now)
            return transit.copy()

    def change(
        self, transit_id: str, min_bps: float | None = None, max_bps: float | None = None
    ) -> Transit:
        """Raise or lower minimum and ceiling (b/s; None leaves one as it is) of a transit that has
        not ended, on the paths it has, without a gap; of one that waits, what it waits for.

        Raises BrokerError ``unknown_transit``, ``impossible_rate``, ``conflict`` (it has ended, or
        no room for more is left to it), ``controller_unavailable``, ``store_unavailable``: it is as
        before.
        """
        with self._cycle() as now:
            transit = self._known(transit_id)
            self._check_not_ended(transit)
            self._modifications.rates(transit, min_bps, max_bps, now)
            self._waiting.serve(now)
            return self._done(transit, now)

    def report_flows(self, transit_id: str, flows: Sequence[Flow]) -> Transit:
        """Say which packets a transit carries, once its application knows; what ports it was given
        counts no more. No flows: all between its two sites.

        Raises BrokerError ``unknown_transit``, ``conflict`` (it has ended, or the
        packets go another way already), ``controller_unavailable``, ``store_unavailable``: they are
        as before.
        """
        with self._cycle() as now:
            transit = self._known(transit_id)
            self._check_not_ended(transit)
            self._modifications.flows(transit, flows, now)
            return transit.copy()

    def report_progress(self, transit_id: str, n_bytes: int) -> Transit:
        """Say what a transfer has moved until now. One of which no packet met its transit's rules
        goes on as best effort, and its bandwidth is released.

        Raises BrokerError ``unknown_transit``, ``store_unavailable``.
        """
        with self._cycle() as now:
            transit = self._known(transit_id)
            if self._lifecycle.unmet(transit, n_bytes, now):
                self._waiting.serve(now)
            return self._done(transit, now)

    def report_connections(self, agent: str, site: str, connections: Sequence[Connection]) -> None:
        """Take in all connections that transfer servers have open now on the host of an agent at a
        site: transits whose clients have them open get their flows.

        Raises BrokerError ``unknown_site``, ``store_unavailable``.
        """
        with self._cycle() as now:
            if site not in self.topology.sites:
                raise BrokerError(f"unknown site {site!r}", "unknown_site")
            self._modifications.connections(agent, site, connections, now)

    def disks(self, agent: str, samples: Sequence[DiskSample], source: str) -> None:
        """Take in what the disks of an agent's host did in the last seconds, and where their I/O
        wait is from (:class:`~network_provisioner.state.disks.ReportedDisks`)."""
        with self._lock:
            site = agent.partition("/")[0]
            self._disks.take_in(agent, site, samples, source, self._now())

    def report_sockets(self, agent: str, periods: Sequence[SocketPeriod]) -> None:
        """Take in what the connections of an agent's host sent since its last report. Raises
        InputError for what cannot be."""
        with self._lock:
            self._sockets.take_in(agent, agent.partition("/")[0], periods, self._now())

    def shift(
        self, transit_id: str, start: float, end: float, size_bytes: int | None = None
    ) -> Transit:
        """Move what was reserved in advance to other times (Unix seconds), on whichever path has
        room then, all or nothing.

        One that is on the switches may be put off while it carries nothing; of one that does, only
        the end can move. One that waits, waits for the new times where they are taken too. Raises
        BrokerError ``unknown_transit``, ``bad_time``, ``conflict`` (no room then,
        or it has begun, or ended, or has no times: its transfer has asked for it),
        ``controller_unavailable``, ``store_unavailable``: it is as before.
        """
        with self._cycle() as now:
            transit = self._known(transit_id)
            self._check_not_ended(transit)
            self._advance.shift(transit, start, end, size_bytes, now)
            self._waiting.serve(now)
            return self._done(transit, now)

    # -- maintenance ---------------------------------------------------------------------------

    def drains(self) -> list[dict[str, Any]]:
        """All drains, JSON-ready, the next first, each with the transits that it concerns."""
        self.check_started()
        with self._lock:
            return self._draining.listed()

    def drain(self, drain: Drain) -> dict[str, Any]:
        """Take a link or a switch out of service (``at`` 0: now), or change when: transits leave it
        :data:`~network_provisioner.topology.drains.LEAD_S` before, reservations in advance at once.
        As :meth:`drains` tells of it.

        Raises BrokerError ``bad_request`` (no such link or switch), ``bad_time``,
        ``store_unavailable``.
        """
        with self._cycle() as now:
            drain = self._draining.order(drain, now)
            self._reroute(now)
            return self._draining.described(drain)

    def cancel_drain(self, element: str) -> dict[str, Any]:
        """Put a link or a switch back into service. Raises BrokerError ``bad_request`` (it has no
        drain), ``store_unavailable``."""
        with self._cycle() as now:
            drain = self._draining.cancel(element)
            self._reroute(now)
            return self._draining.described(drain)

    def _reroute(self, now: float) -> None:
        if self._rerouting.take_in(now):
            self._waiting.serve(now)
        self._lifecycle.apply(now)

    # -- packets that are held to a path, for measurements of it ----------------------------------

    def pin(self, name: str, nodes: Sequence[str], flow: Flow, until: float) -> None:
        """Lead the packets of a flow between two sites over the path along ``nodes``, without a
        rate of their own, until Unix second ``until``. Not kept over a restart.

        Raises BrokerError ``conflict`` (they cannot be told from others, or another transit has
        them, or the path has failed), ``controller_unavailable``, ``store_unavailable``.
        """
        with self._cycle() as now:
            self._held.hold(name, nodes, flow, until, now)

    def unpin(self, name: str) -> None:
        """Hold these packets to their path no longer. Raises BrokerError ``store_unavailable``."""
        if name in self._held:
            with self._cycle():
                self._held.drop(name)


def _guarded(question: Callable[..., T] | None, otherwise: T, what: str) -> Callable[..., T]:
    """A question to an archive, None where there is none. One that fails is logged and answered by
    ``otherwise``: it never fails a request."""

    def answer(*about: object) -> T:
        if question is None:
            return otherwise
        try:
            return question(*about)
        except Exception:
            log.exception("%s is unknown: %s", what, ", ".join(map(str, about)))
            return otherwise

    return answer


def _note_refusal(request: TransitRequest, refusal: BrokerError) -> None:
    user = request.user or "-"
    log.info(
        "refused %s %s > %s (user %s): %s", request.id, request.src, request.dst, user, refusal
    )
