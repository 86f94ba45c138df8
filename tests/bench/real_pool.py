"""A DAG of jobs that sleep, and machines that take their time to boot, for a real HTCondor pool.

A machine is a ``condor_master`` on this machine that sleeps before it begins. Times are those of
:mod:`tests.bench.shapes`, divided by a scale; what HTCondor itself takes is not.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from examples.testbed.dagman import DagLog, submit_dag
from examples.testbed.pool import Pool
from monitors.jobs.jobs import Attempt, Jobs
from monitors.workflows.logs.events import EventTail, Kind
from monitors.workflows.planned.submit_dir import SubmitDir
from site_selector.evaluation.traces import Trace
from tests.bench.pool_world import Boot

SITE = "mu"
STARTD_S = 2.0  # from the start of a condor_master until its startd is in the collector, about
LEAST_S = 0.2  # of a job
_LOOK_S = 0.2
_SUB = """\
executable = {program}
arguments = $(seconds)
requirements = TARGET.PegasusSite == "{site}"
should_transfer_files = YES
transfer_executable = False
request_memory = 16
request_disk = 100
notification = NEVER
+pegasus_site = "{site}"
+pegasus_wf_xformation = "{kind}"
+pegasus_job_class = 1
queue
"""
_MASTER = """\
#!{python} -IS
import os, random, signal, sys, time
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
time.sleep(max(0.0, random.lognormvariate({mu!r}, {sigma!r}) - {startd_s!r}))
os.execv({master!r}, sys.argv)
"""


def write_dag(folder: Path, trace: Trace, scale: float) -> Path:
    """The DAG of a trace: of each transformation a program of its own, which sleeps."""
    folder.mkdir()
    lines = []
    for kind in dict.fromkeys(trace.kinds):
        program = folder / kind
        program.symlink_to("/bin/sleep")
        (folder / f"{kind}.sub").write_text(_SUB.format(program=program, site=SITE, kind=kind))
    for name, kind, seconds in zip(trace.tasks, trace.kinds, trace.runtime_s, strict=True):
        lines += [f"JOB {name} {kind}.sub", f'VARS {name} seconds="{took_s(seconds, scale):.2f}"']
    for name, parents in zip(trace.tasks, trace.parents, strict=True):
        if parents:
            lines.append(f"PARENT {' '.join(trace.tasks[p] for p in parents)} CHILD {name}")
    dag = folder / "soykb.dag"
    dag.write_text("\n".join(lines) + "\n")
    return dag


def took_s(seconds: float, scale: float) -> float:
    """Of a job that took so long where it was traced."""
    return max(LEAST_S, seconds / scale)


def slow_release(real: Path, folder: Path, boot: Boot) -> Path:
    """HTCondor as it lies in ``real``, but for a master that begins late."""
    (folder / "sbin").mkdir(parents=True)
    for path in real.iterdir():
        if path.name != "sbin":
            (folder / path.name).symlink_to(path)
    for path in (real / "sbin").iterdir():
        if path.name != "condor_master":
            (folder / "sbin" / path.name).symlink_to(path)
    sigma = math.sqrt(math.log(1 + (boot.spread_s / boot.mean_s) ** 2))
    text = _MASTER.format(
        python=sys.executable, mu=math.log(boot.mean_s) - sigma**2 / 2, sigma=sigma,
        startd_s=STARTD_S, master=str(real / "sbin/condor_master"),
    )  # fmt: skip
    master = folder / "sbin/condor_master"
    master.write_text(text)
    master.chmod(0o755)
    return folder


@dataclass(slots=True)
class Life:
    """Of a machine, in Unix seconds: asked for, up (its startd runs), deleted; 0 where not yet."""

    asked: float
    up: float = 0.0
    gone: float = 0.0


class Lives:
    """Those of all machines in a directory of :class:`StartdCloud`, by any starter."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.of: dict[str, Life] = {}

    def observe(self, now: float) -> None:
        there = set()
        for path in self._directory.glob("*/machine.json"):
            try:
                row = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            name = path.parent.name
            if name == "last-ended":
                continue
            life = self.of.setdefault(name, Life(row["since"]))
            if not life.up and (path.parent / "log/.startd_address").exists():
                life.up = now
            if "deleted" not in row:
                there.add(name)
        for name, life in self.of.items():
            if name not in there and not life.gone:
                life.gone = now

    @property
    def left(self) -> int:
        """How many there are."""
        return sum(not life.gone for life in self.of.values())

    @contextlib.contextmanager
    def watched(self, clock: Callable[[], float] = time.time) -> Iterator[None]:
        """Looks again and again."""
        over = Event()

        def watch() -> None:
            while not over.wait(_LOOK_S):
                self.observe(clock())

        thread = Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run. Times in seconds; ``used_s`` and ``idle_s`` in core-seconds, the idle
    ones of machines that are up; ``boots`` are those seen. ``most`` ran at once."""

    makespan_s: float
    machine_s: float
    used_s: float
    idle_s: float
    machines: int
    never: int
    boots: tuple[float, ...]
    evicted: int
    most: int


def attempts_of(dag: Path) -> tuple[Sequence[Attempt], int]:
    """All of a DAG that has run, and how many were evicted."""
    submit_dir = SubmitDir(dag.parent)
    jobs = Jobs(submit_dir.job, "soykb")
    events = EventTail(dag.with_name(dag.name + ".nodes.log")).read()
    for event in events:
        jobs.feed(event)
    return jobs.all, sum(event.kind is Kind.EVICTED for event in events)


def ran(dag: Path, began: float, lives: Lives, cores: int, until: float) -> Ran:
    """Of a DAG submitted when it ``began``, on machines of so many cores, which count from then and
    ``until`` a Unix second."""
    attempts, evicted = attempts_of(dag)
    used = [(attempt.start, attempt.end) for attempt in attempts if attempt.start and attempt.end]
    used_s = sum(end - start for start, end in used)
    on = {attempt.slot.split("@")[1] for attempt in attempts if attempt.slot}
    spans = [
        (max(began, life.asked), max(began, life.up or gone), gone)
        for life in lives.of.values()
        for gone in (min(until, life.gone or until),)
    ]
    steps = sorted([(at, 1) for at, _ in used] + [(at, -1) for _, at in used])
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return Ran(
        max(end for _, end in used) - began,
        sum(gone - start for start, _, gone in spans),
        used_s,
        cores * sum(gone - up for _, up, gone in spans) - used_s,
        len(spans),
        sum(name not in on for name in lives.of),
        tuple(life.up - life.asked for life in lives.of.values() if life.up),
        evicted,
        most,
    )


def run_dag(pool: Pool, dag: Path, most_s: float, narrow: int, event: Event) -> float:
    """To its end; when it was submitted (Unix seconds). ``event`` is set when so many jobs have
    ended (``narrow``). Raises AssertionError, AdonError."""
    began = time.time()
    cluster = submit_dag(dag, pool.run)
    log = dag.with_name(dag.name + ".nodes.log")
    ends = DagLog(dag, cluster)
    while (end := ends.poll()) is None:
        assert time.time() < began + most_s, f"no end within {most_s:g} s"
        if not event.is_set() and log.exists() and log.read_text().count("\n005 (") >= narrow:
            event.set()
        time.sleep(0.5)
    assert end.state == "success", end
    return began
