"""What a hook says to the broker: how long it waits, what it gives up, what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hooks_world import FakeBroker
from hypothesis import given
from hypothesis import strategies as st

from monitors.watcher.decision_file import Pair
from monitors.workflows.planned.job_files import read_json
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.path_requests import (
    UNASKED,
    Effects,
    Patience,
    RequestOutcomes,
    ask,
    give_back,
    ids_of,
    tell,
)
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost.decision import PathDecision, since, to_give_back

QUEUED, HELD, INSTALLED = TransitState.QUEUED, TransitState.HELD, TransitState.INSTALLED
REQUESTS = [TransitRequest(f"w:j:0:{src}-mu", src, "mu", 100) for src in "ab"]


class Clock:
    """Moves in sleep, and by ``answer_s`` with every call of the budget."""

    def __init__(self, broker: FakeBroker, answer_s: float = 0.0, budget_s: float = 2.0) -> None:
        self.seconds = 0.0
        self.answer_s = answer_s
        self.slept: list[float] = []
        self.effects = Effects(
            broker, Budget(budget_s, self.answering), lambda: 1e6 + self.seconds,
            lambda: self.seconds, self.sleep,
        )  # fmt: skip

    def answering(self) -> float:
        self.seconds += self.answer_s / 2
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


def outcomes(
    broker: FakeBroker, patience: Patience, requests: Sequence[TransitRequest] = REQUESTS
) -> RequestOutcomes:
    return ask(requests, patience, Clock(broker).effects)


def test_a_queued_transit_is_followed_until_it_has_a_path() -> None:
    broker = FakeBroker(QUEUED, QUEUED, HELD, INSTALLED)
    clock = Clock(broker)
    (first,) = ask(REQUESTS[:1], Patience(5.0), clock.effects).answers
    assert first.state == "installed" and first.told
    assert first.waited_s == sum(clock.slept) == pytest.approx(0.25 + 0.5 + 1.0)
    assert (broker.calls, len(broker.asked)) == (1, 1)  # looked at, not asked for again


def test_patience_ends_in_best_effort_and_leaves_the_queue() -> None:
    broker = FakeBroker(QUEUED)
    first, second = outcomes(broker, Patience(5.0)).answers
    assert first.state == second.state == "best_effort"
    assert "patience" in first.reason and first.told
    assert [(r[0], r[3]) for r in broker.released] == [
        (w.id, "gave_up") for w in REQUESTS
    ]  # fmt: skip


def test_without_patience_of_its_own_the_hook_has_the_templates() -> None:
    broker = FakeBroker(QUEUED)
    broker.service = Service(patience_s=7.0)
    clock = Clock(broker)
    ask(REQUESTS, Patience(None), clock.effects)
    assert 7.0 <= clock.seconds <= 9.0  # a little longer, so that the broker may say why


def test_a_template_that_does_not_wait() -> None:
    broker = FakeBroker(QUEUED)
    broker.service = Service(when_queued="best_effort")
    clock = Clock(broker)
    decisions = ask(REQUESTS, Patience(60.0), clock.effects).answers
    assert clock.seconds == 0 and {d.state for d in decisions} == {"best_effort"}
    assert {r[3] for r in broker.released} == {"gave_up"}


@pytest.mark.parametrize(
    ("when_queued", "may_defer", "waited_s", "deferred"),
    [
        ("defer", True, 0.0, True),
        ("defer", False, 0.0, False),
        ("defer", True, 30.0, False),  # longer than its patience already
        ("wait", True, 0.0, False),
        ("best_effort", True, 0.0, False),
    ],
)
def test_when_dagman_is_to_ask_again(
    when_queued: str, may_defer: bool, waited_s: float, deferred: bool
) -> None:
    broker = FakeBroker(QUEUED)
    broker.service = Service(when_queued=when_queued)
    answers = outcomes(broker, Patience(20.0, waited_s, lambda: may_defer))
    assert answers.deferred is deferred
    assert {d.state for d in answers.answers} == {"queued" if deferred else "best_effort"}
    assert bool(broker.released) is not deferred


def test_what_nobody_waits_for_any_more_is_given_up() -> None:
    broker = FakeBroker(QUEUED)
    effects = Clock(broker).effects
    effects.cancelled = lambda: "the shadow ended"
    answers = ask(REQUESTS, Patience(None, most_s=90.0), effects).answers
    assert {a.reason for a in answers} == {"best effort: the shadow ended (because)"}
    assert len(broker.released) == 2


def test_no_patience_is_longer_than_whoever_starts_the_hook_has() -> None:
    clock = Clock(FakeBroker(QUEUED))
    ask(REQUESTS, Patience(1000.0, most_s=90.0), clock.effects)
    assert clock.seconds == pytest.approx(90.0)


def test_waiting_costs_no_budget_while_the_broker_answers() -> None:
    clock = Clock(FakeBroker(QUEUED), answer_s=0.5)
    decisions = ask(REQUESTS, Patience(60.0), clock.effects).answers
    assert {d.state for d in decisions} == {"best_effort"} and clock.seconds >= 60.0


def test_a_broker_that_falls_silent_meanwhile_ends_the_waiting() -> None:
    broker = FakeBroker(QUEUED, QUEUED, BrokerError("it is away", "unreachable"))
    clock = Clock(broker)
    decisions = ask(REQUESTS, Patience(60.0), clock.effects).answers
    assert {d.state for d in decisions} == {UNASKED} and not any(d.told for d in decisions)
    assert clock.seconds < 1.0
    assert len(clock.effects.warnings) == 2


def test_no_broker() -> None:
    clock = Clock(FakeBroker(BrokerError("no route")))
    answers = ask(REQUESTS, Patience(60.0), clock.effects)
    assert [(d.state, d.told, d.id) for d in answers.answers] == [
        (UNASKED, False, w.id) for w in REQUESTS
    ]
    assert all("no route" in d.reason for d in answers.answers)
    assert clock.seconds == 0 and answers.services == []


def test_what_the_broker_refuses_is_on_record_as_best_effort() -> None:
    broker = FakeBroker()
    broker.refuses = {"tacc": BrokerError("there is no template 'x'", "unknown_template")}
    refused = replace(REQUESTS[0], id="w:j:0:a-tacc", dst="tacc")
    given, other = outcomes(broker, Patience(5.0), [REQUESTS[0], refused]).answers
    assert (given.state, other.state, other.told) == ("installed", "best_effort", True)
    assert [r.best_effort for r in broker.told] == ["best effort: there is no template 'x'"]


def test_what_is_told_is_no_request() -> None:
    broker = FakeBroker()
    (outcome, _) = tell(
        [replace(w, best_effort="the disk is full") for w in REQUESTS], Clock(broker).effects
    )
    assert (outcome.state, outcome.reason, outcome.told) == (
        "best_effort",
        "the disk is full",
        True,
    )
    assert broker.asked == []


def test_what_cannot_be_told_is_a_warning() -> None:
    class Away(FakeBroker):
        def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
            raise BrokerError("it is away")

    effects = Clock(Away()).effects
    full = [replace(w, best_effort="the disk is full") for w in REQUESTS]
    assert [(d.told, d.reason) for d in tell(full, effects)] == [(False, "the disk is full")] * 2
    assert effects.warnings == ["not reported to the broker: it is away"]


def test_a_lease_is_made_to_outlast_the_transfer() -> None:
    broker = FakeBroker(granted_bps=1.0)  # 800 bits at 1 b/s, twice over, and a minute
    broker.lease_until = 1e6 + 2 * 800.0 + 59.0
    outcomes(broker, Patience(5.0), REQUESTS[:1])
    assert broker.renewed == [(REQUESTS[0].id, 2 * 800.0 + 60.0)]
    broker.renewed.clear()
    broker.lease_until += 1.0
    outcomes(broker, Patience(5.0), REQUESTS[:1])
    assert broker.renewed == []


STATES = st.sampled_from(list(TransitState))


@given(
    st.lists(STATES, min_size=1, max_size=12),
    st.floats(0, 30),
    st.floats(0, 30),
    st.sampled_from(["wait", "defer", "best_effort"]),
    st.booleans(),
)
def test_whatever_the_broker_answers_nothing_waits_for_ever_and_nothing_is_lost(
    states: list[TransitState],
    limit_s: float,
    waited_s: float,
    when_queued: str,
    may_defer: bool,
) -> None:
    broker = FakeBroker(*states)
    broker.service = Service(when_queued=when_queued)
    clock = Clock(broker)
    answers = ask(REQUESTS, Patience(limit_s, waited_s, lambda: may_defer), clock.effects)
    assert [d.id for d in answers.answers] == [w.id for w in REQUESTS]
    assert clock.seconds <= limit_s + 1e-6
    given_up = {r[0] for r in broker.released}
    for decision in answers.answers:
        # In the queue stays only what DAGMan asks for again; what left it is given up.
        assert (decision.state in (QUEUED, HELD)) <= answers.deferred
        assert decision.told
        assert (decision.id in given_up) <= (decision.state == "best_effort")


@given(st.floats(0.1, 10.0), st.floats(0.0, 5.0), st.integers(0, 3))
def test_a_broker_that_does_not_answer_costs_the_budget_and_no_more(
    budget_s: float, answer_s: float, answers: int
) -> None:
    class Slow(FakeBroker):
        def ask(self, requests: Sequence[TransitRequest], /) -> list[RequestAnswer]:
            self._take()
            return super().ask(requests)

        def get(self, transit_id: str, /) -> Transit:
            self._take()
            return super().get(transit_id)

        def release(self, *args: object, **used: object) -> Transit:
            self._take()
            return self.transit("x", TransitState.RELEASED)

        def _take(self) -> None:
            self.calls += 1
            if self.calls > answers:
                left = clock.effects.budget.left_s
                clock.seconds += max(0.0, left)
                raise BrokerError("it did not answer", "timeout")

    broker = Slow(QUEUED)
    clock = Clock(broker, budget_s=budget_s)
    decisions = ask(REQUESTS, Patience(20.0), clock.effects).answers
    assert clock.seconds <= 20.0 + budget_s + 1e-6
    assert {d.state for d in decisions} <= {UNASKED, "best_effort"}


def test_all_rounds_of_what_was_never_answered_for_are_given_back() -> None:
    broker = FakeBroker()
    broker.ended = {"x", "x.2", "y"}
    assert give_back({"x": True, "y": False}, Clock(broker).effects) == {}
    assert [r[0] for r in broker.released] == ["x", "x.2", "y"]
    broker.refuses_release = BrokerError("away")
    effects = Clock(broker).effects
    assert give_back({"x": True, "y": False}, effects) == {"x": True, "y": False}
    assert len(effects.warnings) == 2


@given(st.lists(st.sampled_from([*TransitState, UNASKED]), max_size=4), st.sets(st.text("xyz")))
def test_a_decision_file_names_all_that_may_have_to_be_given_back(
    states: list[str], left: set[str]
) -> None:
    pairs = [Pair(f"id{n}", "a", "mu", state) for n, state in enumerate(states)]
    data = {
        "pairs": [pair.as_json() for pair in pairs],
        "left_over": sorted(left),
        "given_back": False,
    }
    releases = to_give_back(data)
    assert releases.keys() == {pair.id for pair in pairs} | left
    assert all(releases[pair.id] == (pair.state == UNASKED) for pair in pairs)
    assert to_give_back({**data, "given_back": True}) == {}


def test_the_rounds_of_an_id_come_to_an_end() -> None:
    ids = list(ids_of("x"))
    assert ids[:3] == ["x", "x.2", "x.3"] and len(ids) == len(set(ids)) == 100


@pytest.mark.parametrize(
    ("change", "began"),
    [
        ({}, 5.0),
        ({"deferred": False}, 9.0),
        ({"given_back": True}, 9.0),
        ({"retry": 1}, 9.0),
        ({"since": "x"}, 9.0),
        ({"since": 12.0}, 9.0),  # the clock was set back meanwhile
    ],
)
def test_patience_counts_from_the_first_time(change: dict[str, object], began: float) -> None:
    data = {"deferred": True, "given_back": False, "retry": 0, "since": 5.0, **change}
    assert since(data, 0, 9.0) == began


def test_the_broker_knows_where_it_knows_of_every_pair(tmp_path: Path) -> None:
    pairs = [
        Pair("a", "a", "mu", "best_effort", told=True),
        Pair("b", "b", "mu", UNASKED),
    ]
    for file_pairs, expected in ((pairs, False), (pairs[:1], True), ([], True)):
        PathDecision("j", 0, "w", 1.0, 1.0, file_pairs).write(tmp_path / "d.json")
        assert read_json(tmp_path / "d.json")["told"] is expected
