"""The small pure things of the coordinator: instants, verdicts, ports, agents, owners, settings."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_rig import Clock, code_of
from coordinator_rig import HOST, MEMBERS, TCP, CoordinatorRig, result_of
from hypothesis import given
from hypothesis import strategies as st
from network_world import demo_network

from adon.config.adon_yml import parse_config
from adon.config.monitoring import check_monitoring
from adon.config.sections import MonitoringConfig
from adon.service.measuring import SilenceWatch, Sweeper
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.agent_registry import AWAY_S, AgentRegistry, AgentReport, RegisteredAgent
from monitors.measurements.runs import Run, new_run, valid_result
from monitors.measurements.schedule import Recurring, plan
from monitors.measurements.task_data import definition_of
from monitors.measurements.tasks import Agreement, Task
from monitors.workflows.overview import Owners
from network_provisioner.base.errors import InputError
from network_provisioner.topology.link_failures import News

# -- instants --------------------------------------------------------------------------------

task = st.builds(
    lambda n, period, share: Task(
        f"t{n}", period, max(1, period * share // 100), period, frozenset({f"h{n}"})
    ),
    st.integers(0, 3), st.sampled_from([100, 200, 250, 400]), st.integers(1, 60),
)  # fmt: skip


@given(
    st.lists(task, max_size=4, unique_by=lambda t: t.name),
    st.integers(0, 10**13), st.integers(0, 5000), st.integers(0, 5000),
)  # fmt: skip
def test_a_schedule_that_repeats(
    tasks: list[Task], since: int, first_ms: int, second_ms: int
) -> None:
    recurring = Recurring(plan(tasks, Agreement()))
    middle, until = since + first_ms, since + first_ms + second_ms
    whole = list(recurring.between(since, until))
    assert whole == [*recurring.between(since, middle), *recurring.between(middle, until)]
    assert all(since <= slot.start_ms < until for slot in whole)
    assert whole == sorted(whole)
    for wanted in tasks:
        mine = [slot for slot in whole if slot.task == wanted.name]
        assert all(b.release_ms - a.release_ms == wanted.period_ms for a, b in pairwise(mine))
        for slot in mine:
            assert slot.release_ms % wanted.period_ms == 0
            assert slot.release_ms <= slot.start_ms < slot.end_ms <= slot.deadline_ms
            assert recurring.has(wanted.name, slot.start_ms)
            assert not recurring.has(wanted.name, slot.start_ms + 1) or wanted.period_ms == 1
        following = recurring.next_of(wanted.name, since)
        assert following is not None and following.start_ms >= since
        if mine:
            assert following == mine[0]
    assert recurring.next_of("nobody", since) is None


# -- ports -----------------------------------------------------------------------------------


def made(number: int, at: int, beside: list[Run]) -> Run:
    definition = definition_of("t", TCP, demo_network(), MEMBERS)
    return new_run(f"t:{number}", definition, at, at, MEMBERS, beside)


def test_servers_that_overlap_have_different_ports() -> None:
    runs: list[Run] = []
    for number in range(4):
        runs.append(made(number, number * 100, runs))
    assert {run.parts[0].assignment.port for run in runs} == {5201, 5202, 5203, 5204}
    with pytest.raises(InputError, match="all its ports 5201 to 5204 are taken"):
        made(4, 400, runs)
    # One after the other they take turns, so that a port rests before it is used again.
    later = [*runs]
    for number in range(8):
        later.append(made(10 + number, 50_000 + number * 10_000, later))
    ports = [run.parts[1].assignment.port for run in later[4:]]
    assert ports == [5201, 5202, 5203, 5204] * 2
    assert all(part.assignment.port == run.parts[0].assignment.port for run in later
               for part in run.parts)  # fmt: skip


# -- verdicts --------------------------------------------------------------------------------


DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"x": inner}, range(100_000), {})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    rig = CoordinatorRig(tmp_path_factory.mktemp("coordinator"))
    rig.all_present()
    echo_run = next(r for r in rig.runs() if r.task == "echo")
    rig.close()
    return echo_run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "tcp_throughput", "unit": "bit/s"}, "which echo does not measure"),
        ({"metric": 3}, "measurements.0.metric: found 3, expected a text"),
        ({"unit": "ms"}, "found unit 'ms', expected 's'"),
        ({"id": "rtt:other"}, "rtt: found id 'rtt:other', expected"),
        ({"subject": "mu>tacc"}, "found subject 'mu>tacc', expected 'tacc>mu'"),
        ({"source": "agent:mu"}, "found source 'agent:mu', expected 'agent:tacc'"),
        ({"workflow": "w"}, "found workflow 'w', expected ''"),
        ({"value": -1.0}, "found -1.0, expected 0 or more"),
        ({"value": True}, "value: found True, expected a number"),
        ({"value": 10**400}, "expected a number"),
        ({"value": float("nan")}, "found nan, expected a number"),
        ({"at": 0.0}, "found at 0.000, expected"),
        ({"details": [1]}, "details: found [1], expected a mapping"),
        ({"details": DEEP}, "its details are not JSON-ready"),
        ({"details": {"x": "y" * 70_000}}, "found details of 70009 characters of JSON, expected"),
        ({"extra": 1}, "measurements.0 has the unknown key 'extra'"),
    ],
)
def test_measurements_that_are_not_believed(run: Run, change: dict[str, Any], words: str) -> None:
    part = replace(run.parts[0], told=True)
    right = result_of(run, "tacc")
    assert len(valid_result(right, run, part, run.end_ms).measurements) == 2
    right["measurements"][0] = {**right["measurements"][0], **change}
    with pytest.raises(InputError) as caught:
        valid_result(right, run, part, run.end_ms)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"unit": "k\0g"}, {"metric": "custom:\ud800"}])
def test_what_no_archive_takes_does_not_keep_others_from_it(
    run: Run, change: dict[str, Any]
) -> None:
    """A result is refused by itself: the others of its agent are recorded."""
    right, run = result_of(run, "tacc"), replace(run, tool="command")
    measurement = {"metric": "custom:mass", "value": 1.0, "unit": "kg", "at": run.at_ms / 1000}
    part = replace(run.parts[0], told=True)
    assert valid_result(right | {"measurements": [measurement]}, run, part, run.end_ms).measurements
    with pytest.raises(InputError, match=r"no text|expected a text"):
        valid_result(right | {"measurements": [measurement | change]}, run, part, run.end_ms)


def test_results_that_are_not_believed(run: Run) -> None:
    part = replace(run.parts[0], told=True)
    right = result_of(run, "tacc")
    measurement = right["measurements"][0]
    for more, words in (
        ({"task": "other"}, "found task 'other'"),
        ({"extra": 1}, "the result has the unknown key 'extra'"),
        ({"error": 3}, "expected a text"),
        ({"error": "no"}, "measurements beside an error"),
        ({"started": "now"}, "started: found 'now'"),
        ({"measurements": {}}, "expected a list"),
        ({"measurements": [measurement] * 2}, "a metric twice"),
        ({"measurements": [measurement] * 30}, "at most 20"),
        ({"measurements": [7]}, "measurements.0: found 7, expected a mapping"),
    ):
        with pytest.raises(InputError, match=words):
            valid_result({**right, **more}, run, part, run.end_ms)
    with pytest.raises(InputError, match="has not begun"):
        valid_result(right, run, part, run.at_ms - 60_000)
    empty = valid_result({**right, "measurements": []}, run, part, run.end_ms)
    assert empty.error == "the agent sent neither a measurement nor a reason"
    long = valid_result({**right, "measurements": [], "error": "a\nb" * 999}, run, part, run.end_ms)
    assert len(long.error) == 500 and "\n" not in long.error


# -- agents ----------------------------------------------------------------------------------


def test_who_is_there() -> None:
    agent_registry = AgentRegistry([RegisteredAgent("mu/dtn1", "192.0.2.1")])
    assert agent_registry.away("mu/dtn1", 5.0).endswith("since the broker was started")
    agent_registry.heard("mu/dtn1", 10.0, AgentReport(0.5, 0.1, 2, 1, "7", ("tcp",)))
    agent_registry.heard("mu/dtn1", 11.0)
    view = agent_registry.view("mu/dtn1", 12.0)
    assert (view["site"], view["offset_s"], view["tools"]) == ("mu", 0.5, ["tcp"])
    assert agent_registry.present("mu/dtn1", 11.0 + AWAY_S)
    assert agent_registry.away("mu/dtn1", 12.0 + AWAY_S) == "agent 'mu/dtn1' was last seen 91 s ago"
    assert agent_registry.lacks("mu/dtn1", "echo") and not agent_registry.lacks("mu/dtn1", "tcp")
    assert code_of(agent_registry.known, "mu") == "unknown_agent"


def test_an_agent_that_does_not_ask_again_is_told_once_and_so_is_its_return() -> None:
    clock, news = Clock(0.0), list[News]()
    agents = AgentRegistry([RegisteredAgent(name, "192.0.2.1") for name in ("mu", "old", "tacc")])

    def silent() -> dict[str, tuple[float, str]]:
        away = agents.silent(clock.now)
        return {f"agent {name!r}": (at, "it has not polled in time") for name, at in away.items()}

    watch = SilenceWatch([silent], [news.append], clock)
    agents.heard("mu", 10.0, None, 25.0)
    agents.heard("old", 10.0)  # it does not wait, and may come when it likes
    agents.heard("tacc", 20.0, None, 25.0)
    agents.heard("mu", 12.0)  # it reports something
    for clock.now in (34.0, 36.0):
        watch.follow()
    assert watch.problem() == "" and news == []
    for clock.now in (36.6, 40.0):
        watch.follow()
    agents.left("tacc", 40.0)
    clock.now = 41.6
    assert watch.problem().startswith("agent 'mu' is silent: ") and "'tacc'" in watch.problem()
    agents.heard("tacc", 41.6, None, 25.0)
    watch.follow()
    agents.heard("mu", 42.0, None, 25.0)
    clock.now = 42.0
    watch.follow()
    assert watch.problem() == ""
    first, last = news
    assert (first.what, first.since, first.at) == ("agent 'mu'", 12.0, 0.0)
    assert str(last) == "agent 'mu' works again after 30 s"


# -- whose a workflow is ---------------------------------------------------------------------


def test_owners_are_found_and_remembered() -> None:
    clock = Clock(0.0)
    with Archive(":memory:") as archive:
        owners = Owners(archive, clock)
        assert owners("w") is None
        known = Measurement("workflow:w", "workflow", "w", 1.0, "1", 1.0, "t", "w", {"user": "ada"})
        archive.record(known)
        assert owners("w") is None, "looked up again at once"
        clock.now += 2
        assert owners("w") == "ada"
    assert owners("w") == "ada", "asked again for what it knows"


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"agents": [{"name": "mu", "address": "here"}]}, "agents.0.address: found 'here'"),
        ({"agents": [{"name": "mu", "address": "192.0.2.1", "ports": [9, 3]}]}, "found 9 to 3"),
        ({"agents": [{"name": "mars", "address": "192.0.2.1"}]}, "is at 'mars', expected a site"),
        ({"agents": [{"name": "mu", "address": "192.0.2.1"}] * 2}, "found 'mu' twice"),
        ({"tasks": {"x": HOST | {"from": "mu"}}}, "task 'x': from: found 'mu', expected one of"),
        ({"access": [{"may": ["x"]}]}, "monitoring.access.0: may.0: found 'x'"),
        ({"agreement": {"link": {}}}, "did you mean 'links'?"),
    ],
)
def test_settings_that_cannot_be_meant(section: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_monitoring(MonitoringConfig(**section), demo_network())
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_settings_are_checked_with_the_rest_of_adon_yml() -> None:
    example = Path(__file__).resolve().parents[2] / "examples/adon.yml"
    data = yaml.safe_load(example.read_text(encoding="utf-8"))
    data["monitoring"] = {"agents": [{"name": "mars", "address": "192.0.2.1"}]}
    with pytest.raises(InputError, match="'mars'"):
        parse_config(data, "adon.yml")


def test_a_fault_does_not_end_the_sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adon.service.measuring._SWEEP_S", 0.01)
    swept: list[int] = []
    again = threading.Event()

    def sweep() -> None:
        swept.append(1)
        if len(swept) > 1:
            again.set()
        raise RuntimeError("a fault of ours")

    sweeper = Sweeper(lambda: None, sweep, lambda: None)
    sweeper.start()
    assert again.wait(120.0)
    sweeper.stop()
