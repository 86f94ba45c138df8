"""Choose sites for a workflow's jobs, and say why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adon.placement import Placed


def add(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``adon site map|explain|show``."""
    verbs = nouns.add_parser("site", help=__doc__, description=__doc__).add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    mapper = verbs.add_parser("map", help="map a whole workflow to sites")
    _add_inputs(mapper)
    mapper.add_argument("--save", type=Path, metavar="FILE", help="write the mapping as JSON")
    mapper.add_argument(
        "--hints", type=Path, metavar="FILE",
        help="write a copy of the workflow with execution.site hints",
    )  # fmt: skip
    mapper.set_defaults(run=_map)
    explain = verbs.add_parser("explain", help="every candidate site with all terms, and why")
    _add_inputs(explain)
    explain.add_argument("--job", help="only this job")
    explain.set_defaults(run=_explain)
    show = verbs.add_parser("show", help="what is believed of each site and path, and why")
    _add_inputs(show)
    show.set_defaults(run=_show)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", type=Path, help="abstract workflow (Pegasus 5 YAML)")
    for name in ("sites", "replicas", "transformations"):
        parser.add_argument(
            f"--{name}", type=Path, help=f"{name[:-1]} catalog (default: beside the workflow)"
        )
    parser.add_argument("--output-site", default="local", help="where results go (%(default)s)")
    parser.add_argument("--archive", type=Path, help="measurements of earlier runs (SQLite)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same mapping")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _placed(args: argparse.Namespace) -> Placed:
    from adon.placement import place_files

    return place_files(
        args.workflow,
        sites=args.sites,
        replicas=args.replicas,
        transformations=args.transformations,
        output_site=args.output_site,
        archive=args.archive,
        seed=args.seed,
    )


def _map(args: argparse.Namespace) -> int:
    from site_selector.hinted import hinted_copy

    mapping = _placed(args).mapping
    if args.save:
        mapping.save(args.save)
    if args.hints:
        hinted_copy(args.workflow, mapping, args.hints)
    if args.json:
        print(json.dumps(mapping.as_dict(), indent=2, ensure_ascii=False))
        return 0
    print(f"policy {mapping.policy}, predicted makespan {mapping.makespan_s:.1f} s")
    for placement in mapping.placements:
        print(f"{placement.job:<20}{placement.transformation:<40}{placement.site}")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from site_selector.explain import explain_text

    mapping = _placed(args).mapping
    jobs = None if args.job is None else [args.job]
    text = explain_text(mapping, jobs)
    if args.json:
        shown = [p for p in mapping.as_dict()["placements"] if jobs is None or p["job"] in jobs]
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return 0
    print(text)
    return 0


def _show(args: argparse.Namespace) -> int:
    from site_selector.explain import show_text
    from site_selector.mapping import beliefs_dict

    world = _placed(args).world
    if args.json:
        print(json.dumps(beliefs_dict(world), indent=2, ensure_ascii=False))
        return 0
    print(show_text(world))
    return 0
