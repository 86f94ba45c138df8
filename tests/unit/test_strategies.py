"""What strategies make of a link: floors, sums, work conservation, and who gets what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from network_provisioner.base.controller import Queue
from network_provisioner.base.errors import InputError
from network_provisioner.policies import strategies as module
from network_provisioner.policies.strategies import (
    BUILT_IN,
    Amount,
    Side,
    Situation,
    checked_queues,
    computed,
    seven_three,
    strategies,
    sure_bps,
    ten_three,
)

_LEAST_BPS = 1e-3  # below it nothing is left to hand out


def carried(
    queues: Sequence[Queue], capacity_bps: float, offered: Mapping[str, float]
) -> dict[str, float]:
    """Bits per second that each queue's own traffic gets."""
    by_name = {q.name: q for q in queues}
    children = {q.name: [c for c in queues if c.parent == q.name] for q in queues}
    sure = {q.name: q.rate_bps - sum(c.rate_bps for c in children[q.name]) for q in queues}
    got = {name: min(offered[name], max(0.0, rate)) for name, rate in sure.items()}

    def above(name: str) -> list[str]:
        chain = [name]
        while by_name[chain[-1]].parent:
            chain.append(by_name[chain[-1]].parent)
        return chain

    def under(name: str) -> float:
        return got[name] + sum(under(child.name) for child in children[name])

    def may_add(name: str) -> float:
        rooms = [by_name[n].ceil_bps - under(n) for n in above(name)]
        left = capacity_bps - sum(got.values())
        return max(0.0, min(offered[name] - got[name], left, *rooms))

    for prio in sorted({q.prio for q in queues}):
        names = [q.name for q in queues if q.prio == prio]
        for _ in range(10_000):
            hungry = {n: max(sure[n], 1.0) for n in names if may_add(n) > _LEAST_BPS}
            if not hungry:
                break
            # Small enough a step that nobody gets more than their part before somebody is full.
            step = min(may_add(n) / weight for n, weight in hungry.items())
            total = sum(hungry.values())
            step = min(step, (capacity_bps - sum(got.values())) / total)
            for name, weight in hungry.items():
                got[name] += min(step * weight, may_add(name))
    return got


DOCS = Path(__file__).resolve().parents[2] / "docs" / "policies.md"
DOCUMENTED = DOCS.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
LINK = 200e6
HOP = ("s1", "s2")
PLAIN = Situation(HOP, LINK, (Side("p/1", part=7), Side("p/2", part=3)))
# What Policy.guaranteed says where nothing else is asked for.
HALF = (Amount(0.35), Amount(0.15))

rates = st.floats(0, LINK)
asked = st.one_of(st.just(0.0), rates, st.just(1e12))
used = st.one_of(st.just(0.0), st.floats(0, 1e15))
parts = st.floats(0.001, 1000)


@st.composite
def situations(draw: st.DrawFn, guarantees: bool = True) -> Situation:
    """Any link whose reservations it can carry."""
    floors = [draw(rates) for _ in range(3)]
    # The ledger leaves a part of each link unreserved, but need not.
    scale = min(1.0, LINK / sum(floors)) if sum(floors) else 1.0
    shares = [draw(st.floats(0, 1)) for _ in range(2)] if guarantees else [0.35, 0.15]
    if sum(shares) > 1:
        shares = [share / sum(shares) for share in shares]
    first, second = (
        Side(
            f"p/{i + 1}",
            floors[i] * scale,
            draw(asked),
            draw(used),
            draw(parts),
            Amount(shares[i]),
        )
        for i in range(2)
    )
    return Situation(HOP, LINK, (first, second), floors[2] * scale)


def by_name(queues: list[Queue]) -> dict[str, Queue]:
    return {queue.name: queue for queue in queues}


def sure(queues: list[Queue]) -> dict[str, float]:
    return {queue.name: sure_bps(queue, queues) for queue in queues}


