"""Whether running transits get what they were promised, and an alarm where the network is at fault.

    bytes at each switch ─► count() ─┐
    connections at senders, disks ───┴─► follow(): judge the last seconds ─► kept, less, broken,
                                         unknown ─► transit.usage.kept, News of a broken promise

Every transit on one path with a rate of its own is judged; where a link of it takes no promises,
that counts for :mod:`~.reevaluation` alone. A transfer that has just begun, or has just moved, is
waited for.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from network_provisioner.base.controller import (
    Controller,
    CountsHops,
    LinkCounter,
    WatchesSwitches,
)
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import ON_SWITCHES, KeptPromise, Transit
from network_provisioner.base.units import bits
from network_provisioner.selection.promise import (
    BROKEN,
    UNKNOWN,
    PromiseCheck,
    Sample,
    judge,
    lossiest,
    where,
)
from network_provisioner.state.connections import ReportedSockets
from network_provisioner.state.disks import ReportedDisks
from network_provisioner.state.network_state import NetworkState
from network_provisioner.topology.graph import Hop
from network_provisioner.topology.link_failures import News
from network_provisioner.transits.desired_state import DesiredState
from network_provisioner.transits.repository import Repository

log = logging.getLogger(__name__)

PERIOD_S = 1.0  # from one look at a transit to the next, at least
WINDOW_S = 6.0  # that are judged together
START_S = 3.0  # until TCP has found the rate that it was given
FULL = 0.95  # of a link's capacity: it carries no more
FEW = 4  # looks in a row at which a promise is broken, before anybody believes it
WATCHED = 200  # transits at one look
_SKIPPED = 2000  # that are passed over at most to find so many

Count = tuple[float, Sequence[tuple[str, int]]]
"""A Unix second, and what the switches of a path had counted by then."""
_NOT_JUDGED = PromiseCheck(UNKNOWN)


@dataclass(eq=False)
class _Watched:
    """A transit whose promise is watched, on one path ``since`` a Unix second. ``counts``: of the
    last seconds, each with what was granted then, of which the least matters. ``broken``: looks in
    a row at which it was, ``counted_then`` at the first of them; ``news``: that it is, and on which
    path, None while it is not. ``check``: the last."""

    path: tuple[str, ...] = ()
    counts: deque[tuple[Count, float]] = field(default_factory=deque)
    looked_at: float = 0.0
    since: float = 0.0
    broken: int = 0
    counted_then: Count = (0.0, ())
    news: News | None = None
    news_path: tuple[str, ...] = ()
    check: PromiseCheck = _NOT_JUDGED


@dataclass(eq=False)
class Promises:
    """Not thread-safe but for :meth:`count`: the broker holds its lock in every other call."""

    _state: NetworkState
    _desired: DesiredState
    _repository: Repository
    _controller: Controller
    _sockets: ReportedSockets
    _disks: ReportedDisks
    _clock: Callable[[], float]
    _watched: OrderedDict[str, _Watched] = field(default_factory=OrderedDict)  # the next first
    suspects: dict[str, None] = field(default_factory=dict)
    """The transits that may get too little, and are looked at each second."""
    _repairs: dict[str, tuple[int, float]] = field(default_factory=dict)
    _carried: dict[Hop, LinkCounter] = field(default_factory=dict)
    _full: frozenset[Hop] = frozenset()
    news: deque[News] = field(default_factory=deque)

    def count(self) -> Mapping[str, Count]:
        """What switches have counted for transits whose turn it is. Asks the switches, and may be
        called while others change transits."""
        if not isinstance(self._controller, CountsHops) or not self._state.can.real_packets:
            return {}
        names = list(islice(self.suspects, WATCHED // 2))
        for name in list(islice(self._watched, _SKIPPED)):
            if len(names) == WATCHED:
                break
            self._watched.move_to_end(name)
            transit = self._state.active.all.get(name)
            if transit is not None and name not in self.suspects and _is_watched(transit):
                names.append(name)
        if not names:
            return {}
        self._count_links()
        try:
            counted = self._controller.hop_bytes(names)
        except AdonError:  # the change of a switch reports that
            counted = {}
        at = self._clock()
        return {name: (at, counted.get(name, ())) for name in names}

    def _count_links(self) -> None:
        """See which links carry no more, while somebody gets too little."""
        before, self._carried, self._full = self._carried, {}, frozenset()
        if not self.suspects:
            return
        with suppress(AdonError):
            self._carried = {(c.a, c.b): c for c in self._controller.counters()}
        self._full = frozenset(
            hop
            for hop, now in self._carried.items()
            if (then := before.get(hop)) is not None
            and now.at - then.at >= PERIOD_S / 2
            and bits(now.bytes - then.bytes) / (now.at - then.at)
            >= FULL * self._state.topology.link(*hop).capacity_bps
        )

    def follow(self, counted: Mapping[str, Count], now: float) -> None:
        """Take in what was counted, and say which promises are kept."""
        live = self._state.active.all
        for name in self._watched.keys() - live.keys():
            del self._watched[name]
            self.suspects.pop(name, None)
        for name in live.keys() - self._watched.keys():
            self._watched[name] = _Watched()
        repaired = self._repaired(now) if counted else frozenset()
        changed = []
        for name, last in counted.items():
            if name in live and _is_watched(live[name]):
                changed += self._look(live[name], self._watched[name], last, repaired)
            else:
                self.suspects.pop(name, None)
        self._repository.save(changed)

    def states(self) -> Counter[str]:
        """How many live transits are in each state."""
        live = list(self._state.active.all.values())  # others change it meanwhile
        on = [transit for transit in live if transit.state in ON_SWITCHES]
        return Counter(t.usage.kept.state for t in on if t.usage.kept is not None)

    @property
    def problem(self) -> str:
        """Which promises are broken, "" for none."""
        watched = list(self._watched.values())  # others change it meanwhile
        news = [each.news for each in watched if each.news]
        more = f", and {len(news) - 1} more" if len(news) > 1 else ""
        return f"{news[0]}{more}" if news else ""

    def last_check(self, transit_id: str) -> PromiseCheck:
        """The last on a transit."""
        return self._watched[transit_id].check if transit_id in self._watched else _NOT_JUDGED

    def is_reported(self, transit_id: str) -> bool:
        """Whether it is known already that a promise is broken."""
        return transit_id in self._watched and self._watched[transit_id].news is not None

    def _look(
        self, transit: Transit, watched: _Watched, last: Count, repaired: frozenset[str]
    ) -> list[Transit]:
        """Judge the last seconds of a transit; it, where that is to be written down."""
        at, counts = last
        seconds, watched.looked_at = at - (watched.looked_at or at), at
        path = tuple(transit.grant.path)
        window = watched.counts
        if path != watched.path or (window and _began_anew(window[-1][0], last)):
            watched.path, watched.since = path, at
        began = transit.grant.active_at or transit.grant.installed_at
        if at < max(watched.since, began) + START_S:
            window.clear()
        window.append((last, self._desired.guaranteed_bps(transit.id)))
        while len(window) > 2 and at - window[0][0][0] > WINDOW_S:
            window.popleft()
        if counts and at - window[0][0][0] < PERIOD_S:
            return []
        sample = self._sample(transit, watched, repaired)
        check = judge(sample)
        watched.broken = watched.broken + 1 if check.state == BROKEN else 0
        if watched.broken == 1 or _began_anew(watched.counted_then, last):
            watched.counted_then = last
        if watched.broken:
            link = check.link or self._suspect_link(sample, watched.counted_then, last)
            check = replace(check, why=f"{check.why}, {where(link, path)}", link=link)
        if 0 < watched.broken < FEW:  # it may be that the counters are older than usual
            check = replace(check, state=UNKNOWN)
        watched.check = check
        if watched.broken or (check.state == UNKNOWN and check.arrived_bps):
            self.suspects[transit.id] = None  # looked at each second
        else:
            self.suspects.pop(transit.id, None)
        if self._state.not_guaranteed(self._state.topology.path(path)):
            check = PromiseCheck(UNKNOWN, "a link of its path is not guaranteed")
            if transit.usage.kept is None:
                return []
        was = transit.usage.kept or KeptPromise()
        transit.usage.kept = _after(was, check, at, min(seconds, WINDOW_S))
        self._report(watched, transit, check, at)
        return [transit] if (was.state == BROKEN) != (check.state == BROKEN) else []

    def _suspect_link(self, sample: Sample, then: Count, now: Count) -> str:
        """The link that has lost bytes since the promise is broken, else the first that is full; ""
        where neither is known."""
        seconds = now[0] - then[0]
        counted = zip(then[1], now[1], strict=True)
        lost = tuple((name, after - before) for (_, before), (name, after) in counted)
        link = lossiest(replace(sample, seconds=seconds, counted=lost)) if seconds > 0 else ""
        full = ("-".join(hop) for hop in pairwise(sample.path) if hop in self._full)
        return link or next(full, "")

    def _sample(self, transit: Transit, watched: _Watched, repaired: frozenset[str]) -> Sample:
        request = transit.request
        (since, before), (until, after) = watched.counts[0][0], watched.counts[-1][0]
        others = (
            []
            if request.flows
            else [t for t in self._state.active.pairs.between(transit) if t.request.flows]
        )
        return Sample(
            until - since,
            min(granted_bps for _, granted_bps in watched.counts),
            watched.path,
            tuple((name, b - a) for (_, a), (name, b) in zip(before, after, strict=True)),
            self._sockets.sender(transit, since, until, others),
            (self._disks.io_wait(request.src, until), self._disks.io_wait(request.dst, until)),
            repaired,
        )

    def _repaired(self, now: float) -> frozenset[str]:
        """The switches that have a problem, or were repaired lately."""
        if not isinstance(self._controller, WatchesSwitches):
            return frozenset()
        suspects = set()
        for status in self._controller.switches():
            total = sum(status.repairs.values())
            known, at = self._repairs.get(status.name, (total, 0.0))
            if total != known:
                at = now
            self._repairs[status.name] = total, at
            if status.problem or now - at < 2 * WINDOW_S:
                suspects.add(status.name)
        return frozenset(suspects)

    def _report(self, watched: _Watched, transit: Transit, check: PromiseCheck, now: float) -> None:
        """That a promise is broken, once, and that it is not any more. On the same path a look that
        nothing is known of ends no alarm."""
        if check.state == BROKEN and watched.news is None:
            words = f"gets less than it was promised: {check.why}"
            watched.news_path = watched.path
            watched.news = news = News(f"transit {transit.id!r}", words, now, again="is served")
        elif (
            watched.news is not None
            and not watched.broken
            and (check.state != UNKNOWN or watched.path != watched.news_path)
        ):
            news, watched.news = replace(watched.news, at=now), None
        else:
            return
        log.warning("%s", news)
        self.news.append(news)


def _is_watched(transit: Transit) -> bool:
    alone = not transit.relayed and not transit.grant.parts
    return transit.state in ON_SWITCHES and alone and transit.request.min_bps > 0


def _began_anew(then: Count, now: Count) -> bool:
    """Whether other switches count, or a counter has begun anew, since the last look."""
    before, after = then[1], now[1]
    others = [name for name, _ in before] != [name for name, _ in after]
    return others or any(b < a for (_, a), (_, b) in zip(before, after, strict=True))


def _after(was: KeptPromise, check: PromiseCheck, at: float, seconds: float) -> KeptPromise:
    """With some seconds more in the state of a check."""
    name = f"{check.state}_s"
    since = was.since if was.state == check.state else at
    times = {name: getattr(was, name) + seconds}
    return replace(was, state=check.state, why=check.why, link=check.link, since=since, **times)
