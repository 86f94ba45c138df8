"""Templates: validation, and scores from lookup tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from template_world import bodies, plain

from network_provisioner.base.errors import InputError
from network_provisioner.templates.data import (
    BUILT_IN,
    template_from_dict,
    template_to_dict,
    templates_from_dict,
)
from network_provisioner.templates.template import METRICS, Template

BASE: dict[str, Any] = {
    "qspec": {"min_throughput": "1 Gb/s", "max_delay": "100 ms", "max_loss": 0.01},
    "rspec": {"max_throughput": "10 Gb/s"},
}


def test_table_2_of_the_thesis() -> None:
    template = template_from_dict("paper", BASE)
    for gigabits in range(1, 11):
        assert template.score("throughput", gigabits * 1e9) == pytest.approx(gigabits)


def test_what_misses_the_qspec_scores_nothing() -> None:
    template = template_from_dict("paper", BASE)
    assert template.score("throughput", 0.999e9) == 0
    assert template.score("delay", 0.101) == 0
    assert template.score("delay", 0.1) == 1
    assert template.score("delay", 0.0) == 10
    assert template.score("throughput", 50e9) == 10


def test_rates_of_the_request_replace_those_of_the_template() -> None:
    template = template_from_dict("paper", BASE)
    assert template.score("throughput", 2e9, min_bps=2e9, max_bps=4e9) == 1
    assert template.score("throughput", 3e9, min_bps=2e9, max_bps=4e9) == pytest.approx(5.5)
    assert template.score("throughput", 2e9, min_bps=2e9, max_bps=2e9) == 10


def test_a_table_of_its_own() -> None:
    table = [["1 Gb/s", 2], ["2 Gb/s", 8], ["4 Gb/s", 9]]
    template = template_from_dict("own", {**BASE, "tables": {"throughput": table}})
    values = [0.5e9, 1e9, 1.5e9, 2e9, 3e9, 4e9, 9e9]
    assert [template.score("throughput", v) for v in values] == [2, 2, 5, 8, 8.5, 9, 9]


def test_weights_add_up_to_one() -> None:
    weights = {"throughput": 3, "delay": 1, "loss": 0}
    template = template_from_dict("w", {**BASE, "weights": weights})
    assert template.weights == {"throughput": 0.75, "delay": 0.25}


def test_only_throughput_counts_where_nothing_is_said() -> None:
    assert template_from_dict("w", BASE).weights == {"throughput": 1.0}


def test_the_built_in_ones_are_valid_and_can_be_replaced() -> None:
    assert set(templates_from_dict(None)) == set(BUILT_IN) == {"default"}
    default = templates_from_dict({"own": BASE})["default"]
    assert default.rspec.max_bps is None and not default.applications
    # Nothing that a slow or far network has is left out.
    assert all(default.qspec.limit(metric) is None for metric in ("delay", "jitter", "loss"))
    assert templates_from_dict({"default": BASE})["default"].qspec.min_bps == 1e9


def test_without_a_ceiling_there_is_none() -> None:
    for body in ({"qspec": BASE["qspec"]}, {"qspec": BASE["qspec"], "rspec": {}}):
        template = template_from_dict("x", body)
        assert template.rspec.max_bps is None
        assert template_from_dict("x", template_to_dict(template)) == template
        assert template_to_dict(template)["rspec"] == {}
        assert template.score("throughput", 1e9) == 10 and template.score("throughput", 1) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"qspec": {}}, "has no 'min_throughput'"),
        ({"qspec": {"min_throughput": 0}}, "qspec.min_throughput: found 0, expected more than 0"),
        ({"qspec": {"min_throughput": "1 GB/s"}}, "expected bits per second"),
        ({"qspec": {"min_throughput": "20 Gb/s"}}, "is below qspec.min_throughput"),
        (
            {"qspec": {"min_throughput": 1, "max_loss": 1}},
            "qspec.max_loss: found 1, expected less than 1",
        ),
        ({"qspec": {"min_throughput": 1, "max_delai": 1}}, "did you mean 'max_delay'"),
        ({"qspec": 7}, "expected a mapping"),
        ({"qpsec": {}}, "did you mean 'qspec'"),
        ({"weights": {"throughput": -1}}, "expected 0 or more"),
        ({"weights": {"throughput": 0}}, "not all of them 0"),
        ({"weights": {"throughput": "much"}}, "found 'much', expected a number"),
        ({"weights": {"jitter": 1}}, "expected qspec.max_jitter or tables.jitter"),
        ({"tables": {"throughput": []}}, "tables.throughput: found [], expected 1 or more"),
        ({"tables": {"throughput": [[1, 2, 3]]}}, "expected [value, score]"),
        ({"tables": {"throughput": [[2, 1], [1, 2]]}}, "expected them to rise"),
        ({"tables": {"throughput": [[1, 2], [2, 1]]}}, "scores must rise"),
        ({"tables": {"delay": [[1, 1], [2, 2]]}}, "scores must fall"),
        ({"tables": {"loss": [[0, 11]]}}, "tables.loss.0.1: found 11, expected at most 10"),
        ({"priority": 1.5}, "expected a whole number"),
        ({"version": 0}, "1 or more"),
        ({"share": 0.5}, "unknown key 'share'"),
        ({"paths": 0}, "1 or more"),
        ({"paths": 17}, "at most 16"),
        ({"priority": 10**30}, "at most 1000"),
        ({"applications": 7}, "found 7, expected a list"),
        ({"applications": ["x", ""]}, "expected a name"),
        ({"applications": ["x" * 201]}, "applications.0: found 'xxx"),
        ({"peak": "fast"}, "expected a number with a unit"),
        ({"patience": "long"}, "expected a number with a unit"),
        ({"tuning": {"streams": 0}}, "1 or more"),
        ({"break_even": "1 Mb/s"}, "expected bytes"),
        ({"when_queued": "sleep"}, "expected one of 'wait', 'defer' or 'best_effort'"),
        ({"small": None}, "found None, expected one of 'best_effort' or 'share'"),
        ({"tuning": {"threads": -1}}, "tuning.threads: found -1, expected 0 or more"),
        # Triggers that contradict themselves, or the rest.
        ({"triggers": {"delay": {"action": "reduce"}}}, "'reduce', which is for throughput alone"),
        ({"triggers": {"loss": {"action": "split"}}}, "'split' with paths 1, expected paths above"),
        ({"triggers": {"throughput": {"limit": "20 Gb/s"}}}, "it would always be missed"),
        ({"triggers": {"loss": {"limit": 1.5}}}, "triggers.loss.limit: found 1.5"),
    ],
)
def test_bad_templates_are_one_clear_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        template_from_dict("bad", {**BASE, **change})
    assert words in str(caught.value)
    assert "bad" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_templates_that_are_no_mapping() -> None:
    with pytest.raises(InputError, match="expected a mapping"):
        templates_from_dict([])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a mapping"):
        templates_from_dict({"x": 3})


@given(bodies())
def test_what_is_written_is_read_as_the_same(body: dict[str, Any]) -> None:
    template = template_from_dict("any", body)
    written = template_to_dict(template)
    assert template_from_dict("any", written) == template
    assert template_from_dict("any", json.loads(json.dumps(written))) == template
    assert template_to_dict(template_from_dict("any", written)) == written


@given(bodies(), st.data())
def test_whatever_is_written_is_a_template_or_one_line(
    body: dict[str, Any], data: st.DataObject
) -> None:
    place = body
    key = data.draw(st.sampled_from(sorted(body)))
    if isinstance(body[key], dict) and body[key] and data.draw(st.booleans()):
        place, key = body[key], data.draw(st.sampled_from(sorted(body[key])))
    place[key] = data.draw(plain)
    try:
        template_from_dict("any", body)
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1000


@settings(max_examples=50)
@given(
    bodies().map(lambda body: template_from_dict("any", body)),
    st.sampled_from(METRICS),
    st.floats(0, 1e11),
    st.floats(0, 1e11),
)
def test_scores_stay_in_bounds_and_never_favour_the_worse(
    template: Template, metric: str, a: float, b: float
) -> None:
    low, high = sorted((a, b))
    scores = [template.score(metric, value) for value in (low, high)]
    assert all(0 <= s <= 10 for s in scores)
    assert scores == sorted(scores, reverse=metric != "throughput")
