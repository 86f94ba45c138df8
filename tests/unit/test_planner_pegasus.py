"""The adapter to a real pegasus-plan: its command, its properties, its answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hooks_world import make_submit_dir
from planner_world import MAPPING, Case

from network_provisioner.base.errors import AdonError, InputError, MissingError
from pegasus_hooks import pegasus_plan
from pegasus_hooks.pegasus_plan import Finished
from site_selector.mapping.placement import Mapping as SiteMapping
from site_selector.mapping.placement import Placement


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bin directory with programs of Pegasus's names on PATH."""
    folder = tmp_path / "pegasus" / "bin"
    folder.mkdir(parents=True)
    for name in ("pegasus-plan", "pegasus-exitcode", "pegasus-run"):
        (folder / name).write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 9\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def mapping() -> SiteMapping:
    placements = tuple(
        Placement(job=job, transformation="t::x:1.0", site=site, reason="", alternatives=())
        for job, site in MAPPING.items()
    )
    return SiteMapping("mini", "test", 0.0, {}, placements, {})


class Planner:
    """Stands in for pegasus-plan: remembers the command, gives the answer."""

    def __init__(self, answer: Finished) -> None:
        self.answer = answer
        self.command: list[str] = []

    def __call__(self, command: Sequence[str]) -> Finished:
        self.command = list(command)
        return self.answer


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_pegasus_gets_the_selection_and_the_hooks(case: Case, home: Path, tmp_path: Path) -> None:
    run = make_submit_dir(tmp_path / "made", {}, ["a"])
    (run / "00/00/stage_in_local_mu_0_0.in").write_text("[]")
    planner = Planner(Finished(0, json.dumps({"submit_dir": str(run)}), ""))
    (tmp_path / "hooks.json").write_text("{}")
    own = tmp_path / "own.properties"
    own.write_text("# mine\npegasus.data.configuration = nonsharedfs\ndagman.maxpre=7\n")
    sources = replace(case.sources, conf=own)
    workflow = pegasus_plan.plan(
        sources, mapping(), tmp_path / "submit", "store", tmp_path / "hooks.json", run=planner
    )
    assert (workflow.planner, workflow.submit_dir, workflow.dag) == (
        "pegasus-plan", run, run / "flow-0.dag",
    )  # fmt: skip
    command = planner.command
    assert command[0] == str(home / "pegasus-plan")
    assert option(command, "--sites") == "mu,tacc"
    assert option(command, "--output-sites") == "store"
    assert option(command, "--dir") == str(tmp_path / "submit")
    jobs = yaml.safe_load(Path(command[-1]).read_text())["jobs"]
    hints = {j["id"]: j["profiles"]["selector"]["execution.site"] for j in jobs}
    assert hints == MAPPING
    conf = Path(option(command, "--conf")).read_text().splitlines()
    work = tmp_path / "submit/adon"
    assert f"dagman.pre={work}/adon-pre" in conf
    assert "dagman.pre.arguments=$JOB $RETRY $MAX_RETRIES" in conf
    assert f"dagman.post.path.pegasus-exitcode={work}/adon-exitcode $RETRY" in conf
    assert f"pegasus.catalog.site.file={case.root}/sites.yml" in conf
    # What the user says is there once, and holds.
    assert [x for x in conf if "data.configuration" in x] == [
        "pegasus.data.configuration=nonsharedfs"
    ]
    assert [x for x in conf if "maxpre" in x] == ["dagman.maxpre=7"]
    # pegasus-transfer leaves its records where POST reads them.
    assert (run / "00/00/stage_in_local_mu_0_0.multipart").is_dir()


