"""A planned workflow as it lies in its submit directory: its DAG, what is estimated of it, what is
reserved for it, and the command that does so."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from ahead_run import Direct
from broker_rig import Rig
from hooks_world import WF_UUID, make_submit_dir, move
from job_events import EventKind, happened, jobs_after
from planner_world import FIXED, MAPPING, RAW, make_case

from adon.cli.main import main
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.watcher.actions import Watched
from monitors.workflows.planned.dag import Moving, read_dag
from monitors.workflows.planned.submit_dir import JobKind
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks.advance.booking import MOST_ROUNDS, CorrectionRules, WorkflowReservations
from pegasus_hooks.advance.job_estimates import DEFAULT_RUN_S, EstimateReader
from pegasus_hooks.advance.listening import (
    AdvanceReservations,
    StartingListener,
    advance_reservations,
    listener_of,
    requests_of,
)
from pegasus_hooks.advance.predict import Window, predict
from pegasus_hooks.advance.progress import JobPhase, JobProgress, progress_of
from pegasus_hooks.planner import plan
from pegasus_hooks.prepost import hookscripts

T0 = 1_000_000.0
CONFIG = HookConfig("http://127.0.0.1:1")
LITE = """#!/bin/bash
pegasus-transfer --threads 1  1>&2 << 'eof'
[
 {"type": "transfer", "linkage": "input", "lfn": "f", "id": 1, "attributes": {"size": "700"},
  "src_urls": [{"site_label": "mu", "url": "gsiftp://mu/f"}],
  "dest_urls": [{"site_label": "tacc", "url": "file:///f"}]}
]
eof
"""


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """The small workflow of the planner's tests."""
    case = make_case(tmp_path / "case")
    result = plan(case.inputs(), case.sources, MAPPING, tmp_path / "runs", "local", options=FIXED)
    return result.submit_dir


# -- the DAG ---------------------------------------------------------------------------------------


def test_the_planned_dag_is_read_with_its_sites_edges_and_moves(planned: Path) -> None:
    dag = read_dag(planned)
    assert dag.workflow == FIXED.wf_uuid
    by_task = {node.task: node for node in dag.nodes.values() if node.task}
    assert {task: node.site for task, node in by_task.items()} == MAPPING
    assert all(node.takes_worker for node in by_task.values())
    order = list(dag.nodes)
    for node in dag.nodes.values():
        assert all(order.index(parent) < order.index(node.name) for parent in node.parents)
    moved = {m for node in dag.nodes.values() for m in node.first if node.kind is JobKind.STAGE_IN}
    assert moved == {Moving("store", "mu", len(RAW))}
    between = [n for n in dag.nodes.values() if n.kind is JobKind.STAGE_INTER]
    assert ("mu", "tacc") in {m.pair for node in between for m in node.first}
    assert all(m.undeclared for node in between for m in node.first)


def test_a_job_that_brings_its_own_inputs_moves_them(tmp_path: Path) -> None:
    where = make_submit_dir(tmp_path, {"stage_in_a": [move("f", "mu", "tacc", 5)]}, ["run", "sub"])
    (where / "00/00/run.sub").write_text(
        '+pegasus_wf_xformation = "t::x:1"\n+pegasus_job_class = 1\n+pegasus_site = "tacc"\n'
    )
    (where / "00/00/run.sh").write_text(LITE)
    with (where / "flow-0.dag").open("a") as dag:
        dag.write("PARENT stage_in_a CHILD run\nPRIORITY run 7\nSUBDAG EXTERNAL inner inner.dag\n")
    nodes = read_dag(where).nodes
    assert nodes["run"].first == (Moving("mu", "tacc", 700),)
    assert (nodes["run"].parents, nodes["run"].priority) == (("stage_in_a",), 7)
    assert (nodes["run"].retries, nodes["inner"].retries) == (1, 0)
    assert nodes["stage_in_a"].first == (Moving("mu", "tacc", 5),)
    assert nodes["inner"].kind is JobKind.SUBWORKFLOW and nodes["sub"].first == ()


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a submit directory"):
        read_dag(tmp_path / "none")


# -- estimates -------------------------------------------------------------------------------------


