"""Logs and decision files of a submit directory as the watcher reads them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hooks_world import WF_UUID, make_submit_dir

from monitors.jobs.jobs import AnyEvent, DagEvent, DagmanState, Jobs
from monitors.watcher.registered import Files, process_alive, remote_dagman
from monitors.workflows.logs.dagman import DagmanStep, StepKind
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import InputError

JOB, OTHER = "stage_in_local_tacc_0_0", "align_ID1"
DAG = "flow-0.dag"


def nodes(number: str, cluster: int, text: str, second: int, proc: int = 0) -> str:
    at = f"2026-11-21T10:00:{second:02d}.500Z"
    return f"{number} ({cluster:03d}.{proc:03d}.000) {at} {text}\n...\n"


def submitted(cluster: int, second: int, job: str = JOB, proc: int = 0) -> str:
    text = f'Job submitted from host: <h>\n    [ DAGNodeName = "{job}"; ]'
    return nodes("000", cluster, text, second, proc)


def ended(cluster: int, second: int, proc: int = 0) -> str:
    text = "Job terminated.\n\t(1) Normal termination (return value 3)"
    return nodes("005", cluster, text, second, proc)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_submit_dir(tmp_path / "run", {JOB: []}, [OTHER])
    with (run / "braindump.yml").open("a") as dump:
        dump.write('condor_log: "flow-0.log"\n')
    return run


def add(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(text)


def whats(events: list[AnyEvent]) -> list[object]:
    return [
        event.kind
        if isinstance(event, JobEvent)
        else event.state
        if isinstance(event, DagEvent)
        else event.step
        for event in events
    ]


def test_each_event_once_though_two_logs_tell_it(run: Path) -> None:
    files = Files(run)
    text = submitted(4, 1) + nodes("001", 4, "Job executing on host: <h>", 2)
    for name in (f"{DAG}.nodes.log", "flow-0.log"):
        add(run / name, text)
    assert whats(list(files.events())) == [Kind.SUBMIT, Kind.EXECUTE]
    more = [
        nodes("012", 4, "Job was held.", 3),
        nodes("013", 4, "Job was released.", 4),
        nodes("004", 4, "Job was evicted.", 5),
        nodes("009", 4, "Job was aborted.", 6),
    ]
    for name in (f"{DAG}.nodes.log", "flow-0.log"):
        add(run / name, "".join(more))
    assert whats(list(files.events())) == [Kind.HELD, Kind.RELEASED, Kind.EVICTED, Kind.ABORTED]
    assert list(files.events()) == []


def test_what_dagman_emptied_its_log_of_stands_in_the_workflows_own(run: Path) -> None:
    files = Files(run)
    nodes_log = run / f"{DAG}.nodes.log"
    for name in (f"{DAG}.nodes.log", "flow-0.log"):
        add(run / name, submitted(4, 1))
    list(files.events())
    add(run / "flow-0.log", ended(4, 2) + submitted(5, 3))
    nodes_log.write_text(submitted(5, 3))  # a DAGMan that begins empties it
    events = [(e.kind, e.cluster) for e in list(files.events()) if isinstance(e, JobEvent)]
    assert events == [(Kind.TERMINATED, 4), (Kind.SUBMIT, 5)]


def test_a_log_that_was_put_aside_is_read_where_there_is_no_other(tmp_path: Path) -> None:
    run = make_submit_dir(tmp_path / "run", {JOB: []})
    add(run / f"{DAG}.nodes.log.old", submitted(4, 1) + ended(4, 2))
    add(run / f"{DAG}.nodes.log", submitted(5, 3))
    events = [(e.kind, e.cluster) for e in Files(run).events() if isinstance(e, JobEvent)]
    assert events == [(Kind.SUBMIT, 4), (Kind.TERMINATED, 4), (Kind.SUBMIT, 5)]


def test_a_node_of_several_processes_ends_with_the_last(run: Path) -> None:
    files = Files(run)
    log = run / f"{DAG}.nodes.log"
    jobs = Jobs()
    add(log, submitted(4, 1) + submitted(4, 1, proc=1) + ended(4, 2))
    assert [jobs.take(event) for event in list(files.events())] == [JOB, JOB, None]
    add(log, ended(4, 3, proc=1))
    assert [jobs.take(event) for event in list(files.events())] == [JOB]
    job = jobs.get(JOB)
    assert job is not None and job.current is not None
    assert (job.current.last, job.current.returned) == (Kind.TERMINATED, 3)


def test_dagmans_life_and_its_pre_scripts(run: Path) -> None:
    out = run / f"{DAG}.dagman.out"
    alive: dict[int, bool | None] = {357: True}
    files = Files(run, alive.get)
    add(run / f"{DAG}.nodes.log", "")  # else DAGMan's words are all there is
    at = "11/21/26 10:00:0"
    add(
        out, f"{at}1 ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n{at}1 ** PID = 357 RealUID = 1\n"
    )
    add(out, f"{at}2 Running PRE script of Node {JOB}...\n")
    add(out, f"{at}3 PRE Script of node {JOB} died on signal 9 (Killed)\n")
    add(out, f"{at}3 Deferring PRE script of node {JOB} for 3 seconds (exit status was 4)...\n")
    add(out, f"{at}4 PRE Script of Node {JOB} failed with status 2\n")
    add(out, f"{at}5 PRE Script of node {JOB} completed successfully.\n")
    add(out, f"{at}6 Event: ULOG_SUBMIT for HTCondor Node {JOB} (4.0.0) {{11/21/26 10:00:06}}\n")
    begin, pid, *rest = list(files.events())
    assert whats([begin, pid]) == [DagmanState.STARTED, StepKind.PID]
    assert [(e.step, e.number) for e in rest if isinstance(e, DagmanStep)] == [
        (StepKind.PRE_STARTED, 0),
        (StepKind.PRE_ENDED, -9),
        (StepKind.PRE_ENDED, 2),
        (StepKind.PRE_ENDED, 0),
        (StepKind.SUBMITTED, 0),
    ]
    assert files.gone(0.0) == []
    alive[357] = None  # on another machine
    assert files.gone(0.0) == []
    alive[357] = False
    assert [e.state for e in files.gone(7.0)] == [DagmanState.GONE]
    assert files.gone(8.0) == []
    add(out, f"{at}7 **** condor_dagman (condor_DAGMAN) pid 357 EXITING WITH STATUS 3\n")
    add(out, f"{at}8 **** condor_dagman (condor_DAGMAN) pid 358 EXITING WITH STATUS 1\n")
    assert whats(list(files.events())) == [DagmanState.GONE, DagmanState.ENDED]


def test_a_log_that_cannot_be_read_costs_nothing_of_the_others(run: Path) -> None:
    """What was read is read: it would never come again."""
    files = Files(run)
    add(run / f"{DAG}.nodes.log", submitted(4, 1) + ended(4, 2))
    add(run / f"{DAG}.dagman.log", nodes("009", 1, "Job was aborted.", 3))
    (run / f"{DAG}.dagman.out").mkdir()
    events: list[AnyEvent] = []
    with pytest.raises(InputError, match=r"dagman\.out: cannot be read"):
        events.extend(files.events())
    assert whats(events) == [Kind.SUBMIT, Kind.TERMINATED, DagmanState.ENDED]


def test_what_htcondor_does_with_dagman(run: Path) -> None:
    files = Files(run)
    log = run / f"{DAG}.dagman.log"
    for number in ("000", "001", "012", "013", "001", "004", "009"):
        add(log, nodes(number, 1, "It was.", 1))
        add(log, nodes(number, 1, "It was.", 2))  # any number of times
    assert whats(list(files.events()))[::2] == [
        DagmanState.STARTED, DagmanState.GONE, DagmanState.STARTED, DagmanState.GONE,
        DagmanState.ENDED,
    ]  # fmt: skip


def test_everything_at_once_is_told_in_order(run: Path) -> None:
    """A watcher that starts when all is over: DAGMan was killed, and then removed by the schedd."""
    at = "11/21/26 10:00:0"
    out = f"{at}1 ** x (CONDOR_DAGMAN) STARTING UP\n{at}2 Running PRE script of Node {JOB}...\n"
    add(run / f"{DAG}.dagman.out", out)
    begun = next(iter(Files(run).events())).at
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begun + 5))
    for number in ("004", "009"):
        add(run / f"{DAG}.dagman.log", f"{number} (001.000.000) {later} It was.\n...\n")
    assert whats(list(Files(run).events())) == [
        DagmanState.STARTED,
        StepKind.PRE_STARTED,
        DagmanState.GONE,
        DagmanState.ENDED,
    ]


def test_decision_files_wherever_the_dag_has_folders(run: Path) -> None:
    files = Files(run)
    assert files.decision_files() == []
    file = run / "00/00" / f"{JOB}.adon.json"
    pair = {"id": "t", "src": "a", "dst": "b", "state": "installed", "told": True}
    job_files.write_json(file, {"job": JOB, "retry": 1, "at": 5.5, "pairs": [pair, 7, {}]})
    (decision,) = files.decision_files()
    assert (decision.job, decision.retry, decision.at, decision.ids) == (JOB, 1, 5.5, ("t",))
    assert decision.pairs[0].told and not decision.given_back
    assert files.decision_files() == []
    job_files.write_json(file, {"given_back": True, "left_over": ["u", 3]})
    (decision,) = files.decision_files()
    assert decision.given_back and decision.left_over == ("u",)
    # A folder that changed is looked at some more: times of files are coarse.
    old = file.parent.stat()
    job_files.write_json(file, {"retry": 3})
    os.utime(file.parent, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert [p.retry for p in files.decision_files()] == [3]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pairs": 5, "retry": "x", "at": []}'])
def test_damaged_decisions_count_for_nothing(run: Path, text: str) -> None:
    files = Files(run)
    (run / "00/00" / f"{JOB}.adon.json").write_text(text)
    (decision,) = files.decision_files()
    assert (decision.ids, decision.given_back) == ((), False)


def test_no_submit_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no braindump\.yml that names one, expected a submit"):
        Files(tmp_path)
    (tmp_path / "braindump.yml").write_text(f'wf_uuid: "{WF_UUID}"\ndag: "no.dag"\n')
    with pytest.raises(InputError, match=r"no\.dag: cannot be read"):
        Files(tmp_path)


def test_whether_a_dagman_runs() -> None:
    assert process_alive(os.getpid()) is False  # this is no DAGMan
    assert process_alive(2**22 + 1) is False
    assert remote_dagman(1) is None


def test_a_dagman_that_has_not_said_its_number_yet_is_not_the_one_before(run: Path) -> None:
    """It was killed and begun again between two looks, of which the second reads the first line."""
    out, at = run / f"{DAG}.dagman.out", "11/21/26 10:00:0"
    files = Files(run, {357: False, 358: True}.get)
    began = f"{at}1 ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n"
    add(out, f"{began}{at}1 ** PID = 357 RealUID = 1\n{began}")
    events = [e for e in [*files.events(), *files.gone(2.0)] if isinstance(e, DagEvent)]
    assert whats([*events]) == [DagmanState.STARTED] * 2
    add(out, f"{at}1 ** PID = 358 RealUID = 1\n")
    assert whats([*files.events(), *files.gone(3.0)]) == [StepKind.PID]


def test_what_happens_twice_within_a_second_is_told_twice(run: Path) -> None:
    """Where HTCondor's logs have whole seconds, one hold is like the other."""
    held = nodes("012", 4, "Job was held.", 3)
    again = held + nodes("013", 4, "Job was released.", 3) + held
    for name in (f"{DAG}.nodes.log", "flow-0.log"):
        add(run / name, submitted(4, 1) + again)
    events = list(Files(run).events())
    assert whats(events) == [Kind.SUBMIT, Kind.HELD, Kind.RELEASED, Kind.HELD]
    jobs = Jobs()
    assert [jobs.take(event) for event in events] == [JOB] * 4