def test_what_adon_says_is_said_once(case: Case, tmp_path: Path) -> None:
    own = tmp_path / "own.properties"
    own.write_text(
        "! mine\npegasus.data.configuration\\\n : sharedfs\nb=${user.home}\n"
        "a\\ key = C\\\\D \\\n E\n"
    )
    known = {"_PEGASUS__DATA__CONFIGURATION": "sharedfs", "_PEGASUS__CLUSTERER__JOB__X": "1"}
    sources = replace(case.sources, conf=own, environment=known)
    text = pegasus_plan.properties_text(sources, None, "condorio")
    assert "pegasus.data.configuration=condorio\n" in text
    assert "pegasus.clusterer.job.x=1\n" in text
    assert "sharedfs" not in text
    assert "b=${user.home}\na\\ key=C\\\\D E\n" in text


def test_properties_in_latin_1_are_read(case: Case, tmp_path: Path) -> None:
    own = tmp_path / "own.properties"
    own.write_bytes("# für alle\na=ü\n".encode("latin-1"))
    text = pegasus_plan.properties_text(replace(case.sources, conf=own))
    assert "a=\\u00fc\n" in text


def test_the_scripts_do_what_dagman_asks(case: Case, home: Path, tmp_path: Path) -> None:
    config = tmp_path / "hooks.json"
    config.write_text('{"broker": "http://127.0.0.1:9", "timeout_s": 1}')
    pre, post = pegasus_plan.write_scripts(tmp_path, config, home / "pegasus-exitcode")
    run = make_submit_dir(tmp_path / "made", {}, ["align_ID1"])
    assert subprocess.run([pre, "align_ID1", "0", "1"], cwd=run, check=False).returncode == 0
    theirs = ["-r", "0", "-R", "0", ".//00/00/align_ID1.out"]
    done = subprocess.run([post, *theirs], cwd=run, check=False, capture_output=True, text=True)
    assert done.returncode == 9
    assert done.stdout == "".join(f"<{word}>" for word in theirs)


@pytest.mark.parametrize("key", ["dagman.pre", "dagman.post.path.pegasus-exitcode"])
def test_a_property_that_the_user_set_is_not_taken(case: Case, key: str, tmp_path: Path) -> None:
    scripts = (Path("/pre"), Path("/post"))
    own = tmp_path / "own.properties"
    own.write_text(f"{key} : /mine\n")
    with pytest.raises(InputError, match=f"{key} is set by the user"):
        pegasus_plan.properties_text(replace(case.sources, conf=own), scripts)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Finished(2, "", "INFO\n[ERROR] no site\n"), InputError, r"exit 2: \[ERROR\] no site"),
        (Finished(1, "", ""), InputError, "exit 1: no output"),
        (Finished(0, "hello", ""), AdonError, "found 'hello', expected JSON"),
        (Finished(0, "{}", ""), AdonError, "expected JSON with its submit_dir"),
    ],
)
def test_what_pegasus_refuses_is_one_line(
    case: Case, home: Path, answer: Finished, error: type[AdonError], words: str
) -> None:
    with pytest.raises(error, match=words):
        pegasus_plan.plan(
            case.sources, mapping(), case.root / "submit", "store", run=Planner(answer)
        )


SAYS = """2026.11.21 09:36:50.134 UTC: [ERROR]  Problem
[1] java.lang.RuntimeException: Unable to add executable job faidx at edu.isi.X.a(X.java:9)
 [2] java.lang.RuntimeException: Make sure PEGASUS_HOME is set for site mu \
at edu.isi.pegasus.planner.code.gridstart.Kickstart.handleTransfer(Kickstart.java:900)
"""


