"""Running transits whose paths got worse, by what arrives and by what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from promise_rig import MB, Day

from network_provisioner.selection.transit import Metric, Worsening
from network_provisioner.topology.graph import Path as NetworkPath

RATE = 15  # Mb/s: as much fits on the other path, too
L2, L3 = ["mu", "s1", "s2", "tacc"], ["mu", "s1", "r1", "s2", "tacc"]


def day(folder: Path, **template: Any) -> Day:
    """With a default template that has these keys."""
    body = {"qspec": {"min_throughput": "5 Mb/s", "max_loss": 0.01}, **template}
    return Day(folder / "s", RATE, templates={"default": body})


def test_a_broken_promise_moves_the_transit_and_it_comes_back(tmp_path: Path) -> None:
    scenario = day(tmp_path)
    scenario.seconds(12, RATE)
    assert scenario.transit.grant.path == L2
    scenario.seconds(15, 9)
    assert scenario.transit.grant.path == L3 and "has more to send" in scenario.transit.reason
    assert [bool(news.at) for news in scenario.news] == [False, True]
    scenario.seconds(50, RATE)
    assert scenario.transit.grant.path == L3, "the path that it left is avoided"
    scenario.seconds(30, RATE)
    assert scenario.transit.grant.path == L2
    scenario.seconds(60, RATE)
    assert (scenario.transit.grant.path, scenario.transit.grant.moves) == (L2, 2)


def test_a_path_that_disappoints_again_and_again_is_tried_ever_less(tmp_path: Path) -> None:
    scenario, moves = day(tmp_path), []
    for _ in range(1200):
        scenario.seconds(1, 9 if scenario.transit.grant.path == L2 else RATE)
        moves.append(scenario.transit.grant.moves)
    assert scenario.transit.grant.path == L3
    assert [moves[minute * 60] for minute in (1, 2, 5, 9, 19)] == [1, 3, 5, 7, 7]


def test_where_both_paths_are_bad_nobody_runs_to_and_fro(tmp_path: Path) -> None:
    scenario = day(tmp_path)
    scenario.seconds(1000, 9)
    assert scenario.transit.grant.moves <= 7


def test_loss_that_two_measurements_agree_on_moves_a_transit(tmp_path: Path) -> None:
    measured: dict[str, Metric] = {}
    clock = {"at": 0.0}

    def metrics_of(path: NetworkPath, user: str) -> dict[str, Metric]:
        if list(path.nodes) != L2 or not measured:
            return {}
        age_s = scenario.rig.clock.now - clock["at"]
        return {"loss": Metric(measured["loss"].value, "measured", age_s)}

    scenario = Day(
        tmp_path / "s",
        RATE,
        templates={"default": {"qspec": {"min_throughput": "5 Mb/s", "max_loss": 0.01}}},
        metrics_of=metrics_of,
    )
    scenario.rig.let_pass(1)
    measured["loss"], clock["at"] = Metric(0.02, "measured"), scenario.rig.clock.now
    scenario.rig.let_pass(20)
    assert scenario.transit.grant.path == L2, "one measurement"
    clock["at"] = scenario.rig.clock.now
    scenario.rig.let_pass(1)
    assert scenario.transit.grant.path == L3 and "loss is 0.02" in scenario.transit.reason
    clock["at"] = scenario.rig.clock.now + 65
    scenario.rig.let_pass(70)
    assert scenario.transit.grant.path == L3, "it is as bad as before"
    measured["loss"], clock["at"] = Metric(0.0, "measured"), scenario.rig.clock.now
    scenario.rig.let_pass(40)
    assert scenario.transit.grant.path == L2


OTHER = {"delay": Metric(0.06, "measured")}  # of the path over r1
SCORED = {
    "qspec": {"min_throughput": "5 Mb/s"},
    "weights": {"throughput": 1, "delay": 9},
    "tables": {"delay": [[0, 10], ["500 ms", 1]]},
}


@pytest.mark.parametrize(
    ("metric", "value", "triggers", "moves"),
    [
        ("delay", 0.2, {}, True),
        ("delay", 0.08, {}, False),  # the other path is not better by much
        ("delay", 0.2, {"delay": {"limit": "150 ms", "for": "10 s"}}, True),
        ("delay", 0.2, {"delay": {"limit": "300 ms"}}, False),
        ("delay", 0.2, {"delay": {"action": "ignore"}}, False),
        ("delay", 0.2, {"delay": {"action": "report"}}, False),
        ("throughput", 10e6, {}, True),  # of 15 Mb/s that were granted
        ("throughput", 16e6, {}, False),
    ],
)
def test_an_anomaly_of_the_path_is_a_trigger(
    tmp_path: Path, metric: str, value: float, triggers: dict[str, Any], moves: bool
) -> None:
    first = {"delay": Metric(0.04, "measured")}
    scenario = Day(
        tmp_path / "s",
        RATE,
        templates={"default": {**SCORED, "triggers": triggers}},
        metrics_of=lambda path, user: first if list(path.nodes) == L2 else OTHER,
    )
    scenario.rig.let_pass(20)
    assert scenario.transit.grant.path == L2
    now = scenario.rig.clock.now
    first[metric] = Metric(value, "measured", 0.0, Worsening(now - 1200, now, 0.04))
    scenario.rig.let_pass(3)
    assert scenario.transit.grant.path == (L3 if moves else L2)
    if moves:
        assert f"{metric} is" in scenario.transit.reason
    reported = [str(news) for news in scenario.news]
    assert len(reported) == (triggers.get("delay") == {"action": "report"})
    scenario.rig.let_pass(100)
    assert scenario.transit.grant.moves == (1 if moves else 0), "it is as bad as before"
    assert [str(news) for news in scenario.news] == reported, "once"


def test_a_change_that_was_known_before_moves_nobody(tmp_path: Path) -> None:
    change = Worsening(0.0, 10.0, 0.04)
    scenario = Day(
        tmp_path / "s",
        RATE,
        templates={"default": SCORED},
        metrics_of=lambda path, user: {"delay": Metric(0.2, "measured", 0.0, change)},
    )
    scenario.rig.let_pass(60)
    assert scenario.transit.grant.moves == 0 and not scenario.news


def test_what_is_ignored_hides_nothing_else(tmp_path: Path) -> None:
    measured: dict[str, Metric] = {}

    def metrics_of(path: NetworkPath, user: str) -> dict[str, Metric]:
        return measured if list(path.nodes) == L2 else {}

    template = {
        "qspec": {"min_throughput": "5 Mb/s"},
        "triggers": {"throughput": {"action": "ignore"}, "loss": {"limit": 0.01}},
    }
    scenario = Day(tmp_path / "s", RATE, templates={"default": template}, metrics_of=metrics_of)
    scenario.seconds(15, 9)
    assert scenario.transit.grant.path == L2
    measured["loss"] = Metric(0.02, "measured", 0.0)
    scenario.seconds(10, 9)
    assert scenario.transit.grant.path == L3 and "loss is 0.02" in scenario.transit.reason


@pytest.mark.parametrize("action", ["report", "ignore"])
def test_what_a_template_only_reports_or_ignores_stays(tmp_path: Path, action: str) -> None:
    scenario = day(tmp_path, triggers={"throughput": {"action": action}})
    scenario.seconds(60, 9)
    assert scenario.transit.grant.path == L2
    assert [str(news).startswith("transit 'a' gets less") for news in scenario.news] == [True]


def test_a_limit_of_its_own(tmp_path: Path) -> None:
    scenario = day(tmp_path, triggers={"throughput": {"limit": "8 Mb/s"}})
    scenario.seconds(30, 9)
    assert scenario.transit.grant.path == L2
    scenario.seconds(30, 7)
    assert scenario.transit.grant.path == L3


def test_a_rate_is_reduced_to_what_arrives_and_raised_again(tmp_path: Path) -> None:
    scenario = day(tmp_path, triggers={"throughput": {"action": "reduce"}})
    scenario.seconds(12, RATE)
    scenario.seconds(20, 9)
    assert scenario.transit.request.min_bps == pytest.approx(9 * MB, rel=0.2)
    scenario.seconds(70, RATE)
    assert scenario.transit.request.min_bps == RATE * MB


def test_a_transit_is_split(tmp_path: Path) -> None:
    scenario = day(tmp_path, paths=2, triggers={"throughput": {"action": "split"}})
    scenario.seconds(12, RATE)
    scenario.seconds(20, 9)
    parts = {tuple(part.path): part.min_bps for part in scenario.transit.grant.parts}
    assert sum(parts.values()) == RATE * MB and parts[tuple(L2)] <= 9.2 * MB
    assert tuple(L3) in parts


def test_without_another_path_it_stays_and_that_is_reported_once(tmp_path: Path) -> None:
    scenario = day(tmp_path)
    scenario.seconds(5, RATE)
    scenario.controller.fail("s1", "r1", "port 11 of s1 is down")
    scenario.seconds(120, 9)
    assert scenario.transit.grant.path == L2
    assert len(scenario.news) == 2  # and of the link
