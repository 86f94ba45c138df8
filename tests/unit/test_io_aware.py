"""Transits get what the disks at their ends take, and no more, and others the rest at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from broker_rig import BIG, Rig

from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.selection.knee import knee_text
from network_provisioner.state.disks import FRESH_S, DiskSample, ReportedDisks
from network_provisioner.transits.io_aware import Meter

RATES = {"qspec": {"min_throughput": "100 Mb/s"}, "rspec": {"max_throughput": "150 Mb/s"}}
TEMPLATES = {"mosaic": {**RATES, "io_aware": True}, "plain": RATES}


DISK_BPS = 60e6


class World(Rig):
    """Transits of mosaics into one disk, which takes ``disk_bps`` of all of them together."""

    disk_bps = DISK_BPS
    reports = True

    @staticmethod
    def moves(at: float) -> bool:
        """Whether transfers have anything to move."""
        return True

    def run(self, seconds: float) -> None:
        """Let time pass, with all that a broker does meanwhile."""
        for n in range(1, round(seconds * 10) + 1):
            live = [self.broker.get(name) for name in self.controller.circuits]
            into = [
                t for t in live if t.request.template == "mosaic" and self.moves(self.clock.now)
            ]
            wanted = sum(t.grant.granted_bps for t in into)
            share = min(1.0, self.disk_bps / wanted) if wanted else 1.0
            for transit in into:
                carried = self.controller.bytes.get(transit.id, 0)
                moved = int(transit.grant.granted_bps * share / 80)
                self.controller.bytes[transit.id] = carried + moved
            self.clock.now += 0.1
            if n % 10 == 0 and self.reports:
                io_wait = 0.95 if share < 1 else 0.2
                sample = DiskSample(self.clock.now, 0.0, wanted * share, io_wait)
                self.broker.disks("tacc/dtn1", [sample], "delay")
            if self.broker.io_aware.count() or n % 10 == 0:
                self.broker.sweep()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state.sqlite", templates=TEMPLATES)


def within(transit: Transit, disk_bps: float) -> bool:
    return 0.95 * disk_bps <= transit.request.max_bps <= 1.05 * disk_bps


def test_what_the_disk_does_not_take_is_given_back_to_who_waits(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    waits = world.ask("b", "local", "tacc", template="plain", min_bps=110e6, max_bps=110e6)
    assert waits.state is TransitState.QUEUED
    world.run(45)
    transit = world.broker.get("a")
    assert within(transit, DISK_BPS) and transit.request.min_bps == transit.request.max_bps
    assert world.broker.get("b").state is TransitState.INSTALLED
    knee = transit.io
    assert knee is not None and knee.knee is not None
    assert (knee.knee.site, knee.knee.way, knee.asked_max_bps) == ("tacc", "write", 150e6)
    assert knee.knee.low_bps <= 63e6 and knee.knee.high_bps >= 57e6 and knee.knee.io_wait > 0.5
    assert "the disk of tacc" in knee_text(knee) and transit.grant.changes[-1].why == knee_text(
        knee
    )


def test_the_search_does_not_make_the_transfer_slower(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    for second in range(40):  # others use the disk for two seconds of each four
        world.disk_bps = DISK_BPS / 3 if second % 4 < 2 else DISK_BPS
        world.run(1)
    moved_bps = world.controller.bytes["a"] * 8 / 40
    assert moved_bps > 0.9 * (DISK_BPS + DISK_BPS / 3) / 2


def test_other_templates_keep_what_they_asked_for(world: World) -> None:
    before = world.ask("a", "mu", "tacc", template="plain")
    world.run(45)
    after = world.broker.get("a")
    assert (after.request.min_bps, after.request.max_bps, after.io) == (100e6, 150e6, None)
    assert before.grant.changes == after.grant.changes == []


def test_the_rate_follows_neighbours_of_the_disk(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(45)
    world.disk_bps = 30e6
    world.run(60)
    assert within(world.broker.get("a"), 30e6)
    world.disk_bps = 1e9  # faster than all that was asked for
    world.run(400)
    transit = world.broker.get("a")
    assert (transit.request.min_bps, transit.request.max_bps) == (100e6, 150e6)


def test_two_transfers_into_one_disk_share_what_it_takes(world: World) -> None:
    for name, src in (("a", "mu"), ("b", "local")):
        world.ask(name, src, "tacc", template="mosaic", min_bps=20e6)
    world.run(60)
    both = [world.broker.get(name).request.max_bps for name in ("a", "b")]
    assert 0.9 * DISK_BPS < sum(both) < 1.1 * DISK_BPS and max(both) < 1.2 * min(both)


def test_a_minimum_that_others_have_by_now_is_gone_but_not_what_is_shared(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(45)
    world.ask("b", "local", "tacc", template="plain", min_bps=110e6, max_bps=110e6)
    world.disk_bps = 1e9
    world.run(400)
    transit = world.broker.get("a")
    assert transit.request.max_bps == 150e6 and transit.request.min_bps <= 70e6
    assert transit.grant.granted_bps == 70e6  # all that is left


def test_where_the_path_is_the_limit_nothing_changes(world: World) -> None:
    world.disk_bps = 500e6
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(60)
    transit = world.broker.get("a")
    assert (transit.request.min_bps, transit.request.max_bps) == (
        100e6,
        150e6,
    ) and transit.io is None


def test_where_no_host_reports_its_disks_nothing_changes(world: World) -> None:
    world.reports = False
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(60)
    transit = world.broker.get("a")
    assert (transit.request.max_bps, transit.io, transit.grant.changes) == (150e6, None, [])


def test_pauses_between_files_are_no_disk(world: World) -> None:
    world.disk_bps = 500e6
    world.moves = lambda at: at % 3 < 1  # type: ignore[method-assign]  # a second of each three
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(90)
    transit = world.broker.get("a")
    assert (transit.request.max_bps, transit.io, transit.grant.changes) == (150e6, None, [])


def test_one_slow_period_is_a_hiccup(world: World) -> None:
    world.disk_bps = 30e6
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(4.5)  # of which two seconds are judged
    world.disk_bps = 500e6
    world.run(20)
    transit = world.broker.get("a")
    assert (transit.request.max_bps, transit.grant.changes) == (150e6, [])


def test_an_owner_who_changes_the_rates_begins_anew(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(45)
    world.broker.change("a", min_bps=20e6, max_bps=50e6)
    world.run(45)
    transit = world.broker.get("a")
    assert (transit.request.min_bps, transit.request.max_bps) == (20e6, 50e6)


def test_what_was_found_holds_after_a_restart_and_goes_when_the_disk_is_free(world: World) -> None:
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(45)
    again = World(world.file, templates=TEMPLATES, clock=world.clock)
    again.disk_bps, again.controller.bytes = 1e9, world.controller.bytes
    again.run(400)
    assert again.broker.get("a").request.max_bps == 150e6


@pytest.mark.parametrize(
    ("known", "most"),
    [
        ({("tacc", "write"): 40e6}, 40e6),
        ({("mu", "read"): 30e6, ("tacc", "write"): 40e6}, 30e6),
        ({("tacc", "read"): 40e6}, 150e6),
        ({("tacc", "write"): 400e6}, 150e6),
    ],
)
def test_a_transfer_begins_with_what_others_of_its_application_found(
    tmp_path: Path, known: dict[tuple[str, str], float], most: float
) -> None:
    applications: list[str] = []

    def rate_of(site: str, way: str, application: str) -> float | None:
        applications.append(application)
        return known.get((site, way))

    rig = World(tmp_path / "state.sqlite", templates=TEMPLATES, disk_rate_of=rate_of)
    transit = rig.ask("a", "mu", "tacc", template="mosaic", application="montage")
    assert most <= transit.request.max_bps <= 1.05 * most and {*applications} == {"montage"}
    assert transit.request.min_bps == min(100e6, transit.request.max_bps)
    assert (transit.io is not None) == (most < 150e6) == bool(knee_text(transit.io))
    rig.disk_bps = 1e9
    rig.run(400)
    assert rig.broker.get("a").request.max_bps == 150e6  # the disk is free now


def test_an_archive_that_fails_costs_its_opinion_and_no_transfer(tmp_path: Path) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError("the archive is away")

    rig = Rig(
        tmp_path / "s", templates=TEMPLATES, metrics_of=fails, best_effort_of=fails,
        disk_rate_of=fails, figures_of=fails, space_of=fails,
    )  # fmt: skip
    transit = rig.ask("a", "mu", "tacc", template="mosaic", application="montage", size_bytes=BIG)
    assert transit.state is TransitState.INSTALLED
    (answer,) = rig.broker.ask([TransitRequest("b", "mu", "tacc", template="mosaic")])
    assert answer.error is None
    assert rig.broker.advise("mu", "tacc")["figures"]["rtt_s"] > 0


def meter_of(bps: Callable[[float], float], every_s: float) -> list[float]:
    """What a meter makes of a counter that is brought up to date so often, looked at ten times a
    second."""
    meter, rates = Meter(), []
    for n in range(200):
        at = n / 10
        counted_at = at // every_s * every_s
        rate = meter.take(int(bps(counted_at) * counted_at / 8), at, 100e6, 1.0)
        if rate is not None:
            rates.append(rate)
    return rates


@pytest.mark.parametrize("every_s", [0.1, 0.5, 1.0, 3.0])
def test_a_counter_that_lags_is_read_where_it_moves(every_s: float) -> None:
    rates = meter_of(lambda at: 60e6, every_s)
    assert len(rates) >= 4
    assert all(0.9 * 60e6 <= rate <= 1.12 * 60e6 for rate in rates)


def test_a_counter_that_goes_backwards_begins_a_new_period() -> None:
    meter = Meter()
    taken = [(0, 0.0), (10, 1.0), (20, 4.0), (30, 5.0), (5, 6.0), (15, 8.0), (25, 9.1)]
    rates = [meter.take(n_bytes, at, 1e6, 1.0) for n_bytes, at in taken]
    assert rates == [None, None, None, 80.0, None, None, pytest.approx(80 / 1.1)]


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
