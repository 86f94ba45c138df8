"""What becomes of provisioning jobs in a plan, and of programs that stand in the workflow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from planner_world import FIXED, Case, by_file, job, make_case, uses

from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.plan import plan
from pegasus_hooks.provisioning.insertion import ProvisioningOptions, provisioned_workflow
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.workflow import WHAT
from site_selector.inputs import load_inputs

PROGRAM = ["/usr/bin/python3", "-I", "-S", "/x/job.py"]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Four jobs side by side, then one; provisioned."""
    case = make_case(tmp_path, by_file)

    def jobs(document: Any) -> None:
        wide = [
            job(n, "shout", ["raw.txt"], uses({"raw.txt": 5}, {f"w{n}.txt": False}))
            for n in range(4)
        ]
        last = job(9, "join", [], uses({f"w{n}.txt": None for n in range(4)}, {"r.txt": True}))
        document["jobs"] = [*wide, last]

    case.change("workflow", jobs)
    case.change("replicas", lambda document: document["replicas"][0].pop("metadata"))
    path = case.sources.workflow
    provisioning = provisioned_workflow(
        read_document(path, WHAT), None, ProvisioningOptions(4, pool="/adon.yml"), PROGRAM
    )
    path.write_text(provisioning.text)
    return case


def planned(case: Case) -> Path:
    inputs = case.inputs()
    sites = {name: job.site_hint or "mu" for name, job in inputs.workflow.jobs.items()}
    return plan(inputs, case.sources, sites, case.root / "submit", "local", None, FIXED).dag


def test_they_stand_around_the_level_in_the_dag(case: Case) -> None:
    lines = planned(case).read_text().splitlines()
    for n in range(4):
        assert f"PARENT provision_before_level_0 CHILD shout_ID{n}" in lines
        assert f"PARENT shout_ID{n} CHILD release_after_level_0" in lines
    assert "PARENT release_after_level_0 CHILD join_ID9" not in lines


def test_they_run_on_the_submit_host_and_always_succeed(case: Case) -> None:
    dag = planned(case)
    for name in ("provision_before_level_0", "release_after_level_0"):
        (post,) = re.findall(rf"SCRIPT POST {name} (.*)", dag.read_text())
        assert post.endswith(f"/pegasus_hooks/provisioning/succeed.py 00/00/{name}.out")
        text = next(dag.parent.rglob(f"{name}.sub")).read_text()
        assert "\nuniverse = local\n" in text
        assert '+pegasus_site = "local"' in text


def test_programs_are_taken_from_the_file_and_from_the_workflow(case: Case) -> None:
    inputs = case.inputs()
    assert inputs.candidates["before_level_0"] == ("local",)
    assert "t::shout:1.0" in inputs.transformations


def test_a_jobs_own_site_need_not_be_an_execution_site(case: Case) -> None:
    inputs = load_inputs(case.sources.workflow, execution_sites=["mu"])
    assert inputs.candidates["before_level_0"] == ("local",)
    assert inputs.candidates["ID0"] == ("mu",)


def test_of_a_program_in_both_the_workflows_own_counts(case: Case) -> None:
    def inline(document: Any) -> None:
        site = {"name": "mu", "pfn": "/mine", "type": "installed"}
        entry = {"namespace": "t", "name": "shout", "version": "1.0", "sites": [site]}
        document["transformationCatalog"]["transformations"].append(entry)

    case.change("workflow", inline)
    assert case.inputs().candidates["ID0"] == ("mu",)
    (text, *_) = (p.read_text() for p in planned(case).parent.rglob("shout_ID0.task"))
    assert '"executable": "/mine"' in text


def test_a_workflow_with_all_of_its_programs_needs_no_file(case: Case) -> None:
    def inline(document: Any) -> None:
        theirs = document["transformationCatalog"]["transformations"]
        for name in ("shout", "join"):
            site = {"name": "mu", "pfn": f"/{name}", "type": "installed"}
            theirs.append({"namespace": "t", "name": name, "version": "1.0", "sites": [site]})

    case.change("workflow", inline)
    (case.root / "transformations.yml").unlink()
    assert case.inputs().candidates["ID9"] == ("mu",)
    assert planned(case).exists()


def test_other_kinds_of_post_are_refused_by_name(case: Case) -> None:
    def none(document: Any) -> None:
        document["jobs"][-1]["profiles"] = {"dagman": {"POST": "none"}}

    case.change("workflow", none)
    with pytest.raises(InputError, match=r"profile dagman: POST: 'none' \(only user\)"):
        planned(case)
