from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adon.demo import svg
from adon.demo.facts import Bar, LinkSample, RunFacts, as_json
from adon.demo.page import render
from network_provisioner.model import Transit, TransitState


def transit(**changes: Any) -> Transit:
    data: dict[str, Any] = {
        "id": "wf:stage_in:0:iplant-mu",
        "src": "iplant",
        "dst": "mu",
        "state": TransitState.RELEASED,
        "job": "stage_in_local_mu_0_0",
        "path": ["iplant", "s2", "s1", "mu"],
        "granted_bps": 100e6,
        "installed_at": 10.0,
        "released_at": 14.0,
        "bytes": 1000,
    }
    return Transit(**(data | changes))


def facts(**changes: Any) -> RunFacts:
    alternatives = [
        {"site": "mu", "t_q_s": 1.0, "t_c_s": 2.0, "t_n_s": 3.0, "t_t_s": 6.0, "gamma": "Γ_a"},
        {"site": "tacc", "t_q_s": float("inf"), "t_c_s": 2, "t_n_s": 3, "t_t_s": float("inf")},
    ]
    placement = {
        "job": "ID1",
        "transformation": "soykb::align<x>:1.0",
        "site": "mu",
        "reason": "because <it> is nearer",
        "alternatives": alternatives,
    }
    data: dict[str, Any] = {
        "planner": "embedded",
        "network": "simulated",
        "network_note": "",
        "workflow": "soykb",
        "state": "success",
        "jobs": 3,
        "dag_jobs": 5,
        "started": 0.0,
        "ended": 20.0,
        "mapping": {
            "policy": "greedy",
            "portfolio": {"greedy": 6.0, "random": 9.0},
            "makespan_s": 6.0,
            "placements": [placement],
        },
        "edges": [],
        "transits": [transit()],
        "bars": [Bar("ID1", "compute", "mu", 1, 2, 5, True)],
        "status_records": 4,
        "open_reservations": 0,
        "flows_left": 0,
        "science": {"planted_snps": 300, "recall": 1.0, "precision": 0.99},
        "links": [{"a": "s2", "b": "s1", "capacity_bps": 200e6, "layer": "l2"}],
        "samples": [LinkSample("s2", "s1", 0, 10), LinkSample("s2", "s1", 1_000_000, 11)],
    }
    return RunFacts(**(data | changes))


def test_json_has_the_promised_shape() -> None:
    out = json.loads(json.dumps(as_json(facts()), allow_nan=False))
    assert out["workflow"] == {
        "name": "soykb", "state": "success", "jobs": 3, "dag_jobs": 5, "makespan_s": 20.0,
    }  # fmt: skip
    assert set(out["placements"][0]["alternatives"][0]) >= {
        "site", "t_q_s", "t_c_s", "t_n_s", "t_t_s",
    }  # fmt: skip
    assert set(out["transits"][0]) >= {
        "job", "src", "dst", "path", "requested_bps", "granted_bps", "requested_at",
        "installed_at", "released_at", "bytes", "goodput_bps",
    }  # fmt: skip
    assert out["placements"][0]["alternatives"][1]["t_t_s"] is None
    assert out["open_reservations_at_end"] == out["flows_left_on_switches"] == 0


def test_the_page_escapes_what_users_wrote_and_stands_alone() -> None:
    page = render(facts(changes=["ID1: mu -> tacc <b>"], earlier_measurements=3))
    assert "<it>" not in page and "&lt;it&gt;" in page and '<b>"' not in page
    assert "src=" not in page and "http" not in page.replace("http-equiv", "")
    assert "∞" in page


def test_the_page_of_a_first_run_says_that_nothing_was_known() -> None:
    assert "archive was empty" in render(facts())


def test_drawings_are_well_formed() -> None:
    labels = {"a": "a", "b": "b & c"}
    ET.fromstring(svg.dag([("a", "b")], labels, {"a": "s1", "b": "s2"}))
    ET.fromstring(svg.gantt([Bar("j", "transfer", "mu", 0, 1, 2, False)], {"mu": "s1"}, 0, 10))
    ET.fromstring(svg.link_load(("s2", "s1"), 2e8, [transit()], facts().samples, 0, 20))


def test_reserved_and_measured_are_per_direction() -> None:
    assert svg.reserved_steps([transit()], ("s2", "s1")) == [(10.0, 100e6), (14.0, 0.0)]
    assert svg.reserved_steps([transit()], ("s1", "s2")) == []
    assert svg.measured_rates(facts().samples, ("s2", "s1")) == [(11, 8_000_000.0)]


bars = st.builds(
    lambda start, length: Bar("j", "compute", "mu", start, start, start + length, True),
    st.floats(min_value=0, max_value=100),
    st.floats(min_value=0, max_value=20),
)


@given(st.lists(bars, max_size=40))
def test_lanes_keep_every_bar_and_never_overlap(found: list[Bar]) -> None:
    rows = svg.lanes(found)
    assert sum(len(row) for row in rows) == len(found)
    for row in rows:
        for before, after in pairwise(row):
            assert before.end <= after.start


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50)), max_size=20))
def test_reservations_end_at_zero(spans: list[tuple[float, float]]) -> None:
    given_transits = [
        transit(installed_at=1 + start, released_at=1 + start + length) for start, length in spans
    ]
    steps = svg.reserved_steps(given_transits, ("s2", "s1"))
    assert not steps or abs(steps[-1][1]) < 1e-3
