"""Choose sites for a workflow's jobs, and say why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import edge, evaluate
from adon.cli.inputs import believed, placed
from adon.cli.output import print_json, table
from adon.cli.parsing import Nouns, add_command, add_inputs, add_json, add_noun, add_plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from site_selector.mapping.placement import Mapping
    from site_selector.problem import Problem

_MAP = """Map a whole workflow to sites.

Compares every policy that ADON knows under the same beliefs and takes the mapping that ends
soonest. The same files, archive and seed give the same mapping.
"""
_MAP_MORE = """
Examples:
  adon site map workflow.yml
  adon site map workflow.yml --output-site iplant --save mapping.json
  adon site map workflow.yml --hints hinted.yml     a copy for pegasus-plan
"""
_EXPLAIN = """List every candidate site of a job with all terms, and why it goes where it goes.

T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a): wait, compute, move. Sources and ages of the inputs
stand behind the terms, and the last line of each job tells what would change its place.
"""
_EXPLAIN_MORE = """
Examples:
  adon site explain workflow.yml
  adon site explain workflow.yml --job ID0000004 --archive archive.sqlite
  adon site explain workflow.yml --pool --plot gantt.html     with HTCondor's slots and queues
"""
_SHOW = """Show what is believed of each site, path and transformation, and where it comes from.

Without a workflow: of the sites in a site catalog and the paths between them.
"""
_SHOW_MORE = """
Examples:
  adon site show --sites sites.yml --pool
  adon site show workflow.yml --archive archive.sqlite
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon site map|explain|show|evaluate``."""
    verbs = add_noun(nouns, "site", __doc__)
    mapper = add_command(verbs, "map", _MAP, _map, _MAP_MORE)
    add_inputs(mapper)
    mapper.add_argument("--save", type=Path, metavar="FILE", help="write the mapping as JSON")
    mapper.add_argument(
        "--hints", type=Path, metavar="FILE",
        help="write a copy of the workflow with an execution.site hint for every job",
    )  # fmt: skip
    add_json(mapper)
    explain = add_command(verbs, "explain", _EXPLAIN, _explain, _EXPLAIN_MORE)
    add_inputs(explain)
    explain.add_argument("--job", metavar="ID", help="only this job of the workflow")
    add_plot(explain, "draw jobs and transfers over time into this file, a page for the browser")
    add_json(explain)
    show = add_command(verbs, "show", _SHOW, _show, _SHOW_MORE)
    add_inputs(show, optional=True)
    add_json(show)
    edge.add(verbs)
    evaluate.add(verbs)


def _map(args: argparse.Namespace) -> int:
    from site_selector.explain.text import summary_text
    from site_selector.mapping.hinted import hinted_copy

    mapping = placed(args, alternatives=bool(args.save or args.json)).mapping
    if args.save:
        mapping.save(args.save)
    if args.hints:
        hinted_copy(args.workflow, mapping, args.hints)
    if args.json:
        print_json(mapping.as_dict())
        return 0
    rows = [(p.job, p.transformation, p.site) for p in mapping.placements]
    print(f"{summary_text(mapping)}\n\n{table(('job', 'transformation', 'site'), rows)}")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from site_selector.explain.text import chosen_jobs, explain_dict, explain_text
    from site_selector.explain.whatif import with_changes
    from site_selector.problem import build_problem

    made = placed(args)
    jobs = None if args.job is None else [args.job]
    chosen_jobs(made.mapping, jobs)  # an unknown job is told before anything is written
    problem = build_problem(made.inputs, made.world, made.mapping.output_site)
    names = [made.inputs.workflow.jobs[job].transformation for job in problem.jobs]
    if args.plot:
        _plot(problem, names, made.mapping, args.plot)
    mapping, found = with_changes(problem, names, made.mapping, jobs)
    if args.json:
        print_json(explain_dict(mapping, jobs, found))
    else:
        print(explain_text(mapping, jobs))
    return 0


def _plot(problem: Problem, names: Sequence[str], mapping: Mapping, file: Path) -> None:
    from adon.dashboard.standalone import Figure, page
    from site_selector.explain.gantt import gantt_of, title_of
    from site_selector.wholefile import write_whole

    text = page(title_of(mapping), [Figure("gantt", gantt_of(problem, names, mapping))])
    write_whole(file, lambda stream: stream.write(text), "the plot")


def _show(args: argparse.Namespace) -> int:
    from site_selector.estimates.beliefs import beliefs_dict
    from site_selector.explain.text import show_text

    world = believed(args)
    if args.json:
        print_json(beliefs_dict(world))
        return 0
    print(show_text(world))
    return 0
