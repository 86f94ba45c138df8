"""Which template fits: by name, by pattern, by the nearest specification."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_world import TEMPLATES
from template_world import bodies, body, plain

from network_provisioner.base.errors import InputError
from network_provisioner.templates.data import (
    template_from_dict,
    templates_from_dict,
    wanted_from_dict,
)
from network_provisioner.templates.match import Specification, distance, match, misfit
from network_provisioner.templates.template import Template

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
