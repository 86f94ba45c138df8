"""Choose the sites of a workflow's jobs, and explain the choice."""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli import evaluate, replicas
from adon.cli.options import OUTPUT_SITE, estimated_world, place_workflow, placement_inputs
from adon.cli.output import Column, for_programs, note, print_fields, print_records
from adon.cli.parsing import (
    TEMPLATE,
    Noun,
    add_inputs,
    add_output,
    add_plot,
    names,
    option,
    whole,
)
from adon.cli.terminal import print_paged
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Mapping as Record

    from adon.planning.holdings import Holdings
    from network_provisioner.templates.template import Template
    from network_provisioner.topology.graph import Topology
    from site_selector.edge import Edge, Needs
    from site_selector.inputs import Inputs
    from site_selector.mapping.placement import Mapping
    from site_selector.problem import Problem

NOUN = Noun("site", __doc__)
_ESTIMATE = ("value", "spread", "source", "age_s", "count", "note")


@NOUN.verb(
    "map",
    add_inputs,
    option("--save", "write the mapping as JSON", "FILE", Path),
    option("--hints", "write a copy of the workflow with an execution.site hint per job", "FILE",
           Path),
    add_output,
)  # fmt: skip
def _map(args: argparse.Namespace) -> int:
    """Map a whole workflow to sites.

    Compares all mapping policies with the same estimates, and takes the mapping with the earliest
    end. The same files, archive and seed give the same mapping.

    Examples:
      adon site map workflow.yml
      adon site map workflow.yml --output-site iplant --save mapping.json
      adon site map workflow.yml --hints hinted.yml     a copy for pegasus-plan
      adon site map workflow.yml --csv --columns job,site,start_s,end_s
    """
    from site_selector.explain.text import summary_text
    from site_selector.mapping.hinted import hinted_copy

    mapping = place_workflow(args, alternatives=bool(args.save or args.json)).mapping
    if args.save:
        mapping.save(args.save)
    if args.hints:
        variables = placement_inputs(args).sources().variables
        hinted_copy(args.workflow, mapping, args.hints, variables)
    records = [placement.as_dict() for placement in mapping.placements]
    columns = [Column("job"), Column("transformation"), Column("site")]
    return print_records(
        args,
        columns,
        records,
        document=mapping.as_dict(),
        text=lambda shown: f"{summary_text(mapping)}\n\n{shown}",
    )


@NOUN.verb(
    "explain",
    add_inputs,
    option("--job", "only this job of the workflow", "JOB"),
    add_plot,
    add_output,
)
def _explain(args: argparse.Namespace) -> int:
    """Show the cost of each job at each site, and why it runs where it does.

    T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a): wait, compute, move. Each input is shown with its
    source and age. The last line of each job says what would change its site. --plot draws jobs and
    transfers over time.

    Examples:
      adon site explain workflow.yml
      adon site explain workflow.yml --job ID0000004 --archive archive.sqlite
      adon site explain workflow.yml --pool --plot gantt.html     with HTCondor's slots and queues
    """
    from site_selector.explain.text import chosen_jobs, explain_dict, explain_text
    from site_selector.explain.whatif import with_changes
    from site_selector.problem import build_problem

    made = place_workflow(args)
    jobs = None if args.job is None else [args.job]
    chosen_jobs(made.mapping, jobs)  # an unknown job is told before anything is written
    problem = build_problem(made.inputs, made.world, made.mapping.output_site)
    names = [made.inputs.workflow.jobs[job].transformation for job in problem.jobs]
    if args.plot:
        _plot(problem, names, made.mapping, args.plot)
    mapping, changes = with_changes(problem, names, made.mapping, jobs)
    return print_fields(
        args, explain_dict(mapping, jobs, changes), lambda: explain_text(mapping, jobs)
    )


def _plot(problem: Problem, names: Sequence[str], mapping: Mapping, file: Path) -> None:
    from adon.dashboard.standalone import Figure, page
    from site_selector.explain.gantt import gantt_of, title_of
    from site_selector.wholefile import write_whole

    text = page(title_of(mapping), [Figure("gantt", gantt_of(problem, names, mapping))])
    write_whole(file, lambda stream: stream.write(text), "the plot")


@NOUN.verb("show", partial(add_inputs, optional=True), add_output)
def _show(args: argparse.Namespace) -> int:
    """Show the estimates for each site, path and transformation, and where they come from.

    Without a workflow, shows those of the sites in a site catalog and the paths between them.

    Values in CSV are workers (n), seconds (t_q, setup, first, further, runtime), bits per second
    (gamma_a, gamma_t) and bytes per second of one worker (rate).

    Examples:
      adon site show --sites sites.yml --pool
      adon site show workflow.yml --archive archive.sqlite
    """
    from site_selector.estimates.world import estimates_dict
    from site_selector.explain.text import show_text

    world = estimated_world(args)
    if not for_programs(args):
        print_paged([show_text(world)])
        return 0
    estimates = estimates_dict(world)
    columns = [*map(Column, ("of", "what", *_ESTIMATE))]
    return print_records(args, columns, [*_estimates(estimates)], document=estimates)


def _estimates(estimates: Record[str, Any]) -> Iterator[dict[str, Any]]:
    """A record for each estimate of :func:`~site_selector.estimates.world.estimates_dict`."""
    for group in ("sites", "paths", "compute", "waits"):
        for name, known in estimates[group].items():
            row = {known.get("kind", "t_q"): known} if "source" in known else known
            for what, estimate in row.items():
                if isinstance(estimate, dict):
                    yield {"of": name, "what": what} | {k: estimate.get(k) for k in _ESTIMATE}


