"""Ended transits become throughput, once each; small ones and unfinished ones do not. Set-up and
rate of transfers are told apart."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_transit import changed, made_transit

from monitors.archive.archive import Archive
from monitors.archive.outbox import Outbox
from monitors.archive.transfers import (
    SMALL_BYTES,
    Recorder,
    TransferSample,
    disk_facts,
    transfer_facts,
    transfer_times,
)
from network_provisioner.base.model import SHARES, TransitPart, TransitState

ENDED = made_transit(
    id="wf/stage_in_0/0",
    src="iplant",
    dst="mu",
    state=TransitState.RELEASED,
    workflow="uuid",
    job="stage_in_local_mu_0_0",
    path=["iplant", "s2", "s1", "mu"],
    layer="l2",
    granted_bps=200e6,
    installed_at=1000.0,
    released_at=1010.0,
    bytes=100_000_000,
    seconds=8.0,
)


def test_a_transfer_over_a_path_tells_of_both() -> None:
    facts = {fact.metric: fact for fact in transfer_facts(ENDED)}
    assert sorted(facts) == ["path_throughput", "throughput"]
    throughput = facts["throughput"]
    assert (throughput.subject, throughput.value, throughput.unit) == ("iplant>mu", 1e8, "bit/s")
    assert (throughput.at, throughput.workflow) == (1010.0, "uuid")
    assert throughput.details["bytes"] == 100_000_000
    assert facts["path_throughput"].subject == "iplant>mu/s2-s1"


def test_a_transfer_over_several_paths_tells_of_none_of_them() -> None:
    paths = (ENDED.grant.path, ["iplant", "s2", "r1", "s1", "mu"])
    parts = [TransitPart(path, "l2", 1, 1.0, 1.0).as_dict() for path in paths]
    assert [f.metric for f in transfer_facts(changed(ENDED, parts=parts))] == ["throughput"]


@pytest.mark.parametrize(
    ("moved", "says_it"),
    [
        ({"bytes": 1_050_000, "seconds": 6.1, "files": 6}, False),
        ({"bytes": 14_100_000, "seconds": 10.4, "files": 5}, False),
        ({"bytes": 430_000, "seconds": 3.8}, False),  # of how many files it does not say
        ({"bytes": 20_300_000, "seconds": 9.6, "files": 6}, True),  # half of the rate and more
        ({"bytes": 14_100_000, "seconds": 60.0, "files": 5}, True),
        ({"bytes": 1_050_000, "seconds": 31.0, "files": 6}, True),
    ],
)
def test_small_files_do_not_make_a_path_slow(moved: dict[str, Any], says_it: bool) -> None:
    facts = transfer_facts(changed(ENDED, granted_bps=28.8e6, **moved))
    assert ("path_throughput" in [fact.metric for fact in facts]) is says_it
    assert facts[0].details["files"] == moved.get("files", 0)


UNRESERVED = {"state": TransitState.BEST_EFFORT, "path": [], "layer": "", "installed_at": 0.0}


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, {"path_throughput": "iplant>mu/best_effort"}),
        ({"seconds": 0.9}, {}),  # how TCP starts
        ({"installed_at": 1000.0}, {}),  # a part of it went on a path
        ({"reason": f"{SHARES} standing:soykb:mu-tacc: small"}, {}),
    ],
)
def test_what_says_something_of_best_effort(changes: dict[str, Any], more: dict[str, str]) -> None:
    facts = transfer_facts(changed(ENDED, **UNRESERVED | changes))  # type: ignore[arg-type]
    assert {fact.metric: fact.subject for fact in facts} == {"throughput": "iplant>mu"} | more


def test_a_small_transfer_tells_of_latency() -> None:
    (fact,) = transfer_facts(changed(ENDED, bytes=SMALL_BYTES - 1, seconds=0.4))
    assert (fact.metric, fact.value, fact.unit) == ("transfer_latency", 0.4, "s")


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": 0},
        {"seconds": 0.0},
        {"bytes": -5},
        {"state": TransitState.INSTALLED},
        {"state": TransitState.HELD},
        {"state": TransitState.QUEUED},
    ],
)
def test_what_moved_nothing_or_is_not_over_tells_nothing(changes: dict[str, object]) -> None:
    assert transfer_facts(changed(ENDED, **changes)) == []  # type: ignore[arg-type]


def test_each_transit_counts_once() -> None:
    with Archive(":memory:") as archive:
        recorder = Recorder(Outbox(archive))
        assert recorder.record(ENDED) == 2
        assert recorder.record(changed(ENDED, seconds=9.0)) == 0
        assert recorder.record(changed(ENDED, id="wf/stage_in_0/1")) == 2
        estimate = archive.estimate("throughput", "iplant>mu", now=2000.0)
    assert estimate is not None
    assert (estimate.value, estimate.count, estimate.unit) == (1e8, 2, "bit/s")


@given(st.integers(-10, 10**15), st.floats(0, 1e9), st.sampled_from(TransitState), st.booleans())
def test_whatever_is_told_can_be_recorded(
    moved: int, seconds: float, state: TransitState, path: bool
) -> None:
    transit = changed(ENDED, bytes=moved, seconds=seconds, state=state)
    with Archive(":memory:") as archive:
        assert Recorder(Outbox(archive)).record(transit) == len(transfer_facts(transit))


KNEE = {"bps": 60e6, "low_bps": 58e6, "high_bps": 62e6, "cause": "I/O wait", "site": "mu",
        "way": "write", "io_wait": 0.95, "at": 1005.0, "asked_max_bps": 2e8}  # fmt: skip


def test_a_disk_that_was_the_limit_is_kept_of_its_site_and_of_the_application() -> None:
    knee = changed(ENDED, knee=KNEE, application="montage")
    facts = {fact.subject: fact for fact in disk_facts(knee)}
    assert sorted(facts) == ["mu/write", "mu/write/montage"]
    assert {(f.metric, f.value, f.at, f.source) for f in facts.values()} == {
        ("disk_rate", 60e6, 1005.0, "broker")
    }
    assert [f.subject for f in disk_facts(changed(knee, application=""))] == ["mu/write"]
    with Archive(":memory:") as archive:
        assert Recorder(Outbox(archive)).record(knee) == 4
        assert Recorder(Outbox(archive)).record(knee) == 0


@pytest.mark.parametrize("knee", [{}, {"remembered_bps": 1e6}])
def test_what_others_found_is_not_kept_again(knee: dict[str, Any]) -> None:
    assert disk_facts(changed(ENDED, knee=knee)) == []


# ------------------------------------------------------------------ set-up and rate


def line(
    setup_s: float, rate_bps: float, sizes: list[float], noise: float = 0.0
) -> list[TransferSample]:
    rng = Random(1)
    return [
        TransferSample(size, (setup_s + size * 8 / rate_bps) * (1 + rng.uniform(-noise, noise)))
        for size in sizes
    ]


def test_hand_shakes_are_not_taken_for_a_slow_path() -> None:
    times = transfer_times(line(4.0, 200e6, [6e5, 7e5, 6e5, 5e6, 2e7, 9e6]))
    assert times is not None
    assert times.setup_s == pytest.approx(4.0)
    assert times.rate_bps == pytest.approx(200e6)
    assert times.spread == pytest.approx(0.0, abs=1e-9)


def test_a_few_that_stalled_change_little() -> None:
    sizes = [1e6 * (1 + n % 17) for n in range(60)]
    moved = line(3.0, 50e6, sizes, noise=0.05)
    for slow in range(0, 60, 9):
        moved[slow] = TransferSample(moved[slow].n_bytes, moved[slow].seconds * 10)
    times = transfer_times(moved)
    assert times is not None
    assert times.setup_s == pytest.approx(3.0, rel=0.15)
    assert times.rate_bps == pytest.approx(50e6, rel=0.15)


def test_the_newest_weigh_most() -> None:
    sizes = [1e6 * (1 + n % 7) for n in range(64)]
    times = transfer_times(line(1.0, 80e6, sizes) + line(1.0, 8e6, sizes))
    assert times is not None
    assert times.rate_bps == pytest.approx(80e6, rel=0.05)


@pytest.mark.parametrize(
    "moved",
    [
        [],
        line(2.0, 1e8, [1e6]),
        line(2.0, 1e8, [1e6, 1.2e6, 1.4e6, 1.1e6, 1.3e6]),
        [TransferSample(0.0, 1.0)] * 9,
    ],
)
def test_too_few_or_too_much_alike_tell_nothing(moved: list[TransferSample]) -> None:
    assert transfer_times(moved) is None


def test_larger_ones_that_took_no_longer_leave_a_rate_that_is_finite() -> None:
    times = transfer_times([TransferSample(size, 5.0) for size in (1e6, 2e6, 4e6, 8e6)])
    assert times is not None
    assert 0 < times.rate_bps < 1e12
    assert times.setup_s < 5.0
