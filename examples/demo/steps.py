"""The steps of a run, each a call of the package whose subject it is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import yaml

from adon.planner_request import placement_reasons
from adon.planning.placement import PlacedWorkflow, place
from condor_plugins.pool.sitepool import SitePool, pool_from_json
from examples.scenario import Scenario
from examples.testbed.layout import CONTROLLER
from examples.testbed.pool import Pool
from examples.testbed.ports import LOOPBACK, free_port
from monitors.archive.archive import Archive
from monitors.archive.knowledge import Knowledge
from network_provisioner.topology.graph import Topology
from site_selector.explain.text import forecast_text
from site_selector.inputs import Inputs
from site_selector.mapping.policies import VARIANTS, list_schedule, random_sites
from site_selector.problem import build_problem

ROOT = Path(__file__).resolve().parents[2]
HOOKS = "hooks.json"  # the hooks' configuration, in the run's folder
WATCH = "watch"  # the folder of the hooks' watcher, in the run's

Say = Callable[[str], None]


def write_config(
    scenario: Scenario, real: bool, archive: Path, run_dir: Path, agents: Sequence[str] = ()
) -> tuple[Path, str]:
    """Write ``adon.yml`` for the testbed, with ``agents`` on its machine; the file and the broker's
    URL."""
    listen = f"{LOOPBACK}:{free_port()}"
    config = {
        "topology": scenario.layout.topology(),
        "controller": CONTROLLER if real else {"driver": "simulated"},
        "broker": {
            "listen": listen,
            "state": str(run_dir / "broker.sqlite"),
            "archive": str(archive),
        },
        "templates": dict(scenario.templates),
        "monitoring": {"agents": [{"name": name, "address": LOOPBACK} for name in agents]},
    }
    file = run_dir / "adon.yml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return file, f"http://{listen}"


def write_hooks(template: str, url: str, archive: Path, run_dir: Path) -> Path:
    """Write the hooks' configuration and return its path."""
    file = run_dir / HOOKS
    data = {
        "broker": url,
        # Also a laptop with much else to do may show what there is to be seen.
        "timeout_s": 10.0,
        "template": template,
        "archive": str(archive),
        "watch": str(run_dir / WATCH),
    }
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return file


def asked_pool(pool: Pool, timeout_s: float = 60.0) -> dict[str, SitePool]:
    """Every site as HTCondor's collector and schedd report it now. Raises AdonError."""
    command = [sys.executable, "-m", "condor_plugins.collector"]
    return pool_from_json(pool.run(command, cwd=ROOT, timeout_s=timeout_s))


def pool_slots(pool: Pool) -> tuple[dict[str, int], dict[str, int]]:
    """Slots per site as HTCondor's collector reports them now, and those that are free at once.

    Raises AdonError.
    """
    pool_sizes = asked_pool(pool)
    workers = {name: site.slots for name, site in pool_sizes.items()}
    idle = {name: site.idle_slots for name, site in pool_sizes.items() if site.idle_jobs == 0}
    return workers, idle


def choose_sites(
    inputs: Inputs,
    output_site: str,
    topology: Topology,
    archive: Archive,
    earlier: int,
    pool: Pool,
    seed: int,
    say: Say,
) -> tuple[PlacedWorkflow, PlacedWorkflow]:
    """Map the workflow with all that was measured, and with the catalogs alone.

    The second of the two is what runs; the first is there to show what measurements changed. They
    are one where ``earlier``, the number of measurements in the archive, is zero.
    """
    workers, idle = pool_slots(pool)
    place_it = partial(
        place,
        inputs,
        output_site=output_site,
        topology=topology,
        pool=workers,
        seed=seed,
    )
    placed = place_it(source=Knowledge(archive), idle=idle)
    before = place_it() if earlier else placed
    counts: dict[str, int] = {}
    for site in placed.mapping.sites.values():
        counts[site] = counts.get(site, 0) + 1
    where = ", ".join(f"{n} at {site}" for site, n in sorted(counts.items()))
    say(
        f"site selection: {where}; expected end after {forecast_text(placed.mapping)} "
        f"(policy {placed.mapping.policy})"
    )
    return before, placed


def as_pegasus(placed: PlacedWorkflow, selector: str, draw: int, say: Say) -> PlacedWorkflow:
    """The same workflow as Pegasus's own site selector ``Random`` or ``Heft`` maps it; ``draw`` is
    the seed of its dice. With a real Pegasus it is not this mapping that runs, but its own."""
    inputs, world = placed.inputs, placed.world
    problem = build_problem(inputs, world)
    if selector == "Heft":
        sites = list_schedule(problem, np.zeros(len(problem.jobs)), VARIANTS["pegasus-heft"])
    else:
        sites = random_sites(problem, Random(draw))
    say(f"site selection: as Pegasus's {selector} has it")
    return PlacedWorkflow(inputs, world, placement_reasons(inputs, world, problem, sites, selector))


def clock(start: float) -> Say:
    """Prints lines with the seconds since ``start``, so that a newcomer sees that it moves."""

    def say(words: str) -> None:
        print(f"[{time.monotonic() - start:6.1f} s] {words}", flush=True)

    return say
