"""Which jobs wait in vain, and why, from ads as HTCondor 25 writes them."""

from __future__ import annotations

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_plugins.waiting import StuckJob, conjuncts, find_stuck

NOW = 1_700_000_000.0
MORE = (
    '(TARGET.Arch == "X86_64") && (versionGE(split(TARGET.CondorVersion)[1],"25.12.0") || '
    "(TARGET.Disk >= RequestDisk)) && (TARGET.Memory >= RequestMemory)"
)


def job(requirements: str, **changes: object) -> classad2.ClassAd:
    ad = classad2.ClassAd()
    ad.update({
        "ClusterId": 7, "ProcId": 0, "DAGNodeName": "align_ID1", "JobStatus": 1, "JobUniverse": 5,
        "RequestMemory": 64, "RequestDisk": 1024, "EnteredCurrentStatus": int(NOW) - 30,
    })  # fmt: skip
    ad["Requirements"] = classad2.ExprTree(requirements)
    ad.update(changes)
    return ad


def slot(site: str, **changes: object) -> classad2.ClassAd:
    ad = classad2.ClassAd()
    ad.update({
        "Name": f"slot1@{site}", "PegasusSite": site, "Arch": "X86_64", "Memory": 1024,
        "Disk": 10**6, "CondorVersion": "$CondorVersion: 25.14.1 2026-01-01 $",
        "State": "Unclaimed", "Start": True,
    })  # fmt: skip
    ad["Requirements"] = classad2.ExprTree("START")
    ad.update(changes)
    return ad


SLOTS = [slot("mu"), slot("tacc"), slot("tacc")]


def whys(*jobs: classad2.ClassAd, slots: list[classad2.ClassAd] = SLOTS) -> list[str]:
    return [stuck.why for stuck in find_stuck(jobs, slots, NOW, 20.0)]


def test_a_site_that_has_no_slot() -> None:
    stuck_jobs = find_stuck([job(f'(PegasusSite == "mars") && {MORE}')], SLOTS, NOW, 20.0)
    why = 'matches no slot: none of 3 slots has PegasusSite == "mars"'
    assert stuck_jobs == [StuckJob("align_ID1", why, NOW - 30)]


def test_what_the_job_asks_for_is_told_as_its_value() -> None:
    (why,) = whys(job(f'(PegasusSite == "mu") && {MORE}', RequestMemory=9216))
    assert why == "matches no slot: none of 3 slots has TARGET.Memory >= 9216"


def test_conditions_that_only_different_slots_meet() -> None:
    slots = [slot("mu", Disk=1), slot("tacc", Memory=32)]
    requirements = '(TARGET.Memory >= RequestMemory) && (Disk > 5) && (Arch == "X86_64")'
    (why,) = whys(job(requirements), slots=slots)
    assert why == "matches no slot: none of 2 slots has TARGET.Memory >= 64 and Disk > 5"


def test_who_only_has_to_wait_is_not_told_of() -> None:
    busy = slot("mu", State="Claimed", Start=False)
    assert whys(job(f'(PegasusSite == "mu") && {MORE}'), slots=[busy, SLOTS[1]]) == []
    # Nothing is left of a partitionable slot; in all it has what is asked for.
    parts = slot("mu", PartitionableSlot=True, Memory=0, TotalSlotMemory=4096, State="Unclaimed")
    assert whys(job(f'(PegasusSite == "mu") && {MORE}'), slots=[parts]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"EnteredCurrentStatus": int(NOW) - 10},  # not for long yet
        {"JobUniverse": 12},  # of the submit host, which asks for no slot
        {"JobUniverse": 7},
        {"JobUniverse": 9},  # of another batch system
        {"JobStatus": 2},
    ],
)
def test_who_is_not_waiting_for_a_slot(changes: dict[str, object]) -> None:
    assert whys(job('PegasusSite == "mars"', **changes)) == []


def test_slots_that_take_nobody() -> None:
    (why,) = whys(job('PegasusSite == "mu"'), slots=[slot("mu", Start=False), slot("tacc")])
    assert why == "matches no slot: 1 slot would do, none accepts it (START)"


def test_slots_that_take_some_users_only() -> None:
    hers = slot("mu", Start=classad2.ExprTree('TARGET.User == "ada@uni"'))
    bobs, adas = (
        job('PegasusSite == "mu"', User=f"{name}@uni", EnteredCurrentStatus=int(NOW) - age)
        for name, age in (("bob", 99), ("ada", 30))
    )
    told = find_stuck([bobs, adas], [hers], NOW, 20.0)
    assert [(stuck.since, stuck.why) for stuck in told] == [
        (NOW - 99, "matches no slot: 1 slot would do, none accepts it (START)")
    ]


def test_an_empty_pool() -> None:
    assert whys(job("true"), slots=[]) == ["matches no slot: the pool has none"]


def test_a_job_on_hold_is_told_at_once() -> None:
    held = job("true", JobStatus=5, HoldReason="cannot\nopen", EnteredCurrentStatus=int(NOW))
    assert whys(held) == ["is on hold: cannot open"]


def test_who_waits_longest_comes_first_and_has_a_name() -> None:
    second = job('PegasusSite == "mars"', EnteredCurrentStatus=int(NOW) - 99, ClusterId=9)
    del second["DAGNodeName"]
    stuck_jobs = find_stuck([job('PegasusSite == "mars"'), second], SLOTS, NOW, 20.0)
    assert [stuck.job for stuck in stuck_jobs] == ["9.0", "align_ID1"]


def test_conditions_are_told_apart() -> None:
    assert conjuncts('(A == "x && y") && ((B > 1) && C) && (D || E)') == [
        'A == "x && y"', "B > 1", "C", "D || E",
    ]  # fmt: skip
    assert conjuncts("A || B && C") == ["A || B && C"]
    assert conjuncts("A ? B && C : D") == ["A ? B && C : D"]
    assert conjuncts("A =?= 1 && (B)") == ["A =?= 1", "B"]
    assert conjuncts("") == []


conditions = st.recursive(
    st.sampled_from(["A", "B == 1", 'C == "x && (y"', "f(D, E)[0]", "'F G' =!= undefined"]),
    lambda inner: st.tuples(inner, st.sampled_from([" && ", " || "]), inner).map(
        lambda t: f"({t[0]}{t[1]}{t[2]})"
    ),
)


@given(conditions)
def test_together_they_are_the_whole(text: str) -> None:
    parts = conjuncts(text)
    values = {"A": True, "B": 1, "C": "x && (y", "D": 1, "E": 2}
    scope = classad2.ClassAd()
    scope.update(values)
    joined = " && ".join(f"({part})" for part in parts)
    assert repr(classad2.ExprTree(joined).eval(scope)) == repr(classad2.ExprTree(text).eval(scope))


@given(st.text(max_size=60))
def test_any_text_ends(text: str) -> None:
    assert all(part.strip() == part for part in conjuncts(text))
