"""In a storm the link is full, and nobody begins later than was promised when it asked."""

from __future__ import annotations

from pathlib import Path

from tests.storm import Storm


def test_a_storm_fills_the_link_and_delays_nobody(tmp_path: Path) -> None:
    found = Storm(tmp_path / "s", 40, warm_s=10.0, measured_s=30.0, most_bytes=10**9).run()
    assert found.reserved > 0.9
    assert found.waits and found.late == []
