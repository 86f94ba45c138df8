"""What a template would have chosen for transfers of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_rig import bearer
from broker_rig import MBPS, Rig
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from network_world import demo_network
from test_api_roles import MINE, opened

from network_provisioner.base.model import PathScore, TransitRequest
from network_provisioner.selection.transit import Metric, PathMetrics, choose
from network_provisioner.selection.trial import template_trial
from network_provisioner.templates.data import template_from_dict
from network_provisioner.templates.template import METRICS, Template

NET = demo_network()
PATHS = NET.candidate_paths("mu", "tacc", 4)
RATES = st.floats(1e6, 1e9)


def template(low: float = 20e6, **more: Any) -> Template:
    body: dict[str, Any] = {
        "qspec": {"min_throughput": low, "max_delay": "200 ms"},
        "weights": {"throughput": 0.1, "delay": 0.9},
    }
    return template_from_dict("t", body | more)


@st.composite
def known(draw: st.DrawFn) -> PathMetrics:
    metrics: dict[str, Any] = {
        name: draw(st.none() | st.builds(Metric, st.floats(0.001, 0.4), st.just("archive")))
        for name in METRICS[1:]
    }
    free = draw(RATES)
    return PathMetrics(free, share_bps=free * draw(st.floats(0.1, 1)), **metrics)


def compared(scores: list[PathScore], low: float, **more: Any) -> Any:
    took = next((c["path"] for c in scores if not c["rejected"]), [])
    return made_transit(
        "a", "mu", "tacc", "released", "t", requested_bps=low, max_bps=PATHS[0].capacity_bps,
        uncapped=True, candidates=scores, path=took, **more,
    )  # fmt: skip


@given(st.lists(known(), min_size=len(PATHS), max_size=len(PATHS)), RATES, st.booleans())
def test_the_same_template_chooses_the_same(
    metrics: list[PathMetrics], low: float, closed: bool
) -> None:
    same = template(low)
    if closed:  # what was out of service then stays so
        metrics = [PathMetrics(1e9, blocked="r1 is drained"), *metrics[1:]]
    choice = choose(list(zip(PATHS, metrics, strict=True)), same)
    transit = compared([c.as_dict() for c in choice.candidates], low)
    trial = template_trial(transit, same, same, NET)
    assert not trial.differs
    assert trial.now.q == (None if choice.chosen is None else round(choice.chosen.q, 6))


def test_other_figures_choose_another_path() -> None:
    near, far = PATHS[0], PATHS[1]
    metrics = [
        (near, PathMetrics(30e6, delay=Metric(0.002, "archive"))),
        (far, PathMetrics(900e6, delay=Metric(0.09, "archive"))),
    ]
    before = template()
    choice = choose(metrics, before)
    assert choice.chosen is not None and choice.chosen.path == near
    transit = compared([c.as_dict() for c in choice.candidates], 20e6)
    trial = template_trial(transit, before, template(50e6), NET)
    assert (trial.differs, trial.now.path, trial.now.min_bps) == (True, far.nodes, 50e6)
    assert "30 Mb/s free, 50 Mb/s needed" in trial.why
    # A rate that its user asked for stays.
    own = compared([c.as_dict() for c in choice.candidates], 25e6)
    assert template_trial(own, before, template(50e6), NET).now.min_bps == 25e6
    none = template_trial(transit, before, template(950e6), NET)
    assert none.differs and none.now.path == () and none.now.q is None
    small = template(break_even="1 GB")
    sized = compared([c.as_dict() for c in choice.candidates], 20e6, size_bytes=10**6)
    assert "below 1 GB" in template_trial(sized, before, small, NET).why


def test_a_network_without_the_path_and_rates_that_are_not_allowed() -> None:
    gone = compared([c.as_dict() for c in choose([], template()).candidates], 20e6)
    assert "any more" in template_trial(gone, None, template(), NET).why
    choice = choose([(PATHS[0], PathMetrics(9e8))], template())
    own = compared([c.as_dict() for c in choice.candidates], 25e6)
    low = template(5e6, rspec={"max_throughput": 10e6})
    assert "allows, expected at most 10 Mb/s" in template_trial(own, template(), low, NET).why


def test_each_sees_its_own_and_nothing_is_saved(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state")
    with opened(rig) as client:
        for name, user in (("own", MINE), ("other", "somebody")):
            rig.broker.request(TransitRequest(name, "mu", "tacc", min_bps=3 * MBPS, user=user))
        body = {"qspec": {"min_throughput": "5 Mb/s"}}

        def ids(role: str, query: str = "") -> list[str]:
            answer = client.post(f"/v1/templates/new/try{query}", json=body, headers=bearer(role))
            assert answer.status_code == 200, answer.text
            return [trial["id"] for trial in answer.json()]

        assert ids("researcher")[0] == "own" and "other" not in ids("researcher")
        assert ids("engineer", "?limit=2") == ["other", "own"]
        assert ids("engineer", "?of=nothing") == []
        head = bearer("researcher")
        assert client.post("/v1/templates/new/try", headers=head).status_code == 404
        bad = client.post("/v1/templates/new/try", json={"qspec": {}}, headers=head)
        assert bad.status_code in (400, 422)
        assert client.get("/v1/templates/new", headers=head).status_code == 404
