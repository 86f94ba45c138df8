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

from network_provisioner.selection.admission import Admission
from network_provisioner.selection.request_builder import RequestBuilder
from network_provisioner.state.network_state import NetworkState

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
