"""Circuits by an OpenDaylight that the switches are connected to, over RESTCONF.

Tried with OpenDaylight Potassium: RESTCONF 6.0.8, OpenFlowPlugin 0.17.3, with the feature
``odl-openflowplugin-flow-services``.

Two ways lead to a switch. Best-effort routes stay, so they go into the configuration datastore, and
OpenDaylight lays them again whenever a switch comes back, also while no broker runs. A circuit's
rules have a lease: they are handed to the switch by RPC, which tells the switch's own refusal,
keeps the counters of a rule whose lease is renewed, and leaves nothing that would bring a circuit
back after its end. (The datastore does all three otherwise: a changed rule is removed and added
anew, a refused one is accepted in silence, an ended one returns with its switch.)
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import Any

from network_provisioner.base.controller import ControllerError, Way
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.backend import (
    SwitchBackend,
    SwitchChange,
    SwitchEvent,
    misplaced_ports,
    port_devices,
    switch_names,
)
from network_provisioner.controllers.frames import udp_frames
from network_provisioner.controllers.match import OtherRule, in_front
from network_provisioner.controllers.opendaylight import model, requests
from network_provisioner.controllers.opendaylight.requests import (
    OpenDaylightReader,
    OpenDaylightWriter,
    Origin,
    SwitchRequest,
    run_wave,
)
from network_provisioner.controllers.restconf import Access, Restconf
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    EVERY_BIT,
    OURS,
    OWNER_MASK,
    OWNER_SHIFT,
    PROBE_COOKIE,
    PROBE_RULE_S,
    ROUTE_OWNER,
    Changes,
    FlowRule,
    SeenRule,
    TableEntry,
    item_text,
    same_but_lease,
)
from network_provisioner.controllers.segments import Segment
from network_provisioner.controllers.shaping.shapes import Shaper
from network_provisioner.controllers.switched import SwitchedController
from network_provisioner.topology.discovery import Discovered, End
from network_provisioner.topology.graph import Topology

LOG = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.1
_UNCONFIGURED_S = 36_000.0  # less than any rule without a lease has


class OpenDaylightController(SwitchedController):
    """A :class:`~network_provisioner.base.controller.Controller` that asks OpenDaylight.

    The topology's switches are known there as ``openflow:DPID``. ``shaper`` keeps the rates on the
    devices it reaches; see there for ``bandwidth``. Thread-safe.
    """

    def __init__(
        self,
        topology: Topology,
        access: Access,
        shaper: Shaper | None = None,
        *,
        bandwidth: str = "auto",
        watch: bool = False,
        clock: Callable[[], float] = time.time,
        poll_s: float = 1.0,
        settle_s: float = 10.0,
        discover_s: float = requests.DISCOVER_S,
        unused: Sequence[Shaper] = (),
    ) -> None:
        """Raises InputError like :class:`SwitchedController`, and for a ``bandwidth`` of meters,
        which OpenDaylight cannot change."""
        if bandwidth == "meter":
            raise InputError(
                "controller: bandwidth is 'meter', which cannot be kept by OpenDaylight: it has no "
                "way to change one; expected dscp-htb, queue or none"
            )
        self._switches = OpenDaylightSwitches(
            Restconf("OpenDaylight", access),
            switch_names(topology),
            clock,
            port_devices(topology),
            poll_s=poll_s,
            settle_s=settle_s,
            discover_s=discover_s,
        )
        super().__init__(
            "opendaylight",
            topology,
            self._switches,
            shaper,
            clock,
            bandwidth=bandwidth,
            watch=watch,
            unused=unused,
        )


class OpenDaylightSwitches(SwitchBackend):
    """A :class:`~network_provisioner.controllers.backend.SwitchBackend` behind OpenDaylight.

    Which switches are there is looked up every ``poll_s``; ``settle_s`` is how long a switch may
    take to show what it was told.
    """

    def __init__(
        self,
        rest: Restconf,
        names: Mapping[int, str],
        clock: Callable[[], float],
        devices: Mapping[End, str] = MappingProxyType({}),
        *,
        poll_s: float = 1.0,
        settle_s: float = 10.0,
        discover_s: float = requests.DISCOVER_S,
    ) -> None:
        super().__init__(names)
        self._rest = rest
        self._ask = OpenDaylightReader(rest)
        self._steps = OpenDaylightWriter(rest, self.label)
        self._clock = clock
        self._devices = devices
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._discover_s = discover_s
        self._there: dict[int, Origin] = {}
        self._unseen = ""  # why nobody knows which are there, in words
        # When the next lease on a switch ends; nobody tells.
        self._next_end: dict[int, float] = {}
        self._others: dict[int, list[OtherRule]] = {}  # rules that are not ours
        self._down: dict[End, str] = {}
        # Probes: their UDP ports, what was counted of them, and when to lay the rules again.
        self._udp_port = 49152 + secrets.randbelow(1 << 14)
        self._numbers: dict[Way, int] = {}
        self._came: dict[Way, int] = {}
        self._expect_again_at = 0.0
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    def open(self) -> None:
        """Asks once, so that a wrong address or password is told at once."""
        self._closing.clear()
        self._there, self._unseen = {}, ""
        self._next_end = {}
        self._look()
        self._watcher = threading.Thread(target=self._watch, name="adon-odl", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        self._closing.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        self._watcher = None

    def expectation(self) -> str:
        return f"to {self._rest.label}, expected the switches' controller to be set to it"

    def connected(self) -> set[int]:
        """While OpenDaylight does not answer: those that were there before."""
        return set(self._there)

    def trouble(self, dpid: int) -> str:
        return self._unseen

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """A refused route is taken out of the configuration again."""
        absent = sorted(changes.keys() - self._there.keys())
        if absent:
            raise ControllerError(f"{', '.join(map(self.label, absent))} is not connected")
        try:
            for wave in self._waves(changes.values(), now):
                run_wave(wave, self._steps.barrier)
            self._settle(changes)
        except ControllerError:
            self._withdraw(rule for change in changes.values() for rule in change.add)
            raise
        for dpid, change in changes.items():
            self._note_ends(dpid, change.add)

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        configured = self._ask.configured(dpid, cookie, mask)
        run_wave([self._steps.forget(dpid, name) for name in configured], self._steps.barrier)
        run_wave([self._steps.delete_by_cookie(dpid, cookie, mask)], self._steps.barrier)

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """A route that OpenDaylight's configuration has lost would not return
        with its switch, so it counts as one that ends some time."""
        seen: dict[int, list[SeenRule]] = {}
        odd: dict[int, set[int]] = {}
        for dpid in dpids:
            rules, odd[dpid] = self._ask.rules(dpid, cookie, mask, now)
            self._note_ends(dpid, [s.rule for s in rules])
            routes = {model.flow_id(s.rule) for s in rules if s.rule.owner == ROUTE_OWNER}
            if routes:
                under = ROUTE_OWNER << OWNER_SHIFT, OWNER_MASK
                routes -= set(self._ask.configured(dpid, *under))
            seen[dpid] = [
                SeenRule(replace(s.rule, expires_at=now + _UNCONFIGURED_S), s.bytes)
                if s.rule.owner == ROUTE_OWNER and model.flow_id(s.rule) in routes
                else s
                for s in rules
            ]
        return seen, odd

    def fingerprint(self, dpid: int) -> Hashable:
        ours, self._others[dpid] = self._ask.table(dpid)
        return hash((frozenset(ours), frozenset(self.read_entries({dpid})[dpid])))

    def in_front(self, dpid: int, rules: Iterable[FlowRule]) -> str:
        """As of the last fingerprint."""
        return in_front(self._others.get(dpid, ()), rules, model.match_fields)

    def port_bytes(self, dpids: set[int]) -> dict[int, dict[int, tuple[int, int]]]:
        return {dpid: self._ask.port_bytes(dpid) for dpid in dpids}

    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        return [
            rule
            for dpid, cookies in wanted.items()
            for rule in self._ask.rules_of(dpid, cookies, now)
        ]

    def read_entries(self, dpids: set[int]) -> dict[int, list[TableEntry]]:
        """What is in a group is not known, so who wants one writes it anew."""
        return {dpid: [*self._ask.groups(dpid)] for dpid in dpids}

    def can_meter(self, dpid: int) -> bool:
        """OpenDaylight's update of a meter is an addition, which switches refuse
        (METEREXISTS), and to delete one deletes its rules: a rate could not be changed."""
        return False

    def discover(self) -> Discovered:
        return requests.discover(self._rest, self._steps, self.connected(), self._discover_s)

    def check_ports(self, segments: Collection[Segment]) -> None:
        ports_by_switch = requests.ports_of(self._rest, self.connected())
        self._speeds = {
            (dpid, number): (port.speed_bps, port.most_bps)
            for dpid, ports in ports_by_switch.items()
            for number, port in ports.items()
        }
        self._down = {
            (dpid, number): f"port {number} of {self._names[dpid]} {port.trouble}"
            for dpid, ports in ports_by_switch.items()
            for number, port in ports.items()
            if port.trouble
        } | misplaced_ports(ports_by_switch, self._names, self._devices, segments)

    def lay_probe_rules_again(self, dpids: Collection[int]) -> Set[End]:
        self._expect_again_at = 0.0
        there = {dpid: self._ask.probes(dpid) for dpid in self.connected() & set(dpids)}
        return {
            way[1]
            for way, number in self._numbers.items()
            if way[1][0] in there and number not in there[way[1][0]]
        }

    def probe(self, segments: Collection[Segment]) -> None:
        """OpenDaylight gives back no packets, so each segment has a UDP port of
        its own, and its last switch counts what comes."""
        for segment in segments:
            self._numbers.setdefault(segment.way, 1024 + len(self._numbers))
        ports = {way: (number, self._udp_port) for way, number in self._numbers.items()}
        if time.monotonic() >= self._expect_again_at:
            self._expect_again_at = time.monotonic() + PROBE_RULE_S / 3
            rules = [
                self._steps.expect_probe(segment.way[1], kind, ports[segment.way])
                for segment in segments
                for kind in segment.eth_types
            ]
            run_wave(rules, self._steps.barrier)
        packets = [
            self._steps.send_packet(segment.way[0], frame)
            for segment in segments
            for frame in udp_frames(segment, *ports[segment.way], bytes(18))
        ]
        run_wave(packets, self._steps.barrier)

    def heard(self) -> set[Way]:
        switches = {way[1][0] for way in self._numbers} & self.connected()
        counts = {dpid: self._ask.probes(dpid) for dpid in switches}
        came = {
            way: counts[way[1][0]].get(number, 0)
            for way, number in self._numbers.items()
            if way[1][0] in switches
        }
        # A rule that was laid anew counts from 0.
        heard = {way for way, count in came.items() if count and count != self._came.get(way)}
        self._came |= came
        return heard

    def unwatch(self) -> None:
        for dpid in self.connected():
            self.delete_by_cookie(dpid, PROBE_COOKIE, EVERY_BIT)

    def dead_ends(self) -> dict[End, str]:
        return self._down

    # --- changing -----------------------------------------------------------------------------

    def _waves(self, changes: Iterable[Changes], now: float) -> list[list[SwitchRequest]]:
        """What may be asked for at once."""
        requests_for: dict[str, Callable[[Any], SwitchRequest]] = {
            "add": partial(self._steps.add, now=now),
            "delete": self._steps.delete,
            "add_entry": partial(self._steps.add_group, there=False),
            "change_entry": partial(self._steps.add_group, there=True),
            "delete_entry": self._steps.delete_group,
        }
        waves = reduce(or_, changes, Changes()).waves()
        return [[requests_for[verb](item) for verb, item in wave] for wave in waves]

    def _settle(self, changes: Mapping[int, Changes]) -> None:
        """Return when the switches show what they were told. Raises ControllerError."""
        end = time.monotonic() + self._settle_s
        left = dict(changes)
        while True:
            late = {dpid: self._missing(dpid, change) for dpid, change in left.items()}
            left = {dpid: left[dpid] for dpid, what in late.items() if what}
            if not left:
                return
            if time.monotonic() >= end or self._closing.wait(_LOOK_AGAIN_S):
                dpid = min(left)
                raise ControllerError(
                    f"{self.label(dpid)} did not do what {self._rest.label} accepted for "
                    f"{late[dpid]} within {self._settle_s:g} s"
                )

    def _missing(self, dpid: int, change: Changes) -> str:
        """What a switch should have and has not, or should not have; "" where all is well."""
        now = self._clock()
        seen, _ = self._ask.rules(dpid, OURS, ANY_OWNER_MASK, now)
        rules = {s.rule.key: s.rule for s in seen}
        for rule in change.add:
            installed = rules.get(rule.key)
            if rule.expires_at > now and (installed is None or not same_but_lease(installed, rule)):
                return item_text(rule)
        added = {rule.key for rule in change.add}
        for rule in change.delete:
            if rule.key in rules and rule.key not in added:
                return item_text(rule)
        wanted = {entry.key for entry in (*change.add_entries, *change.change_entries)}
        gone = {entry.key for entry in change.delete_entries}
        if wanted or gone:
            groups = {group.key for group in self._ask.groups(dpid)}
            if wanted - groups or gone & groups:
                return "a group"
        return ""

    def _note_ends(self, dpid: int, rules: Iterable[FlowRule]) -> None:
        """Look at the switch when the first of these leases has ended, too."""
        ends = (rule.expires_at for rule in rules)
        self._next_end[dpid] = min(self._next_end.get(dpid, math.inf), min(ends, default=math.inf))

    def _withdraw(self, rules: Iterable[FlowRule]) -> None:
        for rule in rules:
            if rule.owner == ROUTE_OWNER:
                try:
                    self._steps.forget(rule.dpid, model.flow_id(rule)).run()
                except ControllerError as error:
                    LOG.warning("a route stays configured: %s", error)

    # --- watching -----------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing.wait(self._poll_s):
            try:
                if self._unseen:
                    # Whatever happened meanwhile, nobody saw it.
                    self._there = {}
                self._look()
                self._unseen = ""
            except Exception as error:  # nobody else would notice that nobody watches
                if not self._unseen:
                    unknown = not isinstance(error, ControllerError)
                    LOG.warning("switches are out of sight: %s", error, exc_info=unknown)
                self._unseen = f"is out of sight: {error}"
            now = self._clock()
            for dpid in [d for d, end in self._next_end.items() if end <= now]:
                self._next_end[dpid] = math.inf
                self.events.put(SwitchEvent(dpid, SwitchChange.LEASE_ENDED))

    def _look(self) -> None:
        """Take in which switches are there; tell of new ones, and of those that came back."""
        origins = {d: origin for d, origin in self._ask.switches().items() if d in self._names}
        fresh = [dpid for dpid, origin in origins.items() if self._there.get(dpid) != origin]
        ready = [dpid for dpid in fresh if self._answers(dpid)]
        self._there = {d: o for d, o in origins.items() if d in ready or d not in fresh}
        if ready:
            self._expect_again_at = 0.0
        for dpid in ready:
            self.events.put(SwitchEvent(dpid, SwitchChange.CONNECTED))

    def _answers(self, dpid: int) -> bool:
        """Whether the switch can be asked already; at first OpenDaylight only knows of it."""
        try:
            self._ask.rules(dpid, 0, EVERY_BIT, self._clock())
        except ControllerError as error:
            LOG.info("%s is not ready: %s", self.label(dpid), error)
            return False
        return True
