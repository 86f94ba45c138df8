"""``adon site edge``: give a workflow its resources at the campus edge, or say why it must wait."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.inputs import OUTPUT_SITE, note
from adon.cli.output import print_json
from adon.cli.parsing import Nouns, add_command, add_inputs, add_json, names, whole

if TYPE_CHECKING:
    from adon.planning.holdings import Holdings
    from network_provisioner.templates.template import Template
    from network_provisioner.topology.graph import Topology
    from site_selector.edge import Edge, Needs
    from site_selector.inputs import Inputs

_EDGE = """Decide where a whole workflow gets its resources: locally or remotely, over which layer.

Edge optimisation: what running applications hold is subtracted from what there is; of the ways that
are open the one with the least T_t is taken. Where none is open the workflow waits in the queue:
the answer names the resource that lacks, who holds it, and who could give way.
"""
_EDGE_MORE = """
Examples:
  adon site edge workflow.yml --local mu --remote tacc,iplant
  adon site edge workflow.yml --config adon.yml --holdings running.yml --save running.yml

Exit codes: 0 the workflow has its resources; 1 it waits; 2 could not run as asked.
"""


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon site edge``."""
    edge = add_command(verbs, "edge", _EDGE, _edge, _EDGE_MORE)
    add_inputs(edge)
    edge.add_argument(
        "--local", type=names, metavar="SITE,...",
        help="sites at this end (default: of those that can run every job, the one that holds most "
        "of the inputs)",
    )  # fmt: skip
    edge.add_argument(
        "--remote",
        type=names,
        metavar="SITE,...",
        help="sites elsewhere (default: all others that can)",
    )
    edge.add_argument(
        "--holdings", type=Path, metavar="FILE",
        help="what running applications hold, YAML (default: nobody holds anything)",
    )  # fmt: skip
    edge.add_argument(
        "--save", type=Path, metavar="FILE", help="write the holdings with this workflow in them"
    )
    edge.add_argument(
        "--name", metavar="NAME", help="name of the application (default: of the workflow)"
    )
    edge.add_argument(
        "--template", default="soykb", metavar="NAME",
        help="QSpec, RSpec and priority, built in or of adon.yml (default: soykb)",
    )  # fmt: skip
    edge.add_argument(
        "--priority", type=whole(0, 10**6), metavar="N",
        help="higher is more important (default: that of the template)",
    )  # fmt: skip
    edge.add_argument(
        "--workers", type=whole(1, 10**9), metavar="N",
        help="workers that it needs, no fewer and no more (default: from 1 to as many as jobs can "
        "run at once)",
    )  # fmt: skip
    add_json(edge)


def _edge(args: argparse.Namespace) -> int:
    from adon.planning.holdings import Holdings, Waiting, read_holdings, save_holdings
    from adon.planning.placement import sources
    from site_selector.edge import decide, edge_of
    from site_selector.estimates.believe import believe
    from site_selector.explain.edgewords import decision_dict, decision_text
    from site_selector.inputs import load_inputs

    inputs = load_inputs(
        args.workflow, args.sites, args.replicas, args.transformations, args.execution_sites
    )
    output = args.output_site or OUTPUT_SITE
    local, remote = _sides(inputs, args.local, args.remote)
    template = _template(args)
    with sources(args.archive, args.config, args.pool, args.broker, note) as (measured, live):
        now = _now()
        world = believe(
            inputs, measured, now=now, topology=live.topology, pool=live.pool, output_site=output
        )
    edge = edge_of(inputs, world, output, local, remote, live.topology)
    held = Holdings()
    if args.holdings is not None:
        held = read_holdings(args.holdings, inputs.sites, live.topology)
    name = args.name or inputs.workflow.name
    _check_new(name, held, args)
    needs = _needs(name, template, edge, args)
    running = (*held.running, *_reserved(live.in_use_bps, live.topology))
    decision = decide(needs, edge.ways, edge.total, running)
    mine = decision.holding()
    if mine is not None:
        held = held.with_running(mine)
    else:
        held = held.with_waiting(Waiting(name, needs.priority))
    if args.save is not None:
        save_holdings(args.save, held)
    place = None if mine is not None else held.place_of(name)
    if args.json:
        print_json(decision_dict(decision, edge, place))
    else:
        print(decision_text(decision, edge, place))
    return 0 if mine is not None else 1


def _now() -> float:
    import time

    return time.time()


def _sides(
    inputs: Inputs, local: list[str] | None, remote: list[str] | None
) -> tuple[list[str], list[str]]:
    """Both ends; every site once. Raises InputError for unknown ones."""
    from network_provisioner.base.errors import InputError
    from site_selector.inputs import known_site

    for site in [*(local or ()), *(remote or ())]:
        known_site(site, inputs.sites, "site")
    both = [site for site in local or () if site in (remote or ())]
    if both:
        raise InputError(f"site {both[0]!r} is given as local and as remote, expected one of them")
    able = set(inputs.sites).intersection(*(set(found) for found in inputs.candidates.values()))
    rest = [s for s in inputs.sites if s in able and s not in (remote or ())]
    if local is None:
        held = {
            site: sum(n for f, n in inputs.raw_bytes.items() if site in inputs.places[f])
            for site in rest
        }
        local = [max(rest, key=lambda s: held[s])] if rest else []
    if remote is None:
        remote = [s for s in rest if s not in local]
    return local, remote


def _template(args: argparse.Namespace) -> Template:
    from adon.config.adon_yml import load_config
    from network_provisioner.base.errors import InputError
    from network_provisioner.base.suggestions import did_you_mean
    from network_provisioner.templates.data import templates_from_dict

    known = templates_from_dict(load_config(args.config).templates if args.config else None)
    if args.template not in known:
        raise InputError(
            f"template {args.template!r} is none of {', '.join(known)}"
            + did_you_mean(args.template, known)
        )
    return known[args.template]


def _needs(name: str, template: Template, edge: Edge, args: argparse.Namespace) -> Needs:
    from site_selector.edge import Needs

    least, most = (args.workers, args.workers) if args.workers else (1, max(1, edge.width))
    return Needs(
        name,
        template.priority if args.priority is None else args.priority,
        least,
        most,
        template.qspec.min_bps,
        template.rspec.max_bps,
    )


def _check_new(name: str, held: Holdings, args: argparse.Namespace) -> None:
    from network_provisioner.base.errors import InputError

    if any(h.application == name for h in held.running):
        raise InputError(
            f"{args.holdings}: application {name!r} runs already, expected a new one "
            "(--name gives another name)"
        )


def _reserved(used: Any, topology: Topology | None) -> list[Any]:
    """What the broker has reserved, as the holding of one that is not asked to give way."""
    from site_selector.edge import Holding, bandwidth_of

    amounts = {bandwidth_of(a, b): rate for (a, b), rate in used.items() if rate > 0}
    return [Holding("transits of the broker", amounts)] if topology and amounts else []