@NOUN.verb(
    "edge",
    add_inputs,
    option(
        "--local", "local sites (default: the site with most of the inputs, of those that can run "
        "every job)", "SITE,...", names,
    ),
    option("--remote", "remote sites (default: all others that can)", "SITE,...", names),
    option("--save", "write the holdings, with this workflow added", "FILE", Path),
    option("--application", "name of the application (default: that of the workflow)", "NAME"),
    TEMPLATE,
    option(
        "--priority", "higher is first (default: that of the template)", "N", whole(0, 10**6)
    ),
    option(
        "--workers", "exact number of workers that it needs (default: 1 up to the number of jobs "
        "that can run at once)", "N", whole(1, 10**9),
    ),
    add_output,
)  # fmt: skip
def _edge(args: argparse.Namespace) -> int:
    """Decide where a whole workflow gets its resources: local or remote, and over which layer.

    Edge optimisation: subtracts what running applications hold, and takes the site and layer with
    the lowest T_t among those with enough free resources. If there is none, the workflow waits in
    the queue, and the answer names the missing resource, its holders, and those of lower priority.

    Examples:
      adon site edge workflow.yml --local mu --remote tacc,iplant
      adon site edge workflow.yml --config adon.yml --holdings running.yml --save running.yml

    Exit codes: 0 the workflow has its resources; 1 it waits; 2 could not run.
    """
    from adon.planning.holdings import Holdings, Waiting, read_holdings, save_holdings
    from adon.planning.placement import sources
    from site_selector.edge import decide, edge_of
    from site_selector.estimates.estimating import estimate_world, subjects
    from site_selector.estimates.input_sizes import with_history
    from site_selector.explain.edge_text import decision_dict, decision_text
    from site_selector.inputs import size_note

    files = placement_inputs(args)
    inputs = files.inputs(note)
    output = args.output_site or OUTPUT_SITE
    local, remote = _sides(inputs, args.local, args.remote)
    template = _template(args)
    measured, live = sources(
        *subjects(inputs, output),
        archive=files.archive,
        config=args.config,
        pool=args.pool,
        broker=args.broker,
        say=note,
    )
    now = time.time()
    inputs = with_history(inputs, measured, now)
    if inputs.estimated:
        note(size_note(inputs))
    world = estimate_world(inputs, measured, now=now, live=live.idle(), output_site=output)
    edge = edge_of(inputs, world, output, local, remote, live.topology)
    held = Holdings()
    if args.holdings is not None:
        held = read_holdings(args.holdings, inputs.sites, live.topology)
    name = args.application or inputs.workflow.name
    _check_new(name, held, args)
    needs = _needs(name, template, edge, args)
    running = (*held.running, *_reserved(live.in_use_bps, live.topology), *live.in_pool())
    decision = decide(needs, edge.ways, edge.total, running)
    mine = decision.holding()
    if mine is not None:
        held = held.with_running(mine)
    else:
        held = held.with_waiting(Waiting(name, needs.priority))
    if args.save is not None:
        save_holdings(args.save, held)
    place = None if mine is not None else held.place_of(name)
    print_fields(
        args,
        decision_dict(decision, edge, place),
        lambda: decision_text(decision, edge, place),
    )
    return 0 if mine is not None else 1


NOUN.verb("replicas", *replicas.OPTIONS)(replicas.replicas)
NOUN.verb("evaluate", *evaluate.OPTIONS)(evaluate.evaluate)


def _sides(
    inputs: Inputs, local: list[str] | None, remote: list[str] | None
) -> tuple[list[str], list[str]]:
    """Both ends; every site once. Raises InputError for unknown ones."""
    from site_selector.catalogs.entries import site_of_place
    from site_selector.inputs import known_site

    for site in [*(local or ()), *(remote or ())]:
        known_site(site, inputs.sites, "site")
    both = [site for site in local or () if site in (remote or ())]
    if both:
        raise InputError(f"site {both[0]!r} is given as local and as remote, expected one of them")
    able = set(inputs.sites).intersection(
        *(set(candidate) for candidate in inputs.candidates.values())
    )
    rest = [s for s in inputs.sites if s in able and s not in (remote or ())]
    if local is None:
        held = {
            site: sum(
                n
                for file, n in inputs.raw_bytes.items()
                if site in map(site_of_place, inputs.places[file])
            )
            for site in rest
        }
        local = [max(rest, key=lambda s: held[s])] if rest else []
    if remote is None:
        remote = [s for s in rest if s not in local]
    return local, remote


def _template(args: argparse.Namespace) -> Template:
    from adon.config.adon_yml import load_config
    from network_provisioner.base.errors import did_you_mean
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
        template.rspec.max_bps or math.inf,
    )


def _check_new(name: str, held: Holdings, args: argparse.Namespace) -> None:
    if any(h.application == name for h in held.running):
        raise InputError(
            f"{args.holdings}: application {name!r} runs already, expected a new one "
            "(--application gives another name)"
        )


def _reserved(used: Any, topology: Topology | None) -> list[Any]:
    """What the broker has reserved, as the holding of one that is not asked to give way."""
    from site_selector.estimates.running import Holding, bandwidth_of

    amounts = {bandwidth_of(a, b): rate for (a, b), rate in used.items() if rate > 0}
    return [Holding("transits of the broker", amounts)] if topology and amounts else []
