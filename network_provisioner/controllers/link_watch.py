"""Links that fail: ports that are down or lead elsewhere, and segments that probes have stopped to
come through.

A probe is sent over every segment in every round. One that was heard over once, and of which the
last rounds brought nothing, is silent. What was never heard over may carry no probes: many
providers keep LLDP to themselves, and firewalls drop packets to ports that nobody uses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from functools import cached_property
from types import MappingProxyType

from network_provisioner.base.controller import ControllerError, Way
from network_provisioner.base.units import format_rate
from network_provisioner.controllers.backend import SwitchBackend
from network_provisioner.controllers.segments import Segment, failed_hops, segments
from network_provisioner.topology.discovery import End
from network_provisioner.topology.graph import Hop, Link, Topology

LOG = logging.getLogger(__name__)
_ROUNDS = 3
_DOUBTFUL = 2  # rounds without a probe after which it is looked at more closely
_FIRST_ROUNDS = 10  # who was not heard by then is not watched
_MEMORY = 6  # rounds over which bytes are counted
_FULL = 0.5  # of what a link carries: with so much on it, a probe may have found no room


class LinkWatch:
    """The links of one topology. One thread makes the rounds, any thread asks."""

    def __init__(self, topology: Topology, backend: SwitchBackend) -> None:
        self._topology = topology
        self._backend = backend
        self._link_at: dict[End, Link] = {
            (topology.nodes[name].dpid, number): link
            for link in topology.whole_links
            for name, number in (link.ports or {}).items()
        }
        self._lock = threading.Lock()
        self.known: frozenset[Way] = frozenset()
        """What a probe has come through once, or was expected to."""
        self._missed: dict[Way, int] = {}  # rounds, of those that can be probed now
        self._awaited: set[Way] = set()  # those of them that were not heard since they can be
        self._lateness: Counter[int] = Counter()  # rounds without what probes need, by switch
        self._unpunted: set[Way] = set()  # those whose last switch lacked the rules for probes
        self._carried: dict[Way, tuple[float, int, int]] = {}
        self._rounds, self._round_at = 0, 0.0
        self._silent_ways: set[Way] = set()
        self._silent: dict[Hop, str] = {}
        self._misled: dict[Way, End] = {}  # links whose probes come in at another port than theirs
        self._recalled: dict[Hop, str] = {}  # that had failed before a restart

    @cached_property
    def segments(self) -> dict[Way, Segment]:
        """All that are watched."""
        return {segment.way: segment for segment in segments(self._topology)}

    def expect(self, ways: Iterable[Way], failed: Mapping[Hop, str] = MappingProxyType({})) -> None:
        """Take these, as far as they are there, for such as a probe has come through; and directed
        links for ``failed``, for a reason, until one does, or until ports were looked at where none
        ever came through."""
        with self._lock:
            self.known |= self.segments.keys() & set(ways)
            self._recalled = {**self._recalled, **failed}

    @property
    def heard(self) -> set[Way]:
        """What probes come through, as of the last round."""
        awaited = self._awaited
        return {w for w, n in self._missed.copy().items() if n <= 1 and w not in awaited}

    def unheard(self) -> set[Hop]:
        """The directed links that no probe has come through, nor was expected to; those whose last
        switch lacked the rules for probes since one did; and those of a switch that goes on to
        refuse them."""
        late = {dpid for dpid, rounds in self._lateness.copy().items() if rounds > _ROUNDS}
        watched = {w for w in self.known if late.isdisjoint(end[0] for end in w)} - self._unpunted
        return self._hops(self.segments) - self._hops(watched)

    def _hops(self, ways: Iterable[Way]) -> set[Hop]:
        return {hop for way in ways for hop in self.segments[way].hops}

    def failed(self) -> dict[Hop, str]:
        """The directed links that carry nothing, and why."""
        failures = {**self._recalled, **self._silent}
        for (start, end), actual in self._misled.copy().items():
            # A hub passes a probe on to several ports, and the right one among them.
            if (start, end) not in self.known or self._missed.get((start, end), 0) > _DOUBTFUL:
                why = (
                    f"{self._port(start)} leads to {self._port(actual)}, and the topology says "
                    f"{self._port(end)}"
                )
                failures |= dict.fromkeys(self._link_at[start].hops, why)
        for end, why in dict(self._backend.dead_ends()).items():
            link = self._link_at.get(end)
            if link is not None:
                failures |= dict.fromkeys(link.hops, why)
        return failures

    def slow(self) -> dict[int, str]:
        """By switch, in words, the first port that does less than its link should, and could."""
        slow: dict[int, str] = {}
        for end, (bps, most_bps) in self._backend.speeds().items():
            link = self._link_at.get(end)
            if link is not None and 0 < bps < link.capacity_bps <= most_bps:
                is_now, should = format_rate(bps), format_rate(link.capacity_bps)
                slow.setdefault(end[0], f"has only {is_now} at port {end[1]}, expected {should}")
        return slow

    def _port(self, end: End) -> str:
        dpid, number = end
        name = next(node.name for node in self._topology.nodes.values() if node.dpid == dpid)
        return f"port {number} of {name}"

    def _take_in_misled(self, heard: Set[Way]) -> None:
        starts = {way[0]: way for way, segment in self.segments.items() if not segment.is_routed}
        misled = {starts[a]: b for a, b in heard - self.segments.keys() if a in starts}
        self._misled = {w: end for w, end in (self._misled | misled).items() if w not in heard}

    def observe(self) -> None:
        """One round. Raises ControllerError for a switch that does not answer; the others' links
        are watched."""
        # Where rounds come late the machine is busy, and probes are late as well.
        in_time = time.monotonic() - self._round_at < 2 * self._backend.watch_s
        try:
            self._look(in_time)
        finally:
            self._round_at = time.monotonic()

    def _look(self, in_time: bool) -> None:
        heard = self._backend.heard()
        self.expect(heard - self.known)
        self._take_in_misled(heard)
        self._missed |= dict.fromkeys(heard, 0)
        self._unpunted -= heard
        problem = None
        try:
            self._backend.check_ports(self.segments.values())
        except ControllerError as error:
            problem = error
        able = self._backend.connected() - self._backend.blind()
        dead = self._backend.dead_ends()
        probed = [
            segment
            for segment in self.segments.values()
            if {end[0] for end in segment.way} <= able and dead.keys().isdisjoint(segment.way)
        ]
        ways = self.known & {segment.way for segment in probed}
        self._awaited = (self._awaited - heard | ways - self._missed.keys()) & ways
        self._missed = {way: self._missed.get(way, 0) for way in ways}
        self._backend.probe(probed)
        late = self._backend.late()
        without = (late | self._backend.blind()) & self._backend.connected()
        self._lateness = Counter({dpid: self._lateness[dpid] + 1 for dpid in without})
        if in_time:
            self._missed = {
                way: missed + late.isdisjoint(end[0] for end in way)
                for way, missed in self._missed.items()
            }
        self._judge(late)
        if self._recalled:
            still = self._hops(self.known) - self._hops(self.heard)
            self._recalled = {hop: why for hop, why in self._recalled.items() if hop in still}
        self._rounds += 1
        if self._rounds == _FIRST_ROUNDS:
            for segment in probed:
                if segment.way not in self.known | self._misled.keys():
                    link, ends = (
                        self._link_at[segment.way[0]],
                        (segment.hops[0][0], segment.hops[-1][1]),
                    )
                    LOG.warning(
                        "no probe passes link %s from %s to %s: it is not watched",
                        link.label, *ends,
                    )  # fmt: skip
        if problem is not None:
            raise problem

    def _judge(self, late: Set[int]) -> None:
        """Which segments are silent, and not only full. Those of a switch that is ``late`` are as
        they were."""
        doubtful = {
            way: missed
            for way, missed in self._missed.items()
            if missed > 1 and late.isdisjoint(end[0] for end in way)
        }
        # Before a link is blamed, its last switch gets the rules for probes once more. Where they
        # were missing, nothing is known of it.
        last = {way[1][0] for way, missed in doubtful.items() if missed >= _DOUBTFUL}
        if last:
            missing = self._backend.lay_probe_rules_again(last)
            for way in [way for way in doubtful if way[1] in missing]:
                self._missed[way] = 0
                self._awaited.add(way)
                self._unpunted.add(way)
                del doubtful[way]
        counts = self._backend.port_bytes({end[0] for way in doubtful for end in way})
        now, heard = time.monotonic(), self.heard
        silent = {
            way
            for way in self._silent_ways
            if self._missed.get(way) and not late.isdisjoint(end[0] for end in way)
        }
        for (a, b), missed in doubtful.items():
            sent, came = counts[a[0]].get(a[1], (0, 0))[0], counts[b[0]].get(b[1], (0, 0))[1]
            at, sent_then, came_then = self._carried.setdefault((a, b), (now, sent, came))
            segment, seconds = self.segments[a, b], max(now - at, 1e-9)
            if seconds > _MEMORY * self._backend.watch_s:
                self._carried[a, b] = now, sent, came
            # Through routers there are others' bytes as well.
            alone = not any(way[1] == b for way in heard)
            is_full = (alone and 8 * (came - came_then) / seconds >= _FULL * segment.exit_bps) or (
                segment.is_routed and 8 * (sent - sent_then) / seconds >= _FULL * segment.entry_bps
            )
            if missed > _ROUNDS and not is_full:
                silent.add((a, b))
        self._carried = {way: at for way, at in self._carried.items() if way in doubtful}
        self._silent_ways = silent
        self._silent = failed_hops(self.segments.values(), silent, heard)
