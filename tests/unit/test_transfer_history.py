"""HTCondor's history of transfers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START

from monitors.base.measurement import Measurement, to_row
from monitors.jobs.condor import ads as ads_of
from monitors.jobs.jobs import Attempt, Outcome
from monitors.workflows.facts.condor_transfers import (
    CondorHistory,
    own_protocol_transfers,
    plugin_facts,
)
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob

JOB = PlannedJob("fetch", JobKind.COMPUTE, "mu", "t::fetch:1")
ATTEMPT = Attempt(JOB, 74, 0, 0, START, START + 5, START + 20, 1, 0, Outcome.DONE)


def ad(way: str = "INPUT", **more: Any) -> dict[str, Any]:
    """As condor_history of 25.14.1 prints it."""
    name = way.title()
    return {
        "ClusterId": 74, "ProcId": 0, "EpochAdType": way, "TransferClass": way,
        "EpochWriteDate": int(START) + 5, "RunInstanceID": 0,
        f"{name}PluginResultList": [
            {"TransferUrl": "osdf://store.example/a", "TransferProtocol": "osdf",
             "TransferSuccess": True, "TransferFileBytes": 5000000, "TransferTotalBytes": 5000000},
            {"TransferUrl": "osdf://store.example/b", "TransferProtocol": "osdf",
             "TransferSuccess": False, "TransferTotalBytes": 7},
            {"TransferUrl": "https://other.example/c", "TransferProtocol": "https",
             "TransferSuccess": True, "TransferTotalBytes": 10},
        ],
        f"{name}PluginInvocations": [{"Schemes": "osdf", "DurationInSeconds": 4},
                                     {"Schemes": "https", "DurationInSeconds": 0}],
    } | more  # fmt: skip


def facts(*ads: dict[str, Any]) -> list[Measurement]:
    return plugin_facts(ATTEMPT, ads_of(json.dumps(ads)) or [])


def test_each_server_is_told_of() -> None:
    big, small = facts(ad())
    assert (big.subject, big.value, big.source) == ("store.example>mu", 5e6, "transfer history")
    assert big.details["goodput_bps"] == 1e7
    assert (big.details["files"], big.details["retries"]) == (1, 1)
    assert big.details["tool"] == "htcondor (osdf)"
    assert (small.subject, small.details["seconds"]) == ("other.example>mu", None)
    (out, _) = facts(ad("OUTPUT"))
    assert (out.subject, out.details["direction"]) == ("mu>store.example", "out")


def test_another_pools_job_of_the_same_number_is_another() -> None:
    assert facts(ad(EpochWriteDate=int(START) - 9000)) == []
    assert facts(ad(ProcId=1)) == facts(ad(ClusterId=75)) == []


def moved(direction: str, n_bytes: int) -> Measurement:
    return Measurement("x", "job_transfer", "local>mu", n_bytes, "byte", START, "event log", "w",
                       {"direction": direction, "bytes": n_bytes, "seconds": 2.0})  # fmt: skip


def test_what_plugins_moved_is_not_counted_twice() -> None:
    plugins = facts(ad())
    (left,) = own_protocol_transfers([moved("in", 6_000_000), moved("in", 5_000_100)], plugins)
    assert (left.value, left.details["bytes"], left.details["seconds"]) == (999_990, 999_990, None)
    (kept,) = own_protocol_transfers([moved("out", 6_000_000)], plugins)
    assert kept.value == 6_000_000


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(list(ad()) + list(ad()["InputPluginResultList"][0])), inner
        )
    ),
    max_leaves=10,
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(list(ad())), anything) | anything, max_size=3))
def test_no_history_breaks_anything(ads: Sequence[Any]) -> None:
    full_ads = [item | ad() if isinstance(item, dict) else item for item in ads]
    for item in [*ads, *full_ads]:
        if isinstance(item, dict):
            for fact in plugin_facts(ATTEMPT, [ad() | item]):
                to_row(fact)
    ads_of(json.dumps(list(ads)))


def test_a_history_that_cannot_be_asked_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "condor_history"
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    history = CondorHistory()
    assert history.ads([1]) == history.ads([2]) == []
    assert (tmp_path / "asked").read_text() == "x\n"
