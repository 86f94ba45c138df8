"""A mosaic of the sky on a slice of networked clouds, for the demo.

::

                 ┌═══ 40 Mb/s ═══ s2 ──2── fiu
    local ──1── s1                 ║
                 └═══ 40 Mb/s ═══ s3 ──3── nicta

As in the Montage paper (section 3) a head node has the data, and workers at two racks do the jobs,
over links of a chosen rate. The head's disks hold what is read and what is written. Beside each
link there is a routed path with a tenth of its rate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from examples.montage import check
from examples.montage.sky import BANDS, MOST_DEGREE, MOST_TILES, Recipe
from examples.montage.workflow import COLOUR, NAME, write
from examples.scenario import (
    CheckedResult,
    Count,
    ResultRow,
    Scenario,
    at_rates,
    both_ways,
    template_of,
)
from examples.testbed.layout import HUB, Host, Layout, Link, Site
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_rate

_DELAY_S = 0.005
# The data is some thousandth of the paper's: links and rates are a fiftieth of those beyond which
# its disks were the limit, so that moving takes about as long as computing here, too.
_SLOWER = 50
RATE_BPS = 2e9 / _SLOWER


def slice_of(rate_bps: float) -> Layout:
    """The slice with links of a rate."""
    return Layout(
        sites=(
            Site(HUB, 1, "s1", workers=1),
            Site("fiu", 2, "s2", workers=4),
            Site("nicta", 3, "s3", workers=2),
        ),
        links=tuple(
            Link(f"{kind}-{a}{b}", a, b, rate, _DELAY_S, routed=kind == "l3")
            for a, b in combinations(("s1", "s2", "s3"), 2)
            for kind, rate in (("l2", rate_bps), ("l3", rate_bps / 10))
        ),
    )


# On the busy network about half of the layer-2 links is left.
OTHERS = tuple(Host(f"other{n}", 3 + n, f"s{n}") for n in (1, 2, 3))


PAPERS = template_of(NAME)
TEMPLATE: Mapping[str, Any] = {
    **at_rates(PAPERS, 1 / _SLOWER),
    "tables": {
        "throughput": [
            [parse_rate(at) / _SLOWER, score] for at, score in PAPERS["tables"]["throughput"]
        ]
    },
    "break_even": "64 KiB",
}


def _make(settings: Mapping[str, int], testbed_json: Path, out: Path) -> str:
    return write(Recipe(**settings), out, testbed_json).removeprefix(f"{out}: ")


def _check(out: Path, results: Path) -> CheckedResult:
    """Compare the mosaics with the sky that was made up."""
    recipe = Recipe(**json.loads((out / "truth.json").read_text(encoding="utf-8")))
    pictures = sorted(results.rglob(COLOUR))
    if not pictures:
        raise InputError(f"{results}: found no {COLOUR}, expected the workflow's result")
    numbers = check.figures(recipe, pictures[0].parent)
    return result(numbers, pictures[0].read_bytes())


def result(numbers: Mapping[str, float], picture: bytes) -> CheckedResult:
    """What the check found, in words."""
    worst, step = numbers["worst_flux_error"], numbers["largest_background_step"]
    stars, bands = f"{numbers['stars']:.0f}", f"{numbers['bands']:.0f}"
    return CheckedResult(
        numbers,
        f"the light of {stars} stars in {bands} bands is within {worst:.2%}, background steps are "
        f"up to {step:.2f} counts",
        (
            ResultRow("stars, each in all bands", stars),
            ResultRow(
                "largest error of a star's light",
                f"{worst:.2%}",
                _goal(worst, check.FLUX_GOAL, "1 %"),
                "flux error",
            ),
            ResultRow("median error", f"{numbers['median_flux_error']:.2%}"),
            ResultRow(
                "largest step of the background, counts",
                f"{step:.2f}",
                _goal(step, check.SEAM_GOAL, f"{check.SEAM_GOAL:g}"),
                "background step",
            ),
        ),
        picture,
    )


def _goal(value: float, most: float, words: str) -> str:
    return f"≤ {words}: {'met' if value <= most else 'missed'}"


SCENARIO = Scenario(
    name=NAME,
    title="a Montage mosaic of a made-up sky",
    layout=slice_of(RATE_BPS),
    tools="montage",
    templates={NAME: TEMPLATE},
    template=NAME,
    options={
        "degree": Count("width of the mosaic in degrees", 1, MOST_DEGREE),
        "bands": Count("bands of light", len(BANDS), len(BANDS)),
        "tiles": Count("tiles in each row and column; 11 make 2,002 jobs", 3, MOST_TILES),
    },
    make=_make,
    check=_check,
    others=OTHERS,
    traffic=both_ways(OTHERS, RATE_BPS / 2),
)
