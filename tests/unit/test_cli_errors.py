"""Bad arguments, workflows, catalogs, mappings and machines. One line that says what was found and what was expected, exit 2, nothing half-made."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_world import (
    REPLICAS,
    SITES,
    TRANSFORMATIONS,
    WORKFLOW,
    adon,
    changed,
    refusal,
    write_world,
)

from adon.cli import site
from network_provisioner.base.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "said", "command"),
    [
        (("trunsit",), "argument COMMAND: found 'trunsit', did you mean 'transit'?", "adon"),
        (
            ("help", "lunch"),
            "argument COMMAND: found 'lunch', expected one of doctor, init, site,",
            "adon",
        ),
        (("site", "mop"), "argument VERB: found 'mop', did you mean 'map'?", "adon site"),
        (
            ("plan", "w.yml", "--sead", "1"),
            "unrecognized arguments: --sead 1, did you mean '--seed'?",
            "adon plan",
        ),
        *(
            (
                ("plan", "w.yml", f"--seed={seed}"),
                f"argument --seed: found '{seed}', expected a whole number from 0 to 1000000000",
                "adon plan",
            )
            for seed in ("x", "-1")
        ),
        (("plan", "w.yml", "--dir"), "argument --dir: expected one argument", "adon plan"),
        (
            ("transit", "request", "mu"),
            "the following arguments are required: TO",
            "adon transit request",
        ),
        (
            ("init", "--exec", "ip netns exec 'x"),
            'argument --exec: found "ip netns exec \'x": No closing quotation, expected a command',
            "adon init",
        ),
        (
            ("transfer", "compare", "mu", "tacc", "--command", "cp 'x"),
            'argument --command: found "cp \'x": No closing quotation, expected a command',
            "adon transfer compare",
        ),
    ],
)
def test_arguments(words: tuple[str, ...], said: str, command: str) -> None:
    line = refusal(*words)
    assert line.startswith(said) and line.endswith(f" (see '{command} --help')")


@pytest.mark.parametrize(
    "words", [(), ("help",), ("transit",), ("help", "transit"), ("help", "transit", "list")]
)
def test_commands_are_explained(words: tuple[str, ...]) -> None:
    ran = adon(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(" ".join(["usage: adon", *(w for w in words if w != "help")]))


def test_directories_that_are_no_submit_directories(tmp_path: Path) -> None:
    assert refusal("monitor", "run", ".") == (
        ".: found 0 .dag files and no braindump.yml that names one, expected a submit directory"
    )
    Path("braindump.yml").write_text("dag: [\n")
    assert "braindump.yml" in refusal("monitor", "run", ".")
    Path("braindump.yml").unlink()
    Path("w.dag").touch()
    Path("not.sqlite").write_text("no database" * 100)
    assert refusal("monitor", "run", ".", "--archive", "not.sqlite") == (
        "archive not.sqlite: found a file that is not a whole SQLite database, expected an ADON "
        "archive or no file"
    )


def demo(tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The demo on a machine without programs, in a process of its own, for it ties itself to who
    started it."""
    home = {"PATH": str(tmp_path), "HOME": str(tmp_path / "home")}
    return subprocess.run(
        [sys.executable, "-m", "examples.demo", *(str(word) for word in words)],
        env={**home, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demo_of_no_samples(tmp_path: Path) -> None:
    done = demo(tmp_path, "--samples", 0)
    assert (done.returncode, done.stderr) == (
        2,
        "adon: argument --samples: found '0', expected a whole number from 1 to 999 "
        "(see 'python -m examples.demo --help')\n",
    )


def test_the_demo_without_apt_get(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "adon: HTCondor: apt-get: not found, expected a Debian machine\n",
    )
    assert not (tmp_path / "demo-report").exists()


def test_the_demo_where_its_report_cannot_go(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo(tmp_path, "--report", "file/report")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"adon: file/report: {tmp_path}/file is no directory that can be written, expected one\n"
    )


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(site, "place_workflow", broken)
    with pytest.raises(ZeroDivisionError):
        refusal("site", "map", "w.yml")


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise InputError("x")

    monkeypatch.setattr(site, "place_workflow", broken)
    with pytest.raises(InputError):
        refusal("--debug", "site", "map", "w.yml")


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
            {"workflow": "<?xml version='1.0'?>\n<adag version='0.8'/>\n"},
            "workflow.yml: found XML <adag 0.8>, a workflow in an unknown form, expected Pegasus 5"
            " abstract workflow YAML; have its generator write it by the Pegasus.api package of"
            " Pegasus 5 (Pegasus manual, 'Moving From DAX3 to Pegasus.api')",
        ),
        (
            {"workflow": "<adag version='3.6'>\n<job id='ID1'\n name='x'></adag>\n"},
            "workflow.yml:3: not valid XML: mismatched tag",
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
            " lists local, mu, tacc, condorpool",
        ),
        (
            {"replicas": changed(REPLICAS, "replicas", 0, "lfn", to="other")},
            "workflow.yml:1: job ID1: input 'reads' is written by no job and has no replica in"
            " replicas.yml",
        ),
        (
            {
                "transformations": changed(
                    TRANSFORMATIONS, "transformations", 0, "sites",
                    to=[{"name": "mars", "pfn": "/x", "type": "installed"}],
                )
            },
            "workflow.yml:1: job ID1: no site can run align: it is at mars, execution sites are among"
            " mu, tacc, condorpool",
        ),
        (
            {"sites": changed(SITES, "sites", 1, "profiles", "pegasus", "adon.worker", to=3)},
            "sites.yml:1: site 'mu': unknown key 'adon.worker', did you mean 'adon.workers'?",
        ),
        (
            {"sites": changed(SITES, "sites", 1, "profiles", "pegasus", "adon.rate", to="20 Mb/s")},
            "sites.yml:1: site 'mu': adon.rate: found '20 Mb/s', expected bytes per second and worker"
            ", above 0, such as '25 MB/s'",
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
        "sites.yml:1: found a catalog of sites, expected a Pegasus 5 abstract workflow"
    )
    Path("workflow.yml").write_bytes(b"jobs: \xff")
    assert refusal("plan", "workflow.yml") == (
        "workflow.yml: byte 6 is not UTF-8, expected a Pegasus 5 abstract workflow as text"
    )
    assert refusal("plan", "/dev/zero").startswith("/dev/zero: found more than 150 MB, expected")


def test_options_of_site(tmp_path: Path) -> None:
    write_world(tmp_path)
    command = ("site", "map", "workflow.yml")
    assert refusal(*command, "--sites", "none.yml") == f"none.yml: {NO_FILE} site catalog"
    assert refusal("site", "explain", "workflow.yml", "--job", "ID3") == (
        "job 'ID3' is not in workflow 'small', did you mean 'ID2'?"
    )
    for verb in ("map", "explain", "show", "edge"):
        assert refusal("site", verb, "workflow.yml", "--output-site", "tac") == (
            "output site 'tac' is not in the site catalog, which lists local, mu, tacc,"
            " condorpool, did you mean 'tacc'?"
        )
        assert refusal("site", verb, "workflow.yml", "--archive", "none") == (
            "none: found no such file, expected an archive of measurements"
        )
    assert refusal(*command, "--archive", "sites.yml") == (
        "archive sites.yml: found a file that is not a whole SQLite database, expected an ADON "
        "archive or no file"
    )
    assert refusal(*command, "--archive", ".") == (
        "archive .: cannot be opened: found a directory, expected a file"
    )


@pytest.mark.parametrize(
    ("option", "what"), [("--save", "the mapping"), ("--hints", "the workflow")]
)
def test_files_that_cannot_be_written(tmp_path: Path, option: str, what: str) -> None:
    write_world(tmp_path)
    command = ("site", "map", "workflow.yml", option)
    assert refusal(*command, "no/m") == f"no/m: cannot write {what}: No such file or directory"
    for place in ("/dev/full", ".", ""):
        assert refusal(*command, place) == (
            f"{place or '.'}: cannot write {what}: found no regular file, expected a file or a free"
            " name"
        )
    assert not Path("/dev/full").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "replicas.yml", "sites.yml", "transformations.yml", "workflow.yml",
    ]  # fmt: skip


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
        ("{", "m.json: the site mapping: not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("[" * 100_000, "m.json: the site mapping: not valid JSON: recursion limit exceeded at line 1 "
                        "column 202"),
        ("[]", "m.json: the site mapping: found [], expected a mapping"),
        ({}, "m.json: the site mapping has no 'workflow', expected it"),
        (mapping(makespan_s="x"), "m.json: the site mapping: makespan_s: found 'x', expected a number"),
        (mapping(placements=ONE * 2), "m.json: the site mapping has a job twice, expected each once"),
        (mapping(workflow="big"), "m.json: found a mapping of workflow 'big', expected one of 'small'"),
        (mapping(placements=ONE), "workflow.yml:1: job ID2: the site mapping gives it no site"),
        (mapping(placements=[*mapping()["placements"], {**ONE[0], "job": "ID9"}]),
         "site mapping: found job 'ID9', which the workflow lacks, did you mean 'ID2'?"),
        (mapping(placements=[{**ONE[0], "site": "local"}, mapping()["placements"][1]]),
         "workflow.yml:1: job ID1: site mapping says 'local', expected one of mu, tacc"),
        (mapping(placements=[{**ONE[0], "site": ["mu"]}]),
         "m.json: the site mapping: placements.0.site: found ['mu'], expected a text"),
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
        (None, "h.json: found no such file, expected the hooks' JSON configuration: 'adon install"
               " pegasus' makes one, --hooks names another"),
        ({"broker": 3}, "h.json: found no key 'broker', expected the broker's URL"),
        ({"broker": "http://h:1", "timout_s": 1},
         "h.json: unknown key 'timout_s', expected ahead, archive, broker, ca, patience_s, project,"
         " redirector, site, sources, template, timeout_s, token, token_file, watch"),
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
