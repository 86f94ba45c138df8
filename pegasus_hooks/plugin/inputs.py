"""From the planner's request to the inputs of site selection, with what is missing guessed.

Pegasus plans with inputs of which it knows neither size nor place, so both are estimated here, and
a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from network_provisioner.base.errors import InputError
from pegasus_hooks.plugin.request import WHAT, Request, RequestedJob
from site_selector.catalogs.documents import Document
from site_selector.catalogs.entries import (
    SCRATCH,
    SUBMIT_SITE,
    Directory,
    Executable,
    FileServer,
    Replica,
    ReplicaCatalog,
    Site,
    Transformation,
)
from site_selector.catalogs.fields import Profiles, positive_number, priority_profiles
from site_selector.catalogs.hints import parse_hints, unknown_sites
from site_selector.catalogs.replicas import Note, measured
from site_selector.catalogs.sources import CONFIGURATION, known_configuration
from site_selector.catalogs.workflow import (
    DataFile,
    Job,
    Workflow,
    children_of,
    find_cycle,
    topological_order,
)
from site_selector.inputs import (
    CONFIGURATION_PROFILE,
    Inputs,
    configurations_of,
    estimated_sizes,
    with_places,
    within_reach,
)

WARNING = "warning: "  # what a note begins with that the planner shows without -v

ReplicaLookup = Callable[[Sequence[str]], Mapping[str, Replica]]
_NOWHERE = Document(WHAT, "", {})


def inputs_of(request: Request, find: ReplicaLookup, note: Note) -> Inputs:
    """The workflow of a request. ``find`` gives replicas of the inputs of which the request itself
    knows no place. Raises InputError, one line."""
    sites = _sites(request, note)
    raw_bytes, replicas, estimated = _raw(request, find, note)
    programs = {
        _kind_name(request, task): _transformation(request, task, sites) for task in request.tasks
    }
    workflow = _workflow(request)
    able = {task.id: task.sites for task in request.tasks}
    candidates = within_reach(workflow, able, replicas)
    general = request.data_configuration
    if general is not None:
        general = known_configuration(general, CONFIGURATION)
    inputs = Inputs(
        workflow,
        sites,
        ReplicaCatalog(_NOWHERE, replicas, ()),
        programs,
        candidates,
        raw_bytes,
        {},
        configurations_of(workflow, candidates, sites, programs, general),
        estimated,
        by_level=not request.priorities,
        for_all_jobs=priority_profiles(request.profiles),
        cleanup=request.cleanup,
        staging=request.staging,
    )
    return with_places(inputs, request.properties)


def _sites(request: Request, note: Note) -> dict[str, Site]:
    """Those of the catalog, and whatever else a job or the results go to. A hint that is wrong is
    left out, with a warning: the others serve."""
    profiles = dict(request.sites)
    for task in request.tasks:
        for name in task.sites:
            profiles.setdefault(name, {})
    for name in request.output_sites:
        profiles.setdefault(name, {})
    sites = {}
    for name, profile in profiles.items():
        good = {}
        priorities = priority_profiles(profile)
        for key, value in profile.items():
            if priority_profiles({key: value}):
                continue
            try:
                for _, wrong in unknown_sites(parse_hints({key: value}), profiles):
                    raise InputError(wrong)
                good[key] = value
            except InputError as error:
                note(f"{WARNING}site {name!r} of the site catalog: {error}; it is left out")
        kept = {"pegasus": good, **priorities}
        tags = {
            tag: {"pegasus": values, **priority_profiles(values)}
            for tag, values in request.tags.get(name, {}).items()
        }
        url = request.scratch.get(name)
        scratch = (Directory(SCRATCH, "", (FileServer(url, "put"),)),) if url else ()
        sites[name] = Site(name, None, None, scratch, kept, parse_hints(good), tags=tags)
    return sites


def profiles_of(flat: Mapping[str, str]) -> Profiles:
    """The profiles among entries such as ``condor.priority``."""
    keys = (CONFIGURATION_PROFILE, "tag")
    own = {key: flat[f"pegasus.{key}"] for key in keys if f"pegasus.{key}" in flat}
    return priority_profiles(flat) | ({"pegasus": own} if own else {})


def _kind_name(request: Request, task: RequestedJob) -> str:
    return request.programs[task.program].name if task.kind == "job" else f"pegasus::{task.kind}"


def _transformation(
    request: Request, task: RequestedJob, sites: Mapping[str, Site]
) -> Transformation:
    program = request.programs[task.program]
    name = _kind_name(request, task)
    executables = []
    for site in sites:
        runtime = program.runtimes.get(site)
        if runtime is None:  # the site catalog's word for all that runs there
            runtime = positive_number(request.sites.get(site, {}).get("runtime", ""))
        own = profiles_of(program.profiles.get(site, {}))
        executables.append(Executable(site, False, None, None, runtime, profiles=own))
    return Transformation(name, tuple(executables), None)


def _workflow(request: Request) -> Workflow:
    tasks, files = request.tasks, request.files
    names = [task.id for task in tasks]
    producer: dict[int, str] = {}
    consumers: dict[int, list[str]] = {}
    for task in tasks:
        for file in task.writes:
            producer.setdefault(file, task.id)
        for file in task.reads:
            consumers.setdefault(file, []).append(task.id)
    parents: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        above = dict.fromkeys(names[i] for i in task.after)
        # Data makes edges too; Pegasus adds them unless it is told not to.
        above.update(dict.fromkeys(producer[f] for f in task.reads if f in producer))
        above.pop(task.id, None)
        parents[task.id] = tuple(above)
    children = children_of(parents)
    order, level = topological_order(parents, children)
    if len(order) < len(names):
        ring = find_cycle(parents)
        raise InputError(f"{WHAT}: jobs form a cycle: {' -> '.join(ring[:10])}")
    jobs = {
        task.id: Job(
            task.id,
            _kind_name(request, task),
            tuple(files[f].lfn for f in task.reads),
            tuple(files[f].lfn for f in task.writes if producer[f] == task.id),
            task.kind,
            task.sites[0] if task.fixed else None,
            task.runtime_s,
            task.cores,
            profiles=profiles_of(task.profiles),
        )
        for task in tasks
    }
    known = {
        file.lfn: DataFile(
            file.lfn,
            file.size_bytes,
            producer.get(i),
            tuple(consumers.get(i, ())),
            file.wanted and i in producer,
            bypass=file.bypass,
        )
        for i, file in enumerate(files)
        if i in producer or i in consumers
    }
    return Workflow(request.workflow, jobs, known, parents, children, order, level, _NOWHERE)


def _raw(
    request: Request, find: ReplicaLookup, note: Note
) -> tuple[dict[str, int], dict[str, Replica], dict[str, str]]:
    """Size and replica of every input of the workflow, and how sizes were estimated."""
    written = {file for task in request.tasks for file in task.writes}
    read = dict.fromkeys(file for task in request.tasks for file in task.reads)
    raw = [request.files[file] for file in read if file not in written]
    known = find([file.lfn for file in raw if not file.places])
    sizes: dict[str, int | None] = {}
    replicas: dict[str, Replica] = {}
    lost = 0
    for file in raw:
        replica = known.get(file.lfn, Replica(file.lfn, (), None, ()))
        where = file.places or replica.places
        size = replica.size_bytes if file.size_bytes is None else file.size_bytes
        sizes[file.lfn] = measured(size, where)
        lost += not where
        checksum = file.checksum or replica.checksum
        places = where or ((SUBMIT_SITE, file.lfn),)
        replicas[file.lfn] = replace(replica, places=places, checksum=checksum)
    if lost:
        note(f"no place is known of {lost} of {len(raw)} inputs; taken as at {SUBMIT_SITE}")
    found_sizes, estimated = estimated_sizes(sizes)
    return found_sizes, replicas, estimated
