"""ClassAds as text, names of runs, HTCondor's event log, and what a run asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfers_world import AD, GLOBAL_ID, JOB

from condor_plugins.jobs import jobad
from condor_plugins.jobs.jobad import bytes_sent, no_transfer
from condor_plugins.jobs.request_builder import (
    Run,
    ends,
    job_name,
    missing_site_reason,
    parsed,
    queue_number,
    request,
    run_of,
    shadow_number,
)
from condor_plugins.transfers.run_state import ADS, run_event, run_events
from monitors.jobs.executions import ENDS
from monitors.workflows.logs.events import EventParser, Kind, TransferStep
from network_provisioner.client.hookconfig import HookConfig

CONFIG = HookConfig("http://127.0.0.1:1", site="local")
LOG = """\
008 (-01.-01.-01) 11/21 17:51:42 Global JobLog: ctime=1795283502
...
040 (012.000.000) 11/21 17:52:22 Started transferring input files
\tTransferring to host: <127.0.0.1:39219?addrs=127.0.0.1-39219>
...
028 (012.000.000) 11/21 17:52:22 Job ad information event triggered.
AdonInTold = false
AdonInReason = "best effort: \\"x\\""
EventTime = "2026-11-21T17:52:22.190"
GlobalJobId = "ap@ap.test#12.0#1795283502"
NumShadowStarts = 2
TriggerEventTypeNumber = 40
Type = 2
...
028 (012.000.000) 11/21 17:52:23 Job ad information event triggered.
EventTime = "2026-11-21T17:52:23.255"
GlobalJobId = "ap@ap.test#12.0#1795283502"
SentBytes = 3145728.0
TriggerEventTypeNumber = 5
...
"""

texts = st.text(st.characters(blacklist_categories=("C", "Z")), max_size=30)


@settings(max_examples=30)
@given(st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,9}\Z", fullmatch=True), st.one_of(
    texts, st.booleans(), st.integers(-(10**15), 10**15), st.floats(-1e15, 1e15))))  # fmt: skip
def test_an_ad_that_was_printed_is_read_as_it_was(ad: dict[str, jobad.Value]) -> None:
    printed = "".join(jobad.line(name, value) for name, value in ad.items())
    assert jobad.parse(printed.split("\n")) == ad


@given(st.text(max_size=300))
def test_any_text_can_be_read_as_an_ad(text: str) -> None:
    ad = jobad.parse(text.splitlines())
    assert no_transfer(ad) or missing_site_reason(ad, "local") or ad
    assert jobad.number(ad, "x") is None or ad


@pytest.mark.parametrize("kind", ENDS)
def test_whatever_ends_a_run_is_read(kind: Kind) -> None:
    ad = {"TriggerEventTypeNumber": int(kind), "GlobalJobId": GLOBAL_ID, "NumShadowStarts": 1,
          "EventTime": "2026-11-21T17:52:22.190"}  # fmt: skip
    event = run_event(ad)
    assert event is not None and (event.kind, event.starts) == (kind, 1)


def test_a_reason_stays_on_its_line() -> None:
    assert jobad.line("R", 'a "b"\nc\\') == 'R = "a \\"b\\" c\\\\"\n'


@given(st.text("ab@.#", min_size=1, max_size=20), st.integers(1, 99999))
def test_a_transit_tells_its_run(name: str, starts: int) -> None:
    run = Run(job_name(f"{name}#3.1#5"), starts)
    for way in ("in", "out"):
        assert parsed(run.transit(way)) == (run, way)
        assert parsed(run.transit(way) + ".2") == (run, way)
    number = queue_number(run.job)
    assert number is not None
    assert number[1:] == (3, 1)


def test_names_of_others_are_no_runs() -> None:
    assert parsed("wf:stage_in_0:0:mu-tacc") is None
    assert parsed("condor:x:sideways:1") is None
    assert queue_number("nobody") is None
    assert run_of({"GlobalJobId": GLOBAL_ID}) is None


@given(st.lists(st.integers(1, len(LOG)), max_size=6))
def test_an_event_log_is_read_in_any_portions(cuts: list[int]) -> None:
    parser, data, events, last = EventParser(kinds=ADS), LOG.encode(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        events += run_events(parser.feed(data[last:cut]))
        last = max(last, cut)
    started, ended = events
    assert (started.kind, started.step) == (Kind.FILE_TRANSFER, TransferStep.IN_STARTED)
    assert (started.job, started.starts) == (JOB, 2)
    assert started.ad["AdonInReason"] == 'best effort: "x"'
    assert (ended.kind, ended.starts, ended.ad["SentBytes"]) == (Kind.TERMINATED, 0, 3145728.0)
    assert ended.at - started.at == pytest.approx(1.065)


@given(st.binary(max_size=400))
def test_whatever_stands_in_an_event_log_is_passed_over(data: bytes) -> None:
    parser = EventParser(kinds=ADS)
    list(run_events(parser.feed(data + b"\n...\n")))
    assert len(list(run_events(parser.feed(LOG.encode())))) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"JobUniverse": 7}, "universe 7"),
        ({"JobUniverse": None}, "universe None"),
        ({"ShouldTransferFiles": "NO"}, "no files"),
        ({"ShouldTransferFiles": "IF_NEEDED"}, ""),
        ({"ShouldTransferFiles": "IF_NEEDED", "FileSystemDomain": "a"}, ""),
        (
            {"ShouldTransferFiles": "IF_NEEDED", "FileSystemDomain": "a",
             "MachineAttrFileSystemDomain0": "a"},
            "share a file system",
        ),
        ({"pegasus_wf_xformation": "pegasus::transfer"}, "PRE"),
        ({"pegasus_wf_xformation": "soykb::bwa:1.0"}, ""),
        ({"pegasus_wf_xformation": "pegasus::seqexec"}, ""),  # a user's jobs, clustered
    ],
)  # fmt: skip
def test_jobs_that_move_nothing_are_known(change: dict[str, jobad.Value], why: str) -> None:
    reason = no_transfer({**AD, **change})
    assert bool(reason) == bool(why)
    assert why in reason


def test_the_slot_says_its_site_or_the_job_does() -> None:
    assert ends(AD, "local", "in") == ("local", "tacc")
    assert ends(AD, "local", "out") == ("tacc", "local")
    assert missing_site_reason({**AD, "MachineAttrAdonSite0": ""}, "local").startswith(
        "the slot names"
    )
    bound = {"Requirements": '(TARGET.PegasusSite == "iplant") && true'}
    assert ends(bound, "local", "in")[1] == "iplant"
    assert "nothing crosses" in missing_site_reason(
        {**AD, "MachineAttrAdonSite0": "local"}, "local"
    )


def test_what_is_undefined_is_not_there() -> None:
    """As HTCondor notes a slot that sets PegasusSite alone."""
    ad = jobad.parse(
        ["MachineAttrAdonSite0 = undefined", 'MachineAttrPegasusSite0 = "mu"',
         "JobBatchName = UNDEFINED", "NumShadowStarts = error", 'Owner = "undefined"']
    )  # fmt: skip
    assert ad == {"MachineAttrPegasusSite0": "mu", "Owner": "undefined"}
    assert ends(ad, "local", "in") == ("local", "mu")


def test_what_is_asked_for_says_whose_it_is() -> None:
    ad = {
        **AD, "pegasus_wf_uuid": "u-1", "pegasus_wf_name": "soykb-0", "pegasus_wf_app": "rnaseq",
        "DAGNodeName": "bwa_ID1", "ProjectName": "soy", "NumShadowStarts": 3,
    }  # fmt: skip
    got = request(ad, Run(JOB, 3), "in", 5, CONFIG)
    assert (got.id, got.src, got.dst) == (f"condor:{JOB}:in:3", "local", "tacc")
    assert (got.workflow, got.job, got.retry, got.size_bytes) == ("u-1", "bwa_ID1", 2, 5)
    assert (got.user, got.project) == ("ann", "soy")
    assert (got.experiment, got.application) == ("rnaseq", "soykb")
    plain = request({**AD, "JobBatchName": "m.dag+7"}, Run(JOB, 1), "out", None, CONFIG)
    assert (plain.job, plain.application, plain.workflow) == ("12.0", "m", "")


def test_input_is_measured_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_bytes(b"x" * 7)
    (tmp_path / "prog").write_bytes(b"x" * 3)
    ad: dict[str, jobad.Value] = {
        "Iwd": str(tmp_path), "TransferInput": f"a, d/ ,http://x/y,{tmp_path}/a", "Cmd": "prog",
        "In": "/dev/null", "TransferInputSizeMB": 4,
    }  # fmt: skip
    assert bytes_sent(ad) == 10 + 7 + 10 + 3
    assert bytes_sent({**ad, "TransferExecutable": False}) == 27
    assert bytes_sent({**ad, "In": "a"}) == 40
    assert bytes_sent({**ad, "In": "a", "TransferIn": False}) == 30
    assert bytes_sent({**ad, "TransferInput": "gone"}) == 4 * 2**20
    assert bytes_sent({"Iwd": "/", "TransferInput": "/gone"}) is None
    assert bytes_sent({"Iwd": "/", "Cmd": "/bin/sh", "TransferExecutable": False}) == 0
    for number in range(2100):
        (tmp_path / "d" / str(number)).touch()
    assert bytes_sent(ad) == 4 * 2**20


def test_what_several_jobs_share_is_counted_for_its_own_shadow_alone(tmp_path: Path) -> None:
    for name, size in (("own", 1), ("shared", 20), ("a", 300), ("image.sif", 4000)):
        (tmp_path / name).write_bytes(b"x" * size)
    ad: dict[str, jobad.Value] = {
        "Iwd": str(tmp_path), "ClusterId": 12, "TransferInput": "own", "CommonInputFiles": "shared",
        "CommonInputCatalogs": "A, container_1", "_x_catalog_A": "a,http://x/y",
        "_x_catalog_container_1": "image.sif",
    }  # fmt: skip
    sent = '{ "ClusterId_12@ap#12_1=2","container_1@ap#12_3=4" }'
    shared = {**ad, "ProcId": -1000, "RequestedCatalogs": "{ }"}
    own = {**ad, "ProcId": 0, "RequestedCatalogs": "{ }"}
    assert bytes_sent({**own, "RemoteHost": "slot1_3@mu.test"}) == 1
    assert bytes_sent({**own, "RemoteHost": "slot1@mu_1.test"}) == 4321  # static: not shared
    assert bytes_sent(shared) == 4320
    assert bytes_sent({**shared, "TransferTheseCatalogs": sent}) == 4020
    assert bytes_sent({**ad, "ProcId": 0, "RemoteHost": "slot1_3@mu.test"}) == 4321  # HTCondor 24
    assert bytes_sent({**shared, "CommonInputFiles": "gone", "TransferInputSizeMB": 4}) is None


def test_the_shadow_of_common_files_is_a_run_of_its_own() -> None:
    shared = run_of({**AD, "ProcId": -1001})
    assert shared == Run(f"{JOB}.common1001", 1)
    assert shared != run_of({**AD, "ProcId": 0})
    assert parsed(shared.transit("in") + ".2") == (shared, "in")
    assert (shared.common, shared.queued_job) == (True, JOB)
    assert queue_number(shared.job) == ("ap@ap.test", 12, 0)
    assert (shadow_number(shared.job), shadow_number(JOB)) == ((12, -1001), (12, 0))
    ad = {**AD, "ProcId": -1001, "EventTime": "2026-11-23T09:01:20.087",
            "TriggerEventTypeNumber": 47}  # fmt: skip
    started = run_event({**ad, "Type": "TransferStarted"})
    assert started is not None
    assert (started.job, started.step) == (shared.job, TransferStep.IN_STARTED)
    assert run_event({**ad, "Type": "WaitStarted"}) is None
