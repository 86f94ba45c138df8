"""The policies there are: kept in the store, enforced while their time lasts.

``PolicyRegistry`` answers two kinds of questions. Network operators start, look at and end policies
(Table I of the application-aware SDN paper). The broker asks, at every change and when
:meth:`PolicyRegistry.next_change` comes, which queues the links shall have and which a transit
shares. A policy that expires needs nobody to stop it, and a broker that comes back finds all.

One policy governs a link direction at a time (:mod:`~.queues`); the others
rest there until it ends.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from network_provisioner.base.controller import Queue
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.instants import iso
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.base.units import format_rate
from network_provisioner.policies.accounting import RecentUse
from network_provisioner.policies.policy import (
    EVERYBODY_ELSE,
    ClassLimit,
    Policy,
    PolicyState,
    policy_from_record,
    policy_id,
)
from network_provisioner.policies.queues import (
    Governing,
    LinkQueues,
    governed_by,
    governing,
    queue_of,
    sure_when_idle,
)
from network_provisioner.policies.schema import policy_change, stopped_policy
from network_provisioner.stores.store import Store, StoreError
from network_provisioner.topology.graph import Hop, Topology

log = logging.getLogger(__name__)

KIND = "policy"
_FIXED = ("7-3", "10-3")  # strategies whose rates change with the transits alone
_CURRENT = (PolicyState.RUNNING, PolicyState.SCHEDULED)
# How often rates that come from demand and history are looked at again.
_REFRESH_S = 10.0
# How often the history is read from the store, and how much of it the first time.
_REREAD_S = 60.0
_RECENT_TRANSITS = 1000


@dataclass(frozen=True, slots=True)
class _Sharers:
    """Those of the ``known`` transits that share a queue under a policy, by id."""

    policy: Policy
    queue: str
    known: Mapping[str, Transit] = field(compare=False)

    def __call__(self, name: str) -> bool:
        return name in self.known and self.policy.queue_of(self.known[name]) == self.queue


class PolicyRegistry:
    """The policies of one store on one network. Thread-safe."""

    def __init__(
        self, topology: Topology, store: Store, clock: Callable[[], float] = time.time
    ) -> None:
        """``clock`` gives Unix seconds. Raises StoreError."""
        self._topology = topology
        self._store = store
        self._clock = clock
        self._recent = RecentUse()
        self._link_queues = LinkQueues(topology)
        self._lock = threading.RLock()
        self._stamp: int | None = None
        self._policies: dict[str, Policy] = {}
        # The same answer while the same policies run: now, and at some times to come.
        self._governing = lru_cache(8)(partial(governing, topology=topology))
        self._changed = False  # since the queues were last asked for
        self._due: float | None = None  # when what was last answered is outdated
        self._looked_at = -1e99  # when the history was last read
        self._refresh()

    # -- what operators ask ------------------------------------------------------------------

    def post(self, body: object) -> tuple[dict[str, Any], bool]:
        """Do as a policy in the form of Listing 1 says; what it is now, and whether it is new.

        Raises BrokerError: ``bad_request``, ``bad_time``, ``unknown_policy``; StoreError. Nothing
        is changed then.
        """
        with self._lock:
            self._refresh()
            now = self._clock()
            change = policy_change(body, self._policies, now)
            self._check_links(change.policy)
            if change.policy != change.before:
                self._store.put_document(KIND, change.policy.id, change.policy.as_dict())
                self._policies[change.policy.id] = change.policy
                self._changed = True
            return self._view(change.policy, now), change.before is None

    def delete(self, id_or_name: str) -> dict[str, Any]:
        """End a policy and take it out of the repository; how it ended. Raises BrokerError
        ``unknown_policy``, StoreError."""
        with self._lock:
            self._refresh()
            policy, now = self._known(id_or_name), self._clock()
            view = self._view(stopped_policy(policy, now), now)
            self._store.delete_document(KIND, policy.id)
            del self._policies[policy.id]
            self._changed = True
            return view

    def get(self, id_or_name: str) -> dict[str, Any]:
        """One policy as it is now. Raises BrokerError ``unknown_policy``, StoreError."""
        with self._lock:
            self._refresh()
            return self._view(self._known(id_or_name), self._clock())

    def listed(self, ended: bool = False) -> list[dict[str, Any]]:
        """The policies that run or will, with ``ended`` also those that did; by start and name.

        Raises StoreError.
        """
        with self._lock:
            self._refresh()
            now = self._clock()
            policies = [p for p in self._policies.values() if ended or p.state(now) in _CURRENT]
            return [self._view(p, now) for p in sorted(policies, key=lambda p: (p.start, p.name))]

    # -- what the broker asks ----------------------------------------------------------------

    def queue_of(self, transit: Transit, now: float) -> str:
        """As :func:`~network_provisioner.policies.queues.queue_of`, at Unix second ``now``."""
        with self._lock:
            by_hop = self._by_hop(now)
            return queue_of(transit, by_hop) if by_hop else ""

    def bound(
        self,
        transit: Transit,
        hop: Hop,
        capacity_bps: float,
        at: float,
        known: Mapping[str, Transit],
    ) -> ClassLimit | None:
        """As :meth:`~network_provisioner.policies.policy.Differentiator.bound`."""
        with self._lock:
            policy = self._by_hop(at).get(hop)
        queue = "" if policy is None else policy.queue_of(transit)
        if policy is None or not queue:
            return None
        bps = sure_when_idle(hop, capacity_bps, policy).get(queue)
        if bps is None:
            return None
        return ClassLimit(
            int(bps),
            _Sharers(policy, queue, known),
            f"where policy {policy.name!r} leaves its class {format_rate(bps)} to reserve",
        )

    def queues(self, live: Sequence[Transit], now: float) -> list[Queue]:
        """What the links shall have now: queues wherever a live transit shares one."""
        with self._lock:
            again = self._changed or (self._due is not None and self._due <= now)
            self._changed, self._due = False, self._next_after(now)
            by_hop = self._by_hop(now)
            if not by_hop:
                return []
            self._read_history(self._running(now), now)
            return self._link_queues.queues(
                by_hop, live, lambda policy: self._used(policy, live, now), now, again
            )

    def next_change(self, now: float) -> float | None:
        """The Unix second at which the queues should be asked for again though no transit changes,
        None where nothing is to come. Not after ``now`` where what was last answered is outdated:
        policies have changed, one has begun or ended, or `computed` should look again."""
        with self._lock:
            with self._going_on():
                self._refresh()
            if self._changed:
                return now
            due = self._due
            return due if due is not None and due <= now else self._next_after(now)

    def ended(self, transit: Transit) -> None:
        """Take in at once that a transit has ended, and what it moved."""
        self._recent.note([transit], self._clock())

    # -- within ------------------------------------------------------------------------------

    def _next_after(self, now: float) -> float | None:
        running = self._running(now)
        waiting = [p for p in self._policies.values() if p.state(now) is PolicyState.SCHEDULED]
        times = [p.end for p in running if p.end < math.inf]
        times += [p.start for p in waiting]
        if any(p.strategy not in _FIXED for p in running):
            times.append((now // _REFRESH_S + 1) * _REFRESH_S)
        return min(times, default=None)

    def _refresh(self) -> None:
        """Read the policies again where somebody else who shares the store changed them."""
        stamp = self._store.documents_stamp(KIND)
        if stamp == self._stamp:
            return
        policies = {}
        for document in self._store.documents(KIND):
            try:
                policy = policy_from_record(document.body)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("policy %s cannot be read: %r", document.name, error)
            else:
                policies[policy.id] = policy
        self._changed = self._changed or policies != self._policies
        self._policies, self._stamp = policies, stamp

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """What the broker asks is answered from memory while the store cannot be read."""
        try:
            yield
        except StoreError as error:
            log.warning("policies are as they were last read: %s", error)

    def _known(self, id_or_name: str) -> Policy:
        policy = self._policies.get(id_or_name) or self._policies.get(policy_id(id_or_name))
        if policy is None:
            raise BrokerError(
                f"unknown policy {id_or_name[:200]!r}, expected the id or name of one of the "
                f"{len(self._policies)} that there are",
                "unknown_policy",
            )
        return policy

    def _check_links(self, policy: Policy) -> None:
        try:
            for a, b in policy.links:
                self._topology.link(a, b)
        except AdonError as error:
            raise BrokerError(f"policy {policy.name!r}: links: {error}", "bad_request") from error

    def _running(self, at: float) -> tuple[Policy, ...]:
        return tuple(p for p in self._policies.values() if p.state(at) is PolicyState.RUNNING)

    def _by_hop(self, at: float) -> Governing:
        """Who governs each link direction now, or at a later time."""
        return self._governing(self._running(at))

    def _used(self, policy: Policy, live: Sequence[Transit], now: float) -> tuple[float, float]:
        if policy.strategy in _FIXED:
            return 0.0, 0.0
        used = self._recent.used_bytes(policy.type, now, live)
        named = [used.get(spec, 0.0) for spec in policy.specs]
        if EVERYBODY_ELSE in policy.specs:
            rest = policy.specs.index(EVERYBODY_ELSE)
            named[rest] = sum(used.values()) - named[1 - rest]
        return named[0], named[1]

    def _read_history(self, governing: Iterable[Policy], now: float) -> None:
        """The store's newest transits: those that ended before a restart, or at other brokers. What
        ends at this one is told by :meth:`ended`."""
        fixed = all(policy.strategy in _FIXED for policy in governing)
        if fixed or now - self._looked_at < _REREAD_S:
            return
        newest = _RECENT_TRANSITS if self._looked_at < 0 else _RECENT_TRANSITS // 10
        self._looked_at = now
        with self._going_on():
            for state in (TransitState.RELEASED, TransitState.EXPIRED):
                self._recent.note(self._store.find(state, None, newest), now)

    def _view(self, policy: Policy, now: float) -> dict[str, Any]:
        by_hop = self._by_hop(now)
        own = sorted(set(governed_by(policy, self._topology)))
        runs = policy.state(now) is PolicyState.RUNNING
        return {
            "id": policy.id,
            "name": policy.name,
            "type": policy.type,
            "strategy": policy.strategy,
            "specs": list(policy.specs),
            "time": [iso(policy.start), None if math.isinf(policy.end) else iso(policy.end)],
            "state": str(policy.state(now)),
            "queues": list(policy.queues),
            "links": [list(hop) for hop in own if runs and by_hop[hop].id == policy.id],
            "resting": [
                {"link": list(hop), "for": by_hop[hop].id}
                for hop in own
                if runs and by_hop[hop].id != policy.id
            ],
            "parts": list(policy.parts),
            "guarantees": [{"share": a.share, "bps": a.bps} for a in policy.guaranteed()],
            "created_at": policy.created_at,
            "changed_at": policy.changed_at,
            "stopped_at": policy.stopped_at,
        }
