"""Plans in the archive: which count, until when, and who of several planners was first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_rig import FOR_EVER_S, serving, token_of
from broker_rig import Rig
from cli_world import CONFIG, adon, config_file, write_world
from test_api_archive import Here
from test_planner_request import small

from adon.planner_request import MappingAnswer, answers
from adon.planning import placement
from adon.planning import plans as stored
from monitors.archive.archive import Archive
from monitors.archive.plans import add_plan, known_plans
from monitors.base.measurement import Measurement
from monitors.rules import Rules
from monitors.workflows.logs.status import Status, WorkflowState
from pegasus_hooks import pegasus_plan
from pegasus_hooks.plugin.request import Request, parse_request
from site_selector.estimates.plans import Plan

NOW = 1_700_000_000.0
DETAILS: dict[str, Any] = {
    "cores": {"mu": [[0.0, 4], [60.0, 0]]}, "flows": {"tacc>mu": [[0.0, 90.0, 5.0]]},
    "tenths": [60.0],
}  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "archive.sqlite") as opened:
        yield opened


def names(archive: Archive, now: float) -> dict[str, float | None]:
    return {plan.name: plan.done for plan in known_plans(archive, now)[1]}


def runs(archive: Archive, folder: str, state: WorkflowState, done: float, at: float) -> None:
    archive.record_many(
        [
            Measurement(f"workflow:{folder}", "workflow", folder, 1.0, "1", NOW, "t", folder,
                        {"submit_dir": folder}),
            Status(0, 0, 0, 1, 0, 1, 0, done, 2, state, at).measurement(folder, f"{at}"),
        ]
    )  # fmt: skip


def test_a_plan_counts_until_its_workflow_ends(archive: Archive) -> None:
    assert known_plans(archive, NOW) == (0, [])
    assert add_plan(archive, "/a", NOW, DETAILS, 0)
    assert add_plan(archive, "/b", NOW + 1, DETAILS, 1)
    number, plans = known_plans(archive, NOW + 5)
    assert number == 2
    assert [(p.name, p.age_s, p.done, p.details) for p in plans] == [
        ("/b", 4.0, None, DETAILS), ("/a", 5.0, None, DETAILS),
    ]  # fmt: skip
    runs(archive, "/a", WorkflowState.RUNNING, 50.0, NOW + 30)
    assert names(archive, NOW + 31) == {"/a": 0.5, "/b": None}
    runs(archive, "/a", WorkflowState.FAILED, 50.0, NOW + 40)
    assert names(archive, NOW + 41) == {"/b": None}
    assert names(archive, NOW + 86400) == {}


def test_a_workflow_planned_anew_has_its_newest_plan(archive: Archive) -> None:
    assert add_plan(archive, "/a", NOW, DETAILS, 0)
    runs(archive, "/a", WorkflowState.DONE, 100.0, NOW + 30)
    newer = {**DETAILS, "cores": {"mu": [[0.0, 1], [9.0, 0]]}}
    assert add_plan(archive, "/a", NOW + 50, newer, 1)
    (plan,) = known_plans(archive, NOW + 60)[1]
    assert (plan.details["cores"], plan.done) == (newer["cores"], None)


def test_of_planners_at_the_same_moment_one_is_first(archive: Archive) -> None:
    assert add_plan(archive, "/a", NOW, DETAILS, 0)
    assert not add_plan(archive, "/b", NOW, DETAILS, 0)
    archive.record(Measurement("plan:x", "plan", "/x", 1.0, "s", NOW - 9e4, "an engineer"))
    seen: dict[str, int] = {}
    begin = threading.Barrier(4)

    def plan(name: str) -> None:
        begin.wait()
        for _ in range(100):
            number, _ = known_plans(archive, NOW)
            if add_plan(archive, name, NOW, DETAILS, number):
                seen[name] = number
                return

    planners = [threading.Thread(target=plan, args=(f"/{i}",)) for i in range(4)]
    for planner in planners:
        planner.start()
    for planner in planners:
        planner.join()
    assert sorted(seen.values()) == [1, 2, 3, 4]


def wanted(folder: str, config: Path) -> Request:
    """Four jobs of a minute for two sites of four workers, of which mu is a little faster."""
    profiles = {"adon.workers": "4", "adon.queue_wait": "1 s"}
    return parse_request(
        small(
            config=str(config),
            submit_dir=folder,
            sites=[{"name": "local"}, *({"name": n, "profiles": profiles} for n in ("mu", "tacc"))],
            transformations=[
                {"name": "t::a:1", "sites": ["mu", "tacc"], "runtimes": {"mu": "60", "tacc": "66"}}
            ],
            files=[],
            jobs=[{"id": f"j{n}", "transformation": 0} for n in range(4)],
        )
    )


@pytest.fixture(params=["broker", "archive"])
def config(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.setattr(placement, "BROKER_TIMEOUT_S", FOR_EVER_S)
    monkeypatch.setattr(stored, "BROKER_TIMEOUT_S", FOR_EVER_S)
    monkeypatch.setenv("ADON_TOKEN", token_of("researcher"))
    if request.param == "archive":
        Archive(tmp_path / "a.sqlite").close()
        yield config_file(tmp_path)
        return
    rig = Rig(tmp_path / "state.sqlite")
    with serving(Here(rig, Rules()).app) as port:
        broker = {**CONFIG["broker"], "listen": f"127.0.0.1:{port}"}
        yield config_file(tmp_path, broker=broker)
    rig.broker.stop()


def at_sites(answer: MappingAnswer) -> dict[str, int]:
    return dict(Counter(answer.sites.values()))


def test_the_next_workflow_goes_round_a_plan(config: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    *_, alone = answers(wanted("/first", config), notes.append)
    assert at_sites(alone) == {"mu": 4}
    *_, beside = answers(wanted("/second", config), notes.append)
    assert at_sites(beside)["tacc"] >= 2
    workers = {n: a["inputs"]["n"] for p in beside.tell().as_dict()["placements"]
               for a in p["alternatives"] for n in [a["site"]]}  # fmt: skip
    assert "up to 3 planned for other workflows" in workers["mu"]["note"]
    *_, again = answers(wanted("/first", config), notes.append)  # its own plan is not in its way
    assert notes == []
    assert len(known_plans_of(config)) == 2 and again.sites


def test_a_workflow_planned_meanwhile_is_mapped_beside(config: Path) -> None:
    notes: list[str] = []
    slower = answers(wanted("/slower", config), notes.append)
    assert at_sites(next(slower)) == {"mu": 4}
    assert notes == []
    *_, quicker = answers(wanted("/quicker", config), notes.append)
    (second,) = slower
    assert at_sites(quicker) == {"mu": 4} and at_sites(second)["tacc"] >= 2
    assert notes == ["another workflow was planned meanwhile: this one is mapped again"]


def test_what_adon_plan_planned_is_known_to_the_next(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pegasus_plan, "find_planner", lambda: None)
    ran = adon("plan", write_world(tmp_path), "--dir", tmp_path / "s", "--config", config)
    submit_dir = Path(ran.out.splitlines()[-1])
    (plan,) = known_plans_of(config)
    assert plan.cores and plan.until > time.time()
    assert stored.plans_of(config, str(submit_dir)).read() == ()  # its own


def known_plans_of(config: Path) -> tuple[Plan, ...]:
    return stored.plans_of(config, "/nobody").read()
