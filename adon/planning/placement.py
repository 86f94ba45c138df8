"""Site selection wired up: catalogs and archive in, a mapping out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adon.config.adon_yml import load_config
from adon.planning.live import Live, Say, ask
from condor_plugins.pool.sitepool import SitePool
from monitors.archive.archive import Archive, ArchiveError
from monitors.archive.knowledge import Knowledge
from network_provisioner.base.errors import InputError
from network_provisioner.client.credentials import from_environment
from network_provisioner.stores.database_url import place as at
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Topology
from pegasus_hooks.planner.layout import check_mapping
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.entries import sites_of
from site_selector.estimates.beliefs import MeasurementSource, NoMeasurements, World
from site_selector.estimates.believe import believe, believe_sites
from site_selector.inputs import Inputs, known_site, load_inputs
from site_selector.mapping.mapper import map_workflow
from site_selector.mapping.placement import Mapping as SiteMapping


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
    which nobody waits; ``live`` tells all that and more, and comes before both. What a job waits at
    an idle site is little and not nothing: ``idle`` counts where waits of this pool were measured.
    """
    at = time.time() if now is None else now
    told = live or Live(topology=topology)
    measured = source or NoMeasurements()
    if told.pool is None and pool is not None:
        known = any(measured.estimate("queue_wait", site, at) for site in pool)
        told = replace(told, pool=counted(pool, (idle or {}) if known else {}, at))
    world = believe(
        inputs,
        measured,
        now=at,
        topology=told.topology,
        pool=told.pool,
        in_use_bps=told.in_use_bps,
        use=told.use,
        output_site=output_site,
    )
    mapping = map_workflow(inputs, world, output_site, seed, alternatives=alternatives)
    return PlacedWorkflow(inputs, world, mapping)


def counted(pool: Mapping[str, int], idle: Mapping[str, int], at: float) -> dict[str, SitePool]:
    """Slots per site as a pool of which no more is known than that nobody waits for ``idle``."""
    return {
        site: SitePool(
            site, at, slots, idle_slots=idle.get(site, 0), ahead=0.0 if idle.get(site) else None
        )
        for site, slots in pool.items()
    }


@dataclass(frozen=True, slots=True)
class PlacementInputs:
    """What a workflow is placed with: its catalogs (those left out stand inside it or beside it),
    where its jobs may run and its results go; ``archive``, ``config``, ``pool`` and ``broker`` are
    whom :func:`sources` asks. Without a workflow, ``sites`` is what is meant."""

    workflow: Path | None
    sites: Path | None = None
    replicas: Path | None = None
    transformations: Path | None = None
    execution_sites: Sequence[str] | None = None
    output_site: str | None = None
    archive: str | Path | None = None
    config: Path | None = None
    pool: str | None = None
    broker: str | None = None

    def inputs(self) -> Inputs:
        """The workflow with its catalogs. Raises InputError."""
        if self.workflow is None:
            raise InputError("found no workflow, expected one to place")
        return load_inputs(
            self.workflow, self.sites, self.replicas, self.transformations, self.execution_sites
        )

    def asked(
        self, say: Say | None
    ) -> AbstractContextManager[tuple[MeasurementSource | None, Live]]:
        """See :func:`sources`."""
        return sources(self.archive, self.config, self.pool, self.broker, say)


def place_files(
    files: PlacementInputs, *, seed: int = 0, say: Say | None = None, alternatives: bool = True
) -> PlacedWorkflow:
    """:func:`place` for files. Raises InputError, also for a missing archive."""
    inputs = files.inputs()
    if files.output_site is not None:
        known_site(files.output_site, inputs.sites, "output site")
    with files.asked(say) as (measured, live):
        return place(
            inputs,
            output_site=files.output_site,
            source=measured,
            live=live,
            seed=seed,
            alternatives=alternatives,
        )


