"""``adon monitor list|status|show``: the same from an archive as from a broker."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from api_rig import serving
from cli_world import NOBODY, adon, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, starting, table
from test_api_workflows import Web
from workflow_world import T0, UUID, example, job, status, transfer, workflow

from adon.cli import monitor_source
from adon.cli.monitor_text import analysis_text, fitted_columns, status_text
from adon.cli.output import table as drawn_table
from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.probes.disks import DiskReport, ProcessSecond, row
from monitors.workflows.analysis import analyse
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import WorkflowState
from monitors.workflows.overview import KnownWorkflows
from monitors.workflows.planned.submit_dir import SubmitDir
from monitors.workflows.sink import BrokerRequests
from network_provisioner.state.disks import DiskSample

NOBODY_ANSWERED = "adon: no follower answered: this is the last known status\n"
MEASURED = [
    *example(),
    workflow("w2", at=T0, name="outer", user="bob", submit_dir="/home/bob/w2"),
    status("w2", T0 + 10, 5, WorkflowState.DONE),
    workflow("w3", at=T0, name="inner", user="bob", parent="w2", root="w2"),
    status("w3", T0 + 5, 5, WorkflowState.DONE),
    job("join_ID9", key="w3", outcome="failed", exitcode=7, stderr="a\x1b[31mb\nlast words"),
]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive.sqlite"
    with Archive(path) as opened:
        opened.record_many(MEASURED)
    return path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    made = Web(tmp_path)
    made.archive.record_many(MEASURED)
    with serving(made.app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=["archive", "broker"])
def source(request: pytest.FixtureRequest) -> tuple[str, str]:
    return f"--{request.param}", str(request.getfixturevalue(request.param))


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_all_workflows(source: tuple[str, str]) -> None:
    rows = lines(adon("monitor", "list", *source).out)
    assert rows[0] == "state %done done failed user name changed id"
    assert re.fullmatch(rf"(running|stuck) 40\.0 2/5 - ada soykb \S+ \S+ {UUID}", rows[1])
    assert re.fullmatch(r"done 100\.0 10/10 - bob outer \S+ \S+ w2", rows[2])
    assert "w3" not in adon("monitor", "list", *source).out
    assert "inner" in adon("monitor", "list", "--inside", *source).out
    assert "soykb" not in adon("monitor", "list", "--user", "bob", *source).out
    assert adon("monitor", "list", "--state", "failed", *source).out == "no workflows\n"
    workflows = json.loads(adon("monitor", "list", "--json", "--limit", "1", *source).out)
    assert [row["id"] for row in workflows] == [UUID]


def test_a_long_list_comes_in_pages(
    source: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = json.loads(adon("monitor", "list", "--inside", "--json", *source).out)
    monkeypatch.setattr(monitor_source, "_PAGE", 1)
    paged = adon("monitor", "list", "--inside", "--json", *source)
    assert (json.loads(paged.out), paged.err) == (every, "")
    some = adon("monitor", "list", "--inside", "--limit", "2", "--csv", *source)
    assert len(some.out.splitlines()) == 3 < len(every) + 1
    assert some.err == "adon: there are more than 2: see --limit\n"


def test_the_latest_status_is_figure_16s(source: tuple[str, str]) -> None:
    said = lines(adon("monitor", "status", "soykb", "--history", "2", *source).out)
    assert said[0].startswith(f"soykb of ada ({UUID}), ")
    assert said[2] == "UNREADY READY PRE IN_Q POST DONE FAIL %DONE STATE WORKFLOW"
    assert re.fullmatch(r"1 0 0 2 0 2 0 40\.00 (running|stuck) soykb", said[3])
    assert re.fullmatch(r"-.* 1 0 20\.00 running", said[-2])
    assert re.fullmatch(r"-.* 2 0 40\.00 running", said[-1])
    said = lines(adon("monitor", "status", "w2", *source).out)
    assert said[3:6] == [
        "0 0 0 2 0 5 0 100.00 done outer",
        "0 0 0 2 0 5 0 100.00 done inner",
        "- - - - - 10 0 100.00 done all 10 jobs",
    ]
    assert json.loads(adon("monitor", "status", "w2", "--json", *source).out)["children"] == ["w3"]


def test_the_status_says_why_transfers_wait(tmp_path: Path) -> None:
    made = Web(tmp_path)
    made.archive.record_many(MEASURED)
    made.rig.ask("a", "mu", "tacc", min_bps=150e6)
    made.rig.ask("b", "local", "tacc", min_bps=150e6, workflow=UUID, job="stage_in_0")
    with serving(made.app) as port:
        where = ("--broker", f"http://127.0.0.1:{port}")
        said = " ".join(adon("monitor", "status", UUID, *where).out.split())
        assert "stage_in_0 waits: " in said and "held by a" in said
        assert "waits:" not in adon("monitor", "status", "w2", *where).out


def test_the_analysis(source: tuple[str, str]) -> None:
    said = adon("monitor", "show", UUID[:8], *source).out
    assert "makespan 3 min, run times together 60 s, lost in failures 10 s" in said
    assert "3 attempts (2 done, 1 failed), 1 retry" in said
    assert "soykb::bwa_mem:1.0 mu 2 1 20 s 30 s 30 s 40 s 60 s 55 s" in lines(said)
    assert "mu 3 1 s 2 s 2 s 3 s" in lines(said)
    assert "iplant mu pegasus-transfer 1 - - 1 GB 800 Mb/s 800 Mb/s iplant-s2-s1-mu (1)" in lines(
        said
    )
    assert "Failed, then done: bwa_mem_ID3 at mu on n1.mu: exit code 3, 2 attempts" in said
    assert "  | cannot open reads.fq" in said


def test_what_is_inside_is_analysed_with_it(source: tuple[str, str]) -> None:
    said = adon("monitor", "show", "outer", *source).out
    assert "with 1 workflow inside it" in said
    assert "Failed: join_ID9 of inner at mu on n1.mu: exit code 7" in said
    assert "  | last words" in said
    assert "\x1b" not in said  # what a job says is no command to a terminal
    assert "join_ID9" not in adon("monitor", "show", "outer", "--alone", *source).out


def long_ones() -> list[Measurement]:
    """What takes much room: hours, terabytes, long names, a way with many nodes."""
    rare = {"bytes": None, "goodput_bps": None, "tool": "gfal-copy", "retries": 12}
    day = 86400.0
    return [
        workflow(name="resequencing-of-302-soybean-lines", user="khan.saad"),
        status(done=12345, total=100_000, in_queue=54321),
        job("bwa", seconds=5.5 * day, at=T0 + 9 * day, cpu_s=7 * day, queued_s=2 * day),
        job("gatk", subject="gatk::haplotype_caller_of_one_chromosome:4.1.2@tacc-stampede2",
            seconds=59.94, at=T0 + 9 * day, cpu_s=None, outcome="failed"),
        transfer("in", n_bytes=999 * 10**9, seconds=day, path=[f"switch-{n}" for n in range(6)]),
        transfer("out", n_bytes=123_456_789, at=T0 + 1, path=[]),
        transfer("rare", pair="iplant-data-store>tacc-stampede2", **rare),
        workflow("c3b1b6d2-0000-4000-8000-000000000001", name="w" * 99, at=T0),
        workflow(f"{UUID[:10]}0{UUID[11:]}", name="another that begins as the first does", at=T0),
    ]  # fmt: skip


def test_what_slots_lost_is_said_where_a_job_says_less() -> None:
    """PegasusLite staged for a minute around a program that failed at once."""
    failed = job("a_ID1", outcome="failed", seconds=2.0, at=T0 + 62, started_at=T0)
    made = asdict(analyse([failed])) | {"workflows": [UUID]}
    row = {"id": UUID, "name": "w", "user": "", "state": "failed", "stuck": ""}
    row["totals"] = {"done": 0, "fail": 1, "total": 1}
    assert "lost in failures 2 s (62 s of slots)" in analysis_text(row, made)


def test_all_of_it_fits_into_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("--archive", tmp_path / "archive.sqlite")
    with Archive(where[1]) as opened:
        opened.record_many(long_ones())
    outputs: dict[int, list[str]] = {}
    for columns in (300, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        outputs[columns] = [
            adon("monitor", *words, *where).out
            for words in (("show", UUID), ("status", UUID, "--history", "3"), ("list",))
        ]
    for wide, narrow in zip(outputs[300], outputs[80], strict=True):
        assert max(map(len, wide.splitlines())) > 80 >= max(map(len, narrow.splitlines())), narrow
    # Nothing of it is lost: what the columns are called stands in words, or in the values.
    for wide, narrow in zip(outputs[300][:2], outputs[80][:2], strict=True):
        narrow_words = {word.strip(",") for word in narrow.split()}
        named = {"transformation", "site", "WORKFLOW"}
        assert {word.strip(",") for word in wide.split()} - narrow_words <= named
    assert "gatk::haplotype_caller_of_one_chromosome:4.1.2 at tacc-stampede2\n" in outputs[80][0]
    # Ids are as short as they may be typed.
    ids = {line.split()[-1] for line in outputs[80][2].splitlines()[1:4]}
    assert ids == {"c3b1b6d2-000", UUID[:12], f"{UUID[:10]}0{UUID[11:12]}"}
    for workflow_id in ids:
        assert f"({workflow_id}" in adon("monitor", "status", workflow_id, *where).out


def test_which_workflow_is_meant(archive: Path, tmp_path: Path) -> None:
    where = ("--archive", archive)
    assert "found none, expected an id" in refusal("monitor", "show", "x", *where)
    assert "found none, did you mean 'soykb'?" in refusal("monitor", "show", "sokyb", *where)
    assert f"did you mean '{UUID}'?" in refusal("monitor", "show", f"{UUID[:-1]}x", *where)
    assert "soykb of ada" in adon("monitor", "status", "/home/ada/soykb/run0001", *where).out
    (tmp_path / "circle").symlink_to("circle")
    assert "found none" in refusal("monitor", "status", tmp_path / "circle", *where)
    with Archive(archive) as opened:
        opened.record(workflow("w4", name="outer", submit_dir=""))
    assert "found 2, expected one of w2, w4" in refusal("monitor", "status", "outer", *where)


def test_where_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no demo has run
    said = refusal("monitor", "list", "--archive", tmp_path / "none.sqlite")
    assert "found no such file, expected an archive" in said
    assert said.endswith("'adon monitor run' makes one")
    refusal("monitor", "status", "x", "--now", "--archive", tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
    assert NOBODY in refusal("monitor", "list", "--broker", f"http://{NOBODY}")


def test_the_demos_archive_is_named_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".adon").mkdir()
    with Archive(".adon/archive.sqlite"):
        pass
    for verb in ("list", "anomalies"):
        said = refusal("monitor", verb)
        assert said.endswith("; the demo's is --archive .adon/archive.sqlite")
    empty = adon("monitor", "list", "--archive", ".adon/archive.sqlite").out
    assert empty == "no workflows yet: 'adon monitor run' follows them\n"
    said = refusal("monitor", "show", "x", "--archive", ".adon/archive.sqlite")
    assert said.endswith("found none, nor any other; 'adon monitor run' follows workflows")


def test_a_list_fits_a_screen_and_says_what_it_leaves_out(archive: Path) -> None:
    with Archive(archive) as opened:
        opened.record(workflow("w5", name="w" * 300, user="u" * 300))
    listed = adon("monitor", "list", "--archive", archive)
    assert max(map(len, listed.out.splitlines())) < 170
    assert "w" * 39 + "…" in listed.out and listed.err == ""
    some = adon("monitor", "list", "--limit", "1", "--archive", archive)
    assert sum(line.startswith(("running", "stuck", "done")) for line in lines(some.out)) == 1
    assert some.err == "adon: there are more than 1: see --limit\n"
    assert len(json.loads(adon("monitor", "list", "--archive", archive, "--json").out)) == 3
    (whole,) = [
        row["name"]
        for row in json.loads(adon("monitor", "list", "--archive", archive, "--json").out)
        if row["id"] == "w5"
    ]
    assert whole == "w" * 300


class Asking(BrokerRequests):
    """``heard`` once it knows what was asked before: it answers all that is asked from then on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.heard = threading.Event()

    def _path(self, after: int, wait_s: float) -> str:
        if wait_s > 0:
            self.heard.set()
        return super()._path(after, wait_s)


