"""Benches are run seldom; that they can be is known at once."""

from __future__ import annotations

from tests.bench.__main__ import load


def test_every_bench_can_be_loaded() -> None:
    assert load() == []
