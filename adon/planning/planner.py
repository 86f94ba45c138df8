"""Which planner plans: Pegasus's own where it is on PATH, the embedded one elsewhere."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from network_provisioner.base.errors import InputError
from pegasus_hooks import pegasus_plan
from pegasus_hooks.pegasus_plan import PlannerRunner
from pegasus_hooks.planner.model import Options, PlannedWorkflow
from pegasus_hooks.planner.plan import plan
from site_selector.catalogs.properties import DATA_CONFIGURATION
from site_selector.catalogs.sources import Sources
from site_selector.inputs import Inputs
from site_selector.mapping.placement import Mapping, write_placements

_log = logging.getLogger(__name__)


def plan_workflow(
    inputs: Inputs,
    sources: Sources,
    mapping: Mapping,
    base_dir: Path,
    output_site: str,
    hooks: Path | None = None,
    options: Options | None = None,
    run: PlannerRunner | None = None,
    selector: str = "",
) -> PlannedWorkflow:
    """A submit directory that follows ``mapping``, with a file that says why.

    ``options`` are the embedded planner's; ``run`` runs Pegasus's, which, where a ``selector`` of
    its own is named, maps by that.

    Raises InputError, MissingError.
    """
    if pegasus_plan.find_planner() is None:
        planned = plan(
            inputs,
            sources,
            mapping.sites,
            base_dir,
            output_site,
            hooks,
            options,
            mapping.priorities,
        )
    else:
        # For what has no profile: Pegasus has properties give way to those.
        configuration = sources.configuration() or DATA_CONFIGURATION
        planned = pegasus_plan.plan(
            sources, mapping, base_dir, output_site, hooks, configuration, run, selector
        )
    try:
        write_placements(planned.submit_dir, mapping, time.time())
    except InputError as error:  # the workflow is planned all the same
        _log.warning("the reasons for its jobs' sites are not recorded: %s", error)
    return planned
