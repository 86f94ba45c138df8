"""From the options of a command to a placed workflow."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adon.planning.placement import Placed
    from site_selector.estimates.beliefs import World

OUTPUT_SITE = "local"


def placed(args: argparse.Namespace, alternatives: bool = True) -> Placed:
    """The workflow that the options name, mapped with what they say is known. Raises InputError.

    ``alternatives=False`` leaves out terms and reasons.
    """
    from adon.planning.placement import place_files

    return place_files(
        args.workflow, **_files(args), **_asked(args), seed=args.seed, alternatives=alternatives
    )


def believed(args: argparse.Namespace) -> World:
    """What is believed of the sites of a workflow, which is not mapped, or of a site catalog alone.

    Raises InputError, also where the options name neither.
    """
    from adon.planning.placement import believe_files
    from network_provisioner.base.errors import InputError

    if args.workflow is not None:
        return believe_files(args.workflow, **_files(args), **_asked(args))
    if args.sites is None:
        raise InputError("found neither a workflow nor --sites, expected one of them to show")
    return believe_files(None, sites=args.sites, **_asked(args))


def _files(args: argparse.Namespace) -> dict[str, Any]:
    """What the workflow is read with."""
    return {
        "sites": args.sites,
        "replicas": args.replicas,
        "transformations": args.transformations,
        "execution_sites": args.execution_sites,
        "output_site": args.output_site or OUTPUT_SITE,
    }


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    """Who is asked beside the catalogs."""
    return {
        "archive": args.archive,
        "config": args.config,
        "pool": args.pool,
        "broker": args.broker,
        "say": note,
    }


def note(line: str) -> None:
    """One line on standard error about something that is done without."""
    print(f"adon: {' '.join(line.split())}", file=sys.stderr)
