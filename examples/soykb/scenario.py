"""SoyKB's resequencing workflow on the thesis's sites, for the demo.

::

      mu ──1─┐                 ┌─10═════ L2, 200 Mb/s, 53 ms ═════10─┐              ┌─2── tacc
              s1 (dpid 1) ─────┤                                     ├───── s2 (dpid 2)
    local ──4─┘                └─11───── r1, L3, 20 Mb/s, 53 ms ──11─┘              └─3── iplant

The two paths between s1 and s2 are the two of the thesis (Figure 6): a fast layer-2 overlay and the
shared, routed layer-3 network, here with a tenth of the bandwidth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from examples.scenario import (
    CheckedResult,
    Comparison,
    Count,
    ResultRow,
    Scenario,
    run_program,
)
from examples.testbed.layout import HUB, Host, Layout, Link, Site, Traffic
from network_provisioner.base.errors import InputError
from network_provisioner.templates.data import BUILT_IN

_HERE = Path(__file__).resolve().parent
# 53 ms there and back, as between the thesis's sites.
_DELAY_S = 0.0265
# The goals of the main job: shares of the planted SNPs found, and of the found ones planted.
_GOALS = {"recall": 0.99, "precision": 0.97}

LAYOUT = Layout(
    # Two workers at the campus, more at the HPC centre, one beside the data store's disks and one
    # on the submit host: the shape of the thesis's sites, at the size of one machine.
    sites=(
        Site("mu", 1, "s1", workers=2),
        Site("tacc", 2, "s2", workers=4),
        Site("iplant", 3, "s2", workers=1),
        Site(HUB, 4, "s1", workers=1),
    ),
    links=(
        Link("l2", "s1", "s2", 200e6, _DELAY_S),
        Link("l3", "s1", "s2", 20e6, _DELAY_S, routed=True),
    ),
)

# The data is a thousandth of real ones, and so is what a circuit is worth setting up for.
TEMPLATE = {**BUILT_IN["soykb"], "break_even": "256 KiB"}
# Slower links than the demo's: with its data moving then takes more than half of the time.
_L2_BPS, _L3_BPS = 16e6, 8e6
COMPARISON = Comparison(
    layout=replace(
        LAYOUT,
        links=(
            Link("l2", "s1", "s2", _L2_BPS, _DELAY_S),
            Link("l3", "s1", "s2", _L3_BPS, _DELAY_S, routed=True),
        ),
    ),
    templates={
        "soykb": {
            **TEMPLATE,
            # A twelfth of the demo's rates, as the links are.
            "qspec": {**TEMPLATE["qspec"], "min_throughput": "2 Mb/s"},
            "rspec": {"max_throughput": "12 Mb/s"},
        }
    },
    others=(Host("campus", 5, "s1"), Host("centre", 6, "s2")),
    # On the overlay, both ways: about half of it is left for best effort.
    traffic=tuple(
        stream
        for src, dst in (("campus", "centre"), ("centre", "campus"))
        for stream in (
            Traffic(src, dst, 0.5 * _L2_BPS, udp=True, on_s=12, off_s=6),
            Traffic(src, dst, 0.5 * _L2_BPS, on_s=10, off_s=5),
        )
    ),
)


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
    """What ``check.py`` found, in words."""
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
    layout=LAYOUT,
    tools="bio",
    templates={"soykb": TEMPLATE},
    template="soykb",
    options={
        "samples": Count("plants to sequence", 3),
        "chromosomes": Count("chromosomes of the reference", 2),
    },
    make=_make,
    check=_check,
    comparison=COMPARISON,
)
