"""The switches that a driver can reach, directly or through a controller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue

from network_provisioner.base.controller import Way
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import format_dpid
from network_provisioner.controllers.rules import (
    Changes,
    FlowRule,
    SeenRule,
    TableEntry,
)
from network_provisioner.controllers.segments import Segment
from network_provisioner.topology.discovery import Discovered, End, Port
from network_provisioner.topology.graph import Topology


class SwitchChange(Enum):
    """What can happen at a switch without our doing."""

    CONNECTED = "it has connected, for the first time or again"
    ANSWERS = "it answers again on the connection that it has"
    LEASE_ENDED = "the lease of a rule has ended"
    RULES_REMOVED = "somebody else has removed rules of ours"


@dataclass(frozen=True, slots=True)
class SwitchEvent:
    """What has happened at a switch."""

    dpid: int
    change: SwitchChange


class SwitchBackend(ABC):
    """OpenFlow switches by datapath id. What takes several of them is done on all at once.

    ``names`` gives the datapath ids that are expected, with the switches' names. ``events`` is what
    happened at them; whoever waits for it may put None in to end that. Every method but ``close``,
    ``label``, ``connected``, ``trouble``, ``turned_away``, ``blind``, ``late``, ``dead_ends`` and
    ``speeds`` may raise ControllerError.
    ``watch_s`` is how often it wants to :meth:`probe`, ``check_s`` how often to compare a switch
    with what it should have.
    """

    watch_s = 5.0
    check_s = 1.0

    is_fenced = False
    """Whether :meth:`lead` has an effect."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.events: SimpleQueue[SwitchEvent | None] = SimpleQueue()
        self._names = dict(names)
        self._speeds: dict[End, tuple[float, float]] = {}  # b/s, now and at most

    def label(self, dpid: int) -> str:
        """A switch as messages name it."""
        return f"switch {self._names.get(dpid, '?')} (dpid {format_dpid(dpid)})"

    @abstractmethod
    def open(self) -> None:
        """Start to reach for the switches."""

    def stand_by(self) -> None:  # noqa: B027  # some need nothing
        """Let switches come, and tell them nothing until :meth:`open`."""

    def lead(self, term: int) -> None:  # noqa: B027  # some have no way
        """Have the switches refuse what a broker says that led in an earlier term."""

    @abstractmethod
    def close(self) -> None:
        """Leave the switches alone from now on, and wait for threads to end."""

    @abstractmethod
    def expectation(self) -> str:
        """Where switches should have come to, and what to look at: the end of a message."""

    @abstractmethod
    def connected(self) -> set[int]:
        """The datapath ids of the switches that can be reached now."""

    def trouble(self, dpid: int) -> str:
        """What is wrong with a switch's connection, in words, "" for nothing; asks nobody."""
        return ""

    def turned_away(self) -> str:
        """Who has come lately and is not used, and why, "" for nobody; asks nobody."""
        return ""

    @abstractmethod
    def discover(self) -> Discovered:
        """The switches' ports, and how they are joined; takes seconds."""

    @abstractmethod
    def check_ports(self, segments: Collection[Segment]) -> None:
        """Look at the ports at both ends, for :meth:`dead_ends`; and prepare for probes."""

    @abstractmethod
    def lay_probe_rules_again(self, dpids: Collection[int]) -> Set[End]:
        """Let the next :meth:`check_ports` lay what probes need on these switches: none of them
        came through, and somebody may have removed it. Returns the ports where it is known to be
        missing."""

    def blind(self) -> Set[int]:
        """The switches where the last :meth:`check_ports` could not lay what probes need; asks
        nobody."""
        return frozenset()

    def late(self) -> Set[int]:
        """The switches that, at the last :meth:`check_ports`, had not done what it or the last
        :meth:`probe` asked of them; asks nobody."""
        return frozenset()

    @abstractmethod
    def probe(self, segments: Collection[Segment]) -> None:
        """Send a packet over each of these, whose switches are connected; from one that is
        :meth:`late`, perhaps not."""

    @abstractmethod
    def heard(self) -> set[Way]:
        """What probes have come through since the last call."""

    @abstractmethod
    def unwatch(self) -> None:
        """Take off the switches what was for probes."""

    @abstractmethod
    def dead_ends(self) -> Mapping[End, str]:
        """Ports that are down or missing, in words, as far as is known; asks nobody."""

    def speeds(self) -> Mapping[End, tuple[float, float]]:
        """How fast ports are, and how fast they could be, in b/s, as far as is known (0: it is
        not); asks nobody."""
        return self._speeds.copy()

    @abstractmethod
    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """Change rules, groups and meters; returns when all switches have confirmed.

        The error names the switch that refused, did not answer or is not connected; the others may
        have changed by then.
        """

    @abstractmethod
    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        """Delete every rule under a cookie mask."""

    @abstractmethod
    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """The rules under a cookie mask, and the cookies of odd ones: which we would not make."""

    @abstractmethod
    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        """The rules with exactly these cookies, by switch."""

    @abstractmethod
    def read_entries(self, dpids: set[int]) -> dict[int, list[TableEntry]]:
        """Our groups and meters."""

    @abstractmethod
    def fingerprint(self, dpid: int) -> Hashable:
        """A value that is another one when somebody has changed our rules, groups or meters."""

    def in_front(self, dpid: int, rules: Iterable[FlowRule]) -> str:
        """In words, that a rule of somebody else takes packets of these before they do, as far as
        is known; "" for none. Asks nobody."""
        return ""

    def free_entries(self, dpid: int) -> int | None:
        """How many rules more a switch's table has room for, None where nobody knows."""
        return None

    def queues(self, dpid: int) -> Set[tuple[int, int]]:
        """The queues that a switch says it has, by port and number; none where it does not say."""
        return frozenset()

    @abstractmethod
    def can_meter(self, dpid: int) -> bool:
        """Whether a switch has meters that drop, and whose rate can be changed."""

    @abstractmethod
    def port_bytes(self, dpids: set[int]) -> dict[int, dict[int, tuple[int, int]]]:
        """Bytes sent out of every port, and come in there."""


