"""Site selection wired up: catalogs and archive in, a mapping out."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adon.config.adon_yml import load_config
from adon.planning.holdings import BROKER_TIMEOUT_S, Say, ask, ignore, read_holdings
from adon.planning.plans import plans_of
from condor_plugins.pool.sitepool import SitePool
from monitors.archive.estimate_sources import EstimateSnapshot, of_archive
from monitors.archive.estimate_sources import ask as estimates
from network_provisioner.base.database_url import place as at
from network_provisioner.base.errors import InputError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.credentials import from_environment
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.templates.match import Specification, match
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.layout import check_mapping
from pegasus_hooks.planner.submitfile import CONFIGURATION
from site_selector.catalogs.pegasus_sites import all_sites
from site_selector.catalogs.properties import DATA_CONFIGURATION
from site_selector.catalogs.sources import Sources
from site_selector.estimates.estimating import estimate_sites, estimate_world, subjects
from site_selector.estimates.input_sizes import with_history
from site_selector.estimates.running import Live
from site_selector.estimates.world import MeasurementSource, NoMeasurements, World
from site_selector.inputs import CLEANS, Inputs, known_site, read_inputs, size_note
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.mapper import map_workflow
from site_selector.mapping.placement import Mapping as SiteMapping
from site_selector.mapping.takes import plan_of
from site_selector.problem import build_problem

_ESTIMATES_TIMEOUT_S = 8.0  # a busy broker reads a large archive for a part of a second


@dataclass(frozen=True, slots=True)
class PlacedWorkflow:
    """A mapping, with what it was made from."""

    inputs: Inputs
    world: World
    mapping: SiteMapping


def place(
    inputs: Inputs,
    *,
    output_site: str | None,
    source: MeasurementSource | None = None,
    topology: Topology | None = None,
    pool: Mapping[str, int] | None = None,
    idle: Mapping[str, int] | None = None,
    live: Live | None = None,
    seed: int = 0,
    now: float | None = None,
    alternatives: bool = True,
) -> PlacedWorkflow:
    """Map a workflow with what is known now. Raises InputError.

    ``alternatives=False`` leaves out terms and reasons, which cost time for large workflows.

    ``pool``: worker slots per site, ``idle``: those of them that would take a job at once, for
    which no job waits; ``live`` tells all that and more, and comes before both. What a job waits at
    an idle site is little and not nothing: ``idle`` counts where waits of this pool were measured.
    """
    at = time.time() if now is None else now
    live = live or Live(topology=topology)
    measured = source or NoMeasurements()
    if live.pool is None and pool is not None:
        known = any(measured.estimate("queue_wait", site, at) for site in pool)
        live = replace(live, pool=site_pools(pool, (idle or {}) if known else {}, at))
    inputs = with_history(inputs, measured, at)
    world = estimate_world(inputs, measured, now=at, live=live, output_site=output_site)
    mapping = map_workflow(inputs, world, output_site, seed, alternatives=alternatives)
    return PlacedWorkflow(inputs, world, mapping)


def site_pools(pool: Mapping[str, int], idle: Mapping[str, int], at: float) -> dict[str, SitePool]:
    """Slots per site as a pool of which only is known that no job waits for ``idle``."""
    return {
        site: SitePool(
            site, at, slots, idle_slots=idle.get(site, 0), ahead=0.0 if idle.get(site) else None
        )
        for site, slots in pool.items()
    }


@dataclass(frozen=True, slots=True)
class PlacementInputs:
    """What a workflow is placed with: its catalogs (those left out are inside it or beside it),
    where its jobs may run and its results go, Pegasus's properties, directories of inputs, data
    configuration and staging site, the ``order`` that its jobs start in ("rank" or "pegasus"), and
    Pegasus's ``cleanup``;
    ``archive``, ``config``, ``pool``, ``broker`` and ``holdings`` are whom :func:`sources` asks.
    Without a workflow, ``sites`` is what is meant."""

    workflow: Path | None
    sites: Path | None = None
    replicas: Path | None = None
    transformations: Path | None = None
    execution_sites: Sequence[str] | None = None
    output_site: str | None = None
    data_configuration: str | None = None
    staging_site: str | None = None
    order: str = "rank"
    cleanup: str = CLEANS[0]
    conf: Path | None = None
    input_dirs: Sequence[Path] = ()
    archive: str | Path | None = None
    config: Path | None = None
    pool: str | None = None
    broker: str | None = None
    holdings: Path | None = None

    def sources(self) -> Sources:
        """The files among them."""
        return Sources(
            self.workflow or Path("workflow.yml"),
            self.sites,
            self.replicas,
            self.transformations,
            self.conf,
            self.input_dirs,
            self.data_configuration,
            self.staging_site,
        )

    def inputs(self, say: Say) -> Inputs:
        """The workflow with its catalogs; ``say`` gets what a user should know of them. Raises
        InputError."""
        if self.workflow is None:
            raise InputError("found no workflow, expected one to place")
        # Where no pegasus-plan is found, the embedded planner plans, as it alone can.
        default = DATA_CONFIGURATION if pegasus_plan.find_planner() else CONFIGURATION
        read = read_inputs(self.sources(), self.execution_sites, default)
        for line in read.notes:
            say(line)
        for site in self.output_site.split(",") if self.output_site is not None else ():
            known_site(site, read.sites, "output site")
        read = replace(read, by_level=self.order == "pegasus", cleanup=self.cleanup)
        return read if self.config is None else within_template(read, self.config, say)

    def read_sources(
        self, say: Say, sites: Collection[str], transformations: Collection[str] = ()
    ) -> tuple[EstimateSnapshot, Live]:
        """See :func:`sources`."""
        measured, live = sources(
            sites,
            transformations,
            archive=self.archive,
            config=self.config,
            pool=self.pool,
            broker=self.broker,
            holdings=self.holdings,
            say=say,
        )
        if measured.note:  # who could not be asked for them is not asked for plans
            return measured, live
        return measured, replace(live, plans=plans_of(self.config).read())


def within_template(inputs: Inputs, config: Path, say: Say) -> Inputs:
    """With what the workflow's template in adon.yml allows of compute. Raises InputError."""
    templates = templates_from_dict(load_config(config).templates).values()
    template = match(templates, inputs.workflow.name, Specification()).template
    within = inputs if template is None else inputs.within(template)
    for line in within.notes[len(inputs.notes) :]:
        say(line)
    return within


