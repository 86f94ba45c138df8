"""Switches that are killed, or stand still, under workflows on a real pool."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults_flow import HASTY, Flow, plan, steps_of
from faults_world import (
    PATIENT_S,
    SLOWEST_HOOK_S,
    Service,
    Switches,
    holds,
    nothing_held,
    until,
    without_reason,
)

from examples.testbed.pool import Pool
from network_provisioner.base.model import TransitState

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def service(
    tmp_path: Path, switches: Switches, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """A broker for these switches; its parameter is how long it waits for them, in seconds."""
    controller = switches.controller(getattr(request, "param", PATIENT_S))
    with Service(tmp_path / "broker", controller=controller) as up:
        yield up


def test_switches_are_killed_while_transfers_hold_paths(
    pool: Pool, service: Service, switches: Switches, tmp_path: Path
) -> None:
    flow = Flow(tmp_path / "run", service, 3, waits=True).write().submit(pool)
    holds(service, 3)
    switches.revive = False
    switches.kill()
    flow.let_go()
    assert flow.wait().state == "success"
    nothing_held(service)
    assert {t.state for t in flow.transits()} == {TransitState.RELEASED}
    assert service.client.health()["status"] == "degraded"
    switches.revive = True
    until(lambda: service.client.health()["status"] == "ok")


def test_switches_are_away_when_a_path_is_asked_for(
    pool: Pool, service: Service, switches: Switches, tmp_path: Path
) -> None:
    switches.revive = False
    switches.kill()
    flow = Flow(tmp_path / "run", service, 3).write()
    assert flow.run(pool) == "success"
    nothing_held(service)
    ended = flow.transits()
    assert {t.request.job for t in ended} == set(flow.jobs)
    for transit in ended:
        assert transit.state in (TransitState.FAILED, TransitState.BEST_EFFORT)
        assert "do not answer" in transit.reason


@pytest.mark.parametrize("service", [1.0], indirect=True)
def test_switches_stand_still(
    pool: Pool, service: Service, switches: Switches, tmp_path: Path
) -> None:
    os.kill(switches.pid(), signal.SIGSTOP)
    flow = Flow(tmp_path / "run", service, 3, config=HASTY).write()
    assert flow.run(pool) == "success"
    os.kill(switches.pid(), signal.SIGCONT)
    nothing_held(service)
    assert service.slowest_s() < SLOWEST_HOOK_S
    assert all(t.reason for t in flow.transits())


def test_switches_are_killed_at_a_step(
    pool: Pool, service: Service, switches: Switches, tmp_path: Path
) -> None:
    steps = steps_of(service, Flow(tmp_path / "steps", service, 2).write())
    faults = plan(steps, 2, "switches")
    flow = Flow(tmp_path / "run", service, len(faults), max_hooks=1).write(faults)
    assert flow.run(pool) == "success"
    after_s = nothing_held(service)
    until(lambda: switches.deaths > 0)  # who starts them again has seen it
    assert {t.request.job for t in flow.transits()} == set(flow.jobs)
    assert without_reason(flow.transits()) == []
    print(f"{switches.deaths} kills of the switches, {after_s:.1f} s until nothing was held")
