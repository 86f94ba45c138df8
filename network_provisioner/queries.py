"""What a broker tells of itself: its transits, its network, whether it works. Nothing changes."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from network_provisioner.base.controller import Controller, ControllerError
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.base.model import ENDED, LIVE, ON_SWITCHES, Transit, TransitState
from network_provisioner.base.release import release
from network_provisioner.controllers.route_table import route_table
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.ledger import Ledger
from network_provisioner.state.load import check_window, describe_load
from network_provisioner.stores.store import Leader, Store, StoreError
from network_provisioner.topology import discovery
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.link_failures import LinkFailures
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.promises import Promises
from network_provisioner.transits.repository import Repository

log = logging.getLogger(__name__)
T = TypeVar("T")


class TransitRecorder(Protocol):
    """Takes what was measured of a transfer, once for each transit that is reported."""

    def record(self, transit: Transit) -> object:
        """Keep bytes, seconds, goodput. Whatever it raises is logged and goes no further."""
        ...


class Queries:
    """The half of a broker that changes nothing."""

    topology: Topology
    other_problems: list[Callable[[], str]]
    """Each gives what is wrong with what runs beside the broker, "" where nothing is."""
    _controller: Controller
    _store: Store
    _lock: threading.Lock
    _now: Callable[[], float]
    _unstarted: str
    """Why nothing can be changed yet, in words; "" once the broker has started."""
    leader: Leader | None = None
    """The broker that decides, None until it is known."""
    _undecided: str
    """Why nothing could be decided the last time, for everybody to read; "" where it could."""
    _unwritten: str = ""
    """Why the store did not take its last small write, "" where it did."""
    _ledger: Ledger
    _active: ActiveTransits
    _repository: Repository
    _failing_list: tuple[str | None, str | None, int, str, bool] | None = None
    """What was asked for by the last list that failed."""
    _desired: DesiredState
    _failures: LinkFailures
    _lifecycle: Lifecycle
    promises: Promises

    def get(self, transit_id: str) -> Transit:
        """The transit as it was last saved, with what it is granted now. Raises BrokerError
        ``unknown_transit``.

        Like the other questions, it does not wait for work on the switches.
        """
        return self._as_now(_known(transit_id, self._repository.find(transit_id)))

    def list(
        self,
        state: str | None = None,
        workflow: str | None = None,
        limit: int = 10_000,
        before: str = "",
        ended: bool = True,
    ) -> list[Transit]:
        """The newest ``limit`` transits in a state, of a workflow (None: any), before the one with
        the id ``before`` ("": of all), without those that have ``ended`` or with them, oldest
        first. Raises BrokerError ``unknown_transit``, StoreError."""
        if before:
            _known(before, self._repository.find(before))
        self._failing_list = query = state, workflow, limit, before, ended
        transits = self._store.find(*query)
        self._failing_list = None
        return [self._as_now(transit) for transit in transits]

    def count(self) -> dict[str, int]:
        """How many transits there are in each state. Raises StoreError."""
        return self._store.count()

    def problem(self) -> str:
        """What is out of step now, in words; "" where nothing is."""
        return next(filter(None, self._problems()), "")

    def _problems(self) -> Iterator[str]:
        if self._unstarted and not self.follows:
            awaited = [f"{s.label} {s.problem}" for s in self._failures.statuses() if s.problem]
            yield "; ".join((self._unstarted, *awaited))
        if self._desired.out_of_step:
            yield "the switches did not take the last change"
        yield self._undecided
        if self._repository.behind:
            yield "the store did not take the last change"
        if self._unwritten:
            yield "the store cannot be written"
        if self._failing_list is not None:
            try:
                self.list(*self._failing_list)
            except StoreError:
                yield "the store cannot be read"
        if self._store.unreadable:
            count = len(self._store.unreadable)
            yield f"the store is damaged: what cannot be read is left out ({count} in the log)"
        yield self._failures.problem
        yield self.promises.problem
        yield from (problem() for problem in self.other_problems)

    def store_works(self) -> bool:
        """Whether the store took the last small write, which each sweep tries."""
        return not self._unwritten

    def _try_store(self) -> None:
        before = self._unwritten
        try:
            self._store.try_write()
        except StoreError as error:
            self._unwritten = str(error)
            if self._unwritten != before:
                log.warning("the store cannot be written: %s", error)
        else:
            self._unwritten = ""

    def check_started(self) -> None:
        """Raises BrokerError ``busy`` for a broker that has not started."""
        if self._unstarted:
            raise BrokerError(f"{self._unstarted}; try again", "busy")

    def health(self) -> dict[str, Any]:
        """Whether the service works: its controller, and how many transits live and wait."""
        can = self._controller.capabilities()
        live, queued = self._counts()
        problem = self.problem()
        return {
            "status": "degraded" if problem else "ok",
            "problem": problem,
            "controller": asdict(can),
            "live": live,
            "queued": queued,
            "links_failed": self._failures.described(),
            "links_unknown": [link.label for link in self._failures.unknown()],
            "switches": list(self._switches()),
            "leads": not self.follows,
            "leader": "" if self.leader is None else self.leader.address,
            "release": release(),
        }

    @property
    def follows(self) -> bool:
        """Whether another broker leads."""
        return self.leader is not None and not self.leader.is_us

    def _counts(self) -> tuple[int, int]:
        """How many transits live and wait."""
        if not self.follows:
            return self._active.count()
        states: Counter[str] = Counter()
        with suppress(StoreError):  # which is another problem
            states.update(self._store.count())
        return sum(states[state] for state in LIVE), states[TransitState.QUEUED]

    def _switches(self) -> Iterator[dict[str, Any]]:
        """Each switch as it is; of one with a problem, how many transits pass it."""
        statuses = self._failures.statuses()
        passed: Counter[str] = Counter()
        if any(status.problem for status in statuses):
            for transit in list(self._active.all.values()):  # others change it meanwhile
                if transit.state in ON_SWITCHES:
                    passed.update({node for path in transit.grant.paths for node in path})
        for status in statuses:
            yield asdict(status) | {"transits": passed[status.name] if status.problem else None}

    def describe_topology(
        self,
        at: float | None = None,
        until: float | None = None,
        users: frozenset[str] | None = None,
    ) -> dict[str, Any]:
        """Nodes, and links with what is reserved in each direction now or ``at`` a later time, and
        by whom ``until`` another; JSON-ready. With ``users`` the ids of theirs alone are told.
        Raises BrokerError ``bad_time``."""
        with self._lock:
            now = self._now()
            when = now if at is None else at
            check_window(when, until, now)
            live = self._active.on_switches() if when <= now else ()
            failed = self._failures.unusable
            unknown = {hop for link in self._failures.unknown() for hop in link.hops}
            described = describe_load(
                self.topology, self._ledger, max(when, now), until, live, failed, unknown,
                self._failures.drained,
            )  # fmt: skip
        if users is not None:
            active = self._active.all
            own = {name for name, transit in list(active.items()) if transit.request.user in users}
            for load in (load for link in described["links"] for load in link["load"]):
                load["transits"] = [name for name in load["transits"] if name in own]
                for holder in load.get("holders", ()):
                    if holder["id"] not in own:
                        holder["id"] = ""
        return described

    def routes(
        self, site: str = "", users: frozenset[str] | None = None
    ) -> Sequence[dict[str, Any]]:
        """Who goes where and why: best effort between every two sites, or from and to ``site``,
        and the transits on the switches, with ``users`` theirs alone; JSON-ready. Raises
        BrokerError ``unknown_site``."""
        with self._lock:
            live, failed = list(self._active.on_switches()), dict(self._failures.broken)
        if users is not None:
            live = [transit for transit in live if transit.request.user in users]
        try:
            return route_table(self.topology, failed, live, site)
        except InputError as error:
            raise BrokerError(str(error), "unknown_site") from error

    def users_of(self, ids: Iterable[str]) -> dict[str, str]:
        """The users of those of these ids that are a transit's, also of one that has ended. Raises
        StoreError."""
        wanted, active = set(ids), self._active.all
        users = {name: it.request.user for name in wanted if (it := active.get(name)) is not None}
        return users | {t.id: t.request.user for t in self._store.get_many(wanted - users.keys())}

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

    # -- within ------------------------------------------------------------------------------

    def _known(self, transit_id: str) -> Transit:
        """The transit with this id, whatever its state, under the lock. Raises BrokerError
        ``unknown_transit``."""
        return _known(transit_id, self._lifecycle.find(transit_id))

    def _check_not_ended(self, transit: Transit) -> None:
        """Raises BrokerError ``conflict``."""
        if transit.state in ENDED:
            raise BrokerError(
                f"transit {transit.id!r} is {transit.state}, expected one that has not ended",
                "conflict",
            )

    def _as_now(self, saved: Transit) -> Transit:
        """With what is only in memory yet."""
        live = self._active.all.get(saved.id)
        if live is not None and live.state in LIVE and saved.state in LIVE:
            # What changes too often to be saved each time.
            for name in ("granted_bps", "queue", "parts", "tuning"):
                setattr(saved.grant, name, getattr(live.grant, name))
            for name in ("byte_seconds", "metered_at", "kept"):
                setattr(saved.usage, name, getattr(live.usage, name))
        return saved


def _known(transit_id: str, transit: Transit | None) -> Transit:
    """What was found. Raises BrokerError ``unknown_transit`` for nothing."""
    if transit is None:
        raise unknown_transit(transit_id)
    return transit


def unknown_transit(transit_id: str) -> BrokerError:
    """There is none with this id, as far as may be told."""
    return BrokerError(
        f"unknown transit {transit_id!r}, expected the id of one of this broker's",
        "unknown_transit",
    )


def notify(
    queue: deque[T], takers: Iterable[Callable[[T], object]], what: str, complaints: dict[str, str]
) -> None:
    """Hand all that is in a queue over. ``complaints`` has the last one, which is not repeated."""
    while queue:
        try:
            news = queue.popleft()
        except IndexError:  # another thread took the last one
            return
        for take in takers:
            try:
                take(news)
                complaints.pop(what, None)
            except AdonError as error:  # a disk that is full, a database that is away
                if complaints.get(what) != str(error):
                    log.warning("%s was not %s: %s", getattr(news, "id", news), what, error)
                complaints[what] = str(error)
            except Exception:  # somebody else's failure must not fail a request
                log.exception("%s was not %s", getattr(news, "id", news), what)
