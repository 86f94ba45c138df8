"""P16: a real HTCondor pool without execute nodes, which grows for SoyKB's shape with 41 samples.

With ADON's daemon, with access-provisioner's rule, and on as many machines that are up beforehand.
Jobs sleep. All times are divided by ``ADON_P16_SCALE``: run times, boots of 300 s, the rule's loop
of 30 s and its 30 idle minutes, and what ADON believes of jobs of which it knows nothing. What
HTCondor, DAGMan and ADON's own turns take is not. ADON knows the run times of another workflow of
the family, once it does not.

The last job takes most of the time, so the next run, in a pool of its own, begins with it.
``ADON_P16_RUNS`` names runs, separated by |.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, pstdev
from threading import Event

from adon.machine import packages
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.facts.attempts import runtime_subject
from tests.bench import Figure, Tell, bench
from tests.bench.pool_peers import AccessProvisioner
from tests.bench.pool_world import Boot
from tests.bench.real_pool import (
    SITE,
    Lives,
    Ran,
    ran,
    run_dag,
    slow_release,
    took_s,
    write_dag,
)
from tests.bench.shapes import soykb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from startd_world import adon, at_work, write_config
from waiting import until

SCALE = float(os.environ.get("ADON_P16_SCALE", "30"))
BOOT = Boot(300 / SCALE, 60 / SCALE)
CORES, MACHINES = 2, 12  # of a machine, as access-provisioner's; at most
EVERY_S = 1.0  # between two of ADON's looks
JOBS_TAKE_S = 600 / SCALE
MOST_S = 7200.0
KNOWING, FIRST = "ADON", "ADON, no run times known"
NARROW = 740  # of the 756 jobs
RULE, DEFAULT, THERE = "access-provisioner", "access-provisioner, its default", "there beforehand"
RUNS = (KNOWING, RULE, FIRST, THERE)  # the default of one machine takes half an hour


@bench("P16")
def soykb_on_a_real_pool(tell: Tell) -> Iterable[Figure]:
    """Each run in a pool of its own."""
    condor = packages.ensure("condor", progress=tell)
    names = os.environ.get("ADON_P16_RUNS", "|".join(RUNS)).split("|")
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        release = slow_release(condor / "root/usr", Path(name) / "slow", BOOT)

        def run(what: str, folder: Path, narrow: Event) -> Ran:
            try:
                with Pool(folder / "pool", condor, {}) as pool:
                    result = _run(pool, folder, release, what, narrow)
            finally:
                narrow.set()
            tell(f"{what}: {_line(result)}")
            return result

        with ThreadPoolExecutor(len(names)) as threads:
            runs = {}
            for number, what in enumerate(names):
                folder, narrow = Path(name) / f"run{number}", Event()
                folder.mkdir()
                runs[what] = threads.submit(run, what, folder, narrow)
                narrow.wait()
        yield from figures({what: future.result() for what, future in runs.items()})


def _learnt(folder: Path) -> None:
    """What another workflow's jobs took."""
    other = soykb(10, 12, seed=90)
    with Archive(folder / "adon-archive.sqlite") as archive:
        archive.record_many(
            Measurement(
                f"runtime:{name}", "runtime", runtime_subject(kind, SITE),
                took_s(seconds, SCALE), "s", time.time(), "kickstart",
            )
            for name, kind, seconds in zip(
                other.tasks, other.kinds, other.runtime_s, strict=True
            )
        )  # fmt: skip


def _run(pool: Pool, folder: Path, release: Path, what: str, narrow: Event) -> Ran:
    if what == KNOWING:
        _learnt(folder)
    config = write_config(
        folder, pool, release=str(release), directory=str(folder / "machines"), machines=MACHINES,
        flavours={
            "c2": {"cores": CORES, "memory_mb": 1024, "boot": f"{BOOT.mean_s} s",
                   "boot_spread": f"{BOOT.spread_s} s"}
        },
        every=f"{EVERY_S} s", jobs_take=f"{JOBS_TAKE_S} s", site=SITE, idle="2 h",
    )  # fmt: skip
    dag = write_dag(folder / "dag", soykb(41, 12, seed=1), SCALE)
    lives = Lives(folder / "machines")
    with lives.watched(), at_work(pool, _command(config, what), folder) as daemon:
        log = folder / "daemon.log"
        until(lambda: "at work" in log.read_text() or daemon.poll() is not None, "its start")
        if what == THERE:
            until(lambda: _joined(pool) == MACHINES, "all machines")
        began = run_dag(pool, dag, MOST_S, NARROW, narrow)
        ended = time.time()
        if what != THERE:
            until(lambda: not lives.left, "the machines to be gone", 600)
        assert daemon.poll() is None
    lives.observe(time.time())
    return ran(dag, began, lives, CORES, ended if what == THERE else time.time())


def _command(config: Path, what: str) -> list[str]:
    if what in (KNOWING, FIRST):
        return adon(config, "run")
    rule = "at once" if what == THERE else "access-provisioner"
    most = 1 if what == DEFAULT else MACHINES
    idle_s = "inf" if what == THERE else str(AccessProvisioner.idle_s / SCALE)
    every_s = str(AccessProvisioner.turn_s / SCALE)
    words = [str(config), rule, str(most), every_s, idle_s]
    return [sys.executable, "-m", "tests.bench.pool_rule", *words]


def _joined(pool: Pool) -> int:
    ours = ["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "Name"]
    return len(pool.run(ours).split())


def _line(run: Ran) -> str:
    boots = f"{fmean(run.boots):.1f} +- {pstdev(run.boots):.1f} s" if run.boots else "none seen"
    return (
        f"{run.makespan_s:.0f} s, {run.machine_s:.0f} machine-seconds, {run.used_s:.0f} "
        f"core-seconds used and {run.idle_s:.0f} idle, {run.machines} machines of which "
        f"{run.never} ran no job, boots {boots}, {run.most} jobs at once, {run.evicted} evicted"
    )


def figures(runs: Mapping[str, Ran]) -> Iterable[Figure]:
    """ADON's beside the others'."""

    def figure(words: str, unit: str, of: Callable[[Ran], float]) -> Figure:
        values = {name: of(run) for name, run in runs.items()}
        ours = values.pop(KNOWING, None)
        if ours is None:
            ours = values.pop(next(iter(values)))
        return Figure(words, ours, unit, better="lower", peers=values)

    yield figure("makespan of 756 jobs", "s", lambda run: run.makespan_s)
    yield figure("machine-seconds", "s", lambda run: run.machine_s)
    yield figure("idle core-hours, of those used", "%", lambda run: 100 * run.idle_s / run.used_s)
    yield figure("machines started", "machines", lambda run: run.machines)
    yield figure("of these without any job", "machines", lambda run: run.never)
