"""Dynamic transit selection: scores, rejections, ties, and Algorithm 3's invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_world import demo_network

from network_provisioner.selection.transit import Metric, PathMetrics, choose
from network_provisioner.templates.data import template_from_dict
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Path

TEMPLATE = template_from_dict(
    "t",
    {
        "qspec": {
            "min_throughput": "25 Mb/s", "max_delay": 0.2, "max_jitter": 0.01, "max_loss": 0.01,
        },
        "rspec": {"max_throughput": "150 Mb/s"},
        "weights": {"throughput": 0.6, "delay": 0.2, "jitter": 0.1, "loss": 0.1},
    },
)  # fmt: skip
L2, L3 = demo_network().candidate_paths("mu", "tacc")


def known(free: float, **metrics: float) -> PathMetrics:
    return PathMetrics(free, **{name: Metric(v, "probe") for name, v in metrics.items()})


def test_the_higher_score_wins() -> None:
    made = choose([(L3, known(30e6)), (L2, known(150e6))], TEMPLATE)
    assert made.chosen is not None
    assert made.chosen.path is L2
    # 0.6 · 10 for throughput; delay, jitter and loss are missing and score 1 each.
    assert made.chosen.q == pytest.approx(6.4)
    assert [c.path for c in made.candidates] == [L2, L3]
    assert "L2 mu-s1-s2-tacc has the highest score, 6.40, of 2 paths" in made.reason


def test_a_long_way_round_can_win_by_its_quality() -> None:
    good = known(100e6, delay=0.0, jitter=0.0, loss=0.0)
    bad = known(110e6, delay=0.19, jitter=0.009, loss=0.009)
    made = choose([(L2, bad), (L3, good)], TEMPLATE)
    assert made.chosen is not None and made.chosen.path is L3


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (known(24e6), "24 Mb/s free, 25 Mb/s needed"),
        (replace(known(0), limit="s1>s2, held by a"), "0 b/s free, 25 Mb/s needed (s1>s2, held by"),
        (known(1e9, delay=0.3), "delay 0.3 (probe), at most 0.2 allowed"),
        (known(1e9, jitter=0.02), "jitter 0.02"),
        (known(1e9, loss=0.5), "loss 0.5"),
        (replace(known(1e9), blocked="a waits for it first"), "a waits for it first"),
    ],
)
def test_what_misses_the_qspec_is_left_out_and_says_why(metrics: PathMetrics, words: str) -> None:
    made = choose([(L2, metrics)], TEMPLATE)
    assert made.chosen is None
    assert words in made.reason
    assert words in made.candidates[0].as_dict()["rejected"]


def test_rates_of_the_request_decide_over_those_of_the_template() -> None:
    assert choose([(L2, known(30e6))], TEMPLATE, min_bps=31e6).chosen is None
    assert choose([(L2, known(2e6))], TEMPLATE, min_bps=1e6).chosen is not None


def test_a_measurement_lowers_the_score_but_not_below_use() -> None:
    slow = replace(known(180e6), throughput=Metric(3e6, "archive", 10))
    made = choose([(L2, slow), (L3, known(30e6))], TEMPLATE)
    assert made.chosen is not None and made.chosen.path is L3
    alone = choose([(L2, slow)], TEMPLATE)
    assert alone.chosen is not None and alone.chosen.expected_bps == 3e6


def test_what_good_transfers_got_sends_nobody_on_a_longer_way() -> None:
    longer = replace(L2, nodes=(*L2.nodes[:-1], "s3", L2.nodes[-1]), rtt_s=2 * L2.rtt_s)
    taken = replace(known(180e6), throughput=Metric(100e6, "archive", 10))
    made = choose([(longer, known(180e6)), (L2, taken)], TEMPLATE)
    assert made.chosen is not None and made.chosen.path is L2


@pytest.mark.parametrize("layer", ["l2", "l3"])
def test_a_detour_is_not_taken_where_a_short_path_does(layer: str) -> None:
    near = replace(L2, nodes=("a", "s1", "s3", "s2", "b"), rtt_s=0.003, layer=layer)
    far = replace(L2, nodes=("a", "s1", "s2", "b"), rtt_s=0.1)
    same = choose([(far, known(180e6)), (near, known(180e6))], TEMPLATE)
    assert same.chosen is not None and same.chosen.path is near
    made = choose([(far, known(150e6)), (near, known(145e6))], TEMPLATE)
    assert made.chosen is not None and made.chosen.path is near
    assert made.candidates[0].path is near and "no detour" in made.reason
    wider = choose([(far, known(180e6)), (near, known(40e6))], TEMPLATE)
    assert wider.chosen is not None and wider.chosen.path is far
    full = choose([(far, known(180e6)), (near, known(5e6))], TEMPLATE)
    assert full.chosen is not None and full.chosen.path is far
    slow = replace(near, capacity_bps=1e6)  # a thin line is no short way
    thin = choose([(far, known(1e6)), (slow, known(1e6))], TEMPLATE, min_bps=1e6)
    assert thin.chosen is not None and thin.chosen.path is far


def test_without_guarantees_a_measurement_decides() -> None:
    slow = replace(known(180e6), throughput=Metric(3e6, "archive", 10), not_guaranteed="none is")
    made = choose([(L2, slow)], TEMPLATE)
    assert made.chosen is None
    assert "3 Mb/s measured 10 s ago, 25 Mb/s needed" in made.reason


def test_a_stale_measurement_is_none() -> None:
    old = replace(
        known(180e6),
        throughput=Metric(3e6, "archive", TEMPLATE.max_age_s + 1),
        loss=Metric(0.5, "probe", TEMPLATE.max_age_s + 1),
        not_guaranteed="none is",
    )
    made = choose([(L2, old)], TEMPLATE)
    assert made.chosen is not None
    assert made.chosen.expected_bps == 180e6
    assert made.chosen.scores["loss"].score == 1
    assert made.chosen.as_dict()["scores"]["loss"]["source"] == "missing"


def test_ties_go_to_fewer_hops_then_more_throughput_then_shorter_then_names() -> None:
    flat = template_from_dict(
        "flat",
        {
            "qspec": {"min_throughput": 1},
            "rspec": {"max_throughput": 10},
            "tables": {"throughput": [[1, 5]]},
        },
    )

    def path(names: str, rtt_s: float) -> Path:
        return Path(tuple(names), 10.0, rtt_s, 0.0, "l2")

    more, less = known(9), known(8)
    ranked = [
        (path("azb", 9.0), more),
        (path("aub", 0.1), less),
        (path("acb", 0.2), less),
        (path("azzb", 0.1), more),
        (path("acdb", 0.2), less),
        (path("aceb", 0.2), less),
    ]
    made = choose(ranked[::-1], flat)
    assert [c.path.nodes for c in made.candidates] == [p.nodes for p, _ in ranked]


metric = st.none() | st.builds(Metric, st.floats(0, 3e8), st.just("probe"), st.floats(0, 2000))
small = st.none() | st.builds(Metric, st.floats(0, 0.4), st.just("probe"), st.floats(0, 2000))
words = st.sampled_from(("", "link s1-s2 is not guaranteed"))
metrics = st.builds(
    PathMetrics, st.floats(0, 3e8), metric, small, small, small, not_guaranteed=words
)
PATHS = [p for s in ("mu", "local") for p in demo_network().candidate_paths(s, "tacc")]
candidates = st.lists(metrics, min_size=1, max_size=len(PATHS)).map(
    lambda figures: list(zip(PATHS, figures, strict=False))
)


def meets(metrics: PathMetrics, template: Template, low: float) -> bool:
    """The QSpec, said once more and differently."""
    throughput = metrics.get("throughput", template.max_age_s)
    if metrics.free_bps < low:
        return False
    if metrics.not_guaranteed and throughput and throughput.value < 0.9 * low:
        return False
    limits = {"delay": 0.2, "jitter": 0.01, "loss": 0.01}
    values = {name: metrics.get(name, template.max_age_s) for name in limits}
    return all(m is None or m.value <= limits[name] for name, m in values.items())


@given(candidates, st.randoms(), st.floats(1e6, 2e8))
def test_the_choice_meets_the_qspec_has_the_best_score_and_no_order(
    paths: list[tuple[Path, PathMetrics]], random: object, low: float
) -> None:
    made = choose(paths, TEMPLATE, low, 2e8)
    usable = [p for p, m in paths if meets(m, TEMPLATE, low)]
    assert all(0 <= c.q <= 10 + 1e-9 for c in made.candidates)
    assert {c.path for c in made.candidates if not c.rejected} == set(usable)
    if made.chosen is None:
        assert not usable
    else:
        assert made.chosen.path in usable
        best = max(c.q for c in made.candidates if not c.rejected)
        assert made.chosen.q == pytest.approx(best)
    shuffled = list(paths)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose(shuffled, TEMPLATE, low, 2e8) == made


@given(metrics, st.floats(0, 1e8), st.sampled_from(["delay", "jitter", "loss"]))
def test_a_better_path_never_scores_less(metrics: PathMetrics, more: float, name: str) -> None:
    def q(of: PathMetrics) -> float:
        return choose([(L2, of)], TEMPLATE).candidates[0].q

    before = q(metrics)
    assert q(replace(metrics, free_bps=metrics.free_bps + more)) >= before - 1e-9
    figure = metrics.get(name, TEMPLATE.max_age_s)
    if figure is not None:
        better = replace(figure, value=figure.value / 2)
        assert q(replace(metrics, **{name: better})) >= before - 1e-9
