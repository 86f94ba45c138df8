"""Inputs and beliefs as arrays: what every mapping policy and the estimator work on.

Indices run over jobs in topological order, files, and places. Places are the candidate sites first
(``n_sites`` of them), then whatever else holds or receives data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from network_provisioner.errors import InputError
from network_provisioner.units import transfer_time
from site_selector.beliefs import Belief, ComputeBelief, World
from site_selector.cost import Array, compute_time, network_time
from site_selector.dag import Job
from site_selector.estimates import FINAL_RATIO, INTERMEDIATE_RATIO
from site_selector.fields import did_you_mean
from site_selector.inputs import Inputs

# Stands for "never" inside the arithmetic, so that sums stay ordered; shown as infinite.
NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Problem:
    """One mapping problem.

    ``compute_s[j, s]`` S_c/Γ_c on one worker; ``queue_s[s]`` T_q; ``workers[s]`` N;
    ``seconds_per_byte[a, b]`` of a transfer from place a to b, ``occupied_per_byte[a, b]`` how long
    it keeps others off the path, ``setup_s[a, b]`` what it takes beside its bytes; ``allowed[j]``
    site indices; ``holders[f]`` places that hold an input of the workflow; ``output`` the place of
    the results, -1 where they stay; ``returns[f]`` whether the file is wanted there.
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
    compute: tuple[tuple[ComputeBelief | None, ...], ...]


def build_problem(inputs: Inputs, world: World, output_site: str | None = None) -> Problem:
    """Arrays from files and beliefs.

    Raises InputError where the output site is known to neither the catalog nor the beliefs.
    """
    flow = inputs.workflow
    used = dict.fromkeys(s for found in inputs.candidates.values() for s in found)
    sites = [s for s in inputs.sites if s in used]
    places = list(dict.fromkeys([*sites, *(p for held in inputs.places.values() for p in held)]))
    if output_site is not None and output_site not in places:
        if output_site not in inputs.sites and not any(output_site in p for p in world.paths):
            raise InputError(
                f"output site {output_site!r} is not in the site catalog, which lists "
                + ", ".join(inputs.sites)
                + did_you_mean(output_site, inputs.sites)
            )
        places.append(output_site)
    place = {name: i for i, name in enumerate(places)}
    index = {job: i for i, job in enumerate(flow.order)}
    files = {lfn: i for i, lfn in enumerate(flow.files)}
    size, guessed = file_sizes(inputs, world)
    jobs = [flow.jobs[job] for job in flow.order]
    input_bytes = np.array([max(1.0, sum(size[f] for f in job.inputs)) for job in jobs])
    beliefs = tuple(_job_beliefs(job, inputs, world, sites) for job in jobs)
    all_files = flow.files.values()
    return Problem(
        flow.order,
        tuple(places),
        len(sites),
        tuple(files),
        tuple(tuple(index[p] for p in flow.parents[job]) for job in flow.order),
        tuple(tuple(index[c] for c in flow.children[job]) for job in flow.order),
        tuple(tuple(files[f] for f in job.inputs) for job in jobs),
        tuple(tuple(files[f] for f in job.outputs) for job in jobs),
        tuple(tuple(sorted(index[c] for c in file.consumers)) for file in all_files),
        tuple(-1 if file.producer is None else index[file.producer] for file in all_files),
        tuple(tuple(place[p] for p in inputs.places.get(file.lfn, ())) for file in all_files),
        tuple(file.stage_out for file in all_files),
        tuple(size[lfn] for lfn in files),
        tuple(lfn in guessed for lfn in files),
        tuple(tuple(place[s] for s in inputs.candidates[job]) for job in flow.order),
        tuple(flow.level[job] for job in flow.order),
        input_bytes,
        _compute_seconds(beliefs, input_bytes),
        np.array([min(world.sites[s].queue_wait.value, NEVER_S) for s in sites]),
        tuple(max(1, int(world.sites[s].workers.value)) for s in sites),
        _seconds_per_byte(places, world),
        _occupied_per_byte(places, world),
        _setup_seconds(places, world),
        -1 if output_site is None else place[output_site],
        beliefs,
    )


