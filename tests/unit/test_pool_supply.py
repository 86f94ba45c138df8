"""What jobs ask for and what machines there are, from ClassAds; how a cloud is asked again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import classad2
import pytest

from condor_plugins.pool.cloud.protocol import BackOff, CloudError, Refusal, Server
from condor_plugins.pool.expander.decision import PoolDecision
from condor_plugins.pool.expander.supply import SILENT_S, Memory, WorkerSlot, boot_time, supply
from condor_plugins.pool.queue import (
    Claim,
    Matching,
    configured_attributes,
    dag_key,
    offline_ad,
    own_machines,
    slot_of,
    waits_for_a_slot,
)
from condor_plugins.pool.scaling import Flavour, MachineState, RunningJob, ScalingPlan

NOW = 1_000_000.0
SMALL, LARGE = Flavour("small", 2, 4096), Flavour("large", 8, 65536)
VERSION = "$CondorVersion: 25.14.1 2026-10-16 PackageID: 25.14.1-1 $"
USUAL = (
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && '
    "(TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer) && "
    'versionGE(split(TARGET.CondorVersion)[1],"25.12.0")'
)


def job(requirements: str = USUAL, **more: object) -> classad2.ClassAd:
    ad = classad2.ClassAd({"RequestCpus": 1, "RequestDisk": 1024, "JobUniverse": 5, "JobStatus": 1})
    ad["RequestMemory"] = classad2.ExprTree(
        "ifThenElse(MemoryUsage isnt undefined, MemoryUsage, (ImageSize + 1023) / 1024)"
    )
    ad["ImageSize"] = 2_000_000
    ad["Requirements"] = classad2.ExprTree(requirements)
    ad.update(more)
    return ad


def offers(site: str = "mu") -> Matching:
    return Matching(
        {
            f.name: offline_ad(f, {"PegasusSite": site, "AdonSite": site}, VERSION)
            for f in (SMALL, LARGE)
        }
    )


@pytest.mark.parametrize(
    ("asks", "only"),
    [
        (job(), {"small", "large"}),
        (job(RequestMemory=10_000), {"large"}),
        (job(RequestCpus=4), {"large"}),
        (job(RequestCpus=9), set()),
        (job(f'{USUAL} && TARGET.PegasusSite == "mu"'), {"small", "large"}),
        (job(f'{USUAL} && TARGET.PegasusSite == "tacc"'), set()),
        (
            job('stringListIMember("https", TARGET.HasFileTransferPluginMethods)'),
            {"small", "large"},
        ),
        (job("TARGET.HasSingularity"), set()),
    ],
)
def test_a_job_asks_for_flavours_as_the_negotiator_would_match(
    asks: classad2.ClassAd, only: set[str]
) -> None:
    assert offers().of(asks, None).only == only


def test_what_is_undefined_is_no_number() -> None:
    """To Python it is 2."""
    asks = job(RequestCpus=classad2.ExprTree("undefined"), RequestMemory=classad2.Value.Undefined)
    assert offers().of(asks, None)[:2] == (1, 0)
    assert dag_key(job(DAGManJobId=classad2.Value.Undefined))[1] == 0


@pytest.mark.parametrize("infinite", ['real("INF")', 'real("NaN")', '-real("INF")', "1e300"])
def test_what_is_infinite_is_no_number(infinite: str) -> None:
    value = classad2.ExprTree(infinite)
    asks = job(RequestCpus=value, RequestMemory=value, DAGManJobId=value.eval())
    assert offers().of(asks, None)[:2] == (1, 0)
    assert dag_key(asks)[1] == 0


def test_a_flavour_advertises_what_its_machines_will_be_told() -> None:
    attributes = configured_attributes(
        {
            "FILESYSTEM_DOMAIN": "here",
            "STARTD_ATTRS": "$(STARTD_ATTRS) HasX Rack",
            "HasX": "True",
            "Rack": '"r1"',
            "Other": "1",
        }
    )
    ad = offline_ad(SMALL, attributes, VERSION)
    assert (ad["FileSystemDomain"], ad["Rack"], "Other" in ad) == ("here", "r1", False)
    asks = 'TARGET.FileSystemDomain == "here" && TARGET.HasX'
    assert Matching({"small": ad}).of(job(asks), None).only == {"small"}


def test_what_a_job_asks_for_may_be_an_expression() -> None:
    assert offers().of(job(), None)[:2] == (1, 1954)


def test_a_flavour_is_offered_as_its_machines_are_seen() -> None:
    seen = offline_ad(SMALL, {"PegasusSite": "mu", "AdonSite": "mu"}, VERSION)
    seen.update({"Name": "slot1@m1", "HasSingularity": True, "AdonWorker": "m1", "Cpus": 0})
    ad = offline_ad(SMALL, {"PegasusSite": "mu", "AdonSite": "mu"}, VERSION, seen)
    assert (ad["HasSingularity"], ad["Cpus"], ad["Offline"]) == (True, 2, True)
    assert "AdonWorker" not in ad
    assert ad["Name"] == "slot1@small.adon"


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ({}, True),
        ({"JobStatus": 2}, False),
        ({"JobStatus": 9}, False),  # for files that others of its machine are being sent
        ({"JobUniverse": 7}, False),
        ({"LastRejMatchReason": "no match found ", "LastRejMatchTime": 2}, True),
        ({"LastRejMatchReason": "concurrency limit LICENSE reached", "LastRejMatchTime": 2}, False),
        ({"LastRejMatchReason": "submitter limit exceeded", "LastRejMatchTime": 2,
          "LastMatchTime": 3}, True),
    ],
)  # fmt: skip
def test_a_machine_helps_who_waits_for_one(more: dict[str, object], waits: bool) -> None:
    assert waits_for_a_slot(job(**more)) is waits


def test_slots_of_the_pool_are_machines_of_the_kinds_that_take_the_same_jobs() -> None:
    part = offline_ad(LARGE, {"PegasusSite": "mu", "AdonSite": "mu"}, VERSION)
    part.update({"Name": "slot1@a", "Cpus": 6, "Memory": 1024, "Offline": False})
    far = offline_ad(LARGE, {"PegasusSite": "tacc", "AdonSite": "tacc"}, VERSION)
    far["Name"] = "slot1@b"
    drains = offline_ad(LARGE, {"PegasusSite": "tacc", "AdonSite": "tacc"}, VERSION)
    drains.update({"Name": "slot1@c", "Draining": True})
    claims = {"slot1@a": [Claim(1, 32768, NOW + 9, "ann"), Claim(1, 0, NOW + 5, "ann")]}
    machines, ads = own_machines([part, far, drains], claims)
    assert [(m.name, m.flavour.name, m.fixed) for m in machines] == [
        ("slot1@a", "own-0", True), ("slot1@b", "own-1", True)
    ]  # fmt: skip
    # Half of its memory is half of the machine.
    assert machines[0].jobs == (RunningJob(4, NOW + 9, "ann"), RunningJob(1, NOW + 5, "ann"))
    assert (ads["own-0"]["Cpus"], ads["own-0"]["Memory"]) == (8, 65536)
    at_mu = job(f'{USUAL} && TARGET.PegasusSite == "mu"')
    assert Matching(ads).of(at_mu, None).only == {"own-0"}


def test_a_dynamic_slot_is_part_of_another() -> None:
    assert slot_of("slot1_12@m1@host") == "slot1@m1@host"
    assert slot_of("slot2@host") == "slot2@host"


# -- supply --------------------------------------------------------------------------------------


def server(name: str = "m1", state: MachineState = MachineState.RUNNING, **more: Any) -> Server:
    return Server(name, "small", state, NOW - 500, **more)


def slot(name: str = "m1", ago_s: float = 10.0, draining: bool = False) -> WorkerSlot:
    return WorkerSlot(f"slot1@{name}", NOW - ago_s, NOW - 300, draining)


def test_a_machine_boots_until_its_startd_is_in_the_collector() -> None:
    memory = Memory(asked={"m1": NOW - 500})
    pool = supply([server()], {}, [SMALL], {}, (), memory, NOW)
    assert [(m.state, m.since) for m in pool.machines] == [(MachineState.BOOTING, NOW - 500)]
    pool = supply([server()], {"m1": slot()}, [SMALL], {}, (), memory, NOW)
    assert [(m.state, m.since) for m in pool.machines] == [(MachineState.RUNNING, NOW - 300)]
    assert pool.boots == {"m1": 200.0}
    assert not supply([server()], {"m1": slot()}, [SMALL], {}, (), memory, NOW).boots


def test_what_runs_there_is_known() -> None:
    claims = {"m1": [Claim(1, 4096, NOW + 60, "ann")]}
    (machine,) = supply([server()], {"m1": slot()}, [SMALL], claims, (), Memory(), NOW).machines
    assert machine.jobs == (RunningJob(2, NOW + 60, "ann"),)


def test_one_that_drains_goes_with_its_last_job() -> None:
    memory, slots = Memory({"m1"}), {"m1": slot(draining=True)}
    claims = {"m1": [Claim(1, 0, NOW + 60, "ann")]}
    (machine,) = supply([server()], slots, [SMALL], claims, (), memory, NOW).machines
    assert machine.state is MachineState.DRAINING
    pool = supply([server()], slots, [SMALL], {}, (), memory, NOW + 15)
    assert (pool.machines, pool.over, pool.dead) == ((), {"m1": "it is drained"}, set())
    # Its startd has shut down, or says that it has drained.
    drained = {"m1": slot(draining=True)._replace(drained=True)}
    assert supply([server()], {}, [SMALL], {}, (), memory, NOW + 15).over == pool.over
    assert supply([server()], drained, [SMALL], {}, (), Memory({"m1"}), NOW).over == pool.over


def test_who_was_told_to_drain_says_so_only_later() -> None:
    memory = Memory({"m1"}, draining={"m1": NOW - 20})
    claims = {"m1": [Claim(1, 0, NOW + 60, "ann")]}

    def state(heard_ago_s: float) -> MachineState:
        slots = {"m1": slot(ago_s=heard_ago_s)}
        return supply([server()], slots, [SMALL], claims, (), memory, NOW).machines[0].state

    assert state(30.0) is MachineState.DRAINING
    assert state(1.0) is MachineState.RUNNING  # somebody has taken it back


def test_one_that_is_silent_is_dead_but_not_at_once() -> None:
    """A collector that was started anew knows nobody for a while."""
    memory = Memory({"m1"})
    pool = supply([server()], {}, [SMALL], {}, (), memory, NOW)
    assert (pool.machines, pool.over) == ((), {})
    assert supply([server()], {}, [SMALL], {}, (), memory, NOW + SILENT_S + 1).dead == {"m1"}
    # One that has lost the collector and not its jobs is left alone.
    claims = {"m1": [Claim(1, 0, NOW, "ann")]}
    assert not supply([server()], {}, [SMALL], claims, {"m1"}, memory, NOW + 2 * SILENT_S).over
    # Its ad outlives it.
    pool = supply(
        [server()], {"m1": slot(ago_s=SILENT_S + 1)}, [SMALL], {}, (), Memory({"m1"}), NOW
    )
    assert (pool.machines, pool.dead) == ((), {"m1"})


def test_one_that_will_lose_the_pool_is_drained_and_ends_its_jobs() -> None:
    old, memory = server(until=NOW - 1), Memory({"m1"})
    claims = {"m1": [Claim(1, 0, NOW + 9999, "ann")]}
    pool = supply([old], {"m1": slot()}, [SMALL], claims, (), memory, NOW)
    assert (pool.machines, pool.over, pool.old.keys()) == ((), {}, {"m1"})
    memory.draining["m1"] = NOW
    for after_s in (1.0, 2 * SILENT_S, 9000.0):
        pool = supply([old], {}, [SMALL], claims, {"m1"}, memory, NOW + after_s)
        assert (pool.machines, pool.over, pool.old) == ((), {}, {})
    assert supply([old], {}, [SMALL], {}, (), memory, NOW + 9999).over == {"m1": "it is drained"}


@pytest.mark.parametrize("state", [MachineState.ENDED, MachineState.ERROR])
def test_one_that_its_cloud_says_is_over_goes(state: MachineState) -> None:
    pool = supply(
        [server(state=state, error="no host")], {"m1": slot()}, [SMALL], {}, (), Memory(), NOW
    )
    assert (pool.machines, pool.over, pool.dead) == ((), {"m1": "no host"}, {"m1"})


def test_boot_times_are_learnt() -> None:
    said = replace(SMALL, boot_s=180.0, boot_spread_s=60.0)
    assert boot_time(said, []) == (180.0, 60.0)
    mean_s, spread_s = boot_time(said, [60.0] * 57)
    assert (mean_s, spread_s) == (66.0, pytest.approx(29.4, abs=0.1))


# -- a cloud that refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "after_s", "until"),
    [
        (Refusal.QUOTA, 0.0, {"small": 300.0, "large": 0.0}),
        (Refusal.REFUSED, 0.0, {"small": 3600.0, "large": 0.0}),
        (Refusal.BUSY, 0.0, {"small": 30.0, "large": 30.0}),
        (Refusal.BUSY, 3000.0, {"small": 3000.0, "large": 3000.0}),
        (Refusal.CREDENTIALS, 0.0, {"small": 600.0, "large": 600.0}),
        (Refusal.BUSY, float("inf"), {"small": 3600.0, "large": 3600.0}),
    ],
)
def test_a_refusal_says_what_to_leave_alone(
    why: Refusal, after_s: float, until: dict[str, float]
) -> None:
    back_off = BackOff()
    back_off.refused("small", CloudError("no", why, after_s), 0.0)
    assert back_off.of(until) == until


def test_back_off_doubles_and_ends() -> None:
    back_off = BackOff()
    for until in (30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
        back_off.broke("small", 0.0)
        assert back_off.of(["small"]) == {"small": until}
        back_off.until.clear()
    back_off.joined("small")
    back_off.broke("small", 0.0)
    assert back_off.of(["small"]) == {"small": 30.0}
    back_off.refused("large", CloudError("no", Refusal.QUOTA), 0.0)
    back_off.room()
    assert back_off.of(["large"]) == {"large": 0.0}


def test_a_cloud_may_be_away_for_weeks() -> None:
    back_off = BackOff()
    for _ in range(5000):
        back_off.refused("small", CloudError("no answer", Refusal.BUSY), 0.0)
    assert back_off.of(["small"]) == {"small": 600.0}


def test_a_decision_tells_each_thing_once() -> None:
    why = {"small": "3 jobs would wait", "m1": "none is in sight", "limits": "money"}
    decision = PoolDecision(
        NOW, ScalingPlan({"small": 2}, ("m1",), why=why), {"m2": "it is drained"},
        {"queued": 3}, {"booting": 1, "running": 4}, failed=("small: no quota",),
    )  # fmt: skip
    assert decision.reason == (
        "start 2 small: 3 jobs would wait; drain m1: none is in sight; delete m2: it is drained; "
        "limits: money; small: no quota"
    )
    assert decision.as_measurement("adon").value == 6


def test_what_was_noted_of_machines_that_are_gone_is_forgotten() -> None:
    memory = Memory({"gone"}, *({"gone": 1.0} for _ in range(4)))
    supply([], {}, [], {}, set(), memory, 10.0)
    assert memory == Memory()
