"""Disks that are finite: what of a mapping fits where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from problem_world import problem_of, random_problem
from site_world import Measurements, estimate_of, inputs_of, job

from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import sites_of
from site_selector.estimates.estimating import estimate_sites, estimate_world
from site_selector.explain.text import explain_text, show_text
from site_selector.mapping.estimator import Estimator
from site_selector.mapping.kernels.data import FETCHES, shape_of
from site_selector.mapping.kernels.room import Room
from site_selector.mapping.mapper import map_problem, map_workflow
from site_selector.problem import NEVER_S, Problem

GB = 1e9
CHAIN = problem_of(
    [(["raw"], ["a"]), (["a"], ["b"]), (["b"], ["c"])],
    {"raw": 5 * GB, "a": 4 * GB, "b": 3 * GB, "c": 2 * GB},
    {"raw": [2]},
    [[1, 9]] * 3,
    [[0, 1e-9, 1e-9], [1e-9, 0, 1e-9], [1e-9, 1e-9, 0]],
    wanted=["c"],
    output=2,
)


@pytest.mark.parametrize(
    ("cleans", "assignment", "needs"),
    [
        (True, [0, 0, 0], [9, 0]),  # raw and a; a and b; b and c
        (False, [0, 0, 0], [14, 0]),
        (True, [0, 1, 1], [9, 7]),  # a at both: it has moved
        (False, [0, 1, 1], [9, 9]),
    ],
)
def test_what_is_cleaned_up_makes_room(
    cleans: bool, assignment: list[int], needs: list[float]
) -> None:
    problem = replace(CHAIN, space=(1.0, 1.0), cleans=cleans)
    room = Room(shape_of(problem), problem)
    assert room.needs(assignment).tolist() == [n * GB for n in needs]


def by_hand(problem: Problem, assignment: Sequence[int], site: int) -> float:
    """The same, file by file and level by level."""
    allowed = shape_of(problem).allowed
    levels = range(max(problem.level) + 2)
    held = dict.fromkeys(levels, 0.0)
    for file, size in enumerate(problem.size):
        writer = problem.producer[file]
        users = {
            j
            for j in {*problem.readers[file], writer} - {-1}
            if assignment[j] == site and allowed[j * problem.n_sites + site] != FETCHES
        }
        here = [problem.level[j] for j in users]
        if writer < 0 and site in problem.holders[file]:
            continue
        if problem.returns[file] and writer in users:
            here.append(problem.level[writer] + 1)
        for level in levels:
            if here and min(here) <= level and (level <= max(here) or not problem.cleans):
                held[level] += size
    return max(held.values())


@pytest.mark.parametrize("seed", range(12))
def test_needs_are_those_counted_by_hand(seed: int) -> None:
    staging = "mixed" if seed % 3 == 0 else "per-site"
    problem = replace(random_problem(seed, staging), cleans=seed % 2 == 0)
    problem = replace(problem, space=(1.0,) * problem.n_sites)
    assignment = [allowed[seed % len(allowed)] for allowed in problem.allowed]
    needs = Room(shape_of(problem), problem).needs(assignment)
    expected = [by_hand(problem, assignment, site) for site in range(problem.n_sites)]
    assert needs.tolist() == pytest.approx(expected)


def fan(space: tuple[float, ...]) -> Problem:
    """Eight jobs of 1 GB each in and out; the first site is ten times faster."""
    jobs = [([f"in{n}"], [f"out{n}"]) for n in range(8)]
    names = [name for reads, writes in jobs for name in (*reads, *writes)]
    rates = [[0, 1e-9, 1e-9], [1e-9, 0, 1e-9], [1e-9, 1e-9, 0]]
    problem = problem_of(
        jobs, dict.fromkeys(names, GB), {f"in{n}": [2] for n in range(8)}, [[10, 100]] * 8, rates,
        workers=[8, 8],
    )  # fmt: skip
    return replace(problem, space=space)


@pytest.mark.parametrize(
    ("space", "at_the_first"), [((), 8), ((16 * GB, GB), 8), ((5 * GB, 99 * GB), 2), ((GB, GB), 4)]
)
def test_no_more_is_placed_at_a_site_than_fits_there(
    space: tuple[float, ...], at_the_first: int
) -> None:
    chosen = map_problem(fan(space), ["t"] * 8)
    count = chosen.assignment.count(0)
    fits = not space or Estimator(fan(space)).makespan(chosen.assignment) < NEVER_S
    # Where nothing fits, it is planned all the same: what is beyond both disks is alike then.
    assert count == at_the_first or not fits
    assert chosen.schedule.makespan_s < NEVER_S


CATALOG = """
pegasus: "5.0"
sites:
- name: mu
  directories:
  - type: sharedScratch
    path: /mu/scratch
    freeSize: {size}
    fileServers: [{{url: "file:///mu/scratch", operation: all}}]
  profiles: {{pegasus: {{{hint}}}}}
