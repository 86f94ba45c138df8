"""Who may start measurements between which sites, and who may see which results."""

from __future__ import annotations

import pytest
from broker_rig import code_of
from hypothesis import given
from hypothesis import strategies as st
from network_world import demo_network

from monitors.base.measurement import Measurement
from monitors.rules import SEE, START, Rule, Rules, rules_from_list, sites_of
from network_provisioner.access import ANYBODY, May, Principal, Role
from network_provisioner.base.errors import InputError

ADA = Principal("ada", Role.RESEARCHER, frozenset({"ada"}))
BOB = Principal("bob", Role.RESEARCHER, frozenset({"bob"}))
ENGINEER = Principal("eve", Role.ENGINEER)
NOC = Principal("noc", Role.OPERATOR)
PROBE = Principal("probe", Role.MEASUREMENT)
AGENT = Principal("mu", Role.AGENT)
ALL = (ADA, BOB, ENGINEER, NOC, PROBE, AGENT)
SITES = ("mu", "tacc", "iplant", "local")
METRICS = ("rtt", "tcp_throughput", "custom:disk")


def rtt(subject: str, measured: str = "rtt", workflow: str = "", **details: object) -> Measurement:
    return Measurement("x", measured, subject, 1.0, "s", 1.0, "t", workflow, details)


def test_without_rules_the_roles_decide() -> None:
    rules = Rules()
    starts = {who.name for who in ALL if rules.may_start(who, "mu", "tacc", "rtt")}
    sees = {who.name for who in ALL if rules.may_see(who, rtt("mu>tacc"))}
    assert starts == {"eve", "probe"}
    assert sees == {"ada", "bob", "eve", "noc", "probe"}
    assert rules.may_start(ANYBODY, "mu", "tacc", "rtt") and rules.may_see(ANYBODY, rtt("mu"))


def test_a_rule_that_names_somebody_gives_and_one_for_anybody_narrows() -> None:
    rules = Rules(
        [
            Rule(("ada",), ("start",), ("mu", "tacc"), ("rtt", "loss")),
            Rule((), ("start",), ("iplant", "mu")),
            Rule(("operator",), ("start",), ("local",)),
        ]
    )
    assert rules.may_start(ADA, "mu", "tacc/dtn1", "rtt")
    assert not rules.may_start(ADA, "mu", "tacc", "tcp_throughput")
    assert not rules.may_start(ADA, "mu", "iplant", "rtt"), "a rule for anybody gave more"
    assert not rules.may_start(BOB, "mu", "tacc", "rtt")
    assert rules.may_start(PROBE, "mu", "iplant", "tcp_throughput")
    assert not rules.may_start(PROBE, "mu", "tacc", "rtt"), "what no rule allows was allowed"
    assert rules.may_start(NOC, "local/a", "", "cpu_use")
    assert rules.may_start(ENGINEER, "tacc", "local", "rtt")
    assert not rules.may_start(AGENT, "mu", "iplant", "rtt")
    # No rule is about seeing.
    assert rules.may_see(BOB, rtt("mu>tacc"))


def test_who_may_not_start_is_told_why() -> None:
    rules = Rules([Rule(("ada",), ("start",), ("mu", "tacc"))])
    rules.need_start(ADA, "mu", "tacc", "rtt")
    assert code_of(rules.need_start, ADA, "mu", "local", "rtt") == "forbidden"
    assert rules.answer(ADA, START, ("mu", "tacc"), "rtt").why == "rule 1 of monitoring.access"
    assert rules.answer(PROBE, START, ("mu",), "rtt").why.startswith("no rule of monitoring.acc")
    assert rules.answer(PROBE, SEE, ("mu",), "rtt").why == "role measurement"


def test_results_by_site_and_metric() -> None:
    rules = Rules(
        [Rule(("ada",), ("see",), ("mu", "t*"), ("rtt",)), Rule(("noc", "probe"), ("see",))]
    )
    assert rules.may_see(ADA, rtt("mu>tacc")) and rules.may_see(ADA, rtt("mu>tacc/l2"))
    assert not rules.may_see(ADA, rtt("mu>iplant"))
    assert not rules.may_see(ADA, rtt("mu>tacc", "loss"))
    assert not rules.may_see(BOB, rtt("mu>tacc"))
    assert rules.may_see(NOC, rtt("mu>iplant", "loss"))
    assert rules.may_see(ADA, rtt("mu>tacc", "anomaly", metric="rtt"))
    assert not rules.may_see(ADA, rtt("mu>tacc", "anomaly", metric="loss"))
    assert rules.may_see_series(ADA, "rtt", "mu>tacc")
    assert not rules.may_see_series(ADA, "rtt", "soykb::bwa:1.0")


