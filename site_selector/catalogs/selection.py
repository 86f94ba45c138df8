"""Which programs and replicas Pegasus takes of several, and which jobs it leaves out, as its
properties say."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from network_provisioner.base.errors import InputError
from site_selector.catalogs.entries import SUBMIT_SITE, Executable, Replica, Transformation
from site_selector.catalogs.javapattern import compiled
from site_selector.catalogs.workflow import Workflow, children_of, topological_order

_MAPPER = "pegasus.catalog.transformation.mapper"
_PROGRAM_SELECTOR = "pegasus.selector.transformation"
_REPLICA_SELECTOR = "pegasus.selector.replica"
_RANK = f"{_REPLICA_SELECTOR}.regex.rank."
_REUSE = "pegasus.data.reuse.scope"
_MARK = "enable_for_data_reuse"  # a pegasus profile of jobs that partial reuse looks at


def taken_programs(
    programs: Mapping[str, Transformation], properties: Mapping[str, str]
) -> dict[str, Transformation]:
    """The programs with the places that Pegasus's mapper and selector take: those installed, those
    it stages, or those it stages from the submit host."""
    mapper = properties.get(_MAPPER, "")
    kinds = {mapper, properties.get(_PROGRAM_SELECTOR, "")}

    def taken(place: Executable) -> bool:
        if place.stageable:
            here = place.site.lower() == SUBMIT_SITE
            return "Installed" not in kinds and (here or "Submit" not in kinds)
        return kinds.isdisjoint(("Staged", "Submit"))

    def there(place: Executable) -> Executable:
        return replace(place, container=False) if mapper == "Installed" else place

    if kinds.isdisjoint(("Installed", "Staged", "Submit")):
        return dict(programs)
    return {
        name: replace(t, executables=tuple([there(e) for e in t.executables if taken(e)]))
        for name, t in programs.items()
    }


def taken_replicas(
    replicas: Mapping[str, Replica], properties: Mapping[str, str]
) -> dict[str, Replica]:
    """The replicas with the places of the first rank that Pegasus's selector ``Regex`` gives any of
    them. Raises InputError for a rank or an expression that is none."""
    if properties.get(_REPLICA_SELECTOR) != "Regex":
        return dict(replicas)
    ranks: dict[int, re.Pattern[str]] = {}
    for key, value in properties.items():
        if key.startswith(_RANK):
            try:
                ranks[int(key.removeprefix(_RANK))] = compiled(value)
            except (ValueError, re.error) as error:
                raise InputError(
                    f"{key}: found {value!r}, expected a number and a regular expression: {error}"
                ) from None
    patterns = [ranks[rank] for rank in sorted(ranks)]

    def of_first_rank(replica: Replica) -> Replica:
        for pattern in patterns:
            places = tuple([place for place in replica.places if pattern.fullmatch(place[1])])
            if places:
                return replace(replica, places=places)
        return replica

    return {lfn: of_first_rank(replica) for lfn, replica in replicas.items()}


def reuses(properties: Mapping[str, str]) -> bool:
    """Whether Pegasus reuses data: unless the properties say otherwise."""
    return properties.get(_REUSE) != "none"


def reduced(flow: Workflow, listed: Collection[str], properties: Mapping[str, str]) -> Workflow:
    """The workflow without the jobs that Pegasus leaves out (DataReuseEngine.java), because what
    they write is there already or nobody wants it: those whose outputs are ``listed`` in a replica
    catalog, or are neither read nor wanted back, and those that none but these need. What left jobs
    wrote becomes an input."""
    if not reuses(properties):
        return flow
    partial = properties.get(_REUSE) == "partial"
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
    children = children_of(parents)
    order, level = topological_order(parents, children)
    return replace(
        flow, jobs=jobs, files=files, parents=parents, children=children, order=order, level=level
    )
