"""Who may record what: nobody records for others, whatever they send and in whatever order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.base.measurement import OF_NETWORK, OF_WORKFLOWS, Measurement
from monitors.recording import OWN, own, workflow_id
from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import BrokerError

ADA = Principal("ada", Role.RESEARCHER, frozenset({"ada"}))
SITE = Principal("mu", Role.AGENT)
ENGINEER = Principal("eve", Role.ENGINEER)


def measured(
    key: str, metric: str, subject: str, workflow: str = "", user: str = "", by: str = ""
) -> Measurement:
    details = {name: value for name, value in (("user", user), ("by", by)) if value}
    return Measurement(key, metric, subject, 1.0, "1", 1.0, "x", workflow, details)


workflows = st.sampled_from(("w1", "w2", "w3"))
people = st.sampled_from(("ada", "bob", ""))
keys = st.sampled_from(
    [
        "status:w1:1",
        "status:w2:1",
        "rtt:1",
        "rtt:agent:mu:1",
        "rtt:agent:tacc:1",
        "notice:x",
        "workflow:w3",
        "x:w1",
        "x:w1:y",
        "a",
    ]
)  # fmt: skip
descriptions = st.builds(
    lambda key, workflow, user: measured(
        workflow_id(key), "workflow", workflow, workflow, user, "mu"
    ),
    workflows,
    workflows,
    people,
)
others = st.builds(
    measured,
    keys,
    st.sampled_from(("status", "runtime", "rtt", "pool_busy", "boot", "expansion")),
    st.sampled_from(
        ("mu", "w1:level2", "mu/n1", "mux", "tacc", "mu>tacc", "tacc>mu/n1", "tacc>iplant")
    ),
    workflows | st.just(""),
)
known_ones = st.dictionaries(workflows, st.tuples(people, people | st.just("mu")))


@given(known_ones, st.lists(descriptions | others, max_size=6), st.sampled_from((ADA, SITE)))
def test_nobody_records_for_others(
    known: dict[str, tuple[str, str]], sent: list[Measurement], who: Principal
) -> None:
    archive = {
        workflow_id(w): measured(workflow_id(w), "workflow", w, w, user, by)
        for w, (user, by) in known.items()
    }
    try:
        taken = own(who, sent, archive.get)
    except BrokerError as error:
        assert error.code == "forbidden"
        return
    assert [replace(measurement, details={}) for measurement in taken] == [
        replace(measurement, details={}) for measurement in sent
    ]
    for measurement in taken:  # in the order in which they become part of the archive
        archive.setdefault(measurement.id, measurement)
        assert measurement.metric not in OWN
        assert not measurement.id.startswith("notice:")
        if measurement.id.startswith(("status:", "workflow:", "rtt:")):
            assert measurement.id.startswith(f"{measurement.metric}:")
        if measurement.workflow:
            assert measurement.workflow in measurement.id.split(":")
        if measurement.metric == "expansion":  # nobody ends another's lease
            assert measurement.workflow and measurement.subject.startswith(
                f"{measurement.workflow}:"
            )
        if measurement.metric in OF_WORKFLOWS:
            assert measurement.subject == measurement.workflow
        if measurement.metric == "workflow":
            assert measurement.details["by"] == who.name
        if measurement.workflow:
            owner = archive.get(workflow_id(measurement.workflow)) or next(
                late for late in taken if late.id == workflow_id(measurement.workflow)
            )
            assert owner.details["user" if who is ADA else "by"] == who.name
        if not measurement.workflow:
            assert who is SITE and measurement.id.startswith(f"{measurement.metric}:agent:mu:")
            assert {"mu", "mu/n1"} & set(measurement.subject.split(">"))


@pytest.mark.parametrize("metric", sorted(OF_NETWORK))
def test_a_workflow_lends_nobody_a_say_about_the_network(metric: str) -> None:
    mine = measured("workflow:w1", "workflow", "w1", "w1", "ada", "mu")
    false = measured(f"{metric}:w1:1", metric, "iplant>tacc/l2", "w1")
    for who in (ADA, SITE, Principal("submit1", Role.RESEARCHER)):
        with pytest.raises(BrokerError, match="all decide by it"):
            own(who, [mine, false], {}.get)
    ours = replace(false, subject="mu>tacc")
    assert own(SITE, [mine, ours], {}.get)[1] == ours
    assert own(ENGINEER, [false], {}.get) == [false]


@pytest.mark.parametrize("metric", sorted(OF_WORKFLOWS))
def test_nobody_says_whose_anothers_workflow_is(metric: str) -> None:
    mine = measured("workflow:w1", "workflow", "w1", "w1", "ada")
    key = workflow_id("w1") if metric == "workflow" else f"{metric}:w1:1"
    about_another = measured(key, metric, "w-of-bob", "w1", "ada")
    sent = [about_another] if metric == "workflow" else [mine, about_another]
    with pytest.raises(BrokerError, match="expected its workflow"):
        own(ADA, sent, {}.get)
    with pytest.raises(BrokerError, match="expected its workflow"):  # nor by none at all
        own(SITE, [measured(key, metric, "mu", "")] if metric != "workflow" else sent, {}.get)


def test_who_asks_for_all_users_records_what_belongs_to_workflows_alone() -> None:
    submit = Principal("submit1", Role.RESEARCHER)
    described = measured("workflow:w1", "workflow", "w1", "w1", "ada")
    (taken,) = own(submit, [described], {}.get)
    assert taken.details["by"] == "submit1"
    for key, metric in (("rtt:1", "rtt"), ("notice:x", "notice"), ("a", "anomaly")):
        with pytest.raises(BrokerError, match="may not record"):
            own(submit, [measured(key, metric, "mu>tacc")], {}.get)
