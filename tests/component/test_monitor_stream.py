"""The status stream beside real workflows: planned by a real Pegasus, and DAGs within DAGs, found
in Pegasus's database and in the schedd's queue, followed with all that is inside them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from http_load import CONFIG, broker_process
from pegasus_world import User, make_pegasus_case
from planner_world import MAPPING, Case

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive import Archive
from monitors.follow.discovery import DATABASE, Found, PegasusDatabase, Queue
from monitors.follow.follower import Follower
from monitors.follow.pegasus_status import ask, parsed
from monitors.follow.subworkflows import derived
from monitors.logs.submit_dir import SubmitDir
from monitors.status import FIELDS, State, Status
from pegasus_hooks import pegasus_plan

pytestmark = [pytest.mark.component, pytest.mark.timeout(900)]

WAIT_S = 300.0  # of a machine with much else to do
MONITOR = "import sys; from adon.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = ensure("condor", progress=lambda _line: None)
    sites = {name: SiteSpec(workers=1) for name in ("mu", "tacc")}
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as up:
        yield up


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive.sqlite") as opened:
        yield opened


# ------------------------------------------------------------------ Pegasus


def nested_case(root: Path, home: Path) -> Case:
    """The small workflow as the only job of another one."""
    case = make_pegasus_case(root, home)

    def hints(document: Any) -> None:
        for job in document["jobs"]:
            job["profiles"] = {"selector": {"execution.site": MAPPING[job["id"]]}}

    case.change("workflow", hints)
    (root / "workflow.yml").rename(root / "inner.yml")
    inner = {
        "type": "pegasusWorkflow", "file": "inner.yml", "id": "sub",
        "arguments": ["--sites", "mu,tacc", "--output-sites", "local"],
        "uses": [{"lfn": "inner.yml", "type": "input", "forPlanning": True}],
    }  # fmt: skip
    (root / "workflow.yml").write_text(
        json.dumps({"pegasus": "5.0.4", "name": "outer", "jobs": [inner]})
    )
    replica = {"lfn": "inner.yml", "pfns": [{"site": "local", "pfn": f"file://{root}/inner.yml"}]}
    case.change("replicas", lambda d: d["replicas"].append(replica))
    with (root / "pegasus.properties").open("a") as stream:  # the inner planner looks elsewhere
        stream.write(f"pegasus.catalog.replica = YAML\npegasus.catalog.replica.file = {root}")
        stream.write("/replicas.yml\n")
    return case


@pytest.mark.pegasus
def test_a_users_workflows_are_found_and_followed_with_those_inside(
    pool: Pool, tmp_path: Path
) -> None:
    planner = pegasus_plan.find_planner()
    assert planner is not None
    user = User(pool, planner.resolve().parents[1])
    case = nested_case(tmp_path / "wf", user.home)
    planned = user.types(
        ["pegasus-plan", "--json", "--sites", "mu,tacc", "--output-sites", "local", "--dir",
         "submit", "workflow.yml"], case.root,
    )  # fmt: skip
    submit = Path(json.loads(planned)["submit_dir"])
    database = tmp_path / "archive.sqlite"
    env = pool.env() | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", MONITOR, "monitor", "run", "--user", "--keep", "--json",
               "--archive", str(database)]  # fmt: skip
    with subprocess.Popen(
        pool.command(command), env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as monitor:  # fmt: skip
        try:
            user.types(["pegasus-run", str(submit)], case.root)
            assert monitor.stdout is not None
            lines = _until_done(monitor.stdout, "outer")
        finally:
            os.killpg(monitor.pid, signal.SIGTERM)
        assert monitor.wait(WAIT_S) == 0
    last = {line["workflow"]: line for line in lines}
    assert last["mini"]["root"] == last["mini"]["parent"] == last["outer"]["id"]
    assert last["mini"]["id"] != last["outer"]["id"]
    assert (last["outer"]["state"], last["mini"]["state"]) == ("done", "done")
    shares = [line["percent_done"] for line in lines if line["workflow"] == "mini"]
    assert len(shares) > 3 and shares == sorted(shares)

    # All of it together is what pegasus-status makes of it, and each is what it makes of each.
    theirs = json.loads(user.types(["pegasus-status", "-j", "-Q", str(submit)], case.root))
    assert last["outer"]["total"] == _fields(theirs["totals"])
    assert {name: last["outer"][name] for name in FIELDS} == _fields(theirs["dags"]["root"])
    said = parsed(json.dumps(theirs), 1.0)
    assert said is not None and (said.done, said.state) == (last["outer"]["done"], State.DONE)
    assert parsed(ask(submit), 1.0) == said  # as it is asked where DAGMan is not understood
    home = Path(user.types(["sh", "-c", "echo $HOME"], case.root).strip())
    assert Found(submit) in PegasusDatabase(home / DATABASE, lambda: 0.0).look()

    with Archive(database) as recorded, Archive(":memory:") as afterwards:
        facts = {m.details["name"]: m for m in recorded.query("workflow")}
        assert facts["mini"].details["parent"] == facts["outer"].subject
        assert facts["mini"].details["root"] == facts["outer"].subject
        assert facts["outer"].details["submit_dir"] == str(submit)
        assert facts["outer"].details["user"] == facts["mini"].details["user"] != ""
        # Whoever reads it all later finds what was recorded live.
        Follower(submit, afterwards).run()
        assert _changes(afterwards) == _changes(recorded)


def _changes(archive: Archive) -> dict[str, list[str]]:
    """The ids of all changes of each workflow, in their order."""
    found: dict[str, list[str]] = {}
    for one in archive.query("status"):
        found.setdefault(one.subject, []).append(one.id)
    return found


def _fields(theirs: dict[str, Any]) -> dict[str, float]:
    names = dict.fromkeys(FIELDS) | {"in_queue": "queued", "done": "succeeded", "fail": "failed"}
    return {ours: theirs[name or ours] for ours, name in names.items()}


def _until_done(stream: Any, name: str) -> list[dict[str, Any]]:
    """What the monitor prints until a workflow has ended."""
    lines: list[dict[str, Any]] = []
    timer = threading.Timer(WAIT_S, stream.close)
    timer.start()
    try:
        for line in stream:
            lines.append(json.loads(line))
            if lines[-1]["workflow"] == name and lines[-1]["state"] != "running":
                return lines
    finally:
        timer.cancel()
    raise AssertionError(lines[-3:])


# ------------------------------------------------------------------ DAGs within DAGs

SUB = """\
executable = {folder}/job.sh
universe = local
log = {folder}/jobs.log
output = {folder}/$(cluster).out
queue
"""


def dags(folder: Path) -> Path:
    """A DAG with one inside it beside it, and one inside that in a directory of its own. Its jobs
    wait for a file "go": what has ended before it is looked for is not found."""
    folder.mkdir()
    (folder / "job.sh").write_text(
        f"#!/bin/sh\nwhile [ ! -e {folder}/go ]; do sleep 0.2; done\nexec sleep 1\n"
    )
    (folder / "job.sh").chmod(0o755)
    (folder / "job.sub").write_text(SUB.format(folder=folder))
    (folder / "deep").mkdir()
    (folder / "deep" / "deep.dag").write_text(f"JOB d {folder}/job.sub\n")
    (folder / "inner.dag").write_text(
        "JOB b job.sub\nSUBDAG EXTERNAL deeper deep.dag DIR deep\nPARENT b CHILD deeper\n"
    )
    (folder / "outer.dag").write_text(
        "JOB a job.sub\nSUBDAG EXTERNAL within inner.dag\nPARENT a CHILD within\n"
    )
    return folder


def submitted(pool: Pool, folder: Path) -> str:
    said = pool.run(["condor_submit_dag", "-f", "outer.dag"], cwd=folder)
    found = re.search(r"cluster (\d+)", said)
    assert found is not None, said
    return found[1]


def asking(pool: Pool) -> Queue:
    return Queue("", lambda command: pool.run(list(command)))


def test_dags_within_dags_have_a_status_each(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    folder = dags(tmp_path / "run")
    submitted(pool, folder)
    found = Found(folder, "outer.dag")
    assert found in asking(pool).look()
    seen: list[tuple[str, Status]] = []

    def on_status(submit_dir: SubmitDir, status: Status) -> None:
        seen.append((submit_dir.name, status))

    follower = Follower((), archive, on_status=on_status)
    follower.family.found(found)
    assert follower.poll() is False
    (folder / "go").touch()
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    last = dict(seen)
    assert {name: (s.state, s.done, s.total) for name, s in last.items()} == {
        "outer": (State.DONE, 2, 2), "inner": (State.DONE, 2, 2), "deep": (State.DONE, 1, 1),
    }  # fmt: skip
    (outer,) = follower.family.roots
    assert follower.family.total_of(outer).fields()["done"] == 5
    ids = {m.details["name"]: m.subject for m in archive.query("workflow")}
    assert ids["inner"] == derived(ids["outer"], "within")
    assert ids["deep"] == derived(ids["inner"], "deeper")
    assert {m.details["root"] for m in archive.query("status")} == {ids["outer"]}
    assert {m.workflow: m.details["job"] for m in archive.query("job")}[ids["deep"]] == "d"


def test_a_removed_dag_ends_with_all_inside_it(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    folder = dags(tmp_path / "run")
    (folder / "job.sh").write_text(
        "#!/bin/sh\n[ -e going ] && exec sleep 600\n: > going\n"  # the second job goes on
    )
    cluster = submitted(pool, folder)
    follower = Follower((), archive)
    follower.family.found(Found(folder, "outer.dag"))
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    # Both have a job in the queue: the inner one its own, the outer one the inner one.
    _wait_for(
        lambda: len({m.subject for m in archive.query("status") if m.details["in_queue"]}) == 2
    )
    pool.run(["condor_rm", cluster])
    thread.join(WAIT_S)
    assert not thread.is_alive()
    last = {m.subject: m.details["state"] for m in archive.query("status")}
    assert len(last) == 2 and set(last.values()) == {"removed"}


def test_a_killed_dagman_is_followed_into_its_recovery(
    pool: Pool, tmp_path: Path, archive: Archive
) -> None:
    """The schedd starts it again, and nothing was lost or told twice."""
    folder = dags(tmp_path / "run")
    (folder / "job.sh").write_text(
        "#!/bin/sh\nmkdir first && exit 0\n"  # the others wait
        f"while [ ! -e {folder}/go ]; do sleep 0.2; done\n"
    )
    submitted(pool, folder)
    follower = Follower((), archive)
    follower.family.found(Found(folder, "outer.dag"))
    thread = threading.Thread(target=follower.run, daemon=True)
    thread.start()
    _wait_for((folder / "inner.dag.dagman.out").exists)
    os.kill(_pid(folder / "outer.dag.dagman.out"), signal.SIGKILL)
    (folder / "go").touch()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    (outer,) = follower.family.roots
    assert outer.status is not None and outer.status.state is State.DONE
    with Archive(":memory:") as afterwards:
        again = Follower((), afterwards)
        again.family.found(Found(folder, "outer.dag"))
        again.run()
        assert _changes(afterwards) == _changes(archive)


def test_a_log_that_is_rotated_under_dagman(pool: Pool, tmp_path: Path, archive: Archive) -> None:
    """DAGMan keeps its log open: one is copied and emptied, as logrotate's copytruncate does, one
    is moved away while DAGMan goes on writing to it. Followers come and go meanwhile."""
    folder = tmp_path / "run"
    folder.mkdir()
    jobs = [f"j{number}" for number in range(8)]
    waited = {"j4": "1", "j7": "2"}
    # Two of them wait for what has to happen before the workflow ends.
    (folder / "job.sh").write_text("#!/bin/sh\nwhile [ ! -e $1 ]; do sleep 0.1; done\n")
    (folder / "job.sh").chmod(0o755)
    (folder / "job.sub").write_text(f"arguments = $(after)\n{SUB.format(folder=folder)}")
    (folder / "outer.dag").write_text(
        "".join(f"JOB {job} job.sub\n" for job in jobs)
        + "".join(f"PARENT {a} CHILD {b}\n" for a, b in itertools.pairwise(jobs))
        + "".join(f'VARS {job} after="{waited.get(job, "job.sh")}"\n' for job in jobs)
    )
    submitted(pool, folder)
    out = folder / "outer.dag.dagman.out"
    until = time.monotonic() + WAIT_S
    aside = 0
    for turn in itertools.count():
        assert time.monotonic() < until
        if turn % 5 == 0:
            follower = Follower((), archive)
            follower.family.found(Found(folder, "outer.dag"))
        if follower.poll():
            break
        done = max((m.details["done"] for m in archive.query("status")), default=0)
        if done >= 2 and aside == 0:
            aside += 1
            dagman = _pid(out)
            os.kill(dagman, signal.SIGSTOP)  # what is written in between is lost with copytruncate
            try:
                _wait_for(partial(_stopped, dagman))
                shutil.copyfile(out, out.with_name(f"{out.name}.{aside}"))
                os.truncate(out, 0)
            finally:
                os.kill(dagman, signal.SIGCONT)
            (folder / "1").touch()
        if done >= 5 and aside == 1:
            aside += 1
            out.rename(out.with_name(f"{out.name}.{aside}"))
            out.touch()
            (folder / "2").touch()
        time.sleep(0.1)
    assert aside == 2
    told = [m.details["done"] for m in archive.query("status")]
    assert sorted(set(told)) == list(range(9)) and told == sorted(told)
    with Archive(":memory:") as afterwards:
        again = Follower((), afterwards)
        again.family.found(Found(folder, "outer.dag"))
        again.run()
        assert _changes(afterwards) == _changes(archive)


def test_a_broker_is_sent_what_a_command_follows(
    pool: Pool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = dags(tmp_path / "run")
    submitted(pool, folder)
    with broker_process(tmp_path_factory.mktemp("broker"), CONFIG) as url:
        env = pool.env() | {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", MONITOR, "monitor", "run", "--all", "--broker", url,
                   "--json"]  # fmt: skip
        with subprocess.Popen(
            pool.command(command), env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        ) as monitor:  # fmt: skip
            try:
                assert monitor.stdout is not None
                lines = [json.loads(monitor.stdout.readline())]
                (folder / "go").touch()
                lines += map(json.loads, monitor.stdout)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(monitor.pid, signal.SIGKILL)
        ours = [line for line in lines if line["dir"].startswith(str(tmp_path))]
        last = {line["workflow"]: line for line in ours}
        assert {line["state"] for line in last.values()} == {"done"} and len(last) == 3
        assert last["outer"]["total"]["done"] == 5
        with urllib.request.urlopen(f"{url}/v1/measurements?metric=status&limit=10000") as answer:
            found = json.load(answer)["measurements"]
        told = {one["subject"]: one["details"]["state"] for one in found}
        assert {line["id"]: line["state"] for line in last.values()}.items() <= told.items()


def _pid(out: Path) -> int:
    found = re.findall(r"\*\* PID = (\d+)", out.read_text())
    return int(found[-1])


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _wait_for(condition: Any) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
