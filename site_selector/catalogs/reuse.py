"""Jobs that Pegasus leaves out, because what they write is there already or nobody wants it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from site_selector.catalogs.workflow import Workflow, topological_order

_SCOPE = "pegasus.data.reuse.scope"
_MARK = "enable_for_data_reuse"  # a pegasus profile of jobs that partial reuse looks at


def reuses(properties: Mapping[str, str]) -> bool:
    """Whether Pegasus reuses data: unless the properties say otherwise."""
    return properties.get(_SCOPE) != "none"


def reduced(flow: Workflow, listed: Collection[str], properties: Mapping[str, str]) -> Workflow:
    """The workflow without the jobs that Pegasus leaves out (DataReuseEngine.java): those whose
    outputs are ``listed`` in a replica catalog, or are neither read nor wanted back, and those that
    none but these need. What left jobs wrote becomes an input."""
    if not reuses(properties):
        return flow
    partial = properties.get(_SCOPE) == "partial"
    left: set[str] = set()
    for name in reversed(flow.order):
        job = flow.jobs[name]
        written = [flow.files[lfn] for lfn in job.outputs]
        if not written:
            continue
        looked_at = not partial or _MARK in job.profiles.get("pegasus", {})
        there = all(f.lfn in listed or not (f.stage_out or f.consumers) for f in written)
        wanted = any(f.stage_out and (partial or f.lfn not in listed) for f in written)
        if (looked_at and there) or (left.issuperset(flow.children[name]) and not wanted):
            left.add(name)
    return _without(flow, left, listed) if left else flow


def _without(flow: Workflow, left: Collection[str], listed: Collection[str]) -> Workflow:
    jobs = {name: job for name, job in flow.jobs.items() if name not in left}
    files = {}
    for lfn, file in flow.files.items():
        consumers = tuple([job for job in file.consumers if job not in left])
        producer = file.producer if file.producer in jobs else None
        reused = producer != file.producer and file.stage_out and lfn in listed
        if producer or consumers or reused:
            files[lfn] = replace(file, producer=producer, consumers=consumers)
    parents = {job: tuple([p for p in flow.parents[job] if p in jobs]) for job in jobs}
    children = {job: tuple([c for c in flow.children[job] if c in jobs]) for job in jobs}
    order, level = topological_order(parents, children)
    return replace(
        flow, jobs=jobs, files=files, parents=parents, children=children, order=order, level=level
    )
