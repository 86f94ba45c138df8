"""P2: what it costs to have a workflow mapped: reading, mapping, writing the hints for the planner.

The peer does the same around a throw of dice for every job: nobody who reads the workflow and
writes sites into it can be faster. The documented callout is no peer, for want of a planner to
measure it with; what was measured elsewhere stands in docs/benchmarks.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

from adon.planning.placement import place
from site_selector.estimates.estimating import estimate_world
from site_selector.inputs import Inputs, load_inputs
from site_selector.mapping.estimator import Assignment, upward_rank
from site_selector.mapping.hinted import hinted_copy
from site_selector.mapping.placement import Mapping, Placement
from site_selector.mapping.policies import VARIANTS, list_schedule
from site_selector.problem import build_problem
from tests.bench import Figure, Tell, bench, timed
from tests.bench.worlds import make_platform, soykb

SITES = 10
SHAPES = ((41, 20), (249, 36))  # 1,013 and 10,005 jobs
GOAL_S = 5.0


@bench("P2")
def planning_time(tell: Tell) -> Iterable[Figure]:
    """Per job at 1,000 and at 10,000 jobs, ten sites."""
    for samples, chromosomes in SHAPES:
        tell(f"{samples} samples x {chromosomes} chromosomes are written (not measured)")
        with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
            folder = Path(name)
            workflow = soykb(folder, samples, chromosomes)
            store = make_platform(folder, 1, SITES)
            tell("read, map, hint")
            inputs, read_s = timed(lambda: load_inputs(workflow))  # noqa: B023
            mapping, map_s = timed(lambda: place(inputs, output_site=store).mapping)  # noqa: B023
            out = folder / "hinted.yml"
            _, hint_s = timed(lambda: hinted_copy(workflow, mapping, out))  # noqa: B023
            diced, dice_s = timed(lambda: dice(inputs))  # noqa: B023
            _, dice_hint_s = timed(lambda: hinted_copy(workflow, diced, out))  # noqa: B023
        _, heft_s = timed(lambda: heft(inputs, store))  # noqa: B023
        jobs = len(inputs.workflow.jobs)
        yield Figure(
            f"planning time, {jobs:,} jobs x {SITES} sites: read, map with reasons, hint",
            1e3 * (read_s + map_s + hint_s) / jobs,
            "ms per job",
            better="lower",
            peers={"random sites: read, hint": 1e3 * (read_s + dice_s + dice_hint_s) / jobs},
        )
        yield Figure(
            f"of that mapping, {jobs:,} jobs x {SITES} sites",
            map_s,
            "s",
            better="lower",
            goal=GOAL_S,
            peers={"heft alone": heft_s, "random sites": dice_s},
        )


def dice(inputs: Inputs) -> Mapping:
    """Any site that can run the job."""
    rng = Random(1)
    placements = tuple(Placement(job, "", rng.choice(s)) for job, s in inputs.candidates.items())
    return Mapping(inputs.workflow.name, "random", 0.0, {}, placements, {})


def heft(inputs: Inputs, store: str) -> Assignment:
    """One list schedule as in the literature, without an explanation."""
    problem = build_problem(inputs, estimate_world(inputs, now=0.0, output_site=store), store)
    return list_schedule(problem, upward_rank(problem), VARIANTS["heft"])
