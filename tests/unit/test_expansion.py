"""Growing the pool: what a demand starts and stops, and what drivers are told."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_plugins.pool.cloud.command import CommandExpansion
from condor_plugins.pool.cloud.startd import ProcessIdentity, StartdExpansion, fitting, identify
from condor_plugins.pool.cloud.workerconfig import StartdSettings, WorkerShape, worker_config
from condor_plugins.pool.demand import (
    ENDING,
    ExpansionLimits,
    ExpansionPlan,
    SlotDemand,
    Worker,
    plan,
)
from network_provisioner.base.errors import AdonError, InputError, MissingError

LIMITS = ExpansionLimits(8, 3)


def worker(name: str, slots: int, demand: str = "a", **more: str) -> Worker:
    return Worker(name, demand, slots, 100.0, **more)


def test_what_is_missing_is_started_in_full_workers_and_a_rest() -> None:
    assert plan(SlotDemand("a", 8, 9.0), [], 1, LIMITS) == ExpansionPlan(start=(3, 3, 1))


def test_what_is_beyond_the_limits_is_refused() -> None:
    others = [worker("w", 6, "b")]
    assert plan(SlotDemand("a", 8, 9.0), others, 0, LIMITS) == ExpansionPlan(start=(2,), refused=6)


def test_one_that_is_ending_still_holds_its_cores() -> None:
    ending = [worker("w", 6, state=ENDING)]
    assert plan(SlotDemand("a", 8, 9.0), ending, 0, LIMITS) == ExpansionPlan(start=(2,), refused=6)


def test_a_smaller_demand_lets_workers_go() -> None:
    own = [worker("w1", 3), worker("w2", 3), worker("w3", 1)]
    assert plan(SlotDemand("a", 3, 9.0), own, 0, LIMITS) == ExpansionPlan(
        stop=("w2", "w3"), keep=("w1",)
    )


def test_a_demand_for_nothing_lets_all_go_but_others() -> None:
    there = [worker("w1", 3), worker("w2", 3, "b")]
    assert plan(SlotDemand("a", 0, 9.0), there, 0, LIMITS) == ExpansionPlan(stop=("w1",))


demands = st.builds(
    SlotDemand, st.sampled_from("abc"), st.integers(0, 40), st.just(9.0), st.integers(1, 4)
)
limits = st.builds(ExpansionLimits, st.integers(0, 30), st.integers(1, 5))


def carried_out(
    found: ExpansionPlan, demand: SlotDemand, workers: list[Worker], tag: int
) -> list[Worker]:
    kept = [replace(w, state=ENDING) if w.name in found.stop else w for w in workers]
    new = [Worker(f"w{tag}.{n}", demand.id, s, 9.0) for n, s in enumerate(found.start)]
    return kept + new


@settings(max_examples=25)
@given(st.lists(st.tuples(demands, st.integers(0, 20)), max_size=8), limits)
def test_never_more_than_the_limit_and_twice_is_once(
    asked: list[tuple[SlotDemand, int]], limit: ExpansionLimits
) -> None:
    workers: list[Worker] = []
    for tag, (demand, present) in enumerate(asked):
        found = plan(demand, workers, present, limit)
        workers = carried_out(found, demand, workers, tag)
        assert sum(w.slots for w in workers) <= limit.most
        assert all(0 < w.slots <= limit.per_worker for w in workers)
        again = plan(demand, workers, present, limit)
        assert (again.start, again.stop, again.refused) == ((), (), found.refused)
        own = sum(w.slots for w in workers if w.demand == demand.id and w.state != ENDING)
        wanted = max(0, demand.slots - present)
        assert own + found.refused >= wanted
        assert found.refused == 0 or sum(w.slots for w in workers) == limit.most
        workers = [w for w in workers if w.state != ENDING]


@given(st.lists(demands, max_size=6), limits)
def test_nobody_elses_workers_are_stopped(asked: list[SlotDemand], limit: ExpansionLimits) -> None:
    workers: list[Worker] = []
    for tag, demand in enumerate(asked):
        found = plan(demand, workers, 0, limit)
        names = {w.name for w in workers if w.demand == demand.id}
        assert set(found.stop) | set(found.keep) == names
        workers = [w for w in carried_out(found, demand, workers, tag) if w.state != ENDING]


@pytest.mark.parametrize("name", ["", "a b", 'a"', "a\n", "-a", "a" * 201])
def test_a_demand_has_a_plain_name(name: str) -> None:
    with pytest.raises(InputError, match="expected letters, digits"):
        SlotDemand(name, 1, 0.0)


def test_slots_are_counted_as_jobs_fit_into_them() -> None:
    rows = [
        ("Static", "1", "512"), ("Static", "4", "4096"), ("Partitionable", "8", "4096"),
        ("Dynamic", "1", "512"), ("Static", "undefined", "512"),
    ]  # fmt: skip
    assert fitting(rows, 1, 512) == 1 + 1 + 8
    assert fitting(rows, 2, 2048) == 0 + 1 + 2
    assert fitting(rows, 1, 0) == 1 + 1 + 8


def test_a_worker_takes_no_job_after_its_lease_and_leaves_when_idle(tmp_path: Path) -> None:
    settings = StartdSettings(tmp_path, "cm:9618", site="mu", idle_s=90, config={"UID_DOMAIN": "x"})
    text = worker_config(settings, WorkerShape("adon-1", "wf:level3", 2, 4, 512, 1234.2))
    found = dict(line.split(" = ", 1) for line in text.splitlines())
    assert found["START"] == "time() < 1235"
    assert (found["STARTD_NOCLAIM_SHUTDOWN"], found["UPDATE_INTERVAL"]) == ("90", "45")
    assert (found["NUM_SLOTS_TYPE_1"], found["SLOT_TYPE_1"]) == ("2", "cpus=4, memory=512")
    assert (found["NUM_CPUS"], found["MEMORY"]) == ("8", "1024")
    assert (found["AdonExpansion"], found["PegasusSite"]) == ('"wf:level3"', '"mu"')
    assert (found["COLLECTOR_HOST"], found["UID_DOMAIN"]) == ("cm:9618", "x")
    assert int(found["MAXJOBRETIREMENTTIME"]) > 3600


def test_a_driver_needs_its_pool_and_htcondor(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected pool\.collector"):
        StartdExpansion(StartdSettings(tmp_path, ""), LIMITS)
    with pytest.raises(MissingError, match="sbin/condor_master: not found"):
        StartdExpansion(StartdSettings(tmp_path, "cm:9618", release=tmp_path), LIMITS)


def test_processes_are_known_by_when_they_started() -> None:
    import os  # noqa: PLC0415

    own = identify(os.getpid())
    assert own is not None
    assert identify(own.pid) != ProcessIdentity(own.pid, own.started - 1)
    assert identify(2**22 + 1) is None


PROGRAM = """
import json, sys
request = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    log.write(json.dumps(request) + "\\n")
{then}
"""


def program(folder: Path, then: str = "") -> tuple[CommandExpansion, Path]:
    script, log = folder / "grow.py", folder / "log"
    script.write_text(PROGRAM.format(then=then))
    return CommandExpansion([sys.executable, "-I", "-S", str(script), str(log)]), log


def test_a_program_of_the_admins_gets_the_demand(tmp_path: Path) -> None:
    expansion, log = program(tmp_path)
    demand = SlotDemand("wf:level3", 20, 99.5, 2, 512, 10**9, "why")
    assert expansion.enlarge(demand).workers == ()
    assert expansion.shrink("wf:level3") == 0
    assert expansion.workers() == []
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    assert asked == [
        {
            "action": "enlarge",
            "demand": {
                "id": "wf:level3", "slots": 20, "until": 99.5, "cores": 2, "memory_mb": 512,
                "bytes": 10**9, "reason": "why",
            },
        },
        {"action": "shrink", "id": "wf:level3"},
        {"action": "workers"},
    ]  # fmt: skip


def test_its_workers_are_told(tmp_path: Path) -> None:
    row = {"name": "vm-1", "demand": "a", "slots": 4, "until": 9}
    other = {**row, "name": "vm-2", "demand": "b", "state": "ending"}
    answer = {"workers": [row, other], "note": "two are on their way"}
    expansion, _ = program(tmp_path, f"print(json.dumps({answer!r}))")
    grown = expansion.enlarge(SlotDemand("a", 4, 9.0))
    assert grown.workers == (Worker("vm-1", "a", 4, 9.0),)
    assert grown.note == "two are on their way"
    assert [w.state for w in expansion.workers()] == ["running", "ending"]


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("sys.exit('no quota')", "exit code 1: no quota"),
        ("sys.exit(3)", "exit code 3: it said nothing"),
        ("print('done')", "found 'done', expected nothing or"),
        ("print('[]')", "expected nothing or"),
        ("print('{\"workers\": [1]}')", "expected nothing or"),
        ("print('{\"workers\": 3}')", "expected nothing or"),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, then: str, said: str) -> None:
    expansion, _ = program(tmp_path, then)
    with pytest.raises(AdonError, match=said):
        expansion.enlarge(SlotDemand("a", 4, 9.0))


def test_a_program_that_is_not_there_or_never_ends(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="No such file"):
        CommandExpansion([str(tmp_path / "none")]).workers()
    with pytest.raises(AdonError, match=r"no answer within 0\.1 s"):
        CommandExpansion(["sleep", "60"], 0.1).workers()
