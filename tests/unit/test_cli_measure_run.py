"""``adon measure``: the plan of adon.yml, and what runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rig import serving
from broker_rig import Rig
from cli_world import NOBODY, adon
from coordinator_rig import CoordinatorRig
from network_world import star

from adon.cli.measure_text import agents, run_time_text, with_errors
from adon.cli.output import table
from monitors.api import archive as archive_api
from monitors.api import measuring as measuring_api
from monitors.rules import Rules
from network_provisioner.access import Keyring
from network_provisioner.api import create_app

TASKS = {
    "bulk": {"tool": "tcp", "from": "mu", "to": "tacc", "every": "1 h", "for": "10 min"},
    "echo": {"tool": "echo", "from": "tacc", "to": "mu", "every": "20 min", "for": "5 min"},
    "cpu": {"tool": "host", "from": "mu", "every": "30 min", "for": "1500 ms"},
}
DOMAIN = {"nodes": ["s1"], "most": "2 Gb/s", "at_once": 1}


def written(folder: Path, **monitoring: Any) -> Path:
    """An adon.yml."""
    path = folder / "adon.yml"
    path.write_text(yaml.safe_dump({
        "topology": star("mu", "tacc"),
        "controller": {"driver": "simulated"},
        "broker": {"state": "state.sqlite"},
        "monitoring": monitoring,
    }))  # fmt: skip
    return path


def test_the_schedule_as_tables(tmp_path: Path) -> None:
    path = written(tmp_path, tasks=TASKS, agreement={"domains": {"all": DOMAIN}})
    ran = adon("measure", "plan", "--config", path, "--limit", "3")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "tasks 3, measurements 6, again every 1:00:00"
    assert lines[1].endswith("of what could be at most: a run of 'bulk' has to fit between two of "
                             "'echo'")  # fmt: skip
    assert " ".join(lines[4].split()) == "host mu ####...... 41.7% 2 1 - 1 Gb/s -"
    assert lines[-5].split() == ["from", "until", "deadline", "task"]
    assert lines[-3].split() == ["0:00:00", "0:05:00", "0:20:00", "echo"]
    assert lines[-1] == "and 3 more (--limit 6)"


def test_who_has_what_at_which_time(tmp_path: Path) -> None:
    ran = adon("measure", "plan", "--config", written(tmp_path, tasks=TASKS), "--gantt")
    lines = [line.rsplit(maxsplit=1) for line in ran.out.splitlines()[-7:-3]]
    drawn = {what.strip(): marks for what, marks in lines}
    assert drawn["host mu"] == drawn["link s1-tacc"]
    assert drawn["host mu"].count("a") == 12  # 10 of 60 minutes
    assert drawn["host mu"].count("b") == 18
    assert ran.out.splitlines()[-2:] == ["a  bulk", "b  echo"]


def test_as_data(tmp_path: Path) -> None:
    ran = adon("measure", "plan", "--config", written(tmp_path, tasks=TASKS), "--json")
    data = json.loads(ran.out)
    assert (data["feasible"], data["hyperperiod_ms"], len(data["slots"])) == (True, 3_600_000, 6)
    assert data["load"] == 20 / 40
    assert {u["name"] for u in data["usage"]} == {"mu", "tacc", "mu-s1", "s1-tacc"}


def test_what_cannot_fit_is_named(tmp_path: Path) -> None:
    tasks = {**TASKS, "more": {**TASKS["bulk"], "for": "50 min"}}
    path = written(tmp_path, tasks=tasks)
    ran = adon("measure", "plan", "--config", path)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("no schedule exists: a run of 'more' has to fit between two of")
    data = json.loads(adon("measure", "plan", "--config", path, "--json").out)
    assert (data["feasible"], data["tasks"]) == (False, ["more"])
    assert data["problem"] == ran.out.rstrip("\n")


def test_nothing_to_measure(tmp_path: Path) -> None:
    ran = adon("measure", "plan", "--config", written(tmp_path))
    assert (ran.code, ran.out) == (0, "no measurement is planned: monitoring.tasks is empty\n")


def test_what_cannot_be_meant_is_one_line(tmp_path: Path) -> None:
    for monitoring, words in (
        ({"tasks": {"t": {**TASKS["bulk"], "to": "taco"}}}, "did you mean 'tacc'?"),
        ({"task": {}}, "did you mean 'tasks'?"),
        ({"agreement": {"links": {"mu-tacc": 1}}}, "names the link 'mu-tacc'"),
        ({"tasks": {**TASKS, "t": {**TASKS["cpu"], "every": "59.999 s"}}}, "would help"),
    ):
        path = written(tmp_path, **monitoring)
        ran = adon("measure", "plan", "--config", path)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert words in ran.err
        assert str(path) in ran.err


EXAMPLE = Path(__file__).resolve().parents[2] / "examples/adon.yml"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CoordinatorRig, str]]:
    """A coordinator, agents that are there, and its address."""
    coordinator = CoordinatorRig(tmp_path)
    coordinator.all_present()
    rig = Rig(tmp_path / "state.sqlite", clock=coordinator.clock)
    ring = Keyring((), coordinator.clock)
    monkeypatch.setattr("time.time", coordinator.clock)
    routers = [
        coordinator.agents_router(rig.broker),
        measuring_api.router(coordinator.coordinator, Rules(), ring.principals, coordinator.clock),
        archive_api.router(coordinator.archive, Rules(), coordinator.clock),
    ]
    with serving(create_app(rig.broker, ring, more=routers)) as port:
        yield coordinator, f"http://127.0.0.1:{port}"
    coordinator.close()


def measure(url: str, *words: str) -> tuple[int, str, str]:
    ran = adon("measure", *words, "--broker", url)
    return ran.code, ran.out, ran.err


def test_what_is_measured(world: tuple[CoordinatorRig, str]) -> None:
    coordinator, url = world
    coordinator.let_pass(60)
    coordinator.work("mu", "tacc", "iplant")
    code, out, _ = measure(url, "list")
    assert code == 0 and out.splitlines()[0].split() == [
        "task", "tool", "of", "every", "for", "next", "done", "failed", "missed", "from",
    ]  # fmt: skip
    row = next(line.split() for line in out.splitlines() if line.startswith("tcp"))
    assert row[:3] == ["tcp", "tcp", "mu>tacc"] and row[-1] == "adon.yml" and row[-4] == "1"
    assert [t["name"] for t in json.loads(measure(url, "list", "--json")[1])] == [
        "echo", "host", "tcp",
    ]  # fmt: skip


def test_agents_and_schedule(world: tuple[CoordinatorRig, str]) -> None:
    coordinator, url = world
    coordinator.let_pass(60)
    coordinator.work("mu", "iplant")
    coordinator.clock.now += 100
    coordinator.coordinator.heard("mu")
    code, out, _ = measure(url, "agents")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0 and "there" in lines["mu"] and "away" in lines["tacc"]
    code, out, _ = measure(url, "schedule", "--around", "5 min")
    assert code == 0 and out.startswith("3 tasks, 9 runs in 60 s, then again")
    assert "mu-s1" in out and "done" in out and "planned" in out
    code, out, _ = measure(url, "schedule", "--task", "tcp", "--json")
    assert {r["task"] for r in json.loads(out)["runs"]} == {"tcp"}
    assert measure(url, "schedule", "--around", "soon")[0] == 2


def test_what_agents_say_is_text_and_when_is_said() -> None:
    status = {
        "name": "mu", "address": "192.0.2.1", "present": False, "last_seen": None, "tools": ["tcp"],
        "offset_s": None, "error_s": None, "unsent": 0, "to_do": 0, "version": "\x1b[2J",
        "last_error": "no\x1b[31m\nmore", "last_error_at": 940.0,
    }  # fmt: skip
    text = with_errors([status], 1000.0, table(agents(1000.0), [status]))
    assert "\x1b" not in text and "mu, 60 s ago: no\\x1b[31m\\nmore" in text
    assert "mu: never seen; 'adon agent run --config agent.yml' starts an agent" in text
    for offset_s, error_s, words in (
        (0.0012, 0.004, "+1.2 ms ± 4  "),
        (1.18, 1.2, "+1.18 s ± 1.2  "),
        (-0.2, 3.0, "-0.2 s ± 3  "),
        (-7200.0, None, "-7200 s  "),
    ):
        clock = status | {"offset_s": offset_s, "error_s": error_s}
        assert words in table(agents(1000.0), [clock])
    run = {"id": "r", "tool": "tcp", "subject": "a>b", "at": 86_500.0, "until": 86_512.0}
    assert "at 00:01:40, " in run_time_text(run, 86_410.0)
    assert "at 1970-01-02 00:01:40, " in run_time_text(run, 86_399.0)


def test_a_run_on_demand_and_its_result(
    world: tuple[CoordinatorRig, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, url = world

    def passes(_: float) -> None:  # while the command waits, the agents work
        coordinator.let_pass(5)
        coordinator.work("mu", "tacc")

    monkeypatch.setattr("adon.cli.measure.time.sleep", passes)
    code, out, err = measure(url, "run", "tcp")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("tcp:1000") and "tcp of mu>tacc at" in out
    assert out.splitlines()[1] == "tcp_throughput  mu>tacc  0.5 b/s"
    code, out, _ = measure(url, "run", "--tool", "echo", "--from", "mu", "--to", "tacc", "--json")
    result = json.loads(out)
    assert code == 0 and result["state"] == "done"
    assert {m["metric"] for m in result["measurements"]} == {"rtt", "loss"}


def test_a_run_that_comes_to_nothing(
    world: tuple[CoordinatorRig, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, url = world
    monkeypatch.setattr("adon.cli.measure.time.sleep", lambda _: coordinator.let_pass(10))
    code, out, _ = measure(url, "run", "tcp")
    assert code == 1 and "missed: agent 'mu' did not poll in time" in out
    coordinator.let_pass(100)
    code, _, err = measure(url, "run", "tcp")
    assert code == 2 and "was last seen" in err and "nothing was started" in err
    coordinator.all_present()
    code, out, _ = measure(url, "run", "tcp", "--no-wait")
    assert code == 0 and len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "found a task and --tool, or neither"),
        (("run", "tcp", "--tool", "tcp"), "found a task and --tool, or neither"),
        (("run", "--tool", "tcp", "--from", "mu", "--set", "x"), "--set: found 'x'"),
        (("run", "--tool", "tpc", "--from", "mu"), "did you mean 'tcp'"),
        (("run", "tcp", "--within", "2 h"), "within: found '2 h'"),
        (("run", "none"), "there is no measurement task 'none'"),
        (("run", "tpc"), "did you mean 'tcp'?"),
        (("delete", "none"), "'adon measure list' has all"),
        (("schedule", "--task", "ecko"), "did you mean 'echo'?"),
        (("delete", "tcp"), "is configured in adon.yml"),
        (("add", "x", "--tool", "host", "--from", "mars", "--every", "1 min"), "found 'mars'"),
        (("add", "x", "--tool", "host", "--every", "1 min"), "from"),
    ],
)
def test_what_is_refused(
    world: tuple[CoordinatorRig, str], words: tuple[str, ...], said: str
) -> None:
    code, out, err = measure(world[1], *words)
    assert (code, out) == (2, "") and said in err and err.startswith("adon: ")
    assert len(err.splitlines()) == 1


def test_tasks_are_added_and_removed(world: tuple[CoordinatorRig, str]) -> None:
    coordinator, url = world
    words = ("add", "mine", "--tool", "echo", "--from", "local", "--to", "iplant")
    code, out, _ = measure(url, *words, "--every", "40 s", "--within", "20 s", "--set", "count=5")
    assert code == 0 and "mine" in out and "local>iplant" in out
    assert coordinator.registry.get("mine").definition.options["count"] == 5
    assert coordinator.registry.get("mine").task.deadline_ms == 20_000
    assert measure(url, "delete", "mine")[1] == "mine is no longer measured\n"
    assert coordinator.registry.find("mine") is None


def test_who_may(world: tuple[CoordinatorRig, str], tmp_path: Path) -> None:
    code, out, _ = measure(world[1], "who", "--from", "mu", "--to", "tacc")
    assert code == 0 and out.count("anybody: role engineer") == 2
    data = yaml.safe_load(EXAMPLE.read_text())
    data["security"] = {
        "tokens": [{"name": "ada", "role": "researcher", "token": "a" * 20},
                   {"name": "noc", "role": "operator", "token": "n" * 20}]
    }  # fmt: skip
    rule = {"who": ["ada"], "may": ["start"], "sites": ["mu", "tacc"], "metrics": ["rtt"]}
    data["monitoring"] = {"access": [rule]}
    file = tmp_path / "adon.yml"
    file.write_text(yaml.safe_dump(data))

    def answer(*words: str) -> list[str]:
        ran = adon("measure", "who", "--config", str(file), *words)
        assert ran.code == 0, ran.err
        return ran.out.splitlines()

    assert answer("--from", "mu", "--to", "tacc") == [
        "Who may start measurements of rtt from mu to tacc?",
        "  ada: rule 1 of monitoring.access",
        "Who may see rtt from mu to tacc?",
        "  ada: role researcher",
        "  noc: role operator",
    ]
    assert "  none of the tokens shown here" in answer("--from", "mu", "--metric", "cpu_use")
    bad = adon("measure", "who", "--config", str(file), "--from", "mars")
    assert bad.code == 2 and "--from is 'mars', expected a site or SITE/HOST; sites" in bad.err
    code, out, err = measure(world[1], "who", "--from", "mu", "--to", "tac")
    assert (code, out) == (2, "") and "to is 'tac', " in err and "did you mean 'tacc'?" in err


def test_a_broker_that_is_not_there() -> None:
    for words in (("list",), ("agents",), ("schedule",), ("run", "x"), ("delete", "x"),
                  ("who", "--from", "mu")):  # fmt: skip
        code, out, err = measure(f"http://{NOBODY}", *words)
        assert (code, out) == (2, "") and "cannot be reached" in err
