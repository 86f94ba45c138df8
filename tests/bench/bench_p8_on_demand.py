"""P8: runs on demand between 10,000 tasks, and what a bound on the sum of loads costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from monitors.measurements.load import bound
from monitors.measurements.schedule import plan, squeeze
from monitors.measurements.tasks import Agreement, Infeasible
from tests.bench import Figure, Tell, bench
from tests.bench.bench_p8 import FREE, GOAL_AT, SEEDS, scaled
from tests.bench.meshes import measurements
from tests.schedule_check import verify

DEMANDS = 120
WITHIN_MS = 600_000
"""Within which time a run on demand is to be over."""


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
    for load in (0.4, 0.6, 0.8):
        tasks = measurements("abilene", SEEDS[0], (0.25, 0.5, 1.0))
        tasks = scaled(tasks, load, bound(tasks, FREE).scale)
        whole = plan(tasks, FREE)
        rng, gaps, took_s = Random(1), Waits([]), []
        for _ in range(DEMANDS):
            request = replace(rng.choice(tasks), name="now")
            now_ms = rng.randrange(whole.hyperperiod_ms)
            began = time.process_time()
            try:
                slot = squeeze(whole, tasks, FREE, request, now_ms, now_ms + WITHIN_MS)
                gaps.ms.append(slot.start_ms - now_ms)
            except Infeasible:
                gaps.refused += 1
            took_s.append(time.process_time() - began)
        tell(
            f"{load:.0%}: median {gaps.after_s(0.5):.0f} s, 80 % within {gaps.after_s(0.8):.0f} s; "
            f"found in {max(took_s):.2f} s at most"
        )
        yield Figure(
            f"runs on demand refused for 10 min at {load:.0%} of the bound", gaps.share(), "%",
            better="lower",
        )  # fmt: skip
        yield Figure(
            f"time to find the place, {load:.0%} of the bound, longest of {DEMANDS}",
            max(took_s), "s", better="lower",
        )  # fmt: skip


SUMS = (("leaf-spine", 2.5e9), ("random", 2.5e9))
"""Networks, and what all links together may bear: less than their hosts and links would."""


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
        missed = 0
        try:
            made = plan(loaded, agreement)
            assert verify(loaded, agreement, made) == []
        except Infeasible as error:
            missed = len(error.tasks)
        slowest_s = max(slowest_s, time.process_time() - began)
        tell(f"{network}: scarcest is {possible.why}")
        yield Figure(
            f"tasks without room at {GOAL_AT:.0%} of {most / 1e9:g} Gb/s in all, {network}",
            100 * missed / len(loaded), "%", better="lower",
        )  # fmt: skip
    yield Figure("time to schedule with such a bound, longest", slowest_s, "s", better="lower")
