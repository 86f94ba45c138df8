"""How long a site's hosts wait for their disks, as their agents report it."""

from __future__ import annotations

import pytest

from network_provisioner.state.disks import FRESH_S, DiskSample, ReportedDisks


def second(at: float, io_wait: float) -> DiskSample:
    return DiskSample(at, 0.0, 8e6, io_wait)


def test_the_busiest_host_of_a_site_counts() -> None:
    disks = ReportedDisks()
    assert disks.io_wait("mu", 100.0) is None, "nobody reports"
    disks.take_in("mu/a", "mu", [second(99.0, 0.2), second(100.0, 0.4)], "delay", 100.0)
    disks.take_in("mu/b", "mu", [second(100.0, 0.1)], "pressure", 100.0)
    disks.take_in("tacc", "tacc", [second(100.0, 0.9)], "delay", 100.0)
    assert disks.io_wait("mu", 100.0) == pytest.approx(0.3)
    disks.take_in("mu/c", "mu", [second(100.0, 0.6)], "delay", 100.0)
    assert disks.io_wait("mu", 100.0) == 0.6
    assert disks.io_wait("tacc", 100.0) == 0.9
    assert disks.io_wait("iplant", 100.0) is None


def test_it_is_of_the_last_seconds() -> None:
    disks = ReportedDisks()
    for at in range(100, 110):
        disks.take_in("mu", "mu", [second(at, 1.0 if at < 105 else 0.5)], "delay", at)
    assert disks.io_wait("mu", 109.0) == 0.5
    assert disks.io_wait("mu", 115.0) == 0.0, "nothing moves"
    assert disks.io_wait("mu", 109.0 + FRESH_S) is None, "the agent has gone"
