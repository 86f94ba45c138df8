"""``adon pool explain``: why the pool was made larger or smaller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adon.cli.main import main
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
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

NOW = 1_700_000_000.0
# No broker answers there.
CONFIG = "topology: {nodes: [], links: []}\nbroker: {listen: '127.0.0.1:9'}\n"


def decision(at: float, **details: object) -> Measurement:
    key = f"pool_decision:adon:{at!r}"
    return Measurement(key, "pool_decision", "adon", 2.0, "1", at, "adon pool", "", details)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "adon.yml"
    path.write_text(CONFIG)
    return path


def test_each_decision_has_its_reasons_the_newest_last(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Archive(config.with_name("adon-archive.sqlite")) as archive:
        archive.record(decision(NOW - 60, start={"m1": 9}, reason="too old to be asked for"))
        archive.record(
            decision(
                NOW,
                start={"m1": 2},
                delete={"adon-7": "it left the pool"},
                why={"m1": "5 jobs wait", "limits": "money: enough for 2 of 3 m1"},
                failed=["adon-9: the quota of instances is 2"],
                matched={"m1": NOW - 5},
                demand={"queued": 5, "coming": 0, "leased": 1},
                machines={"booting": 2, "running": 0, "draining": 0},
                reason="5 jobs wait",
            )
        )
        archive.record(decision(NOW + 60, drain=["adon-8"], why={"adon-8": "no job fits"}))
    assert main(["pool", "explain", "--config", str(config), "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:20  adon: 2 m1 started, 1 deleted",
        "  jobs: 5 queued, 1 leased; machines: 2 booting",
        "  m1 2 started: 5 jobs wait",
        "  adon-7 deleted: it left the pool",
        "  limits: money: enough for 2 of 3 m1",
        "  refused: adon-9: the quota of instances is 2",
        "  m1: HTCondor last had a job for one at 2023-11-14 22:13:15",
        "",
        "2023-11-14 22:14:20  adon: 1 drained",
        "  jobs: none; machines: none",
        "  adon-8 drained: no job fits",
    ]
    assert main(["pool", "explain", "--config", str(config), "--limit", "1", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["decisions"]
    assert (entry["kind"], entry["outcome"]) == ("pool", "1 drained")


def test_anybody_may_have_recorded_a_decision(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Archive(config.with_name("adon-archive.sqlite")) as archive:
        archive.record(
            decision(NOW, drain=5, keep=[["a"]], why=7, matched={"m1": "soon", "m2": 1e15})
        )
    assert main(["pool", "explain", "--config", str(config)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:20  adon: nothing is done",
        "  jobs: none; machines: none",
    ]


def test_where_nothing_was_decided_it_says_what_would(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pool", "explain", "--config", str(config)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no decisions yet: 'adon pool run'")
    assert not config.with_name("adon-archive.sqlite").exists()


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
