"""The report of any user's run: from its submit directory, with archive and broker or without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from cli_world import NOBODY, adon, refusal
from hypothesis import given
from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    append,
    event,
    executing,
    exiting,
    starting,
    submitted,
    table,
    terminated,
)
from report_world import T0, chains, facts, run_facts, transit

from adon.report.document import as_json
from adon.report.drawings import MOST_BARS, MOST_JOBS, dag, groups
from adon.report.link_loads import coarser_series, transfer_rates_by_hop
from adon.report.page import render
from adon.report.run_facts import DagJob, RunFacts
from adon.report.submit_report import facts_of_run
from examples.demo.demo_run import DemoRun, Ended
from examples.demo.gather import gather
from examples.demo.supervise import BrokerProcess
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.facts.plan import FILE, workflow_facts
from monitors.workflows.planned.job_files import HOOK_JOURNAL
from monitors.workflows.planned.submit_dir import SubmitDir
from pegasus_hooks.planner.model import PlannedWorkflow

ONE, TWO, STAGE = (job[0] for job in Submitted.JOBS)


@pytest.fixture
def planned(tmp_path: Path) -> Submitted:
    """A planned workflow: data is staged, then two jobs run one after the other."""
    made = Submitted(tmp_path / "run")
    append(made.path / "wf-0.dag", f"PARENT {STAGE} CHILD {ONE}\nPARENT {ONE} CHILD {TWO}\n")
    return made


def runs(planned: Submitted, returned: int = 0) -> None:
    """All jobs run and end; the last returns a status, and DAGMan ends."""
    append(planned.out, starting())
    for n, job in enumerate((STAGE, ONE, TWO), 1):
        at, status = START + 10 * n, returned if job == TWO else 0
        append(planned.nodes, submitted(n, at, job) + executing(n, at + 2))
        append(planned.nodes, terminated(n, at + 8, status))
    line = {
        "event": "transfer", "job": STAGE, "at": START + 17, "id": "wf:1", "src": "iplant",
        "dst": "mu", "path": ["iplant", "s1", "mu"], "bytes": 8_000_000, "seconds": 4.0,
    }  # fmt: skip
    append(planned.path / HOOK_JOURNAL, json.dumps(line) + "\n")
    failed = int(returned != 0)
    append(planned.out, table(START + 40, done=3 - failed, fail=failed))
    append(planned.out, exiting(START + 41, failed))


def read(planned: Submitted, now: float = START + 100) -> RunFacts:
    return facts_of_run(SubmitDir(planned.path), now)


def test_a_run_that_ended(planned: Submitted) -> None:
    runs(planned)
    run = read(planned)
    out = as_json(run)
    assert out["workflow"] == {
        "name": "wf", "state": "success", "jobs": 2, "jobs_done": 2, "dag_jobs": 3,
        "makespan_s": 31.0, "started_at": START + 10, "ended_at": START + 41,
    }  # fmt: skip
    assert [(b.job, b.kind, b.end - b.start) for b in run.bars] == [
        (STAGE, "transfer", 6.0), (ONE, "compute", 6.0), (TWO, "compute", 6.0),
    ]  # fmt: skip
    (moved,) = run.transits
    assert (moved.grant.path, moved.usage.goodput_bps, moved.request.job) == (
        ["iplant", "s1", "mu"],
        16e6,
        STAGE,
    )
    links = [(link["from"], link["to"], link["measured_bytes"]) for link in out["links"]]
    assert sorted(links) == [("iplant", "s1", 8_000_000), ("s1", "mu", 8_000_000)]
    page = render(run)
    assert 'id="failed"' not in page and f"there is no {FILE}" in page


def test_a_run_that_failed_says_which_job(planned: Submitted) -> None:
    runs(planned, returned=3)
    page = render(read(planned))
    assert page.index('id="failed"') < page.index('id="workflow"')
    assert f"{TWO} at mu: exit code 3" in page


@pytest.mark.parametrize(("now", "ended"), [(60.0, 60.0), (900_000.0, 12.0)])
def test_a_run_that_goes_on_or_has_gone_silent(
    planned: Submitted, monkeypatch: pytest.MonkeyPatch, now: float, ended: float
) -> None:
    append(planned.out, starting() + table(START + 10, queued=1, unready=2))
    append(planned.nodes, submitted(1, START + 10, ONE) + executing(1, START + 12))
    monkeypatch.setattr(
        "monitors.workflows.followed.FollowedWorkflow.written_at", property(lambda _: START + 12)
    )
    run = read(planned, START + now)
    assert (run.state, run.ended - START) == ("running", ended)
    assert any("does DAGMan still run?" in words for words in run.warnings) == (ended < now)
    ((_, (bar,)),) = groups(run, {})
    assert bar["label"] == "align 1 unfinished" and bar["end"] == ended - 10
    assert as_json(run)["jobs"][0]["ended_at"] == 0
    assert "so far" in render(run)


def test_a_job_on_hold_is_told_with_its_reason(planned: Submitted) -> None:
    append(planned.out, starting() + table(START + 10, queued=1, unready=2))
    held = event(12, 1, START + 12, "Job was held.", "no <disk> left", "Code 13 Subcode 2")
    append(planned.nodes, submitted(1, START + 10, ONE) + held)
    (sentence,) = read(planned).waiting
    assert sentence == f"job {ONE} is on hold since 2023-11-14 22:13:32 UTC: no <disk> left"
    page = render(read(planned))
    assert "no &lt;disk&gt; left" in page.partition('id="failed"')[2]


def test_slow_transfers_without_a_path_are_listed(planned: Submitted) -> None:
    runs(planned)
    links = [
        {"a": a, "b": b, "capacity_bps": 1e12, "layer": "l2"}
        for a, b in (("iplant", "s1"), ("s1", "mu"))
    ]
    run = facts_of_run(SubmitDir(planned.path), START + 100, links=links)
    assert "iplant → s1: nothing reserved; moved 8 MB in all" in render(run)


def test_one_that_has_not_begun(planned: Submitted) -> None:
    run = read(planned)
    assert (run.state, run.jobs, run.makespan_s) == ("planned", 2, 0.0)
    assert 'id="failed"' not in render(run)


def test_why_jobs_are_where_they_are_comes_from_the_file_that_placed_them(
    planned: Submitted,
) -> None:
    terms = {"site": "mu", "seconds": 42.0, "wait_s": 1.0, "compute_s": 30.0, "transfer_s": 11.0}
    placement = {
        "job": "ID0000001", "transformation": "soykb::bwa_mem:1.0", "site": "mu", "seconds": 42.0,
        "reason": "mu is <nearest>", "alternatives": [terms, terms | {"site": "tacc"}],
    }  # fmt: skip
    placed = {"at": START, "policy": "heft", "makespan_s": 42.0, "range_s": [40.0, 50.0]}
    (planned.path / FILE).write_text(json.dumps(placed | {"placements": [placement]}))
    run = read(planned)
    page = render(run)
    assert "mu is &lt;nearest&gt;" in page and "heft was expected to end after 42 s" in page
    assert as_json(run)["placements"][0]["alternatives"][1] == {
        "site": "tacc", "t_q_s": 1.0, "t_c_s": 30.0, "t_n_s": 11.0, "t_t_s": 42.0,
    }  # fmt: skip


# -- the command -------------------------------------------------------------------------------


def test_the_command_writes_both_files_without_archive_and_broker(
    planned: Submitted, tmp_path: Path
) -> None:
    runs(planned)
    page, nowhere = tmp_path / "out" / "page.html", tmp_path / "none.sqlite"
    where = ("-o", page, "--archive", nowhere, "--broker", f"http://{NOBODY}")
    said = adon("monitor", "report", planned.path, *where)
    assert said.out.split() == [str(page), str(page.with_suffix(".json"))]
    assert "without reservations and capacities of links" in said.err
    assert json.loads(page.with_suffix(".json").read_text())["measurements"] == []


def test_the_command_takes_a_name_and_what_the_archive_knows_of_the_paths(
    planned: Submitted, tmp_path: Path
) -> None:
    runs(planned)
    file, page = tmp_path / "archive.sqlite", tmp_path / "page.html"
    rtt = Measurement("r", "rtt", "iplant>mu", 0.05, "s", START + 20, "echo")
    before = Measurement("b", "rtt", "iplant>mu", 0.07, "s", START - 20, "echo")
    with Archive(file) as archive:
        archive.record_many([workflow_facts(SubmitDir(planned.path)), rtt, before])
    where = ("-o", page, "--archive", file, "--broker", f"http://{NOBODY}")
    adon("monitor", "report", "wf", *where)
    (measured,) = json.loads(page.with_suffix(".json").read_text())["measurements"]
    assert (measured["metric"], measured["value"]) == ("rtt", 0.05)
    assert "rtt iplant → mu" in page.read_text()
    planned.path.rename(tmp_path / "elsewhere")
    assert "expected its submit directory" in refusal("monitor", "report", "wf", *where)


def test_the_demo_gathers_with_the_same_code(planned: Submitted, tmp_path: Path) -> None:
    runs(planned)

    class Answers:
        warnings = ("the broker died and was started again once",)
        samples = ()
        client = property(lambda self: self)

        def list(self, workflow: str) -> list[Any]:
            return [transit(id="wf:1", workflow=workflow, job=STAGE)]

        def topology(self) -> dict[str, Any]:
            return {"links": list(facts().links)}

        def counters(self) -> dict[str, Any]:
            return {"installed": []}

    flow = PlannedWorkflow("soykb", planned.path, planned.path / "wf-0.dag", "b7a9", "embedded")
    run = DemoRun(planned=flow, end=Ended("success", START, START + 50))
    with Archive(tmp_path / "archive.sqlite") as archive:
        demo_facts = gather(run, "x", "simulated", "", 0, archive, cast(BrokerProcess, Answers()))
    assert (demo_facts.planner, demo_facts.workflow, demo_facts.state) == (
        "embedded",
        "soykb",
        "success",
    )
    assert (demo_facts.makespan_s, demo_facts.jobs_done, demo_facts.dag_jobs) == (50.0, 2, 3)
    assert [t.grant.granted_bps for t in demo_facts.transits] == [100e6] and len(
        demo_facts.links
    ) == 2


# -- many jobs ---------------------------------------------------------------------------------


def test_jobs_that_the_planner_added_are_passed_over() -> None:
    run = run_facts(
        dag=[
            DagJob("a", "a", "mu"),
            DagJob("inter", "transfer", "local", shown=False),
            DagJob("b", "b", "tacc"),
        ],
        edges=[("a", "inter"), ("inter", "b"), ("gone", "b")],
    )
    assert dag(run)["edges"] == [("a", "b")] and len(dag(run)["jobs"]) == 2


@pytest.mark.parametrize("depth", [4, 10_000], ids=["wide", "deep"])
def test_ten_thousand_jobs_are_few_boxes_and_bars(depth: int) -> None:
    number = 10_000
    assert number > max(MOST_JOBS, MOST_BARS)
    run = chains(number, depth)
    drawn = dag(run)
    assert drawn["grouped"] == number == sum(n for j in drawn["jobs"] for _, n in j["sites"])
    assert len(drawn["jobs"]) < 1000 and len(drawn["edges"]) < 5000
    bars = [bar for _, same in groups(run, {}) for bar in same]
    assert len(bars) < 100 and any("1 ✗ failed" in bar["label"] for bar in bars)
    assert len(render(run).encode()) < 1e6


def test_jobs_that_wait_for_each_other_in_a_circle_are_drawn_all_the_same() -> None:
    jobs = [DagJob(name, name, "mu") for name in "ab"]
    run = run_facts(dag=jobs, edges=[("a", "b"), ("b", "a")])
    assert dag(run)["edges"] == [("a", "b"), ("b", "a")]


Spans = st.lists(st.tuples(st.floats(1, 50), st.floats(0.1, 50), st.integers(1, 10**9)), max_size=9)


@given(Spans, st.floats(0, 9))
def test_rates_of_transfers_lose_no_byte(
    spans: list[tuple[float, float, int]], at_s: float
) -> None:
    moved = [
        transit(released_at=T0 + start + length, seconds=length, bytes=n, path=[])
        for start, length, n in spans
    ]
    rates = transfer_rates_by_hop(moved, at_s).get(("iplant", "mu"), ())
    total = sum(rate.bps * (rate.end - rate.start) / 8 for rate in rates)
    assert total == pytest.approx(sum(n for _, _, n in spans), rel=1e-5)


@given(
    st.lists(st.tuples(st.floats(0, 99), st.integers(0, 9)), min_size=1, unique_by=lambda s: s[0]),
    st.floats(0.1, 9),
)
def test_coarser_steps_keep_the_highest_and_the_last(
    steps: list[tuple[float, int]], at_least_s: float
) -> None:
    whole = sorted((at, float(level)) for at, level in steps)
    out = coarser_series(whole, at_least_s)
    assert max(level for _, level in out) == max(level for _, level in whole)
    assert out[-1][1] == whole[-1][1] and len(out) <= 2 * (99 / at_least_s + 1)
