"""Several workflows of several users on one testbed, one after another or at once, in a box.

All but the jobs' programs (:mod:`examples.compare.shapes`) is real: plans, DAGMans, hooks,
transfers, the broker, and the jobs of others that keep slots of a site.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from adon.machine import box, packages
from adon.planning.holdings import ask
from adon.planning.placement import PlacedWorkflow, leave_plan, place
from adon.planning.planner import plan_workflow
from adon.planning.plans import plans_of
from examples import scenario as scenarios
from examples.compare import shapes
from examples.compare.record import Cores
from examples.compare.schedule import CrowdRun, Entry, OtherLoad, Schedule, WorkflowRun
from examples.compare.ways import Way
from examples.demo import running, steps
from examples.demo.expected_gain import best_effort_only
from examples.demo.line import CHECK, clear
from examples.demo.supervise import BrokerProcess, watching
from examples.testbed import dagman
from examples.testbed.layout import Layout
from examples.testbed.testbed import Programs, Testbed
from monitors.archive.archive import Archive
from monitors.archive.knowledge import Knowledge
from monitors.base.estimates import Estimate
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status, WorkflowState
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import AdonError
from network_provisioner.base.units import bytes_of
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.planner.model import Options, PlannedWorkflow
from site_selector.catalogs.sources import Sources
from site_selector.estimates.running import Live
from site_selector.inputs import load_inputs

_WORKERS = {"mu": 1, "tacc": 3}  # their jobs sleep: there may be more than cores
_TEMPLATE = "soykb"
_NEEDED = ("condor", "gridftp", "bio", "openvswitch")  # no job calls anything of the third
_COMPUTE = ("queue_wait", "runtime", "compute_rate")
_SENT = re.compile(r"NBYTES=(\d+) .*DEST=\[([\d.]+)\].*TYPE=RETR")


def in_box(
    schedule: Schedule, way: Way, network: str, state: Path, known: Path | None, say: steps.Say
) -> CrowdRun:
    """Run a schedule in a box of its own. ``known`` is the archive of an earlier run; what this one
    adds is in ``state / "archive.sqlite"``. Raises AdonError."""
    state = state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    for stale in state.glob("archive.sqlite*"):
        stale.unlink()
    if known is not None:
        shutil.copyfile(known, state / "archive.sqlite")
    file = state / "run.json"
    file.unlink(missing_ok=True)
    passed = {
        "schedule": asdict(schedule),
        "way": asdict(way),
        "network": network,
        "state": str(state),
        "programs": {name: str(packages.ensure(name, progress=say)) for name in _NEEDED},
    }
    start = (
        f"import sys; sys.path.insert(0, {str(steps.ROOT)!r}); "
        "from examples.compare import crowd; sys.exit(crowd.inside(sys.argv[1]))"
    )
    words = [sys.executable, "-c", start, json.dumps(passed)]
    code = subprocess.run([*box.command(), *words], check=False).returncode
    run = CrowdRun.load(file)
    if code != 0 or run is None:
        raise AdonError(f"{way.name} did not come to its end, see above")
    return run


def inside(text: str) -> int:
    """One run, within the box. 0 for a run that came to its end."""
    passed: dict[str, Any] = json.loads(text)
    data: dict[str, Any] = passed["schedule"]
    entries = tuple(Entry(**fields) for fields in data["entries"])
    other_load = None if data["others"] is None else OtherLoad(**data["others"])
    schedule = Schedule(entries, data["most_s"], other_load, data["blind"])
    state, say = Path(passed["state"]), steps.clock(time.monotonic())
    programs = {name: Path(folder) for name, folder in passed["programs"].items()}
    try:
        with Cores() as cores:
            crowd = _Crowd(schedule, Way(**passed["way"]), passed["network"], state, say)
            run = crowd.run(Programs(*(programs[name] for name in _NEEDED)))
        loads = [load for at, load in cores.loads if at >= crowd.started] or [0.0]
        replace(run, cores=sum(loads) / len(loads)).save(state / "run.json")
    except (AdonError, OSError, KeyboardInterrupt) as error:
        print(f"adon: {error}", file=sys.stderr)
        return 2
    return 0


def layout_on(network: str) -> Layout:
    """SoyKB's sites on a network of the comparison, with one worker more. Raises InputError."""
    layout = scenarios.load("soykb").on(network).layout
    sites = [replace(s, workers=_WORKERS.get(s.name, s.workers)) for s in layout.sites]
    return replace(layout, sites=tuple(sites))


