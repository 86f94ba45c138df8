"""Circuits on OpenFlow switches, however these are reached.

What is on the switches is read before anything is changed, so no state of its own is needed: after
a restart of either side the rules that are still right stay untouched. A refusal undoes a change,
and a switch that comes back is brought up to date by a worker thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from queue import Empty, SimpleQueue

from network_provisioner.base.controller import (
    Capabilities,
    Circuit,
    ControllerError,
    LinkCounter,
    Queue,
    SwitchStatus,
    Way,
)
from network_provisioner.base.errors import AdonError, InputError, MissingError
from network_provisioner.controllers.backend import (
    SwitchBackend,
    SwitchChange,
    SwitchEvent,
    switch_names,
)
from network_provisioner.controllers.groups import CircuitGroup, shares
from network_provisioner.controllers.link_watch import LinkWatch
from network_provisioner.controllers.plan import BANDWIDTH_METHODS, SwitchPlan
from network_provisioner.controllers.reconcile import CHECK_S, Reconciler, Resync
from network_provisioner.controllers.rules import UNCOUNTED, FlowRule, same_but_lease
from network_provisioner.controllers.shaping.shapes import Shaper
from network_provisioner.controllers.switch_status import SwitchMonitor
from network_provisioner.topology.discovery import Discovered
from network_provisioner.topology.graph import Hop, Topology

LOG = logging.getLogger(__name__)
# Who has not connected so long after the start is named in the log.
_SOON_S = 1.0
# One that refused is tried again after so long.
RETRY_S = 5.0
# How switches are configured is looked at so often; where nobody says that, so seldom.
INSPECT_S, UNSAID_S = 2.0, 300.0
# Comparing takes no more than this share of the time, of ours and of the switch's: by the least of
# the last times, for a busy machine makes others long that cost nothing.
_CHECK_SHARE, _CHECKS = 0.1, 5
_BACK = frozenset({SwitchChange.CONNECTED, SwitchChange.ANSWERS})
_DEVICES = 0  # stands for the devices of all switches, whose ids begin at 1


class ByteLedger:
    """Attributes the byte counter of each rule to the circuits that share it.

    The counter of a rule counts the packets of all its circuits. Whenever it is read, what it has
    grown since the last reading is split among the circuits that had the rule in between, by the
    given shares (their guaranteed rates). With one circuit at a time, which is usual, the count is
    exact; with several it is an estimate that adds up.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._bytes: dict[str, float] = {}

    def observe(self, rule: Hashable, counter: int, shares: Mapping[str, float]) -> None:
        """Take in a reading. A counter below the last one has started anew (switch restart)."""
        last = self._last.get(rule, 0)
        grown = counter - last if counter >= last else counter
        self._last[rule] = counter
        for circuit_id, share in shares.items():
            self._bytes[circuit_id] = self._bytes.get(circuit_id, 0.0) + grown * share

    def bytes_of(self, circuit_id: str) -> int:
        """Bytes attributed to a circuit so far; 0 for one that is not known."""
        return round(self._bytes.get(circuit_id, 0.0))

    def retain(self, rules: Iterable[Hashable], circuit_ids: Iterable[str]) -> None:
        """Forget every rule and circuit that is not named; a new rule's counter starts at 0."""
        rules, circuit_ids = set(rules), set(circuit_ids)
        self._last = {r: n for r, n in self._last.items() if r in rules}
        self._bytes = {i: n for i, n in self._bytes.items() if i in circuit_ids}


