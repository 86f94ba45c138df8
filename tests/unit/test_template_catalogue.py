"""The catalogue: versions, ownership, what is learned, what a site allows; on a real store."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_transit import changed, made_transit
from network_world import TEMPLATES
from template_world import BASE, bodies, body, succeeded

from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitState
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import Store, StoreError
from network_provisioner.templates.data import template_from_dict, templates_from_dict
from network_provisioner.templates.learn import HALF_LIFE_S, failure, table_of, with_goodput
from network_provisioner.templates.lookup import template_of
from network_provisioner.templates.match import Specification
from network_provisioner.templates.registry import TemplateRegistry
from network_provisioner.templates.sitepolicy import (
    TemplatePolicy,
    capped_template,
    policy_from_dict,
)
from network_provisioner.templates.template import Tuning

POLICY = TemplatePolicy(max_bps=5e8, max_priority=3, max_patience_s=60.0, max_paths=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    new_store = SqliteStore(tmp_path / "s.sqlite")
    yield new_store
    new_store.close()


def engineer(name: str) -> Principal:
    return Principal(name, Role.ENGINEER)


def researcher(name: str, *users: str) -> Principal:
    return Principal(name, Role.RESEARCHER, frozenset(users) or None)


def book_of(store: Store, configured: dict[str, Any] | None = None) -> TemplateRegistry:
    known = templates_from_dict(TEMPLATES | (configured or {}))
    return TemplateRegistry(known, store, POLICY)


def code_of(error: pytest.ExceptionInfo[BrokerError]) -> str:
    return error.value.code


# -- versions --------------------------------------------------------------------------------


def test_what_is_configured_is_version_1_until_it_changes(store: Store) -> None:
    for _ in range(2):  # a restart changes nothing
        book = book_of(store, {"mine": BASE})
        assert book.names() == ["default", "mine", "montage", "soykb"]
        mine = book.get("mine")
        assert mine is not None and (mine.version, mine.qspec.min_bps) == (1, 1e8)
    changed = book_of(store, {"mine": body(2e8, 1e9)})
    mine, before = changed.get("mine"), changed.get("mine", 1)
    assert mine is not None and (mine.version, mine.qspec.min_bps) == (2, 2e8)
    assert before is not None and (before.version, before.qspec.min_bps) == (1, 1e8)


def test_who_does_not_lead_writes_nothing_and_knows_all_as_soon_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    monkeypatch.setattr(store, "leads", lambda: False)
    known = templates_from_dict({"mine": BASE})
    book = TemplateRegistry(known, store, POLICY, clock=lambda: 1000.0)  # at the same instant
    assert book.names() == [] and store.kinds() == {}
    book.keep_configured()
    assert book.names() == ["default", "mine"]
    store.close()


def test_what_is_no_longer_configured_is_gone_but_its_versions_are_not(store: Store) -> None:
    book_of(store, {"mine": BASE})
    book = book_of(store)
    assert "mine" not in book and book.get("mine") is None
    assert book.get("mine", 1) is not None


def test_saved_goes_before_adon_yml_and_that_before_built_in(store: Store) -> None:
    book = book_of(store, {"soykb": BASE})
    entry = book.entry("soykb")
    assert entry is not None and (entry.origin, entry.template.qspec.min_bps) == ("adon.yml", 1e8)
    saved, _ = book.save("soykb", body(3e8, 1e9), engineer("eng"))
    assert (saved.origin, saved.by, saved.template.version) == ("saved", "eng", 2)
    again = book_of(store, {"soykb": body(4e8, 1e9)})  # a saved one stays whatever adon.yml says
    assert again.get("soykb") == saved.template
    back = again.delete("soykb")
    assert back is not None and (back.origin, back.template.qspec.min_bps) == ("adon.yml", 4e8)


def test_history_and_the_way_back(store: Store) -> None:
    book = book_of(store)
    for low in (1e8, 2e8, 3e8):
        book.save("x", body(low, 1e9), engineer("ann"))
    back, _ = book.restore("x", 1, engineer("ann"))
    assert (back.template.version, back.template.qspec.min_bps) == (4, 1e8)
    assert back.source == {"restored": 1}
    book.delete("x")
    versions = [(d.version, d.deleted, e is None) for d, e in book.history("x")]
    assert versions == [(n, n == 5, n == 5) for n in range(1, 6)]
    assert book.get("x") is None
    again, _ = book.restore("x", 3)
    assert (again.template.version, again.template.qspec.min_bps) == (6, 3e8)


def test_a_version_that_never_was(store: Store) -> None:
    book = book_of(store)
    with pytest.raises(BrokerError, match="has no version 9") as caught:
        book.restore("soykb", 9)
    assert code_of(caught) == "unknown_template"
    with pytest.raises(BrokerError, match="unknown template 'nope', expected one of default"):
        book.restore("nope", 1)


@settings(max_examples=25)
@given(st.lists(bodies(), min_size=1, max_size=4))
def test_every_version_is_found_again_as_it_was(documents: list[dict[str, Any]]) -> None:
    store = SqliteStore(":memory:")
    try:
        book = TemplateRegistry(templates_from_dict(None), store)
        versions = {}
        for item in documents:
            entry, _ = book.save("x", item)
            versions[entry.template.version] = entry.template
        later = TemplateRegistry(templates_from_dict(None), store)
        for version, template in versions.items():
            assert later.get("x", version) == template
        assert list(versions) == sorted(versions)
    finally:
        store.close()


def test_many_that_save_and_ask_at_once(store: Store) -> None:
    book = book_of(store)
    versions: list[int] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for step in range(10):
            entry, _ = book.save("x", body(1e6 * (1 + number), 1e9 + step), engineer(f"u{number}"))
            versions.append(entry.template.version)
            template = book.get("x", entry.template.version)
            assert template is not None and template.qspec.min_bps == 1e6 * (1 + number)
            assert book.match("x", Specification(min_bps=1e6)) is not None

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, n) for n in range(8)]:
            done.result()
    assert sorted(versions) == list(range(1, 81))


def test_another_broker_sees_what_was_saved(store: Store) -> None:
    now = [0.0]
    mine = book_of(store)
    other = TemplateRegistry(templates_from_dict(None), store, POLICY, clock=lambda: now[0])
    mine.save("x", BASE)
    assert "x" not in other
    now[0] += 1
    assert "x" in other


def test_a_document_that_cannot_be_read_is_left_out(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_document("template", "odd", {"template": {"qspec": 3}, "origin": "saved"})
    store.put_document("template", "odder", {})
    assert book_of(store).names() == ["default", "montage", "soykb"]
    assert "odd 1 is left out" in caplog.text


# -- whose it is, and what the site allows ---------------------------------------------------


def test_self_service_leaves_alone_what_is_not_its_own(store: Store) -> None:
    book = book_of(store)
    book.save("anns", body(1e8, 2e8), researcher("ann"))
    for name in ("soykb", "default", "anns"):
        with pytest.raises(BrokerError, match="expected a name that is free or yours") as caught:
            book.save(name, body(1e8, 2e8), researcher("ben"))
        assert code_of(caught) == "forbidden"
    with pytest.raises(BrokerError) as caught:
        book.delete("anns", researcher("ben"))
    assert code_of(caught) == "forbidden"
    assert book.delete("anns", researcher("ann")) is None


def test_a_researcher_saves_so_many_and_no_more(store: Store) -> None:
    book = TemplateRegistry({}, store, TemplatePolicy(max_templates=2))
    for name in ("a", "b"):
        book.save(name, body(1e8, 2e8), researcher("ann"))
    with pytest.raises(BrokerError, match="ann has saved 2 templates, expected at most 2") as full:
        book.save("c", body(1e8, 2e8), researcher("ann"))
    assert full.value.code == "conflict"
    book.save("b", body(1e8, 3e8), researcher("ann"))  # a new version is no new template
    book.save("c", body(1e8, 2e8), researcher("ben"))  # others have their own
    book.save("d", body(1e8, 2e8), engineer("ann"))
    book.delete("a", researcher("ann"))
    book.delete("d", engineer("ann"))
    book.save("e", body(1e8, 2e8), researcher("ann"))


def test_ceilings_are_lowered_and_said(store: Store) -> None:
    book = book_of(store)
    document = body(1e8, 1e9, priority=9, patience=3600, paths=4)
    entry, words = book.save("x", document, researcher("ann"))
    t = entry.template
    assert (t.rspec.max_bps, t.priority, t.patience_s, t.paths) == (5e8, 3, 60.0, 2)
    assert [word.partition(" ")[0] for word in words] == [
        "max_throughput", "priority", "patience", "paths",
    ]  # fmt: skip
    assert (
        words[0] == "max_throughput 1 Gb/s is lowered to 500 Mb/s, the most that this site allows"
    )
    free, words = book.save("y", document, engineer("eng"))
    assert (free.template.priority, words) == (9, [])


def test_a_minimum_above_what_is_allowed_is_refused(store: Store) -> None:
    book = book_of(store)
    with pytest.raises(InputError, match="expected at most 500 Mb/s, all that this site allows"):
        book.save("x", body(6e8, 1e9), researcher("ann"))
    assert "x" not in book


@pytest.mark.parametrize("pattern", ["*", "?last", "[a-z]*", "bl*", "-_-*"])
def test_self_service_is_not_for_all_applications(store: Store, pattern: str) -> None:
    book = book_of(store)
    figures = body(1e8, 2e8, applications=["blast", pattern])
    with pytest.raises(InputError, match="expected a pattern that begins with three letters"):
        book.save("x", figures, researcher("ann"))
    assert book.save("x", figures, engineer("eng"))[0].template.applications[1] == pattern


def test_templates_of_the_site_go_before_those_of_self_service(store: Store) -> None:
    book = book_of(store)
    book.save("mine", body(1e8, 2e8, applications=["soykb-longer*"]), researcher("ann"))
    template = book.match("soykb-longer-than-others")
    assert template is not None and template.name == "soykb"
    book.save("ours", body(1e8, 2e8, applications=["soykb-longer*"]), engineer("eng"))
    template = book.match("soykb-longer-than-others")
    assert template is not None and template.name == "ours"


def test_a_store_that_is_away_costs_the_news_only(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    book = TemplateRegistry(templates_from_dict(None), store, clock=lambda: now[0])
    book.save("x", BASE)
    store.close()
    now[0] += 10
    assert book.get("x") is not None and book.match("x") is not None
    assert book.version("x", 7) is None
    assert "cannot be read again" in caplog.text
    with pytest.raises(StoreError):
        book.save("y", BASE)


def test_a_site_that_becomes_stricter_binds_what_was_saved_before(store: Store) -> None:
    book_of(store).save("x", body(4e8, 5e8), researcher("ann"))
    later = TemplateRegistry(templates_from_dict(None), store, TemplatePolicy(max_bps=3e8))
    entry = later.entry("x")
    assert entry is not None and len(entry.capped) == 2
    assert entry.template.qspec.min_bps == entry.template.rspec.max_bps == 3e8


@given(bodies(), st.builds(
    TemplatePolicy,
    max_bps=st.none() | st.floats(1, 1e12),
    max_priority=st.none() | st.integers(0, 10),
    max_patience_s=st.none() | st.floats(0, 100),
    max_paths=st.none() | st.integers(1, 4),
))  # fmt: skip
def test_what_is_capped_is_within_the_policy(
    document: dict[str, Any], policy: TemplatePolicy
) -> None:
    template = template_from_dict("x", document)
    result, words = capped_template(template, policy)
    assert capped_template(result, policy) == (result, [])
    assert (result == template) == (words == [])
    assert result.qspec.min_bps <= (result.rspec.max_bps or math.inf)
    for most, value in (
        (policy.max_bps, result.rspec.max_bps or math.inf),
        (policy.max_priority, result.priority),
        (policy.max_patience_s, result.patience_s),
        (policy.max_paths, result.paths),
    ):
        assert most is None or value <= most


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"max_throughput": 0}, "max_throughput: found 0"),
        ({"max_paths": 0}, "max_paths: found 0"),
        ({"max_priority": -1}, "expected 0 or more"),
        ({"max_prority": 1}, "did you mean 'max_priority'"),
        ([], "expected a mapping"),
    ],
)
def test_bad_policies(data: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        policy_from_dict(data)


def test_the_policy_of_adon_yml() -> None:
    data = {
        "max_throughput": "500 Mb/s",
        "max_priority": 3,
        "max_patience": "1 min",
        "max_paths": 2,
    }
    assert policy_from_dict(data) == POLICY


def test_without_a_policy_nobody_saves_more_than_what_is_built_in(store: Store) -> None:
    built_in = TemplatePolicy(max_priority=0)
    assert policy_from_dict(None) == policy_from_dict({}) == built_in
    assert policy_from_dict({"max_paths": 2}) == replace(built_in, max_paths=2)
    assert policy_from_dict({"max_priority": None}).max_priority is None
    book = TemplateRegistry(templates_from_dict(None), store)
    saved, words = book.save("mine", body(1e6, 1e12, priority=1000), researcher("ada"))
    assert (saved.template.rspec.max_bps, saved.template.priority) == (1e12, 0)
    assert words == ["priority 1000 is lowered to 0, the most that this site allows"]
    trusted, words = book.save("site", body(3e9, 1e12, priority=1000), engineer("eve"))
    assert trusted.template.priority == 1000 and not words


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x", "ä", "x\n"])
def test_names_that_cannot_be(store: Store, name: str) -> None:
    with pytest.raises(InputError, match="expected letters, digits"):
        book_of(store).save(name, BASE)


# -- what transfers teach --------------------------------------------------------------------


def peak(book: TemplateRegistry, name: str = "mine") -> float:
    template = book.get(name)
    assert template is not None
    return template.peak_bps


def test_what_a_transfer_reports_to_have_used_is_learned(store: Store) -> None:
    book = book_of(store, {"mine": {**BASE, "tuning": {"threads": 3}}})
    assert book.tuning_of("mine") is None and book.tuning_of("gone") is None
    assert book.learn(succeeded("t1", goodput=3e8, streams=8, buffer_bytes=1 << 22))
    assert book.tuning_of("mine") == Tuning(8, 1 << 22, 3)
    # What nobody can have used is not believed.
    assert book.learn(succeeded("t2", goodput=4e8, streams=10**9, threads=5))
    assert book.tuning_of("mine") == Tuning(4, 1 << 20, 5)
    assert not book.learn(succeeded("t3", goodput=3e8, streams=16))
    assert book.tuning_of("mine") == Tuning(4, 1 << 20, 5)


def test_small_transfers_teach_nothing(store: Store) -> None:
    book = book_of(store, {"mine": BASE, "fine": {**BASE, "break_even": 10}})
    tiny: dict[str, Any] = {"bytes": 1000, "goodput": 3e8}
    assert not book.learn(succeeded("t1", **tiny))
    assert book.learn(succeeded("t2", "fine", **tiny))
    assert not book.learn(succeeded(template="gone"))


def test_the_peak_and_the_tuning_of_the_best_run(store: Store) -> None:
    book = book_of(store, {"mine": BASE})
    assert book.learn(succeeded("t1", goodput=3e8), Tuning(8, 1 << 21))
    assert not book.learn(succeeded("t2", goodput=2e8))
    entry = book.entry("mine")
    assert entry is not None and entry.template.peak_bps == 3e8
    assert entry.template.version == 1  # learning makes no version
    assert entry.learned["transit"] == "t1"
    assert entry.learned["tuning"] == {"streams": 8, "buffer": 1 << 21, "threads": 0}
    assert peak(book_of(store, {"mine": BASE})) == 3e8


def test_scores_follow_what_transfers_reach_at_each_rate(store: Store) -> None:
    slow = {"qspec": {"min_throughput": "50 Mb/s"}}
    book = book_of(store, {"mine": slow, "own": {**slow, "tables": {"throughput": [[5e7, 2]]}}})
    # What this application's disks take is 200 Mb/s.
    for granted, goodput in ((1e8, 9.5e7), (2e8, 1.9e8), (4e8, 2e8), (8e8, 2e8)):
        for number in range(3):
            for name in ("mine", "own"):
                done = succeeded(f"{name}-{granted}-{number}", name, goodput=goodput)
                done.grant.granted_bps = granted
                book.learn(done)
    template, own = book.get("mine"), book.get("own")
    assert template is not None and own is not None
    scores = [round(template.score("throughput", rate), 1) for rate in (5e7, 1e8, 2e8, 4e8, 8e8)]
    assert scores == [1.0, 3.7, 9.4, 10.0, 10.0]
    assert template.version == 1 and own.score("throughput", 8e8) == 2
    assert book.restore("mine", 1)[0].template.reached == template.reached
    again = book_of(store, {"mine": slow})
    assert again.entry("mine").template.reached == template.reached  # type: ignore[union-attr]
    again.reset("mine")
    assert again.entry("mine").template.reached == ()  # type: ignore[union-attr]


def test_few_transfers_teach_no_scores() -> None:
    levels = with_goodput({}, 1e8, 9e7)
    for _ in range(30):
        levels = with_goodput(levels, 1e8, 9e7)
    assert len(levels["27"]) == 15 and table_of(levels, 5e7) == ()
    levels = with_goodput(with_goodput(levels, 8e8, 3e8), 8e8, 3e8)
    assert table_of(levels, 5e7) == ()
    assert len(table_of(with_goodput(levels, 8e8, 3e8), 5e7)) == 3
    for power in range(60):
        levels = with_goodput(levels, 2.0**power, 1.0)
    assert len(levels) == 16 and "59" in levels and "27" not in levels


def test_self_service_is_found_for_its_own_users(store: Store) -> None:
    book = book_of(store)
    eves = body(1e6, 5e6, applications=["blast*"])
    book.save("blast", eves, researcher("eve", "eve", "lab"))
    book.save("nearest", body(3e8, 4e8), researcher("ann"))  # of an author for all
    again = book_of(store)

    def template_for(user: str | None) -> str | None:
        match = again.match("blastn", user=user)
        return match and match.name

    assert [template_for(user) for user in ("eve", "lab", None, "ada", "")] == ["blast"] * 3 + [
        None
    ] * 2
    near = again.match("other", Specification(min_bps=3e8), "ada")
    assert near is not None and near.name == "nearest"
    assert again.get("blast") is not None  # by its name


def test_what_nobody_vouches_for_is_learned_for_its_user_alone(store: Store) -> None:
    book = book_of(store, {"mine": BASE})
    false = succeeded("t1", goodput=9e8, streams=1000, user="eve", vouched=False)
    assert book.learn(false) and not book.learn(changed(false, id="t2", goodput_bps=8e8))
    assert peak(book) == 0 and book.tuning_of("mine", "ada") is None
    assert book.tuning_of("mine", "eve") == Tuning(1000)
    assert book.learn(succeeded("t3", goodput=3e8, streams=8, user="ada"))
    again = book_of(store, {"mine": BASE})
    assert [again.tuning_of("mine", user) for user in ("", "ada", "eve")] == [
        Tuning(8), Tuning(8), Tuning(1000),
    ]  # fmt: skip
    again.reset("mine", researcher("eve"))
    assert peak(again) == 3e8 and again.tuning_of("mine", "eve") == Tuning(8)
    assert again.learn(false)
    assert again.reset("mine").learned == {}
    assert again.tuning_of("mine", "eve") is None and again.tuning_of("mine") is None
    with pytest.raises(BrokerError, match="unknown template"):
        again.reset("gone")


def test_a_peak_fades(store: Store) -> None:
    book = book_of(store, {"mine": BASE})
    assert book.learn(succeeded("t1", goodput=9e8, released_at=100.0))
    later = 100.0 + HALF_LIFE_S
    assert not book.learn(succeeded("t2", goodput=4e8, released_at=later))
    assert book.learn(succeeded("t3", goodput=5e8, released_at=later))
    assert peak(book) == peak(book_of(store, {"mine": BASE})) == 5e8


FAILURES = [
    {"state": TransitState.EXPIRED},
    {"state": TransitState.FAILED},
    {"state": TransitState.BEST_EFFORT},
    {"state": TransitState.INSTALLED},
    {"outcome": "failed"},
    {"installed_at": 0.0, "path": []},
    {"goodput_bps": 0.0},
    {"goodput_bps": float("nan")},
    {"goodput_bps": float("inf")},
]


@pytest.mark.parametrize("change", FAILURES)
def test_failed_transfers_teach_nothing(store: Store, change: dict[str, Any]) -> None:
    book = book_of(store, {"mine": BASE})
    transit = succeeded(**change)
    assert failure(transit)
    assert not book.learn(transit)
    assert peak(book) == 0
    with pytest.raises(BrokerError, match="released as a success") as caught:
        book.save_from("new", transit)
    assert code_of(caught) == "conflict"


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(1, 1e12), st.booleans()), max_size=12))
def test_the_peak_never_falls(runs: list[tuple[float, bool]]) -> None:
    store = SqliteStore(":memory:")
    try:
        book = TemplateRegistry(templates_from_dict({"mine": BASE}), store)
        best = 0.0
        for number, (goodput, good) in enumerate(runs):
            change = {} if good else {"outcome": "failed"}
            book.learn(succeeded(f"t{number}", goodput=goodput, bytes=10**7, **change))
            best = max(best, goodput) if good else best
            assert peak(book) == best
        assert peak(TemplateRegistry(templates_from_dict({"mine": BASE}), store)) == best
    finally:
        store.close()


def test_two_brokers_that_learn_at_once_keep_the_better(store: Store) -> None:
    first, second = book_of(store, {"mine": BASE}), book_of(store, {"mine": BASE})
    first.learn(succeeded(goodput=5e8))
    # As if the other had looked before and wrote after.
    late = {"peak": 1e8, "transit": "x", "tuning": {}, "at": 30.0}
    store.put_document("template-learned", "mine", late)
    second.refresh()
    assert peak(second) == 5e8


def test_saved_from_a_run(store: Store) -> None:
    book = book_of(store, {"mine": {**BASE, "tuning": {"streams": 16}, "priority": 5}})
    run = succeeded("wf:job:0", goodput=4e8, application="neuro")
    entry, words = book.save_from("neuro", run, researcher("ann"))
    t = entry.template
    assert (t.qspec.min_bps, t.rspec.max_bps, t.priority) == (2e8, 5e8, 3)
    assert (t.qspec.max_delay_s, t.tuning.streams, t.peak_bps) == (0.1, 16, 4e8)
    assert entry.source == {"transit": "wf:job:0", "template": "mine", "version": 1}
    assert words == [
        "max_throughput 600 Mb/s is lowered to 500 Mb/s, the most that this site allows"
    ]
    assert book.match("neuro") == t
    near = book.match("other", Specification(min_bps=2e8))
    assert near == replace(t, priority=0)
    entry, _ = book.save_from("all", changed(run, uncapped=True), engineer("eve"))
    assert entry.template.rspec.max_bps is None  # not what the path of that run had


def test_saved_from_a_run_keeps_the_version_it_was_decided_with(store: Store) -> None:
    book = book_of(store)
    book.save("x", body(1e8, 1e9, tuning={"streams": 2}))
    run = succeeded(template="x", template_version=1)
    book.save("x", body(1e8, 1e9, tuning={"streams": 32}))
    made, _ = book.save_from("y", run)
    assert made.template.tuning.streams == 2


def test_who_waits_keeps_the_version_of_then(store: Store) -> None:
    book = book_of(store)
    book.save("x", body(1e8, 1e9, patience=10))
    waiting = made_transit("t", "mu", "tacc", TransitState.QUEUED, "x", template_version=1)
    assert template_of(waiting, book) == book.get("x")
    book.save("x", body(2e8, 1e9, patience=99))
    kept = template_of(waiting, book)
    assert kept is not None and (kept.version, kept.patience_s) == (1, 10)
    active = ActiveTransits(book)
    active.enter(waiting)
    assert [transit.id for transit in active.due(10.0)] == ["t"]
    assert template_of(waiting, {"x": kept}) is kept
    book.delete("x")
    assert template_of(waiting, book) is None


def test_nobody_claims_a_peak(store: Store) -> None:
    book = book_of(store)
    entry, _ = book.save("x", {**BASE, "peak": "1 Pb/s"}, researcher("ann"))
    assert entry.template.peak_bps == 0


def test_a_name_that_is_used_anew_starts_without_a_peak(store: Store) -> None:
    book = book_of(store)
    book.save("x", BASE)
    assert book.learn(succeeded(template="x"))
    book.delete("x")
    book.save("x", BASE)
    assert peak(book, "x") == 0
