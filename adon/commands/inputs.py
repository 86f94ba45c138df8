"""From the options of a command to a placed workflow."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adon.placement import Placed

OUTPUT_SITE = "local"


def placed(args: argparse.Namespace) -> Placed:
    """The workflow that the options name, mapped with what they say is known. Raises InputError."""
    from adon.placement import place_files

    return place_files(
        args.workflow,
        sites=args.sites,
        replicas=args.replicas,
        transformations=args.transformations,
        output_site=args.output_site or OUTPUT_SITE,
        archive=args.archive,
        seed=args.seed,
    )
