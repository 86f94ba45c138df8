"""Random sequences of requests, releases, renewals, refusals, restarts and hours that pass.

Promises that hold at every instant are in :mod:`request_sequences`. Some hundreds are tried always,
more than a hundred thousand where there is time (``ADON_SEQUENCES`` sets how many), and some that
Hypothesis shrinks where they fail.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any

import pytest
from request_sequences import Sequences

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.selection.admission import Admission
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.state.network_state import NetworkState
from network_provisioner.transits import advance, changes, lifecycle, modifications, placement
from network_provisioner.transits.changes import Change
from network_provisioner.transits.lifecycle import Lifecycle

SEQUENCES = 240
MANY = int(os.environ.get("ADON_SEQUENCES", "100500"))
AT_ONCE = 250
FIRST = 1_000_000  # of the seeds of many


@pytest.fixture(scope="module")
def world() -> Iterator[Sequences]:
    logging.disable(logging.WARNING)  # switches that refuse are part of it, thousands of times
    yield Sequences()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("brokers", [1, 2])
def test_promises_hold_at_every_instant(world: Sequences, brokers: int) -> None:
    for seed in range(SEQUENCES // brokers):
        rng = Random(seed)
        try:
            world.run(rng, rng.randint(3, 12), brokers)
        except BaseException as error:
            error.add_note(f"sequence {seed} of {brokers} brokers")
            raise
    # It would prove little if nothing ever came that far.
    assert min(world.states[state] for state in ("released", "expired", "best_effort")) > 30
    assert world.states["failed"] > 5


def contents(state: NetworkState) -> bytes:
    """All that decisions read, but for what the ledger remembers of its own answers."""
    ledger = {name: value for name, value in vars(state.ledger).items() if name != "_classes"}
    active = {name: value for name, value in vars(state.active).items() if name != "_templates"}
    return pickle.dumps((ledger, active, state.unusable))


def watched(decision: Callable[..., Any], calls: dict[str, int]) -> Callable[..., Any]:
    """The decision, which must leave the state as it was."""

    def decide(self: Any, *args: Any, **more: Any) -> Any:
        before = contents(self._state)
        try:
            return decision(self, *args, **more)
        finally:
            assert contents(self._state) == before, decision.__qualname__
            calls[decision.__name__] = calls.get(decision.__name__, 0) + 1

    return decide


def test_decisions_change_nothing(world: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, int] = {}
    for decides in (Admission, RequestBuilder):
        for name, method in inspect.getmembers(decides, inspect.isfunction):
            if not name.startswith("_"):
                monkeypatch.setattr(decides, name, watched(method, calls))
    for seed in range(40):
        world.run(Random(seed), 8, 1)
    assert {"build", "decide", "readmit", "next_claim"} <= calls.keys()


def test_changes_are_values_until_they_are_committed(
    world: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, int] = {}

    def read(arguments: tuple[Any, ...]) -> list[bytes]:
        return [
            contents(value) if isinstance(value, NetworkState) else pickle.dumps(value)
            for value in arguments
            if isinstance(value, (NetworkState, Transit))
        ]

    def watch(made: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **more: Any) -> Any:
            before = read(args)
            result = made(*args, **more)
            assert read(args) == before, made.__name__
            calls[made.__name__] = calls.get(made.__name__, 0) + 1
            return result

        return make

    for name, made in inspect.getmembers(changes, inspect.isfunction):
        for user in (advance, lifecycle, modifications, placement):
            if made.__module__ == changes.__name__ and getattr(user, name, None) is made:
                monkeypatch.setattr(user, name, watch(made))
    for seed in range(40):
        world.run(Random(seed), 8, 1)
    kinds = ("grant", "wait", "modification", "end", "opening")
    assert {f"{kind}_changes" for kind in kinds} <= calls.keys()


def test_a_commit_that_is_refused_changes_nothing(
    world: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, refused = Lifecycle.commit, 0

    def seen(state: NetworkState, about: list[Change]) -> object:
        known = {t.id: t for t in (*state.active.all.values(), *(c.transit for c in about))}
        transits = [
            (t.id, t.state, t.reason, t.request, t.grant.path, t.grant.lease_until)
            for t in known.values()
        ]
        return dict(state.ledger.reservations), set(state.active.all), transits

    def watched_commit(self: Lifecycle, about: list[Change], *args: Any, **more: Any) -> None:
        nonlocal refused
        before = seen(self._state, about)
        try:
            commit(self, about, *args, **more)
        except BrokerError:
            refused += 1
            assert seen(self._state, about) == before
            raise

    monkeypatch.setattr(Lifecycle, "commit", watched_commit)
    for seed in range(80):
        world.run(Random(seed), 8, 1)
    assert refused


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_promises_hold_in_a_hundred_thousand_sequences() -> None:
    count, states = 0, dict[str, int]()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), gc.freeze) as pool:
        for ended in pool.map(run_some, range(FIRST, FIRST + MANY, AT_ONCE)):
            count += AT_ONCE
            for state, number in ended.items():
                states[state] = states.get(state, 0) + number
    assert count >= MANY
    assert all(states[state] > count / 100 for state in ("released", "expired", "best_effort"))


def run_some(first: int) -> dict[str, int]:
    """Runs ``AT_ONCE`` sequences, every fourth on two brokers; the states seen at their ends.

    Raises AssertionError with the number of the sequence.
    """
    logging.disable(logging.WARNING)
    world = Sequences()
    for seed in range(first, first + AT_ONCE):
        rng = Random(seed)
        try:
            world.run(rng, rng.randint(2, 9), brokers=2 if seed % 4 == 0 else 1)
        except BaseException as error:
            raise AssertionError(f"sequence {seed}: {type(error).__name__}: {error}") from error
    return world.states
