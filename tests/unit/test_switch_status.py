"""What is said of a switch that somebody else changes again and again, and how it is repaired."""

from __future__ import annotations

import pytest

from network_provisioner.controllers.switch_status import SwitchMonitor


class Watched:
    """One switch, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.monitor = SwitchMonitor(
            {1: ("s1", "switch s1")}, lambda: {1}, lambda: 0.0, monotonic=lambda: self.now
        )

    @property
    def problem(self) -> str:
        return self.monitor.statuses()[0].problem

    def fight(self, seconds: float) -> float:
        """Somebody undoes each repair at once, for so long; when the last repair was made."""
        until = self.now + seconds
        while self.now < until:
            self.monitor.repaired(1, {"rules": 1})
            self.now += max(1.0, self.monitor.pause_s(1))
        self.monitor.repaired(1, {"rules": 1})  # which lasts
        return self.now


def test_a_contested_switch_is_repaired_and_reported_well_soon_after_the_end() -> None:
    watched = Watched()
    begun = watched.now
    watched.fight(6.0)
    assert watched.now - begun <= 6.0 + 2.0
    assert "again and again: 5 repairs within 60 s" in watched.problem
    watched.now = begun + 6.0 + 5.0
    assert watched.problem == "" and watched.monitor.pause_s(1) == 0.0


def test_who_fights_for_long_is_answered_less_often_and_reported_all_the_time() -> None:
    watched = Watched()
    count = 0
    until = watched.now + 3600.0
    while watched.now < until:
        watched.monitor.repaired(1, {"rules": 1})
        count += 1
        watched.now += min(30.0, max(1.0, watched.monitor.pause_s(1)))
        assert (watched.problem != "") == (count >= 5)
    assert watched.monitor.pause_s(1) > 30.0 and count < 200


@pytest.mark.parametrize("gap_s", [0.1, 3.0, 10.0])
def test_a_few_repairs_are_no_fight(gap_s: float) -> None:
    watched = Watched()
    for _ in range(4):
        watched.monitor.repaired(1, {"rules": 1})
        watched.now += gap_s
    assert watched.problem == "" and not watched.monitor.is_contested(1)


def test_a_switch_that_connects_no_more_is_well_soon() -> None:
    watched = Watched()
    for _ in range(5):
        watched.now += 1.0
        watched.monitor.came(1)
    assert "connects again and again: 5 times" in watched.problem
    watched.now += 3.0
    assert watched.problem == ""
