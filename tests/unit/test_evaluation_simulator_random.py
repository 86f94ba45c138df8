"""The simulator on workflows and platforms that nobody made up by hand."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from evaluation_rig import fluid_makespan, random_platform, random_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from site_selector.evaluation.simulator import Execution, Simulator, urgency_of
from site_selector.evaluation.worlds import Staging, true_problem
from site_selector.problem import Problem

SEEDS = st.integers(0, 10**9)
STAGING = st.sampled_from(["per-site", "per-job"])
CLOSE = 1e-6


def executed(seed: int, staging: Staging) -> tuple[Problem, list[int], Execution]:
    rng = Random(seed)
    truth = true_problem(random_trace(rng), random_platform(rng), staging)
    mapping = [rng.choice(allowed) for allowed in truth.allowed]
    return truth, mapping, Simulator(truth)(mapping)


@settings(max_examples=100)
@given(SEEDS, STAGING)
def test_as_a_slow_and_plain_simulator_has_it(seed: int, staging: Staging) -> None:
    truth, mapping, found = executed(seed, staging)
    plain = fluid_makespan(truth, mapping, list(urgency_of(truth)))
    assert found.makespan_s == pytest.approx(plain, rel=1e-6, abs=1e-6)


@settings(max_examples=100)
@given(SEEDS, STAGING)
def test_bytes_are_conserved(seed: int, staging: Staging) -> None:
    """What is moved is what must move: each input where it is needed, each result where it is
    wanted, as often as staging says and not once more."""
    truth, mapping, found = executed(seed, staging)
    needed: Counter[tuple[int, int]] = Counter()
    for f, readers in enumerate(truth.readers):
        made = truth.producer[f]
        at = {mapping[made]} if made >= 0 else set(truth.holders[f])
        places = [mapping[j] for j in readers if mapping[j] not in at]
        needed.update((f, d) for d in (places if staging == "per-job" else set(places)))
        back = made >= 0 and truth.returns[f] and truth.output not in at
        if back and (staging == "per-job" or truth.output not in places):
            needed[f, truth.output] += 1
    assert Counter((move.file, move.dst) for move in found.moves) == needed
    for move in found.moves:
        made = truth.producer[move.file]
        assert move.src == mapping[made] if made >= 0 else move.src in truth.holders[move.file]


@settings(max_examples=100)
@given(SEEDS, STAGING)
def test_no_link_carries_more_than_it_can(seed: int, staging: Staging) -> None:
    """In any span of time, the bytes of all transfers that lie within it fit through the link; and
    no link idles while it has something to do."""
    truth, _, found = executed(seed, staging)
    links: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for move in found.moves:
        span = (move.start_s, move.end_s, truth.size[move.file])
        links.setdefault((move.src, move.dst), []).append(span)
    for path, spans in links.items():
        seconds = float(truth.seconds_per_byte[path])
        for start, _, _ in spans:
            for _, end, _ in spans:
                inside = sum(size for a, b, size in spans if a >= start and b <= end)
                assert inside * seconds <= end - start + CLOSE or end < start
        busy, until = 0.0, 0.0
        for start, end, _ in sorted(spans):
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
        assert busy == pytest.approx(sum(size for *_, size in spans) * seconds, abs=CLOSE)


@settings(max_examples=100)
@given(SEEDS, STAGING)
def test_core_seconds_are_conserved_and_no_site_is_overbooked(seed: int, staging: Staging) -> None:
    truth, mapping, found = executed(seed, staging)
    for job, site in enumerate(mapping):
        ran = found.end_s[job] - found.start_s[job]
        assert ran == pytest.approx(float(truth.compute_s[job, site]), abs=CLOSE)
    for site, workers in enumerate(truth.workers):
        jobs = [j for j, at in enumerate(mapping) if at == site]
        for now in (found.start_s[j] for j in jobs):
            running = sum(found.start_s[j] <= now < found.end_s[j] - CLOSE for j in jobs)
            assert running <= workers


@settings(max_examples=100)
@given(SEEDS, STAGING)
def test_no_job_starts_before_it_can(seed: int, staging: Staging) -> None:
    truth, mapping, found = executed(seed, staging)
    arrived = {(m.file, m.dst, m.job): m.end_s for m in found.moves}
    for job, site in enumerate(mapping):
        earliest = max((found.end_s[p] for p in truth.parents[job]), default=0.0)
        for f in truth.reads[job]:
            made = truth.producer[f]
            if made >= 0 and mapping[made] == site:
                earliest = max(earliest, found.end_s[made])
            elif made >= 0 or site not in truth.holders[f]:
                whom = job if staging == "per-job" else None
                earliest = max(earliest, arrived[f, site, whom])
        assert found.ready_s[job] == earliest
        assert found.start_s[job] >= earliest + float(truth.queue_s[site]) - CLOSE
    ends = [*found.end_s, *(move.end_s for move in found.moves)]
    assert found.makespan_s == max(ends)
