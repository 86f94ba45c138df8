"""The steps of the line, each a call of the package whose subject it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from adon.planning.placement import PlacedWorkflow, place
from condor_plugins.pool.sitepool import SitePool, pool_from_json
from examples.demo.options import DemoOptions
from examples.testbed import plan as paper
from examples.testbed.pool import Pool
from examples.testbed.ports import LOOPBACK, free_port
from monitors.archive.archive import Archive
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.templates.data import BUILT_IN
from network_provisioner.topology.data import topology_from_dict
from site_selector.inputs import load_inputs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "soykb"
OUTPUT_SITE = paper.HUB
TEMPLATE = "soykb"
HOOKS = "hooks.json"  # the hooks' configuration, in the run's folder
WATCH = "watch"  # the folder of the hooks' watcher, in the run's
_TOOL_S = 300.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Made:
    """What the example wrote: the workflow with its catalogs beside it, and the planted truth."""

    workflow: Path
    truth: Path
    name: str = "soykb"


def example(program: str, *words: str) -> str:
    """Run a program of the SoyKB example and return what it printed. Raises InputError."""
    script = EXAMPLE / program
    if not script.exists():
        raise InputError(f"{script}: found no such file; run the demo from a source checkout")
    # Tied: after a killed demo it would go on to write where the next one makes its data.
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=_TOOL_S,
        check=False,
    )
    if done.returncode == 2:
        raise InputError(done.stderr.strip().splitlines()[-1])
    if not done.stdout:
        raise AdonError(f"{program}: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


def make_workflow(options: DemoOptions, testbed_json: Path, out: Path, say: Say) -> Made:
    """Have the example make its data, workflow and catalogs. Raises InputError."""
    words = example(
        "workflow.py",
        *("--out", str(out), "--testbed", str(testbed_json)),
        *("--samples", str(options.samples), "--chromosomes", str(options.chromosomes)),
        *("--seed", str(options.seed)),
    )
    say(words.strip().removeprefix(f"{out}: "))
    return Made(out / "workflow.yml", out / "truth")


def write_config(options: DemoOptions, real: bool, run_dir: Path) -> tuple[Path, str]:
    """Write ``adon.yml`` for the testbed; the file and the broker's URL."""
    listen = f"{LOOPBACK}:{free_port()}"
    controller: dict[str, Any] = {"driver": "simulated"}
    if real:
        controller = {
            "driver": "openflow",
            "listen": paper.OPENFLOW_LISTEN,
            "exec": ["ip", "netns", "exec", paper.SWITCH_NETNS],
        }
    config = {
        "topology": paper.topology(),
        "controller": controller,
        "broker": {
            "listen": listen,
            "state": str(run_dir / "broker.sqlite"),
            "archive": str(options.state / "archive.sqlite"),
        },
        # The data is a thousandth of real ones, and so is what a circuit is worth setting up for.
        "templates": {TEMPLATE: {**BUILT_IN[TEMPLATE], "break_even": "256 KiB"}},
    }
    file = run_dir / "adon.yml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return file, f"http://{listen}"


def write_hooks(url: str, archive: Path, run_dir: Path) -> Path:
    """Write the hooks' configuration and return its path."""
    file = run_dir / HOOKS
    data = {
        "broker": url,
        # Also a laptop with much else to do may show what there is to be seen.
        "timeout_s": 10.0,
        "template": TEMPLATE,
        "archive": str(archive),
        "watch": str(run_dir / WATCH),
    }
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return file


def asked_pool(pool: Pool, timeout_s: float = 60.0) -> dict[str, SitePool]:
    """Every site as HTCondor's collector and schedd report it now. Raises AdonError."""
    words = [sys.executable, "-m", "condor_plugins.collector"]
    return pool_from_json(pool.run(words, cwd=ROOT, timeout_s=timeout_s))


def pool_slots(pool: Pool) -> tuple[dict[str, int], dict[str, int]]:
    """Slots per site as HTCondor's collector reports them now, and those that are free at once.

    Raises AdonError.
    """
    found = asked_pool(pool)
    workers = {name: site.slots for name, site in found.items()}
    idle = {name: site.idle_slots for name, site in found.items() if site.idle_jobs == 0}
    return workers, idle


def choose_sites(
    made: Made, archive: Archive, earlier: int, pool: Pool, seed: int, say: Say
) -> tuple[PlacedWorkflow, PlacedWorkflow]:
    """Map the workflow with all that was measured, and with the catalogs alone.

    The second of the two is what runs; the first is there to show what measurements changed. They
    are one where ``earlier``, the number of measurements in the archive, is zero.
    """
    inputs = load_inputs(made.workflow)
    topology = topology_from_dict(paper.topology())
    workers, idle = pool_slots(pool)
    placed = place(
        inputs,
        output_site=OUTPUT_SITE,
        source=archive,
        topology=topology,
        pool=workers,
        idle=idle,
        seed=seed,
    )
    before = placed
    if earlier:
        before = place(inputs, output_site=OUTPUT_SITE, topology=topology, pool=workers, seed=seed)
    counts: dict[str, int] = {}
    for site in placed.mapping.sites.values():
        counts[site] = counts.get(site, 0) + 1
    where = ", ".join(f"{n} at {site}" for site, n in sorted(counts.items()))
    say(
        f"site selection: {where}; expected end after {placed.mapping.makespan_s:.0f} s "
        f"(policy {placed.mapping.policy})"
    )
    return before, placed


def clock(start: float) -> Say:
    """Prints lines with the seconds since ``start``, so that a newcomer sees that it moves."""

    def say(words: str) -> None:
        print(f"[{time.monotonic() - start:6.1f} s] {words}", flush=True)

    return say


def check_science(made: Made, results: Path) -> dict[str, Any]:
    """Compare the filtered SNPs that were staged out with the planted ones. Raises InputError."""
    calls = sorted(results.glob("*filtered_snp*.vcf*"))
    if not calls:
        raise InputError(f"{results}: found no filtered SNPs, expected the workflow's result")
    text = example("check.py", "--truth", str(made.truth / "truth.vcf"), "--calls", str(calls[0]))
    found: dict[str, Any] = json.loads(text)
    return found
