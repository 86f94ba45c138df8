"""The wall clock is set while transfers of a real pool hold paths."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from faults_flow import Flow
from faults_world import Service, holds, nothing_held, some, until

from examples.testbed.pool import Pool
from network_provisioner.base.model import LIVE, TransitState

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.timeout(1800)]

HOUR = 3600
JUMPS = [HOUR, -HOUR, 30 * 24 * HOUR, -30 * 24 * HOUR]


@pytest.mark.parametrize("by_s", some(JUMPS, 2))
def test_paths_stay_as_long_as_their_transfers(
    pool: Pool, service: Service, tmp_path: Path, by_s: int
) -> None:
    flow = Flow(tmp_path / "run", service, 2, waits=True).write()
    submitted = time.monotonic()
    flow.submit(pool)
    holds(service, 2)
    held = time.monotonic()
    before = {t.id: t.grant.lease_until for t in flow.transits()}
    service.set_clock(by_s)
    until(lambda: f"the wall clock was set by {by_s:+.1f} s" in service.log())

    def moved() -> bool:
        """Whether every lease ends at the same instant as before, as the clocks have it now."""
        return all(abs(t.grant.lease_until - by_s - before[t.id]) < 2 for t in flow.transits())

    until(moved, said=service.says)
    assert {t.state for t in flow.transits()} <= LIVE
    least_s = time.monotonic() - held
    flow.let_go()
    assert flow.wait().state == "success"
    nothing_held(service)
    most_s = time.monotonic() - submitted
    ended = flow.transits()
    assert {t.state for t in ended} == {TransitState.RELEASED}
    for transit in ended:  # as long as it was, whatever the clocks said
        assert least_s - 1 < transit.grant.released_at - transit.grant.installed_at < most_s + 1


def test_hooks_start_while_it_is_set(pool: Pool, service: Service, tmp_path: Path) -> None:
    flow = Flow(tmp_path / "run", service, 6, waits=True, max_hooks=1).write().submit(pool)
    for number, by_s in enumerate((HOUR, 0, -HOUR)):
        until(lambda: len(service.held()) > 0)
        service.set_clock(by_s)
        until(lambda n=number: service.log().count("the wall clock was set") > n)  # type: ignore[misc]
        flow.let_go(flow.job(number))
    flow.let_go()
    assert flow.wait().state == "success"
    nothing_held(service)
    assert {t.state for t in flow.transits()} == {TransitState.RELEASED}
    assert {t.request.job for t in flow.transits()} == set(flow.jobs)


@pytest.mark.parametrize("by_s", [HOUR, -HOUR])
def test_no_post_runs_after_it_was_set(
    pool: Pool, service: Service, tmp_path: Path, by_s: int
) -> None:
    service.set_clock(by_s)  # PRE notes this time, everybody else has the right one
    faults = {"post stage_in_local_tacc_0_0 0": {"step": 1, "kill": "hook"}}
    flow = Flow(tmp_path / "run", service, 1, waits=True, retries=0).write(faults).submit(pool)
    holds(service, 1)
    service.set_clock(0)
    flow.let_go()
    flow.wait()
    assert len(service.told("struck")) == 1
    nothing_held(service)
    assert {t.state for t in flow.transits()} == {TransitState.RELEASED}
