"""Transfers whose destination has no room for them wait, with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import MBPS, Rig
from made_transit import made_transit

from network_provisioner.base.model import TransitState
from network_provisioner.transits.placement import to_come

GB = 10**9
PATIENT = {"default": {"qspec": {"min_throughput": "5 Mb/s"}, "patience": "1 h"}}


class Disk:
    """What is free at tacc, in bytes, measured ten seconds ago; None where nobody measured."""

    def __init__(self, free: float | None) -> None:
        self.free, self.fails = free, False

    def __call__(self, site: str) -> tuple[float, float] | None:
        if self.fails:
            raise OSError("the archive is away")
        return None if site != "tacc" or self.free is None else (self.free, 10.0)


def test_a_transfer_waits_until_there_is_room(tmp_path: Path) -> None:
    disk = Disk(0.5 * GB)
    rig = Rig(tmp_path / "s", templates=PATIENT, space_of=disk)
    transit = rig.ask("a", "mu", "tacc", size_bytes=GB)
    words = "tacc has no room: 1 GB needed, 500 MB free 10 s ago"
    assert (transit.state, transit.reason) == (TransitState.QUEUED, words)
    rig.let_pass(60)
    assert rig.broker.get("a").state is TransitState.QUEUED
    disk.free = 1.5 * GB
    rig.let_pass(6)
    assert rig.broker.get("a").state is TransitState.INSTALLED


def test_it_waits_no_longer_than_for_a_path(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", space_of=Disk(0.0))
    assert rig.ask("a", "mu", "tacc", size_bytes=GB).state is TransitState.QUEUED
    rig.let_pass(21)
    ended = rig.broker.get("a")
    assert ended.state is TransitState.BEST_EFFORT
    assert ended.reason.startswith("waited 21 s: tacc has no room")


@pytest.mark.parametrize("free", [None, 1.0 * GB])
def test_what_is_not_known_or_fits_does_not_wait(tmp_path: Path, free: float | None) -> None:
    disk = Disk(free)
    rig = Rig(tmp_path / "s", templates=PATIENT, space_of=disk)
    assert rig.ask("a", "mu", "tacc", size_bytes=GB).state is TransitState.INSTALLED
    disk.fails = True
    assert rig.ask("b", "mu", "tacc", size_bytes=GB).state is TransitState.INSTALLED


def test_what_others_bring_counts(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s", templates=PATIENT, space_of=Disk(2.5 * GB))
    assert rig.ask("a", "mu", "tacc", size_bytes=GB).state is TransitState.INSTALLED
    assert rig.ask("b", "mu", "tacc", size_bytes=GB).state is TransitState.INSTALLED
    third = rig.ask("c", "mu", "tacc", size_bytes=GB)
    assert third.state is TransitState.QUEUED and third.reason.endswith(", 2 GB on their way")
    rig.broker.release("a")
    rig.let_pass(6)
    assert rig.broker.get("c").state is TransitState.INSTALLED


def test_a_small_transfer_waits_too_and_keeps_nobody_from_other_sites(tmp_path: Path) -> None:
    disk = Disk(0.0)
    rig = Rig(tmp_path / "s", templates=PATIENT, space_of=disk)
    assert rig.ask("a", "mu", "tacc", size_bytes=1000).state is TransitState.QUEUED
    assert rig.ask("b", "tacc", "mu", size_bytes=GB).state is TransitState.INSTALLED


def test_what_a_transfer_has_yet_to_bring() -> None:
    half = made_transit(
        "a", "mu", "tacc", TransitState.INSTALLED, size_bytes=GB, granted_bps=80 * MBPS,
        installed_at=1000.0,
    )  # fmt: skip
    assert [to_come(half, at) for at in (900.0, 1050.0, 9000.0)] == [GB, 0.5 * GB, 0.0]
