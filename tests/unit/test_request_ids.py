"""Ids that are asked for again and again."""

from __future__ import annotations

import pytest
from broker_rig import code_of
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.model import ENDED, LIVE, Transit, TransitState
from network_provisioner.client.request_ids import latest, numbered

ended = st.sampled_from(sorted(ENDED))
going_on = st.sampled_from([*sorted(LIVE), TransitState.QUEUED])


def rounds_of(base: str, states: list[TransitState]) -> dict[str, Transit]:
    names = [numbered(base, number) for number in range(1, len(states) + 1)]
    return {n: Transit(n, "mu", "tacc", s) for n, s in zip(names, states, strict=True)}


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
    number, found = latest("a", find)
    assert number == len(over) + 1
    assert (found.state if found else None) == last
    assert len(looked) <= 15


@given(st.dictionaries(st.integers(1, 40), ended | going_on))
def test_whatever_ids_others_chose(taken: dict[int, TransitState]) -> None:
    known = {numbered("a", n): Transit("x", "mu", "tacc", s) for n, s in taken.items()}
    number, found = latest("a", known.get)
    assert known.get(numbered("a", number)) is found and (found is None or found.state not in ENDED)


@pytest.mark.parametrize(("number", "name"), [(1, "w:j:0"), (2, "w:j:0.2"), (100, "w:j:0.100")])
def test_names(number: int, name: str) -> None:
    assert numbered("w:j:0", number) == name
