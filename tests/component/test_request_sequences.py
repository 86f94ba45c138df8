"""More than a hundred thousand random sequences of requests, on all processors.

What must hold at every instant of them is in :mod:`request_sequences`; tests/unit runs a few.
``ADON_SEQUENCES`` sets how many.
"""

from __future__ import annotations

import gc
import logging
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import pytest
from request_sequences import Sequences

pytestmark = [pytest.mark.component, pytest.mark.timeout(3000)]

COUNT = int(os.environ.get("ADON_SEQUENCES", "100500"))
AT_ONCE = 250
FIRST = 1_000_000  # of the seeds, which others do not use


def begin() -> None:
    """They take what the tests that run meanwhile leave, and what was imported is no garbage."""
    os.nice(19)
    gc.freeze()


def run_some(first: int) -> tuple[int, int, dict[str, int]]:
    """Runs ``AT_ONCE`` sequences; how many those were, their steps, and states seen at their ends.

    Every fourth has two brokers. Raises AssertionError with the number of the sequence.
    """
    logging.disable(logging.WARNING)
    world = Sequences()
    for seed in range(first, first + AT_ONCE):
        rng = Random(seed)
        try:
            world.run(rng, rng.randint(2, 9), brokers=2 if seed % 4 == 0 else 1)
        except BaseException as error:
            raise AssertionError(f"sequence {seed}: {type(error).__name__}: {error}") from error
    return AT_ONCE, world.steps, world.states


def test_promises_hold_in_a_hundred_thousand_sequences() -> None:
    count, steps, states = 0, 0, dict[str, int]()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), begin) as pool:
        for some, taken, ended in pool.map(run_some, range(FIRST, FIRST + COUNT, AT_ONCE)):
            count, steps = count + some, steps + taken
            for state, number in ended.items():
                states[state] = states.get(state, 0) + number
    print(f"{count:,} sequences, {steps:,} steps, ended as {states}")
    assert count >= COUNT
    assert all(states[state] > count / 100 for state in ("released", "expired", "best_effort"))
