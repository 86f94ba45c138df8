"""What is wanted of the pool, each job once: by the queue, by DAGs that run, by leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import classad2

from condor_plugins.pool.dags import FollowedDag
from condor_plugins.pool.expander.look import View
from condor_plugins.pool.leases import Lease
from condor_plugins.pool.queue import (
    VANILLA,
    JobRequest,
    Matching,
    asks_alike,
    dag_key,
    runs,
    seconds,
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
_MOST_WHOLE = 10_000  # ads that are remembered


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """``counts`` are jobs by where they are known from."""

    jobs: list[JobDemand]
    counts: Mapping[str, int]


class Requests:
    """What jobs ask for. Of jobs of the queue that ask alike, one is read as a whole.

    :param whole: reads the whole ad of a job, None where it is gone.
    """

    def __init__(self, whole: Callable[[classad2.ClassAd], classad2.ClassAd | None]) -> None:
        self._read = whole
        self._whole: dict[object, classad2.ClassAd] = {}

    def of(self, job: classad2.ClassAd, matching: Matching) -> JobRequest:
        """Of a job of the queue. Raises AdonError."""
        alike = asks_alike(job)
        if alike not in self._whole:
            if len(self._whole) >= _MOST_WHOLE:
                self._whole.clear()
            self._whole[alike] = self._read(job) or job
        return matching.of(self._whole[alike], alike)


def demand(
    view: View,
    leases: Iterable[Lease],
    requests: Requests,
    run_s: Callable[[classad2.ClassAd], float],
) -> PoolDemand:
    """``run_s`` is believed of a job outside of DAGs. Raises AdonError."""
    now = view.now
    boot_s = max((flavour.boot_s for flavour in view.flavours), default=0.0)
    spread_s = max((flavour.boot_spread_s for flavour in view.flavours), default=0.0)
    until = now + 2 * boot_s + GIVEN_UP * spread_s
    followed = {(dag.schedd, dag.cluster) for dag in view.dags}
    nodes: dict[tuple[str, int, str], classad2.ClassAd] = {}
    wanted: list[JobDemand] = []
    past: list[JobDemand] = []
    for job in view.jobs:
        if job.get("JobUniverse") != VANILLA:
            continue
        if dag_key(job) in followed:
            nodes[(*dag_key(job), str(job.get("DAGNodeName")))] = job
            continue
        since = seconds(job, "QDate") or now
        waits, recent = waits_for_a_slot(job), since > now - _WINDOW_S
        if waits or recent:
            asked = requests.of(job, view.matching)
            found = JobDemand(
                1, asked.cores, asked.memory_mb, since, run_s(job), str(job.get("User")),
                only=asked.only,
            )  # fmt: skip
            wanted += [found] * waits
            past += [found] * recent
    soon: Counter[str] = Counter()  # jobs of each workflow within a boot
    free = [at for machine in view.machines for at in _free(machine, now)]
    for coming in forecast([dag.state for dag in view.dags], free, boot_s, now, until):
        dag = view.dags[coming.dag]
        node = nodes.get((dag.schedd, dag.cluster, coming.name))
        if node is not None and not waits_for_a_slot(node):
            continue
        asked = (
            _announced(dag, coming.name, view) if node is None else requests.of(node, view.matching)
        )
        soon[dag.workflow] += coming.ready_at <= now + boot_s
        wanted.append(
            JobDemand(
                1, asked.cores, asked.memory_mb, coming.ready_at, coming.run_s, dag.user,
                ready_spread_s=coming.spread_s, only=asked.only,
            )
        )  # fmt: skip
    for dag in view.dags:
        soon[dag.workflow] += len(dag.state.running)
    everybodys = sum(runs(job) for job in view.jobs) + len(wanted)
    leased = [
        JobDemand(more, lease.cores, lease.memory_mb, now, lease.until - now, lease.name)
        for lease in leases
        if (more := lease.slots - soon.get(lease.name.partition(":")[0], everybodys)) > 0
    ]
    queued = sum(found.ready_at <= now for found in wanted)
    counts = {
        "queued": queued,
        "coming": len(wanted) - queued,
        "leased": sum(found.count for found in leased),
    }
    return PoolDemand([*wanted, *leased, *expected_arrivals(past, now, _WINDOW_S, until)], counts)


def _announced(dag: FollowedDag, name: str, view: View) -> JobRequest:
    """What a job will ask for that is not in the queue yet."""
    ad = dag.request(name)
    words = ("Requirements", "RequestCpus", "RequestMemory", "RequestDisk")
    return view.matching.of(ad, tuple(str(ad.get(word)) for word in words))


def _free(machine: Machine, now: float) -> list[float]:
    """When each core is free."""
    if machine.state is MachineState.BOOTING:
        return [machine.since + machine.flavour.boot_s] * machine.flavour.cores
    busy = [job.end for job in machine.jobs for _ in range(job.cores)]
    return busy + [now] * (machine.flavour.cores - len(busy))