def test_what_the_mapping_was_made_from_is_believed(planned: Path) -> None:
    estimates = EstimateReader(read_dag(planned))(None, T0)
    assert estimates.note == ""
    assert estimates.sizes["raw.txt"] == len(RAW) and estimates.sizes["a.txt"] > 0
    assert estimates.workers["mu"] == 4 and estimates.rate(("mu", "tacc")) > 0
    assert {estimates.run_s[name] for name in estimates.run_s if name.startswith("split")} != {0.0}


def test_where_the_catalogs_are_gone_the_archive_is_asked(planned: Path, tmp_path: Path) -> None:
    for file in (planned / "catalogs").iterdir():
        file.unlink()
    dag = read_dag(planned)
    (split,) = [node for node in dag.nodes.values() if node.task == "ID1"]
    with Archive(tmp_path / "a.sqlite") as archive:
        archive.record(
            Measurement("1", "runtime", "t::split:1.0@mu", 7.5, "s", T0 - 60, "event log")
        )
        estimates = EstimateReader(dag)(archive, T0)
    assert "by the archive alone" in estimates.note and "by default" in estimates.note
    assert estimates.run_s[split.name] == 7.5
    others = [n for n in dag.nodes.values() if n.takes_worker and n is not split]
    assert {estimates.run_s[node.name] for node in others} == {DEFAULT_RUN_S}
    assert predict(dag, estimates, {}, T0).windows != ()


# -- where a run stands ----------------------------------------------------------------------------


def story(*what: tuple[EventKind, int | None], retries: int = 1) -> list[JobPhase]:
    jobs, phases, cluster = jobs_after([]), [], 0
    for at, (event, code) in enumerate(what):
        cluster += event is EventKind.SUBMITTED
        jobs.take(happened(event, T0 + at, "j", code, cluster))
        phases.append(progress_of(jobs.get("j"), retries).phase)
    return phases


PRE, PRE_ENDED = (EventKind.PRE_STARTED, None), (EventKind.PRE_ENDED, 0)
SUBMITTED, RUNNING = (EventKind.SUBMITTED, None), (EventKind.RUNNING, None)
FAILS = (SUBMITTED, RUNNING, (EventKind.ENDED, 1), (EventKind.POST_ENDED, 1))


def test_a_job_goes_from_phase_to_phase() -> None:
    well = (PRE, PRE_ENDED, SUBMITTED, RUNNING, (EventKind.ENDED, 0), (EventKind.POST_ENDED, 0))
    assert story(*well) == [
        JobPhase.ASKED, JobPhase.ASKED, JobPhase.SUBMITTED, JobPhase.RUNNING, JobPhase.DONE,
        JobPhase.DONE,
    ]  # fmt: skip
    assert (
        story(SUBMITTED, RUNNING, (EventKind.HELD, None), (EventKind.UNHELD, None))[-1]
        is JobPhase.SUBMITTED
    )
    assert story(SUBMITTED, RUNNING, (EventKind.EVICTED, None))[-1] is JobPhase.SUBMITTED
    assert story(SUBMITTED, RUNNING, (EventKind.REMOVED, None))[-1] is JobPhase.NEVER
    ends = [(EventKind.SUBMITTED, None), (EventKind.ENDED, 0), (EventKind.POST_ENDED, 0)]
    events = [happened(what, T0 + at, "j", code, 1) for at, (what, code) in enumerate(ends)]
    assert progress_of(jobs_after(events).get("j"), 0) == JobProgress(JobPhase.DONE, T0 + 1)


def test_one_that_fails_waits_to_be_run_again_as_often_as_it_may() -> None:
    assert story(*FAILS)[2:] == [JobPhase.WAITING] * 2
    assert story(*FAILS, *FAILS)[-2:] == [JobPhase.NEVER] * 2
    assert story(*FAILS, retries=0)[2] is JobPhase.NEVER
    runs = (SUBMITTED, RUNNING)
    assert story(*runs, (EventKind.ENDED, 0), (EventKind.POST_ENDED, 3))[-1] is JobPhase.WAITING
    assert story(*runs, (EventKind.ENDED, 1), (EventKind.POST_ENDED, 0))[-1] is JobPhase.DONE
    assert story(PRE, (EventKind.PRE_ENDED, -9))[-1] is JobPhase.WAITING
    assert (
        story(PRE, (EventKind.PRE_ENDED, -9), PRE, (EventKind.PRE_ENDED, 1))[-1] is JobPhase.NEVER
    )
    assert story(PRE, (EventKind.PRE_ENDED, 0))[-1] is JobPhase.ASKED


