"""A planned workflow on a real HTCondor pool: real DAGMan, real pegasus-transfer, real hooks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooks_world import journal, write_config
from planner_world import MAPPING, RESULT, Case, by_file, make_case

from adon.machine.packages import ensure
from examples.testbed import dagman
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.workflows.planned import job_files
from monitors.workflows.report import failures
from pegasus_hooks.planner import Options, PlannedWorkflow, plan
from site_selector.estimates.estimating import estimate_world
from site_selector.mapping.mapper import map_workflow

pytestmark = pytest.mark.component
_ENOUGH_S = 600.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    run_dir = tmp_path_factory.mktemp("pool")
    condor = ensure("condor", progress=lambda _line: None)
    sites = {"mu": SiteSpec(workers=1), "tacc": SiteSpec(workers=2)}
    with Pool(run_dir, condor, sites) as condor_pool:
        yield condor_pool


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path, by_file)


def run(case: Case, pool: Pool, **options: object) -> tuple[PlannedWorkflow, str]:
    hooks = write_config(case.root / "hooks.json", "http://127.0.0.1:9")
    inputs = case.inputs()
    settings = Options(user="u", python=sys.executable, **options)  # type: ignore[arg-type]
    planned = plan(inputs, case.sources, MAPPING, case.root / "submit", "store", hooks, settings)
    cluster = dagman.submit_dag(planned.dag, pool.run)
    end = dagman.wait(planned.dag, cluster, _ENOUGH_S)
    return planned, end.state


def test_a_planned_workflow_runs_to_its_results(case: Case, pool: Pool) -> None:
    planned, state = run(case, pool)
    log = (planned.dag.with_name(planned.dag.name + ".dagman.out")).read_text()
    assert state == "success", log[-3000:]
    assert (case.storage("store") / "result.txt").read_text() == RESULT
    assert (case.storage("store") / "n.txt").read_text() == "2\n"
    for site in ("mu", "tacc"):  # the run's directories are gone
        assert not (case.scratch(site) / "u/pegasus/mini/run0001").exists()
    # Sizes of what jobs wrote were known to the transfers after them; out/A.txt was not moved.
    sizes = job_files.known_sizes(planned.submit_dir)
    assert sizes == {"a.txt": 8, "b.txt": 11, "n.txt": 2, "result.txt": 10}
    moved = [line for line in journal(planned.submit_dir) if line["event"] == "transfer"]
    assert {(m["src"], m["dst"], m["bytes"], m["outcome"]) for m in moved} == {
        ("store", "mu", 19, "success"),
        ("mu", "tacc", 8, "success"),
        ("mu", "tacc", 2, "success"),
        ("mu", "store", 2, "success"),
        ("tacc", "store", 10, "success"),
    }
    # No broker was there: each transfer says so, none failed.
    assert any("best effort" in reason for reason in job_files.warnings(planned.submit_dir))
    states = (planned.submit_dir / "jobstate.log").read_text()
    assert "join_ID4 JOB_SUCCESS" in states


def starts(case: Case, pool: Pool, handed_over: bool) -> list[str]:
    """The order in which three jobs start on two slots, of which the third takes longest."""
    naps = {"A1": 1, "A2": 1, "C": 3}
    program = case.root / "bin/nap"
    # The first two end when both have begun, so that none of them waits for the third.
    program.write_text(
        f'#!/bin/sh\n[ "$1" = 1 ] || exec sleep "$1"\ntouch {case.root}/began.$$\nsleep "$1"\n'
        f'until [ "$(ls {case.root} | grep -c "^began")" -ge 2 ]; do sleep 0.1; done\n'
    )
    program.chmod(0o755)
    place = {"name": "tacc", "pfn": str(program), "type": "installed"}
    entry = {"namespace": "t", "name": "nap", "version": "1.0", "sites": [place]}
    case.change("transformations", lambda d: d["transformations"].append(entry))
    jobs = [
        {"type": "job", "namespace": "t", "name": "nap", "version": "1.0", "id": name, "uses": [],
         "arguments": [str(seconds)], "profiles": {"pegasus": {"runtime": str(seconds)}}}
        for name, seconds in naps.items()
    ]  # fmt: skip
    case.change("workflow", lambda d: d.update(jobs=jobs))
    inputs = case.inputs()
    mapping = map_workflow(inputs, estimate_world(inputs, now=0.0))
    planned = plan(
        inputs, case.sources, mapping.sites, case.root / "submit", "store", None,
        Options(user="u", python=sys.executable, cleanup=False),
        mapping.priorities if handed_over else None,
    )  # fmt: skip
    end = dagman.wait(planned.dag, dagman.submit_dag(planned.dag, pool.run), _ENOUGH_S)
    assert end.state == "success"
    records = {
        name: json.loads(out.read_text().rpartition("adon-job-record:")[2])
        for name in naps
        for out in planned.submit_dir.rglob(f"nap_{name}.out")
    }
    return sorted(records, key=lambda name: records[name]["start"])


def test_the_long_job_starts_first_by_its_priority_and_last_without(
    case: Case, pool: Pool, tmp_path: Path
) -> None:
    assert "C" in starts(case, pool, handed_over=True)[:2]
    assert starts(make_case(tmp_path / "as-pegasus", by_file), pool, handed_over=False)[2] == "C"


@pytest.mark.long
def test_a_job_that_fails_is_tried_again_and_fails_the_workflow(case: Case, pool: Pool) -> None:
    (case.root / "bin/join").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    planned, state = run(case, pool, retries=1)
    assert state == "failed"
    folder = planned.submit_dir / planned.jobs["join_ID4"].folder
    output = (folder / "join_ID4.out").read_text()
    record = json.loads(output.rpartition("adon-job-record:")[2])
    assert (record["exitcode"], record["missing"]) == (3, ["result.txt"])
    assert "broken" in (folder / "join_ID4.err").read_text()
    log = (planned.submit_dir / "jobstate.log").read_text()
    assert log.count("join_ID4 JOB_FAILURE") == 2
    (failure,) = failures(planned.submit_dir)
    assert (failure.job, failure.site, failure.exit_code, failure.attempts) == (
        "join_ID4",
        "tacc",
        3,
        2,
    )
    assert "broken" in failure.tail and folder / "join_ID4.err" in failure.files
    assert "failed with status 3" in failure.reason
    rescue = planned.dag.with_name(planned.dag.name + ".rescue001")
    assert "DONE split_ID1" in rescue.read_text()
