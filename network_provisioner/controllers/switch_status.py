"""How each switch is: connected or not, and what had to be repaired on it."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from network_provisioner.base.controller import SwitchStatus

# A switch that connects again within this was not away.
_AWAY_AFTER_S = 1.0
# So many repairs within so many seconds are somebody else's work, not an accident; so many
# connections are a fault of the line or of the switch.
_CONTESTED, _CONTESTED_S = 5, 60.0
# It is over when no repair was needed for longer than this, and than was usual between them.
_QUIET_S, _QUIET_GAPS = 2.0, 1.5
# Who undoes repairs for long is answered less and less often: after this share of the time so far.
_PAUSE_SHARE = 0.05


@dataclass
class _Switch:
    name: str
    label: str
    came: bool = False  # whether it was ever connected
    left_at: float | None = None  # monotonic second at which it was first seen to be away
    since: float = 0.0  # Unix second of that
    problems: dict[str, str] = field(default_factory=dict)  # why it is not as it should be
    contested_at: float | None = None  # since when somebody else undoes what is repaired
    repairs: Counter[str] = field(default_factory=Counter)
    repaired_at: deque[float] = field(default_factory=lambda: deque(maxlen=_CONTESTED))
    came_at: deque[float] = field(default_factory=lambda: deque(maxlen=_CONTESTED))


class SwitchMonitor:
    """The switches of one network. Thread-safe.

    ``names`` gives a name and a label by datapath id, ``connected`` the ids that can be reached,
    ``trouble`` what is wrong with a connection, "" for nothing, ``turned_away`` who else has
    come. ``clock`` gives Unix seconds, ``monotonic`` seconds that never jump.
    """

    def __init__(
        self,
        names: Mapping[int, tuple[str, str]],
        connected: Callable[[], set[int]],
        clock: Callable[[], float],
        trouble: Callable[[int], str] = lambda dpid: "",
        turned_away: Callable[[], str] = lambda: "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._switches = {dpid: _Switch(*names_of) for dpid, names_of in sorted(names.items())}
        self._connected = connected
        self._clock = clock
        self._trouble = trouble
        self._turned_away = turned_away
        self._monotonic = monotonic

    def statuses(self) -> list[SwitchStatus]:
        """All switches as they are now; asks none of them."""
        connected = self._connected()
        with self._lock:
            return [self._status(dpid, dpid in connected) for dpid in self._switches]

    def came(self, dpid: int) -> None:
        """A switch has connected."""
        with self._lock:
            self._switches[dpid].came_at.append(self._monotonic())

    def repaired(self, dpid: int, kinds: Mapping[str, int]) -> None:
        """These, by kind, were not on a switch as they should have been, and now are."""
        with self._lock:
            switch = self._switches[dpid]
            switch.repairs.update(kinds)
            switch.repaired_at.append(self._monotonic())

    def set_problem(self, dpid: int, kind: str, problem: str) -> bool:
        """Something of a kind is wrong with a switch; "" where nothing is. Whether that is news."""
        with self._lock:
            before = self._switches[dpid].problems
            changed = before.get(kind, "") != problem
            before[kind] = problem
        return changed

    def is_contested(self, dpid: int) -> bool:
        """Whether somebody else undoes what is repaired, again and again."""
        with self._lock:
            return dpid in self._switches and self._contested(self._switches[dpid])

    def pause_s(self, dpid: int) -> float:
        """How long to wait with the next repair: the longer, the longer a switch is contested; 0
        for one that is not."""
        with self._lock:
            switch = self._switches.get(dpid)
            if switch is None or not self._contested(switch) or switch.contested_at is None:
                return 0.0
            return _PAUSE_SHARE * (self._monotonic() - switch.contested_at)

    def _contested(self, switch: _Switch) -> bool:
        """From many repairs on, until none was needed for a while."""
        times = switch.repaired_at
        if self._is_quiet(times):
            switch.contested_at = None
        elif self._are_many(times) and switch.contested_at is None:
            switch.contested_at = times[0]
        return switch.contested_at is not None

    def _are_many(self, times: deque[float]) -> bool:
        """Whether so many came within so short a time, and may go on."""
        return (
            len(times) == _CONTESTED
            and times[-1] - times[0] < _CONTESTED_S
            and not self._is_quiet(times)
        )

    def _is_quiet(self, times: deque[float]) -> bool:
        if not times:
            return True
        gap_s = (times[-1] - times[0]) / (_CONTESTED - 1)
        return self._monotonic() - times[-1] >= max(_QUIET_S, _QUIET_GAPS * gap_s)

    def _status(self, dpid: int, connected: bool) -> SwitchStatus:
        switch, now = self._switches[dpid], self._monotonic()
        if connected:
            switch.came, switch.left_at = True, None
        elif switch.left_at is None:
            switch.left_at, switch.since = now, self._clock()
        trouble = self._trouble(dpid)
        away = switch.left_at is not None and (
            bool(trouble) or not switch.came or now - switch.left_at >= _AWAY_AFTER_S
        )
        problem = "; ".join(dict.fromkeys(filter(None, switch.problems.values())))
        if trouble:
            problem = trouble
        elif away:
            who = "" if switch.came else self._turned_away()
            problem = f"is not connected; {who}" if who else "is not connected"
        elif self._are_many(switch.came_at):
            problem = (
                f"connects again and again: {_CONTESTED} times within {_CONTESTED_S:.0f} s or less"
            )
        elif self._contested(switch) and not problem:
            problem = (
                f"is changed again and again: {_CONTESTED} repairs within "
                f"{_CONTESTED_S:.0f} s; is another controller, or a person, at work on it?"
            )
        since = switch.since if away else 0.0
        return SwitchStatus(
            switch.name, switch.label, not away, since, problem, dict(switch.repairs)
        )