def test_a_workflow_is_its_users() -> None:
    owners = {"w-ada": "ada", "w-bob": "bob"}
    for rules in (Rules((), owners.get), Rules([Rule(("noc",), ("see",))], owners.get)):
        mine, other, unknown = (rtt("w", "status", w) for w in ("w-ada", "w-bob", "w-new"))
        assert rules.may_see(ADA, mine)
        assert not rules.may_see(ADA, other) and not rules.may_see(ADA, unknown)
        assert rules.may_see(NOC, mine) and rules.may_see(NOC, unknown)
        assert not rules.may_see(AGENT, mine)
        # The very first thing that is known of a workflow says whose it is.
        assert rules.may_see(ADA, rtt("w", "workflow", "w-new", user="ada"))
        assert not rules.may_see(BOB, rtt("w", "workflow", "w-new", user="ada"))
    # Who acts for all sees a workflow only as far as the rules say.
    assert not Rules([Rule(("ada",), ("see",))], owners.get).may_see(NOC, mine)
    assert not Rules().may_see(ADA, rtt("k", "notice"))
    assert Rules().may_see(NOC, rtt("k", "notice"))


def test_that_there_is_a_workflow_is_for_those_who_may_see_it() -> None:
    rules = Rules((), {"w-ada": "ada"}.get)
    for metric in ("workflow", "status", "held"):
        assert rules.may_see_series(ADA, metric, "w-ada") and rules.may_see_series(
            NOC, metric, "w-ada"
        )
        assert not rules.may_see_series(BOB, metric, "w-ada")
        assert not rules.may_see_series(ADA, metric, "w-new")
    assert not rules.may_see_series(ADA, "notice", "failed")
    assert rules.may_see_series(NOC, "notice", "failed")


@pytest.mark.parametrize(
    ("subject", "sites"),
    [
        ("mu", ("mu",)),
        ("mu/n1", ("mu",)),
        ("mu>tacc", ("mu", "tacc")),
        ("mu/a>tacc/b", ("mu", "tacc")),
        ("iplant>mu/l2", ("iplant", "mu")),
        ("soykb::bwa:1.0@mu", ("mu",)),
        ("soykb::bwa:1.0", ()),
        ("", ()),
        (">", ()),
    ],
)
def test_the_sites_of_a_subject(subject: str, sites: tuple[str, ...]) -> None:
    assert sites_of(subject) == sites


rule = st.builds(
    Rule,
    st.lists(st.sampled_from([*(w.name for w in ALL), *Role, "*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from([START, SEE]), max_size=2).map(tuple),
    st.lists(st.sampled_from([*SITES, "*"]), max_size=3).map(tuple),
    st.lists(st.sampled_from([*METRICS, "custom:*"]), max_size=2).map(tuple),
)


@given(
    st.lists(rule, max_size=4), rule, st.sampled_from(ALL), st.sampled_from(SITES),
    st.sampled_from(SITES), st.sampled_from(METRICS),
)  # fmt: skip
def test_rules_in_general(
    rules: list[Rule], more: Rule, who: Principal, src: str, dst: str, metric: str
) -> None:
    rule_set = Rules(rules)
    may = rule_set.may_start(who, src, dst, metric)
    assert may == rule_set.may_start(who, dst, src, metric), "a path has two ends, in any order"
    if who.role is Role.ENGINEER:
        assert may
    if who.role is Role.AGENT:
        assert not may and not rule_set.may_see(who, rtt(f"{src}>{dst}", metric))
    if may and not who.may(May.START):
        assert any(r.names(who) for r in rules), "more than the role has, by nobody's word"
    if may and rules:
        # A further rule takes nothing away.
        assert Rules([*rules, more]).may_start(who, src, dst, metric) or not any(
            not r.may or START in r.may for r in rules
        )
    assert rule_set.may_see(who, rtt(f"{src}>{dst}", metric)) == rule_set.may_see_series(
        who, metric, f"{src}>{dst}"
    )


# -- from adon.yml ---------------------------------------------------------------------------


def test_rules_from_the_configuration() -> None:
    rules = rules_from_list(
        [{"who": ["ada", "measurement"], "may": ["start", "see"], "sites": ["mu", "t*"],
          "metrics": ["rtt", "custom:*"]}],
        demo_network(),
    )  # fmt: skip
    assert rules.may_start(ADA, "mu", "tacc", "custom:disk")
    assert not rules.may_start(PROBE, "mu", "iplant", "rtt")
    assert rules_from_list([], demo_network()).may_see(BOB, rtt("mu"))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("ada", "monitoring.access.0 is 'ada', expected a mapping"),
        ({"whom": ["ada"]}, "unknown key 'whom', did you mean 'who'?"),
        ({"who": "ada"}, "monitoring.access.0: who: found 'ada', expected a list"),
        ({"who": []}, "access.0: who: found [], expected 1 or more"),
        ({"sites": [1]}, "monitoring.access.0: sites.0: found 1"),
        ({"may": ["begin"]}, "access.0: may.0: found 'begin', expected one of 'start' or 'see'"),
        ({"sites": ["mars"]}, "found 'mars', which is no site of the topology; expected some of"),
    ],
)
def test_rules_that_cannot_be_meant(item: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        rules_from_list([item], demo_network())
    assert words in str(caught.value) and "\n" not in str(caught.value)
