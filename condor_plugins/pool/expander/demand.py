"""What is wanted of the pool, each job once: by the queue, by DAGs that run, by leases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import classad2

from condor_plugins.pool.expander.observation import View
from condor_plugins.pool.fitness import Waiting
from condor_plugins.pool.leases import Lease
from condor_plugins.pool.queue import (
    VANILLA,
    JobKey,
    JobRequest,
    asks_alike,
    dag_key,
    job_key,
    number,
    runs,
    waits_for_a_slot,
)
from condor_plugins.pool.scaling import (
    GIVEN_UP,
    JobDemand,
    Machine,
    MachineState,
    expected_arrivals,
)
from monitors.workflows.planned.forecast import forecast

_WINDOW_S = 900.0  # of submissions that nothing announced
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_MOST_WHOLE = 10_000  # ads that are remembered


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """``counts`` are jobs by where they are known from; ``waiting`` has one of each kind of those
    that wait in a queue."""

    jobs: list[JobDemand]
    counts: Mapping[str, int]
    waiting: Sequence[Waiting] = ()


class Demands:
    """What is wanted at each look. Who came without announcement is remembered for a while.

    :param whole: reads the whole ad of a job of the queue, None if it is gone.
    :param run_s: the estimate for a job outside of DAGs, in seconds.
    """

    def __init__(
        self,
        whole: Callable[[classad2.ClassAd], classad2.ClassAd | None],
        run_s: Callable[[classad2.ClassAd], float],
    ) -> None:
        self._read, self._run_s = whole, run_s
        self._whole: dict[object, classad2.ClassAd] = {}
        self._came: dict[JobKey, JobDemand] = {}

    def at(self, view: View, leases: Iterable[Lease]) -> PoolDemand:
        """Raises AdonError if a job cannot be read."""
        now = view.now
        boot_s = max((flavour.boot_s for flavour in view.flavours), default=0.0)
        spread_s = max((flavour.boot_spread_s for flavour in view.flavours), default=0.0)
        until = now + 2 * boot_s + GIVEN_UP * spread_s
        followed = {(dag.schedd, dag.cluster) for dag in view.dags}
        vanilla = [job for job in view.jobs if job.get("JobUniverse") == VANILLA]
        wanted = self._unannounced([job for job in vanilla if dag_key(job) not in followed], view)
        nodes = {
            (*dag_key(job), str(job.get("DAGNodeName"))): job
            for job in vanilla
            if dag_key(job) in followed
        }
        soon: Counter[str] = Counter()  # jobs of each workflow that run, or will within a boot
        for dag in view.dags:
            soon[dag.workflow] += len(dag.state.running)
        free = [at for machine in view.machines for at in _free(machine, now)]
        for coming in forecast([dag.state for dag in view.dags], free, boot_s, now, until):
            dag = view.dags[coming.dag]
            node = nodes.get((dag.schedd, dag.cluster, coming.name))
            if node is None:
                request = dag.request(coming.name)
                job_request = view.matching.of(request, id(request))  # jobs alike have one
            elif waits_for_a_slot(node):
                job_request = self._asked(node, view)
            else:
                continue
            soon[dag.workflow] += coming.ready_at <= now + boot_s
            demand = _demand(job_request, coming.ready_at, coming.run_s, dag.user)
            wanted.append(replace(demand, ready_spread_s=coming.spread_s))
        leased = list(_leased(view, leases, soon, len(wanted)))
        queued = sum(demand.ready_at <= now for demand in wanted)
        counts = {
            "queued": queued,
            "coming": len(wanted) - queued,
            "leased": sum(demand.count for demand in leased),
        }
        more = expected_arrivals(self._came.values(), now, _WINDOW_S, until)
        return PoolDemand([*wanted, *leased, *more], counts, self._waiting(vanilla, view))

    def _waiting(self, jobs: Iterable[classad2.ClassAd], view: View) -> list[Waiting]:
        kinds = {asks_alike(job): job for job in jobs if waits_for_a_slot(job)}
        requests = [self._asked(job, view) for job in kinds.values()]
        ads = [self._whole[alike] for alike in kinds]
        return [Waiting(ad, request.only) for ad, request in zip(ads, requests, strict=True)]

    def _unannounced(self, jobs: Iterable[classad2.ClassAd], view: View) -> list[JobDemand]:
        """Those that wait and belong to no DAG that is followed."""
        earliest = view.now - _WINDOW_S
        self._came = {key: d for key, d in self._came.items() if d.ready_at > earliest}
        wanted = []
        for job in jobs:
            # An access point's clock may be ahead of ours.
            since = min(number(job, "QDate") or view.now, view.now)
            waits = waits_for_a_slot(job)
            if waits or since > earliest:
                request = self._asked(job, view)
                demand = _demand(request, since, self._run_s(job), str(job.get("User")))
                wanted += [demand] * waits
                if since > earliest:
                    self._came[job_key(job)] = demand
        return wanted

    def _asked(self, job: classad2.ClassAd, view: View) -> JobRequest:
        """What a job of the queue asks for. Of those that ask alike, one is read as a whole."""
        alike = asks_alike(job)
        if alike not in self._whole:
            if len(self._whole) >= _MOST_WHOLE:
                self._whole.clear()
            self._whole[alike] = self._read(job) or job
        return view.matching.of(self._whole[alike], alike)


def _demand(request: JobRequest, ready_at: float, run_s: float, whose: str) -> JobDemand:
    return JobDemand(1, request.cores, request.memory_mb, ready_at, run_s, whose, only=request.only)


def _leased(
    view: View, leases: Iterable[Lease], soon: Mapping[str, int], waiting: int
) -> Iterator[JobDemand]:
    """What leases want beyond the jobs there are: of the workflow whose provisioning job asked, or
    of all. What a workflow asked for is over when it is no more in the queue, also where its
    releasing job never ran."""
    workflows = {job.get("pegasus_wf_uuid") for job in view.jobs} | soon.keys()
    everybodys = sum(runs(job) for job in view.jobs) + waiting
    for lease in leases:
        whose = lease.name.partition(":")[0]
        more = lease.slots - soon.get(whose, everybodys)
        if more > 0 and (whose in workflows or not _UUID.match(whose)):
            left_s = lease.until - view.now
            yield JobDemand(more, lease.cores, lease.memory_mb, view.now, left_s, lease.name)


def _free(machine: Machine, now: float) -> list[float]:
    """When each core is free."""
    if machine.state is MachineState.BOOTING:
        return [machine.since + machine.flavour.boot_s] * machine.flavour.cores
    busy = [job.end for job in machine.jobs for _ in range(job.cores)]
    return busy + [now] * (machine.flavour.cores - len(busy))
