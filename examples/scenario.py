"""An example as the demo runs it: a testbed, a workflow on it, and how its results are judged.

``examples/<name>/scenario.py`` has one as ``SCENARIO``; that is all it takes to plug in.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

from examples.testbed.irods import ZoneSettings
from examples.testbed.layout import HUB, Host, Layout, Traffic
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.units import parse_rate

DEFAULT = "soykb"
NETWORKS, CURVE = ("idle", "busy"), ("x2", "x5")
"""Of a comparison, and the faster ones of its curve over smaller shares of moving."""
_DETOUR = 3
_FASTER = re.compile(r"x[1-9][0-9]?(\.[0-9])?")
_HERE = Path(__file__).resolve().parent
_PROGRAM_S = 300.0


@dataclass(frozen=True, slots=True)
class Count:
    """An option of a scenario: a whole number from 1 to ``most``."""

    help: str
    default: int
    most: int = 999


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One number of a result in the report; with a ``headline`` it is at the top as well."""

    name: str
    value: str
    goal: str = ""
    headline: str = ""


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """What a run's results are worth: ``numbers`` for ``report.json``, ``words`` for the summary,
    ``rows`` and ``picture``, a PNG where there is one, for the page."""

    numbers: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    rows: Sequence[ResultRow] = ()
    picture: bytes = b""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One example.

    ``tools`` is the set of packages (:mod:`adon.machine.packages`) with what its jobs call.
    ``templates`` are the broker's, of which the hooks use ``template``.

    ``traffic`` is what ``others`` send on its busy network. ``zone`` has raw data, if any.

    ``make(settings, testbed_json, out)`` writes data, ``out/workflow.yml`` and its catalogs, and
    returns a sentence; ``settings`` has the ``options`` and ``seed``. ``check(out, results)``
    compares what was staged out to ``output_site`` with what was expected. Both raise AdonError.
    """

    name: str
    title: str
    layout: Layout
    tools: str
    templates: Mapping[str, Any]
    template: str
    options: Mapping[str, Count]
    make: Callable[[Mapping[str, int], Path, Path], str]
    check: Callable[[Path, Path], CheckedResult]
    output_site: str = HUB
    others: tuple[Host, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    zone: ZoneSettings | None = None

    def on(self, network: str) -> Scenario:
        """The example as it is (an empty name), or on a network of the comparison: ``idle``, with
        others' traffic (``busy``), or with links and rates N times as fast (``xN``). There the
        routed network is a detour, so that best effort takes layer 2, templates hold no transfer
        below what best effort would get, and no data is in a zone, whose reads pass through the
        submit host. Raises InputError."""
        if not network:
            return self
        faster = _FASTER.fullmatch(network)
        if not (faster or network in NETWORKS) or (network == "busy" and not self.traffic):
            raise InputError(f"example {self.name}: found no {network!r} network to run it on")
        times = float(network[1:]) if faster else 1.0
        links = tuple(
            replace(
                link,
                rate_bps=link.rate_bps * times,
                delay_s=link.delay_s * (_DETOUR if link.routed else 1),
            )
            for link in self.layout.links
        )
        layout = replace(self.layout, links=links)
        if network == "busy":
            layout = replace(layout, others=self.others, traffic=self.traffic)
        templates = {name: at_rates(template, times) for name, template in self.templates.items()}
        unlimited = {n: {k: v for k, v in t.items() if k != "rspec"} for n, t in templates.items()}
        return replace(self, layout=layout, templates=unlimited, zone=None)


def template_of(name: str) -> dict[str, Any]:
    """The template of an example, as its ``template.yml`` has it."""
    return dict(yaml.safe_load((_HERE / name / "template.yml").read_text(encoding="utf-8")))


def at_rates(template: Mapping[str, Any], times: float) -> dict[str, Any]:
    """A template that asks for rates so many times as high."""
    qspec, rspec = dict(template["qspec"]), dict(template["rspec"])
    for spec, rate in ((qspec, "min_throughput"), (rspec, "max_throughput")):
        spec[rate] = parse_rate(spec[rate]) * times
    return {**template, "qspec": qspec, "rspec": rspec}


def both_ways(others: Sequence[Host], rate_bps: float) -> tuple[Traffic, ...]:
    """What others send between all of their places, a tenth by UDP, all else by as many streams of
    TCP as one GridFTP transfer has."""
    return tuple(
        stream
        for src, dst in permutations(others, 2)
        for stream in (
            Traffic(src.name, dst.name, rate_bps / 10, udp=True, on_s=12, off_s=6),
            Traffic(src.name, dst.name, rate_bps * 1.2, on_s=20, off_s=4, streams=4),
        )
    )


def names() -> list[str]:
    """The examples that can be run."""
    return sorted(file.parent.name for file in _HERE.glob("*/scenario.py"))


def load(name: str) -> Scenario:
    """The scenario of that name. Raises InputError."""
    if name not in names():
        raise InputError(f"example: found {name!r}, expected one of {', '.join(names())}")
    scenario: Scenario = import_module(f"examples.{name}.scenario").SCENARIO
    return scenario


def run_program(script: Path, *words: str) -> str:
    """Run a Python program of an example and return what it printed. Raises InputError if it
    refuses its arguments with exit code 2, AdonError if it prints nothing."""
    # Tied: after a killed demo it would continue to write where the next one makes its data.
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=_PROGRAM_S,
        check=False,
    )
    if done.returncode == 2:
        raise InputError(done.stderr.strip().splitlines()[-1])
    if not done.stdout:
        code = done.returncode
        raise AdonError(f"{script.name}: exit code {code}: {done.stderr.strip()[-200:]}")
    return done.stdout