def port_devices(topology: Topology) -> dict[End, str]:
    """The names of ports, where the topology has them."""
    return {
        (topology.nodes[switch].dpid, (link.ports or {})[switch]): device
        for link in topology.whole_links
        for switch, device in (link.devices or {}).items()
        if switch in (link.ports or {})
    }


def misplaced_ports(
    ports_by_switch: Mapping[int, Mapping[int, Port]],
    names: Mapping[int, str],
    devices: Mapping[End, str],
    segments: Iterable[Segment],
) -> dict[End, str]:
    """What is wrong with the numbers of these switches' ports, in words, ``ports_by_switch`` by
    number as well: ends of segments that are not there, and devices that have another number.

    Numbers may be others after a switch was set up again. A name that no port has says nothing: the
    device may be behind the port.
    """
    wrong = {
        (dpid, number): f"port {number} of {names[dpid]} is not there"
        for segment in segments
        for dpid, number in segment.way
        if dpid in ports_by_switch and number not in ports_by_switch[dpid]
    }
    numbered = {
        (dpid, p.name): n for dpid, ports in ports_by_switch.items() for n, p in ports.items()
    }
    for (dpid, number), device in devices.items():
        if dpid in ports_by_switch and (there := numbered.get((dpid, device), number)) != number:
            port = ports_by_switch[dpid].get(number)
            wrong[dpid, number] = (
                f"port {number} of {names[dpid]} is {port.name if port else 'not there'}, and the "
                f"topology says {device}, which is port {there}"
            )
    return wrong


def switch_names(topology: Topology) -> dict[int, str]:
    """The switches' names by datapath id. Raises InputError for none, or without ids."""
    switches = [node for node in topology.nodes.values() if node.kind == "switch"]
    names = {node.dpid: node.name for node in switches}
    if not names or 0 in names or len(names) < len(switches):
        ids = ", ".join(format_dpid(node.dpid) for node in switches)
        raise InputError(
            f"topology: switches have the datapath ids {ids or 'none'}, "
            "expected at least one switch, and a dpid above 0 of its own for each"
        )
    return names