class SwitchedController:
    """A :class:`~network_provisioner.base.controller.Controller` on a :class:`SwitchBackend`.

    ``name`` is the driver's. ``shaper`` keeps the rates on the topology's devices. ``bandwidth``
    says how rates are kept: one of plan's BANDWIDTH_METHODS, or "auto" for classes on the devices
    where the topology names any, else for meters where every switch has them, else not at all.
    ``watch``: look for links that fail. Thread-safe.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        backend: SwitchBackend,
        shaper: Shaper | None,
        clock: Callable[[], float],
        *,
        bandwidth: str = "auto",
        watch: bool = False,
        inspect: Callable[[Collection[int]], Mapping[int, str]] | None = None,
        unused: Sequence[Shaper] = (),
    ) -> None:
        """``unused`` are shapers that an earlier configuration may have used. ``inspect`` says what
        is wrong with how switches are configured, by their ids, which the switches themselves do
        not tell. Raises InputError for a ``bandwidth`` that cannot be had, and for a topology
        without switches, or one that lacks ports or MACs."""
        self._name = name
        self._topology = topology
        self._clock = clock
        self._bandwidth = bandwidth
        self._keep = _first_choice(topology, shaper, bandwidth)
        names = self._names = switch_names(topology)
        self._backend = backend
        self._monitor = SwitchMonitor(
            {dpid: (name, backend.label(dpid)) for dpid, name in names.items()},
            backend.connected,
            clock,
            backend.trouble,
            backend.turned_away,
        )
        # One holder at a time changes switches or shaping.
        self._lock = threading.RLock()
        shaping = shaper if self._keep in ("dscp-htb", "queue") else None
        self._reconciler = Reconciler(topology, backend, shaping, clock, self._keep, unused)
        self._ledger = ByteLedger()
        self._uncounted: set[str] = set()  # circuits, when their bytes were asked for last
        self._portless: dict[int, str] = {}  # switches whose ports are not counted, and why
        self._running = self._stands_by = False
        self._leads: Callable[[], bool] = lambda: True  # else another broker has the switches
        self._resync: threading.Thread | None = None
        self._progress = threading.Condition()
        self._compared: set[int] = set()
        self._devices_due: dict[int, float] = {}  # monotonic seconds
        self._check_times: dict[int, deque[float]] = {}
        self._failure: AdonError | None = None
        self._started = False  # whether it waits for switches no more
        self._avoided: frozenset[Hop] = frozenset()
        self._cleared = False  # whether switches are to have nothing of ours
        self._watch = watch
        self._inspect = inspect
        self._inspect_at = 0.0
        self._was_inspected = False
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._links = LinkWatch(topology, backend)
        self._round = threading.Lock()  # one of it

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name=self._name,
            bandwidth=self._keep,
            flow_leases=True,
            real_packets=True,
            matches=True,
            multipath=True,
            queues=self._keep == "dscp-htb",
        )

    def stand_by(self) -> None:
        """See :class:`~network_provisioner.base.controller.StandsBy`."""
        self._backend.stand_by()
        self._stands_by = True

    def lead(self, term: int, leads: Callable[[], bool]) -> None:
        """See :class:`~network_provisioner.base.controller.StandsBy`."""
        self._leads = leads
        self._backend.lead(term)

    def start(self, timeout_s: float) -> None:
        """Reach for the switches, wait for them, lay the best-effort routes.

        Circuits left on the switches by an earlier run stay until the first ``apply`` says whether
        they are still wanted, so a broker that restarts does not disturb running transfers. A
        switch that does not come within ``timeout_s``, or refuses its rules, is named in the log
        and gets them later. Raises ControllerError where switches cannot be listened for or lack
        the meters that are asked for, and MissingError for no ``tc``.
        """
        if self._running:
            return
        self._failure, self._started, self._cleared = None, False, False
        self._compared.clear()
        self._backend.open()
        self._running = True
        self._resync = threading.Thread(target=self._keep_up, name="adon-resync", daemon=True)
        self._resync.start()
        try:
            self._wait_for_switches(timeout_s)
            self._choose_meters()
            self._started = True
        except AdonError:
            with self._lock:
                self._running = False
            self._disconnect()
            raise
        if self._watch:
            self._stopping.clear()
            self._watcher = threading.Thread(target=self._look, name="adon-links", daemon=True)
            self._watcher.start()

    def apply(self, circuits: Sequence[Circuit], queues: Sequence[Queue] = ()) -> None:
        """A switch that is away does not keep circuits from being *removed*."""
        can = self.capabilities()
        if queues and not can.queues:
            raise ControllerError(
                f"{len(queues)} queues were asked for, but bandwidth is kept by {can.bandwidth!r}, "
                "which has none; expected dscp-htb"
            )
        with self._lock:
            self._require_running()
            if not self._leads():
                raise ControllerError("another broker leads")
            self._cleared = False
            self._reconciler.avoid(frozenset(self.failed_links()) | self._avoided)
            prepared = self._reconciler.prepare(circuits, queues)
            self._account_changes(prepared.before, prepared.after)
            self._reconciler.apply(prepared)
            plan = prepared.after
            first = (rule.key for g in plan.groups if g.data for rule in _first_rules(plan, g))
            self._ledger.retain(first, (c.id for c in circuits))
            self._uncounted &= {c.id for c in circuits}

    def circuit_bytes(self, circuit_id: str) -> int:
        """Circuits that share both sites and name no flows (or the same) share a
        counter: see ByteLedger."""
        with self._lock:
            if self._running:
                group = self._reconciler.plan().carrier(circuit_id)
                self._account([group] if group is not None else [])
            return self._ledger.bytes_of(circuit_id)

    def is_uncounted(self, circuit_id: str) -> bool:
        """See :class:`~network_provisioner.base.controller.MayMissBytes`."""
        return circuit_id in self._uncounted

    def hop_bytes(self, circuit_ids: Collection[str]) -> dict[str, list[tuple[str, int]]]:
        """See :class:`~network_provisioner.base.controller.CountsHops`."""
        with self._lock:
            self._require_running()
            plan = self._reconciler.plan()
            named = [(name, plan.carrier(name)) for name in circuit_ids]
            alone = {
                name: [rule for rule in plan.rules_of(group) if rule.protocol != "arp"]
                for name, group in named
                if group is not None and len(group.data) == len(group.branches) == 1
            }
            wanted = (rule for rules in alone.values() for rule in rules)
            counted = {seen.rule.key: seen.bytes for seen in self._reconciler.counted_by(wanted)}
        bytes_by_circuit: dict[str, list[tuple[str, int]]] = {}
        for name, rules in alone.items():
            if all(rule.key in counted for rule in rules):
                at = Counter[str]()
                for rule in sorted(rules, key=lambda rule: rule.hop):
                    at[self._names[rule.dpid]] += counted[rule.key]
                bytes_by_circuit[name] = list(at.items())
        return bytes_by_circuit

    def installed(self) -> list[str]:
        """A circuit counts when all its rules, both ways, are on the switches.

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
        """Switches that do not answer are left out."""
        carried: dict[int, dict[int, tuple[int, int]]] = {}
        for dpid in self._backend.connected():
            try:
                carried |= self._backend.port_bytes({dpid})
                self._portless.pop(dpid, None)
            except ControllerError as error:
                if self._portless.get(dpid) != str(error):
                    LOG.warning("its ports are not counted: %s", error)
                self._portless[dpid] = str(error)
        at = self._clock()
        counters = []
        for link in self._topology.links:
            for switch, port in (link.ports or {}).items():
                count = carried.get(self._topology.nodes[switch].dpid, {}).get(port)
                if count is not None and count[0] != UNCOUNTED:
                    counters.append(LinkCounter(switch, link.other(switch), count[0], at))
        return counters

    def discover(self) -> Discovered:
        """See :class:`~network_provisioner.topology.discovery.Discovers`."""
        self._require_running()
        return self._backend.discover()

    def failed_links(self) -> dict[Hop, str]:
        """See :class:`~network_provisioner.base.controller.WatchesLinks`: links with a port that
        is down, or that let no probes through any more."""
        return self._links.failed()

    def avoid_links(self, hops: Set[Hop]) -> None:
        """See :class:`~network_provisioner.base.controller.AvoidsLinks`."""
        self._avoided = frozenset(hops)

    def known_ways(self) -> frozenset[Way]:
        """See :class:`~network_provisioner.base.controller.ProbesLinks`."""
        return self._links.known

    def unheard_links(self) -> set[Hop]:
        """See :class:`~network_provisioner.base.controller.ProbesLinks`."""
        return self._links.unheard() if self._watch else set()

    def expect_ways(self, ways: Set[Way], failed: Mapping[Hop, str]) -> None:
        """See :class:`~network_provisioner.base.controller.ProbesLinks`."""
        if self._watch:
            self._links.expect(ways, failed)

    def switches(self) -> list[SwitchStatus]:
        """See :class:`~network_provisioner.base.controller.WatchesSwitches`."""
        return self._monitor.statuses()

    def _look(self) -> None:
        """Watch links until all is to stop."""
        reported = before = ""
        while not self._stopping.wait(self._backend.watch_s):
            trouble = ""
            try:
                self._look_once()
            except Exception as error:  # nobody else would notice that nobody watches
                trouble = str(error) or type(error).__name__
                # A switch that has just gone is reported as gone, and not as an error here.
                if trouble == before != reported and not self._stopping.is_set():
                    reported = trouble
                    unknown = not isinstance(error, ControllerError)
                    LOG.warning("links are not watched: %s", trouble, exc_info=unknown)
            before = trouble
            reported = reported if trouble else ""

    def _look_once(self) -> None:
        with self._round:
            if self._may_change():
                self._links.observe()
                slow = self._links.slow()
                for dpid in self._names:
                    self._monitor.set_problem(dpid, "ports", slow.get(dpid, ""))

    def _unwatch(self) -> None:
        """Take the rules for probes off the switches."""
        try:
            with self._round:  # or it would lay them again
                self._backend.unwatch()
        except ControllerError as error:
            LOG.warning("rules were left behind: %s", error)

    def clear(self) -> None:
        with self._lock:
            if not self._running:
                return
            self._cleared = True
            if self._watch:
                self._unwatch()
            self._reconciler.clear()
            self._ledger = ByteLedger()

    def stop(self) -> None:
        with self._lock:
            if not self._running:
                if self._stands_by:
                    self._backend.close()
                return
            self._running = self._stands_by = False
            if self._watch and self._leads():
                self._unwatch()
            self._reconciler.forget()
            self._ledger = ByteLedger()
        self._disconnect()

    def _disconnect(self) -> None:
        self._stopping.set()
        self._backend.close()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        self._backend.events.put(None)
        if self._resync is not None:
            self._resync.join()
            self._resync = None

    def _may_change(self, devices: bool = False) -> bool:
        """Whether rules, or ``devices``, are ours to change now. Switches that know who leads
        refuse them where they are not; so they are kept right while nobody can be elected."""
        ours = self._leads() or (self._backend.is_fenced and not devices)
        return self._running and not self._cleared and ours

    def _require_running(self) -> None:
        if not self._running:
            raise ControllerError(f"the {self._name} controller is not started")

    def _account_changes(self, before: SwitchPlan, after: SwitchPlan) -> None:
        """Read the counters of groups whose circuits change, or go on in other groups as they name
        other flows, while all can still be told whose bytes they were."""
        later = {group.key: group for group in after.groups}
        self._account(
            group
            for group in before.groups
            if (
                later[group.key].data != group.data
                if group.key in later
                else any(map(after.carrier, group.data))
            )
        )

    def _account(self, groups: Iterable[CircuitGroup]) -> None:
        """Attribute the byte counters at these groups' first switch."""
        carrying = [group for group in groups if group.data]
        if not carrying:
            return
        circuits = {c.id: c for c in self._reconciler.circuits or ()}
        plan = self._reconciler.plan()
        counted = {s.rule.key: s.bytes for s in self._reconciler.counted(carrying)}
        for group in carrying:
            parts = shares(circuits, group)
            rules = _first_rules(plan, group)
            missed = any(rule.key not in counted for rule in rules)
            (self._uncounted.update if missed else self._uncounted.difference_update)(group.data)
            for rule in rules:
                if rule.key in counted:
                    self._ledger.observe(rule.key, counted[rule.key], parts)

    def _wait_for_switches(self, timeout_s: float) -> None:
        everyone = self._names.keys()
        soon_s = min(_SOON_S, timeout_s)

        def is_over() -> bool:
            return self._failure is not None or self._compared >= everyone

        with self._progress:
            if not self._progress.wait_for(is_over, soon_s):
                missing = map(self._backend.label, sorted(everyone - self._compared))
                LOG.warning(
                    "waits for %s to connect %s", ", ".join(missing), self._backend.expectation()
                )
                self._progress.wait_for(is_over, timeout_s - soon_s)
            if self._failure is not None:
                raise self._failure

    def _choose_meters(self) -> None:
        """Where rates can only be kept by meters, see whether the switches have them."""
        if self._keep != "none" or self._bandwidth not in ("auto", "meter"):
            return
        there = self._backend.connected()
        without = [dpid for dpid in sorted(there) if not self._backend.can_meter(dpid)]
        if there and not without:
            with self._lock:
                self._keep = "meter"
                self._reconciler.keep_by("meter")
        elif without and self._bandwidth == "meter":
            names = ", ".join(self._backend.label(dpid) for dpid in without)
            raise ControllerError(f"{names} has no meters, expected them for bandwidth: meter")

    def _keep_up(self) -> None:
        """Bring switches up to date: those that connected again, those that lost rules, and each
        one now and then."""
        next_check: dict[int, float] = {_DEVICES: time.monotonic() + self._backend.check_s}
        while True:
            due = min(next_check.values(), default=math.inf)
            events = _all_events(self._backend.events, due)
            if None in events:
                return
            # Rules often end together; one look at their switch is enough.
            now = time.monotonic()
            happened: dict[int, set[SwitchChange]]
            happened = {dpid: set() for dpid, at in next_check.items() if at <= now}
            for event in filter(None, events):
                happened.setdefault(event.dpid, set()).add(event.change)
            for dpid, changes in happened.items():
                lost = changes == {SwitchChange.RULES_REMOVED}
                if lost and self._monitor.is_contested(dpid):
                    soon = now + max(self._backend.check_s, self._most_pause_s(dpid))
                    next_check[dpid] = min(next_check.get(dpid, soon), soon)
                    continue  # that puts them back
                began = time.monotonic()
                if dpid == _DEVICES:
                    changed = self._check_devices()
                else:
                    changed = self._bring_up_to_date(dpid, changes)
                took_s = time.monotonic() - began
                next_check[dpid] = time.monotonic() + self._pause_s(dpid, changed, took_s)

    def _pause_s(self, dpid: int, changed: bool | None, took_s: float) -> float:
        """When to check again what was checked in so many seconds."""
        times = self._check_times.setdefault(dpid, deque(maxlen=_CHECKS))
        times.append(took_s)
        if changed is None:
            return RETRY_S
        if changed:  # perhaps by somebody who is still at it
            return max(self._backend.check_s, self._most_pause_s(dpid))
        return max(self._backend.check_s, min(min(times) / _CHECK_SHARE, CHECK_S))

    def _most_pause_s(self, dpid: int) -> float:
        """How long a switch may be left alone that somebody else changes again and again."""
        return min(self._monitor.pause_s(dpid), CHECK_S)

    def _bring_up_to_date(self, dpid: int, changes: set[SwitchChange]) -> bool | None:
        """Compare a switch with what it should have after these changes, none for a check. Returns
        whether its rules had to be changed, None where it refused."""
        label = self._backend.label(dpid)
        if SwitchChange.CONNECTED in changes:
            self._monitor.came(dpid)
        try:
            there = dpid in self._backend.connected()
            # Before all else: what changes from now on makes another one of it.
            fingerprint = self._backend.fingerprint(dpid) if there else None
            with self._lock:
                plan = self._reconciler.plan()
            ours = (rule for rule in (*plan.routes, *plan.rules) if rule.dpid == dpid)
            self._monitor.set_problem(dpid, "others", self._backend.in_front(dpid, ours))
            with self._lock:
                if not self._may_change():
                    return False
                if not changes and self._reconciler.is_as_before(dpid, fingerprint):
                    return False
                fresh = bool(changes & _BACK)
                if fresh and self._started:
                    self._choose_meters()
                resync = self._reconciler.resync(dpid, fresh=fresh, fingerprint=fingerprint)
                lack = self._reconciler.lack(dpid)
        except Exception as error:  # the other switches are to be kept up to date all the same
            if not self._running:
                return None
            # One that has gone meanwhile is compared when it is back.
            if dpid in self._backend.connected():
                problem = f"is not up to date: {str(error).removeprefix(f'{label}: ')}"
                is_news = self._monitor.set_problem(dpid, "rules", problem)
                if is_news and not isinstance(error, AdonError):
                    LOG.warning("%s %s", label, problem, exc_info=True)
            with self._lock, suppress(Exception):  # where no plan can be made, that is reported
                self._monitor.set_problem(dpid, "table", self._reconciler.lack(dpid))
            if isinstance(error, MissingError):
                self._failure = error
            self._note_compared(dpid)
            return None
        self._monitor.set_problem(dpid, "rules", "")
        self._monitor.set_problem(dpid, "table", lack)
        if not changes & _BACK:
            self._report(dpid, resync)
        self._note_compared(dpid)
        return resync.changed

    def _note_compared(self, dpid: int) -> None:
        with self._progress:
            self._compared |= {dpid} & self._backend.connected()
            self._progress.notify_all()

    def _report(self, dpid: int, resync: Resync) -> None:
        """What was repaired on a switch; of one that loses it again and again, that it does."""
        if resync.missing:
            if not self._monitor.is_contested(dpid):
                LOG.warning("%s was repaired: %s", self._backend.label(dpid), resync)
            self._monitor.repaired(dpid, resync.missing)

    def _inspect_all(self, now: float) -> None:
        if self._inspect is not None and now >= self._inspect_at:
            try:
                problems = self._inspect(self._names)
            except Exception as error:
                LOG.info("how switches are configured is not known: %s", error)
                self._inspect_at = now + (RETRY_S if self._was_inspected else UNSAID_S)
            else:
                self._was_inspected = True
                took_s = time.monotonic() - now
                self._inspect_at = now + max(INSPECT_S, took_s / _CHECK_SHARE)
                for dpid in self._names:
                    self._monitor.set_problem(dpid, "configuration", problems.get(dpid, ""))

    def _check_devices(self) -> bool | None:
        """Have the devices of all switches do what they should; as :meth:`_bring_up_to_date`."""
        now, due = time.monotonic(), set()
        self._inspect_all(now)
        for dpid in self._backend.connected():
            if now >= self._devices_due.get(dpid, 0.0):
                due.add(dpid)
                self._devices_due[dpid] = now + self._most_pause_s(dpid)
        results: Mapping[int, Resync | Exception]
        try:
            with self._lock:
                if not self._may_change(devices=True):
                    return False
                results = self._reconciler.check_devices(due)
        except Exception as error:  # whatever tc or a database says, rules are kept up to date
            results = dict.fromkeys(due, error)
        failed = False
        for dpid, result in results.items():
            problem = f"is not up to date: {result}" if isinstance(result, Exception) else ""
            is_news = self._monitor.set_problem(dpid, "devices", problem)
            failed = failed or bool(problem)
            if isinstance(result, Resync):
                self._report(dpid, result)
            elif is_news and not isinstance(result, AdonError):
                LOG.warning("%s %s", self._backend.label(dpid), problem, exc_info=result)
        return (
            None if failed else any(isinstance(o, Resync) and o.changed for o in results.values())
        )


