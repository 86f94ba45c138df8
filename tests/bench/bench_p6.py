"""P6: what the line adds around a workflow of 1,000 jobs: the embedded planner and its files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import TypeVar

from adon.planning.placement import PlacementInputs, place_files
from pegasus_hooks.planner import Options, Sources, plan
from site_selector.mapping.placement import Mapping
from tests.bench import Figure, Tell, bench, timed
from tests.bench.worlds import soykb

T = TypeVar("T")

SAMPLES, CHROMOSOMES = 41, 20
STORE = "iplant"
REPEATS = 5


@bench("P6")
def line_overhead(tell: Tell) -> Iterable[Figure]:
    """Planning beside a plain copy of the files it writes; the mapping's size and time to read."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        workflow = soykb(folder / "soykb", SAMPLES, CHROMOSOMES)
        tell("mapped (not measured here: P2)")
        placed = place_files(PlacementInputs(workflow, output_site=STORE))
        inputs, sites = placed.inputs, placed.mapping.sites
        tell(f"planned {REPEATS} times")
        base, hooks = folder / "submit", folder / "hooks.json"
        spent = [
            timed(lambda: plan(inputs, Sources(workflow), sites, base, STORE, hooks, Options("u")))
            for _ in range(REPEATS)
        ]
        planned = spent[0][0]
        copied = [
            timed(lambda n=n: shutil.copytree(planned.submit_dir, folder / f"copy{n}"))[1]  # type: ignore[misc]
            for n in range(REPEATS)
        ]
        file = folder / "mapping.json"
        _, saving_s = timed(lambda: placed.mapping.save(file))
        _, loading_s = timed(lambda: Mapping.load(file))
        jobs, size = len(sites), file.stat().st_size
        abstract = workflow.stat().st_size
    many = len(planned.jobs)
    yield Figure(
        f"planning, {jobs:,} jobs to {many:,} with hooks",
        1e3 * median(s for _, s in spent) / many,
        "ms per executable job",
        better="lower",
        peers={"copying the same files": 1e3 * median(copied) / many},
    )
    yield Figure(
        "executable jobs for each abstract job",
        many / jobs,
        "jobs",
        better="lower",
        peers={"compute jobs alone": sum(j.task is not None for j in planned.jobs.values()) / jobs},
    )
    yield Figure(
        f"mapping with all terms and reasons, {jobs:,} jobs x {len(inputs.sites)} sites",
        size / jobs,
        "bytes per job",
        better="lower",
        peers={"the abstract workflow": abstract / jobs},
    )
    yield Figure(
        "writing and reading the mapping",
        1e3 * (saving_s + loading_s),
        "ms",
        better="lower",
    )
