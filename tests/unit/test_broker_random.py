"""Random sequences of requests, releases, renewals, refusals, restarts and hours that pass.

Promises that hold at every instant are in :mod:`request_sequences`. There are more than a hundred
thousand sequences in tests/component; here are a few hundred, and some that Hypothesis shrinks
where they fail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_sequences import Sequences

SEQUENCES = 400


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
    assert min(world.states[state] for state in ("released", "expired", "best_effort")) > 50
    assert world.states["failed"] > 10


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 15), st.sampled_from([1, 2]))
def test_promises_hold_whatever_hypothesis_makes_of_it(
    world: Sequences, rng: Random, length: int, brokers: int
) -> None:
    world.run(rng, length, brokers)
