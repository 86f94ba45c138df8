"""The bench's pool in virtual time: its bound, its measures, and a run by hand."""

from __future__ import annotations

import pytest

from tests.bench.pool_world import (
    KINDS,
    LAG_S,
    Actions,
    Boot,
    Dag,
    Load,
    View,
    World,
    clairvoyant,
    reversals,
)

BOOT = Boot(100.0, 10.0)


def load(*runs: float, parents: tuple[tuple[int, ...], ...]) -> Load:
    count = len(runs)
    level = tuple(len(above) for above in parents)
    dag = Dag("ann", 0.0, ("x",) * count, parents, level, (1,) * count)
    return Load("test", (dag,), (runs,), (-1,), {"x": 1.0})


def test_the_clairvoyant_bridges_gaps_that_are_shorter_than_a_boot() -> None:
    short = clairvoyant(load(50, 20, parents=((), (0,))), BOOT)
    assert (short.used_s, short.idle_s, short.boot_s) == (70, LAG_S, 100)
    # Both begin at once; what waits for the longer one goes to its core.
    wide = clairvoyant(load(500, 20, 30, parents=((), (), (0, 1))), BOOT)
    assert (wide.used_s, wide.idle_s, wide.boot_s) == (550, LAG_S, 200)


def test_a_reversal_needs_one_level() -> None:
    acts = [(10.0, "start", "c1"), (50.0, "stop", "c1"), (60.0, "start", "c1")]
    assert reversals(acts, [0.0], 20) == 1
    assert reversals(acts, [0.0, 75.0], 20) == 0, "started for the next level"
    assert reversals([*acts, (55.0, "failed", "c1")], [0.0], 20) == 0, "in place of one that failed"


class OneMachine:
    """Starts one at once, and lets it go when all is done."""

    turn_s, idle_s, hang_s = 5.0, 20.0, 1e4

    def turn(self, view: View) -> Actions:
        return Actions([KINDS[0]] if view.idle and not view.boxes else ())


def test_a_run() -> None:
    done = World(load(50, 20, 20, parents=((), (0,), (0,))), BOOT, 3).run(OneMachine())
    assert (done.machines, done.failed, done.never, done.used_s) == (1, 0, 0, 90)
    first, second, third = done.waits
    assert 80 < first < 150, "a boot and a cycle"
    assert 0 < second <= 10, "its core was let go, so it waits for the negotiator"
    assert third == pytest.approx(second + 20), "its core is used again"
    assert done.cost_s == pytest.approx(done.end)
