"""Bandwidth up to what the disks take, and no further (Montage paper, §3.1 and §6).

    bytes that switches count ─► goodput of a period ─┐
    I/O wait that hosts report ───────────────────────┴─► knee ─► rates of the transit; others get
                                                                  the rest at once

Of each live transit whose template is ``io_aware`` periods are measured, and its rates follow the
:class:`~network_provisioner.selection.knee.KneeFinder`: the ceiling is where it says, the minimum
no higher. The terms that were asked for stay in ``transit.io``, and it comes back to them where
more bandwidth helps again. What the disk was found to take is remembered: later transfers of the
application begin with it, and site selection counts with it. Where no host says that its disk is
waited for, nothing is changed. No trial is below what was moved lately: a search for the knee must
not make the transfer slower.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import DiskKnee, IoRecord, Transit
from network_provisioner.base.units import BITS_PER_BYTE
from network_provisioner.selection.knee import HEADROOM, KneeFinder, Probe, knee_text
from network_provisioner.state.disks import ReportedDisks
from network_provisioner.state.network_state import NetworkState
from network_provisioner.templates.template import Template
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.modifications import Modifications

log = logging.getLogger(__name__)

READ, WRITE = "read", "write"
SETTLE_S = 0.5  # after a change of its rate
START_S = 2.0  # until TCP has found a rate, and disks cache no more of what they are given
PERIOD_S = 2.0
STEADY_S = 5.0  # a period where the knee is known
LAZY_S = 0.5  # between two counts there
DISK_WAITS = 0.5  # share of the time that processes waited for a disk that is the limit
FILLED = 0.95  # of what was provisioned: who moves less is held up by something else
_WATCHED = 32  # transits at once
_WORTH = 0.02  # a change of less is none
_LEAST = 0.02  # of what was asked for: no transit is brought below
_RECENT = 5  # periods, of which the best one is what the disks take at least
_CONFIRMED = 2  # periods that a disk limited, before the rates follow it: one may be a hiccup

DiskRateOf = Callable[[str, str, str], float | None]
"""What the disk of a site was found to take: site, READ or WRITE, application; b/s or None."""


@dataclass(eq=False)
class Meter:
    """Goodput of one transit by a counter that switches bring up to date only now and then: from
    one moment at which it moved to another, at one rate."""

    _rate_bps: float = 0.0
    _ready_at: float = 0.0
    _last: int = -1
    _since: tuple[int, float] | None = None

    def take(self, n_bytes: int, at: float, rate_bps: float, period_s: float) -> float | None:
        """Take in what was counted ``at`` a second, while ``rate_bps`` was provisioned; b/s where
        that ends a period."""
        if rate_bps != self._rate_bps or n_bytes < self._last:
            self._rate_bps, self._ready_at, self._since = rate_bps, at + SETTLE_S, None
        if self._last <= 0 < n_bytes:
            self._ready_at = at + START_S
        moved, self._last = n_bytes > self._last, n_bytes
        if not moved or at < self._ready_at:
            return None
        before, self._since = self._since, self._since or (n_bytes, at)
        if before is None or at - before[1] < period_s:
            return None
        self._since = (n_bytes, at)
        return (n_bytes - before[0]) * BITS_PER_BYTE / (at - before[1])


@dataclass(eq=False)
class _Followed:
    """A transit whose knee is looked for. ``rates`` are what it was last given here; ``disk`` is
    whose it is (site, READ or WRITE, I/O wait) where one was seen to be the limit, in so many
    periods (``limited``); ``recent`` has the last goodputs."""

    finder: KneeFinder
    rates: tuple[float, float]
    meter: Meter = field(default_factory=Meter)
    disk: tuple[str, str, float] | None = None
    limited: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    counted_at: float = -math.inf


@dataclass(eq=False)
class IoAware:
    """Not thread-safe but for :meth:`count`: the broker holds its lock in every other call."""

    _state: NetworkState
    _desired: DesiredState
    _modifications: Modifications
    _disks: ReportedDisks
    _rate_of: DiskRateOf
    _clock: Callable[[], float]
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _periods: deque[tuple[str, float, float]] = field(default_factory=deque)

    def begin(self, transit: Transit, template: Template) -> None:
        """Have a new transit ask for no more than the disks at its ends were found to take."""
        if not template.io_aware:
            return
        ends = (transit.request.src, READ), (transit.request.dst, WRITE)
        known = [self._rate_of(site, way, transit.request.application) for site, way in ends]
        knee_bps = min((bps for bps in known if bps), default=math.inf)
        if knee_bps * HEADROOM < transit.request.max_bps:
            transit.io = IoRecord(transit.request.min_bps, transit.request.max_bps, knee_bps)
            low, high = _lowered(transit.io, knee_bps * HEADROOM)
            transit.request = replace(transit.request, min_bps=low, max_bps=high, uncapped=False)

    @property
    def counts(self) -> bool:
        """Whether there is anything for :meth:`count` to do."""
        return bool(self._followed) and self._state.can.real_packets

    def count(self) -> bool:
        """Ask the switches what transits have carried; whether a period of any has ended, and
        :meth:`follow` is due. May be called while others change transits, but not by two."""
        for name, followed in list(self._followed.items()):
            transit = self._state.active.all.get(name)
            due = not followed.finder.sure or self._clock() >= followed.counted_at + LAZY_S
            if transit is not None and due:
                rate_bps = transit.grant.granted_bps
                n_bytes, at = self._desired.bytes_of(name), self._clock()
                followed.counted_at = at
                period_s = STEADY_S if followed.finder.sure else PERIOD_S
                goodput_bps = followed.meter.take(n_bytes, at, rate_bps, period_s)
                if goodput_bps is not None:
                    self._periods.append((name, rate_bps, goodput_bps))
        return bool(self._periods)

    def follow(self, now: float) -> None:
        """Take in the periods that have ended, and give transits the rates that follow from them.
        The queue is to be served then."""
        self._choose(now)
        while self._periods:
            name, rate_bps, goodput_bps = self._periods.popleft()
            followed, transit = self._followed.get(name), self._state.active.all.get(name)
            if followed is not None and transit is not None:
                self._take_in(transit, followed, rate_bps, goodput_bps, now)
                self._settle(transit, followed, now)

    def _choose(self, now: float) -> None:
        """Who is followed: those on the switches whose templates say so, and of whose disks
        somebody reports. An owner who changes the rates begins anew."""
        live = {t.id: t for t in self._state.active.on_switches() if self._is_aware(t, now)}
        for name in self._followed.keys() - live.keys():
            del self._followed[name]
        for name, transit in live.items():
            rates = transit.request.min_bps, transit.request.max_bps
            known = self._followed.get(name)
            if known is not None and known.rates != rates:
                transit.io = None
            elif known is not None or len(self._followed) >= _WATCHED:
                continue
            most_bps = transit.io.asked_max_bps if transit.io else transit.request.max_bps
            self._followed[name] = _Followed(KneeFinder(_LEAST * most_bps, most_bps), rates)

    def _is_aware(self, transit: Transit, now: float) -> bool:
        template = self._state.active.template_of(transit)
        if template is None or not template.io_aware or transit.request.min_bps <= 0:
            return False
        ends = (transit.request.src, transit.request.dst)
        return any(self._disks.io_wait(site, now) is not None for site in ends)

    def _take_in(
        self,
        transit: Transit,
        followed: _Followed,
        rate_bps: float,
        goodput_bps: float,
        now: float,
    ) -> None:
        """A period in which less was moved than could be teaches something only where a disk was
        waited for: else it may have been a pause between two files."""
        ends = (transit.request.src, READ), (transit.request.dst, WRITE)
        waits = [(self._disks.io_wait(site, now), site, way) for site, way in ends]
        known = [(io_wait, site, way) for io_wait, site, way in waits if io_wait is not None]
        io_wait, site, way = max(known, default=(None, "", ""))
        if goodput_bps < FILLED * rate_bps:
            if io_wait is None or io_wait < DISK_WAITS:
                return
            followed.disk = (site, way, io_wait)
            followed.limited += 1
        followed.recent.append(goodput_bps)
        followed.finder.add(Probe(rate_bps, goodput_bps, io_wait))

    def _settle(self, transit: Transit, followed: _Followed, now: float) -> None:
        """Give a transit the rates that its finder says."""
        finder, disk = followed.finder, followed.disk
        if followed.limited < _CONFIRMED and not transit.given_back_bps:
            return
        transit.io = transit.io or IoRecord(transit.request.min_bps, transit.request.max_bps)
        new = False  # a knee goes to the store with the rates that follow from it
        if finder.sure and finder.knee is not None and disk is not None:
            new = transit.io.knee is None
            site, way, io_wait = disk
            knee = DiskKnee(**asdict(finder.knee), site=site, way=way, io_wait=io_wait, at=now)
            transit.io = replace(transit.io, knee=knee)
        moved_bps = max(followed.recent, default=0.0)
        low, high = _lowered(transit.io, max(finder.next_bps, moved_bps * HEADROOM))
        if not new and abs(high - transit.request.max_bps) <= _WORTH * transit.request.max_bps:
            return
        why = knee_text(transit.io) if finder.sure else "to find out what the disks take"
        # Where others have the room that it gave back, it goes without a minimum so high.
        for least in dict.fromkeys((low, min(low, transit.request.min_bps))):
            try:
                self._modifications.rates(transit, least, high, now, why)
            except BrokerError as error:
                log.debug("transit %s: %s", transit.id, error)
                continue
            followed.rates = (transit.request.min_bps, transit.request.max_bps)
            return


def _lowered(io: IoRecord, limit_bps: float) -> tuple[float, float]:
    """Minimum and ceiling, b/s, no higher than a limit."""
    high = min(io.asked_max_bps, limit_bps)
    return min(io.asked_min_bps, high), high
