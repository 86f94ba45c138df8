"""What an evaluation comes to: ratios, means, tables, and JSON that says nothing of the run."""

from __future__ import annotations

import json
import math

import pytest

from site_selector.evaluation.cases import POLICIES, Outcome, Setting
from site_selector.evaluation.report import (
    HEAD,
    Row,
    as_dict,
    geometric_mean,
    ratio,
    summarise,
    tables,
)
from site_selector.evaluation.traces import Task, TraceFile, build_trace
from site_selector.evaluation.worlds import REGIMES, draw_platform


def row(name: str, platform: int, adon: float, best: float = 10.0, bound: float = 5.0) -> Row:
    trace = build_trace(name, [Task("a", "a", (), (), (), (), 1.0)], {})
    makespans = dict.fromkeys(POLICIES, 40.0) | {"adon": adon}
    outcomes = tuple(Outcome(regime, makespans, best, "heft", bound) for regime in REGIMES)
    return Row(TraceFile(f"{name}.json", "0", trace), platform, outcomes)


ROWS = [row("big-1", 0, 10), row("big-1", 1, 40), row("small-1", 0, 20)]


def test_geometric_mean_and_worst() -> None:
    found = summarise(ROWS, "errors", "adon", "best_known")
    assert found.geomean == pytest.approx(2)  # 1, 4 and 2
    assert (found.worst, found.cases) == (4, 3)
    assert found.worst_case == "big-1.json on platform 1"
    assert summarise(ROWS, "exact", "adon", "lower_bound").geomean == pytest.approx(4)
    assert summarise(ROWS, "exact", "heft", "best_known").geomean == pytest.approx(4)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


def test_a_workflow_that_takes_no_time_is_mapped_as_well_as_can_be() -> None:
    outcome = row("none-1", 0, 0, best=0, bound=0).outcomes[0]
    assert ratio(outcome, "adon", "best_known") == 1
    assert ratio(outcome, "heft", "lower_bound") == math.inf


def test_tables_have_every_policy_in_every_family_and_over_all() -> None:
    everything = as_dict(ROWS, [draw_platform(0, 0)], Setting())
    found = tables(everything["summary"])
    assert [regime for regime, _ in found] == list(REGIMES)
    for _, lines in found:
        assert [line[0] for line in lines[:: len(POLICIES)]] == ["big", "small", "all"]
        assert [line[2] for line in lines[-len(POLICIES) :]] == list(POLICIES)
        assert lines[-len(POLICIES)] == ["all", "3", "adon", "2.000", "4.000", "4.000", "8.000"]
        assert all(len(line) == len(HEAD) for line in lines)


def test_json_has_every_case_and_can_be_read_back() -> None:
    platforms = [draw_platform(0, number) for number in range(2)]
    everything = as_dict(ROWS, platforms, Setting(seed=3), ["schema.json: not a trace"])
    again = json.loads(json.dumps(everything, allow_nan=False))
    assert again["seed"] == 3
    assert [case["trace"] for case in again["cases"]] == [
        "big-1.json",
        "big-1.json",
        "small-1.json",
    ]
    assert again["cases"][1]["regimes"]["errors"]["makespan_s"]["adon"] == 40
    assert [trace["family"] for trace in again["traces"]] == ["big", "small"]
    assert len(again["platforms"]) == 2