# -- at the broker ---------------------------------------------------------------------------------


def submit_dir(tmp_path: Path) -> Path:
    lists = {"stage_in_a": [move("f", "mu", "tacc", 10**9)], "stage_in_b": []}
    return make_submit_dir(tmp_path / "run", lists, ["x"])


def booking(rig: Rig, where: Path) -> WorkflowReservations:
    return WorkflowReservations(WF_UUID, Direct(rig), lambda job: requests_of(where, CONFIG, job))


def window(start: float, end: float, job: str = "stage_in_a") -> Window:
    return Window(job, ("mu", "tacc"), T0 + start, T0 + end, 50e6)


def fit(booked: WorkflowReservations, rig: Rig, *windows: Window) -> None:
    booked.fit(windows, (), rig.clock.now, CorrectionRules(margin_s=0.0, margin=0.0))


def test_what_is_reserved_is_what_the_jobs_hook_asks_for(rig: Rig, tmp_path: Path) -> None:
    where = submit_dir(tmp_path)
    booked = booking(rig, where)
    fit(booked, rig, window(100, 200))
    (reservation,) = booked.held.values()
    assert (reservation.id, reservation.start, reservation.end) == (
        f"{WF_UUID}:stage_in_a:0:mu-tacc", T0 + 100, T0 + 200,
    )  # fmt: skip
    (request,) = requests_of(where, CONFIG, "stage_in_a").values()
    (answer,) = rig.broker.ask([request])
    assert answer.transit is not None
    assert (answer.transit.id, answer.transit.state) == (reservation.id, TransitState.INSTALLED)
    booked.observe()
    assert booked.held == {}


def test_another_look_finds_what_was_reserved_before(rig: Rig, tmp_path: Path) -> None:
    booked = booking(rig, submit_dir(tmp_path))
    fit(booked, rig, window(100, 200))
    again = booking(rig, submit_dir(tmp_path / "again"))
    again.observe()
    assert again.held == booked.held
    fit(again, rig, window(300, 400))
    (moved,) = again.held.values()
    assert (moved.start, moved.end) == (T0 + 300, T0 + 400)
    fit(again, rig)
    assert again.held == {}
    assert rig.broker.get(moved.id).state is TransitState.RELEASED


def test_what_cannot_be_moved_stays_and_where_its_time_passes_is_asked_for_anew(
    rig: Rig, tmp_path: Path
) -> None:
    booked = booking(rig, submit_dir(tmp_path))
    fit(booked, rig, window(100, 300))
    for name, src, rate in (("l2", "local", 176e6), ("l3", "mu", 15e6)):
        rig.ask(name, src, "iplant", min_bps=rate, start=T0 + 400, end=T0 + 800)
    fit(booked, rig, window(350, 550))
    (held,) = booked.held.values()
    assert held.start == T0 + 100
    rig.let_pass(100)
    fit(booked, rig, window(350, 550))
    assert booked.held == {}
    fit(booked, rig, window(350, 550))
    (waits,) = booked.held.values()
    assert (waits.id, waits.waits) == (f"{held.id}.2", True)
    rig.broker.release("l2")
    rig.let_pass(1)
    booked.observe()
    (there,) = booked.held.values()
    assert not there.waits


def test_what_the_broker_declines_is_not_asked_for_again(rig: Rig, tmp_path: Path) -> None:
    booked = booking(rig, submit_dir(tmp_path))
    fit(booked, rig, window(100, 200, "stage_in_b"), window(50, 400_000))
    assert booked.declined.keys() == {(j, ("mu", "tacc")) for j in ("stage_in_a", "stage_in_b")}
    assert "expected at most 86400 s" in booked.declined["stage_in_a", ("mu", "tacc")]
    fit(booked, rig, window(50, 400_000))
    assert rig.broker.list() == []


def test_a_broker_that_comes_and_goes_is_asked_so_many_times(rig: Rig, tmp_path: Path) -> None:
    booked = booking(rig, submit_dir(tmp_path))
    for _ in range(MOST_ROUNDS + 3):
        fit(booked, rig, window(100, 200))
        for held in list(booked.held.values()):
            rig.broker.release(held.id)
        booked.observe()
    assert len(rig.broker.list()) == MOST_ROUNDS


