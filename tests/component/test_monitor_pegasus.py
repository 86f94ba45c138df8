"""Workflows that a real Pegasus planned: what kickstart, pegasus-transfer and failed jobs said, and
a workflow within a workflow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegasus_world import (
    User,
    case_at_both_sites,
    case_in_another_workflow,
    copy_pegasus,
    lists_inputs,
)
from planner_world import Case
from test_pegasus_hooks_real import ended, plan

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive, Measurement
from monitors.workflows.analysis import Analysis, analyse
from monitors.workflows.discovery import DATABASE, FoundWorkflow, PegasusDatabase
from monitors.workflows.follower import Follower
from monitors.workflows.inquiries import ask, parsed
from monitors.workflows.logs.status import FIELDS, WorkflowState

pytestmark = [
    pytest.mark.component,
    pytest.mark.long,
    pytest.mark.pegasus,
    pytest.mark.timeout(1800),
]

WAIT_S = 300.0


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    condor = ensure("condor", progress=lambda _line: None)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as pool:
        yield User(pool, home)


def without_a_voice(root: Path, home: Path) -> Case:
    """One of its jobs fails. Each fetches its files itself, from the staging site ``local``."""
    case = case_at_both_sites(root, home)
    (root / "pegasus.properties").write_text("pegasus.data.configuration = nonsharedfs\n")
    wrote = "mkdir -p out; echo A > out/A.txt"  # else PegasusLite waits minutes for it
    complaint = 'echo "cannot shout: no voice" >&2'
    (root / "bin/shout").write_text(f"#!/bin/sh\n{wrote}\n{complaint}\nexit 3\n")
    return case


@pytest.fixture(scope="module")
def facts(
    user: User, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, list[Measurement]]]:
    """What was measured of two workflows that ran at once, by name and metric."""
    root = tmp_path_factory.mktemp("wf")
    cases = {"plain": case_at_both_sites, "failing": without_a_voice}
    more = {"plain": [], "failing": ["--staging-site", "mu=local,tacc=local"]}
    planned = {
        name: plan(user, case(root / name, user.home), *more[name]) for name, case in cases.items()
    }
    for submit in planned.values():
        user.types(["pegasus-run", str(submit)], root)
    codes = {name: ended(submit) for name, submit in planned.items()}
    assert codes == {"plain": 0, "failing": 1}
    measurements: dict[str, dict[str, list[Measurement]]] = {}
    for name, submit in planned.items():
        with Archive(":memory:") as archive:
            Follower(submit, archive).run()
            metrics = ("job", "job_transfer", "workflow", "status", "runtime")
            measurements[name] = {metric: archive.query(metric) for metric in metrics}
    return measurements


def jobs(measurements: dict[str, list[Measurement]]) -> dict[str, list[dict[str, Any]]]:
    by: dict[str, list[dict[str, Any]]] = {}
    for job in measurements["job"]:
        by.setdefault(job.details["job"], []).append({"seconds": job.value, **job.details})
    return by


def analysed(measurements: dict[str, list[Measurement]]) -> Analysis:
    return analyse(measurements["job"] + measurements["job_transfer"])


def test_every_job_has_what_kickstart_wrote(
    user: User, facts: dict[str, dict[str, list[Measurement]]]
) -> None:
    attempts = jobs(facts["plain"])
    total = facts["plain"]["status"][-1].details["total"]
    assert len(attempts) == total == len(facts["plain"]["job"])
    for tries in attempts.values():
        (job,) = tries
        assert (job["outcome"], job["exitcode"], job["retry"]) == ("done", 0, 0)
        assert job["host"] and job["cpu_s"] > 0 and job["stderr"] == ""
    split = attempts["split_ID1"][0]
    read = {"split_ID1": 19, "join_ID4": 10} if lists_inputs(user.home) else {}
    assert (split["task"], split["bytes_out"]) == ("ID1", 19)
    for job in ("split_ID1", "join_ID4"):
        assert attempts[job][0]["bytes_in"] == read.get(job, 0)


def test_every_transfer_between_sites_has_its_bytes(
    facts: dict[str, dict[str, list[Measurement]]],
) -> None:
    made = analysed(facts["plain"])
    moved = {(row.src, row.dst): row for row in made.transfers}
    assert set(moved) == {("local", "mu"), ("mu", "tacc"), ("mu", "local"), ("tacc", "local")}
    assert moved["local", "mu"].bytes == 19
    assert moved["mu", "tacc"].bytes == 8 + 2
    for row in made.transfers:
        assert (row.tool, row.failed, row.unsized) == ("pegasus-transfer", 0, 0)
        assert row.paths == [] and row.best_effort == 0  # nobody asked for a path here
    assert made.failures == []


def test_a_failed_job_says_what_its_program_said(
    facts: dict[str, dict[str, list[Measurement]]],
) -> None:
    tries = jobs(facts["failing"])["shout_ID2"]
    assert [(t["attempt"], t["retry"], t["exitcode"]) for t in tries] == [(0, 0, 3), (1, 1, 3)]
    assert {t["stderr"] for t in tries} == {"cannot shout: no voice"}
    made = analysed(facts["failing"])
    (failed,) = made.failures
    assert (failed.job, failed.site, failed.attempts) == ("shout_ID2", "tacc", 2)
    assert "t::shout:1.0@tacc" not in {m.subject for m in facts["failing"]["runtime"]}
    assert failed.output.endswith("shout_ID2.out.001") and Path(failed.output).is_file()
    assert made.lost_slot_s > made.lost_s  # by all that PegasusLite did around it


def test_what_jobs_fetch_from_a_staging_site_called_local_has_its_bytes(
    facts: dict[str, dict[str, list[Measurement]]],
) -> None:
    moved = {(row.src, row.dst): row.bytes for row in analysed(facts["failing"]).transfers}
    assert moved["local", "mu"] == 19 + 11
    assert moved["local", "tacc"] == 2 * 8
    assert moved["mu", "local"] == 8 + 11 + 2


# ------------------------------------------------------------------ workflows within workflows


def test_a_users_workflows_are_found_and_followed_with_those_inside(
    user: User, tmp_path: Path
) -> None:
    pool = user.pool
    case = case_in_another_workflow(tmp_path / "wf", user.home)
    planned = user.types(
        ["pegasus-plan", "--json", "--sites", "mu,tacc", "--output-sites", "local", "--dir",
         "submit", "workflow.yml"], case.root,
    )  # fmt: skip
    submit = Path(json.loads(planned)["submit_dir"])
    database = tmp_path / "archive.sqlite"
    env = pool.env() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "adon", "monitor", "run", "--mine", "--keep", "--json",
               "--archive", str(database), "--since", "1 s"]  # fmt: skip
    with subprocess.Popen(
        pool.command(command), env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as monitor:  # fmt: skip
        try:
            user.types(["pegasus-run", str(submit)], case.root)
            assert monitor.stdout is not None
            lines = _until_done(monitor.stdout, "outer")
        finally:
            os.killpg(monitor.pid, signal.SIGTERM)
        assert monitor.wait(WAIT_S) == 0
    # A user who ran something in this home a second ago is followed, too.
    (ours,) = {line["id"] for line in lines if line["workflow"] == "outer"}
    lines = [line for line in lines if line["root"] == ours]
    last = {line["workflow"]: line for line in lines}
    assert last["mini"]["root"] == last["mini"]["parent"] == last["outer"]["id"]
    assert last["mini"]["id"] != last["outer"]["id"]
    assert (last["outer"]["state"], last["mini"]["state"]) == ("done", "done")
    shares = [line["percent_done"] for line in lines if line["workflow"] == "mini"]
    assert len(shares) > 3 and shares == sorted(shares)

    # All of it together is what pegasus-status makes of it, and each is what it makes of each.
    theirs = json.loads(user.types(["pegasus-status", "-j", "-Q", str(submit)], case.root))
    assert last["outer"]["total"] == _fields(theirs["totals"])
    assert {name: last["outer"][name] for name in FIELDS} == _fields(theirs["dags"]["root"])
    status = parsed(json.dumps(theirs), 1.0)
    assert status is not None and (status.done, status.state) == (
        last["outer"]["done"],
        WorkflowState.DONE,
    )
    assert parsed(ask(submit), 1.0) == status  # as it is asked where DAGMan is not understood
    home = Path(user.types(["sh", "-c", "echo $HOME"], case.root).strip())
    assert FoundWorkflow(submit) in PegasusDatabase(home / DATABASE, lambda: 0.0).observe()

    with Archive(database) as recorded, Archive(":memory:") as afterwards:
        every = recorded.query("workflow")
        facts = {m.details["name"]: m for m in every if m.details["root"] == ours}
        assert facts["mini"].details["parent"] == facts["outer"].subject
        assert facts["mini"].details["root"] == facts["outer"].subject
        assert facts["outer"].details["submit_dir"] == str(submit)
        assert facts["outer"].details["user"] == facts["mini"].details["user"] != ""
        mine = {fact.subject for fact in facts.values()}
        # A later reader finds what was recorded live.
        Follower(submit, afterwards).run()
        changes = _changes(recorded)
        assert _changes(afterwards) == {name: changes[name] for name in changes if name in mine}


def _changes(archive: Archive) -> dict[str, list[str]]:
    """The ids of all changes of each workflow, in their order."""
    ids: dict[str, list[str]] = {}
    for status in archive.query("status"):
        ids.setdefault(status.subject, []).append(status.id)
    return ids


def _fields(theirs: dict[str, Any]) -> dict[str, float]:
    names = dict.fromkeys(FIELDS) | {"in_queue": "queued", "done": "succeeded", "fail": "failed"}
    return {ours: theirs[name or ours] for ours, name in names.items()}


def _until_done(stream: Any, name: str) -> list[dict[str, Any]]:
    """What the monitor prints until a workflow has ended."""
    lines: list[dict[str, Any]] = []
    timer = threading.Timer(WAIT_S, stream.close)
    timer.start()
    try:
        for line in stream:
            lines.append(json.loads(line))
            if lines[-1]["workflow"] == name and lines[-1]["state"] != "running":
                return lines
    finally:
        timer.cancel()
    raise AssertionError(lines[-3:])