def test_measured_now_by_its_follower(tmp_path: Path) -> None:
    """Over the network, with a follower that records at the same broker from elsewhere."""
    planned = Submitted(tmp_path / "run0001")
    append(planned.out, starting() + table(START, done=1, unready=2))
    key = SubmitDir(planned.path).workflow
    web = Web(tmp_path)
    web.archive.record_many(
        [workflow(key, host="elsewhere", user="", submit_dir=str(planned.path))]
    )
    with serving(web.app) as port:
        url = f"http://127.0.0.1:{port}"
        requests = Asking(url)
        requests.start()
        follower = Follower(planned.path, web.archive, requests=requests, keep=True)
        stop = threading.Event()
        thread = threading.Thread(target=follower.run, args=(stop,))
        thread.start()
        try:
            assert requests.heard.wait(60)
            ask = partial(adon, "monitor", "status", key, "--now", "--broker", url)
            while (ran := ask()).err == NOBODY_ANSWERED:
                pass  # a broker waits 2 s, which is little on a busy machine
            assert ran.err == "" and "by refresh" in ran.out
        finally:
            stop.set()
            requests.stop()
            thread.join()


def test_measured_now_from_an_archive(tmp_path: Path) -> None:
    planned = Submitted(tmp_path / "run0001")
    append(planned.out, starting() + table(START, done=1, unready=2))
    key = SubmitDir(planned.path).workflow
    file = tmp_path / "archive.sqlite"
    with Archive(file) as archive:
        archive.record_many(
            [
                workflow(
                    key, host=os.uname().nodename, submit_dir=str(planned.path), dag="wf-0.dag"
                ),
                workflow("w9", host="elsewhere"),
            ]
        )
    where = ("--now", "--json", "--archive", file)
    here = adon("monitor", "status", key, *where)
    assert json.loads(here.out)["source"] == "refresh"
    away = adon("monitor", "status", "w9", *where)
    assert json.loads(away.out)["id"] == "w9"  # what is said beside it is not in it
    assert away.err == NOBODY_ANSWERED


