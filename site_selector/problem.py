"""Inputs and estimates as arrays: what every mapping policy and the estimator work on.

Indices run over jobs in topological order, files, and places. Places are the candidate sites first
(``n_sites`` of them), then whatever else holds or receives data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from network_provisioner.base.units import transfer_time
from site_selector.catalogs.documents import uncollected
from site_selector.catalogs.fields import PRIORITY_NAMESPACES, own_priority
from site_selector.catalogs.workflow import Job
from site_selector.cost import Array, compute_time, network_time
from site_selector.estimates.estimating import FINAL_RATIO, INTERMEDIATE_RATIO
from site_selector.estimates.rates import NOMINAL_BYTES, amount_of
from site_selector.estimates.world import ComputeEstimate, EstimatedValue, PathEstimate, World
from site_selector.inputs import CLEANS, Inputs, known_site

# Stands for "never" inside the arithmetic, so that sums stay ordered; shown as infinite.
NEVER_S = 1e9

_RUNTIME = "pegasus: runtime"  # the note of an estimate that a profile gives
# Of a level, that share a stage-in and a stage-out job: NUM_COMPUTE_JOBS_PER_TRANSFER_JOB of
# Pegasus's BalancedCluster.
JOBS_PER_STAGE_JOB = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """One mapping problem.

    ``compute_s[j, s]`` S_c/Γ_c on one worker; ``queue_s[s]`` T_q, ``queue_s[j, s]``
    where kinds of jobs wait otherwise; ``workers[s]`` N;
    ``seconds_per_byte[a, b]`` of a transfer from place a to b, ``occupied_per_byte[a, b]`` how long
    it keeps others off the path, ``setup_s[a, b]`` what it takes besides its bytes, ``first_s[a,
    b]`` what that is where a job moves its own files, ``file_s[a, b]`` what each further file of it
    takes (None: nothing); paths with the same ``bottleneck[a, b]`` share what bounds them (-1 or
    None: each has its own); ``allowed[j]`` site indices; ``holders[f]`` places that hold an input
    of the workflow; ``output`` the place of the results, -1 where they stay; ``returns[f]`` whether
    the file is wanted there.

    A file moves once to each site that needs it. ``staged[j]`` pairs sites with the places at which
    the job's files are staged instead: it brings them all when it has a worker, and takes what it
    wrote back before it gives the worker up. At the sites in ``fetches[j]`` the job moves its own
    inputs that do not lie there, each time anew; those in ``bypassed[j]``, inputs of the workflow,
    it brings itself when it has a worker. All three are empty where no job does. ``overhead_s``
    is what the whole takes besides its jobs. ``own_priority`` is what the user gave each job, None
    where nothing; ``by_level``: jobs that wait start in Pegasus's order, for none can be handed
    over. ``planned`` are the workers that other workflows will take and give back, by time: seconds
    from the start, site, and how many more (fewer: negative) there are from then on.
    ``space`` are the bytes free at each site for the files that jobs share (none: without bound);
    ``cleans``: a file is removed once it is not needed any more.
    ``kept`` holds what was derived from the structure; copies by ``dataclasses.replace``
    share it.
    """

    jobs: tuple[str, ...]
    places: tuple[str, ...]
    n_sites: int
    files: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]
    producer: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]
    returns: tuple[bool, ...]
    size: tuple[float, ...]
    guessed: tuple[bool, ...]
    allowed: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]
    input_bytes: Array
    compute_s: Array
    queue_s: Array
    workers: tuple[int, ...]
    seconds_per_byte: Array
    occupied_per_byte: Array
    setup_s: Array
    output: int
    compute: tuple[tuple[ComputeEstimate | None, ...], ...]
    fetches: tuple[tuple[int, ...], ...] = ()
    staged: tuple[tuple[tuple[int, int], ...], ...] = ()
    bypassed: tuple[tuple[int, ...], ...] = ()
    overhead_s: float = 0.0
    file_s: Array | None = None
    first_s: Array | None = None
    bottleneck: NDArray[np.int64] | None = None
    own_priority: tuple[int | None, ...] = ()
    by_level: bool = False
    planned: tuple[tuple[float, int, int], ...] = ()
    space: tuple[float, ...] = ()
    cleans: bool = True
    kept: dict[str, object] = field(default_factory=dict, compare=False, repr=False)

    def shared_at(self, job: int, site: int) -> int:
        """The place where the files of a job that runs at a site are there for all."""
        return dict(self.staged[job]).get(site, site) if self.staged else site


@uncollected()
def build_problem(inputs: Inputs, world: World, output_site: str | None = None) -> Problem:
    """Arrays from files and estimates.

    Raises InputError if the output site is known to neither the catalog nor the estimates.
    """
    flow = inputs.workflow
    used = {site for candidates in set(inputs.candidates.values()) for site in candidates}
    sites = [s for s in inputs.sites if s in used]
    staged = inputs.staged
    elsewhere = dict.fromkeys(at for row in dict.fromkeys(staged.values()) for _, at in row)
    places = list(dict.fromkeys([*sites, *elsewhere, *chain.from_iterable(inputs.places.values())]))
    if output_site is not None and output_site not in places:
        if not any(output_site in p for p in world.paths):
            known_site(output_site, inputs.sites, "output site")
        places.append(output_site)
    place = {name: i for i, name in enumerate(places)}
    index = {job: i for i, job in enumerate(flow.order)}
    files = {lfn: i for i, lfn in enumerate(flow.files)}
    size, guessed = file_sizes(inputs, world)
    jobs = [flow.jobs[job] for job in flow.order]
    input_bytes = np.array([amount_of(_total(map(size.__getitem__, job.inputs))) for job in jobs])
    compute = _compute_estimates(jobs, inputs, world, sites)
    per_byte, occupied, setup, further, first = _path_matrices(places, world)
    all_files = flow.files.values()

    @cache  # many jobs and files have the same
    def placed(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(map(place.__getitem__, names))

    return Problem(
        flow.order,
        tuple(places),
        len(sites),
        tuple(files),
        _rows(index, (flow.parents[job] for job in flow.order)),
        _rows(index, (flow.children[job] for job in flow.order)),
        _rows(files, (job.inputs for job in jobs)),
        _rows(files, ([f for f in j.outputs if flow.files[f].producer == j.id] for j in jobs)),
        tuple(tuple(sorted(map(index.__getitem__, file.consumers))) for file in all_files),
        tuple(-1 if file.producer is None else index[file.producer] for file in all_files),
        tuple(placed(inputs.places.get(file.lfn, ())) for file in all_files),
        tuple(file.stage_out for file in all_files),
        tuple(map(size.__getitem__, files)),
        tuple(map(guessed.__contains__, files)),
        tuple(placed(inputs.candidates[job]) for job in flow.order),
        tuple(map(flow.level.__getitem__, flow.order)),
        input_bytes,
        _compute_seconds(compute, input_bytes),
        _queue_seconds(jobs, sites, world),
        tuple(max(1, int(world.sites[s].workers.value)) for s in sites),
        per_byte,
        occupied,
        setup,
        -1 if output_site is None else place[output_site],
        compute,
        staged=_staged([staged[job] for job in flow.order], place) if elsewhere else (),
        bypassed=_rows(files, ([f for f in job.inputs if f in inputs.bypass] for job in jobs))
        if inputs.bypass
        else (),
        own_priority=_own_priorities(inputs, jobs),
        by_level=inputs.by_level,
        overhead_s=world.dag_overhead.value,
        file_s=further,
        first_s=first,
        bottleneck=_bottlenecks(places, world),
        planned=_planned(sites, world),
        space=_space(sites, world),
        cleans=inputs.cleanup in CLEANS,
    )


def _staged(
    rows: Sequence[tuple[tuple[str, str], ...]], place: Mapping[str, int]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    known = {row: tuple((place[site], place[at]) for site, at in row) for row in set(rows)}
    return tuple(map(known.__getitem__, rows))


def _space(sites: Sequence[str], world: World) -> tuple[float, ...]:
    known = [world.sites[site].space for site in sites]
    if not any(known):
        return ()
    return tuple(np.inf if estimate is None else estimate.value for estimate in known)


def _planned(sites: Sequence[str], world: World) -> tuple[tuple[float, int, int], ...]:
    changes = []
    for number, site in enumerate(sites):
        before = 0
        for at_s, cores in world.planned.get(site, ()):
            changes.append((at_s, number, before - cores))
            before = cores
    return tuple(sorted(changes))


def _own_priorities(inputs: Inputs, jobs: Sequence[Job]) -> tuple[int | None, ...]:
    """What the user gives each job, where that does not depend on its site. As in Pegasus, its
    program's profiles go before its sites', these before its own, and last are the properties.
    DAGMan's counts where it can be handed over to HTCondor."""
    namespaces = PRIORITY_NAMESPACES[:1] if inputs.by_level else PRIORITY_NAMESPACES

    def of_job(job: Job) -> int | None:
        program = inputs.transformations.get(job.transformation)
        places = {e.site: e.profiles for e in program.executables} if program else {}
        general = program.profiles if program else {}
        values = {
            own_priority(
                places.get(site, {}),
                general,
                inputs.sites[site].profiles,
                job.profiles,
                inputs.for_all_jobs,
                namespaces=namespaces,
            )
            for site in inputs.candidates[job.id]
        }
        return values.pop() if len(values) == 1 else None

    known: dict[tuple[object, ...], int | None] = {}
    out = []
    for job in jobs:
        key = (
            job.transformation,
            inputs.candidates[job.id],
            *(own_priority({name: job.profiles.get(name, {})}) for name in namespaces),
        )
        if key not in known:
            known[key] = of_job(job)
        out.append(known[key])
    return tuple(out)


