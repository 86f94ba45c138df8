"""Bad workflows and catalogs. One line that says what was found and what was expected, exit 2, nothing half-made."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_world import REPLICAS, SITES, TRANSFORMATIONS, WORKFLOW, changed, refusal, write_world


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def without(document: dict[str, Any], *path: Any) -> dict[str, Any]:
    whole = changed(document, *path, to=None)
    inner: Any = whole
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return whole


NO_FILE = "No such file or directory, expected a Pegasus 5"


@pytest.mark.parametrize("command", [("site", "map"), ("plan",)])
@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"sites": "pegasus: '5.0'\nsites:\n  - name: mu\n  arch: [x\n"},
            "sites.yml:4: not valid YAML: did not find expected '-' indicator",
        ),
        ({"workflow": "jobs: [\n"}, "workflow.yml:2: not valid YAML: did not find expected node content"),
        (
            {"workflow": "<?xml version='1.0'?>\n<adag version='3.6'/>\n"},
            "workflow.yml: found XML <adag 3.6>, a workflow of Pegasus 4 or older, expected Pegasus 5"
            " abstract workflow YAML; have its generator write it by the Pegasus.api package of"
            " Pegasus 5 (Pegasus manual, 'Moving From DAX3 to Pegasus.api')",
        ),
        (
            {"workflow": changed(WORKFLOW, "pegasus", to="4.9")},
            "workflow.yml:1: found version 4.9, expected Pegasus 5 abstract workflow",
        ),
        (
            {"workflow": changed(WORKFLOW, "jobDependencies", to=[{"id": "ID2", "children": ["ID1"]}])},
            "workflow.yml:1: jobs form a cycle: ID1 -> ID2 -> ID1",
        ),
        (
            {"workflow": changed(WORKFLOW, "jobs", 0, "name", to="alin")},
            "workflow.yml:1: job ID1: transformation 'alin' is not in the transformation catalog,"
            " did you mean 'align'?",
        ),
        (
            {
                "workflow": changed(
                    WORKFLOW, "jobs", 0, "profiles", to={"selector": {"execution.site": "mars"}}
                )
            },
            "workflow.yml:1: job ID1: profile execution.site 'mars' is not in the site catalog, which"
            " lists local, mu, tacc",
        ),
        (
            {"replicas": without(REPLICAS, "replicas", 0, "metadata")},
            "replicas.yml:1: replica 'reads' has no size; give its bytes as 'metadata: {size: 12345}'"
            " here or as 'size' where a job uses it",
        ),
        (
            {"replicas": changed(REPLICAS, "replicas", 0, "lfn", to="other")},
            "workflow.yml:1: job ID1: input 'reads' is written by no job and has no replica in"
            " replicas.yml",
        ),
        (
            {"replicas": changed(REPLICAS, "replicas", 0, "pfns", 0, "site", to="mars")},
            "replicas.yml:1: replica 'reads' lies at the unknown site 'mars', expected one of local,"
            " mu, tacc",
        ),
        (
            {
                "transformations": changed(
                    TRANSFORMATIONS, "transformations", 0, "sites",
                    to=[{"name": "mars", "pfn": "/x", "type": "installed"}],
                )
            },
            "workflow.yml:1: job ID1: no site can run align: it is at mars, execution sites are among"
            " local, mu, tacc",
        ),
        (
            {"sites": changed(SITES, "sites", 1, "profiles", "pegasus", "adon.worker", to=3)},
            "sites.yml:1: site 'mu': unknown key 'adon.worker', did you mean 'adon.workers'?",
        ),
        (
            {"sites": changed(SITES, "sites", 1, "profiles", "pegasus", "adon.rate", to="20 Mb/s")},
            "sites.yml:1: site 'mu': adon.rate: found '20 Mb/s', expected bytes per second and worker"
            " such as '25 MB/s'",
        ),
    ],
)  # fmt: skip
def test_workflows_and_catalogs(
    command: tuple[str, ...], files: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_world(tmp_path, **files)
    before = sorted(tmp_path.iterdir())
    assert refusal(*command, "workflow.yml") == said
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_no_workflow(tmp_path: Path) -> None:
    write_world(tmp_path)
    assert refusal("site", "map", "none.yml") == f"none.yml: {NO_FILE} abstract workflow"
    assert refusal("plan", tmp_path) == (
        f"{tmp_path}: Is a directory, expected a Pegasus 5 abstract workflow"
    )
    assert refusal("site", "map", "sites.yml") == (
        "sites.yml:1: no list of jobs, expected a Pegasus 5 abstract workflow"
    )
    Path("workflow.yml").write_bytes(b"jobs: \xff")
    assert refusal("plan", "workflow.yml") == (
        "workflow.yml: byte 6 is not UTF-8, expected a Pegasus 5 abstract workflow as text"
    )
    assert refusal("plan", "/dev/zero").startswith("/dev/zero: found more than 150 MB, expected")


def test_options_of_site(tmp_path: Path) -> None:
    write_world(tmp_path)
    asked = ("site", "map", "workflow.yml")
    assert refusal(*asked, "--sites", "none.yml") == f"none.yml: {NO_FILE} site catalog"
    assert refusal(*asked, "--output-site", "tac") == (
        "output site 'tac' is not in the site catalog, which lists local, mu, tacc,"
        " did you mean 'tacc'?"
    )
    assert refusal("site", "explain", "workflow.yml", "--job", "ID3") == (
        "job 'ID3' is not in workflow 'small', did you mean 'ID2'?"
    )
    assert refusal(*asked, "--archive", "none") == (
        "none: found no such file, expected an archive of measurements"
    )
    assert refusal(*asked, "--archive", "sites.yml") == (
        "archive sites.yml: found a file that is not a whole SQLite database, expected an ADON "
        "archive or no file"
    )
    assert refusal(*asked, "--archive", ".") == (
        "archive .: cannot be opened: found a directory, expected a file"
    )


@pytest.mark.parametrize(
    ("option", "what"), [("--save", "the mapping"), ("--hints", "the workflow")]
)
def test_files_that_cannot_be_written(tmp_path: Path, option: str, what: str) -> None:
    write_world(tmp_path)
    asked = ("site", "map", "workflow.yml", option)
    assert refusal(*asked, "no/m") == f"no/m: cannot write {what}: No such file or directory"
    for place in ("/dev/full", ".", ""):
        assert refusal(*asked, place) == (
            f"{place or '.'}: cannot write {what}: found no regular file, expected a file or a free"
            " name"
        )
    assert not Path("/dev/full").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "replicas.yml", "sites.yml", "transformations.yml", "workflow.yml",
    ]  # fmt: skip
