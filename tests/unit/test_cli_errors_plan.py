"""Workflows, mappings and hooks that cannot be planned. One line that says what was found and what was expected, exit 2, nothing half-made."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_world import WORKFLOW, changed, refusal, write_world


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"profiles": {"pegasus": {"clusters.size": "2"}}}, "clustering (profile pegasus: clusters.size)"),
        ({"type": "pegasusWorkflow", "file": "sub.yml"}, "a sub-workflow (pegasusWorkflow)"),
        ({"type": "condorWorkflow", "file": "sub.dag"}, "a sub-workflow (condorWorkflow)"),
        ({"hooks": {"shell": [{"_on": "end", "cmd": "date"}]}}, "shell hooks (notifications)"),
        ({"profiles": {"pegasus": {"style": "glite"}}}, "profile pegasus: style 'glite' (only condor)"),
        ({"profiles": {"dagman": {"PRE": "/x"}}}, "profile dagman: PRE"),
    ],
)  # fmt: skip
def test_what_the_embedded_planner_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no pegasus-plan
    write_world(tmp_path, changed(WORKFLOW, "jobs", 0, to={**WORKFLOW["jobs"][0], **job}))
    assert refusal("plan", "workflow.yml") == (
        f"workflow.yml:1: job ID1: the job asks for {said}, which the embedded planner cannot plan; "
        "use pegasus-plan"
    )
    assert not Path("submit").exists()


def mapping(**changes: Any) -> dict[str, Any]:
    placed = [
        {"job": job, "transformation": name, "site": "mu"}
        for job, name in (("ID1", "align"), ("ID2", "call"))
    ]
    whole = {"workflow": "small", "policy": "p", "makespan_s": 1, "portfolio": {}}
    return {**whole, "placements": placed, **changes}


ONE = mapping()["placements"][:1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "m.json: not valid JSON: Expecting property name enclosed in double quotes: line 1 "
              "column 2 (char 1), expected a site mapping"),
        ("[" * 100_000, "m.json: not valid JSON: maximum recursion depth exceeded while decoding a "
                        "JSON array from a unicode string, expected a site mapping"),
        ({}, "m.json: no site mapping: found no key 'placements', expected what 'adon site map' writes"),
        (mapping(makespan_s="x"), "m.json: no site mapping: found 'x' and no number, "
                                  "expected what 'adon site map' writes"),
        (mapping(placements=ONE * 2), "m.json: no site mapping: a job is placed twice, expected what "
                                      "'adon site map' writes"),
        (mapping(workflow="big"), "m.json: found a mapping of workflow 'big', expected one of 'small'"),
        (mapping(placements=ONE), "workflow.yml:1: job ID2: the site mapping gives it no site"),
        (mapping(placements=[*mapping()["placements"], {**ONE[0], "job": "ID9"}]),
         "site mapping: found job 'ID9', which the workflow lacks, did you mean 'ID2'?"),
        (mapping(placements=[{**ONE[0], "site": "local"}, mapping()["placements"][1]]),
         "workflow.yml:1: job ID1: site mapping says 'local', expected one of mu, tacc"),
        (mapping(placements=[{**ONE[0], "site": ["mu"]}]),
         "m.json: no site mapping: site is a list and no text, expected what 'adon site map' writes"),
    ],
)  # fmt: skip
def test_mappings_that_do_not_fit(tmp_path: Path, content: Any, said: str) -> None:
    write_world(tmp_path)
    Path("m.json").write_text(content if isinstance(content, str) else json.dumps(content))
    assert refusal("plan", "workflow.yml", "--mapping", "m.json") == said
    assert not Path("submit").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "h.json: cannot be read: No such file or directory, expected the hooks' JSON"
               " configuration"),
        ({"broker": 3}, "h.json: found no key 'broker', expected the broker's URL"),
        ({"broker": "http://h:1", "timout_s": 1},
         "h.json: unknown key 'timout_s', expected ahead, archive, broker, ca, patience_s, project,"
         " site, template, timeout_s, token, token_file, watch"),
        ({"broker": "http://h:1", "timeout_s": -1}, "h.json: timeout_s: found -1, expected seconds"),
        ({"broker": "h:1"}, "h.json: broker URL 'h:1', expected one like 'http://127.0.0.1:8470'"),
    ],
)  # fmt: skip
def test_hook_configurations(tmp_path: Path, content: Any, said: str) -> None:
    write_world(tmp_path)
    if content is not None:
        Path("h.json").write_text(json.dumps(content))
    assert refusal("plan", "workflow.yml", "--hooks", "h.json") == said
    assert not Path("submit").exists()


def test_submit_directories_that_cannot_be_made(tmp_path: Path) -> None:
    write_world(tmp_path)
    Path("file").touch()
    said = refusal("plan", "workflow.yml", "--dir", "file/s")
    assert said.startswith(f"submit directory {tmp_path}/file/s/")
    assert said.endswith("cannot be written: Not a directory")
    said = refusal("plan", "workflow.yml", "--dir", "with blank")
    assert "expected a path without blanks, quotes or $" in said
    assert not Path("with blank").exists()
