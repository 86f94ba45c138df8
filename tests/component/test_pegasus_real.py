"""A real Pegasus on a real pool: planned, started and judged by it, hooked and followed by ADON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hooks_world import journal, write_config
from planner_world import MAPPING, RESULT, Case, by_file, make_case

from adon.demo import running
from adon.demo.gather import Ended
from adon.planning import plan_workflow
from adon.testbed.packages import ensure
from adon.testbed.pool import Pool
from adon.testbed.poolconfig import SiteSpec
from monitors.archive import Archive
from pegasus_hooks import pegasus_plan, submitdir
from pegasus_hooks.planner.model import PlannedWorkflow
from site_selector.placement import Mapping, Placement

pytestmark = [pytest.mark.component, pytest.mark.pegasus]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = ensure("condor", progress=lambda _line: None)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as found:
        yield found


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Sites on one file system, which Pegasus has to be told, and where it is installed itself."""
    planner = pegasus_plan.find_planner()
    assert planner is not None
    home = str(planner.resolve().parents[1])
    case = make_case(tmp_path, by_file)

    def sites(document: Any) -> None:
        for site in document["sites"]:
            # No WHERE: of local's environment Pegasus makes DAGMan's, and quotes no space.
            site["profiles"]["env"] = {"PEGASUS_HOME": home}
            site["profiles"]["pegasus"]["auxillary.local"] = "true"

    def needs(document: Any) -> None:
        for entry in document["transformations"]:
            entry["profiles"] = {"pegasus": {"memory": 128, "diskspace": 64}}

    def files(document: Any) -> None:
        for use in (use for job in document["jobs"] for use in job["uses"]):
            use["registerReplica"] = False

    # Pegasus makes no folders for the files of jobs in a shared file system.
    shout = case.root / "bin/shout"
    shout.write_text(shout.read_text().replace("tr a-z", "mkdir -p out; tr a-z"))
    case.change("workflow", files)
    case.change("sites", sites)
    case.change("transformations", needs)
    case.change("replicas", lambda d: d["replicas"][0]["pfns"][0].update(site="local"))
    return case


def run(case: Case, pool: Pool) -> tuple[PlannedWorkflow, Ended, Archive]:
    places = (Placement(job, "t::x:1.0", site, "", ()) for job, site in MAPPING.items())
    mapping = Mapping("mini", "test", 0.0, {}, tuple(places), {})
    planned = plan_workflow(
        case.inputs(),
        case.sources,
        mapping,
        case.root / "submit",
        "local",
        write_config(case.root / "hooks.json", "http://127.0.0.1:9"),
        run=running.pegasus_runner(pool),
    )
    archive = Archive(case.root / "archive.sqlite")
    return planned, running.follow(planned, pool, archive, print, lambda _stuck: None), archive


def test_what_pegasus_plans_runs_with_our_hooks(case: Case, pool: Pool) -> None:
    planned, end, archive = run(case, pool)
    told = planned.dag.with_name(planned.dag.name + ".dagman.out").read_text()
    assert (planned.planner, end.state) == ("pegasus-plan", "success"), told[-3000:]
    assert (case.storage("local") / "result.txt").read_text() == RESULT
    with archive:
        ran = archive.query("runtime", workflow=planned.wf_uuid)
        assert {(m.subject, m.source) for m in ran} == {
            (f"t::{name}:1.0@{site}", "kickstart")
            for name, site in (
                ("split", "mu"), ("shout", "tacc"), ("count", "mu"), ("join", "tacc")
            )
        }  # fmt: skip
        assert all(m.details["bytes_in"] > 0 for m in ran)
        assert archive.query("status", workflow=planned.wf_uuid)[-1].value == 100.0
    # Sizes of what jobs wrote, as kickstart saw them, were known to the transfers after them, and
    # pegasus-transfer left its records where POST reads them.
    assert submitdir.known_sizes(planned.submit_dir)["result.txt"] == len(RESULT)
    lines = journal(planned.submit_dir)
    moved = [line for line in lines if line["event"] == "transfer"]
    assert {(m["src"], m["dst"], m["bytes"], m["outcome"]) for m in moved} >= {
        ("local", "mu", 19, "success"),
        ("mu", "tacc", 8, "success"),
        ("tacc", "local", 10, "success"),
    }
    asked = {(line["job"], line["src"]) for line in lines if line["event"] == "decision"}
    assert {(m["job"], m["src"]) for m in moved} == asked


def test_a_workflow_that_fails_is_told_so_although_pegasus_dagman_leaves_with_0(
    case: Case, pool: Pool
) -> None:
    (case.root / "bin/join").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    _planned, end, archive = run(case, pool)
    archive.close()
    assert end.state == "failed"
