"""Statistics and failures of a workflow are functions of its measurements."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_world import BWA, T0, job, status, transfer

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.analysis import Spread, analyse
from monitors.workflows.logs.status import FIELDS, NOT_STARTED, Status, WorkflowState, status_text

OUTCOMES = ("done", "failed", "removed")
seconds = st.floats(0, 1e6, allow_nan=False)


@st.composite
def a_workflow(draw: st.DrawFn) -> list[Measurement]:
    measurements = []
    for n in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(["a_ID1", "b_ID2", "stage_in_0"]))
        measurements.append(
            job(
                name,
                n,
                subject=draw(st.sampled_from([BWA, "t::x:1@tacc", "pegasus::transfer@local"])),
                seconds=draw(seconds),
                at=T0 + draw(seconds),
                kind=draw(st.sampled_from(["compute", "stage_in", "other"])),
                outcome=draw(st.sampled_from(OUTCOMES)),
                cpu_s=draw(st.none() | seconds),
            )
        )
    for n in range(draw(st.integers(0, 5))):
        measurements.append(
            transfer(
                f"stage_in_{n}",
                pair=draw(st.sampled_from(["a>b", "b>a"])),
                n_bytes=draw(st.none() | st.integers(0, 10**12)),
                seconds=draw(st.floats(0.1, 1e5)),
                at=T0 + n,
                path=draw(st.sampled_from([None, [], ["a", "s", "b"]])),
                outcome=draw(st.sampled_from(OUTCOMES)),
                retries=draw(st.integers(0, 3)),
            )
        )
    return [*measurements, status()]


@settings(max_examples=25)
@given(a_workflow(), st.randoms(use_true_random=False))
def test_the_order_of_measurements_says_nothing(
    measurements: list[Measurement], random: Random
) -> None:
    shuffled = list(measurements)
    random.shuffle(shuffled)
    assert analyse(shuffled) == analyse(measurements)
    json.dumps(asdict(analyse(measurements)), allow_nan=False)


@settings(max_examples=25)
@given(a_workflow())
def test_every_attempt_and_transfer_is_counted_once(measurements: list[Measurement]) -> None:
    analysis = analyse(measurements)
    jobs = [m for m in measurements if m.metric == "job"]
    moved = [m for m in measurements if m.metric == "job_transfer"]
    assert analysis.attempts == len(jobs) == sum(analysis.outcomes.values())
    assert analysis.attempts == sum(r.count + r.failed for r in analysis.runtimes)
    assert analysis.retries == len(jobs) - len({m.details["job"] for m in jobs})
    own = [m for m in jobs if m.details["kind"] in ("compute", "other")]
    assert math.isclose(
        analysis.cumulative_s + analysis.lost_s, sum(m.value for m in own), abs_tol=1e-6
    )
    assert sum(w.count for w in analysis.waits) == len(own)
    assert sum(t.count for t in analysis.transfers) == len(moved)
    assert sum(t.bytes for t in analysis.transfers) == sum(m.details["bytes"] or 0 for m in moved)
    assert sum(t.unsized for t in analysis.transfers) == sum(
        m.details["bytes"] is None for m in moved
    )
    bad = {m.details["job"] for m in jobs if m.details["outcome"] != "done"}
    assert {f.job for f in analysis.failures} == bad
    for failed in analysis.failures:
        last = max((m for m in jobs if m.details["job"] == failed.job), key=lambda m: (m.at, m.id))
        assert failed.retried is (last.details["outcome"] == "done")


@given(st.lists(seconds, min_size=1))
def test_a_spread_lies_within_what_it_is_of(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread.min_s <= spread.mean_s <= spread.max_s
    assert spread.min_s <= spread.median_s <= spread.max_s
    assert spread.count == len(values)
    assert math.isclose(spread.total_s, sum(values))


def test_nothing_is_an_analysis_too() -> None:
    made = analyse([status()])
    assert (made.attempts, made.makespan_s, made.first_at) == (0, 0.0, None)


def test_goodput_counts_what_was_timed_and_sized() -> None:
    (row,) = analyse([
        transfer("a", n_bytes=1000, seconds=1.0), transfer("b", n_bytes=3000, seconds=1.0),
        transfer("c", n_bytes=None, seconds=50.0), transfer("d", n_bytes=77, seconds=0.0),
    ]).transfers  # fmt: skip
    assert row.goodput_bps == 8 * 4000 / 2.0
    assert row.median_bps == 8 * 2000
    assert (row.bytes, row.unsized, row.count) == (4077, 1, 4)


def test_what_was_never_submitted_says_dagmans_reason() -> None:
    never = job("s_ID1", outcome="failed", submitted_at=T0 + 60, started_at=None, starts=0,
                exitcode=None, stderr="PRE Script failed with status 1")  # fmt: skip
    (failed,) = analyse([never]).failures
    assert (failed.reason, failed.stderr) == ("PRE Script failed with status 1", "")


def test_jobs_that_failed_for_good_come_first() -> None:
    made = analyse([
        job("a", 0, outcome="failed", at=T0 + 1), job("a", 1, at=T0 + 5),
        job("b", 0, outcome="failed", at=T0 + 3),
    ])  # fmt: skip
    assert [(f.job, f.retried) for f in made.failures] == [("b", False), ("a", True)]


RUNNING = Status(7, 1, 2, 3, 0, 12, 1, 46.0, 26, WorkflowState.RUNNING, 1_700_000_000.5)


def test_comes_back_from_the_archive() -> None:
    with Archive(":memory:") as archive:
        archive.record(RUNNING.measurement("uuid", "k"))
        (kept,) = archive.query("status", "uuid")
    assert Status.from_measurement(kept) == RUNNING
    assert kept.value == 46.0
    assert kept.unit == "%"
    assert set(FIELDS) | {"state"} <= set(kept.details)


def test_one_line_shows_what_is_not_zero() -> None:
    assert status_text(RUNNING, "soykb", width=10) == (
        "soykb  [####......]  46.0 %  12 of 26 done,"
        " 3 in queue, 2 pre, 1 ready, 7 unready, 1 failed  running"
    )


def test_before_the_start_and_after_a_failed_one() -> None:
    assert status_text(None).endswith("not started")
    assert status_text(NOT_STARTED, "wf").endswith("not started")
    assert status_text(replace(NOT_STARTED, state=WorkflowState.FAILED)).endswith(
        "0 of 0 done  failed"
    )


def test_what_others_wrote_reaches_no_terminal_raw() -> None:
    failed = replace(RUNNING, state=WorkflowState.FAILED, reason="no \x1b[31margument")
    assert status_text(failed, "so\x1b]0;ykb").isprintable()


def test_three_of_four_states_are_ends() -> None:
    ended = [replace(RUNNING, state=state).ended for state in WorkflowState]
    assert ended == [False, True, True, True]
