"""What is reported of a transfer is finite, possible, or marked and believed by nobody."""

from __future__ import annotations

import json

import pytest
from api_rig import ASK, application, bearer, books, keyring
from broker_rig import BIG, Rig
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from made_transit import made_transit
from template_world import succeeded

from monitors.archive.transfers import transfer_facts
from network_provisioner.api import create_app
from network_provisioner.base.controller import Capabilities
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.base.units import goodput
from network_provisioner.policies.accounting import usage
from network_provisioner.templates.learn import failure


@given(st.integers(0, 2**63 - 1), st.floats(0, 1e18))
def test_a_rate_is_a_number(n_bytes: int, seconds: float) -> None:
    assert json.dumps(goodput(n_bytes, seconds), allow_nan=False)


def test_no_report_keeps_others_from_reading(rig: Rig) -> None:
    with TestClient(application(rig), raise_server_exceptions=False) as web:
        assert web.post("/v1/transits", json=ASK).status_code == 201
        report = {"bytes": 1000, "seconds": 1e-308}
        ended = web.post(f"/v1/transits/{ASK['id']}/release", json=report)
        assert ended.status_code == 200, ended.text
        (listed,) = web.get("/v1/transits").json()
    assert (listed["bytes"], listed["seconds"], listed["goodput_bps"]) == (1000, 1e-308, 0.0)
    assert "reported 1 kB in 1e-308 s" in listed["doubt"]


def test_what_an_earlier_version_kept_is_read_again() -> None:
    old = made_transit("a", "mu", "tacc", TransitState.RELEASED).as_dict()
    old["goodput_bps"] = float("inf")
    read = Transit.from_dict(json.loads(json.dumps({k: old[k] for k in old if k != "doubt"})))
    assert read.usage.goodput_bps == 0.0 and read.usage.doubt


@pytest.mark.parametrize(
    ("n_bytes", "seconds", "counted", "words"),
    [
        (BIG, 40.0, 0, ""),  # all that its path carries
        (BIG, 40.0, BIG, ""),
        (BIG, 20.0, 0, "reported 1 GB in 20 s, the network carries at most 200 Mb/s there"),
        (2**63 - 1, 0.0, 0, "the network carries at most 200 Mb/s"),
        (BIG, 1e18, 0, "reported 1e+18 s, 50 s after it was asked for"),
        (BIG, 350.0, 0, ""),  # it may have begun before
        (BIG, 40.0, BIG // 20, "reported 1 GB, the switches counted 50 MB"),
    ],
)
def test_what_cannot_be_is_marked(
    rig: Rig, n_bytes: int, seconds: float, counted: int, words: str
) -> None:
    assert rig.ask("a", "mu", "tacc").grant.layer == "l2"
    rig.controller.bytes["a"] = counted
    rig.clock.now += 50
    ended = rig.broker.release("a", n_bytes, seconds, "success")
    assert (ended.usage.bytes, ended.usage.seconds) == (n_bytes, seconds)  # as it was claimed
    assert words in ended.usage.doubt and bool(words) == bool(ended.usage.doubt)
    believed = bool(transfer_facts(ended)), not failure(ended)
    assert believed == ((not words,) * 2)
    (used,) = usage([ended], "user")
    assert used.bytes == (counted if words else n_bytes)
    assert rig.broker.release("a", 1, 1.0) == rig.broker.get("a") == ended


def test_who_shares_rules_is_not_held_against_its_part_of_their_count(rig: Rig) -> None:
    for name in "ab":
        rig.ask(name, "mu", "tacc")
        rig.controller.bytes[name] = BIG // 20
    assert rig.broker.release("a", BIG, 80.0).usage.doubt == ""
    assert "counted 50 MB" in rig.broker.release("b", BIG, 80.0).usage.doubt


def test_what_went_without_a_path_is_bounded_too(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", best_effort="it runs already")
    assert rig.broker.release("a", BIG, 9000.0).usage.doubt == ""  # it is reported when it is over
    rig.ask("b", "mu", "tacc", best_effort="it runs already")
    assert "at most 200 Mb/s" in rig.broker.release("b", BIG, 1.0).usage.doubt
    rig.ask("c", "mu", "mu")
    assert rig.broker.release("c", BIG, 1.0).usage.doubt == ""  # no link is in its way


def test_where_the_network_carries_no_packets_only_what_no_network_can_do_is_marked(
    rig: Rig,
) -> None:
    rig.broker._state.can = Capabilities("none")
    rig.ask("a", "mu", "tacc")
    assert rig.broker.release("a", BIG, 1.0).usage.doubt == ""
    rig.ask("b", "mu", "tacc")
    assert "at most 1000 Tb/s" in rig.broker.release("b", 2**60, 1e-3).usage.doubt


def test_what_a_researcher_reports_counts_for_the_researcher_alone(rig: Rig) -> None:
    with TestClient(application(rig, keyring(rig)), raise_server_exceptions=False) as web:
        for role, streams in (("researcher", 1000), ("engineer", 8)):
            request = {**ASK, "id": role, "template": "soykb"}
            assert web.post("/v1/transits", json=request, headers=bearer(role)).status_code == 201
            report = {"bytes": BIG, "seconds": 80.0, "outcome": "success", "streams": streams}
            where = f"/v1/transits/{role}/release"
            ended = web.post(where, json=report, headers=bearer(role)).json()
            assert ended["vouched"] == (role == "engineer")
            # Nor by saying it again.
            assert web.post(where, json=report, headers=bearer("engineer")).json() == ended
            rig.clock.now += 100
        request = {**ASK, "id": "of-ada", "user": "ada"}  # what a watcher reads in her files
        assert web.post("/v1/transits", json=request, headers=bearer("engineer")).is_success
        where = "/v1/transits/of-ada/release"
        assert not web.post(where, json=report, headers=bearer("engineer")).json()["vouched"]
    first, second, _ = rig.recorder.transits
    assert {fact.source for fact in transfer_facts(first)} == {"transfer of researcher-1"}
    assert {fact.source for fact in transfer_facts(second)} == {"transfer"}


def test_a_peak_is_reset_for_all_or_for_oneself(rig: Rig) -> None:
    made = books(rig)
    for user, vouched, rate in (("eve", True, 4e8), ("researcher-1", False, 9e8)):
        transit = succeeded(user, "soykb", rate, user=user, vouched=vouched)
        assert made.templates.learn(transit)
    where = "/v1/templates/soykb"

    def peaks() -> list[float]:
        answers = [
            web.get(where, headers=bearer(role)).json() for role in ("researcher", "operator")
        ]
        return [answer["template"]["peak"] for answer in answers]

    with TestClient(create_app(rig.broker, keyring(rig), made)) as web:
        assert peaks() == [9e8, 4e8]
        assert web.post(f"{where}/reset", headers=bearer("researcher")).json()["learned"]
        assert peaks() == [4e8, 4e8]
        assert web.post(f"{where}/reset", headers=bearer("engineer")).json()["learned"] == {}
        assert peaks() == [0.0, 0.0]