def place_files(
    files: PlacementInputs, *, seed: int = 0, say: Say = ignore, alternatives: bool = True
) -> PlacedWorkflow:
    """:func:`place` for files. Raises InputError, also for a missing archive."""
    inputs = files.inputs(say)
    measured, live = files.read_sources(say, *subjects(inputs, files.output_site))
    placed = place(
        inputs,
        output_site=files.output_site,
        source=measured,
        live=live,
        seed=seed,
        alternatives=alternatives,
    )
    if placed.inputs.estimated:
        say(size_note(placed.inputs))
    return placed


def estimate_files(files: PlacementInputs, say: Say) -> World:
    """What is assumed for a workflow, without mapping it; without a workflow: of the site catalog
    and the paths between its sites. Raises InputError, also where there is neither."""
    if files.workflow is not None:
        inputs = files.inputs(say)
        output = files.output_site
        measured, live = files.read_sources(say, *subjects(inputs, output))
        now = time.time()
        inputs = with_history(inputs, measured, now)
        if inputs.estimated:
            say(size_note(inputs))
        return estimate_world(inputs, measured, now=now, live=live, output_site=output)
    if files.sites is None:
        raise InputError("found neither a workflow nor --sites, expected one of them to show")
    everywhere = all_sites(None, files.sources(), say)
    catalog = {name: site for name, site in everywhere.items() if site.declared}
    measured, live = files.read_sources(say, catalog)
    return estimate_sites(catalog, measured, now=time.time(), live=live)


