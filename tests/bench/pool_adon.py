"""ADON's decision as a policy of :mod:`tests.bench.pool_world`: the daemon's own code, told
what the daemon could know.

Run times are believed by transformation: the mean of other workflows counts as ``PRIOR`` jobs, and
each job that has ended as one. Boot times are believed with an error of up to a tenth.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

from condor_plugins.pool import scaling
from condor_plugins.pool.scaling import (
    GIVEN_UP,
    Flavour,
    JobDemand,
    Limits,
    Machine,
    MachineState,
    expected_arrivals,
    plan,
)
from monitors.workflows.planned.dag import Node, PlannedDag
from monitors.workflows.planned.forecast import (
    DagState,
    RunningJob,
    estimated_run_s,
    expected_ends,
    forecast,
)
from tests.bench.pool_loads import Case
from tests.bench.pool_world import KINDS, TURN_S, Actions, Box, Dag, JobId, View

PRIOR = 3
WINDOW_S = 900.0


class Adon:
    """Plans and does what it planned; without ``ahead`` it knows only the queue."""

    turn_s, idle_s, hang_s = TURN_S, None, float("inf")

    def __init__(self, case: Case, limits: Limits | None = None, ahead: bool = True) -> None:
        rng = Random(case.seed)
        boot_s = case.boot.mean_s * rng.uniform(0.9, 1.1)
        spread_s = case.boot.spread_s * rng.uniform(0.9, 1.1)
        self._flavours = {
            kind.name: Flavour(kind.name, kind.cores, kind.memory_mb, kind.price, boot_s, spread_s)
            for kind in KINDS
        }
        self._kinds = {kind.name: kind for kind in KINDS}
        self._limits, self._ahead = limits or Limits(), ahead
        self._boot_s, self._spread_s = boot_s, spread_s
        self._believed = case.load.believed_s
        self._seen: defaultdict[str, float] = defaultdict(float)
        self._ran: Counter[str] = Counter()
        self._over: list[set[str]] = []
        self._planned: list[PlannedDag] = []
        self._known = 0
        self._takes_s: dict[str, float] = {}
        self._ends: dict[JobId, float] = {}

    def turn(self, view: View) -> Actions:
        self._learn(view)
        machines = [self._machine(box, view) for box in view.boxes]
        decision = plan(
            self._demand(view, machines),
            machines,
            list(self._flavours.values()),
            self._limits,
            view.now,
        )
        start = [self._kinds[name] for name, count in decision.start.items() for _ in range(count)]
        return Actions(start, decision.drain, decision.keep, decision.give_up)

    # -- what is known ---------------------------------------------------------------------------

    def _learn(self, view: View) -> None:
        for dag in view.dags[len(self._planned) :]:
            self._planned.append(_planned(dag))
            self._over.append(set())
        # Jobs come into this mapping as they end.
        for job in list(view.ended)[self._known :]:
            kind = view.dags[job[0]].kinds[job[1]]
            self._seen[kind] += view.ended[job]
            self._ran[kind] += 1
            if job not in view.failed:
                self._over[job[0]].add(str(job[1]))
        self._known = len(view.ended)
        ran_s: defaultdict[str, list[float]] = defaultdict(list)
        for job, began in view.running.items():
            ran_s[view.dags[job[0]].kinds[job[1]]].append(view.now - began)
        self._takes_s = {
            kind: estimated_run_s(prior_s, PRIOR, self._ran[kind], self._seen[kind], ran_s[kind])
            for kind, prior_s in self._believed.items()
        }
        running = {job: view.dags[job[0]].kinds[job[1]] for job in view.running}
        self._ends = expected_ends(
            {
                job: RunningJob(kind, self._takes_s[kind], view.running[job])
                for job, kind in running.items()
            },
            view.now,
        )

    def _machine(self, box: Box, view: View) -> Machine:
        state = MachineState.RUNNING if box.draining is None else MachineState.DRAINING
        if box.up is None:
            state = MachineState.BOOTING
        jobs = [
            scaling.RunningJob(
                view.dags[job[0]].cores[job[1]], self._ends[job], view.dags[job[0]].user
            )
            for job in box.jobs
        ]
        since = box.asked if box.up is None else box.up
        return Machine(box.name, self._flavours[box.kind.name], state, since, tuple(jobs))

    # -- what is wanted --------------------------------------------------------------------------

    def _demand(self, view: View, machines: list[Machine]) -> list[JobDemand]:
        until = view.now + 2 * self._boot_s + GIVEN_UP * self._spread_s
        states = [
            self._state(number, dag, view) for number, dag in enumerate(view.dags) if dag.known
        ]
        numbers = [number for number, dag in enumerate(view.dags) if dag.known]
        free = [at for machine in machines for at in self._free(machine)]
        coming = forecast(states, free, self._boot_s, view.now, until)
        demand = [
            JobDemand(
                1,
                job.cores,
                0,
                job.ready_at,
                job.run_s,
                view.dags[numbers[job.dag]].user,
                ready_spread_s=job.spread_s,
            )
            for job in coming
            if self._ahead or job.ready_at <= view.now
        ]
        for (number, index), since in view.idle.items():
            dag = view.dags[number]
            if not dag.known:
                run_s = self._takes_s[dag.kinds[index]]
                demand.append(JobDemand(1, dag.cores[index], 0, since, run_s, dag.user))
        # What came into the queue by itself; HTCondor's history has those that are over.
        past = [
            JobDemand(1, dag.cores[i], 0, dag.at, self._takes_s[kind], dag.user)
            for dag in view.dags
            if not dag.known and dag.at > view.now - WINDOW_S
            for i, kind in enumerate(dag.kinds)
        ]
        return demand + expected_arrivals(past, view.now, WINDOW_S, until)

    def _free(self, machine: Machine) -> list[float]:
        if machine.state is MachineState.BOOTING:
            return [machine.since + self._boot_s] * machine.flavour.cores
        busy = [job.end for job in machine.jobs for _ in range(job.cores)]
        return busy + [machine.since] * (machine.flavour.cores - len(busy))

    def _state(self, number: int, dag: Dag, view: View) -> DagState:
        return DagState(
            self._planned[number],
            {str(i): self._takes_s[kind] for i, kind in enumerate(dag.kinds)},
            {str(job[1]): since for job, since in view.idle.items() if job[0] == number},
            {str(job[1]): self._ends[job] for job in view.running if job[0] == number},
            self._over[number],
            {str(job[1]) for job in view.failed if job[0] == number},
            {str(i): cores for i, cores in enumerate(dag.cores) if cores > 1},
        )


def _planned(dag: Dag) -> PlannedDag:
    nodes = {
        str(i): Node(str(i), transformation=kind, parents=tuple(map(str, dag.parents[i])))
        for i, kind in enumerate(dag.kinds)
    }
    return PlannedDag("", Path(), nodes)
