"""Which planner plans: Pegasus's own where it is on PATH, the embedded one elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

from pegasus_hooks.planner import pegasus_plan
from pegasus_hooks.planner.model import Options, PlannedWorkflow, Sources
from pegasus_hooks.planner.plan import plan
from site_selector.inputs import Inputs
from site_selector.placement import Mapping


def plan_workflow(
    inputs: Inputs,
    sources: Sources,
    mapping: Mapping,
    base_dir: Path,
    output_site: str,
    hooks: Path | None = None,
    options: Options | None = None,
) -> PlannedWorkflow:
    """A submit directory that follows ``mapping``. Raises InputError, MissingError."""
    if shutil.which("pegasus-plan"):
        return pegasus_plan.plan(inputs, sources, mapping, base_dir, output_site, hooks, options)
    return plan(inputs, sources, mapping.sites, base_dir, output_site, hooks, options)
