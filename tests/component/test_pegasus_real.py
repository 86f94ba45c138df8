"""A real Pegasus on a real pool: planned, started and judged by it, hooked and followed by ADON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hooks_world import journal, write_config
from pegasus_world import lists_inputs, make_pegasus_case
from planner_world import MAPPING, RESULT, Case

from adon.planning.planner import plan_workflow
from examples.demo import running
from examples.demo.demo_run import Ended
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive
from pegasus_hooks import pegasus_plan
from pegasus_hooks.planner.model import PlannedWorkflow
from site_selector.catalogs.sources import Sources
from site_selector.inputs import read_inputs
from site_selector.mapping.placement import Mapping, Placement

pytestmark = [pytest.mark.component, pytest.mark.pegasus]
POOL = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}  # of the fixture `pool`


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Sites on one file system, which Pegasus has to be told, and where it is installed itself."""
    planner = pegasus_plan.find_planner()
    assert planner is not None
    return make_pegasus_case(tmp_path, planner.resolve().parents[1])


def planned_configuration(submit_dir: Path, job: str) -> str:
    """The data configuration that a job was planned with, by what is written for it."""
    (submit,) = submit_dir.rglob(f"*_{job}.sub")
    script = submit.with_suffix(".sh")
    if not script.exists():
        return "sharedfs"
    # Both get their executables by pegasus-transfer, their results only one of them.
    return "nonsharedfs" if '"linkage": "output"' in script.read_text() else "condorio"


def test_each_site_and_program_has_its_own_data_configuration(case: Case, pool: Pool) -> None:
    """ADON computes with what pegasus-plan plans."""

    def configure(entry: dict[str, Any], name: str) -> None:
        pegasus = entry.setdefault("profiles", {}).setdefault("pegasus", {})
        pegasus["data.configuration"] = name

    def of_mu(document: Any) -> None:
        (mu,) = (site for site in document["sites"] if site["name"] == "mu")
        configure(mu, "sharedfs")

    def of_shout(document: Any) -> None:
        (shout,) = (t for t in document["transformations"] if t["name"] == "shout")
        configure(shout, "nonsharedfs")

    def of_mus_jobs(document: Any) -> None:
        for job in document["jobs"]:
            if job["name"] != "join":
                configure(job, "condorio")

    text = "pegasus.data.configuration = condorio\n"
    (case.root / "pegasus.properties").write_text(text)
    case.change("sites", of_mu)
    case.change("transformations", of_shout)
    case.change("workflow", of_mus_jobs)
    places = (Placement(job, "t::x:1.0", site, "", ()) for job, site in MAPPING.items())
    mapping = Mapping("mini", "test", 0.0, {}, tuple(places), {})
    inputs = read_inputs(case.sources, ("*", "local"))
    run = running.pegasus_runner(pool)
    planned = plan_workflow(inputs, case.sources, mapping, case.root / "submit", "local", run=run)
    computed = {job: inputs.configuration(job, site) for job, site in MAPPING.items()}
    assert sorted({*computed.values()}) == ["condorio", "nonsharedfs", "sharedfs"]
    assert {job: planned_configuration(planned.submit_dir, job) for job in MAPPING} == computed


DAX = """\
<?xml version="1.0" encoding="UTF-8"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="3.6" name="old"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://pegasus.isi.edu/schema/DAX http://pegasus.isi.edu/schema/dax-3.6.xsd">
<job id="ID1" name="keep"><stdout name="a" link="output"/><uses name="a" link="output"/></job>
<job id="ID2" name="keep"/><child ref="ID2"><parent ref="ID1"/></child></adag>
"""
SITES_XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<sitecatalog xmlns="http://pegasus.isi.edu/schema/sitecatalog" version="4.0"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://pegasus.isi.edu/schema/sitecatalog http://pegasus.isi.edu/schema/sc-4.0.xsd">
"""


def test_files_of_pegasus_4_are_planned_as_adon_says(pool: Pool, tmp_path: Path) -> None:
    """A workflow and sites in XML, programs as text."""
    site = '<site handle="{}"><profile namespace="pegasus" key="style">condor</profile></site>'
    sites = SITES_XML + "".join(map(site.format, ("mu", "tacc"))) + "</sitecatalog>"
    tc = "tr keep {" + "".join(f' site {at} {{ pfn "/bin/ls" }}' for at in ("mu", "tacc")) + "}"
    for name, text in (("w.dax", DAX), ("sites.xml", sites), ("tc.txt", tc)):
        (tmp_path / name).write_text(text)
    sources = Sources(tmp_path / "w.dax")
    where = {"ID1": "tacc", "ID2": "mu"}
    places = tuple(Placement(job, "keep", at, priority=7) for job, at in where.items())
    planned = plan_workflow(
        read_inputs(sources), sources, Mapping("old", "test", 0.0, {}, places),
        tmp_path / "submit", "local", run=running.pegasus_runner(pool),
    )  # fmt: skip
    for job, at in where.items():
        (submit,) = planned.submit_dir.rglob(f"keep_{job}.sub")
        assert {f'+pegasus_site = "{at}"', "priority = 7"} <= set(submit.read_text().splitlines())


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
    log = planned.dag.with_name(planned.dag.name + ".dagman.out").read_text()
    assert (planned.planner, end.state) == ("pegasus-plan", "success"), log[-3000:]
    assert (case.storage("local") / "result.txt").read_text() == RESULT
    with archive:
        ran = archive.query("runtime", workflow=planned.wf_uuid)
        assert {(m.subject, m.source) for m in ran} == {
            (f"t::{name}:1.0@{site}", "kickstart")
            for name, site in (
                ("split", "mu"), ("shout", "tacc"), ("count", "mu"), ("join", "tacc")
            )
        }  # fmt: skip
        planner = pegasus_plan.find_planner()
        assert planner is not None
        has_sizes = lists_inputs(planner.resolve().parents[1])
        assert all((m.details["bytes_in"] > 0) is has_sizes for m in ran)
        assert archive.query("status", workflow=planned.wf_uuid)[-1].value == 100.0
    # Sizes of what jobs wrote, as kickstart saw them, were known to the transfers after them, and
    # pegasus-transfer left its records where POST reads them.
    lines = journal(planned.submit_dir)
    asked_for = {(x["job"], x["size_bytes"]) for x in lines if x["event"] == "decision"}
    assert [n for job, n in asked_for if job.startswith("stage_out")].count(len(RESULT)) == 1
    moved = [line for line in lines if line["event"] == "transfer"]
    assert {(m["src"], m["dst"], m["bytes"], m["outcome"]) for m in moved} >= {
        ("local", "mu", 19, "success"),
        ("mu", "tacc", 8, "success"),
        ("tacc", "local", 10, "success"),
    }
    decisions = {(line["job"], line["src"]) for line in lines if line["event"] == "decision"}
    assert {(m["job"], m["src"]) for m in moved} == decisions


def test_a_workflow_that_fails_is_told_so_although_pegasus_dagman_leaves_with_0(
    case: Case, pool: Pool
) -> None:
    (case.root / "bin/join").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    _planned, end, archive = run(case, pool)
    archive.close()
    assert end.state == "failed"
