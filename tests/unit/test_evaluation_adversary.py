"""What the adversary does, and what it found: problems on which a built-in once was better."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from site_selector.evaluation.adversary import (
    QUEUE_S,
    RUNTIME_S,
    SIZE_BYTES,
    SPEED,
    WORKERS,
    Edge,
    Puzzle,
    changed,
    draw_puzzle,
    judge,
    rival,
    search,
)
from site_selector.evaluation.worlds import LINK_BPS

# Searches are chance: what is lost by a percent is not lost to a better idea.
_AS_GOOD = 1.01
LOST = json.loads(Path(__file__).with_name("lost_puzzles.json").read_text())["lost"]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: f"was {lost['ratio_then']}")
def test_what_was_lost_to_a_built_in_is_lost_no_more(lost: dict[str, Any]) -> None:
    assert lost["ratio_then"] > _AS_GOOD
    assert judge(TypeAdapter(Puzzle).validate_python(lost["puzzle"])).ratio <= _AS_GOOD


def inside(values: tuple[float, ...] | tuple[int, ...], span: tuple[float, float]) -> bool:
    return all(span[0] * (1 - 1e-9) <= value <= span[1] * (1 + 1e-9) for value in values)


@given(st.integers(0, 10**9))
def test_puzzles_stay_within_their_ranges_and_free_of_cycles(seed: int) -> None:
    rng = Random(seed)
    puzzle = draw_puzzle(rng)
    for _ in range(30):
        before, puzzle = puzzle, changed(puzzle, rng)
        assert (before.runtime_s == puzzle.runtime_s) + (before.platform == puzzle.platform) >= 1
    at = puzzle.platform
    assert inside(puzzle.runtime_s, RUNTIME_S)
    assert inside((*puzzle.result_bytes, *(e.size_bytes for e in puzzle.edges)), SIZE_BYTES)
    assert inside(at.speed, SPEED)
    assert inside(at.queue_s, QUEUE_S)
    assert inside(at.workers, WORKERS)
    for a, row in enumerate(at.link_bps):
        assert inside((*row[:a], *row[a + 1 :]), LINK_BPS)
        assert all(at.link_bps[b][a] == link for b, link in enumerate(row))
    assert len({(e.source, e.target) for e in puzzle.edges}) == len(puzzle.edges)
    trace = puzzle.trace()
    assert len(trace.tasks) == len(puzzle.runtime_s)
    assert len(trace.files) == len(puzzle.runtime_s) + len(puzzle.edges)


def test_edges_become_files() -> None:
    drawn = draw_puzzle(Random(0))
    puzzle = Puzzle((5.0, 6.0), (1e6, 2e6), (Edge(-1, 0, 3e6), Edge(0, 1, 4e6)), drawn.platform)
    trace = puzzle.trace()
    assert trace.parents == ((), (0,))
    sizes = dict(zip(trace.files, trace.size_bytes, strict=True))
    assert sizes == {"in0": 3e6, "result0": 1e6, "file0to1": 4e6, "result1": 2e6}


def test_a_search_is_settled_by_its_seed_and_no_better_than_where_it_began() -> None:
    told: list[int] = []
    found = search(3, 4, done=told.append)
    assert told == [1, 2, 3, 4]
    assert search(3, 4) == found
    name, least = rival(found)
    assert found.makespan_s[name] == least
    assert found.ratio == pytest.approx(found.makespan_s["adon"] / least)