# As pegasus-plan 5.1.3 says it with -v, and of a message with two lines.
TRACE = """2026.11.28 22:49:21.399 UTC: [FATAL ERROR]  java.lang.RuntimeException: No code
	at edu.isi.CPlanner.executeCommand(CPlanner.java:649)
Caused by: java.lang.RuntimeException: DAX file for subworkflow does not exist /w/inner.yml
	at edu.isi.SUBDAXGenerator.generateCode(SUBDAXGenerator.java:316)
	... 2 more

2026.11.28 22:49:21.446 UTC: [INFO] event.pegasus.code.generation  (0.131 seconds) - FINISHED
"""
TWO_LINES = """2026.11.28 22:49:25.562 UTC: [FATAL ERROR]
 [1] java.lang.RuntimeException: No code at edu.isi.CPlanner.executeCommand(CPlanner.java:649)
 [2] java.lang.RuntimeException: Unable to verify credential of type ssh for job create_dir.
Please make sure it exists at edu.isi.Abstract.complainForInvalidCredential(Abstract.java:168)
"""
NO_CAUSE = """22:49:25.562 UTC: [FATAL ERROR]  java.lang.RuntimeException: Invalid option
	at edu.isi.CPlanner.main(CPlanner.java:205)
"""
PREFLIGHT = """Pegasus requires the Python3 GitPython module to be installed
Please install it via your OS package manager, via pip, or activate a venv.
The PYTHONPATH is ['/usr/lib/python3.11']
"""
LOGGED = """Error: no such pool
2026.11.28 22:49:21.446 UTC: [INFO] event.pegasus.planner  (1.2 seconds) - FINISHED
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (SAYS, "Make sure PEGASUS_HOME is set for site mu"),
        (TRACE, "DAX file for subworkflow does not exist /w/inner.yml"),
        (
            TWO_LINES,
            "Unable to verify credential of type ssh for job create_dir. "
            "Please make sure it exists",
        ),
        (NO_CAUSE, "Invalid option"),
        (PREFLIGHT, "Pegasus requires the Python3 GitPython module to be installed"),
        (LOGGED, "Error: no such pool"),
    ],
)
def test_why_pegasus_failed_is_told_without_its_java(
    case: Case, home: Path, said: str, reason: str
) -> None:
    planner = Planner(Finished(1, "ERROR while logging metrics\n", said))
    with pytest.raises(InputError) as caught:
        pegasus_plan.plan(case.sources, mapping(), case.root / "submit", "store", run=planner)
    assert str(caught.value) == f"pegasus-plan: exit 1: {reason}"


def test_pegasus_run_starts_what_pegasus_planned(home: Path, tmp_path: Path) -> None:
    run = Planner(Finished(0, "", "Submitting job(s).\n1 job(s) submitted to cluster 12.0.\n"))
    assert pegasus_plan.start(tmp_path, run) == 12
    assert run.command == [str(home / "pegasus-run"), str(tmp_path)]


@pytest.mark.parametrize(
    "answer",
    [
        Finished(1, "Error: Running x failed with 1\nMessage: no schedd\n", "Submitting to\n"),
        Finished(0, "Message: no schedd\n", ""),
    ],
)
def test_what_pegasus_run_refuses_is_one_line(home: Path, answer: Finished) -> None:
    with pytest.raises(AdonError, match=r"pegasus-run: exit \d: Message: no schedd$"):
        pegasus_plan.start(Path("/run"), Planner(answer))


def test_commands_run_with_the_environment_and_the_words_they_are_given() -> None:
    run = pegasus_plan.runner({"WORD": "here"}, lambda command: ["/bin/sh", "-c", *command])
    outcome = run(['echo "$WORD"; echo why >&2; exit 3'])
    assert outcome == Finished(3, "here\n", "why\n")


def test_without_pegasus(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert pegasus_plan.find_planner() is None
    with pytest.raises(MissingError, match="pegasus-plan: not on PATH"):
        pegasus_plan.plan(case.sources, mapping(), case.root / "submit", "store")
    with pytest.raises(MissingError, match="pegasus-run: not on PATH"):
        pegasus_plan.start(case.root)


def test_a_staging_site_is_passed_on(case: Case, home: Path, tmp_path: Path) -> None:
    planner = Planner(Finished(1, "", "no"))
    sources = replace(case.sources, staging_site="pool=store")
    with pytest.raises(InputError):
        pegasus_plan.plan(sources, mapping(), tmp_path / "submit", "store", run=planner)
    assert option(planner.command, "--staging-site") == "pool=store"