class _Crowd:
    """A schedule that runs. ``started`` is its beginning in Unix seconds."""

    def __init__(
        self, schedule: Schedule, way: Way, network: str, state: Path, say: steps.Say
    ) -> None:
        self.started = time.time()
        self._schedule, self._way, self._say = schedule, way, say
        self._scenario = replace(scenarios.load("soykb").on(network), layout=layout_on(network))
        self._run_dir, self._archive = state / "testbed", state / "archive.sqlite"
        self._runs: dict[int, WorkflowRun] = {}
        self._uuids: list[str] = []
        self._trouble: list[Exception] = []
        self._stop = threading.Event()

    def run(self, programs: Programs) -> CrowdRun:
        """From the testbed's start to what came of all. Raises AdonError, OSError."""
        run_dir, way = self._run_dir, self._way
        clear(run_dir)
        with ExitStack() as stack:
            layout = self._scenario.layout
            self._testbed = stack.enter_context(Testbed(layout, run_dir, programs, self._say))
            with Archive(self._archive):  # made before several open it
                pass
            self._config, url = steps.write_config(self._scenario, True, self._archive, run_dir)
            broker = stack.enter_context(BrokerProcess(self._config, url, run_dir / "broker.log"))
            self._client = broker.client
            hooks = steps.write_hooks(_TEMPLATE, url, self._archive, run_dir)
            stack.enter_context(watching(hooks, run_dir / steps.WATCH))
            self._where = shapes.testbed(self._testbed.write())
            for name in sorted({entry.shape for entry in self._schedule.entries}):
                for shape in shapes.parts(name):
                    shapes.store_inputs(shape, self._where)
            broker.ready()
            self._go()
            workflows = tuple(self._runs[n] for n in sorted(self._runs))
            reserved, unused = self._reserved() if way.hooks else (0.0, 0.0)
            return CrowdRun(way.name, workflows, self._moved(), reserved, unused, 0.0)

    def _go(self) -> None:
        self.started = time.time()
        threads: list[threading.Thread] = []
        for number, entry in enumerate(self._schedule.entries):
            if entry.at_s is not None:
                self._wait_until(self.started + entry.at_s)
            elif threads:
                self._join(threads[-1])
            if self._stop.is_set():
                break
            threads.append(threading.Thread(target=self._one, args=(number, entry), daemon=True))
            threads[-1].start()
            others = self._schedule.others
            if others is not None and others.entry == number:
                self._wait_until(time.time() + others.after_s)
                self._add_others(others)
        for thread in threads:
            self._join(thread)
        if self._trouble:
            raise AdonError(f"a workflow of {self._way.name}: {self._trouble[0]}")

    def _wait_until(self, when: float) -> None:
        while not self._stop.is_set() and (left_s := when - time.time()) > 0:
            self._stop.wait(min(left_s, 1.0))
            self._check()

    def _join(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            thread.join(1.0)
            self._check()

    def _check(self) -> None:
        """Raises AdonError where the pool has ended; stops all where time is over."""
        self._testbed.pool.check()
        if self._trouble or time.time() - self.started > self._schedule.most_s:
            self._stop.set()

    def _one(self, number: int, entry: Entry) -> None:
        """Plan a workflow, submit it, and follow it to its end, in a thread of its own."""
        try:
            self._runs[number] = self._run_one(number, entry)
        except Exception as error:  # raised by _go, where it is seen
            self._trouble.append(error)

    def _run_one(self, number: int, entry: Entry) -> WorkflowRun:
        submitted = time.time()
        shape_parts = shapes.parts(entry.shape)
        plans: list[tuple[PlacedWorkflow, PlannedWorkflow]] = []
        for n, shape in enumerate(shape_parts):
            folder = self._run_dir / "workflow" / f"{number}-{n}"
            workflow = shapes.write(shape, self._where, folder, entry.user)
            plans.append(self._plan(workflow, entry.user, later=n > 0))
        planned = [plan for _, plan in plans]
        self._uuids += [plan.wf_uuid for plan in planned]
        pool, sites = self._testbed.pool, dict[str, int]()
        for placed, _ in plans:
            for site in placed.mapping.sites.values():
                sites[site] = sites.get(site, 0) + 1
        expected = sum(placed.mapping.expected_s for placed, _ in plans)
        where = ", ".join(f"{count} at {site}" for site, count in sorted(sites.items()))
        self._say(f"{number} {entry.shape} of {entry.user}: {where}, expected {expected:.0f} s")
        if len(planned) == 1:
            cluster = running.start(planned[0], pool)
        else:
            cluster = dagman.submit_dag(self._outer(number, planned), pool.run)
        states: dict[Path, Status] = {}

        def on_status(folder: SubmitDir, status: Status) -> None:
            states[folder.path] = status

        with Archive(self._archive) as archive:
            folders = [plan.submit_dir for plan in planned]
            Follower(folders, archive, on_status=on_status).run(self._stop)
        ended = time.time()
        done = len(states) == len(planned) and all(
            status.state is WorkflowState.DONE for status in states.values()
        )
        state = "success" if done else running.STOPPED if self._stop.is_set() else "failed"
        if state == running.STOPPED:
            dagman.remove(cluster, pool.run)
        self._say(f"{number} {entry.shape}: {state} after {ended - submitted:.0f} s")
        return WorkflowRun(
            entry.shape,
            entry.user,
            state,
            submitted - self.started,
            ended - self.started,
            expected if self._way.by_adon else 0.0,
            sites,
        )

    def _plan(
        self, workflow: Path, user: str, later: bool
    ) -> tuple[PlacedWorkflow, PlannedWorkflow]:
        """Map and plan, as whoever submits it would; ``later``: it begins when another has ended,
        so that nobody is told of its plan yet."""
        way, output = self._way, self._scenario.output_site
        inputs = load_inputs(workflow)
        topology = topology_from_dict(self._scenario.layout.topology())
        pool = {site.name: site.workers for site in self._scenario.layout.sites}
        with Archive(self._archive) as archive:
            place_it = partial(place, inputs, output_site=output, seed=1)
            if not way.by_adon:
                placed = place_it(topology=topology, pool=pool)
                placed = steps.as_pegasus(placed, way.selector, len(self._runs), lambda _: None)
            elif self._schedule.blind:
                placed = place_it(source=_Blind(archive), topology=topology, pool=pool)
            else:
                live = Live(topology=best_effort_only(topology))
                if way.hooks:
                    live = ask(None, self._client, topology=topology, say=self._say)
                now = steps.asked_pool(self._testbed.pool)
                live = replace(live, pool=now, plans=plans_of(self._config).read())
                placed = place_it(source=Knowledge(archive), live=live)
        planned = plan_workflow(
            placed.inputs,
            Sources(workflow),
            placed.mapping,
            self._run_dir / "submit",
            output,
            self._run_dir / steps.HOOKS if way.hooks else None,
            Options(user=user, check="" if way.hooks else CHECK),
            running.pegasus_runner(self._testbed.pool),
            way.selector,
        )
        if way.by_adon and not later:
            leave_plan(self._config, planned.submit_dir, placed)
        return placed, planned

    def _outer(self, number: int, planned: Sequence[PlannedWorkflow]) -> Path:
        """A DAG of DAGs, one after another."""
        lines = [
            f"SUBDAG EXTERNAL part{n} {plan.dag} DIR {plan.dag.parent}"
            for n, plan in enumerate(planned)
        ]
        lines += [f"PARENT part{n - 1} CHILD part{n}" for n in range(1, len(planned))]
        file = self._run_dir / "submit" / f"{number}.dag"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    def _add_others(self, others: OtherLoad) -> None:
        """Somebody else's jobs: they come first, and stay."""
        file = self._run_dir / "submit" / "others.sub"
        file.write_text(
            "executable = /bin/sleep\narguments = 3600\ntransfer_executable = false\n"
            "should_transfer_files = NO\naccounting_group_user = mallory\n"
            f'requirements = PegasusSite == "{others.site}"\nqueue {others.slots}\n',
            encoding="utf-8",
        )
        self._testbed.pool.run(["condor_submit", file.name], cwd=file.parent)
        self._say(f"others take {others.slots} slots at {others.site}")

    def _moved(self) -> float:
        """Bytes between sites, by the GridFTP servers' own records of what they sent."""
        grid, moved = self._testbed.gridftp, 0
        for name, end in grid.sites.items():
            log = grid.transfer_log(name)
            text = log.read_text(encoding="utf-8") if log.exists() else ""
            moved += sum(int(n) for n, to in _SENT.findall(text) if to != end.address)
        return float(moved)

    def _reserved(self) -> tuple[float, float]:
        """Bytes that transfers' guaranteed rates would have carried, and how many of them were not
        moved. Raises BrokerError."""
        reserved = unused = 0.0
        for uuid in self._uuids:
            for transit in self._client.list(workflow=uuid):
                grant = transit.grant
                if grant.installed_at and grant.released_at:
                    seconds = grant.released_at - grant.installed_at
                    could = bytes_of(transit.request.min_bps) * seconds
                    reserved += could
                    unused += max(0.0, could - transit.usage.bytes)
        return reserved, unused


class _Blind:
    """Measurements of the network and of files, but not of compute."""

    def __init__(self, archive: Archive) -> None:
        self._known = Knowledge(archive)

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        """As the archive has it."""
        return None if metric in _COMPUTE else self._known.estimate(metric, subject, now)