def _rows(index: Mapping[str, int], rows: Iterable[Iterable[str]]) -> tuple[tuple[int, ...], ...]:
    find = index.__getitem__
    return tuple([tuple(map(find, row)) for row in rows])


def _total(values: Iterable[float]) -> float:
    """From left to right: what ``sum`` gives depends on the version of Python."""
    total = 0.0
    for value in values:
        total += value
    return total


def file_sizes(inputs: Inputs, world: World) -> tuple[dict[str, float], frozenset[str]]:
    """Bytes of every file, and the names of those that had to be guessed.

    Declared sizes hold. Else a job's undeclared outputs share ``ratio`` times the data that is the
    job's own: each input divided by the number of jobs that read it, so that a reference genome
    that everyone reads is not written out again by everyone. ``ratio`` is learnt per transformation
    where the archive has it, else 1 for what other jobs read and a tenth for final results.
    """
    flow = inputs.workflow
    size: dict[str, float] = {lfn: float(n) for lfn, n in inputs.raw_bytes.items()}
    # What of a file is each reader's own.
    own = {lfn: n / max(1, len(flow.files[lfn].consumers)) for lfn, n in size.items()}
    guessed = set(inputs.estimated)
    for job_id in flow.order:
        job = flow.jobs[job_id]
        written = [flow.files[lfn] for lfn in job.outputs]
        unknown = sum(file.size_bytes is None for file in written)
        share = _total(map(own.__getitem__, job.inputs)) if unknown else 0.0
        learnt = world.output_ratio.get(job.transformation) if unknown else None
        for file in written:
            if file.size_bytes is not None:
                size_bytes = float(file.size_bytes)
            else:
                ratio = INTERMEDIATE_RATIO if file.consumers else FINAL_RATIO
                size_bytes = share * (ratio if learnt is None else learnt.value) / unknown
                guessed.add(file.lfn)
            size[file.lfn] = size_bytes
            own[file.lfn] = size_bytes / max(1, len(file.consumers))
    return size, frozenset(guessed)