def file_sizes(inputs: Inputs, world: World) -> tuple[dict[str, float], frozenset[str]]:
    """Bytes of every file, and the names of those that had to be guessed.

    Declared sizes hold. Else a job's undeclared outputs share ``ratio`` times the data that is the
    job's own: each input divided by the number of jobs that read it, so that a reference genome
    that everyone reads is not written out again by everyone. ``ratio`` is learnt per transformation
    where the archive has it, else 1 for what other jobs read and a tenth for final results.
    """
    flow = inputs.workflow
    size: dict[str, float] = {lfn: float(n) for lfn, n in inputs.raw_bytes.items()}
    guessed = set()
    for job_id in flow.order:
        job = flow.jobs[job_id]
        share = sum(size[f] / len(flow.files[f].consumers) for f in job.inputs)
        learnt = world.output_ratio.get(job.transformation)
        unknown = [f for f in job.outputs if flow.files[f].size_bytes is None]
        for lfn in job.outputs:
            file = flow.files[lfn]
            if file.size_bytes is not None:
                size[lfn] = float(file.size_bytes)
                continue
            ratio = INTERMEDIATE_RATIO if file.consumers else FINAL_RATIO
            size[lfn] = share * (ratio if learnt is None else learnt.value) / len(unknown)
            guessed.add(lfn)
    return size, frozenset(guessed)


def _job_beliefs(
    job: Job, inputs: Inputs, world: World, sites: list[str]
) -> tuple[ComputeBelief | None, ...]:
    """Γ_c of the job at each site; its own ``pegasus: runtime`` beats its transformation's."""
    allowed = inputs.candidates[job.id]
    found: list[ComputeBelief | None] = []
    for site in sites:
        belief = world.compute.get((job.transformation, site)) if site in allowed else None
        if belief is not None and job.runtime_s is not None:
            weak = belief.belief.source == "default" or belief.belief.note == "pegasus: runtime"
            if weak:
                belief = ComputeBelief(
                    "runtime", Belief(job.runtime_s, "catalog", note="pegasus: runtime")
                )
        found.append(belief)
    return tuple(found)


def _compute_seconds(
    beliefs: tuple[tuple[ComputeBelief | None, ...], ...], input_bytes: Array
) -> Array:
    gamma_c = np.zeros((len(beliefs), len(beliefs[0])))
    for j, row in enumerate(beliefs):
        for s, belief in enumerate(row):
            if belief is not None:
                value = belief.belief.value
                gamma_c[j, s] = value if belief.kind == "rate" else input_bytes[j] / value
    return np.minimum(compute_time(input_bytes[:, None], 1.0, gamma_c), NEVER_S)


def _seconds_per_byte(places: list[str], world: World) -> Array:
    out = np.zeros((len(places), len(places)))
    for a, src in enumerate(places):
        for b, dst in enumerate(places):
            if a != b:
                path = world.paths[src, dst]
                out[a, b] = network_time(1.0, path.gamma_t.value, path.gamma_a.value)
    return np.minimum(out, NEVER_S)


def _occupied_per_byte(places: list[str], world: World) -> Array:
    """A measured Γ_a is what one transfer got; where the link is known to carry more, the rest is
    there for others at the same time. An assumed Γ_a is all there is."""
    out = _seconds_per_byte(places, world)
    for a, src in enumerate(places):
        for b, dst in enumerate(places):
            path = world.paths.get((src, dst))
            if a != b and path is not None and path.gamma_a.source == "archive":
                link_bps = min(path.link_bps, path.gamma_t.value)
                if path.link_bps < float("inf"):
                    out[a, b] = min(out[a, b], transfer_time(1, link_bps))
    return out


def _setup_seconds(places: list[str], world: World) -> Array:
    out = np.zeros((len(places), len(places)))
    for a, src in enumerate(places):
        for b, dst in enumerate(places):
            if a != b:
                out[a, b] = world.paths[src, dst].setup.value
    return out
