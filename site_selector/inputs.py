"""Workflow and catalogs together, checked against each other.

After :func:`load_inputs` every job has at least one site that can run it, and every input of the
workflow has a size and a place. What is left to estimate is what cannot be known beforehand.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median

from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.units import format_size
from network_provisioner.base.urls import scheme_of
from network_provisioner.templates.template import RSpec, Template
from site_selector.catalogs.documents import read_document, uncollected
from site_selector.catalogs.entries import (
    SCRATCH,
    SUBMIT_SITE,
    Executable,
    Replica,
    ReplicaCatalog,
    Site,
    Transformation,
    merged,
    pfn_scheme,
    places_of,
    replicas_of,
    transformations_of,
)
from site_selector.catalogs.fields import Profiles, priority_profiles
from site_selector.catalogs.pegasus_sites import all_sites
from site_selector.catalogs.properties import DATA_CONFIGURATION, is_true
from site_selector.catalogs.replicas import BY_PROPERTIES, find_replicas, measured
from site_selector.catalogs.selection import reduced, reuses, taken_programs, taken_replicas
from site_selector.catalogs.sources import Sources
from site_selector.catalogs.workflow import Job, Workflow, read_workflow

_log = logging.getLogger(__name__)
REPLICA_CATALOG = "replicaCatalog"
TRANSFORMATION_CATALOG = "transformationCatalog"
"""The keys under which a workflow has catalogs of its own."""
INTEGRITY = "pegasus.integrity.checking"
MERGED = "pegasus.catalog.replica.dax.asrc"
"""Whether what a workflow's own replica catalog lists is merged with what the others do."""
OUTPUT_MAPPER = "pegasus.dir.storage.mapper"
BYPASS = "pegasus.transfer.bypass.input.staging"
CONFIGURATION_PROFILE = "data.configuration"  # of namespace ``pegasus``
SHARED = "sharedfs"
_FETCHING = {"nonsharedfs": "nonsharedfs", "condorio": "condorio", "condor": "condorio"}
CLEANS = ("inplace", "constraint")
"""Pegasus's clean-up that removes files while the workflow runs; the others are leaf and none."""
COMPUTE_SITE = "compute"
"""The one site of jobs, where a catalog has it and no other is set (Pegasus 5.1)."""
PROGRAM_DIRECTORY = "transformations"  # in the working directory, of stageable programs
DEFAULT_INPUT_BYTES = 100_000_000  # where no input of the workflow has a size; order of magnitude
OTHERS = "the median of the others"
GUESS = "a default, right to an order of magnitude"
FROM_RUNS = "by what earlier runs read"
_MOST_NAMED = 3
_REUSED = "replica catalogs list their results, or nobody wants them"


