"""The coordinator of measurements: who is told what, what comes back, and what outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from broker_rig import code_of
from coordinator_rig import ANYBODY, ECHO, HOST, TASKS, TCP, CoordinatorRig, check, result_of

from monitors.archive.archive import ArchiveError
from monitors.measurements.agent_registry import AgentReport
from monitors.measurements.run_store import MeasuringStore, MeasuringStoreError
from monitors.measurements.runs import RunState
from monitors.measurements.tasks import Infeasible
from monitors.rules import Rule, Rules
from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import BrokerError, InputError

MINUTES = 600_000


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[CoordinatorRig]:
    made = CoordinatorRig(tmp_path)
    yield made
    made.close()


def test_both_ends_are_told_the_same(rig: CoordinatorRig) -> None:
    client = {a["id"]: a for a in rig.ask("mu") if a["task"] == "tcp"}
    server = {a["id"]: a for a in rig.ask("tacc") if a["task"] == "tcp"}
    assert client.keys() == server.keys() and len(client) == 5  # one a minute, five minutes ahead
    for key, ours in client.items():
        theirs = server[key]
        assert (ours["role"], theirs["role"]) == ("client", "server")
        assert (ours["peer"], theirs["peer"]) == ("192.0.2.2", "192.0.2.1")
        for same in ("at", "duration_s", "port", "subject", "options", "tool"):
            assert ours[same] == theirs[same]
        assert 5201 <= ours["port"] <= 5204 and ours["duration_s"] == 10.0
    keys = [a["options"]["key"] for a in rig.ask("mu") if a["tool"] == "echo"]
    assert len(set(keys)) == len(keys) and all(len(key) == 32 for key in keys)
    assert all(a["role"] == "alone" and a["peer"] == "" for a in rig.ask("iplant"))
    assert rig.ask("local") == []
    assert code_of(rig.coordinator.assignments, "mars") == "unknown_agent"


def test_what_was_measured_is_recorded_once(rig: CoordinatorRig) -> None:
    for _ in range(18):
        rig.let_pass(10)
        rig.work("mu", "tacc", "iplant")
    assert len(rig.measured("tcp_throughput")) == 3
    assert len(rig.measured("rtt")) == len(rig.measured("loss")) == 6
    counts = {t["name"]: t["counts"] for t in rig.coordinator.tasks()}
    assert (counts["tcp"]["done"], counts["tcp"]["missed"]) == (3, 0)
    run = next(r for r in rig.runs() if r.task == "tcp")
    assert (run.state, run.measured) == (RunState.DONE, ("tcp_throughput",))
    (measurement,) = [m for m in rig.archive.query("tcp_throughput") if m.id.endswith(run.id)]
    assert (measurement.subject, measurement.source, measurement.details["task"]) == (
        "mu>tacc",
        "agent:mu",
        "tcp",
    )
    # The same again, also with another value, changes nothing and is accepted.
    again = result_of(run, "mu")
    again["measurements"][0]["value"] = 9.0
    assert rig.coordinator.results("mu", [again]) == ([run.id], {})
    assert len(rig.measured("tcp_throughput")) == 3
    check(rig)


def test_an_agent_speaks_for_its_own_part_alone(rig: CoordinatorRig) -> None:
    rig.all_present()
    rig.let_pass(60)
    run = next(r for r in rig.runs() if r.task == "tcp")
    right = result_of(run, "mu")
    for agent, words in (
        ("iplant", "was never assigned this run"),
        ("tacc", "the server of a run meas"),
    ):
        accepted, refused = rig.coordinator.results(agent, [right])
        assert not accepted and words in refused[run.id]
    accepted, refused = rig.coordinator.results("mu", [{**right, "assignment": "made up"}, right])
    assert accepted == [run.id] and "was never assigned this run" in refused["made up"]
    assert rig.measured("tcp_throughput") == [f"tcp_throughput:{run.id}"]
    last = rig.coordinator.agent("tacc")["last_error"]
    assert run.id in last and "refused" in last


def test_an_agent_that_is_away_misses_its_runs_and_others_go_on(rig: CoordinatorRig) -> None:
    for _ in range(30):
        rig.work("mu", "iplant")
        rig.let_pass(10)
    counts = {t["name"]: t["counts"] for t in rig.coordinator.tasks()}
    assert counts["host"]["missed"] == 0 and counts["host"]["done"] > 20
    assert counts["echo"]["missed"] > 5 and counts["echo"]["done"] == 0
    run = next(r for r in rig.runs() if r.task == "echo")
    assert run.state is RunState.MISSED
    assert run.error == "agent 'tacc' has not been seen since the broker was started"
    # mu did its part as the server, and nothing of it was measured.
    assert not rig.measured("rtt")
    assert rig.coordinator.agent("tacc")["present"] is False
    assert code_of(rig.coordinator.run_task, "echo", ANYBODY, MINUTES) == "conflict"


def test_a_late_result_still_counts(rig: CoordinatorRig) -> None:
    rig.all_present()
    rig.let_pass(2000)
    run = next(r for r in rig.runs() if r.task == "tcp")
    assert (run.state, "got the run, and has not reported" in run.error) == (RunState.MISSED, True)
    assert rig.coordinator.results("mu", [result_of(run, "mu")])[0] == [run.id]
    assert rig.coordinator.run(run.id).state is RunState.DONE
    assert rig.measured("tcp_throughput") == [f"tcp_throughput:{run.id}"]


def test_an_agent_says_why_there_is_nothing(rig: CoordinatorRig) -> None:
    rig.all_present()
    rig.let_pass(60)
    run = next(r for r in rig.runs() if r.task == "tcp")
    for agent, why in (("tacc", "iperf3 is not there"), ("mu", "nobody listened")):
        result = {
            "assignment": run.id,
            "task": run.task,
            "started": 1.0,
            "ended": 2.0,
            "error": why,
        }
        assert rig.coordinator.results(agent, [result])[0] == [run.id]
    stored_run = rig.coordinator.run(run.id)
    assert stored_run.state is RunState.FAILED
    assert stored_run.error == "mu: nobody listened; tacc: iperf3 is not there"
    assert rig.coordinator.agent("tacc")["last_error"].endswith("iperf3 is not there")


def test_who_stops_is_silent_after_two_periods(rig: CoordinatorRig) -> None:
    for _ in range(18):
        rig.let_pass(10)
        rig.work("mu", "tacc", "iplant")
        rig.coordinator.reported("mu", "disks")
        assert rig.coordinator.silent() == {}
    for _ in range(2):  # the programs of tacc and mu fail, the agents are there
        rig.let_pass(10)
        rig.work("iplant")
    silent = rig.coordinator.silent()
    assert [name for name in silent if "task" in name] == []
    for _ in range(12):
        rig.let_pass(10)
        rig.work("iplant")
    silent = rig.coordinator.silent()
    assert silent.keys() == {"agent 'mu': disks", "task 'tcp'", "task 'echo'"}
    assert silent["task 'tcp'"][1] == "its last two measurements gave no result"
    for _ in range(12):
        rig.let_pass(10)
        rig.work("mu", "tacc", "iplant")
        rig.coordinator.reported("mu", "disks")
    assert rig.coordinator.silent() == {}


def test_an_agent_that_was_away_is_not_late_when_it_is_back(rig: CoordinatorRig) -> None:
    rig.coordinator.reported("mu", "disks")
    rig.work("mu", "tacc", "iplant")
    assert rig.coordinator.silent() == {}
    for _ in range(30):
        rig.let_pass(10)
        rig.work("iplant")
    assert {"agent 'mu': disks", "task 'tcp'"} <= rig.coordinator.silent().keys()
    rig.coordinator.heard("mu")
    rig.coordinator.heard("tacc")
    assert rig.coordinator.silent() == {}
    rig.let_pass(30)
    assert "agent 'mu': disks" in rig.coordinator.silent()


def test_a_task_that_is_added_again_is_not_silent(rig: CoordinatorRig) -> None:
    body = {**HOST, "from": "local"}
    for _ in range(2):
        rig.coordinator.put_task("again", body, ANYBODY)
        rig.all_present()
        assert "task 'again'" not in rig.coordinator.silent()
        rig.coordinator.delete_task("again", ANYBODY)
        rig.let_pass(60)
        rig.coordinator.silent()


def test_what_the_archive_cannot_take_now_is_not_accepted(
    rig: CoordinatorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.all_present()
    rig.let_pass(60)
    run = next(r for r in rig.runs() if r.task == "tcp")
    right = rig.archive.record_many

    def full(_: object) -> int:
        raise ArchiveError("the disk is full")

    monkeypatch.setattr(rig.archive, "record_many", full)
    with pytest.raises(ArchiveError):
        rig.coordinator.results("mu", [result_of(run, "mu")])
    assert rig.coordinator.run(run.id).state is RunState.PLANNED
    monkeypatch.setattr(rig.archive, "record_many", right)
    assert rig.coordinator.results("mu", [result_of(run, "mu")])[0] == [run.id]
    assert rig.coordinator.run(run.id).state is RunState.DONE


def test_a_store_that_fails_changes_nothing(
    rig: CoordinatorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.all_present()
    rig.let_pass(55)
    right = rig.store.write
    todo, tasks = rig.ask("mu"), [t["name"] for t in rig.coordinator.tasks()]

    def full(*_: object, **__: object) -> None:
        raise MeasuringStoreError("the disk is full")

    for jump in (0, 70, -4000):
        monkeypatch.setattr(rig.store, "write", full)
        rig.clock.now += jump
        for change in (
            lambda: rig.coordinator.put_task("mine", {**ECHO, "every": "20 s"}, ANYBODY),
            lambda: rig.coordinator.run_task("host", ANYBODY, MINUTES),
            rig.coordinator.sweep
            if jump
            else lambda: rig.coordinator.run_task("tcp", ANYBODY, MINUTES),
        ):
            with pytest.raises((MeasuringStoreError, BrokerError)):
                change()
        assert [t["name"] for t in rig.coordinator.tasks()] == tasks
        if not jump:
            assert rig.ask("mu") == todo
        monkeypatch.setattr(rig.store, "write", right)
        rig.coordinator.sweep()
        rig.all_present()
        ahead = [a["at"] for a in rig.ask("mu") if a["at"] > rig.clock.now]
        assert ahead and min(ahead) < rig.clock.now + 60, jump
        assert max(ahead) > rig.clock.now + 200, jump
    assert code_of(rig.coordinator.task, "mine") == "unknown_task"
    rig.coordinator.put_task("mine", {**ECHO, "every": "20 s"}, ANYBODY)


# -- restarts --------------------------------------------------------------------------------


def test_results_of_before_are_taken_after_a_restart(rig: CoordinatorRig) -> None:
    rig.all_present()
    rig.let_pass(30)
    rig.clock.now += 7200  # the broker is away for two hours
    later = rig.restarted()
    try:
        later.let_pass(100)
        run = next(r for r in later.runs() if r.task == "tcp")
        assert later.coordinator.results("mu", [result_of(run, "mu")])[0] == [run.id]
        assert later.measured("tcp_throughput") == [f"tcp_throughput:{run.id}"]
        assert later.ask("mu"), "nothing is measured after it was away"
        check(later)
    finally:
        later.close()


def test_tasks_that_were_added_come_back(rig: CoordinatorRig) -> None:
    rig.coordinator.put_task("mine", {**TCP, "from": "local", "to": "iplant"}, ANYBODY)
    later = rig.restarted()
    try:
        task = later.coordinator.task("mine")
        assert (task["subject"], task["configured"], task["problem"]) == (
            "local>iplant", False, "",
        )  # fmt: skip
        assert any(a["task"] == "mine" for a in later.ask("local"))
        # One whose agent is gone stays, with its problem, and keeps nobody from starting.
        members = {name: m for name, m in later.agent_registry.members.items() if name != "local"}
        again = later.restarted(members=members)
        assert "monitoring.tasks" not in again.coordinator.task("mine")["problem"]
        assert "found 'local'" in again.coordinator.task("mine")["problem"]
        assert again.coordinator.task("mine")["next"] is None
        again.let_pass(30)
        again.coordinator.delete_task("mine", ANYBODY)
        assert code_of(again.coordinator.task, "mine") == "unknown_task"
    finally:
        again.close()


def test_a_changed_configuration_is_followed(rig: CoordinatorRig) -> None:
    rig.all_present()
    promised_ms = rig.coordinator.assignments("mu")[1] * 1000
    changed = {"host": HOST, "echo": {**ECHO, "every": "60 s"}, "new": {**TCP, "from": "local"}}
    later = rig.restarted(tasks=changed)
    try:
        later.let_pass(600, 5)
        check(later)
        kept = [r for r in later.runs() if r.state is not RunState.DROPPED]
        assert not [r for r in kept if r.task == "tcp"]
        assert len([r for r in kept if r.task == "new"]) > 8
        # Where runs were promised that cannot be taken back, it is made at another time.
        releases = sorted(r.release_ms for r in kept if r.task == "echo")
        assert {b - a for a, b in pairwise(releases)} == {60_000}
        starts = sorted(r.at_ms for r in kept if r.task == "echo" and r.at_ms > promised_ms)
        assert {b - a for a, b in pairwise(starts)} == {60_000}
    finally:
        later.close()


def test_tasks_that_do_not_fit_are_named(tmp_path: Path) -> None:
    tasks = {f"t{n}": {**TCP, "every": "60 s", "for": "25 s"} for n in range(3)}
    with pytest.raises(Infeasible) as caught:
        CoordinatorRig(tmp_path, tasks)
    assert set(caught.value.tasks) <= tasks.keys() and caught.value.tasks


# -- tasks that people add -------------------------------------------------------------------


def test_a_new_task_begins_at_once_and_moves_nothing(rig: CoordinatorRig) -> None:
    rig.all_present()
    before = {r.id for r in rig.runs()}
    versions = {name: rig.coordinator.version(name) for name in rig.agent_registry.members}
    task, new = rig.coordinator.put_task("mine", {**ECHO, "every": "20 s"}, ANYBODY)
    assert new and task["by"] == "" and task["next"] - rig.clock.now < 40
    assert before <= {r.id for r in rig.runs() if r.state is RunState.PLANNED}
    changed = {n for n, v in versions.items() if rig.coordinator.version(n) != v}
    assert changed == {"mu", "tacc"}
    # The same again changes nothing; something else takes the place of it.
    versions = {name: rig.coordinator.version(name) for name in rig.agent_registry.members}
    assert rig.coordinator.put_task("mine", {**ECHO, "every": "20 s"}, ANYBODY)[1] is False
    assert versions == {name: rig.coordinator.version(name) for name in rig.agent_registry.members}
    rig.coordinator.put_task("mine", {**ECHO, "every": "60 s", "options": {"count": 3}}, ANYBODY)
    todo = [a for a in rig.ask("tacc") if a["task"] == "mine"]
    assert 4 <= len(todo) <= 5 and {a["options"]["count"] for a in todo} == {3}
    rig.let_pass(200)
    check(rig)


def test_what_does_not_fit_changes_nothing(rig: CoordinatorRig) -> None:
    rig.all_present()
    todo = rig.ask("mu")
    with pytest.raises(Infeasible):
        rig.coordinator.put_task("big", {**TCP, "for": "50 s"}, ANYBODY)
    assert rig.ask("mu") == todo and rig.store.tasks() == {}
    assert code_of(rig.coordinator.task, "big") == "unknown_task"


def test_a_task_that_was_taken_away_is_measured_no_more(rig: CoordinatorRig) -> None:
    rig.coordinator.put_task("mine", {**HOST, "from": "local", "for": "5 s"}, ANYBODY)
    rig.all_present()
    rig.clock.now += 12
    runs = [r for r in rig.runs() if r.task == "mine"]
    begun = {r.id for r in runs if r.at_ms / 1000 <= rig.clock.now}
    assert begun
    rig.coordinator.delete_task("mine", ANYBODY)
    left = {a["id"] for a in rig.ask("local")}
    assert left <= begun
    rig.let_pass(400, 10)
    later = [r for r in rig.runs() if r.task == "mine" and r.state is not RunState.DROPPED]
    assert {r.id for r in later} == begun


def test_tasks_of_the_configuration_stand_there(rig: CoordinatorRig) -> None:
    assert code_of(rig.coordinator.put_task, "tcp", TCP, ANYBODY) == "conflict"
    assert code_of(rig.coordinator.delete_task, "tcp", ANYBODY) == "conflict"
    assert code_of(rig.coordinator.delete_task, "none", ANYBODY) == "unknown_task"
    assert {t["name"] for t in rig.coordinator.tasks()} == TASKS.keys()


def test_who_may_not_start_cannot_add_take_away_or_run(tmp_path: Path) -> None:
    ada = Principal("ada", Role.RESEARCHER, frozenset({"ada"}))
    rules = Rules([Rule(("ada",), ("start",), ("mu", "local"))])
    rig = CoordinatorRig(tmp_path, rules=rules)
    try:
        rig.all_present()
        rig.coordinator.put_task("mine", {**TCP, "to": "local"}, ada)
        body = {**TCP, "to": "iplant"}
        assert code_of(rig.coordinator.put_task, "other", body, ada) == "forbidden"
        # Nor may it turn another's task into one that it may start.
        rig.coordinator.put_task("theirs", {**TCP, "from": "iplant", "to": "local"}, ANYBODY)
        assert (
            code_of(rig.coordinator.put_task, "theirs", {**TCP, "to": "local"}, ada) == "forbidden"
        )
        assert code_of(rig.coordinator.delete_task, "theirs", ada) == "forbidden"
        assert code_of(rig.coordinator.run_task, "tcp", ada, MINUTES) == "forbidden"
        once = {"tool": "tcp", "from": "mu", "to": "tacc", "for": "3 s"}
        assert code_of(rig.coordinator.run_once, once, ada, MINUTES) == "forbidden"
        assert rig.coordinator.run_once({**once, "to": "local"}, ada, MINUTES).demanded == "ada"
    finally:
        rig.close()


# -- on demand -------------------------------------------------------------------------------


def test_a_run_on_demand_is_squeezed_in(rig: CoordinatorRig) -> None:
    rig.all_present()
    before = {r.id for r in rig.runs()}
    runs = [rig.coordinator.run_task("tcp", ANYBODY, MINUTES) for _ in range(4)]
    runs.append(
        rig.coordinator.run_once(
            {"tool": "ping", "from": "mu", "to": "tacc", "for": "2 s"}, ANYBODY, MINUTES
        )
    )
    assert all(r.at_ms / 1000 >= rig.clock.now + 3 for r in runs)
    assert before <= {r.id for r in rig.runs() if r.state is RunState.PLANNED}
    check(rig)
    assert {r.id for r in runs} <= {a["id"] for a in rig.ask("mu")}
    rig.let_pass(700)
    check(rig)


def test_a_run_on_demand_may_wait_longer_than_agents_look_ahead(tmp_path: Path) -> None:
    rig = CoordinatorRig(tmp_path, {"busy": {**TCP, "every": "20 min", "for": "15 min"}})
    try:
        rig.let_pass(850, 5)  # the first run has begun, and has 14 minutes to go
        rig.all_present()
        (busy,) = rig.runs()
        assert code_of(
            rig.coordinator.run_once, {**_once(), "for": "11 min"}, ANYBODY, 3_600_000
        ) == ("conflict")
        late = rig.coordinator.run_once({**_once(), "for": "4 min"}, ANYBODY, 3_600_000)
        assert late.at_ms == busy.end_ms > (rig.clock.now + 600) * 1000
        assert rig.coordinator.schedule()["moved"] == []
        check(rig)
        rig.let_pass(4000, 20)
        check(rig)
    finally:
        rig.close()


def _once() -> dict[str, Any]:
    return {"tool": "tcp", "from": "mu", "to": "tacc"}


def test_an_agent_that_lacks_the_tool_is_not_asked(rig: CoordinatorRig) -> None:
    rig.all_present()
    rig.coordinator.heard("tacc", AgentReport(tools=("echo", "host")))
    assert code_of(rig.coordinator.run_task, "tcp", ANYBODY, MINUTES) == "conflict"
    rig.coordinator.run_task("echo", ANYBODY, MINUTES)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tool": "tcp", "from": "mars", "to": "tacc"}, "from: found 'mars'"),
        ({"tool": "ping", "from": "mu", "to": "s1"}, "to: found 's1'"),
        ({"tool": "command", "from": "mu"}, "expected the name of a command"),
    ],
)
def test_tasks_that_cannot_be_meant(rig: CoordinatorRig, body: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        rig.coordinator.put_task("x", {**body, "every": "5 min"}, ANYBODY)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError):
        rig.coordinator.put_task("a/b", {**TCP}, ANYBODY)


# -- clocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [3600.0, -3600.0, -86_400.0, 86_400.0])
def test_a_clock_that_is_set_does_not_stop_measuring(rig: CoordinatorRig, jump: float) -> None:
    rig.all_present()
    rig.let_pass(30)
    rig.clock.now += jump
    rig.let_pass(120)
    rig.all_present()
    assert [a for a in rig.ask("mu") if a["at"] < rig.clock.now + 100]
    check(rig)


def test_two_processes_do_not_share_the_file(rig: CoordinatorRig) -> None:
    with pytest.raises(MeasuringStoreError, match="another broker has it"):
        MeasuringStore(rig.folder / "measuring.sqlite")
    other = rig.folder / "archive.sqlite"
    with pytest.raises(MeasuringStoreError, match="another program's file"):
        MeasuringStore(other)
