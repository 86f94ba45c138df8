"""P2: what it costs to have a workflow mapped: reading, mapping, writing the hints for the planner.

The peer does the same around a throw of dice for every job: nobody who reads the workflow and
writes sites into it can be faster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from adon.placement import place_files
from site_selector.estimates import believe
from site_selector.hinted import hinted_copy
from site_selector.inputs import load_inputs
from site_selector.mapping import map_workflow
from site_selector.placement import Mapping, Placement
from site_selector.problem import build_problem
from site_selector.schedule import VARIANTS, list_schedule
from site_selector.simulate import Estimator
from tests.bench import Figure, Tell, bench
from tests.bench.worlds import make_platform, soykb

SITES = 10
SHAPES = ((41, 20), (249, 36))  # 1,013 and 10,005 jobs
DICE = "random sites"


def planned(workflow: Path, store: str, out: Path) -> int:
    """Ours, as ``adon site map --hints`` does it; returns the number of jobs."""
    mapping = place_files(workflow, output_site=store).mapping
    return hinted_copy(workflow, mapping, out)


def diced(workflow: Path, out: Path) -> int:
    """The peer: any site that can run the job."""
    inputs, rng = load_inputs(workflow), Random(1)
    placements = tuple(
        Placement(job, "", rng.choice(sites), "", (), 0.0, 0.0)
        for job, sites in inputs.candidates.items()
    )
    mapping = Mapping(inputs.workflow.name, "random", 0.0, {}, placements, {}, None, 1)
    return hinted_copy(workflow, mapping, out)


@bench("P2")
def planning_time(tell: Tell) -> Iterable[Figure]:
    """Per job at 1,000 and at 10,000 jobs, ten sites."""
    for samples, chromosomes in SHAPES:
        with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
            folder = Path(name)
            tell(f"{samples} samples, {chromosomes} chromosomes are written (not measured)")
            workflow = soykb(folder, samples, chromosomes)
            store = make_platform(folder, 1, SITES)
            out = folder / "hinted.yml"
            peer_s, jobs = _timed(lambda: diced(workflow, out))  # noqa: B023
            tell("ours")
            ours_s, _ = _timed(lambda: planned(workflow, store, out))  # noqa: B023
            alone_s, heft_s = _mapping_alone(workflow, store)
        yield Figure(
            f"planning time per job, {jobs:,} jobs x {SITES} sites: read, map, explain, hint",
            1e3 * ours_s / jobs,
            "ms",
            better="lower",
            peers={f"{DICE}: read, hint": 1e3 * peer_s / jobs},
        )
        yield Figure(
            f"mapping alone, {jobs:,} jobs x {SITES} sites",
            alone_s,
            "s",
            better="lower",
            goal=5.0,
            peers={"heft": heft_s},
        )


def _mapping_alone(workflow: Path, store: str) -> tuple[float, float]:
    inputs = load_inputs(workflow)
    world = believe(inputs, now=0.0, output_site=store)

    def heft() -> int:
        problem = build_problem(inputs, world, store)
        return len(list_schedule(problem, Estimator(problem).rank, VARIANTS["heft"]))

    def ours() -> int:
        return len(map_workflow(inputs, world, store, 1, alternatives=False).placements)

    return _timed(ours)[0], _timed(heft)[0]


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    count = work()
    return time.perf_counter() - began, count
