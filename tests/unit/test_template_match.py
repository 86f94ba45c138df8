"""Which template fits, and what it would have chosen for transfers of the past."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from api_rig import bearer
from broker_rig import MBPS, Rig
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import made_transit
from network_world import TEMPLATES, demo_network
from template_world import bodies, body, plain
from test_api_roles import MINE, opened

from network_provisioner.base.errors import InputError
from network_provisioner.base.model import PathScore, TransitRequest
from network_provisioner.selection.transit import Metric, PathMetrics, choose
from network_provisioner.selection.trial import template_trial
from network_provisioner.templates.data import (
    template_from_dict,
    templates_from_dict,
    wanted_from_dict,
)
from network_provisioner.templates.match import Specification, distance, match, misfit
from network_provisioner.templates.template import METRICS, Template

EXAMPLES = list(templates_from_dict(TEMPLATES).values())


def named(name: str, low: float = 1e8, high: float = 1e9, **more: Any) -> Template:
    return template_from_dict(name, body(low, high, **more))


@pytest.mark.parametrize(
    ("application", "template", "how"),
    [
        ("soykb", "soykb", "name"),
        ("SoyKB", "soykb", "name"),
        ("soykb-2015", "soykb", "pattern"),
        ("soykb::bwa_mem:1.0", "soykb", "pattern"),
        ("mProjectPP", "montage", "pattern"),
        ("montage-1.5deg", "montage", "pattern"),
        ("soykbean", None, ""),
        ("", None, ""),
    ],
)
def test_the_templates_of_the_examples_are_found(
    application: str, template: str | None, how: str
) -> None:
    choice = match(EXAMPLES, application, Specification())
    assert (choice.template.name if choice.template else None, choice.how) == (template, how)


@pytest.mark.parametrize("name", ["soykb", "montage", "mProjectPP", "1000genome", "Default-run"])
def test_nobodys_application_is_one_of_ours(name: str) -> None:
    assert match(templates_from_dict(None).values(), name, Specification()).template is None


def test_the_name_goes_before_patterns_and_more_letters_before_fewer() -> None:
    known = [
        named("a", applications=["neuro*"]),
        named("b", applications=["neuroblast*"]),
        named("c", applications=["neuroblas[tT]*"]),
        named("neuroblastoma"),
    ]
    for names, expected in (("abcn", "neuroblastoma"), ("abc", "b"), ("ac", "c"), ("a", "a")):
        among = [t for t in known if t.name[0] in names]
        template = match(among, "neuroblastoma", Specification()).template
        assert template is not None and template.name == expected


def test_one_that_cannot_serve_what_is_asked_for_is_passed_over() -> None:
    known = [named("app", high=2e8), named("big", high=1e9, applications=["app*"])]
    choice = match(known, "app", Specification(min_bps=5e8))
    assert choice.template is not None and (choice.template.name, choice.how) == ("big", "pattern")
    assert choice.passed_over == {"app": "allows 200 Mb/s, 500 Mb/s needed"}


def test_limits_that_are_promised_or_not() -> None:
    loose, tight = named("loose", limits={"max_delay": 0.2}), named("t", limits={"max_delay": 0.05})
    assert misfit(loose, Specification(max_delay_s=0.1)) == "lets delay be 0.2, at most 0.1 needed"
    assert misfit(tight, Specification(max_delay_s=0.1)) == ""
    assert (
        misfit(tight, Specification(max_loss=0.1)) == "promises nothing of loss, at most 0.1 needed"
    )


def test_the_nearest_specification_lends_figures_but_no_rank() -> None:
    known = [*EXAMPLES, named("vip", 5e8, 1e9, priority=9, peak=8e8)]
    choice = match(known, "unheard-of", Specification(min_bps=6e8))
    assert choice.template is not None
    assert (choice.template.name, choice.how, choice.template.priority) == ("vip", "nearest", 0)
    assert "best transfer reached 800 Mb/s" in choice.reason
    assert "without its priority 9" in choice.reason


def test_distance_counts_factors_of_two() -> None:
    template = named("x", 1e8, 8e8)
    assert distance(template, Specification(1e8, 8e8)) == 0
    assert distance(template, Specification(2e8, 8e8)) == 1
    assert distance(template, Specification(5e7, 1e8)) == 4
    assert distance(template, Specification()) == 0


def test_nothing_fits() -> None:
    choice = match([named("a", high=1e9)], "x", Specification(min_bps=2e9))
    assert choice.template is None
    assert choice.reason == "no template is for 'x', and none allows what is asked for"


wanted = st.builds(
    Specification,
    min_bps=st.none() | st.floats(1, 1e12),
    max_bps=st.none() | st.floats(1, 1e12),
    max_delay_s=st.none() | st.floats(0, 10),
    max_jitter_s=st.none() | st.floats(0, 10),
    max_loss=st.none() | st.floats(0, 0.9),
)


@settings(max_examples=50)
@given(st.lists(bodies(), max_size=4), st.text("soykbSOY-*", max_size=8), wanted, st.randoms())
def test_the_order_never_matters_and_what_is_found_fits(
    documents: list[dict[str, Any]],
    application: str,
    specification: Specification,
    rng: random.Random,
) -> None:
    known = [template_from_dict(f"t{n}", item) for n, item in enumerate(documents)]
    first = match(known, application, specification)
    rng.shuffle(known)
    assert match(known, application, specification) == first
    assert {
        name: misfit(t, specification) for t in known if (name := t.name) in first.passed_over
    } == dict(first.passed_over)
    if first.template is None:
        return
    assert misfit(first.template, specification) == ""
    if first.how == "nearest":
        fit = [t for t in known if not misfit(t, specification)]
        assert distance(first.template, specification) == min(
            distance(t, specification) for t in fit
        )


@given(st.dictionaries(st.sampled_from(["min_throughput", "max_delay", "max_loss", "x"]), plain))
def test_any_specification_is_understood_or_refused_in_a_line(data: dict[str, Any]) -> None:
    try:
        wanted_from_dict(data)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"min_throughput": "2 Gb/s", "max_throughput": "1 Gb/s"}, "is above max_throughput"),
        ({"min_throughput": 0}, "expected more than 0"),
        ({"max_loss": 1}, "expected less than 1"),
        ({"max_dealy": 1}, "did you mean 'max_delay'"),
    ],
)
def test_bad_specifications(data: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        wanted_from_dict(data)


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
