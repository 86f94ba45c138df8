"""How others make a pool larger and smaller, as policies of :mod:`tests.bench.pool_world`.

COBalD's controller is COBalD's own code. The rules of GlideinWMS and of access-provisioner were
written after their sources; neither can be run without what it talks to.
"""

from __future__ import annotations

import math
from collections import Counter

from cobald.controller.relative_supply import RelativeSupplyController
from cobald.interfaces import Pool

from tests.bench.pool_world import KINDS, Actions, Box, Kind, View

_BY_CORES = {kind.cores: kind for kind in KINDS}


def _kind(view: View) -> Kind:
    """The smallest machine in which any idle job fits."""
    jobs = (view.dags[number].cores[job] for number, job in view.idle)
    return _BY_CORES[max(jobs, default=1)]


class _CobaldPool(Pool):
    """Machines of one job each: those that are up are the supply. As TARDIS has it, what is
    demanded and not there is started, and what is above it is drained."""

    def __init__(self) -> None:
        self.up = self.used = 0
        self._demand = 1.0

    @property
    def supply(self) -> float:
        return float(self.up)

    @property
    def demand(self) -> float:
        return self._demand

    @demand.setter
    def demand(self, value: float) -> None:
        self._demand = value

    @property
    def utilisation(self) -> float:
        return self.used / self.up if self.up else 1.0

    @property
    def allocation(self) -> float:
        return self.utilisation


class Cobald:
    """Relative supply with its defaults: a tenth more while more than half is in use, a tenth less
    below. One machine at least is demanded while there is a job, and none when there is none: it
    would never begin with the first, and never end with the last."""

    turn_s, idle_s, hang_s = 5.0, None, 3600.0

    def __init__(self) -> None:
        self._pool = _CobaldPool()
        self._controller = RelativeSupplyController(self._pool, interval=self.turn_s)

    def turn(self, view: View) -> Actions:
        there = [box for box in view.boxes if box.draining is None]
        up = [box for box in there if box.up is not None]
        self._pool.up, self._pool.used = len(up), sum(bool(box.jobs) for box in up)
        self._controller.regulate(self.turn_s)
        wanted = max(1, math.ceil(self._pool.demand)) if view.idle or view.running else 0
        missing = wanted - len(there)
        surplus = sorted(there, key=lambda box: (box.up is not None, len(box.jobs)))
        drop = surplus[: max(0, -missing)]
        return Actions(
            [_kind(view)] * missing,
            drain=[box.name for box in drop if box.up is not None],
            delete=[box.name for box in drop if box.up is None],
        )


class GlideinWMS:
    """The frontend's loop of a minute: as many pilots are kept waiting as a third of the idle jobs
    beyond free slots, at least one, and no more in all than 1.15 for each job and one; a pilot
    ends after 20 idle minutes. A pilot is for one job here."""

    turn_s, idle_s, hang_s = 60.0, 1200.0, 3600.0

    def turn(self, view: View) -> Actions:
        up = [box for box in view.boxes if box.up is not None]
        waiting = len(view.boxes) - len(up)
        free = sum(not box.jobs for box in up)
        idle = max(0, len(view.idle) - free)
        if not idle:
            return Actions()
        keep_waiting = max(1, idle // 3)
        most = int((idle + len(view.running)) * 1.15 + 1)
        start = min(keep_waiting - waiting, most - len(view.boxes))
        return Actions([_kind(view)] * max(0, start))


class AccessProvisioner:
    """Each 30 s, for each owner with idle jobs of whom fewer than five run, a machine of two cores
    more, as long as he has fewer than ``most`` (its default is 1); one ends after 30 idle minutes,
    and is given up after two hours of building. Others' jobs may use it here."""

    turn_s, idle_s, hang_s = 30.0, 1800.0, 7200.0

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._owner: dict[str, str] = {}
        self._asked: list[str] = []

    def turn(self, view: View) -> Actions:
        for box, owner in zip(_new(view.boxes, self._owner), self._asked, strict=False):
            self._owner[box.name] = owner
        have = Counter(self._owner[box.name] for box in view.boxes if box.name in self._owner)
        user = {number: dag.user for number, dag in enumerate(view.dags)}
        runs = Counter(user[job[0]] for job in view.running)
        self._asked = [
            owner
            for owner in dict.fromkeys(user[job[0]] for job in view.idle)
            if runs[owner] < 5 and have[owner] < self._most
        ]
        return Actions([_BY_CORES[2]] * len(self._asked))


def _new(boxes: list[Box] | tuple[Box, ...], known: dict[str, str]) -> list[Box]:
    return [box for box in boxes if box.name not in known]