def _compute_estimates(
    jobs: Iterable[Job], inputs: Inputs, world: World, sites: list[str]
) -> tuple[tuple[ComputeEstimate | None, ...], ...]:
    """Γ_c of each job at each site; jobs of which the same is assumed share one tuple."""

    def of_site(name: str, runtime_s: float | None, site: str) -> ComputeEstimate | None:
        """A job's own ``pegasus: runtime`` beats its transformation's."""
        estimate = world.compute.get((name, site))
        if estimate is None or runtime_s is None:
            return estimate
        known = estimate.estimated
        if known.source != "default" and known.note != _RUNTIME:
            return estimate
        return ComputeEstimate("runtime", EstimatedValue(runtime_s, "catalog", note=_RUNTIME))

    @cache
    def row(
        name: str, runtime_s: float | None, allowed: tuple[str, ...]
    ) -> tuple[ComputeEstimate | None, ...]:
        return tuple(of_site(name, runtime_s, s) if s in allowed else None for s in sites)

    return tuple(row(job.transformation, job.runtime_s, inputs.candidates[job.id]) for job in jobs)


def _compute_seconds(
    compute: tuple[tuple[ComputeEstimate | None, ...], ...], input_bytes: Array
) -> Array:
    rows: dict[int, int] = {}  # by identity: few are different
    which = [rows.setdefault(id(row), len(rows)) for row in compute]
    different = {id(row): row for row in compute}
    value = np.ones((len(rows), len(compute[0])))
    rate, runtime, guessed = (np.zeros(value.shape, dtype=bool) for _ in range(3))
    for number, row in enumerate(different.values()):
        for s, estimate in enumerate(row):
            if estimate is not None:
                value[number, s] = estimate.estimated.value
                (rate if estimate.kind == "rate" else runtime)[number, s] = True
            if estimate is not None and estimate.estimated.source == "default":
                guessed[number, s] = True
    # Among unknown sizes, a small file of parameters says no more than none.
    least = np.minimum(1.0, input_bytes / NOMINAL_BYTES)[:, None]
    gamma_c = np.zeros((len(compute), value.shape[1]))
    np.divide(input_bytes[:, None], value[which], out=gamma_c, where=runtime[which])
    np.copyto(gamma_c, value[which], where=rate[which])
    np.multiply(gamma_c, least, out=gamma_c, where=guessed[which])
    return np.minimum(compute_time(input_bytes[:, None], 1.0, gamma_c), NEVER_S)