def sources(
    sites: Collection[str],
    transformations: Collection[str] = (),
    *,
    archive: str | Path | None = None,
    config: Path | None = None,
    pool: str | None = None,
    broker: str | None = None,
    holdings: Path | None = None,
    say: Say = ignore,
) -> tuple[EstimateSnapshot, Live]:
    """Everyone is asked besides the catalogs: measurements of these sites, the paths between them
    and transformations, and what runs now.

    ``archive`` is read itself, ``pool`` is a collector (``host:port``, "" for that of
    CONDOR_CONFIG), ``broker`` a URL, ``holdings`` a file of them. What is not given is taken from
    ``config`` (``adon.yml``), if that is: pool, holdings, network, the broker, if one runs there,
    and, where it does not answer, its archive. ``say`` gets one line for each that was asked and
    did not answer. Raises InputError, also where ``archive`` is no archive.
    """
    topology, token, rests, now = None, None, False, time.time()
    fallback: str | Path | None = None
    configured = ""
    if config is not None:
        loaded = load_config(config)
        topology, fallback = topology_from_dict(loaded.topology), at(loaded.broker.archive)
        if pool is None and loaded.pool is not None:
            pool = loaded.pool.collector
        configured = loaded.pool.holdings if loaded.pool is not None else ""
        if broker is None:
            broker, rests, token = loaded.broker_url, True, loaded.broker.token
    client, patient = None, None
    if broker is not None:
        own, tls = from_environment(os.environ)
        client = BrokerClient(broker, BROKER_TIMEOUT_S, token or own, tls)
        patient = BrokerClient(broker, _ESTIMATES_TIMEOUT_S, token or own, tls)
    live = ask(pool, client, topology=topology, say=say, broker_may_rest=rests)
    if holdings is not None:
        live = live.with_held(read_holdings(holdings, sites, live.topology).running)
    elif configured:
        try:
            live = live.with_held(read_holdings(Path(configured), sites, live.topology).running)
        except InputError as error:
            say(f"{error}; only running jobs are assumed to hold resources")
    if isinstance(archive, Path):
        if not archive.exists():
            raise InputError(f"{archive}: found no such file, expected an archive of measurements")
        return EstimateSnapshot(of_archive(archive, sites, transformations, now)), live
    answers = live.use and archive is None  # a source without a network is not asked again
    known = estimates(
        patient if answers else None, archive or fallback, sites, transformations, now
    )
    if known.note:
        say(known.note)
    return known, live


def leave_plan(config: Path, submit_dir: Path, placed: PlacedWorkflow) -> None:
    """Leave what a workflow that was planned into ``submit_dir`` will take. Raises InputError for
    an invalid configuration."""
    problem = build_problem(placed.inputs, placed.world, placed.mapping.output_site)
    place = {name: number for number, name in enumerate(problem.places)}
    sites = [place[placed.mapping.sites[job]] for job in problem.jobs]
    run = Estimator(problem)(sites)
    plans = plans_of(config, str(submit_dir.absolute()))
    for _ in range(plans.TRIALS):
        plans.read()
        if plans.leave(plan_of("", problem, sites, run, time.time())):
            return


def saved_mapping(file: Path, files: PlacementInputs, say: Say) -> tuple[Inputs, SiteMapping]:
    """A mapping that was saved, with the files it is for. Raises InputError if they do not fit:
    another workflow, a job too many or too few, a site that cannot run its job."""
    inputs = replace(files, execution_sites=("*", "local")).inputs(say)
    mapping = SiteMapping.load(file)
    if mapping.workflow != inputs.workflow.name:
        raise InputError(
            f"{file}: found a mapping of workflow {mapping.workflow!r}, expected one of "
            f"{inputs.workflow.name!r}"
        )
    left = inputs.workflow.entries.keys() - inputs.workflow.jobs.keys()
    kept = tuple([placed for placed in mapping.placements if placed.job not in left])
    mapping = replace(mapping, placements=kept)
    check_mapping(inputs, mapping.sites)
    return inputs, mapping
