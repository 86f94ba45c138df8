"""SoyKB's resequencing workflow on the thesis's sites, for the demo.

::

      mu ──1─┐                 ┌─10═════ L2, 200 Mb/s, 53 ms ═════10─┐              ┌─2── tacc
              s1 (dpid 1) ─────┤                                     ├───── s2 (dpid 2)
    local ──4─┘                └─11───── r1, L3, 20 Mb/s, 53 ms ──11─┘              └─3── iplant

The two paths between s1 and s2 are the two of the thesis (Figure 6): a fast layer-2 overlay and the
shared, routed layer-3 network, here with a tenth of the bandwidth. For the demo there is such a
pair between each two of three places, with iplant at one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from examples.scenario import (
    CheckedResult,
    Count,
    ResultRow,
    Scenario,
    at_rates,
    both_ways,
    run_program,
    template_of,
)
from examples.testbed.irods import ZoneSettings
from examples.testbed.layout import HUB, Host, Layout, Link, Site
from network_provisioner.base.errors import InputError

_HERE = Path(__file__).resolve().parent
# 53 ms there and back, as between the thesis's sites.
_DELAY_S = 0.0265
# The goals of the main job: shares of the planted SNPs found, and of the found ones planted.
_GOALS = {"recall": 0.99, "precision": 0.97}

LAYOUT = Layout(
    # One worker at the campus, more at the HPC centre, one beside the data store's disks and one on
    # the submit host: the shape of the thesis's sites, at the size of one machine. No site has as
    # many as the workflow is wide, so that it may pay to use several.
    sites=(
        Site("mu", 1, "s1", workers=1),
        Site("tacc", 2, "s2", workers=2),
        Site("iplant", 3, "s2", workers=1),
        Site(HUB, 4, "s1", workers=1),
    ),
    links=(
        Link("l2", "s1", "s2", 200e6, _DELAY_S),
        Link("l3", "s1", "s2", 20e6, _DELAY_S, routed=True),
    ),
)

# Campus and HPC centre have a second data node each, and their workers on nodes of their own.
_LANS = {"mu": ("dtn2", "w1"), "tacc": ("dtn2", "w1", "w2")}

# The demo's places are as far apart as the thesis's, the data store has a switch of its own, and
# links are a sixth as fast: with the example's small data, moving then takes more than half of the
# time where all of it goes over the routed network. The data is a thousandth of real ones, and so
# is what a circuit is worth setting up for.
_SLOWER = 6.25
_PLACES = (("s1", "s2"), ("s2", "s3"), ("s1", "s3"))
DEMO_LAYOUT = Layout(
    sites=tuple(
        replace(
            site,
            more=_LANS.get(site.name, ()),
            switch="s3" if site.name == "iplant" else site.switch,
        )
        for site in LAYOUT.sites
    ),
    links=tuple(
        replace(link, name=f"{link.name}-{number}", a=a, b=b, rate_bps=link.rate_bps / _SLOWER)
        for number, (a, b) in enumerate(_PLACES, 1)
        for link in LAYOUT.links
    ),
)
PAPERS = template_of("soykb")
TEMPLATE = {**at_rates(PAPERS, 1 / _SLOWER), "break_even": "256 KiB"}
# Of others, between all places and both ways: about half of the layer-2 links is left.
_HALF_BPS = LAYOUT.link("l2").rate_bps / _SLOWER / 2
OTHERS = tuple(Host(f"other{n}", 4 + n, f"s{n}") for n in (1, 2, 3))
TRAFFIC = both_ways(OTHERS, _HALF_BPS)


def _make(settings: Mapping[str, int], testbed_json: Path, out: Path) -> str:
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    where = ("--out", str(out), "--testbed", str(testbed_json))
    return run_program(_HERE / "workflow.py", *where, *options).strip().removeprefix(f"{out}: ")


def _check(out: Path, results: Path) -> CheckedResult:
    """Compare the filtered SNPs with the planted ones."""
    calls = sorted(results.glob("*filtered_snp*.vcf*"))
    if not calls:
        raise InputError(f"{results}: found no filtered SNPs, expected the workflow's result")
    truth = out / "truth" / "truth.vcf"
    return result(
        json.loads(run_program(_HERE / "check.py", "--truth", str(truth), "--calls", str(calls[0])))
    )


def result(numbers: Mapping[str, float]) -> CheckedResult:
    """What ``check.py`` found, as text."""
    planted = f"{numbers['planted_snps']:.0f}"
    rates = {name: f"{numbers[name]:.4f}" for name in (*_GOALS, "genotype_concordance")}
    return CheckedResult(
        numbers,
        f"{planted} SNPs planted, recall {rates['recall']}, precision {rates['precision']}",
        (
            ResultRow("SNPs planted", planted),
            ResultRow("SNPs called", f"{numbers['called_snps']:.0f}"),
            ResultRow("planted SNPs found", f"{numbers['found_snps']:.0f}"),
            *(
                ResultRow(
                    name,
                    rates[name],
                    f"≥ {goal}: {'met' if numbers[name] >= goal else 'missed'}",
                    f"SNP {name}",
                )
                for name, goal in _GOALS.items()
            ),
            ResultRow("genotype concordance", rates["genotype_concordance"]),
        ),
    )


SCENARIO = Scenario(
    name="soykb",
    title="SoyKB resequencing",
    layout=DEMO_LAYOUT,
    tools="bio",
    templates={"soykb": TEMPLATE},
    template="soykb",
    options={
        "samples": Count("plants to sequence", 3),
        "chromosomes": Count("chromosomes of the reference", 2),
    },
    make=_make,
    check=_check,
    others=OTHERS,
    traffic=TRAFFIC,
    zone=ZoneSettings.read(_HERE / "zone.yml"),
)
