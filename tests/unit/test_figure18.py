"""Figure 18 of the thesis (§5.2): t1 to t6, on the testbed's network at 0.03 of its rates.

There AL2S carries 5.5 Gb/s and Layer 3 650 Mb/s; here 180 and 18 Mb/s of L2 and L3 can be
reserved."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig

from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.store import StoreError

SCALE = 0.03
TEMPLATES: dict[str, Any] = {
    "soykb": {
        "qspec": {"min_throughput": 600e6 * SCALE},
        "rspec": {"max_throughput": 6000e6 * SCALE},
        "priority": 5,
        "patience": "1 h",
    },
    "neuroblastoma": {
        "qspec": {"min_throughput": 5500e6 * SCALE},
        "rspec": {"max_throughput": 5500e6 * SCALE},
        "priority": 9,
        "patience": "1 h",
    },
}
NAMES = ("t1", "t3", "t4", "t6")
PORTS = {name: (Flow(dst_ports=(port, port)),) for port, name in enumerate(NAMES, 5001)}
# In the thesis all run between the same two sites, MU and OSU. Where the switches cannot tell their
# packets apart, transits of one pair share a path; then the same sequence needs a pair for each.
SAME = dict.fromkeys(NAMES, ("mu", "tacc"))
APART = {
    "t1": ("mu", "tacc"),
    "t3": ("mu", "iplant"),
    "t4": ("local", "tacc"),
    "t6": ("local", "iplant"),
}


class Day:
    """A broker and the four transfers of the figure, a minute after each other."""

    def __init__(self, file: Path, matches: bool) -> None:
        self.rig = Rig(file, templates=TEMPLATES, matches=matches)
        self.pairs = SAME if matches else APART
        self.flows = PORTS if matches else dict.fromkeys(NAMES, ())

    def ask(self, name: str, template: str, least: float) -> Transit:
        self.rig.clock.now += 60
        return self.rig.ask(
            name,
            *self.pairs[name],
            template=template,
            min_bps=least * SCALE,
            size_bytes=10**9,
            flows=self.flows[name],
        )

    def end(self, name: str) -> None:
        self.rig.clock.now += 1
        self.rig.broker.release(name, 10**9, 45.0, "success")

    def now(self, name: str) -> tuple[str, str, float]:
        """State, layer, and rate in thesis Mb/s."""
        t = self.rig.broker.get(name)
        assert t.state is TransitState.QUEUED or self.rig.controller.circuits[name].path == tuple(
            t.grant.path
        )
        return str(t.state), t.grant.layer, round(t.grant.granted_bps / SCALE / 1e6)


@pytest.fixture(params=[True, False], ids=["one pair of sites", "a pair for each"])
def day(tmp_path: Path, request: pytest.FixtureRequest) -> Day:
    return Day(tmp_path / "s", request.param)


def test_figure_18(day: Day) -> None:
    day.ask("t1", "soykb", 700e6)
    assert day.now("t1") == ("installed", "l2", 6000)
    day.end("t1")  # t2

    day.ask("t3", "neuroblastoma", 5500e6)
    assert day.now("t3") == ("installed", "l2", 5500)

    t4 = day.ask("t4", "soykb", 600e6)
    assert day.now("t4") == ("installed", "l3", 600)
    l2 = next(c for c in t4.grant.candidates if c["layer"] == "l2")
    assert "15 Mb/s free, 18 Mb/s needed" in l2["rejected"]  # 500 Mb/s left, 600 needed

    t6 = day.ask("t6", "soykb", 700e6)
    assert day.now("t6") == ("queued", "", 0)
    assert "held by t3" in t6.reason and "earliest start" in t6.reason
    assert {"link": "s1>s2", "free_bps": 15_000_000, "holders": ["t3"]} in t6.grant.blocking
    assert t6.grant.earliest == day.rig.broker.get("t3").grant.lease_until

    day.end("t3")
    assert day.now("t6") == ("installed", "l2", 6000)
    assert day.rig.broker.get("t6").grant.installed_at == day.rig.clock.now
    assert day.now("t4") == ("installed", "l3", 600)  # where it may stay


def test_who_runs_already_makes_room_where_it_can(day: Day) -> None:
    before = day.ask("t4", "soykb", 600e6)
    assert day.now("t4") == ("installed", "l2", 6000)
    applied = len(day.rig.controller.applied)
    t3 = day.ask("t3", "neuroblastoma", 5500e6)
    assert len(day.rig.controller.applied) == applied + 1  # both in one
    assert day.now("t3") == ("installed", "l2", 5500)
    assert day.now("t4") == ("installed", "l3", 600)
    moved = day.rig.broker.get("t4")
    assert (moved.grant.moves, moved.grant.lease_until) == (1, before.grant.lease_until)
    assert "t4 moves from s1>s2 to" in t3.reason
    assert moved.reason.endswith("for t3, of priority 9")
    assert day.rig.reserved()["s1>r1"] == 600e6 * SCALE


def test_who_would_fall_below_its_minimum_stays(day: Day) -> None:
    day.ask("t1", "soykb", 700e6)  # too much for L3
    t3 = day.ask("t3", "neuroblastoma", 5500e6)
    assert t3.state is TransitState.QUEUED and "held by t1" in t3.reason
    assert day.now("t1") == ("installed", "l2", 6000)
    day.end("t1")
    assert day.now("t3") == ("installed", "l2", 5500)


def test_a_push_that_the_switches_refuse_moves_nobody(day: Day) -> None:
    day.ask("t4", "soykb", 600e6)
    before = snapshot(day)
    day.rig.controller.cursed = {"t3"}
    t3 = day.ask("t3", "neuroblastoma", 5500e6)
    assert t3.state is TransitState.FAILED
    assert snapshot(day) == before
    assert day.rig.broker.health()["status"] == "ok"


def test_a_push_that_the_store_refuses_moves_nobody(
    day: Day, monkeypatch: pytest.MonkeyPatch, refuse_put: Callable[[object], None]
) -> None:
    day.ask("t4", "soykb", 600e6)
    before = snapshot(day)
    with monkeypatch.context() as patch:
        patch.setattr(day.rig.store, "put_many", refuse_put)
        with pytest.raises(Exception, match="disk is full"):
            day.ask("t3", "neuroblastoma", 5500e6)
    assert snapshot(day) == before


@pytest.fixture
def refuse_put() -> Callable[[object], None]:
    def refuse(transits: object) -> None:
        raise StoreError("the disk is full")

    return refuse


def snapshot(day: Day) -> object:
    """All that a push touches."""
    saved, now = day.rig.store.get("t4"), day.rig.broker.get("t4")
    assert saved is not None
    for t4 in (saved, now):
        t4.usage.byte_seconds = t4.usage.metered_at = 0.0  # time went on
    return saved, now, day.rig.reserved(), day.rig.controller.circuits


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "soykb" / "figure18.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("figure18")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--simulated", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_the_drawing_is_one(example: tuple[Path, str]) -> None:
    html = (example[0] / "figure18.html").read_text()
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert match is not None and html.count('data-draw="chart"') == 2
    overlay, routed = json.loads(match[1])["chart"]
    free = "can still be reserved"
    assert [line["name"] for line in overlay["series"]] == [free, "t1", "t3", "t6"]
    assert [line["name"] for line in routed["series"]] == [free, "t4"]
    assert [band["words"] for band in overlay["bands"]] == ["t6 waits"]
    for path in (overlay, routed):
        assert [mark["letter"] for mark in path["marks"]] == ["t1", "t2", "t3", "t4", "t6"]
        assert all(line["points"] for line in path["series"])
