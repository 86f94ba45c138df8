"""Brokers that are away, slow, dumb or silly, for workflows on a real pool."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faults_door import WAYS, Door, passes
from faults_flow import HASTY, Flow
from faults_world import (
    SLOWEST_HOOK_S,
    Service,
    holds,
    nothing_held,
    some,
    until,
)

from examples.testbed.pool import Pool
from network_provisioner.base.model import TransitState

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.timeout(1800)]


def listed(service: Service) -> dict[str, tuple[str, str]]:
    """What ``adon transit list --all`` shows: state and reason of each."""
    adon = str(Path(sys.executable).with_name("adon"))
    words = [adon, "transit", "list", "--all", "--json", "--broker", service.url]
    said: list[str] = []

    def listed() -> bool:
        """It waits 10 s for an answer."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said.append(done.stdout)
        return done.returncode == 0

    until(listed)
    return {t["id"]: (t["state"], t["reason"]) for t in json.loads(said[-1])}


def check(service: Service, flow: Flow) -> None:
    """Nothing is held; every transfer stands there, with its reason where it had no path; no hook
    took longer than it may."""
    after_s = nothing_held(service)
    slowest_s = service.slowest_s()
    print(f"slowest hook {slowest_s:.2f} s; {after_s:.1f} s until nothing was held")
    assert slowest_s < SLOWEST_HOOK_S
    # What only the journal had is told by the watcher.
    until(lambda: {t.request.job for t in flow.transits()} == set(flow.jobs), said=service.says)
    for state, reason in listed(service).values():
        assert state in ("released", "expired", "best_effort") and reason


@pytest.mark.parametrize("how", some(list(WAYS), 3))
def test_a_broker_that_is_slow_or_silly(
    pool: Pool, service: Service, door: Door, tmp_path: Path, how: str
) -> None:
    door.how = WAYS[how]
    flow = Flow(tmp_path / "run", service, 3, url=door.url, config=HASTY).write()
    assert flow.run(pool) == "success"
    said = [line["reason"] for line in flow.journal() if line["event"] == "warning"]
    assert sum("best effort" in reason for reason in said) >= 3, said
    door.how = passes
    check(service, flow)


def test_a_broker_that_falls_silent_while_transfers_run(
    pool: Pool, service: Service, door: Door, tmp_path: Path
) -> None:
    # The watcher waits for an answer for as long as it was told when it began, and asks again then.
    some_s = {"timeout_s": 20.0}
    flow = Flow(tmp_path / "run", service, 2, url=door.url, waits=True, config=some_s).write()
    flow.submit(pool)
    holds(service, 2)
    flow.configure(**HASTY)
    door.how = WAYS["never answers"]
    flow.let_go()
    assert flow.wait().state == "success"
    door.how = passes
    check(service, flow)


def test_a_broker_that_is_away(pool: Pool, service: Service, tmp_path: Path) -> None:
    service.revive = False
    service.kill()
    flow = Flow(tmp_path / "run", service, 3).write()
    assert flow.run(pool) == "success"
    service.revive = True
    until(lambda: bool(service.client.health()))
    check(service, flow)


def test_a_broker_that_goes_away_while_transfers_run(
    pool: Pool, service: Service, tmp_path: Path
) -> None:
    flow = Flow(tmp_path / "run", service, 2, waits=True).write().submit(pool)
    holds(service, 2)
    service.revive = False
    service.kill()
    flow.let_go()
    assert flow.wait().state == "success"
    service.revive = True
    until(lambda: bool(service.client.health()))
    check(service, flow)
    assert {t.state for t in flow.transits()} == {TransitState.RELEASED}