def test_what_its_job_took_meanwhile_is_not_given_back(rig: Rig, tmp_path: Path) -> None:
    where = submit_dir(tmp_path)
    booked = booking(rig, where)
    fit(booked, rig, window(100, 200))
    rig.broker.ask(list(requests_of(where, CONFIG, "stage_in_a").values()))
    fit(booked, rig)
    assert booked.held == {}
    (transit,) = rig.broker.list()
    assert transit.state is TransitState.INSTALLED


def test_a_refusal_to_give_back_is_told(rig: Rig, tmp_path: Path) -> None:
    booked = booking(rig, submit_dir(tmp_path))
    fit(booked, rig, window(100, 200))
    rig.broker.release(next(iter(booked.held.values())).id)

    class Away(Direct):
        def get(self, transit_id: str, /) -> Transit:
            raise BrokerError("no answer", "unreachable")

    booked.broker = Away(rig)
    with pytest.raises(BrokerError, match="no answer"):
        fit(booked, rig)
    assert booked.held != {}


# -- the whole of it -------------------------------------------------------------------------------


def test_the_command_shows_the_demand(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workflow", "reserve", str(planned), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("neither --hooks nor --config: measurements are left")
    assert shown.splitlines()[1].split() == [
        "from", "to", "begins", "ends", "transfers", "bytes", "rate",
    ]  # fmt: skip
    assert "store  mu" in shown and "expected to end after" in shown
    assert main(["workflow", "reserve", str(planned), "--dry-run", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {(t["src"], t["dst"]) for t in data["transfers"]} >= {("store", "mu"), ("mu", "tacc")}
    assert sum(d["bytes"] for d in data["demand"]) == pytest.approx(
        # Some bytes take less time than a number of seconds since 1970 can tell.
        sum(t["bytes"] for t in data["transfers"] if t["end"] > t["start"])
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "planned without hooks, expected --hooks FILE, or"),
        (["--dry-run", "--start", "soon"], "--start"),
        (["--dry-run", "--horizon", "-1"], "--horizon"),
        (["--hooks", "nothing.json"], "nothing.json: found no such file"),
    ],
)
def test_what_cannot_be_reserved_is_refused_in_one_line(
    planned: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["workflow", "reserve", str(planned), *words]))
    stderr = capsys.readouterr().err
    assert caught.value.code == 2 and expected in stderr and stderr.count("\n") == 1


@pytest.mark.parametrize("script", [False, True])
def test_a_plan_with_hooks_is_reserved_with_their_configuration(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: bool
) -> None:
    hooks = tmp_path / "my hooks.json"
    hooks.write_text('{"broker": "http://127.0.0.1:9"}')
    pre, hooks_word = tmp_path / "adon-pre", str(hooks)
    commands = hookscripts.Commands("/usr/bin/python3", str(hooks), "/bin/true")
    pre.write_text(hookscripts.pre_script(commands))
    if not script:  # as the planner writes it, which refuses a blank
        hooks_word = str(hooks.rename(tmp_path / "hooks.json"))
    line = f"{pre} $JOB" if script else f"python3 pre.py --config {hooks_word} $JOB $RETRY"
    (dag,) = planned.glob("*.dag")
    with dag.open("a") as stream:
        stream.write(f"SCRIPT DEFER 4 60 PRE any {line}\n")
    assert main(["workflow", "reserve", str(planned)]) == 2
    assert "127.0.0.1:9 cannot be reached" in capsys.readouterr().err
    assert hookscripts.planned_config(dag) == Path(hooks_word)


def test_what_is_heard_while_the_plan_is_read_is_not_lost(rig: Rig, planned: Path) -> None:
    read = threading.Event()

    def make() -> AdvanceReservations:
        assert read.wait(60)
        return advance_reservations(
            planned, CONFIG, Direct(rig), rules=CorrectionRules(least_s=0.0)
        )

    starting = StartingListener(make, "w")
    starting.on(jobs_after([happened(EventKind.DAG_STARTED, T0)]), "")
    starting.tick(T0)
    assert rig.broker.list() == []
    read.set()
    starting.join()
    starting.tick(T0)
    assert starting.listener is not None and starting.listener.prediction.windows != ()


def test_a_plan_that_cannot_be_read_costs_only_its_reservations(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starting = listener_of(Watched("w", tmp_path, CONFIG))
    starting.join()
    starting.on(jobs_after([happened(EventKind.DAG_STARTED, T0)]), "")
    starting.tick(T0)
    assert "w: no advance reservations" in caplog.text