class TestPaper:
    """§IV.E, on 10 Gb/s as there."""

    def test_seven_three(self) -> None:
        link = replace(PLAIN, capacity_bps=10e9)
        assert seven_three(link) == [
            Queue("p/1", HOP, 7e9, 7e9),
            Queue("p/2", HOP, 3e9, 3e9),
        ]

    def test_ten_three(self) -> None:
        link = replace(PLAIN, capacity_bps=10e9)
        assert ten_three(link) == [
            Queue("p/1", HOP, 10e9, 10e9),
            Queue("p/2", HOP, 3e9, 3e9, prio=1, parent="p/1"),
        ]

    def test_the_second_makes_the_first_give_way(self) -> None:
        """Figure 8: while LIGO sends, the other queue gets the rest of the link."""
        queues = ten_three(PLAIN)
        both = carried(queues, LINK, {"p/1": 1e12, "p/2": 1e12})
        assert both == pytest.approx({"p/1": 0.7 * LINK, "p/2": 0.3 * LINK})
        alone = carried(queues, LINK, {"p/1": 1e12, "p/2": 0.0})
        assert alone == pytest.approx({"p/1": LINK, "p/2": 0.0})


@pytest.mark.parametrize("name", sorted(BUILT_IN))
class TestEvery:
    @given(situation=situations())
    def test_reservations_are_kept_and_the_link_is_not_oversold(
        self, name: str, situation: Situation
    ) -> None:
        queues = BUILT_IN[name](situation)
        rates = sure(queues)
        for side in situation.sides:
            assert rates[side.queue] >= side.floor_bps - 1
        assert sum(rates.values()) <= situation.room_bps + 1
        assert all(0 <= q.rate_bps <= q.ceil_bps + 1 for q in queues)
        assert all(q.ceil_bps <= max(LINK, q.rate_bps) + 1 for q in queues)
        checked_queues(BUILT_IN[name], situation)

    @given(situation=situations())
    def test_a_link_that_cannot_carry_what_is_reserved(
        self, name: str, situation: Situation
    ) -> None:
        """A topology that shrank: still no more than it carries, and no bad numbers."""
        small = replace(situation, capacity_bps=LINK / 3)
        checked_queues(BUILT_IN[name], small)


class TestComputed:
    @given(situations(), asked, asked)
    def test_carries_what_is_offered_or_the_whole_link(
        self, situation: Situation, first: float, second: float
    ) -> None:
        got = carried(computed(situation), LINK, {"p/1": first, "p/2": second})
        assert sum(got.values()) == pytest.approx(min(LINK, first + second), rel=1e-6, abs=10)

    @given(situations())
    def test_guarantees_are_kept_whatever_the_other_wants(self, situation: Situation) -> None:
        wanted = [max(side.floor_bps, side.guarantee.of(LINK)) for side in situation.sides]
        assume(sum(wanted) <= situation.room_bps)
        rates = sure(computed(situation))
        for side, want in zip(situation.sides, wanted, strict=True):
            assert rates[side.queue] >= want - 1

    @given(situations())
    def test_rates_add_up_to_the_link(self, situation: Situation) -> None:
        assert sum(sure(computed(situation)).values()) == pytest.approx(situation.room_bps, abs=1)

    @given(situations(guarantees=False), used)
    def test_who_had_more_lately_never_gets_more_for_it(
        self, situation: Situation, more: float
    ) -> None:
        first, second = situation.sides
        after = replace(first, used_bytes=first.used_bytes + more)
        before_bps = sure(computed(situation))[first.queue]
        after_bps = sure(computed(replace(situation, sides=(after, second))))[first.queue]
        assert after_bps <= before_bps + 1

    def busy(self, **first: float) -> Situation:
        sides = (
            Side("p/1", demand_bps=1e12, part=7, guarantee=HALF[0]),
            Side("p/2", demand_bps=1e12, part=3, guarantee=HALF[1]),
        )
        return Situation(HOP, LINK, (replace(sides[0], **first), sides[1]))  # type: ignore[arg-type]

    def test_without_history_the_parts_decide(self) -> None:
        assert sure(computed(self.busy())) == pytest.approx({"p/1": 0.7 * LINK, "p/2": 0.3 * LINK})

    def test_who_used_it_all_gets_less_of_what_is_not_guaranteed(self) -> None:
        rates = sure(computed(self.busy(used_bytes=1e13)))
        assert rates["p/1"] == pytest.approx(0.49 * LINK)  # 0.35 and 29 % of the other half
        assert rates["p/2"] == pytest.approx(0.51 * LINK)

    def test_what_one_does_not_ask_for_is_the_others(self) -> None:
        rates = sure(computed(self.busy(demand_bps=0.4 * LINK)))
        assert rates == pytest.approx({"p/1": 0.4 * LINK, "p/2": 0.6 * LINK})

    def test_a_class_without_transfers_keeps_its_guarantee(self) -> None:
        """It may begin at any moment; until then the other borrows."""
        queues = computed(self.busy(demand_bps=0.0))
        assert sure(queues) == pytest.approx({"p/1": 0.35 * LINK, "p/2": 0.65 * LINK})
        assert by_name(queues)["p/2"].ceil_bps == LINK

    def test_rates_move_in_steps(self) -> None:
        """Not at every byte of history: each change is one of the switches."""
        seen = {sure(computed(self.busy(used_bytes=1e9 + n * 1e5)))["p/1"] for n in range(50)}
        assert len(seen) == 1


