"""Bytes and byte-seconds: counted once, whatever is repeated, and adding up."""

from __future__ import annotations

import csv
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_world import NOW, ended, live

from network_provisioner.base.model import TransitState
from network_provisioner.policies.accounting import (
    RecentUse,
    Usage,
    as_csv,
    meter,
    so_far_bytes,
    usage,
)

MB = 10**6


class TestMeter:
    @pytest.mark.parametrize("state", ["queued", "held", "released", "best_effort"])
    def test_only_what_is_on_the_switches(self, state: str) -> None:
        transit = live("a")
        transit.state = TransitState(state)
        meter(transit, NOW + 10)
        assert transit.usage.byte_seconds == 0

    def test_no_later_than_its_lease(self) -> None:
        transit = live("a", granted_bps=80.0, lease_until=NOW + 5)
        meter(transit, NOW + 60)
        assert transit.usage.byte_seconds == 50

    @given(
        st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**9)), max_size=8),
        st.lists(st.floats(0, 800), max_size=8),
    )
    def test_looking_more_often_changes_nothing(
        self, grants: list[tuple[float, int]], looks: list[float]
    ) -> None:
        """Exactly the sum over the spans between changes, whenever else it is called."""
        transit, expected, at = live("a", granted_bps=0.0), 0.0, NOW
        for lasts, bps in grants:
            meter(transit, at)
            transit.grant.granted_bps = float(bps)
            for look in sorted(NOW + x for x in looks if at <= NOW + x < at + lasts):
                meter(transit, look)
            at += lasts
            expected += bps / 8 * lasts
        meter(transit, at)
        meter(transit, at - 1)
        assert transit.usage.byte_seconds == pytest.approx(expected, rel=1e-6, abs=1e3)


class TestUsage:
    def test_what_the_switch_counted_stands_in_for_a_report(self) -> None:
        assert usage([ended("a", switch_bytes=70)], "user") == [Usage("", 1, 70, 0.0, 10.0)]
        assert usage([ended("a", switch_bytes=70, bytes=60)], "user")[0].bytes == 60

    def test_what_expired_was_held_for_its_lease(self) -> None:
        """However late the broker noticed."""
        late = ended("a", lease_until=NOW - 4)
        assert usage([late], "user")[0].seconds == 6.0

    def test_live_ones_do_not_count_yet(self) -> None:
        assert usage([live("a", bytes=5, byte_seconds=9.0)], "user") == []

    @given(
        st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 10**12)), max_size=30),
        st.lists(st.floats(0, 1000), max_size=5),
    )
    def test_periods_that_follow_each_other_add_up(
        self, moved: list[tuple[float, int]], cuts: list[float]
    ) -> None:
        done = [
            ended(str(i), released_at=NOW + at, bytes=size, user=str(i % 3))
            for i, (at, size) in enumerate(moved)
        ]
        edges = [0.0, *sorted(NOW + cut for cut in cuts), float("inf")]
        periods = [usage(done, "user", since, until) for since, until in pairwise(edges)]
        rows = [row for period in periods for row in period]
        assert sum(row.bytes for row in rows) == sum(size for _, size in moved)
        assert sum(row.transits for row in rows) == len(moved)


class TestCsv:
    def test_lines(self) -> None:
        rows = [Usage("cms, europe", 2, 10**13, 1.5e12, 3.25, 2.5, 1.0), Usage("", 1, 5, 0.0, 0.0)]
        text = as_csv(rows, "project")
        assert text == (
            "project,transits,bytes,byte_seconds,seconds,judged_s,broken_s\n"
            '"cms, europe",2,10000000000000,1500000000000,3.250,2.500,1.000\n'
            ",1,5,0,0.000,0.000,0.000\n"
        )

    def test_a_name_is_no_formula(self) -> None:
        rows = [Usage("=HYPERLINK(1)", 1, 1, 1.0, 1.0)]
        (line,) = csv.DictReader(io.StringIO(as_csv(rows, "user")))
        assert line["user"] == "'=HYPERLINK(1)"


class TestRecent:
    def test_half_life(self) -> None:
        recent = RecentUse(half_life_s=100)
        recent.note([ended("a", user="ada", bytes=1000)], NOW)
        assert recent.used_bytes("user", NOW) == {"ada": 1000}
        assert recent.used_bytes("user", NOW + 200) == {"ada": 250}

    def test_once_each_and_late_reports(self) -> None:
        recent = RecentUse()
        for size in (10, 10, 30):
            recent.note([ended("a", user="ada", bytes=size)], NOW)
        assert recent.used_bytes("user", NOW) == {"ada": 30}

    def test_live_ones(self) -> None:
        transit = live("a", user="ada", granted_bps=8e6, size_bytes=5 * MB)
        assert RecentUse().used_bytes("user", NOW + 2, [transit]) == {"ada": 2 * MB}
        assert so_far_bytes(transit, NOW + 60) == 5 * MB
        assert so_far_bytes(live("b", installed_at=0.0), NOW) == 0
