"""P9: a pool that grows before the work arrives, in virtual time.

Machines of which one in ten does not boot, HTCondor's matching, DAGMan's pace: see
:mod:`tests.bench.pool_world`. Every policy has the same loads and the same luck. With ``make bench
ONLY=P9 TRACES=DIR`` the recorded workflows of a folder, and made-up ones; else made-up ones only.

Waiting beyond one boot is what a job waits beyond the boot time that 99 of 100 machines keep; jobs
whose machine failed to boot are left out. A reversal is a start after a stop of the same kind of
machine, with no level beginning from the stop until one boot after the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, geometric_mean
from time import process_time

from condor_plugins.pool.scaling import (
    Flavour,
    JobDemand,
    Limits,
    Machine,
    MachineState,
    RunningJob,
    plan,
)
from site_selector.evaluation.traces import read_folder
from tests.bench import Figure, Input, Tell, bench, percentile
from tests.bench.bench_p1 import digests
from tests.bench.pool_adon import Adon
from tests.bench.pool_loads import Case, cases
from tests.bench.pool_peers import AccessProvisioner, Cobald, GlideinWMS
from tests.bench.pool_world import CYCLE_S, Clairvoyant, Outcome, Policy, World, clairvoyant

OURS = "ADON"
POLICIES: Mapping[str, Callable[[Case], Policy]] = {
    OURS: Adon,
    "ADON, the queue alone": lambda case: Adon(case, ahead=False),
    "COBalD": lambda case: Cobald(),
    "GlideinWMS": lambda case: GlideinWMS(),
    "access-provisioner": lambda case: AccessProvisioner(),
}
_FAILING = "failing midway"


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy made of a case, and what can be made of it."""

    case: Case
    policy: str
    outcome: Outcome
    best: Clairvoyant

    @property
    def beyond_s(self) -> list[float]:
        """Each job's waiting beyond one boot."""
        return [max(0.0, wait - self.case.boot.long_s) for wait in self.outcome.waits]


def run(work: tuple[Case, str]) -> Row:
    """One case under one policy, in a process of its own."""
    case, name = work
    outcome = World(case.load, case.boot, case.seed).run(POLICIES[name](case))
    return Row(case, name, outcome, clairvoyant(case.load, case.boot))


@bench("P9")
def pool_size(tell: Tell) -> Iterable[Figure | Input]:
    """Machines, core-hours and waiting of all cases together."""
    folder = os.environ.get("TRACES", "")
    files = read_folder(Path(folder))[0] if folder else []
    yield from digests(files)
    recorded = [file.trace for file in files]
    loads = cases(recorded)
    work = [(case, name) for case in loads for name in POLICIES]
    tell(f"{len(loads)} cases, {len(recorded)} workflows recorded, {len(POLICIES)} policies")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        rows = list(pool.map(run, work))
    for family in dict.fromkeys(case.family for case in loads):
        of = [row for row in rows if row.case.family == family and row.policy == OURS]
        tell(f"{family}: {_line(of)}")
    by = {name: [row for row in rows if row.policy == name] for name in POLICIES}
    yield from figures(by)


def _line(rows: Sequence[Row]) -> str:
    never, machines = sum(r.outcome.never for r in rows), sum(r.outcome.machines for r in rows)
    return (
        f"{never} of {machines} never ran a job, idle {_idle(rows):.1f} % of used (clairvoyant "
        f"{_best_idle(rows):.1f} %), {_beyond(rows):.1f} cycles beyond a boot, cost / clairvoyant "
        f"{_cost(rows):.2f}"
    )


