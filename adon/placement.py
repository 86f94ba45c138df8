"""Site selection wired up: catalogs and archive in, a mapping out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from monitors.archive import Archive
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology
from pegasus_hooks.planner.layout import check_mapping
from site_selector.estimates import MeasurementSource, NoMeasurements, World, believe
from site_selector.fields import did_you_mean
from site_selector.inputs import Inputs, load_inputs
from site_selector.mapping import map_workflow
from site_selector.placement import Mapping as SiteMapping


@dataclass(frozen=True, slots=True)
class Placed:
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
    seed: int = 0,
    now: float | None = None,
) -> Placed:
    """Map a workflow with what is known now. Raises InputError."""
    world = believe(
        inputs,
        source or NoMeasurements(),
        now=time.time() if now is None else now,
        topology=topology,
        pool=pool,
        idle=idle,
        output_site=output_site,
    )
    return Placed(inputs, world, map_workflow(inputs, world, output_site, seed))


def place_files(
    workflow: Path,
    *,
    sites: Path | None = None,
    replicas: Path | None = None,
    transformations: Path | None = None,
    output_site: str | None = None,
    archive: Path | None = None,
    seed: int = 0,
) -> Placed:
    """:func:`place` for files and an archive. Raises InputError, also for a missing archive."""
    inputs = load_inputs(workflow, sites, replicas, transformations)
    if output_site is not None and output_site not in inputs.sites:
        raise InputError(
            f"output site {output_site!r} is not in the site catalog, which lists "
            f"{', '.join(inputs.sites)}{did_you_mean(output_site, inputs.sites)}"
        )
    if archive is None:
        return place(inputs, output_site=output_site, seed=seed)
    if not archive.exists():
        raise InputError(f"{archive}: found no such file, expected an archive of measurements")
    with Archive(archive, read_only=True) as measurements:
        return place(inputs, output_site=output_site, source=measurements, seed=seed)


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