"""
XML = """<sitecatalog xmlns="http://pegasus.isi.edu/schema/sitecatalog" version="4.0">
<site handle="mu" arch="x86_64" os="LINUX">
<directory type="shared-scratch" path="/mu/scratch" free-size="{size}" total-size="">
<file-server operation="all" url="file:///mu/scratch"/></directory></site></sitecatalog>"""


@pytest.mark.parametrize(
    ("size", "hint", "measured", "value", "source"),
    [
        ('"1GB"', "", None, GB, "catalog"),
        ('"null"', "", None, None, ""),  # both as in Pegasus's own tests
        ('""', "", None, None, ""),
        ('"1GB"', "adon.space: 7 GB", None, 7 * GB, "catalog"),
        ('"1GB"', "adon.space: 7 GB", 3 * GB, 3 * GB, "archive"),
        ('"1GB"', "", -5.0, GB, "catalog"),
    ],
)
def test_space_is_what_was_measured_else_what_the_catalog_says(
    size: str, hint: str, measured: float | None, value: float | None, source: str
) -> None:
    document = parse_document(CATALOG.format(size=size, hint=hint), "sites.yml", "site catalog")
    known = {} if measured is None else {("free_space", "mu"): estimate_of(measured)}
    space = estimate_sites(sites_of(document), Measurements(known), now=1000.0).sites["mu"].space
    assert (space and space.value, space.source if space else "") == (value, source)


@pytest.mark.parametrize(("size", "value"), [("", None), ("100GB", 100 * GB)])
def test_space_in_a_catalog_in_xml(size: str, value: float | None) -> None:
    document = parse_document(XML.format(size=size), "sites.xml", "site catalog")
    assert sites_of(document)["mu"].directories[0].free_bytes == value


def test_explain_says_what_is_free_and_needed_and_what_does_not_fit() -> None:
    sites = {
        "mu": {"adon.rate": "500 MB/s", "adon.space": "4 GB"},
        "tacc": {"adon.rate": "50 MB/s"},
    }
    jobs = [job(f"J{n}", "sort", [f"in{n}"], [f"out{n}"]) for n in range(2)]
    held = {f"in{n}": ("tacc", 10**9) for n in range(2)}
    inputs = inputs_of(jobs, sites, held, {"sort": ["mu", "tacc"]})
    inputs = replace(
        inputs, configurations={j: ("sharedfs", "sharedfs") for j in inputs.candidates}
    )
    world = estimate_world(inputs, now=1000.0)
    text = explain_text(map_workflow(inputs, world))
    assert "space 4 GB [catalog]" in text
    assert "space" in show_text(world)
    none = replace(world, sites={n: replace(s, space=world.sites["mu"].space and replace(
        world.sites["mu"].space, value=1e6)) for n, s in world.sites.items()})  # fmt: skip
    assert "space at " in explain_text(map_workflow(inputs, none))