def _queue_seconds(jobs: Iterable[Job], sites: list[str], world: World) -> Array:
    waits = [world.sites[s].queue_wait.value for s in sites]
    if world.waits:
        names = [job.transformation for job in jobs]
        rows = {name: [world.wait(name, s).value for s in sites] for name in {*names}}
        return np.minimum([rows[name] for name in names], NEVER_S)
    return np.minimum(waits, NEVER_S)


def _path_matrices(places: list[str], world: World) -> tuple[Array, Array, Array, Array, Array]:
    """Seconds per byte of a transfer, what of them it occupies the path, set-up seconds, those of
    each further file, and those of a transfer without a stage job.

    A measured Γ_a is what one transfer got; where the link is known to carry more, the rest is
    there for others at the same time. An assumed Γ_a is all there is.
    """
    known: dict[int, tuple[float, ...]] = {}  # by identity: many paths are alike
    matrices = np.zeros((5, len(places), len(places)))
    for a, src in enumerate(places):
        for b, dst in enumerate(places):
            if a != b:
                path = world.paths[src, dst]
                if id(path) not in known:
                    known[id(path)] = _of_path(path)
                matrices[:, a, b] = known[id(path)]
    per_byte, occupied, setup, further, first = matrices
    return per_byte, occupied, setup, further, first


def _bottlenecks(places: list[str], world: World) -> NDArray[np.int64] | None:
    """The number of the link that bounds each path, -1 where none is known to be shared."""
    number: dict[tuple[str, str], int] = {}
    shared = np.full((len(places), len(places)), -1)
    for a, src in enumerate(places):
        for b, dst in enumerate(places):
            link = world.paths[src, dst].bottleneck if a != b else None
            if link is not None:
                shared[a, b] = number.setdefault(link, len(number))
    return shared if number else None


def _of_path(path: PathEstimate) -> tuple[float, ...]:
    seconds = network_time(1.0, path.gamma_t.value, path.gamma_a.value)
    per_byte = occupied = min(float(seconds), NEVER_S)
    if path.room_bps is not None:
        occupied = min(per_byte, transfer_time(1, min(path.room_bps, path.gamma_t.value)))
    return per_byte, occupied, path.start_s, path.further.value, path.first.value