def believe_files(files: PlacementInputs, say: Say | None = None) -> World:
    """What is believed for a workflow, without mapping it; without a workflow: of the site catalog
    and the paths between its sites. Raises InputError, also where there is neither."""
    if files.workflow is not None:
        gather: Callable[..., World] = partial(
            believe, files.inputs(), output_site=files.output_site
        )
    elif files.sites is not None:
        catalog = sites_of(read_document(files.sites, "Pegasus 5 site catalog"))
        gather = partial(believe_sites, catalog)
    else:
        raise InputError("found neither a workflow nor --sites, expected one of them to show")
    with files.asked(say) as (measured, live):
        return gather(
            measured,
            now=time.time(),
            topology=live.topology,
            pool=live.pool,
            in_use_bps=live.in_use_bps,
            use=live.use,
        )


@contextmanager
def sources(
    archive: str | Path | None = None,
    config: Path | None = None,
    pool: str | None = None,
    broker: str | None = None,
    say: Say | None = None,
) -> Iterator[tuple[MeasurementSource | None, Live]]:
    """Everyone to be asked beside the catalogs: measurements, open as long as the context lasts,
    and what runs now.

    ``pool`` is a collector (``host:port``, "" for that of CONDOR_CONFIG), ``broker`` a URL. What is
    not given is taken from ``config`` (``adon.yml``), if that is: archive, pool, network, and the
    broker, if one runs there. ``say`` gets one line for each that was asked and did not answer.
    Raises InputError.
    """
    topology, configured_token = None, None
    rests = False
    if config is not None:
        loaded = load_config(config)
        learnt, topology = configured(config)
        archive = archive or learnt
        if pool is None and loaded.pool is not None:
            pool = loaded.pool.collector
        if broker is None:
            scheme = "http" if loaded.security.tls is None else "https"
            broker, rests = f"{scheme}://{loaded.broker.listen}", True
            configured_token = loaded.broker.token
    if isinstance(archive, Path) and not archive.exists():
        raise InputError(f"{archive}: found no such file, expected an archive of measurements")
    token, tls = (None, None) if broker is None else from_environment(os.environ)
    live = ask(
        pool,
        broker,
        token=configured_token or token,
        tls=tls,
        topology=topology,
        say=say,
        broker_may_rest=rests,
    )
    if archive is None:
        yield None, live
    else:
        with opened(archive, say) as measurements:
            yield Knowledge(measurements) if measurements else None, live


@contextmanager
def opened(archive: str | Path, say: Say | None) -> Iterator[Archive | None]:
    """An archive for reading; None, and a line to ``say``, for a database that does not answer.
    Raises InputError for what is no archive."""
    try:
        found = Archive(archive, read_only=True)
    except ArchiveError as error:
        if isinstance(archive, Path):
            raise
        if say is not None:
            say(f"{error}; measurements are left out")
        yield None
    else:
        with found:
            yield found


def configured(config: Path) -> tuple[str | Path | None, Topology]:
    """The archive that ``adon.yml`` names, None before the first measurement, and its network.

    A relative path counts from the file's own folder: a planner is started anywhere. Raises
    InputError.
    """
    loaded = load_config(config)
    archive = at(loaded.broker.archive, config.parent)
    there = not isinstance(archive, Path) or archive.exists()
    return archive if there else None, topology_from_dict(loaded.topology)


def saved(
    file: Path,
    workflow: Path,
    *,
    sites: Path | None = None,
    replicas: Path | None = None,
    transformations: Path | None = None,
) -> tuple[Inputs, SiteMapping]:
    """A mapping that was saved, with the files it is for. Raises InputError where they do not fit:
    another workflow, a job too many or too few, a site that cannot run its job."""
    inputs = load_inputs(workflow, sites, replicas, transformations)
    mapping = SiteMapping.load(file)
    if mapping.workflow != inputs.workflow.name:
        raise InputError(
            f"{file}: found a mapping of workflow {mapping.workflow!r}, expected one of "
            f"{inputs.workflow.name!r}"
        )
    check_mapping(inputs, mapping.sites)
    return inputs, mapping