def _first_choice(topology: Topology, shaper: Shaper | None, bandwidth: str) -> str:
    """How rates are kept, as far as it can be told before the switches are asked."""
    methods = ("auto", *BANDWIDTH_METHODS)
    if bandwidth not in methods:
        raise InputError(
            f"controller: bandwidth is {bandwidth!r}, expected one of {', '.join(methods)}"
        )
    if bandwidth == "auto":
        devices = any(link.devices for link in topology.links)
        return "dscp-htb" if devices and shaper is not None else "none"
    if bandwidth in ("dscp-htb", "queue") and shaper is None:
        raise InputError(f"controller: bandwidth {bandwidth!r} needs a shaper of the devices")
    # What the switches cannot do shows when they have connected.
    return "none" if bandwidth == "meter" else bandwidth


def _all_events(events: SimpleQueue[SwitchEvent | None], until: float) -> list[SwitchEvent | None]:
    """All that has come in, waiting for the first; none where a monotonic second came before."""
    try:
        batch = [
            events.get(timeout=None if math.isinf(until) else max(0.0, until - time.monotonic()))
        ]
    except Empty:
        return []
    while not events.empty():
        batch.append(events.get())
    return batch


def _first_rules(plan: SwitchPlan, group: CircuitGroup) -> list[FlowRule]:
    """The rules at a group's first switch that count its bytes."""
    rules = plan.rules_of(group)
    return [rule for rule in rules if rule.hop == 0 and rule.protocol != "arp"]