text = st.text(max_size=8)


@settings(max_examples=25)
@given(name=text, user=text, words=text, n=st.integers(0, 3), when=st.floats(0, 2e6))
def test_no_name_breaks_a_table(name: str, user: str, words: str, n: int, when: float) -> None:
    with Archive(":memory:") as archive:
        archive.record_many([
            workflow(name=name, user=user), status(), transfer("s", job=words, path=[words] * n),
            job("j", job=name, outcome="failed", stderr=words, exitcode=None),
        ])  # fmt: skip
        known = KnownWorkflows(archive, lambda: when, 1800.0)
        (entry,) = known.all(lambda _: True).values()
        row = entry.as_dict() | {"source": words, "children": [], "history": known.changes(UUID, 5)}
        result = analyse(archive.query("job") + archive.query("job_transfer"))
        analysis = {"workflows": [UUID]} | asdict(result)
    for output in (
        drawn_table(fitted_columns([row], when), [row]),
        status_text(row, [], when),
        analysis_text(row, analysis),
    ):
        assert all(c.isprintable() or c == "\n" for c in output)


def report(at: float, wait: float, disks: str = "delay") -> DiskReport:
    seconds = [DiskSample(at + i, 1e6, 80e6, wait) for i in range(10)]
    known = wait if disks == "delay" else None
    busy = [ProcessSecond("cp", 7, 0, write_bps, known) for write_bps in (5e6, 35e6, 80e6, 80e6)]
    return DiskReport(disks, seconds, busy)


