"""In a storm the link is full, and nobody begins later than was promised when it asked."""

from __future__ import annotations

from pathlib import Path

from made_transit import made_transit

from network_provisioner.base.model import TransitState
from network_provisioner.state.active_transits import ActiveTransits
from tests.storm import Storm


def test_a_storm_fills_the_link_and_delays_nobody(tmp_path: Path) -> None:
    storm = Storm(tmp_path / "s", 40, warm_s=10.0, measured_s=30.0, most_bytes=10**9).run()
    assert storm.reserved > 0.9
    assert storm.waits and storm.late == []


def test_who_is_placed_anew_began_before_nobody() -> None:
    active = ActiveTransits()
    transit = made_transit("a", "mu", "tacc", TransitState.HELD, lease_until=99.0, expected_end=5.0)
    active.enter(transit)
    assert active.overrun(10.0) == [transit]
    transit.grant.expected_end = 0.0
    active.enter(transit)
    assert active.overrun(10.0) == []
