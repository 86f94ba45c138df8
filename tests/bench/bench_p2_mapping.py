"""P2: mapping alone, of workflows of 10,000 and of 100,000 jobs on ten sites, and its memory.

From a problem that stands in memory to a site for every job, search and hedging and all, without
reasons.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
# Samples and chromosomes of SoyKB's shape, and what mapping may take at most.
SHAPES = ((238, 36, 5.0), (943, 100, 60.0))


@bench("P2")
def mapping_alone(tell: Tell) -> Iterable[Figure]:
    """Seconds and megabytes; the machine code of the selector is made before."""
    subprocess.run([sys.executable, "-m", "site_selector.warm"], check=True, cwd=ROOT)
    for samples, chromosomes, goal in SHAPES:
        tell(f"{samples} samples x {chromosomes} chromosomes are mapped")
        process = subprocess.run(
            [sys.executable, "-m", "tests.bench.mapping_alone", str(samples), str(chromosomes)],
            check=True,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        result = json.loads(process.stdout)
        what = f"mapping alone, {result['jobs']:,} jobs x 10 sites"
        yield Figure(what, result["seconds"], "s", better="lower", goal=goal)
        yield Figure(
            f"memory of {what}",
            1e3 * (result["peak_mb"] - result["before_mb"]) / result["jobs"],
            "kB per job",
            better="lower",
        )
