"""A real DAGMan on a real pool, as the expander sees it: what is coming, look by look."""

from __future__ import annotations

import json
import time
from pathlib import Path

import classad2
import pytest
from waiting import until

from condor_plugins.pool.dags import JOB_ATTRIBUTES, FollowedDag, FollowedDags
from condor_plugins.pool.run_times import RunTimes
from examples.testbed import dagman
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.workflows.planned.forecast import forecast

pytestmark = pytest.mark.component
POOL = {"mu": SiteSpec(workers=2)}  # of the fixture `pool`

WIDE = {"b1", "b2", "b3"}


def plan(folder: Path) -> Path:
    """``a -> b1 b2 b3 -> c``: jobs that end when somebody says so."""
    folder.mkdir()
    script = folder / "nap.sh"
    script.write_text(f"#!/bin/sh\nwhile [ ! -e {folder}/$1 ]; do sleep 0.2; done\n")
    script.chmod(0o755)
    (folder / "nap.sub").write_text(
        f"executable = {script}\narguments = $(level)\nshould_transfer_files = NO\n"
        'requirements = PegasusSite == "mu"\nrequest_memory = 32\nlog = nap.log\nqueue\n'
    )
    dag = folder / "wide.dag"
    dag.write_text(
        "".join(
            f'JOB {name} nap.sub\nVARS {name} level="{name[0]}"\n' for name in ["a", *WIDE, "c"]
        )
        + "PARENT a CHILD b1 b2 b3\nPARENT b1 b2 b3 CHILD c\n"
    )
    return dag


class Looks:
    def __init__(self, pool: Pool, follow: FollowedDags) -> None:
        self.pool, self.follow = pool, follow

    def observe(self) -> FollowedDag | None:
        wanted = ["condor_q", "-allusers", "-json", "-attributes", ",".join(JOB_ATTRIBUTES)]
        jobs = json.loads(self.pool.run(wanted) or "[]")
        dags = self.follow.observe([{**ad, "ScheddName": "hub"} for ad in jobs], time.time())
        assert self.follow.take_warnings() == []
        return dags[0] if dags else None

    def runs(self, *jobs: str) -> FollowedDag | None:
        """The DAG, once so many of these run as there are slots, and the others wait."""
        dag = self.observe()
        if dag is None or {*dag.state.running, *dag.state.queued} != set(jobs):
            return None
        return dag if len(dag.state.running) == min(2, len(jobs)) else None


def coming(dag: FollowedDag) -> set[str]:
    now = time.time()
    jobs = forecast([dag.state], [now, now], 60.0, now, now + 3600.0)
    return {job.name for job in jobs} - set(dag.state.queued)


def test_the_wide_level_is_known_before_it_is_in_the_queue(pool: Pool, tmp_path: Path) -> None:
    dag = plan(tmp_path / "wide")
    cluster = dagman.submit_dag(dag, pool.run)
    looks = Looks(pool, FollowedDags(RunTimes(None, 60.0)))
    first = until(lambda: looks.runs("a"), "the first job to run")
    assert first is not None
    assert (first.cluster, first.workflow, first.state.done) == (cluster, "", set())
    assert first.user.startswith(f"{pool.user.name}@")
    assert coming(first) == {*WIDE, "c"}
    assert first.request("b1")["RequestMemory"] == 32
    slots = list(classad2.parseAds(pool.run(["condor_status", "-long"])))
    assert any(first.request("b1").symmetricMatch(slot) for slot in slots)
    (tmp_path / "wide/a").touch()
    wide = until(lambda: looks.runs(*WIDE), "the wide level")
    assert wide is not None
    assert wide.state.done == {"a"}
    assert coming(wide) == {"c"}
    (tmp_path / "wide/b").touch()
    last = until(lambda: looks.runs("c"), "the last job to run")
    assert last is not None
    assert last.state.done == {"a", *WIDE}
    assert coming(last) == set()
    (tmp_path / "wide/c").touch()
    assert dagman.wait(dag, cluster, 600) == dagman.DagEnd("success", 0)
    until(lambda: looks.observe() is None, "DAGMan to leave the queue")