def figures(by: Mapping[str, Sequence[Row]]) -> Iterable[Figure]:
    """Ours beside the others'."""

    def figure(
        words: str,
        unit: str,
        of: Callable[[Sequence[Row]], float],
        goal: float | None = None,
        best: float | None = None,
    ) -> Figure:
        values = {name: of(rows) for name, rows in by.items()}
        ours = values.pop(OURS)
        if best is not None:
            values["clairvoyant"] = best
        return Figure(words, ours, unit, better="lower", goal=goal, peers=values)

    ours = by[OURS]
    yield figure("core-hours of machines that never ran a job, of those used", "%", _wasted, 1.0)
    yield figure("machines that never ran a job", "machines", _never)
    yield figure(
        "of these, in workflows that fail midway", "machines",
        lambda rows: _never([row for row in rows if row.case.family == _FAILING]),
    )  # fmt: skip
    yield figure("machines started", "machines", lambda rows: sum(r.outcome.machines for r in rows))
    yield figure("idle core-hours, of those used", "%", _idle, 3.0, _best_idle(ours))
    yield figure(
        "idle before a machine's first job and after its last, of those used", "%",
        lambda rows: 100 * sum(r.outcome.forced_s for r in rows) / _used(rows),
    )  # fmt: skip
    yield figure("waiting beyond one boot, 99th percentile", "cycles", _beyond, 1.0, 0.0)
    yield figure(
        "waiting of a job, mean", "s",
        lambda rows: fmean(wait for row in rows for wait in row.outcome.waits), None, 0.0,
    )  # fmt: skip
    yield figure(
        "reversals within a level", "starts", lambda rows: sum(r.outcome.reversals for r in rows), 0
    )
    yield figure(
        "cost / clairvoyant, geometric mean", "ratio",
        lambda rows: geometric_mean(r.outcome.cost_s / r.best.cost_s for r in rows), 1.10,
    )  # fmt: skip
    yield figure(
        "cost / clairvoyant, worst", "ratio",
        lambda rows: max(r.outcome.cost_s / r.best.cost_s for r in rows),
    )  # fmt: skip
    yield figure("cost / clairvoyant, of all together", "ratio", _cost)


def _never(rows: Sequence[Row]) -> float:
    return sum(row.outcome.never for row in rows)


def _wasted(rows: Sequence[Row]) -> float:
    return 100 * sum(row.outcome.wasted_s for row in rows) / _used(rows)


def _beyond(rows: Sequence[Row]) -> float:
    return percentile([s for row in rows for s in row.beyond_s], 0.99) / CYCLE_S


def _used(rows: Sequence[Row]) -> float:
    return sum(row.outcome.used_s for row in rows)


def _idle(rows: Sequence[Row]) -> float:
    return 100 * sum(row.outcome.idle_s for row in rows) / _used(rows)


def _best_idle(rows: Sequence[Row]) -> float:
    return 100 * sum(row.best.idle_s for row in rows) / sum(row.best.used_s for row in rows)


def _cost(rows: Sequence[Row]) -> float:
    return sum(row.outcome.cost_s for row in rows) / sum(row.best.cost_s for row in rows)


@bench("P9")
def decision_time(tell: Tell) -> Iterable[Figure]:
    """Processor time of one decision."""
    tell("made-up pools")
    kinds = [Flavour(f"c{n}", n, 4096 * n, n, 300, 60) for n in (1, 2, 4, 8)]
    for jobs in (1_000, 10_000):
        rng = Random(1)
        users = [rng.choice("abc") for _ in range(jobs)]
        machines = [
            Machine(
                f"m{i}", kinds[3], MachineState.RUNNING, 0.0,
                tuple(RunningJob(1, rng.uniform(0, 600), users[i]) for _ in range(8)),
            )
            for i in range(450)
        ]  # fmt: skip
        machines += [Machine(f"b{i}", kinds[0], MachineState.BOOTING, -60.0) for i in range(50)]
        demand = [
            JobDemand(1, 1 + (i % 5 == 0), 2000 * (i % 3), rng.uniform(-400, 400),
                      rng.expovariate(1 / 200), user)
            for i, user in enumerate(users)
        ]  # fmt: skip
        took = []
        for _ in range(5):
            began = process_time()
            plan(demand, machines, kinds, Limits(), 0.0)
            took.append(process_time() - began)
        yield Figure(
            f"a decision, {jobs:,} jobs and 500 machines, median", sorted(took)[2], "s", "lower"
        )
