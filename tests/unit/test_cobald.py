"""The demand that ADON gives to COBalD."""

from __future__ import annotations

import pytest

from condor_plugins.pool.scaling import Flavour, JobDemand, Machine, MachineState, RunningJob

pytest.importorskip("cobald")
from condor_plugins.pool.expander.cobald import Level, level

NOW = 1_000_000.0
DRONE = Flavour("drone", 4, 8000, boot_s=100.0, boot_spread_s=10.0)
SLOT = Flavour("own-0", 4, 8000, boot_s=0.0, boot_spread_s=0.0)


def waiting(count: int, ready_at: float = NOW) -> JobDemand:
    return JobDemand(count, 1, 1000, ready_at, 600.0)


def slot(name: str, *ends_s: float) -> Machine:
    jobs = tuple(RunningJob(1, NOW + end_s) for end_s in ends_s)
    return Machine(name, SLOT, MachineState.RUNNING, 0.0, jobs, fixed=True)


def wanted(
    jobs: list[JobDemand],
    machines: list[Machine],
    joined: str = "",
    asked_at: tuple[float, ...] = (),
) -> Level:
    return level(jobs, machines, joined.split(), asked_at, DRONE, NOW)


def test_waiting_jobs_are_drones_and_those_on_their_way_are_counted_once() -> None:
    assert wanted([waiting(8)], []) == Level(8.0, (NOW, NOW))
    assert wanted([waiting(8)], [], asked_at=(NOW - 50, NOW - 50)).cores == 8.0


def test_jobs_that_a_dag_will_have_within_a_boot_are_drones_already() -> None:
    assert wanted([waiting(4, NOW + 60)], []).cores == 4.0
    assert wanted([waiting(4, NOW + 600)], []).cores == 0.0


def test_machines_that_are_no_drones_are_used_first_and_never_let_go() -> None:
    assert wanted([waiting(4)], [slot("static")]).cores == 0.0
    assert wanted([waiting(8)], [slot("static")]).cores == 4.0


def test_a_drone_without_work_in_sight_is_let_go_and_one_with_work_stays() -> None:
    machines = [slot("idle"), slot("busy", 900.0, 900.0)]
    assert wanted([], machines, "idle busy").cores == 4.0


def test_a_drone_that_never_came_is_asked_for_anew() -> None:
    assert wanted([waiting(4)], [], asked_at=(NOW - 1000,)) == Level(4.0, (NOW,))