@dataclass(frozen=True)
class Inputs:
    """Everything the files say.

    ``candidates``: the sites that may run each job, one only where the user gave a hint.
    ``raw_bytes``: the size of each input of the workflow; ``places``: the sites that hold it.
    ``configurations``: Pegasus's data configuration of each job at each of its candidates;
    ``staging``: the staging site of each site, ``*`` for all others. ``bypass``: inputs that all
    their readers bring themselves, from where they lie.
    ``estimated``: inputs of unknown size, and how it was estimated. ``notes``: what a user
    should know of the files, one line each. ``by_level``: jobs start in Pegasus's own order, for no
    priority can be handed over. ``for_all_jobs``: the priority that properties give jobs without
    one. ``cleanup`` is Pegasus's. ``rspec``: what the workflow's template allows of compute.
    """

    workflow: Workflow
    sites: Mapping[str, Site]
    replicas: ReplicaCatalog
    transformations: Mapping[str, Transformation]
    candidates: Mapping[str, tuple[str, ...]]
    raw_bytes: Mapping[str, int]
    places: Mapping[str, tuple[str, ...]]
    configurations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    estimated: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_level: bool = False
    for_all_jobs: Profiles = field(default_factory=dict)
    cleanup: str = CLEANS[0]
    rspec: RSpec = field(default_factory=RSpec)
    staging: Mapping[str, str] = field(default_factory=dict)
    bypass: frozenset[str] = frozenset()

    def within(self, template: Template) -> Inputs:
        """With what a template allows of compute: its sites for jobs that may run there, and a note
        of those that may not."""
        allowed = template.rspec.sites
        candidates = {
            job: tuple([site for site in sites if site in allowed]) or sites
            for job, sites in self.candidates.items()
        }
        if not allowed or candidates == self.candidates:
            return replace(self, rspec=template.rspec)
        other_sites = sum(set(sites).isdisjoint(allowed) for sites in candidates.values())
        note = f"template {template.name!r} has jobs run at {', '.join(allowed)} alone"
        if other_sites:
            note += (
                f"; {other_sites} of {len(candidates)} cannot run there and keep their other sites"
            )
        configurations = {
            job: tuple([self.configuration(job, site) for site in sites])
            for job, sites in candidates.items()
        }
        return replace(
            self,
            candidates=candidates,
            configurations=configurations if self.configurations else {},
            notes=(*self.notes, note),
            rspec=template.rspec,
        )

    def configuration(self, job: str, site: str) -> str:
        """The data configuration of a job at one of its candidates, "" elsewhere."""
        both = zip(self.candidates.get(job, ()), self.configurations.get(job, ()), strict=False)
        return dict(both).get(site, "")

    @cached_property
    def staged(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """By job, the candidates at which its files are staged at another site, and that site: with
        ``condorio`` the submit host's, with ``nonsharedfs`` what ``--staging-site`` says. Raises
        InputError where that is another, as Pegasus does."""

        @cache
        def row(
            sites: tuple[str, ...], configurations: tuple[str, ...]
        ) -> tuple[tuple[str, str], ...]:
            both = zip(sites, configurations, strict=True)
            places = [(site, self._staging_site(site, how)) for site, how in both]
            return tuple([(site, at) for site, at in places if at != site])

        jobs = self.workflow.jobs
        return {
            job: row(self.candidates[job], how) if jobs[job].kind == "job" else ()
            for job, how in self.configurations.items()
        }

    def has_own_disk(self, job: str) -> bool:
        """Whether a job has its files on a disk of its own, at all of its candidates."""
        shares = SHARED in self.configurations.get(job, (SHARED,))
        return self.workflow.jobs[job].kind == "job" and not shares

    def _staging_site(self, site: str, configuration: str) -> str:
        usual = SUBMIT_SITE if configuration == "condorio" else site
        staging = self.staging.get(site, self.staging.get("*", usual))
        if staging != usual and configuration != "nonsharedfs":
            raise InputError(
                f"staging site of {site}: found {staging!r}, expected {usual!r} with the data "
                f"configuration {configuration}"
            )
        return staging


def configurations_of(
    workflow: Workflow,
    candidates: Mapping[str, tuple[str, ...]],
    sites: Mapping[str, Site],
    transformations: Mapping[str, Transformation],
    general: str | None,
    default: str = DATA_CONFIGURATION,
) -> dict[str, tuple[str, ...]]:
    """Pegasus's data configuration of each job at each of its candidates: that of its program
    there, of the site (for the tag of its own profiles, else the job's, before that for all), of
    the job itself, the ``general`` one of an option or the properties, the default: the first that
    there is. What Pegasus does not know in
    a profile it plans as ``sharedfs``."""

    def known(profiles: Mapping[str, Mapping[str, str]]) -> str | None:
        text = profiles.get("pegasus", {}).get(CONFIGURATION_PROFILE)
        return _FETCHING.get(text.lower(), SHARED) if text else None

    def tag_of(profiles: Mapping[str, Mapping[str, str]], else_: str = "") -> str:
        return profiles.get("pegasus", {}).get("tag", else_)

    @cache
    def row(program: str, places: tuple[str, ...], own: str | None, tag: str) -> tuple[str, ...]:
        entry = transformations.get(program, Transformation(program, (), None))
        staged = next((e.profiles for e in entry.executables if e.movable), {})
        there = {e.site: e.profiles for e in entry.executables if not e.stageable}
        return tuple(
            known(there.get(place, staged))
            or known(entry.profiles)
            or known(sites[place].tags.get(tag_of(sites[place].profiles, tag), {}))
            or known(sites[place].profiles)
            or own
            or general
            or default
            for place in places
        )

    return {
        job.id: row(
            job.transformation,
            candidates[job.id],
            known(job.profiles),
            tag_of(job.profiles),
        )
        for job in workflow.jobs.values()
    }


def load_inputs(
    workflow: str | Path,
    sites: str | Path | None = None,
    replicas: str | Path | None = None,
    transformations: str | Path | None = None,
    execution_sites: Iterable[str] | None = None,
) -> Inputs:
    """:func:`read_inputs` of a workflow, and of catalogs that are given."""
    given = [None if file is None else Path(file) for file in (sites, replicas, transformations)]
    return read_inputs(Sources(Path(workflow), given[0], given[1], given[2]), execution_sites)


@uncollected()
def read_inputs(
    sources: Sources,
    execution_sites: Iterable[str] | None = None,
    default_configuration: str = DATA_CONFIGURATION,
) -> Inputs:
    """Read a workflow and its catalogs, by Pegasus's rules.

    What a catalog inside the workflow lists goes before what a file does; sites and programs are
    taken from both. Replicas come from directories of inputs first, and from a database where the
    properties say so. ``execution_sites`` limits where jobs may run, as ``pegasus-plan --sites``
    does. Raises InputError with file and line or job.
    """
    flow = read_workflow(sources.workflow, sources.variables)
    for line in sources.absent():
        _log.warning("%s", line)
    notes: list[str] = []
    known = known_replicas(flow, sources)
    whole, flow = flow, reduced(flow, known.entries, sources.properties)
    if not flow.jobs:
        flow = whole
        notes.append(
            f"pegasus-plan runs none of the {len(flow.jobs)} jobs, because {_REUSED}; shown is how "
            "all would run (pegasus.data.reuse.scope = none)"
        )
    if len(flow.jobs) < len(whole.jobs):
        left = len(whole.jobs) - len(flow.jobs)
        notes.append(f"{left} of {len(whole.jobs)} jobs need not run: {_REUSED}")
    mapper = sources.properties.get(OUTPUT_MAPPER, "")
    if mapper in ("Fixed", "Replica"):
        notes.append(
            f"{OUTPUT_MAPPER} = {mapper}: results go where it says; their transfers are estimated "
            "to the output site"
        )
    everywhere = all_sites(flow, sources, notes.append)
    inputs = check_inputs(flow, everywhere, known, _programs(flow, sources), execution_sites)
    configurations = configurations_of(
        inputs.workflow,
        inputs.candidates,
        everywhere,
        inputs.transformations,
        sources.configuration(),
        default_configuration,
    )
    inputs = replace(
        inputs,
        configurations=configurations,
        staging=staging_sites(sources.staging_site or "", everywhere),
        notes=tuple(notes),
        for_all_jobs=priority_profiles(sources.properties),
    )
    return with_places(inputs, sources.properties)


def with_places(inputs: Inputs, properties: Mapping[str, str]) -> Inputs:
    """With the places of replicas, by the schemes of their URLs, and with the inputs that bypass
    staging: those that lie at every site where they may be read, or else at servers. With a
    ``file:`` URL Pegasus bypasses only at the file's own site."""
    into, checked = _scratch_schemes(inputs), properties.get(INTEGRITY) != "none"
    all_files, files = is_true(properties.get(BYPASS, "")), inputs.workflow.files
    places, bypass = {}, set()
    for lfn, replica in inputs.replicas.entries.items():
        places[lfn] = places_of(replica, into, checked)
        file = files.get(lfn)
        if file is None or not (all_files or file.bypass):
            continue
        held = dict.fromkeys(site for site, _ in replica.places)
        if not held.keys() >= {site for job in file.consumers for site in inputs.candidates[job]}:
            held = dict.fromkeys(site for site, url in replica.places if pfn_scheme(url) != "file")
        if held and all(map(inputs.has_own_disk, file.consumers)):
            bypass.add(lfn)
            places[lfn] = tuple(held)
    return replace(inputs, places=places, bypass=frozenset(bypass))


def _scratch_schemes(inputs: Inputs) -> set[str]:
    """The schemes of the URLs to which inputs of the workflow are staged."""
    elsewhere = dict(pair for row in set(inputs.staged.values()) for pair in row)
    able = {site for candidates in set(inputs.candidates.values()) for site in candidates}
    staging = {elsewhere.get(site, site) for site in able}
    schemes = {
        scheme_of(server.url)
        for site in (staging - {SUBMIT_SITE}) & inputs.sites.keys()
        for directory in inputs.sites[site].directories
        if directory.kind == SCRATCH
        for server in directory.servers
        if server.operation != "get"
    }
    return schemes | {"file"} if SUBMIT_SITE in staging else schemes


def staging_sites(option: str, sites: Iterable[str]) -> dict[str, str]:
    """What ``pegasus-plan --staging-site`` says: sites and their staging sites, ``*`` for one that
    is given alone. Raises InputError for a staging site that the catalog does not list."""
    staging = {}
    for part in filter(None, (part.strip() for part in option.split(","))):
        site, _, at = part.rpartition("=")
        known_site(at, sites, "staging site")
        staging[site or "*"] = at
    return staging


def known_replicas(flow: Workflow, sources: Sources) -> ReplicaCatalog:
    """What is known about the inputs of a workflow. Raises InputError with file and line."""
    file = sources.catalog("replica")
    inside = None
    if flow.document.root.get(REPLICA_CATALOG) is not None:
        inside = replicas_of(flow.document, (REPLICA_CATALOG,))
    kind = sources.properties.get("pegasus.catalog.replica") if sources.replicas is None else None
    by_properties = (kind or "").lower() in BY_PROPERTIES
    files = [] if file is None else [(None if by_properties else kind, str(file))]
    every = reuses(sources.properties)
    merges = inside is not None and is_true(sources.properties.get(MERGED, ""))
    find = partial(
        find_replicas,
        [f.lfn for f in flow.files.values() if every or f.producer is None],
        directories=[str(folder) for folder in sources.input_dirs],
        variables=sources.variables,
    )

    def known(inside: ReplicaCatalog | None) -> dict[str, Replica]:
        if by_properties:
            unread: list[str] = []
            listed = find(
                files=[], note=unread.append, properties=sources.properties, inside=inside
            )
            for line in unread:
                _log.warning("%s", line)
            if not unread:
                return listed
        return find(files=files, note=None, inside=inside)

    replicas = known(inside)
    if merges:
        for lfn, other in known(None).items():
            replicas[lfn] = merged(replicas.get(lfn, other), other)
    replicas = taken_replicas(replicas, sources.properties)
    name = str(file or "a replica catalog")
    return ReplicaCatalog(replace(flow.document, name=name), replicas, ())


def check_inputs(
    workflow: Workflow,
    sites: Mapping[str, Site],
    replicas: ReplicaCatalog,
    transformations: Mapping[str, Transformation],
    execution_sites: Iterable[str] | None = None,
) -> Inputs:
    """Bring workflow and catalogs together. Raises InputError that names file and line or job."""
    transformations = _as_sites_are_spelt(transformations, sites)
    usual = _usual_sites(sites, transformations.values())
    allowed = dict.fromkeys(usual if execution_sites is None else execution_sites)
    if allowed.pop("*", "") is None:
        allowed |= dict.fromkeys(site for site in sites if site != SUBMIT_SITE)
    for name in allowed:
        known_site(name, sites, "execution site")
    runs_at: dict[str, tuple[str, ...]] = {
        name: _preferred(
            t.brought([s for s in t.sites(sites) if s in allowed], sites),
            sites,
            execution_sites is None,
        )
        for name, t in transformations.items()
    }
    candidates = {
        job.id: _candidates(workflow, job, sites, transformations, runs_at, allowed)
        for job in workflow.jobs.values()
    }
    sizes: dict[str, int | None] = {}
    held: dict[str, Replica] = {}
    absent = set()
    for file in workflow.files.values():
        if file.producer is None:
            replica = _raw_input(workflow, replicas, file.lfn)
            if replica is None:
                absent.add(file.lfn)
            else:
                size = file.size_bytes if replica.size_bytes is None else replica.size_bytes
                sizes[file.lfn] = measured(size, replica.places)
                held[file.lfn] = replica
    raw_bytes, estimated = estimated_sizes(sizes)
    candidates = within_reach(workflow, candidates, held)
    return Inputs(
        _without(workflow, absent),
        sites,
        replace(replicas, entries=held, patterns=()),
        transformations,
        candidates,
        raw_bytes,
        {lfn: tuple(dict.fromkeys(site for site, _ in r.places)) for lfn, r in held.items()},
        estimated=estimated,
    )


def within_reach(
    workflow: Workflow,
    candidates: Mapping[str, tuple[str, ...]],
    replicas: Mapping[str, Replica],
) -> dict[str, tuple[str, ...]]:
    """The candidates at which each job reaches its inputs, all where there is none: Pegasus takes a
    ``file:`` URL of a site other than the submit host only for jobs at this site."""
    reached = dict(candidates)
    for lfn, replica in replicas.items():
        if any(site == SUBMIT_SITE or not url.startswith("file:") for site, url in replica.places):
            continue
        held = {site.lower() for site, _ in replica.places}
        for job in workflow.files[lfn].consumers:
            reached[job] = tuple([site for site in reached[job] if site.lower() in held])
    return {job: sites or candidates[job] for job, sites in reached.items()}


def estimated_sizes(known: Mapping[str, int | None]) -> tuple[dict[str, int], dict[str, str]]:
    """Bytes of every file, where None is taken as the median of the others, and how those files
    were estimated."""
    sizes = [size for size in known.values() if size is not None]
    guess = int(median(sizes)) if sizes else DEFAULT_INPUT_BYTES
    how = dict.fromkeys(
        (f for f, size in known.items() if size is None), OTHERS if sizes else GUESS
    )
    return {lfn: guess if size is None else size for lfn, size in known.items()}, how


def size_note(inputs: Inputs) -> str:
    """In one line of which inputs the size is not known and what it is taken as; "" if all are
    known."""
    if not inputs.estimated:
        return ""
    names = [*islice(inputs.estimated, _MOST_NAMED)]
    names += ["…"] if len(inputs.estimated) > _MOST_NAMED else []
    parts = []
    for how in dict.fromkeys(inputs.estimated.values()):
        sizes = {inputs.raw_bytes[lfn] for lfn, by in inputs.estimated.items() if by == how}
        span = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
        parts.append(f"{span} ({how})")
    return (
        f"no size is known of {len(inputs.estimated)} of {len(inputs.raw_bytes)} inputs "
        f"({', '.join(names)}): taken as {' or '.join(parts)}"
    )


def _as_sites_are_spelt(
    transformations: Mapping[str, Transformation], sites: Mapping[str, Site]
) -> dict[str, Transformation]:
    """With sites as the site catalog spells them: Pegasus compares their names in any case."""
    spelt = {name.lower(): name for name in sites}

    def at_site(place: Executable) -> Executable:
        known = place.site in sites
        return place if known else replace(place, site=spelt.get(place.site.lower(), place.site))

    return {
        name: replace(t, executables=tuple(map(at_site, t.executables)))
        for name, t in transformations.items()
    }


def _usual_sites(
    sites: Mapping[str, Site], transformations: Collection[Transformation]
) -> Sequence[str]:
    """Where jobs may run by default: as pegasus-plan has it, but not at sites that only
    store files, where no job of Pegasus could run."""
    if COMPUTE_SITE in sites:
        return [COMPUTE_SITE]
    installed = {e.site for t in transformations for e in t.executables if not e.stageable}
    return [
        name
        for name, site in sites.items()
        if name != SUBMIT_SITE and (name in installed or not site.only_stores)
    ]


def _preferred(able: Sequence[str], sites: Mapping[str, Site], usual: bool) -> tuple[str, ...]:
    """Of the ``usual`` sites those that somebody declared, where there are such: the pool that
    Pegasus adds may not exist."""
    declared = tuple(site for site in able if sites[site].declared)
    return declared if usual and declared else tuple(able)


def _programs(workflow: Workflow, sources: Sources) -> dict[str, Transformation]:
    """The catalog inside the workflow adds to the one in a file, as for the planner; what both list
    is as the one inside has it, unless that says of no site."""
    programs: dict[str, Transformation] = {}
    file = sources.catalog("transformation")
    inside = workflow.document.root.get(TRANSFORMATION_CATALOG) is not None
    if file is not None:
        what = "Pegasus 5 transformation catalog"
        programs |= transformations_of(read_document(file, what, sources.variables))
    if inside:
        own_entries = transformations_of(workflow.document, (TRANSFORMATION_CATALOG,)).items()
        programs |= {n: t for n, t in own_entries if t.executables or n not in programs}
    programs = taken_programs(programs, sources.properties)
    own = _own_programs(workflow)
    for name, places in own.items():
        known = programs.get(name, Transformation(name, (), None))
        programs[name] = replace(known, executables=(*known.executables, *places))
    if (
        file is None
        and not inside
        and not own
        and any(j.kind == "job" for j in workflow.jobs.values())
    ):
        raise InputError(
            f"{workflow.document.name}: found no transformation catalog, expected one in the "
            f"workflow ({TRANSFORMATION_CATALOG}), named by an option or by pegasus.properties, or "
            "transformations.yml in the working directory or beside the workflow"
        )
    return programs


def _own_programs(workflow: Workflow) -> dict[str, list[Executable]]:
    """Programs that no catalog need list: in Pegasus's directory of them, and those that a job's
    profile ``pfn`` names at its site."""
    programs: dict[str, list[Executable]] = {}
    for job in workflow.jobs.values():
        file = Path(PROGRAM_DIRECTORY) / job.transformation
        if job.kind == "job" and job.transformation not in programs and file.is_file():
            here = Executable(SUBMIT_SITE, True, None, None, None, f"file://{file.absolute()}")
            programs[job.transformation] = [here]
    for job in workflow.jobs.values():
        pfn = job.profiles.get("selector", job.profiles.get("hints", {})).get("pfn")
        if pfn and job.site_hint:
            there = Executable(job.site_hint, False, None, None, None, pfn)
            programs.setdefault(job.transformation, []).append(there)
    return programs


def _without(workflow: Workflow, absent: Collection[str]) -> Workflow:
    """The workflow without optional inputs that are not there."""
    if not absent:
        return workflow
    jobs = {
        job.id: replace(job, inputs=tuple(lfn for lfn in job.inputs if lfn not in absent))
        for job in workflow.jobs.values()
    }
    files = {lfn: file for lfn, file in workflow.files.items() if lfn not in absent}
    return replace(workflow, jobs=jobs, files=files)


def known_site(name: str, sites: Iterable[str], what: str) -> None:
    """Raises InputError if the site catalog does not list ``name``, given as ``what``."""
    if name not in sites:
        raise InputError(
            f"{what} {name!r} is not in the site catalog, which lists {', '.join(sites)}"
            + did_you_mean(name, sites)
        )


def _candidates(
    workflow: Workflow,
    job: Job,
    sites: Mapping[str, Site],
    transformations: Mapping[str, Transformation],
    runs_at: Mapping[str, tuple[str, ...]],
    allowed: Iterable[str],
) -> tuple[str, ...]:
    hint = job.site_hint
    if hint is not None:
        try:
            known_site(hint, sites, "profile execution.site")
        except InputError as error:
            raise workflow.job_error(job.id, str(error)) from None
    if job.kind != "job":  # Pegasus plans and runs a sub-workflow at the submit host
        return (SUBMIT_SITE,)
    if job.transformation not in transformations:
        raise workflow.job_error(
            job.id,
            f"transformation {job.transformation!r} is not in the transformation catalog"
            + did_you_mean(job.transformation, transformations),
        )
    if hint is not None:
        # As the planner takes it: also where it is not among the execution sites.
        able = transformations[job.transformation].sites(sites)
        if hint not in able:
            raise workflow.job_error(
                job.id,
                f"profile execution.site asks for {hint!r}, but {job.transformation} can run at "
                f"{', '.join(able) or 'no site'}",
            )
        return (hint,)
    able = runs_at[job.transformation]
    if not able:
        executables = transformations[job.transformation].executables
        places = [e.site for e in executables] or ["no site"]
        others = [site for site in allowed if site not in places]
        listed = ", ".join(dict.fromkeys(_where(e, allowed) for e in executables)) or places[0]
        raise workflow.job_error(
            job.id,
            f"no site can run {job.transformation}: it is at {listed}, execution sites are among "
            f"{', '.join(allowed)}{did_you_mean(places[0], others)}",
        )
    return able


def _where(executable: Executable, allowed: Iterable[str]) -> str:
    """The site, and the system where that is what does not fit."""
    matters = executable.movable or executable.site in allowed
    return f"{executable.site} for {executable.for_people}" if matters else executable.site


def _raw_input(workflow: Workflow, replicas: ReplicaCatalog, lfn: str) -> Replica | None:
    """Where an input lies, be that a site of the catalog or not; None for one that is optional and
    not there."""
    file = workflow.files[lfn]
    replica = replicas.find(lfn)
    if replica is None or not replica.places:
        if file.optional:
            return None
        raise workflow.job_error(
            file.consumers[0],
            f"input {lfn!r} is written by no job and has no replica in {replicas.document.name}",
        )
    return replica
