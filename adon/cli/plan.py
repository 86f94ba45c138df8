"""``adon plan``: a submit directory that follows ADON's mapping."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.options import OUTPUT_SITE, estimated_world, place_workflow, placement_inputs
from adon.cli.output import note, print_fields
from adon.cli.parsing import Noun, add_inputs, add_output, option, whole
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from adon.planning.placement import PlacedWorkflow
    from site_selector.inputs import Inputs
    from site_selector.mapping.placement import Mapping
    from site_selector.replicas.order import Paths


NOUN = Noun("plan")


@NOUN.command(
    add_inputs,
    lambda parser: parser.set_defaults(cleanup="leaf"),  # of both planners
    option("--dir", "folder of submit directories", "DIR", Path, default=Path("submit")),
    option("--hooks", "the hooks' configuration, JSON (default: no hooks)", "FILE", Path),
    option(
        "--defer", "with the embedded planner: while a path is queued and the template defers, "
        "DAGMan runs the hook again after this time (default: the hook waits)", "SECONDS",
        whole(1, 86_400),
    ),
    option("--mapping", "a saved mapping (default: map now)", "FILE", Path),
    add_output,
)  # fmt: skip
def _run(args: argparse.Namespace) -> int:
    """Plan a workflow at the sites that ADON chooses, with its hooks around every transfer.

    Uses pegasus-plan if it is on PATH. Otherwise the embedded planner writes a submit directory of
    the same form; it refuses sub-workflows, clustering and containers.

    Examples:
      adon plan workflow.yml                               no hooks: transfers run without a path
      adon plan workflow.yml --hooks hooks.json            {"broker": "http://127.0.0.1:8470"}
      adon plan workflow.yml --mapping mapping.json        what 'adon site map --save' wrote
    """
    from adon.planning.placement import leave_plan
    from adon.planning.planner import plan_workflow
    from pegasus_hooks.planner.model import Options
    from site_selector.explain.text import summary_text

    if args.hooks is not None:
        _check_hooks(args.hooks)
    inputs, mapping, paths, placement = _mapped(args)
    planned = plan_workflow(
        inputs,
        placement_inputs(args).sources(),
        mapping,
        args.dir,
        args.output_site or mapping.output_site or OUTPUT_SITE,
        args.hooks,
        Options(defer_s=args.defer, paths=paths),
    )
    if placement is not None and args.config is not None:
        leave_plan(args.config, planned.submit_dir, placement)
    record = {
        "planner": planned.planner,
        "submit_dir": str(planned.submit_dir),
        "dag": str(planned.dag),
        "wf_uuid": planned.wf_uuid,
        "hooks": None if args.hooks is None else str(args.hooks),
    }
    hooks = "without hooks: no paths are asked for, and no transfers are recorded"
    lines = (
        summary_text(mapping),
        planned.output,
        *([hooks] if args.hooks is None else ()),
        f"to follow it: adon monitor run {planned.submit_dir}",
        str(planned.submit_dir),
    )
    return print_fields(args, record, lambda: "\n".join(lines))


def _check_hooks(file: Path) -> None:
    """What is wrong with it is said now, and not by every hook of the run. Raises InputError."""
    from network_provisioner.client import hookconfig
    from network_provisioner.client.broker import BrokerClient

    config = hookconfig.load(file)
    try:
        BrokerClient(config.broker)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _mapped(
    args: argparse.Namespace,
) -> tuple[Inputs, Mapping, Paths, PlacedWorkflow | None]:
    """And what was placed now, None if the mapping is a saved one."""
    from adon.planning.placement import saved_mapping

    if args.mapping is None:
        placement = place_workflow(args)
        return placement.inputs, placement.mapping, placement.world.paths, placement
    inputs, mapping = saved_mapping(args.mapping, placement_inputs(args), note)
    several = any(len(places) > 1 for places in inputs.places.values())
    return inputs, mapping, estimated_world(args).paths if several else {}, None