class TestOthers:
    def test_bad_strategies_are_refused(self) -> None:
        reserved = replace(PLAIN, sides=(replace(PLAIN.sides[0], floor_bps=1e8), PLAIN.sides[1]))
        for rates, wrong in (
            ((0.0, 1e8), "expected at least 100 Mb/s, which is reserved"),
            ((1.5e8, 1e8), "250 Mb/s together, expected at most 200 Mb/s"),
            ((float("nan"), 1e8), "expected finite rates"),
        ):

            def strategy(_: Situation, rates: tuple[float, float] = rates) -> list[Queue]:
                return [Queue(f"p/{i + 1}", HOP, r, LINK) for i, r in enumerate(rates)]

            with pytest.raises(InputError, match=wrong):
                checked_queues(strategy, reserved)
        with pytest.raises(InputError, match="expected one for each class"):
            checked_queues(lambda _: [], reserved)
        with pytest.raises(InputError, match="ceiling below its rate"):
            checked_queues(lambda s: [Queue(x.queue, HOP, 1e8, 1e7) for x in s.sides], reserved)

    def test_a_package_adds_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        point = EntryPoint("halves", "network_provisioner.policies.strategies:seven_three", "x")
        self.installed(monkeypatch, point)
        assert set(strategies()) == {*BUILT_IN, "halves"}

    def test_a_built_in_name_is_not_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed(
            monkeypatch, EntryPoint("7-3", "network_provisioner.policies.strategies:computed", "x")
        )
        assert strategies()["7-3"] is seven_three

    def test_one_that_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.installed(monkeypatch, EntryPoint("gone", "no_such_module:f", "x"))
        assert set(strategies()) == set(BUILT_IN)
        assert "'gone' cannot be loaded from 'no_such_module:f'" in caplog.text

    @given(situation=situations())
    def test_the_one_in_the_documentation_keeps_the_rules(self, situation: Situation) -> None:
        names: dict[str, Any] = {}
        exec(DOCUMENTED, names)
        assert checked_queues(names["halves"], situation)

    def installed(self, monkeypatch: pytest.MonkeyPatch, point: EntryPoint) -> None:
        monkeypatch.setattr(module, "entry_points", lambda group: EntryPoints([point]))
        strategies.cache_clear()

    @pytest.fixture(autouse=True)
    def _forget(self) -> object:
        yield
        strategies.cache_clear()
