"""The executable workflow: pure, from abstract workflow and mapping to jobs with parents.

    create_dir ─► stage_in ─► compute ─► (stage_inter ─►) compute ─► stage_out ─► cleanup

Data configuration ``sharedfs``: a site's scratch is one shared file system, its jobs run in the
run's directory there, and files that stay at their site are not transferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from monitors.workflows.planned.transferlist import Mkdir, Remove, SiteUrl
from network_provisioner.base.errors import InputError, did_you_mean
from pegasus_hooks.planner.model import ComputeTask, ExecutableJob, Options, PlannedKind
from pegasus_hooks.planner.programs import (
    ExecutableCatalog,
    JobExecutable,
    merged,
    split_arguments,
    unsupported_profile,
)
from pegasus_hooks.planner.staging import RawFile, RunPaths, TransferJobs
from site_selector.catalogs.fields import given_priority
from site_selector.catalogs.workflow import Job, Workflow
from site_selector.inputs import Inputs
from site_selector.replicas.order import soonest_first

_JOBS_PER_FOLDER = 1024  # as many as Pegasus's own file creator puts side by side


def lay_out(
    inputs: Inputs,
    programs: ExecutableCatalog,
    mapping: Mapping[str, str],
    places: RunPaths,
    output_site: str,
    options: Options,
    priorities: Mapping[str, int] | None = None,
) -> dict[str, ExecutableJob]:
    """The jobs by name, parents before children; ``priorities`` go to those without their own.
    Raises InputError that names the job or site."""
    check_mapping(inputs, mapping)
    flow = inputs.workflow
    stager = TransferJobs(
        places,
        output_site,
        options.stage_in_clusters,
        options.stage_out_clusters,
        Counter(flow.level.values()),
    )
    return _Layout(inputs, programs, mapping, stager, options, priorities or {}).build()


def check_mapping(inputs: Inputs, mapping: Mapping[str, str]) -> None:
    """Every job at a site that can run it, and no job that is not there. Raises InputError."""
    jobs = inputs.workflow.jobs
    for job_id, site in mapping.items():
        if job_id not in jobs:
            raise InputError(
                f"site mapping: found job {job_id!r}, which the workflow lacks"
                + did_you_mean(job_id, jobs)
            )
        if site not in inputs.candidates[job_id]:
            raise inputs.workflow.job_error(
                job_id,
                f"site mapping says {site!r}, expected one of "
                + ", ".join(inputs.candidates[job_id]),
            )
    missing = next((job_id for job_id in jobs if job_id not in mapping), None)
    if missing is not None:
        raise inputs.workflow.job_error(missing, "the site mapping gives it no site")


@dataclass(slots=True)
class _Layout:
    inputs: Inputs
    programs: ExecutableCatalog
    mapping: Mapping[str, str]
    stager: TransferJobs
    options: Options
    priorities: Mapping[str, int]
    flow: Workflow = field(init=False)
    raw: Mapping[str, Mapping[str, Any]] = field(init=False)
    # By id in the abstract workflow.
    compute: dict[str, ExecutableJob] = field(default_factory=dict)
    program: dict[str, JobExecutable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flow = self.inputs.workflow
        self.raw = self.flow.entries

    def build(self) -> dict[str, ExecutableJob]:
        used = dict.fromkeys(self.mapping[job_id] for job_id in self.flow.order)
        for job_id in self.flow.order:
            self._add_compute(self.flow.jobs[job_id])
        # Stage-in bundles are per level, so jobs are walked level by level.
        for job_id in sorted(self.flow.order, key=lambda j: self.flow.level[j]):
            self._add_stage_in(self.flow.jobs[job_id])
        for job_id in self.flow.order:
            self._add_stage_inter(self.flow.jobs[job_id])
            self._add_stage_out(self.flow.jobs[job_id])
        self.stager.stage_out_reused(
            [self._raw_file(f.lfn, self.stager.output_site) for f in self.flow.reused]
        )
        created = {site: self._create_dir(site) for site in used}
        jobs = [*created.values(), *self.stager.jobs.values(), *self.compute.values()]
        known = _by_name(jobs, self.flow.name)
        _depend_on_create_dir(jobs[len(created) :], known, created)
        if self.options.cleanup:
            cleanups = [self._cleanup(site, known) for site in used]
            known = _by_name([*jobs, *cleanups], self.flow.name)
        ordered = _parents_first(known)
        for number, job in enumerate(ordered.values()):
            job.folder = f"00/{number // _JOBS_PER_FOLDER:02X}"
            job.profiles = job.profiles or merged(self.inputs.sites[job.site].profiles)
        return ordered

    def _add_compute(self, job: Job) -> None:
        site = self.mapping[job.id]
        program = self.programs.find(job.transformation, site)
        if program is None:
            raise self.flow.job_error(
                job.id, f"{job.transformation} is neither at {site!r} nor can it be staged there"
            )
        self.program[job.id] = program
        given = self.inputs.for_all_jobs, job.profiles, self.inputs.sites[site].profiles
        profiles = merged(*given, program.profiles)  # as Pegasus has it
        feature = unsupported_profile(profiles)
        if feature:
            raise self.flow.job_error(
                job.id, f"found {feature}, which the embedded planner cannot plan; use pegasus-plan"
            )
        if job.id in self.priorities and given_priority(profiles) is None:
            profiles = merged(profiles, {"condor": {"priority": str(self.priorities[job.id])}})
        name = f"{self.raw[job.id]['name']}_{job.id}".replace(".", "_")
        planned = ExecutableJob(name, PlannedKind.COMPUTE, site, self.flow.level[job.id])
        planned.profiles = profiles
        planned.touches = {site}
        planned.task = self._task(job, program, site)
        self.compute[job.id] = planned
        for parent in self.flow.parents[job.id]:
            planned.parents.add(self.compute[parent].name)

    def _task(self, job: Job, program: JobExecutable, site: str) -> ComputeTask:
        raw = self.raw[job.id]
        try:
            arguments = split_arguments(raw.get("arguments") or [])
        except ValueError as error:
            raise self.flow.job_error(job.id, f"arguments: {error}") from None
        staged = program.staged
        return ComputeTask(
            id=job.id,
            transformation=job.transformation,
            directory=self.stager.places.run_dir(site),
            executable=program.lfn(job.transformation) if staged else program.pfn,
            arguments=arguments,
            inputs=job.inputs,
            outputs=job.outputs,
            stdin=raw.get("stdin"),
            stdout=raw.get("stdout"),
            stderr=raw.get("stderr"),
            staged_executable=staged,
        )

    def _add_stage_in(self, job: Job) -> None:
        planned = self.compute[job.id]
        raw = [
            self._raw_file(lfn, planned.site)
            for lfn in job.inputs
            if self.flow.files[lfn].producer is None
        ]
        program = self.program[job.id]
        if program.staged:
            lfn = program.lfn(job.transformation)
            raw.append(RawFile(lfn, ((program.site, program.pfn),), None))
        planned.parents |= self.stager.stage_in(raw, planned.site, planned.level)

    def _raw_file(self, lfn: str, site: str) -> RawFile:
        replica = self.inputs.replicas.find(lfn)
        if replica is None:
            raise InputError(f"input {lfn!r} has no replica")
        size = self.inputs.raw_bytes[lfn]
        return RawFile(lfn, soonest_first(replica.places, site, size, self.options.paths), size)

    def _add_stage_inter(self, job: Job) -> None:
        planned = self.compute[job.id]
        foreign = {}
        for lfn in job.inputs:
            file = self.flow.files[lfn]
            if file.producer is None or self.mapping[file.producer] == planned.site:
                continue
            producer = self.compute[file.producer]
            foreign[lfn] = (producer.site, producer.name, file.size_bytes)
        planned.parents |= self.stager.stage_inter(
            planned.name, planned.site, planned.level, foreign
        )

    def _add_stage_out(self, job: Job) -> None:
        wanted = {
            lfn: self.flow.files[lfn].size_bytes
            for lfn in job.outputs
            if self.flow.files[lfn].stage_out
        }
        planned = self.compute[job.id]
        self.stager.stage_out(planned.name, planned.site, planned.level, wanted)

    def _create_dir(self, site: str) -> ExecutableJob:
        job = ExecutableJob(
            f"create_dir_{_label(self.flow.name)}_0_{site}", PlannedKind.CREATE_DIR, site, 0
        )
        job.entries = [Mkdir(SiteUrl(site, f"file://{self.stager.places.run_dir(site)}"))]
        job.touches = {site}
        return job

    def _cleanup(self, site: str, jobs: Mapping[str, ExecutableJob]) -> ExecutableJob:
        """Runs after every job that touches the site; those that a later one waits for need no
        edge of their own."""
        touching = {name for name, job in jobs.items() if site in job.touches}
        waited_for = {p for name in touching for p in jobs[name].parents}
        level = max(job.level for job in jobs.values()) + 1
        job = ExecutableJob(
            f"cleanup_{_label(self.flow.name)}_0_{site}", PlannedKind.CLEANUP, site, level
        )
        job.entries = [
            Remove(SiteUrl(site, f"file://{self.stager.places.run_dir(site)}"), recursive=True)
        ]
        job.parents = touching - waited_for
        return job


def _depend_on_create_dir(
    todo: Iterable[ExecutableJob],
    jobs: Mapping[str, ExecutableJob],
    created: Mapping[str, ExecutableJob],
) -> None:
    """A job waits for a site's directory unless a job it waits for already does."""
    for job in todo:
        for site in job.touches:
            if site not in created:
                continue
            if not any(site in jobs[p].touches for p in job.parents if p in jobs):
                job.parents.add(created[site].name)


def _parents_first(jobs: Mapping[str, ExecutableJob]) -> dict[str, ExecutableJob]:
    graph = {name: sorted(job.parents) for name, job in jobs.items()}
    return {name: jobs[name] for name in TopologicalSorter(graph).static_order()}


def _label(name: str) -> str:
    return name.replace(".", "_")


def _by_name(jobs: Iterable[ExecutableJob], workflow: str) -> dict[str, ExecutableJob]:
    out: dict[str, ExecutableJob] = {}
    for job in jobs:
        if job.name in out:
            raise InputError(
                f"workflow {workflow!r}: two jobs would both be named {job.name!r}; "
                "give one of them another id"
            )
        out[job.name] = job
    return out
