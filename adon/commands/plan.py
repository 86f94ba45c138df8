"""Plan a workflow at the sites that ADON chose, with its hooks around every transfer."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon plan``."""
    parser = nouns.add_parser("plan", help=__doc__, description=__doc__)
    parser.add_argument("workflow", type=Path, help="abstract workflow, catalogs beside it")
    parser.add_argument("--output-site", default="local", help="where results go (%(default)s)")
    parser.add_argument(
        "--dir", type=Path, default=Path("submit"), help="base of submit directories"
    )
    parser.add_argument("--hooks", type=Path, help="configuration of the hooks (JSON)")
    parser.add_argument("--mapping", type=Path, help="a saved mapping (default: map now)")
    parser.add_argument("--archive", type=Path, help="measurements of earlier runs (SQLite)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same mapping")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from adon.placement import place_files
    from adon.planning import plan_workflow
    from pegasus_hooks.planner.model import Sources
    from site_selector.inputs import load_inputs
    from site_selector.placement import Mapping

    if args.mapping:
        inputs, mapping = load_inputs(args.workflow), Mapping.load(args.mapping)
    else:
        placed = place_files(
            args.workflow, output_site=args.output_site, archive=args.archive, seed=args.seed
        )
        inputs, mapping = placed.inputs, placed.mapping
    planned = plan_workflow(
        inputs, Sources(args.workflow), mapping, args.dir, args.output_site, args.hooks
    )
    print(planned.output)
    print(planned.submit_dir)
    return 0
