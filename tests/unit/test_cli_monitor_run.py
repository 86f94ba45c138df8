"""``adon monitor run``: whom it follows, where it records, whom it tells, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import NOBODY, adon, refusal
from monitor_files import START, Submitted, exiting, starting, submitted, table, whole_run

from monitors.archive.archive import Archive
from monitors.watcher import registry
from monitors.workflows.planned.sub_workflows import derived_uuid

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of its own, without HTCondor."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("monitors.workflows.follower.LOOK_ANYWAY_S", 0.0)


def registered(path: Path, name: str) -> Submitted:
    planned = Submitted(path, name)
    folder = Path("~/.local/state/adon/watch").expanduser()
    registry.register(folder, path / "hooks.json", planned.path, name)
    return planned


def test_all_workflows_of_a_user(tmp_path: Path) -> None:
    first, second = registered(tmp_path / "one", "uuid-1"), registered(tmp_path / "two", "uuid-2")
    first.out.write_text(whole_run())
    second.out.write_text(starting() + table(START, fail=2) + exiting(START + 1, 1))
    ran = adon("monitor", "run", "--mine", "--json")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert {line["id"]: line["state"] for line in lines} == {"uuid-1": "done", "uuid-2": "failed"}
    assert (ran.code, ran.err) == (1, "")
    with Archive(tmp_path / "adon-archive.sqlite") as archive:
        assert archive.subjects("workflow") == ["uuid-1", "uuid-2"]


def test_nobody_has_a_workflow() -> None:
    ran = adon("monitor", "run", "--mine", "--since", "2026-01-01")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("adon: no workflows found in the hooks' registry, ")


def test_a_broker_that_is_not_there_is_told_of_once(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(whole_run())
    ran = adon("monitor", "run", planned.path, "--broker", f"http://{NOBODY}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"the broker at http://{NOBODY} cannot be reached" in ran.err


def test_one_of_which_nothing_comes_is_given_up(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(starting() + table(START, queued=2))
    os.utime(planned.out, (START, START))
    ran = adon("monitor", "run", planned.path, "--give-up-after", "2 d")
    assert ran.code == 1 and ran.out.count("running") == 1
    said = refusal("monitor", "run", planned.path, "--give-up-after", "soon")
    assert said.startswith("--give-up-after: found 'soon'")


def test_one_that_has_not_begun_is_waited_for_and_it_is_said(tmp_path: Path) -> None:
    planned, begun = Submitted(tmp_path / "run"), Submitted(tmp_path / "begun", "uuid-2")
    begun.out.write_text(whole_run())
    os.utime(planned.path / "wf-0.dag", (START, START))
    ran = adon("monitor", "run", planned.path, begun.path, "--give-up-after", "2 d")
    waits = "DAGMan has not begun: waiting for pegasus-run or condor_submit_dag"
    assert (ran.code, ran.err) == (1, f"adon: {planned.path}: {waits}\n")


def test_those_inside_are_named_by_their_whole(tmp_path: Path) -> None:
    outer = Submitted(tmp_path / "run")
    (tmp_path / "run" / "wf-0.dag").write_text("SUBDAG EXTERNAL sub inner.dag\n")
    (tmp_path / "run" / "inner.dag").write_text("JOB a a.sub\n")
    outer.out.write_text(whole_run(steps=1))
    outer.nodes.write_text(submitted(1, START, "sub"))
    (tmp_path / "run" / "inner.dag.dagman.out").write_text(whole_run(steps=1))
    ran = adon("monitor", "run", outer.path)
    assert ran.code == 0
    first, second = ran.out.splitlines()
    assert first.startswith("wf  [") and second.startswith("wf/inner  [")


def test_a_directory_with_several_dags(tmp_path: Path) -> None:
    for name, text in {
        "outer": "SUBDAG EXTERNAL sub inner.dag\n",
        "inner": "JOB a a.sub\n",
    }.items():
        Path(f"{name}.dag").write_text(text)
        Path(f"{name}.dag.dagman.out").write_text(whole_run(steps=1))
    Path("outer.dag.nodes.log").write_text(submitted(1, START, "sub"))
    first, second = adon("monitor", "run", ".").out.splitlines()
    assert first.startswith("outer  [") and second.startswith("outer/inner  [")
    Path("other.dag").write_text("JOB b b.sub\n")
    assert refusal("monitor", "run", ".") == (
        ".: found 3 .dag files and no braindump.yml that names one, expected a submit directory,"
        " or one of them: other.dag, outer.dag"
    )
    assert adon("monitor", "run", "outer.dag").out.splitlines()[0] == first
    with Archive("adon-archive.sqlite") as archive:
        ids = [
            str(tmp_path.resolve() / "outer.dag"),
            derived_uuid(f"{tmp_path.resolve()}/outer.dag", "sub"),
        ]
        assert archive.subjects("workflow") == ids
        count = len(archive.query("status"))
    # Each can be measured again, by whatever it is called, and is itself still.
    for number, word in enumerate(("outer.dag", ids[1])):
        ran = adon("monitor", "status", word, "--now", "--json")
        assert (ran.err, json.loads(ran.out)["source"]) == ("", "refresh")
        with Archive("adon-archive.sqlite") as archive:
            statuses = archive.query("status")
            assert len(statuses) == count + 1 + number
            assert {m.details["root"] for m in statuses} == {ids[0]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "found no DIR, expected submit directories, --mine or --all-users"),
        (["--mine", "--since", "soon"],
         "--since is 'soon', expected ISO 8601 such as '2026-11-21T14:00:00Z', or Unix seconds,"
         " or how long ago such as '2 h'"),
        (["--mine", "--broker", "nowhere"],
         "broker URL 'nowhere', expected one like 'http://127.0.0.1:8470'"),
        (["--mine", "--broker", "--token-file", "none"],
         "none: cannot be read: No such file or directory, expected a token"),
        (["--mine", "--broker", "--archive", "a.sqlite"],
         "argument --archive: not allowed with argument --broker (see 'adon monitor run --help')"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(words: list[str], said: str) -> None:
    assert refusal("monitor", "run", *words) == said
    assert not Path("adon-archive.sqlite").exists()


CONFIG = """\
topology: {nodes: [{name: mu, kind: site}], links: []}
"""
NOTICES = """\
monitoring: {notices: [{on: [failed], command: [/bin/sh, -c, "/bin/cat > told"]}]}
"""


def test_somebody_is_told(tmp_path: Path) -> None:
    Path("adon.yml").write_text(CONFIG)
    planned = Submitted(tmp_path / "run")
    said = refusal("monitor", "run", planned.path, "--notify", "adon.yml")
    assert said == "adon.yml: found no monitoring.notices, expected at least one notice"
    Path("adon.yml").write_text(CONFIG + NOTICES)
    said = refusal("monitor", "run", planned.path, "--notify", "adon.yml", "--broker")
    assert said == "--notify: found with --broker, which sends notices itself"
    # What ended before anybody was there to be told is not told.
    soon = time.time() + 3600  # however long the start takes
    planned.out.write_text(starting(soon) + table(soon, fail=2) + exiting(soon, 1))
    ran = adon("monitor", "run", planned.path, "--notify", "adon.yml")
    assert (ran.code, ran.err) == (1, "")
    assert "wf" in Path("told").read_text() and "failed" in Path("told").read_text()


def test_a_signal_ends_it_with_all_recorded(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(starting() + table(START, queued=2))
    command = [sys.executable, "-m", "adon", "monitor", "run", str(planned.path), "--keep"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as monitor:  # fmt: skip
        assert monitor.stdout is not None
        assert "2 in queue" in monitor.stdout.readline()
        with planned.out.open("a") as out:
            out.write(table(START + 1, done=1, queued=1))
        monitor.send_signal(signal.SIGTERM)
        rest = monitor.stdout.read()
        assert monitor.wait(WAIT_S) == 1
    assert "1 of 2 done" in rest
