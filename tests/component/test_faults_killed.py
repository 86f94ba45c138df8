"""kill -9 of hooks, DAGMan and broker at the steps of a hook, in workflows on a real pool."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from faults_flow import Flow, plan, steps_of
from faults_world import (
    Service,
    end_watchers,
    holds,
    nothing_held,
    nothing_held_but,
    until,
    without_reason,
)

from examples.testbed.pool import Pool

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def steps(service: Service, tmp_path: Path) -> dict[str, list[str]]:
    """Of the first PRE of a workflow, of another, and of POST."""
    steps_by_script = steps_of(service, Flow(tmp_path / "steps", service, 2).write())
    assert all(len(names) > 10 for names in steps_by_script.values()), steps_by_script
    return steps_by_script


def check(service: Service, flow: Flow, what: str) -> None:
    """Nothing is held, and who had no path says why."""
    after_s = nothing_held(service)
    assert without_reason(flow.transits()) == []
    struck = len(service.told("struck"))
    print(f"{struck} {what}, {after_s:.1f} s until nothing was held")


def test_hooks_are_killed(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 3, "hook")
    flow = Flow(tmp_path / "run", service, len(faults)).write(faults)
    assert flow.run(pool) == "success"
    assert len(service.told("struck")) == len(faults)
    check(service, flow, "hooks killed, tried again")


def test_hooks_are_killed_and_nobody_tries_again(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 3, "hook")
    flow = Flow(tmp_path / "run", service, len(faults), retries=0).write(faults)
    flow.run(pool)  # DAGMan lets a job fail whose PRE was killed
    assert len(service.told("struck")) == len(faults)
    check(service, flow, "hooks killed, not tried again")


def test_the_first_hook_of_a_workflow_is_killed(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 2, "hook", ["first"])
    service.plan(faults)
    flows = [
        Flow(tmp_path / f"run{n}", service, 1, first=n, config={"watch": str(tmp_path / f"w{n}")})
        for n in range(len(faults))
    ]
    for flow in flows:
        flow.write().submit(pool)
    assert {flow.wait().state for flow in flows} == {"success"}
    assert len(service.told("struck")) == len(faults)
    for flow in flows:
        check(service, flow, "first hooks killed")


def test_dagman_is_killed(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 2, "dagman")
    flow = Flow(tmp_path / "run", service, len(faults), max_hooks=1).write(faults)
    assert flow.run(pool) == "success"
    check(service, flow, "kills of DAGMan")


def test_the_broker_is_killed(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 2, "broker")
    flow = Flow(tmp_path / "run", service, len(faults), max_hooks=1).write(faults)
    assert flow.run(pool) == "success"
    service.wait()
    check(service, flow, "kills of the broker")


def test_jobs_are_held_and_removed(pool: Pool, service: Service, tmp_path: Path) -> None:
    flow = Flow(tmp_path / "run", service, 3, seconds=600, retries=0).write().submit(pool)
    holds(service, 3)
    until(lambda: len(running(pool, flow)) == 3)
    first, second, third = running(pool, flow)
    pool.run(["condor_hold", first])
    pool.run(["condor_rm", second])
    nothing_held_but(service, 1)
    pool.run(["condor_release", first])
    until(lambda: len(running(pool, flow)) == 2)
    pool.run(["condor_rm", first, third])
    flow.wait()
    check(service, flow, "kills, jobs held and removed")


def test_dagman_is_held_while_its_jobs_end(pool: Pool, service: Service, tmp_path: Path) -> None:
    flow = Flow(tmp_path / "run", service, 2, waits=True).write().submit(pool)
    until(lambda: len(running(pool, flow)) == 2)
    pool.run(["condor_hold", str(flow.cluster)])
    assert flow.wait().state == "held"
    flow.let_go()
    nothing_held(service)  # no POST has run
    pool.run(["condor_rm", str(flow.cluster)])
    check(service, flow, "kills, DAGMan held")


def test_dagman_is_killed_for_good(pool: Pool, service: Service, tmp_path: Path) -> None:
    flow = Flow(tmp_path / "run", service, 2, waits=True).write().submit(pool)
    holds(service, 2)
    until(lambda: len(running(pool, flow)) == 2)
    pool.run(["condor_qedit", str(flow.cluster), "OnExitRemove", "true"])
    os.kill(flow.dagman_pid(), signal.SIGKILL)
    assert flow.wait().state == "failed"
    flow.let_go()
    nothing_held(service)  # its jobs have run to their ends
    check(service, flow, "kills, DAGMan killed for good")


def test_the_watcher_is_killed_too(
    pool: Pool, service: Service, steps: dict[str, list[str]], tmp_path: Path
) -> None:
    faults = plan(steps, 3, "hook", ["post"])
    flow = Flow(tmp_path / "run", service, len(faults), waits=True).write(faults).submit(pool)
    holds(service, len(faults))
    end_watchers(tmp_path)
    flow.let_go()
    assert flow.wait().state == "success"
    check(service, flow, "hooks killed, watcher killed")


def running(pool: Pool, flow: Flow) -> list[str]:
    """The ids of its transfer jobs that run."""
    which = f"DAGManJobId == {flow.cluster} && JobStatus == 2"
    words = ["condor_q", "-allusers", "-constraint", which]
    return pool.run([*words, "-af:j", "JobStatus"]).split()[::2]
