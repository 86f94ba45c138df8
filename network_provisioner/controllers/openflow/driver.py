"""The embedded OpenFlow 1.3 controller: circuits on real switches.

It runs inside the broker's process, and the switches connect to it. Each change is confirmed by
barriers, and what the switches report tells when one has connected again or a rule has ended.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from network_provisioner.base.controller import ControllerError, Way
from network_provisioner.base.errors import printable
from network_provisioner.controllers import frames
from network_provisioner.controllers.backend import (
    SwitchChange,
    SwitchEvent,
    misplaced_ports,
    port_devices,
    switch_names,
)
from network_provisioner.controllers.match import OtherRule, in_front
from network_provisioner.controllers.openflow import wire
from network_provisioner.controllers.openflow.connections import (
    SILENT_AFTER_S,
    Connections,
    Message,
    Ticket,
    parse_listen,
)
from network_provisioner.controllers.rules import (
    EVERY_BIT,
    PROBE_COOKIE,
    PROBE_RULE_S,
    Changes,
    FlowRule,
    Key,
    Meter,
    SeenRule,
    TableEntry,
    is_our_cookie,
    is_probe_cookie,
    item_text,
)
from network_provisioner.controllers.segments import Segment
from network_provisioner.controllers.shaping.shapes import Shaper
from network_provisioner.controllers.switched import SwitchedController
from network_provisioner.topology.discovery import Discovered, End, Port, said_bps
from network_provisioner.topology.graph import Topology

LOG = logging.getLogger(__name__)
_WATCH_PRIORITY = 0xFFFE  # apart from a search's rule, which ends
_DISCOVER_S = 2.0  # how long frames are waited for
_SEARCH_RULE_S = 60  # the rules of a search end by themselves where nobody takes them off
# Frames of a search are sent so often: Open vSwitch confirms a new rule before its cache of flows
# knows it, and loses what comes in between.
TRIES = 4
_ROUNDED, _ROUNDED_KBPS = 0.05, 64  # by which a switch may have another rate than it was sent
_DROPS = wire.OFP.OFPPC_NO_RECV | wire.OFP.OFPPC_NO_FWD
_FEATURES = {  # with full duplex
    wire.OFP.OFPPF_1GB_FD: 1e9, wire.OFP.OFPPF_10GB_FD: 1e10, wire.OFP.OFPPF_40GB_FD: 4e10,
    wire.OFP.OFPPF_100GB_FD: 1e11, wire.OFP.OFPPF_1TB_FD: 1e12,
}  # fmt: skip
_Errors = Callable[[Any], bool]


class OpenFlowController(SwitchedController):
    """A :class:`~network_provisioner.base.controller.Controller` for OpenFlow 1.3 switches.

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
        silent_after_s: float = SILENT_AFTER_S,
        bandwidth: str = "auto",
        watch: bool = False,
        inspect: Callable[[Collection[int]], Mapping[int, str]] | None = None,
        unused: Sequence[Shaper] = (),
    ) -> None:
        """Raises InputError for a topology without switches, or one that lacks ports or MACs."""
        self._switches = OpenFlowSwitches(
            parse_listen(listen),
            switch_names(topology),
            reply_timeout_s,
            silent_after_s,
            port_devices(topology),
        )
        super().__init__(
            "openflow",
            topology,
            self._switches,
            shaper,
            clock,
            bandwidth=bandwidth,
            watch=watch,
            inspect=inspect,
            unused=unused,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, for a ``listen`` with port 0."""
        return self._switches.port


def _messages(changes: Changes, now: float) -> list[Message]:
    """What a switch is sent, in this order."""
    messages: dict[str, Callable[[Any], Any]] = {
        "add": partial(wire.add_rule, now=now),
        "delete": wire.delete_rule,
        "add_entry": partial(wire.add_entry, there=False),
        "change_entry": partial(wire.add_entry, there=True),
        "delete_entry": wire.delete_entry,
    }
    return [
        (messages[verb](item), item_text(item)) for wave in changes.waves() for verb, item in wave
    ]


class OpenFlowSwitches(Connections):
    """A :class:`~network_provisioner.controllers.backend.SwitchBackend` that the switches connect
    to. ``devices`` are the names of ports, as far as they are known."""

    watch_s = 0.3

    def __init__(
        self,
        address: tuple[str, int],
        names: Mapping[int, str],
        reply_timeout_s: float = 5.0,
        silent_after_s: float = SILENT_AFTER_S,
        devices: Mapping[End, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(address, names, reply_timeout_s, silent_after_s)
        self._devices = devices
        # Whether each switch has meters, as far as it was asked since it connected.
        self._meters: dict[int, bool] = {}
        # Meters as they were sent, and as the switch then has them: some round rates and bursts.
        self._meters_sent: dict[Key, tuple[Meter, Meter | None]] = {}
        # Rules that are being deleted, by switch, cookie and priority: their end is no news.
        self._deleting: Counter[tuple[int, int, int]] = Counter()
        self._listeners: list[Callable[[int, Any], None]] = []
        # Links that fail.
        self._number = os.urandom(6)
        self._unasked: set[int] = set()  # switches whose ports are to be looked at
        self._looks: dict[int, Ticket] = {}  # those that were asked
        self._probes: dict[int, Ticket] = {}
        self._late: set[int] = set()  # those that did not do what the last probes asked
        self._watched: dict[int, set[tuple[int, int]]] = {}  # port and type of probes that come in
        self._blind: set[int] = set()  # those where the rules for probes could not be laid
        self._others: dict[int, list[OtherRule]] = {}  # rules that are not ours
        self._down: dict[End, str] = {}
        self._misplaced: dict[End, str] = {}  # ports that have another's number
        # Nobody else guesses it, so that no host floods us.
        self._udp_port = 49152 + secrets.randbelow(1 << 14)
        self._heard: set[Way] = set()
        self._all_again_at = 0.0

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        with self._lock:
            self._deleting.update(
                (rule.dpid, rule.cookie, rule.priority)
                for change in changes.values()
                for rule in change.delete
            )
        self._tell({dpid: _messages(change, now) for dpid, change in changes.items()})
        for change in changes.values():
            for entry in (*change.add_entries, *change.change_entries):
                if isinstance(entry, Meter):
                    self._meters_sent[entry.key] = entry, None

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        self._tell({dpid: [(wire.delete_by_cookie(cookie, mask), "to delete")]})

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        seen: dict[int, list[SeenRule]] = {dpid: [] for dpid in dpids}
        odd: dict[int, set[int]] = {dpid: set() for dpid in dpids}
        for dpid, entries in self._ask(dpids, wire.flows_request(cookie, mask)).items():
            for entry in entries:
                rule = wire.read_rule(dpid, entry, now)
                if entry.cookie & mask != cookie & mask:
                    continue  # it answers what was not asked
                if rule is None:
                    odd[dpid].add(entry.cookie)
                else:
                    seen[dpid].append(rule)
        return seen, odd

    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        answers = self._tell(
            {
                dpid: [(wire.flows_request(cookie, EVERY_BIT), "a request") for cookie in cookies]
                for dpid, cookies in wanted.items()
            }
        )
        rules = [
            wire.read_rule(d, entry, now) for d, entries in answers.items() for entry in entries
        ]
        return [rule for rule in rules if rule is not None]

    def read_entries(self, dpids: set[int]) -> dict[int, list[TableEntry]]:
        groups = self._ask(dpids, wire.groups_request(), may_refuse=wire.is_of_unknown_request)
        metered = {dpid for dpid in dpids if self.can_meter(dpid)}
        meters = self._ask(metered, wire.meters_request())
        entries: dict[int, list[TableEntry]] = {}
        for dpid in dpids:
            read: list[TableEntry | None] = [wire.read_group(dpid, g) for g in groups[dpid]]
            read += [self._as_sent(wire.read_meter(dpid, m)) for m in meters.get(dpid, ())]
            entries[dpid] = [entry for entry in read if entry is not None]
        return entries

    def _as_sent(self, meter: Meter | None) -> Meter | None:
        """A meter as we sent it where the switch has what it first made of that."""
        sent, rounded = self._meters_sent.get(meter.key, (None, None)) if meter else (None, None)
        if meter is None or sent is None:
            return meter
        if (
            rounded is None
            and meter.burst_kbit
            and (
                abs(meter.rate_kbps - sent.rate_kbps)
                <= max(_ROUNDED * sent.rate_kbps, _ROUNDED_KBPS)
            )
        ):
            rounded = meter
            self._meters_sent[meter.key] = sent, rounded
        return sent if meter == rounded else meter

    def fingerprint(self, dpid: int) -> Hashable:
        """No rule is looked into: there may be thousands."""
        ours, others = [], []
        for entry in self._ask({dpid}, wire.flows_request(0, 0))[dpid]:
            if is_our_cookie(entry.cookie):
                ours.append(entry)
            elif not is_probe_cookie(entry.cookie) and not entry.table_id:
                others.append(OtherRule(entry.priority, entry.cookie, entry.contents))
        self._others[dpid] = others
        rules = frozenset((e.table_id, e.priority, e.cookie, e.contents) for e in ours)
        return hash((rules, frozenset(self.read_entries({dpid})[dpid])))

    def in_front(self, dpid: int, rules: Iterable[FlowRule]) -> str:
        """As of the last fingerprint."""
        return in_front(self._others.get(dpid, ()), rules, wire.read_match)

    def free_entries(self, dpid: int) -> int | None:
        """All of ours are in table 0."""
        sizes = dict(self._ask_softly(dpid, wire.table_features_request()))
        tables = self._ask_softly(dpid, wire.tables_request())
        active = {table.table_id: table.active_count for table in tables}
        return sizes[0] - active[0] if 0 in sizes and 0 in active else None

    def queues(self, dpid: int) -> Set[tuple[int, int]]:
        """A switch that knows no queues refuses the question."""
        answer = self._ask_softly(dpid, wire.queues_request())
        return {(queue.port_no, queue.queue_id) for queue in answer}

    def _ask_softly(self, dpid: int, question: Any) -> list[Any]:
        """What a switch answers to what it need not know: nothing where it refuses."""
        return self._ask({dpid}, question, may_refuse=lambda error: True)[dpid]

    def can_meter(self, dpid: int) -> bool:
        """A switch that knows no meters refuses the question."""
        with self._lock:
            known = self._meters.get(dpid)
        if known is None:
            answer = self._ask_softly(dpid, wire.meter_features_request())
            known = any(wire.can_meter(entry) for entry in answer)
            with self._lock:
                self._meters[dpid] = known
        return known

    def port_bytes(self, dpids: set[int]) -> dict[int, dict[int, tuple[int, int]]]:
        answers = self._ask(dpids, wire.ports_request()) if dpids else {}
        return {d: {p.port_no: (p.tx_bytes, p.rx_bytes) for p in ps} for d, ps in answers.items()}

    def discover(self) -> Discovered:
        """Sends a frame out of every port, and sees where it comes in.

        The rule that sends such frames here is on the switches for these seconds only.
        """
        number = os.urandom(6)
        dpids = self.connected()
        ports = {
            dpid: {p.port_no: _port(p) for p in descriptions if p.port_no <= wire.OFP.OFPP_MAX}
            for dpid, descriptions in self._ask(dpids, wire.port_descriptions_request()).items()
        }
        links: set[tuple[End, End]] = set()

        def heard(dpid: int, message: Any) -> None:
            sender = frames.sender(bytes(message.data), number)
            if sender is not None and sender[0] in ports:
                first, second = sorted((sender, (dpid, message.match["in_port"])))
                links.add((first, second))

        messages = {
            dpid: [
                (wire.packet_out(n, frames.lldp(dpid, n, number)), "a frame to find links by")
                for n, port in own.items()
                if port.up
            ]
            for dpid, own in ports.items()
        }
        with self._punting(dpids, heard, [(frames.LLDP, {})]):
            for _ in range(TRIES):
                self._tell(messages)
                time.sleep(_DISCOVER_S / TRIES)  # nobody says that no more will come
        return Discovered(ports, frozenset(links))

    @contextmanager
    def _punting(
        self,
        dpids: Collection[int],
        heard: Callable[[int, Any], None],
        matches: Sequence[tuple[int, Mapping[str, Any]]],
    ) -> Iterator[None]:
        """While it lasts, ``heard`` gets the packets that match from these switches."""
        cookie = PROBE_COOKIE | int.from_bytes(os.urandom(6), "big")
        rules = [
            (wire.punt(kind, cookie, _SEARCH_RULE_S, **match), "a rule to look around by")
            for kind, match in matches
        ]
        with self._lock:
            self._listeners.append(heard)
        try:
            self._tell({dpid: rules for dpid in dpids})
            yield
        finally:
            with self._lock:
                self._listeners.remove(heard)
            end = wire.delete_by_cookie(cookie, EVERY_BIT)
            self._tell({dpid: [(end, "the end of that rule")] for dpid in dpids})

    # -- links that fail -----------------------------------------------------------------------

    def check_ports(self, segments: Collection[Segment]) -> None:
        """Of switches that are new or report a change, and of all now and then."""
        connected = self.connected()
        with self._lock:
            if time.monotonic() >= self._all_again_at:
                self._unasked |= connected
                self._all_again_at = time.monotonic() + PROBE_RULE_S / 3
            fresh = self._unasked & connected - self._looks.keys()
            self._unasked -= fresh
        for dpid in fresh:
            self._looks[dpid] = self._ask_about_ports(dpid, segments)
        problems = []
        until = time.monotonic() + self.watch_s
        for dpid, ticket in list(self._looks.items()):
            wait_s = max(0.0, until - time.monotonic()) if dpid in fresh else 0.0
            if not ticket.is_done(wait_s):
                continue  # until a later round: the links of others do not wait for it
            del self._looks[dpid]
            try:
                self._take_in_ports(dpid, self._answers({dpid: ticket})[dpid], segments)
            except ControllerError as error:
                problems.append(str(error))
                with self._lock:
                    self._unasked.add(dpid)
                    self._blind.add(dpid)
            else:
                with self._lock:
                    self._blind.discard(dpid)
        self._late = set(self._looks)
        for dpid, ticket in list(self._probes.items()):
            if not ticket.is_done():
                self._late.add(dpid)
                continue
            del self._probes[dpid]
            try:
                self._answers({dpid: ticket})
            except ControllerError as error:
                problems.append(str(error))
                self._late.add(dpid)
        if problems:
            raise ControllerError("; ".join(problems))

    def blind(self) -> Set[int]:
        with self._lock:
            return set(self._blind)

    def late(self) -> Set[int]:
        return self._late

    def lay_probe_rules_again(self, dpids: Collection[int]) -> Set[End]:
        with self._lock:
            self._unasked.update(dpids)
        request = wire.flows_request(PROBE_COOKIE, EVERY_BIT)
        present = self._ask(self.connected() & set(dpids), request)
        return {
            (dpid, number)
            for dpid, entries in present.items()
            for number, kind in self._watched.get(dpid, set()) - set(map(wire.comes_in, entries))
        }

    def probe(self, segments: Collection[Segment]) -> None:
        """LLDP on links, UDP through routers."""
        messages: dict[int, list[Message]] = {}
        for segment in segments:
            dpid, port = segment.way[0]
            if segment.is_routed:
                payload = frames.probe(dpid, port, self._number)
                sent = frames.udp_frames(segment, self._udp_port, self._udp_port, payload)
            else:
                sent = [frames.lldp(dpid, port, self._number)]
            messages.setdefault(dpid, []).extend(
                (wire.packet_out(port, frame), "a frame to watch a link by") for frame in sent
            )
        for dpid, batch in messages.items():
            if dpid not in self._probes:
                self._probes[dpid] = self._submit(dpid, batch)

    def heard(self) -> set[Way]:
        with self._lock:
            heard, self._heard = self._heard, set()
        return heard

    def unwatch(self) -> None:
        end = wire.delete_by_cookie(PROBE_COOKIE, EVERY_BIT)
        self._tell({dpid: [(end, "the end of the rule to watch by")] for dpid in self.connected()})

    def dead_ends(self) -> dict[End, str]:
        return {**self._down, **self._misplaced}

    def _ask_about_ports(self, dpid: int, segments: Collection[Segment]) -> Ticket:
        """Have a switch say how its ports are, and send on the probes that come in there."""
        punt = partial(
            wire.punt, cookie=PROBE_COOKIE, seconds=PROBE_RULE_S, priority=_WATCH_PRIORITY
        )
        udp = {"ip_proto": 17, "udp_src": self._udp_port, "udp_dst": self._udp_port}
        rules = {}
        for segment in segments:
            last, number = segment.way[1]
            for kind in segment.eth_types if segment.is_routed else (frames.LLDP,):
                if last == dpid:
                    rules[number, kind] = punt(
                        kind, in_port=number, **udp if segment.is_routed else {}
                    )
        self._watched[dpid] = set(rules)
        messages = [(rule, "the rule to watch by") for rule in rules.values()]
        messages.append((wire.barrier(), "a barrier"))
        return self._submit(dpid, messages, wire.port_descriptions_request())

    def _take_in_ports(
        self, dpid: int, descriptions: list[Any], segments: Collection[Segment]
    ) -> None:
        with self._lock:
            if dpid in self._unasked:
                return  # something has changed since, and it is asked again
            for port in descriptions:
                self._note_port(dpid, port)
        ports = {dpid: {port.port_no: _port(port) for port in descriptions}}
        others = {end: why for end, why in self._misplaced.items() if end[0] != dpid}
        self._misplaced = others | misplaced_ports(ports, self._names, self._devices, segments)

    def _note_port(self, dpid: int, description: Any, gone: bool = False) -> None:
        end = (dpid, description.port_no)
        port = _port(description)
        trouble = "is down" if gone else port.trouble
        self._speeds[end] = (0.0, 0.0) if gone else (port.speed_bps, port.most_bps)
        if not trouble or description.port_no > wire.OFP.OFPP_MAX:
            self._down.pop(end, None)
        else:
            self._down[end] = f"port {description.port_no} of {self._names[dpid]} {trouble}"

    def _tell(self, messages: Mapping[int, Sequence[Message]]) -> dict[int, list[Any]]:
        """Have several switches do these; what each answers, when all have done everything."""
        return self._answers({dpid: self._submit(dpid, it) for dpid, it in messages.items()})

    def _ask(
        self, dpids: set[int], question: Any, *, may_refuse: _Errors = lambda error: False
    ) -> dict[int, list[Any]]:
        """What several switches answer to one question; nothing of those that refuse it by an error
        that they may have."""
        return self._answers({d: self._submit(d, [], question) for d in dpids}, may_refuse)

    def _answers(
        self, tickets: Mapping[int, Ticket], may_refuse: _Errors = lambda error: False
    ) -> dict[int, list[Any]]:
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            refusals = [it for it in self._wait(dpid, ticket, problems) if not may_refuse(it[1])]
            for position, error in refusals[-1:]:  # the first may be the stamp, which says less
                what = ticket.labels[position]
                more = f", and {len(refusals) - 1} more" if refusals[1:] else ""
                why = wire.error_text(error)
                problems.append(f"{self.label(dpid)} refused {what}{more}: {why}")
        if problems:
            raise ControllerError("; ".join(problems))
        return {
            dpid: [e for reply in ticket.replies if hasattr(reply, "body") for e in reply.body]
            for dpid, ticket in tickets.items()
        }

    def _greet(self, dpid: int, change: SwitchChange = SwitchChange.CONNECTED) -> None:
        with self._lock:
            self._meters.pop(dpid, None)
            self._unasked.add(dpid)
            for key in [key for key in self._deleting if key[0] == dpid]:
                del self._deleting[key]
        self.events.put(SwitchEvent(dpid, change))

    def _hear(self, dpid: int, message: Any) -> None:
        if isinstance(message, wire.PARSER.OFPFlowRemoved):
            self._rule_removed(dpid, message)
        elif isinstance(message, wire.PARSER.OFPPortStatus):
            with self._lock:
                self._note_port(dpid, message.desc, message.reason == wire.OFP.OFPPR_DELETE)
                self._unasked.add(dpid)
        elif isinstance(message, wire.PARSER.OFPPacketIn):
            sender = frames.sender(bytes(message.data), self._number)
            with self._lock:
                listeners = list(self._listeners)
                if sender is not None:
                    self._heard.add((sender, (dpid, message.match["in_port"])))
            for heard in listeners:
                heard(dpid, message)
        elif isinstance(message, wire.PARSER.OFPErrorMsg):
            LOG.warning("%s: %s", self.label(dpid), wire.error_text(message))

    def _rule_removed(self, dpid: int, message: Any) -> None:
        """A rule has gone: its lease ended, we deleted it, or somebody else did."""
        if message.reason == wire.OFP.OFPRR_HARD_TIMEOUT:
            if message.cookie != PROBE_COOKIE:
                self.events.put(SwitchEvent(dpid, SwitchChange.LEASE_ENDED))
            return
        key = (dpid, message.cookie, message.priority)
        with self._lock:
            if message.cookie == PROBE_COOKIE:
                self._unasked.add(dpid)
            if self._deleting[key] > 0:
                self._deleting[key] -= 1
                if not self._deleting[key]:
                    del self._deleting[key]
                return
        self.events.put(SwitchEvent(dpid, SwitchChange.RULES_REMOVED))


def _port(description: Any) -> Port:
    name = printable(bytes(description.name).split(b"\0")[0].decode("ascii", "replace"))
    drops = bool(description.config & _DROPS)
    down = (
        description.config & wire.OFP.OFPPC_PORT_DOWN
        or description.state & wire.OFP.OFPPS_LINK_DOWN
    )
    return Port(
        name,
        not down and not drops,
        _bps(description.curr_speed, description.curr),
        _bps(description.max_speed, description.supported),
        drops and not down,
    )


def _bps(kbps: int, features: int) -> float:
    """A port's speed; some switches only say it by a bit of its features."""
    speeds = (bps for bit, bps in _FEATURES.items() if features & bit)
    return said_bps(1000.0 * kbps) or max(speeds, default=0.0)
