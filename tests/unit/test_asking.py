"""Several requests at once: each answered for itself, again and again the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import BIG, MBPS, Clock, Rig, code_of, demo_network, fill, refusing
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_broker import TEMPLATES
from made_transit import made_transit

from network_provisioner.base.model import (
    ENDED,
    LIVE,
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.request_ids import latest, numbered
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import StoreError
from network_provisioner.templates.data import template_from_dict, templates_from_dict
from network_provisioner.templates.lookup import service_of
from network_provisioner.templates.template import Tuning


def one(
    rig: Rig, transit_id: str = "a", src: str = "mu", dst: str = "tacc", **more: Any
) -> RequestAnswer:
    (answer,) = rig.broker.ask([TransitRequest(transit_id, src, dst, **more)])
    return answer


def got(answer: RequestAnswer) -> Transit:
    assert answer.error is None and answer.transit is not None
    return answer.transit


# -- together --------------------------------------------------------------------------------


def test_all_are_answered_in_their_order_and_told_in_one_go(rig: Rig) -> None:
    pairs = [("mu", "tacc"), ("mu", "iplant"), ("local", "tacc")]
    batch = [TransitRequest(f"w:{s}-{d}", s, d, size_bytes=BIG) for s, d in pairs]
    before = len(rig.controller.applied)
    answers = rig.broker.ask(batch)
    assert [got(a).id for a in answers] == [request.id for request in batch]
    assert {got(a).state for a in answers} == {TransitState.INSTALLED}
    assert len(rig.controller.applied) == before + 1
    assert [rig.broker.get(got(a).id) for a in answers] == [a.transit for a in answers]


def test_one_that_is_refused_is_in_nobodys_way(rig: Rig) -> None:
    bad, mars, much, good = rig.broker.ask(
        [
            TransitRequest("with space", "mu", "tacc"),
            TransitRequest("m", "mu", "mars"),
            TransitRequest("r", "mu", "tacc", min_bps=1e12, template="soykb"),
            TransitRequest("g", "mu", "tacc", template="soykb"),
        ]
    )
    codes = [a.error and a.error.code for a in (bad, mars, much, good)]
    assert codes == ["bad_request", "unknown_site", "impossible_rate", None]
    assert bad.transit is None and bad.service.template == "default"
    assert (much.service.patience_s, got(good).request.template) == (30.0, "soykb")
    assert [t.id for t in rig.broker.list()] == ["g"]


def test_what_the_switches_refuse_fails_alone(rig: Rig) -> None:
    rig.controller.cursed = {"b"}
    answers = rig.broker.ask([TransitRequest(n, "mu", "tacc", size_bytes=BIG) for n in "abc"])
    assert [got(a).state for a in answers] == ["installed", "failed", "installed"]
    assert "switches refused" in got(answers[1]).reason


def test_a_store_that_is_full_is_said_for_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(rig.store, "put_many", full)
    answers = rig.broker.ask([TransitRequest(n, "mu", "tacc") for n in "ab"])
    assert [a.error and a.error.code for a in answers] == ["store_unavailable"] * 2
    assert rig.reserved() == {} and rig.controller.circuits == {}


# -- again -----------------------------------------------------------------------------------


def test_asking_again_gives_the_same_with_a_size_known_better(rig: Rig) -> None:
    first = got(one(rig, size_bytes=BIG))
    rig.clock.now += 5
    again = one(rig, size_bytes=2 * BIG)
    assert not again.new
    assert got(again).request.size_bytes == 2 * BIG == rig.broker.get("a").request.size_bytes
    assert (got(again).grant.installed_at, got(again).grant.path) == (
        first.grant.installed_at,
        first.grant.path,
    )
    assert got(one(rig)).request.size_bytes == 2 * BIG


def test_who_waits_is_answered_as_it_waits(rig: Rig) -> None:
    fill(rig)
    fields: dict[str, Any] = {"src": "local", "min_bps": 100e6, "template": "soykb"}
    first = got(one(rig, **fields))
    rig.clock.now += 5
    assert first.state is TransitState.QUEUED
    assert got(one(rig, **fields)) == first


def test_a_workflow_that_is_run_again_has_transits_of_its_own(rig: Rig) -> None:
    for name in ("a", "a.2", "a.3"):
        assert (got(one(rig)).id, got(one(rig)).state) == (name, "installed")
        rig.broker.release(name)
    assert got(one(rig)).id == "a.4"
    assert [t.id for t in rig.broker.list()] == ["a", "a.2", "a.3", "a.4"]


def test_a_round_that_makes_an_id_too_long_is_refused(rig: Rig) -> None:
    name = "x" * 200
    rig.broker.release(got(one(rig, name)).id)
    answer = one(rig, name)
    assert answer.error is not None and answer.error.code == "bad_request"


# -- reserved in advance ---------------------------------------------------------------------


def test_what_has_begun_by_itself_is_found(rig: Rig) -> None:
    start = rig.clock.now + 100
    rig.ask("a", "mu", "tacc", start=start, end=start + 600)
    rig.let_pass(150)
    begun = one(rig)
    assert (got(begun).id, got(begun).state, begun.new) == ("a", TransitState.INSTALLED, False)


# -- best effort -----------------------------------------------------------------------------


def test_why_a_caller_goes_without_is_kept(rig: Rig) -> None:
    answer = one(rig, best_effort="the submit directory\ncannot be written", template="gone")
    assert got(answer).state is TransitState.BEST_EFFORT and answer.new
    assert (
        got(answer).reason.startswith("the submit directory") and got(answer).reason.isprintable()
    )
    assert rig.reserved() == {} and rig.controller.circuits == {}
    again = one(rig, best_effort="the submit directory\ncannot be written", template="gone")
    assert (got(again), again.new) == (got(answer), False)
    other = got(one(rig, best_effort="another reason"))
    assert other.id == "a.2"
    assert [t.reason for t in rig.broker.list("best_effort")][1] == "another reason"
    ended = rig.broker.release("a.2", 100, 1.0, "success")
    assert ended.state is TransitState.BEST_EFFORT and ended.usage.goodput_bps == 800.0


def test_who_holds_a_path_keeps_it_whatever_is_told(rig: Rig) -> None:
    first = got(one(rig))
    assert got(one(rig, best_effort="gave up")) == first
    eve = got(one(rig, best_effort="gave up", user="eve"))
    assert (eve.id, eve.request.user) == ("a.2", "eve") and rig.broker.get("a").state in LIVE


def test_a_site_that_is_unknown_is_refused_all_the_same(rig: Rig) -> None:
    answer = one(rig, dst="mars", best_effort="x")
    assert answer.error is not None and answer.error.code == "unknown_site"


# -- how it is served ------------------------------------------------------------------------


def test_the_template_says_how_it_wants_to_be_served(tmp_path: Path) -> None:
    mine = {
        "qspec": {"min_throughput": "5 Mb/s"},
        "rspec": {"max_throughput": "50 Mb/s"},
        "patience": "5 min",
        "when_queued": "defer",
        "tuning": {"streams": 8, "buffer": "4 MiB", "threads": 6},
    }
    rig = Rig(tmp_path / "s.sqlite", templates={"mine": mine})
    assert one(rig, template="mine").service == Service(
        "mine", 1, 300.0, "defer", 8, 4 << 20, 6, "as the template says"
    )
    assert one(rig, "b").service == Service("default", 1, 20.0, "wait", 0, 0, 0)


def test_tuning_is_the_templates_own_else_what_the_best_transfer_had() -> None:
    plain = templates_from_dict(None)["default"]
    assert service_of(plain, Tuning(16, 1 << 22, 3)).streams == 16
    assert service_of(plain, Tuning()) == service_of(plain)
    body = {
        "qspec": {"min_throughput": 1}, "rspec": {"max_throughput": 2}, "tuning": {"streams": 8},
    }  # fmt: skip
    own = service_of(template_from_dict("own", body), Tuning(16, 1 << 22))
    assert (own.streams, own.buffer_bytes) == (8, 1 << 22)


# -- what a transfer used --------------------------------------------------------------------


def test_a_report_says_what_was_used(rig: Rig) -> None:
    one(rig)
    ended = rig.broker.release(
        "a", BIG, 80.0, "success", streams=8, buffer_bytes=1 << 22, threads=2, retries=1
    )
    used = (ended.usage.streams, ended.usage.buffer_bytes, ended.usage.threads, ended.usage.retries)
    assert used == (8, 1 << 22, 2, 1)
    assert rig.broker.get("a") == ended
    assert rig.broker.release("a", streams=9).usage.streams == 8


# -- one of them moves another, and the switches refuse ------------------------------------------


def test_who_is_refused_needs_no_other_path(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state", demo_network(l3="150 Mb/s"), TEMPLATES)
    rig.controller.cursed = {"small"}
    small = TransitRequest("small", "local", "iplant", template="low", min_bps=60 * MBPS)
    great = TransitRequest("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    answers = {a.transit.id: a.transit for a in rig.broker.ask([small, great]) if a.transit}
    assert answers["small"].state is TransitState.FAILED
    assert answers["great"].state is TransitState.INSTALLED
    assert answers["great"].grant.path == ["mu", "s1", "s2", "tacc"]
    rig.broker.release("great")
    assert rig.reserved() == {}


def test_who_moved_another_is_not_undone_by_one_that_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state", demo_network(l3="150 Mb/s"), TEMPLATES)
    rig.ask("moves", "local", "iplant", template="low", min_bps=60 * MBPS)
    rig.controller.cursed = {"small"}
    great = TransitRequest("great", "mu", "tacc", template="high", min_bps=140 * MBPS)
    small = TransitRequest("small", "tacc", "iplant", template="low", min_bps=10 * MBPS)
    answers = {a.transit.id: a.transit for a in rig.broker.ask([great, small]) if a.transit}
    assert answers["great"].state is TransitState.INSTALLED
    assert answers["small"].state is TransitState.FAILED
    assert rig.broker.get("moves").grant.path == ["local", "s1", "r1", "s2", "iplant"]
    for name in ("great", "moves"):
        rig.broker.release(name)
    assert rig.reserved() == {}


# -- the ids of what is asked for again --------------------------------------------------------

ended = st.sampled_from(sorted(ENDED))
going_on = st.sampled_from([*sorted(LIVE), TransitState.QUEUED])


def rounds_of(base: str, states: list[TransitState]) -> dict[str, Transit]:
    names = [numbered(base, number) for number in range(1, len(states) + 1)]
    return {n: made_transit(n, "mu", "tacc", s) for n, s in zip(names, states, strict=True)}


@given(st.lists(ended, max_size=130), st.none() | going_on)
def test_the_first_that_has_not_ended(over: list[TransitState], last: TransitState | None) -> None:
    known = rounds_of("a", [*over, *([last] if last else [])])
    looked: list[str] = []

    def find(name: str) -> Transit | None:
        looked.append(name)
        return known.get(name)

    if len(over) >= 100:
        assert code_of(latest, "a", find) == "conflict"
        return
    number, transit = latest("a", find)
    assert number == len(over) + 1
    assert (transit.state if transit else None) == last
    assert len(looked) <= 15


@given(st.dictionaries(st.integers(1, 40), ended | going_on))
def test_whatever_ids_others_chose(taken: dict[int, TransitState]) -> None:
    known = {numbered("a", n): made_transit("x", "mu", "tacc", s) for n, s in taken.items()}
    number, transit = latest("a", known.get)
    assert known.get(numbered("a", number)) is transit and (
        transit is None or transit.state not in ENDED
    )


# -- whatever is asked -----------------------------------------------------------------------

ids = st.sampled_from("abc")
pairs = st.sampled_from([("mu", "tacc"), ("tacc", "mu"), ("local", "iplant"), ("mu", "mars")])
requests = st.builds(
    lambda name, pair, **more: TransitRequest(name, *pair, **more),
    ids,
    pairs,
    min_bps=st.sampled_from([None, 10e6, 90e6]),
    size_bytes=st.sampled_from([None, 100, BIG]),
    best_effort=st.sampled_from(["", "", "told so"]),
)
steps = st.lists(
    st.lists(requests, max_size=4)
    | st.tuples(st.just("release"), st.sampled_from(["a", "b", "a.2", "c.3"]))
    | st.tuples(st.just("pass"), st.sampled_from([1, 30, 2000]))
    | st.tuples(st.just("switches"), st.booleans()),
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(steps)
def test_asking_twice_is_the_same_as_once(course: list[Any]) -> None:
    rig = Rig(Path("unused"), store=SqliteStore(":memory:"), clock=Clock())
    for step in course:
        if isinstance(step, list):
            first = rig.broker.ask(step)
            assert len(first) == len(step)
            held, known = rig.reserved(), rig.broker.list()
            for request, answer in zip(step, first, strict=True):
                assert (answer.transit is None) == (answer.error is not None)
                if answer.transit is not None:
                    assert answer.transit.id.partition(".")[0] == request.id
                if answer.transit is None or answer.transit.state in ENDED:
                    continue
                (again,) = rig.broker.ask([request])
                assert again.transit is not None and again.transit.id == answer.transit.id
                assert not again.new
            assert rig.reserved() == held and len(rig.broker.list()) == len(known)
        elif step[0] == "release":
            try:
                rig.broker.release(step[1])
            except Exception as error:
                assert getattr(error, "code", "") == "unknown_transit"
        elif step[0] == "pass":
            rig.let_pass(step[1])
        else:
            rig.controller.broken = refusing() if step[1] else None
    rig.controller.broken = None
    for transit in rig.broker.list():
        rig.broker.release(transit.id)
    rig.let_pass(10)
    assert rig.reserved() == {} and rig.controller.circuits == {}
    assert all(transit.state in ENDED for transit in rig.broker.list())
