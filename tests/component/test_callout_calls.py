"""The callout, run as the planner runs it, with real mappings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from callout_world import SERVERS, Planning

from site_selector.mapping.placement import Mapping

pytestmark = pytest.mark.component


def test_it_answers_from_a_mapping_of_the_whole_workflow_and_warns_once(tmp_path: Path) -> None:
    planning = Planning(tmp_path)
    answers = planning.run("--sites", "mu,tacc", "--output-sites", "local", "workflow.yml")
    out = tmp_path / "mapping.json"
    adon = [sys.executable, "-c", "import sys; from adon.cli.main import main; sys.exit(main())"]
    command = [*adon, "site", "map", "workflow.yml", "--execution-sites", "mu,tacc"]
    subprocess.run(
        [*command, "--save", out], cwd=planning.case.root, check=True, capture_output=True
    )
    sites = dict(zip(planning.jobs, (a.site for a in answers), strict=True))
    assert sites == Mapping.load(out).sites
    assert "this planner sleeps about 5 s for every job it asks about (4 jobs: 20 s)" in (
        answers[0].err
    )
    assert [a.err for a in answers[1:]] == ["", "", ""]
    # Answers of a planner that has ended are removed by the next one.
    [old] = planning.kept()
    only = planning.files({"tacc": SERVERS["tacc"]})
    assert [a.site for a in planning.run("workflow.yml", files=only)] == ["tacc"] * 4
    [new] = planning.kept()
    assert old != new


def test_what_cannot_be_mapped_is_placed_by_the_rule_with_its_reason(tmp_path: Path) -> None:
    planning = Planning(tmp_path)
    (planning.case.root / "far.properties").write_text("pegasus.catalog.site.file = /far.yml\n")
    answers = planning.run("--conf", "far.properties", "workflow.yml")
    assert all(a.site in SERVERS for a in answers)
    assert "placed by the built-in rule: " in answers[0].err
    assert "/far.yml" in answers[0].err
    assert [a.err for a in answers[1:]] == ["", "", ""]
    assert [a.site for a in planning.run("workflow.yml", files=planning.files({}))] == ["NONE"] * 4
