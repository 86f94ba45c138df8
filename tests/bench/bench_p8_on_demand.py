"""P8: runs on demand between 10,000 tasks, and what a bound on the sum of loads costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from monitors.schedule.bounds import bound
from monitors.schedule.checking import verify
from monitors.schedule.model import Agreement, Infeasible
from monitors.schedule.online import squeeze
from monitors.schedule.planning import attempt, plan
from monitors.schedule.room import make_room
from monitors.schedule.runs import schedule_of
from monitors.schedule.standing import Standing
from monitors.schedule.work import work_of
from tests.bench import Figure, Tell, bench
from tests.bench.bench_p8 import FREE, GOAL_AT, SEEDS, scaled
from tests.bench.meshes import measurements

DEMANDS = 120
FROZEN_MS, WITHIN_MS = 300_000, 600_000
"""How far ahead agents know their runs, and within which time a run on demand is to be over."""


@dataclass
class Waits:
    """Of runs on demand, in ms, and how many were refused."""

    ms: list[int]
    refused: int = 0

    def share(self) -> float:
        """Of those that were refused, in percent."""
        return 100 * self.refused / (self.refused + len(self.ms))

    def after_s(self, part: float) -> float:
        """Within which time that part of all begins; of those that were refused, never."""
        place = math.ceil(part * (self.refused + len(self.ms))) - 1
        return sorted(self.ms)[place] / 1000 if place < len(self.ms) else math.inf


@bench("P8")
def on_demand(tell: Tell) -> Iterable[Figure]:
    """How long a run on demand waits beside 10,000 tasks, and what it costs to find its place."""
    for load in (0.4, 0.7, 0.95):
        tasks = measurements("abilene", SEEDS[0], (0.25, 0.5, 1.0))
        tasks = scaled(tasks, load, bound(tasks, FREE).scale)
        whole = plan(tasks, FREE)
        rng, gaps, room = Random(1), Waits([]), Waits([])
        began = time.process_time()
        standing = Standing(whole, tasks, FREE)
        took_s, moves = [], []
        for number in range(DEMANDS):
            request = replace(rng.choice(tasks), name="now")
            now_ms = rng.randrange(whole.hyperperiod_ms)
            until_ms = now_ms + WITHIN_MS
            try:
                slot = squeeze(whole, tasks, FREE, request, now_ms, until_ms)
                gaps.ms.append(slot.start_ms - now_ms)
            except Infeasible:
                gaps.refused += 1
            began = time.process_time() if number else began  # the first time it is all looked up
            try:
                slot, moved = make_room(standing, request, now_ms, until_ms, now_ms + FROZEN_MS)
                room.ms.append(slot.start_ms - now_ms)
                moves.append(len(moved))
            except Infeasible:
                room.refused += 1
            took_s.append(time.process_time() - began)
        tell(
            f"{load:.0%}: median {room.after_s(0.5):.0f} s (gaps alone {gaps.after_s(0.5):.0f} s), "
            f"95 % within {room.after_s(0.95):.0f} s ({gaps.after_s(0.95):.0f} s), moved "
            f"{sum(moves) / len(moves):.1f} others each, at most {max(moves)}; found in "
            f"{max(took_s[1:]):.2f} s at most, the first time {took_s[0]:.2f} s"
        )
        yield Figure(
            f"runs on demand refused for 10 min at {load:.0%} of the bound", room.share(), "%",
            better="lower", peers={"gaps alone": gaps.share()},
        )  # fmt: skip
        yield Figure(
            f"time to find the place, {load:.0%} of the bound, longest of {DEMANDS}",
            max(took_s[1:]), "s", better="lower",
        )  # fmt: skip


SUMS = (("leaf-spine", 2.5e9), ("random", 2.5e9), ("leaf-spine", 4e9))
"""Networks, and what all links together may bear: less than their hosts and links would. With
4 Gb/s nothing else fits beside four runs of 1 Gb/s."""


@bench("P8")
def domain_loads(tell: Tell) -> Iterable[Figure]:
    """Where a bound on the sum of loads in a domain is what is scarcest."""
    slowest_s = 0.0
    for network, most in SUMS:
        tasks = measurements(network, SEEDS[0])
        links = frozenset(link for task in tasks for link in task.links)
        agreement = Agreement({}, {"all": links}, {"all": most})
        possible = bound(tasks, agreement)
        loaded = scaled(tasks, GOAL_AT, possible.scale)
        began = time.process_time()
        work = work_of(loaded, agreement)
        made = attempt(work)
        slowest_s = max(slowest_s, time.process_time() - began)
        tell(f"{network}: scarcest is {possible.why}; missed {len(made.missed)} of {work.runs}")
        wrong = verify(loaded, agreement, schedule_of(work, made.starts))
        if not made.missed and wrong:
            raise AssertionError(f"a schedule is not right: {wrong[0]}")
        yield Figure(
            f"deadlines missed at {GOAL_AT:.0%} of a bound, {most / 1e9:g} Gb/s in all, {network}",
            100 * len(made.missed) / work.runs, "%", better="lower", goal=0,
        )  # fmt: skip
    yield Figure("time to schedule with such a bound, longest", slowest_s, "s", better="lower")
