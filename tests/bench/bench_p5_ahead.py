"""P5: of what is reserved for the transfers of a workflow, how much they use.

The planned SoyKB workflow runs on a real broker in a time of its own (``tests/ahead_run.py``), on
the network and with the template of Figure 18: DAGMan, workers, hooks and the transfer tool (2 s
until its first byte) are played second by second, with run times and sizes that are off from what
is believed by up to 30 %, or 60 %. Reserved is a transfer's guaranteed rate for as long as it is
held for it, its time having come; used is what its bytes take of that. The peers reserve once and
correct nothing, and do not reserve in advance at all: then nothing is held early, and nothing is
sure to be there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

from examples.soykb.fig18.story import TEMPLATES
from examples.soykb.scenario import LAYOUT
from monitors.workflows.planned.dag import PlannedDag, read_dag
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.advance.job_estimates import EstimateReader, JobEstimates
from pegasus_hooks.planner import Options, Sources, plan
from site_selector.inputs import load_inputs
from tests.ahead_run import Truth, VirtualRun
from tests.bench import Figure, Tell, bench
from tests.bench.worlds import soykb

GOAL = 95.0
DEMO, LARGE = (3, 2, 300_000), (4, 4, 50_000_000)  # samples, chromosomes, base pairs of each
RUNS = 3
START = 1_000_000.0


@dataclass
class Clock:
    """Unix seconds that pass when told to."""

    now: float = START

    def __call__(self) -> float:
        """The time."""
        return self.now


@dataclass
class Here:
    """A broker in this process."""

    broker: Broker
    clock: Clock


@contextmanager
def broker() -> Iterator[Here]:
    """On Figure 18's network, with the simulated controller."""
    clock, network = Clock(), topology_from_dict(LAYOUT.topology())
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        store = SqliteStore(Path(name) / "state.sqlite")
        controller = SimulatedController(network, clock)
        made = Broker(network, templates_from_dict(TEMPLATES), controller, store, clock=clock)
        made.start()
        yield Here(made, clock)
        made.stop()


def planned(folder: Path, size: tuple[int, int, int]) -> PlannedDag:
    """SoyKB with its jobs at all sites, in turns, so that much must move."""
    workflow = soykb(folder / "soykb", *size)
    inputs, rng = load_inputs(workflow), Random(5)
    mapping = {job: rng.choice(sites) for job, sites in inputs.candidates.items()}
    made = plan(inputs, Sources(workflow), mapping, folder / "submit", "local", None, Options("u"))
    return read_dag(made.submit_dir)


def true(dag: PlannedDag, estimates: JobEstimates, off: float, rng: Random) -> Truth:
    """What is true where estimates are off by up to this part."""

    def factor() -> float:
        return rng.uniform(1 - off, 1 + off)

    sizes = {
        (node.name, moving.pair): (moving.size_bytes(estimates.sizes) or 0.0) * factor()
        for node in dag.nodes.values()
        for moving in node.first
    }
    run_s = {name: seconds * factor() for name, seconds in estimates.run_s.items()}
    return Truth(run_s, sizes, estimates.workers)


def runs(
    dag: PlannedDag,
    estimates: JobEstimates,
    off: float,
    reserve: Literal["always", "once", "never"],
) -> list[VirtualRun]:
    """The same few truths, each time."""
    results = []
    for seed in range(RUNS):
        with broker() as here:
            truth = true(dag, estimates, off, Random(seed))
            run = VirtualRun(here, dag, estimates, truth, reserve, template="soykb", step_s=1.0)
            run.run(1e7)
            if run.left():
                raise RuntimeError(f"{len(run.left())} transits were left")
            results.append(run)
    return results


def share(results: list[VirtualRun]) -> float:
    """Per cent of the byte-seconds of all runs."""
    return 100 * sum(run.used for run in results) / max(1.0, sum(run.reserved for run in results))


@bench("P5")
def reserved_and_used(tell: Tell) -> Iterable[Figure]:
    """Of the byte-seconds that are reserved, the part that is used."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        for what, size, offs in (("9 GB", LARGE, (0.3, 0.6)), ("21 MB", DEMO, (0.3,))):
            tell(f"SoyKB with {what} of input is planned (not measured)")
            dag = planned(Path(name) / what.replace(" ", ""), size)
            estimates = EstimateReader(dag)(None, START)
            for off in offs:
                always = runs(dag, estimates, off, "always")
                peers = {
                    "reserved once": share(runs(dag, estimates, off, "once")),
                    "when asked": share(runs(dag, estimates, off, "never")),
                }
                title = f"reserved byte-seconds used, SoyKB {what}, ±{100 * off:.0f} %"
                goal = GOAL if size is LARGE else None
                yield Figure(title, share(always), "%", "higher", goal=goal, peers=peers)
                there = fmean(sum(r.planned.values()) / len(r.planned) for r in always)
                title = (
                    f"transfers whose path was there before they asked, {what}, ±{100 * off:.0f} %"
                )
                yield Figure(title, 100 * there, "%", "higher")
