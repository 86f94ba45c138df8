"""Reasons in words, tables, what measurements changed, and the hinted workflow."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from site_world import (
    Measurements,
    estimate_of,
    inputs_of,
    job,
)

from monitors.base.estimates import Estimate
from network_provisioner.base.errors import InputError
from site_selector.estimates.estimating import estimate_world
from site_selector.explain.text import (
    changes,
    estimates_text,
    explain_text,
    show_text,
    summary_text,
)
from site_selector.inputs import Inputs
from site_selector.mapping.mapper import map_workflow
from site_selector.mapping.placement import Alternative, Mapping, Move, Withstands
from site_selector.mapping.reasons import seconds, why_least, why_not_least

SITES: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 1, "adon.rate": "10 MB/s", "adon.bandwidth.tacc": "80 Mb/s"},
    "tacc": {"adon.workers": 2, "adon.rate": "20 MB/s"},
}


def make() -> Inputs:
    return inputs_of(
        [job("x", "a", ["f"], ["g"], sizes={"g": 1_000_000})],
        SITES,
        {"f": ("mu", 100_000_000)},
        {"a": ["mu", "tacc"]},
    )


def mapped(known: dict[tuple[str, str], Estimate] | None = None) -> Mapping:
    inputs = make()
    return map_workflow(inputs, estimate_world(inputs, Measurements(known or {}), now=1000.0), "mu")


def test_a_choice_against_the_estimates_says_so() -> None:
    mapping = Mapping("w", "data+search", 66.0, {"greedy": 70.0}, (), {})
    assert "wrong" not in summary_text(mapping)
    hedged = replace(mapping, withstands=Withstands(60.0, 96, 70, 20, 0.0512))
    assert (
        "chosen because estimates may be wrong: another mapping would end after 60 s if all were "
        "right, but over 96 worlds drawn around them this one ends sooner in 70 and later in 20, "
        "5.1 % sooner on average"
    ) in summary_text(hedged)
    rarely = replace(mapping, withstands=Withstands(60.0, 96, 20, 70, -0.01))
    assert "1.0 % later on average, but better in the worst of them" in summary_text(rarely)
    assert Mapping.from_json(json.dumps(hedged.as_dict())) == hedged


def test_every_term_with_its_source_and_the_break_even() -> None:
    # mu: 10 s of computing. tacc: 10 s to move 100 MB, 5 s of computing, 0.1 s for 1 MB back.
    text = explain_text(mapped())
    assert "* mu" in text
    assert "10.1 s (101 MB, Γ_a of mu>tacc)" in text
    assert "N 2 [catalog]" in text
    assert "Γ_a 80 Mb/s [catalog]" in text
    # tacc draws level when 100 MB there take 4.9 s, the 0.1 s for 1 MB back staying as they are.
    assert "tacc would win if mu>tacc carried more than 164 Mb/s" in text


def test_the_break_even_is_true() -> None:
    # It is of T_t; data moves for what a forecast can tell.
    for rate, least, site in (
        (163e6, "mu", "mu"), (164e6, "tacc", "mu"), (169e6, "tacc", "tacc"),
    ):  # fmt: skip
        there, back = ("throughput", "mu>tacc"), ("throughput", "tacc>mu")
        (placement,) = mapped({there: estimate_of(rate), back: estimate_of(80e6)}).placements
        assert (placement.alternatives[0].site, placement.site) == (least, site)


def test_measured_values_show_their_age() -> None:
    known = {("throughput", "mu>tacc"): estimate_of(40e6, at=940.0)}
    assert "Γ_a 40 Mb/s [archive 60 s ago]" in explain_text(mapped(known))


def test_one_job_or_an_unknown_one() -> None:
    mapping = mapped()
    assert explain_text(mapping, ["x"]).startswith("x  t::a:1.0 -> mu")
    with pytest.raises(InputError, match="job 'z' is not in workflow 'w'"):
        explain_text(mapping, ["z"])


def option(site: str, t_q: float, t_c: float, t_n: float) -> Alternative:
    moves = (Move(f"mu>{site}", 1000.0, 8000 / t_n, float("inf")),) if t_n else ()
    return Alternative(
        site, t_q, t_c, t_n, t_q + t_c + t_n, "Γ_a", f"mu>{site}", 1000.0, 1000.0,
        {"n": {"value": 4, "used": 0.5}}, moves,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("best", "second", "said"),
    [
        (
            option("a", 1, 1, 0),
            option("b", 9, 1, 0),
            "b would win if its queue wait fell below 1 s",
        ),
        (option("a", 0, 2, 0), option("b", 0, 4, 0), "if it computed more than 1 kB/s per worker"),
        (
            option("a", 0, 0, 2),
            option("b", 0, 0, 8),
            "b would win if mu>b carried more than 4 kb/s",
        ),
        (option("a", 0, 0, 1), option("b", 0, 3, 2), "no improvement at b alone makes it win"),
        (option("a", 0, 1, 1), option("b", 0, 1, 1), "T_t is 2 s here and at b alike"),
        (option("a", 0, 1, 1), option("b", float("inf"), 1, 1), "b has none (T_q infinite)"),
        (option("a", float("inf"), 1, 1), option("b", float("inf"), 1, 1), "no site has resources"),
    ],
)
def test_why_the_least_won(best: Alternative, second: Alternative, said: str) -> None:
    assert said in why_least(best, second)


def test_why_a_job_is_not_where_its_own_cost_is_least() -> None:
    here, there = option("a", 0, 9, 0), option("b", 0, 1, 0)
    assert "end the workflow 5 s later (25 s instead of 20 s)" in why_not_least(here, there, 20, 25)
    assert "would not end the workflow sooner" in why_not_least(here, there, 20, 20)
    assert "the mapping as a whole" in why_not_least(here, there, 20, None)
    hedged = why_not_least(here, there, 20, 18, 30, 40)
    assert "and moved there alone it would end the workflow 2 s sooner if all estimates" in hedged
    assert hedged.endswith("but not over the 40 worlds drawn around them: in 30 it ends later")
    assert why_not_least(here, there, 20, 18).endswith(
        "2 s sooner, too little for what it would move"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 s"), (0.0312, "0.0312 s"), (90, "90 s"), (1800, "30.0 min"), (9000, "2.5 h"),
     (float("inf"), "never")],
)  # fmt: skip
def test_seconds_for_people(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_what_is_believed_of_each_site() -> None:
    text = show_text(estimate_world(make(), now=1000.0))
    lines = [line.split() for line in text.splitlines()]
    assert ["tacc", "N", "2", "catalog"] in lines
    assert ["T_q", "0", "s", "catalog"] in lines
    assert ["mu>tacc", "Γ_a", "80", "Mb/s", "catalog"] in lines
    assert ["t::a:1.0@tacc", "Γ_c", "20", "MB/s", "catalog", "adon.rate"] in lines


def test_many_paths_of_which_the_same_is_known_are_told_together() -> None:
    unknown = {"value": None, "source": "default"}
    rate = {"gamma_a": {"value": 1e8, "source": "default"}, "gamma_t": unknown}
    paths = {f"a>s{number}": rate for number in range(2000)}
    paths["a>s7"] = rate | {"gamma_a": {"value": 2e8, "source": "archive"}}
    lines = estimates_text({"sites": {}, "paths": paths, "compute": {}}).splitlines()
    assert [line.split("  ")[0] for line in lines if line[0] != " "] == [
        "path", "a>s0 and 1,998 more", "a>s7"
    ]  # fmt: skip


def test_what_is_measured_is_shown_with_spread_number_and_age() -> None:
    known = {("throughput", "mu>tacc"): estimate_of(40e6, at=940.0, spread=8e6)}
    world = estimate_world(make(), Measurements(known), now=1000.0)
    (line,) = [row for row in show_text(world).splitlines() if row.startswith("mu>tacc")]
    assert " ".join(line.split()) == ("mu>tacc Γ_a 40 Mb/s ± 8 Mb/s archive 60 s 3 measurements")


def test_what_the_last_run_changed() -> None:
    before = mapped()
    after = mapped(
        {
            ("throughput", "mu>tacc"): estimate_of(800e6, at=990.0),
            ("throughput", "tacc>mu"): estimate_of(800e6, at=990.0),
        }
    )
    report = changes(before, after)
    assert report["moved"] == [
        {"job": "x", "transformation": "t::a:1.0", "before": "mu", "after": "tacc"}
    ]
    assert {b["what"] for b in report["beliefs"]} == {"Γ_a mu>tacc", "Γ_a tacc>mu"}
    assert changes(before, before)["beliefs"] == []
