"""Facts of real Pegasus workflows: what kickstart, pegasus-transfer and failed jobs said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegasus_world import User, copy_pegasus
from planner_world import Case
from test_pegasus_hooks_real import case_at_both_sites, ended, plan

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive import Archive, Measurement
from monitors.follow.follower import Follower
from monitors.workflows.analysis import Analysis, analyse

pytestmark = [pytest.mark.component, pytest.mark.pegasus, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    condor = ensure("condor", progress=lambda _line: None)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as pool:
        yield User(pool, home)


def without_a_voice(root: Path, home: Path) -> Case:
    """One of its jobs fails."""
    case = case_at_both_sites(root, home)
    (root / "bin/shout").write_text('#!/bin/sh\necho "cannot shout: no voice" >&2\nexit 3\n')
    return case


@pytest.fixture(scope="module")
def facts(
    user: User, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, list[Measurement]]]:
    """What was measured of two workflows that ran at once, by name and metric."""
    root = tmp_path_factory.mktemp("wf")
    made = {"plain": case_at_both_sites, "failing": without_a_voice}
    planned = {name: plan(user, case(root / name, user.home)) for name, case in made.items()}
    for submit in planned.values():
        user.types(["pegasus-run", str(submit)], root)
    codes = {name: ended(submit) for name, submit in planned.items()}
    assert codes == {"plain": 0, "failing": 1}
    found: dict[str, dict[str, list[Measurement]]] = {}
    for name, submit in planned.items():
        with Archive(":memory:") as archive:
            Follower(submit, archive).run()
            metrics = ("job", "job_transfer", "workflow", "status", "runtime")
            found[name] = {metric: archive.query(metric) for metric in metrics}
    return found


def jobs(found: dict[str, list[Measurement]]) -> dict[str, list[dict[str, Any]]]:
    by: dict[str, list[dict[str, Any]]] = {}
    for job in found["job"]:
        by.setdefault(job.details["job"], []).append({"seconds": job.value, **job.details})
    return by


def analysed(found: dict[str, list[Measurement]]) -> Analysis:
    return analyse(found["job"] + found["job_transfer"])


def test_every_job_has_what_kickstart_wrote(
    facts: dict[str, dict[str, list[Measurement]]],
) -> None:
    found = jobs(facts["plain"])
    total = facts["plain"]["status"][-1].details["total"]
    assert len(found) == total == len(facts["plain"]["job"])
    for tries in found.values():
        (job,) = tries
        assert (job["outcome"], job["exitcode"], job["retry"]) == ("done", 0, 0)
        assert job["host"] and job["cpu_s"] > 0 and job["stderr"] == ""
    split = found["split_ID1"][0]
    assert (split["task"], split["bytes_in"], split["bytes_out"]) == ("ID1", 19, 19)
    assert found["join_ID4"][0]["bytes_in"] == 10


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
    (failed,) = analysed(facts["failing"]).failures
    assert (failed.job, failed.site, failed.attempts) == ("shout_ID2", "tacc", 2)
    assert "t::shout:1.0@tacc" not in {m.subject for m in facts["failing"]["runtime"]}
