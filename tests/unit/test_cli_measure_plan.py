"""``adon measure plan``: the schedule of adon.yml, or what cannot fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from network_world import star

from tests.unit.cli_world import adon

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
