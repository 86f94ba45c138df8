"""Running transits whose paths got worse: moved, split, reduced or reported, as their templates'
``triggers`` say (thesis, Figure 6), and back again.

    checks of what arrived (promises), measurements of the path ─► worse than the trigger's limit
    for its time, at two looks or measurements at least, or by an anomaly ─► its action

Nobody is moved to and fro. A transit is left alone for :data:`PAUSE_S` after each action. The path
that it left is avoided for :data:`HOLD_S`, and twice as long each time that it disappoints again;
then the transit comes back to the path that it was granted, where that is better.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import ON_SWITCHES, Transit
from network_provisioner.base.units import format_rate
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.promise import BROKEN, KEPT, LESS, nodes_of
from network_provisioner.selection.push import Reroute
from network_provisioner.selection.transit import Metric
from network_provisioner.state.network_state import NetworkState
from network_provisioner.templates.template import METRICS, Template, Trigger
from network_provisioner.topology.graph import Hop
from network_provisioner.topology.link_failures import News
from network_provisioner.transits.lifecycle import Lifecycle
from network_provisioner.transits.modifications import Modifications
from network_provisioner.transits.promises import Promises

log = logging.getLogger(__name__)

PAUSE_S = 30.0  # a move costs a transfer a second or two
HOLD_S = 60.0
MOST_HOLD_S = 3600.0
LOOKS = 2  # at least, before anybody believes what they say
MORE = 1.25  # an avoided path is taken again for so much more than arrives here
_AT_ONCE = 64  # transits at one look
_SAME_S = 0.5  # two measurements are further apart

Nodes = tuple[str, ...]


@dataclass(slots=True)
class _Bad:
    """A path that gave ``bps``, avoided for ``hold_s`` until a Unix second."""

    until: float
    hold_s: float
    bps: float


@dataclass(eq=False)
class _Watched:
    """A transit that was granted ``home``, and is on ``path`` since a Unix second. ``worse``: when
    each metric was seen to be worse than it may be, as often in a row; ``acted_at``: when something
    was last done about it; ``reported``: the metrics that nothing can be done about;
    ``granted_bps``: its minimum before it was reduced, 0 for never."""

    home: Nodes = ()
    path: Nodes = ()
    since: float = 0.0
    worse: dict[str, list[float]] = field(default_factory=dict)
    bad: dict[Nodes, _Bad] = field(default_factory=dict)
    acted_at: float = 0.0
    reported: set[str] = field(default_factory=set)
    granted_bps: float = 0.0


@dataclass(eq=False)
class Reevaluation:
    """Not thread-safe: the broker holds its lock in every call. ``news`` is what nobody does
    anything about."""

    _state: NetworkState
    _admission: Admission
    _lifecycle: Lifecycle
    _modifications: Modifications
    _promises: Promises
    news: deque[News] = field(default_factory=deque)
    _watched: OrderedDict[str, _Watched] = field(default_factory=OrderedDict)  # the next first

    def follow(self, now: float) -> None:
        """Look at the transits whose turn it is."""
        live = self._state.active.all
        for name in self._watched.keys() - live.keys():
            del self._watched[name]
            self._state.avoided.pop(name, None)
        for name in live.keys() - self._watched.keys():
            self._watched[name] = _Watched()
        turns = list(islice(self._watched, _AT_ONCE))
        for name in turns:
            self._watched.move_to_end(name)
        for name in dict.fromkeys([*self._promises.suspects, *turns]):
            if name in live and live[name].state in ON_SWITCHES and live[name].request.min_bps > 0:
                self._look(live[name], self._watched[name], now)

    def _look(self, transit: Transit, watched: _Watched, now: float) -> None:
        template = self._state.active.template_of(transit)
        if template is None or transit.grant.parts:
            return
        path = tuple(transit.grant.path)
        watched.home = watched.home or path
        if path != watched.path:
            watched.path, watched.since, watched.worse = path, now, {}
        due = list(self._due(transit, template, watched, now))
        self._state.avoided[transit.id] = {p for p, bad in watched.bad.items() if now < bad.until}
        if 0 <= now - watched.acted_at < PAUSE_S:
            return
        for metric, trigger, why in due:
            self._act(transit, watched, metric, trigger, why, now)
            return
        if watched.home in watched.bad and now >= watched.bad[watched.home].until:
            self._return(transit, template, watched, now)

    # -- what is worse -------------------------------------------------------------------------

    def _due(
        self, transit: Transit, template: Template, watched: _Watched, now: float
    ) -> Iterator[tuple[str, Trigger, str]]:
        """The triggers that act now, and why."""
        measured = self._measured(transit, watched.path)
        for metric in METRICS:
            trigger = template.trigger(metric)
            if trigger.action == "ignore":
                continue
            known = measured.get(metric)
            if known is not None and known.age_s > template.max_age_s:
                known = None
            if metric == "throughput":
                at, worse, words = self._arrives(transit, known, trigger, now)
            else:
                at, worse, words = _beyond(metric, known, trigger, now)
            if worse is None or at < watched.since:
                continue
            if not worse:
                watched.worse.pop(metric, None)
                watched.reported.discard(metric)
                continue
            looks = watched.worse.setdefault(metric, [])
            if not looks or at - looks[-1] > _SAME_S:
                looks.append(at)
            change = None if known is None else known.worsening
            sure, begun = len(looks) >= LOOKS, looks[0]
            if change is not None and change.noticed >= watched.since:
                sure, begun = True, min(begun, change.since)
            if sure and now - begun >= trigger.for_s:
                yield metric, trigger, words

    def _arrives(
        self, transit: Transit, known: Metric | None, trigger: Trigger, now: float
    ) -> tuple[float, bool | None, str]:
        """Whether less arrives than it should, by the network's fault; None: nobody knows. Where
        its own bytes do not tell, what was measured of its path does if that is an anomaly."""
        check = self._promises.last_check(transit.id)
        if check.state not in (BROKEN, KEPT, LESS):
            if known is None or known.worsening is None or not _is_less(known, trigger, transit):
                return now, None, ""
            return known.worsening.noticed, True, _changed("throughput", known)
        limited = trigger.limit is None or check.arrived_bps < trigger.limit
        return now, check.state == BROKEN and limited, check.why

    def _measured(self, transit: Transit, path: Nodes) -> dict[str, Metric]:
        try:
            return dict(self._admission.measured(transit, path))
        except InputError:  # the topology has it no more
            return {}

    # -- what is done --------------------------------------------------------------------------

    def _act(
        self, transit: Transit, watched: _Watched, metric: str, trigger: Trigger, why: str,
        now: float,
    ) -> None:  # fmt: skip
        check = self._promises.last_check(transit.id)
        arrived_bps = check.arrived_bps if check.state == BROKEN else transit.request.min_bps
        path, done = watched.path, False
        # There is no limit that this path misses: the other one is to be better.
        unlimited = metric != "throughput" and trigger.limit is None
        if trigger.action == "move" and unlimited:
            best = self._admission.better(transit, now)
            done = best is not None and self._lifecycle.try_path(transit, best.path, why, now)
        elif trigger.action in ("move", "split"):
            # Away from the link that is to blame, else from the first that can be avoided.
            away = self._admission.separating(transit, nodes_of(check.link, path))
            moves: Sequence[Reroute] = ()
            if away is not None and trigger.action == "move":
                moves = self._move(transit, watched, away, arrived_bps, now)
            elif away is not None:
                ways = self._admission.divided(transit, {away: arrived_bps}, now)
                moves = [Reroute(transit.id, ways, away)] if ways else ()
            done = bool(moves) and self._lifecycle.try_move(moves, why, now)
        elif trigger.action == "reduce" and check.state == BROKEN:
            watched.granted_bps = watched.granted_bps or transit.request.min_bps
            done = self._rate(transit, arrived_bps, why, now)
        watched.acted_at = now  # what cannot be done now is tried again after the pause
        if done:
            self._avoid(transit, watched, path, arrived_bps, now)
        elif metric not in watched.reported:
            watched.reported.add(metric)
            if unlimited and trigger.action != "report":
                return  # whoever wants to know of anomalies was told
            news = News(f"transit {transit.id!r}", f"stays on its path: {why}", now)
            log.warning("%s", news)
            if not self._promises.is_reported(transit.id):
                self.news.append(news)

    def _avoid(
        self, transit: Transit, watched: _Watched, path: Nodes, bps: float, now: float
    ) -> None:
        before = watched.bad.get(path)
        hold_s = min(MOST_HOLD_S, 2 * before.hold_s) if before else HOLD_S
        watched.bad[path] = _Bad(now + hold_s, hold_s, bps)
        self._state.avoided.setdefault(transit.id, set()).add(path)

    def _move(
        self, transit: Transit, watched: _Watched, away: Hop, arrived_bps: float, now: float
    ) -> Sequence[Reroute]:
        """The moves that take it away from a link, to a path that was not found to give less; ()
        for none."""
        together = [transit, *self._state.active.pairs.mates(transit)]
        moves = self._admission.reroutes(together, away, now)
        own = next((move for move in moves if move.id == transit.id), None)
        bad = None if own is None else watched.bad.get(own.ways[0].path.nodes)
        avoided = bad is not None and now < bad.until and bad.bps < MORE * arrived_bps
        return () if avoided else moves

    def _rate(self, transit: Transit, min_bps: float, why: str, now: float) -> bool:
        try:
            self._modifications.rates(transit, min_bps, None, now, why)
        except BrokerError as error:
            log.info("transit %s keeps its rate: %s", transit.id, error)
            return False
        return True

    def _return(self, transit: Transit, template: Template, watched: _Watched, now: float) -> None:
        """To the path, and the rate, that it was granted, unless measurements of that path say that
        it is as bad as before."""
        watched.acted_at = now
        known = self._measured(transit, watched.home)
        for name, metric in known.items():
            trigger = template.trigger(name)
            if name == "throughput":
                if metric.worsening is not None and _is_less(metric, trigger, transit):
                    return
                continue
            limit = math.inf if trigger.limit is None else trigger.limit
            if metric.age_s <= PAUSE_S and metric.value > limit:
                return
        if watched.granted_bps > transit.request.min_bps:
            why = f"{format_rate(watched.granted_bps)} are tried again"
            self._rate(transit, watched.granted_bps, why, now)
        if watched.path == watched.home:
            return
        check = self._promises.last_check(transit.id)
        best = self._admission.better(transit, now)
        if best is not None and best.path.nodes == watched.home:
            if check.state == BROKEN:
                self._avoid(transit, watched, watched.path, check.arrived_bps, now)
            why = "the path it was granted is tried again"
            self._lifecycle.try_path(transit, best.path, why, now)


def _is_less(throughput: Metric, trigger: Trigger, transit: Transit) -> bool:
    return throughput.value < (trigger.limit or transit.request.min_bps)


def _changed(name: str, metric: Metric) -> str:
    before = "" if metric.worsening is None else f" after {metric.worsening.before:.3g}"
    return f"{name} is {metric.value:.3g}{before}, a change beyond noise"


def _beyond(
    name: str, metric: Metric | None, trigger: Trigger, now: float
) -> tuple[float, bool | None, str]:
    """When a metric was measured, whether it is beyond its limit (None: nobody knows), and that in
    words. Without a limit, whether an anomaly made it worse, and when that was noticed."""
    if metric is None:
        return now, None, ""
    if trigger.limit is None:
        noticed = now if metric.worsening is None else metric.worsening.noticed
        return noticed, metric.worsening is not None, _changed(name, metric)
    words = f"{name} is {metric.value:g}, at most {trigger.limit:g} allowed"
    return now - metric.age_s, metric.value > trigger.limit, words