DISKS = [
    *example(),
    workflow("w2", at=T0, name="planned"),
    row("mu/dtn1", report(T0 + 100, 0.95)),
    row("mu/dtn1", report(T0 + 110, 0.05)),
    row("mu/dtn1", report(T0 + 5000, 0.0)),
    row("tacc", report(T0 + 110, 0.3, "iowait")),
]


@pytest.fixture(params=["archive", "broker"])
def disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "archive":
        with Archive(tmp_path / "archive.sqlite") as archive:
            archive.record_many(DISKS)
        yield "--archive", str(tmp_path / "archive.sqlite")
        return
    made = Web(tmp_path)
    made.archive.record_many(DISKS)
    with serving(made.app) as port:
        yield "--broker", f"http://127.0.0.1:{port}"


def test_hosts_and_how_long_they_waited(disks: tuple[str, str]) -> None:
    said = adon("monitor", "disks", "--workflow", "soykb", *disks).out
    assert lines(said) == [
        "host seconds I/O wait 95 % read 95 % write 95 % from",
        "mu/dtn1 20 50 % 95 % 1 Mb/s 1 Mb/s 80 Mb/s 80 Mb/s delay",
        "tacc 10 30 % 30 % 1 Mb/s 1 Mb/s 80 Mb/s 80 Mb/s iowait",
    ]
    said = adon("monitor", "disks", "--since", str(T0), *disks).out
    assert lines(said)[1].startswith("mu/dtn1 30 33 % 95 % ")
    assert "no disks were reported" in adon("monitor", "disks", "--host", "x", *disks).out


def test_how_the_seconds_of_a_host_are_distributed(disks: tuple[str, str]) -> None:
    words = ("monitor", "disks", "--host", "mu/dtn1", "--workflow", UUID, *disks)
    said = lines(adon(*words).out)
    assert said[4] == "0 - 10 % #####..... 50 %" and said[13] == "90 - 100 % #####..... 50 %"
    assert said[16:] == [
        *(f"up to {8 * i} Mb/s .......... 0 %" for i in range(1, 5)),
        "up to 40 Mb/s ###....... 33 %",
        *(f"up to {8 * i} Mb/s .......... 0 %" for i in range(6, 10)),
        "up to 80 Mb/s #######... 67 %",
    ]
    (host,) = json.loads(adon(*words, "--json").out)["hosts"]
    assert host["io_wait"] == {"mean": pytest.approx(0.5), "p95": 0.95}
    assert host["io_waits"] == [0.5, *[0] * 8, 0.5] and host["most_write_bps"] == 80e6


def test_a_workflow_that_has_not_begun(disks: tuple[str, str]) -> None:
    said = refusal("monitor", "disks", "--workflow", "planned", *disks)
    assert "found it planned, expected one that has begun" in said
