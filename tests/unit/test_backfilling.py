"""In a storm the link is full, and nobody begins later than was promised when it asked."""

from __future__ import annotations

from pathlib import Path

from tests.storm import Storm, without_backfilling


def test_a_storm_fills_the_link_and_delays_nobody(tmp_path: Path) -> None:
    small = {"clients": 30, "warm_s": 10.0, "measured_s": 40.0, "most_bytes": 10**8}
    ours = Storm(tmp_path / "ours", **small).run()
    with without_backfilling():
        plain = Storm(tmp_path / "plain", **small).run()
    assert ours.reserved > 0.85 and ours.reserved > plain.reserved + 0.1
    assert ours.late == []
