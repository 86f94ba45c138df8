"""How long the jobs and bytes of a planned DAG take, as site selection estimates it.

The planner leaves the workflow and its catalogs in the submit directory, so what a mapping was
made from is there again: sizes, run times per site, workers, queues and paths come from
:mod:`site_selector.estimates.estimating`. Where a planner left less, less is assumed: ``note``
says what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitors.workflows.facts.attempts import runtime_subject
from monitors.workflows.planned import job_files
from monitors.workflows.planned.dag import Node, PlannedDag
from monitors.workflows.planned.submit_dir import JobKind
from network_provisioner.base.errors import InputError
from network_provisioner.topology.graph import Topology
from pegasus_hooks.prepost import sizes
from site_selector.catalogs.entries import SUBMIT_SITE, Site
from site_selector.catalogs.pegasus_sites import all_sites
from site_selector.catalogs.sources import Sources
from site_selector.estimates.estimating import estimate_sites, estimate_world, subjects
from site_selector.estimates.rates import DEFAULT_BANDWIDTH_BPS
from site_selector.estimates.running import Live
from site_selector.estimates.world import MeasurementSource, NoMeasurements, World
from site_selector.inputs import Inputs, read_inputs
from site_selector.problem import NEVER_S, build_problem, file_sizes

_KINDS = ("sites", "replicas", "transformations")
DEFAULT_RUN_S = 60.0  # of a job of which nothing is known
ADDED_S = 2.0  # of what Pegasus adds besides transfers: directories, clean-up, registration


@dataclass(frozen=True, slots=True)
class JobEstimates:
    """Seconds, bytes and bits per second.

    ``run_s`` of each job of the DAG by name; ``workers`` and ``queue_s`` (T_q) by site;
    ``rate_bps`` of a path, and ``setup_s``, what a transfer takes besides its bytes, by (source,
    destination); ``sizes`` of files by name; ``note`` what could not be read, "" if all was.
    """

    run_s: Mapping[str, float] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    queue_s: Mapping[str, float] = field(default_factory=dict)
    rate_bps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    setup_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def rate(self, pair: tuple[str, str]) -> float:
        """Bits per second between two sites."""
        return self.rate_bps.get(pair, DEFAULT_BANDWIDTH_BPS)


class EstimateReader:
    """What is assumed of the jobs of one DAG. The planner's files are read once; what was
    measured, and what the run itself has written so far, each time anew."""

    def __init__(self, dag: PlannedDag, topology: Topology | None = None) -> None:
        self._dag = dag
        self._live = Live(topology=topology)
        self._inputs: Inputs | None = None
        self._catalog: Mapping[str, Site] = {}
        self._note = ""
        files = _planner_inputs(dag.submit_dir)
        try:
            self._inputs = read_inputs(files, ("*", SUBMIT_SITE))
        except InputError as error:
            self._note = f"sizes and run times by the archive alone: {error}"
            try:
                if files.catalog("site") is None:
                    raise InputError("found no site catalog")
                self._catalog = all_sites(None, files, lambda _: None)
            except InputError as other:
                self._note += f"; sites and paths by default: {other}"

    def subjects(self) -> tuple[set[str], set[str]]:
        """The sites and the transformations that a source is asked about."""
        nodes = self._dag.nodes.values()
        places, names = ([*self._catalog], []) if self._inputs is None else subjects(self._inputs)
        return (
            {*places, *(node.site for node in nodes)},
            {*names, *(name for node in nodes for name in node.runs)},
        )

    def __call__(self, source: MeasurementSource | None, now: float) -> JobEstimates:
        """With what ``source`` has by the Unix second ``now``."""
        measured = source or NoMeasurements()
        jobs: dict[str, float] = {}
        files: dict[str, float] = {}
        if self._inputs is None:
            world = estimate_sites(self._catalog, measured, now=now, live=self._live)
        else:
            world = estimate_world(self._inputs, measured, now=now, live=self._live)
            files.update(file_sizes(self._inputs, world)[0])
            jobs = _mapped(self._dag, self._inputs, world)
        files.update(sizes.of_workflow(self._dag.submit_dir))
        nodes = self._dag.nodes.values()
        return JobEstimates(
            {node.name: jobs.get(node.name) or _run_s(node, measured, now) for node in nodes},
            {name: max(1, int(site.workers.value)) for name, site in world.sites.items()},
            {name: min(site.queue_wait.value, NEVER_S) for name, site in world.sites.items()},
            {pair: path.rate_bps for pair, path in world.paths.items() if path.rate_bps > 0},
            {pair: path.start_s for pair, path in world.paths.items()},
            files,
            "; ".join(filter(None, (self._note, world.note))),
        )


def _planner_inputs(submit_dir: Path) -> Sources:
    """What the planner was given, as it lies in the submit directory."""
    dump = job_files.braindump(submit_dir)
    given = Path(dump.get("dax", "workflow.yml"))
    copies = (submit_dir / given.name, submit_dir / "workflow.yml")
    conf = submit_dir / dump.get("properties", "pegasus.properties")
    catalogs = (submit_dir / "catalogs" / f"{kind}.yml" for kind in _KINDS)
    sites, replicas, transformations = (file if file.is_file() else None for file in catalogs)
    return Sources(
        next((copy for copy in copies if copy.exists()), given),
        sites,
        replicas,
        transformations,
        conf if conf.is_file() else None,
    )


def _mapped(dag: PlannedDag, inputs: Inputs, world: World) -> dict[str, float]:
    """Seconds of each job that is one of the abstract workflow's, where it was planned to run."""
    problem = build_problem(inputs, world)
    row = {job: number for number, job in enumerate(problem.jobs)}
    column = {site: number for number, site in enumerate(problem.places[: problem.n_sites])}
    mapped = {}
    for node in dag.nodes.values():
        tasks = [task.id for task in node.tasks] or [node.task]
        if all(task in row for task in tasks) and node.site in column:
            times = [float(problem.compute_s[row[task], column[node.site]]) for task in tasks]
            if 0 < sum(times) < NEVER_S:
                mapped[node.name] = sum(times)
    return mapped


def _run_s(node: Node, measured: MeasurementSource, now: float) -> float:
    if node.kind is not JobKind.COMPUTE and node.kind is not JobKind.SUBWORKFLOW:
        return 0.0 if node.first else ADDED_S
    known = {
        name: measured.estimate("runtime", runtime_subject(name, node.site), now)
        for name in set(node.runs)
    }
    seconds = (known[name] for name in node.runs)
    return sum(
        DEFAULT_RUN_S if estimate is None else max(0.0, estimate.value) for estimate in seconds
    )
