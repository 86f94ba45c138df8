"""The demo where a real Pegasus is on PATH: it plans, and every transfer has its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo_runs import LATE, left_of, run

from monitors.workflows.planned import job_files

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.pegasus,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]


def test_pegasus_plans_and_each_transfer_gives_back_what_it_got(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert ran.code == 0, ran.output
    assert left_of(tmp_path) == []
    report = ran.report
    assert (report["planner"], report["workflow"]["state"]) == ("pegasus-plan", "success")
    assert (report["open_reservations_at_end"], report["flows_left_on_switches"]) == (0, 0)
    assert report["workflow"]["dag_jobs"] > report["workflow"]["jobs"]
    assert report["science"]["recall"] >= 0.9 and not ran.warnings

    (submit_dir,) = tmp_path.glob(".adon/testbed/submit/*/pegasus/soykb/run0001")
    lists = {path.stem for path in submit_dir.rglob("stage_*.in")}
    assert len(lists) >= 2
    lines = job_files.read_lines(submit_dir / job_files.HOOK_JOURNAL)
    for event in ("decision", "transfer"):
        assert {line["job"] for line in lines if line["event"] == event} == lists
    if ran.warnings == report["warnings"]:  # nobody was out of breath
        assert all(line["given_back"] for line in lines if line["event"] == "transfer")
    transits = report["transits"]
    assert {transit["job"] for transit in transits} == lists
    for transit in transits:
        assert transit["released_at"] > 0 and transit["bytes"] > 0
        # What is too small for a circuit goes without one.
        assert transit["path"] or "below" in transit["reason"] or LATE in transit["reason"], transit
    # Out of breath now and then, and not for good.
    assert not all(LATE in transit["reason"] for transit in transits)
    # From server to server: only what lies in iRODS was carried through the submit host.
    carried = {p.stem for p in submit_dir.rglob("stage_in*.in") if "irods://" in p.read_text()}
    through = {t["job"] for t in transits if "local" in (t["src"], t["dst"]) and "in_" in t["job"]}
    assert carried and through == carried
