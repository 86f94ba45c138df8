"""Disks and processes as ``/proc`` reports them: what they did each second, and its trouble."""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.measurements.agent.host_reports import DiskReporter, Post
from monitors.measurements.probes.disks import (
    DiskReader,
    DiskReport,
    ProcessSecond,
    hosts_disks,
    io_wait_histogram,
    parse_stat,
    row,
    write_histogram,
)
from network_provisioner.base.errors import BrokerError
from network_provisioner.state.disks import DiskSample

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000


class Machine:
    """A ``/proc`` and a ``/sys`` of files, and a clock that is set."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 1000.0
        self.delay(1)
        self.write("proc/pressure/io", "some avg10=0.00 total=0\nfull avg10=0.00 total=0\n")
        self.write("proc/stat", f"cpu 1 2 3 4 {5 * TICKS} 6 7 8\n")
        (root / "sys/block/vda/device").mkdir(parents=True)
        self.disk(0, 0)
        self.reader = DiskReader(lambda: self.now, root=str(root))

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def delay(self, on: int) -> None:
        self.write("proc/sys/kernel/task_delayacct", f"{on}\n")

    def disk(self, read: int, written: int, name: str = "vda") -> None:
        """Bytes; its partition and a loop device on it have the same."""
        rows = (
            f" 254 {i} {n} 9 9 {read // 512} 9 9 9 {written // 512} 9 9 9 9\n"
            for i, n in enumerate((name, f"{name}1", "loop0"))
        )
        self.write("proc/diskstats", "".join(rows))

    def process(
        self,
        pid: int,
        read: int = 0,
        written: int = 0,
        waited_s: Sequence[float] = (0.0,),
        name: str = "cp",
        started: int = 7,
        flags: int = 0,
    ) -> None:
        """``waited_s`` by thread."""
        for i, waited in enumerate(waited_s):
            fields = [0] * 50
            fields[6], fields[17], fields[19] = flags, len(waited_s), started
            fields[39] = round(waited * TICKS)
            stat = f"{pid + i} ({name}) R {' '.join(map(str, fields[1:]))}\n"
            self.write(f"proc/{pid}/task/{pid + i}/stat", stat)
            if i == 0:
                self.write(f"proc/{pid}/stat", stat)
        if not flags:
            moved = f"read_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 9\n"
            self.write(f"proc/{pid}/io", f"rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\n{moved}")

    def second(self) -> tuple[DiskSample, list[ProcessSecond]]:
        self.now += 1.0
        reading = self.reader.read()
        assert reading is not None
        (sample,) = reading.seconds
        return sample, list(reading.processes)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_before_the_first_look_counts_for_nothing(machine: Machine) -> None:
    machine.process(10, 10**9, 10**9, [50.0])
    machine.disk(10**9, 10**9)
    assert machine.reader.read() is None
    assert machine.second() == (DiskSample(1001.0, 0, 0, 0), [])


def test_who_moves_more_counts_for_more(machine: Machine) -> None:
    machine.reader.read()
    machine.process(10, written=3_000_000, waited_s=[0.8])
    machine.process(11, read=1_000_000, name="a (b) c", started=8)
    machine.disk(512_000, 1_024_000)
    sample, processes = machine.second()
    assert sample == DiskSample(1001.0, 8 * 512_000, 8 * 1_024_000, pytest.approx(0.6))
    assert processes == [
        ProcessSecond("cp", 10, 0, 24e6, pytest.approx(0.8)),
        ProcessSecond("a (b) c", 11, 8e6, 0, 0.0),
    ]


def test_who_only_waits_counts_for_what_it_moved_last(machine: Machine) -> None:
    machine.reader.read()
    machine.process(10, written=3_000_000)
    machine.process(11)
    machine.second()
    machine.process(10, written=3_000_000, waited_s=[1.0])  # fsync
    machine.process(11, written=1_000_000)
    assert machine.second()[0].io_wait == pytest.approx(0.75)


def test_threads_of_a_process_wait_together(machine: Machine) -> None:
    machine.reader.read()
    machine.process(10, waited_s=[0.1, 0.2, 0.3])
    assert machine.second()[1][0].io_wait == pytest.approx(0.6)
    machine.process(10, waited_s=[0.9, 0.9, 0.9])
    assert machine.second()[1][0].io_wait == 1.0
    shutil.rmtree(machine.root / "proc/10/task/11")
    assert machine.second()[1] == [], "a thread that ends takes its count along"


def test_the_kernels_own_work_is_done_for_others(machine: Machine) -> None:
    machine.process(20, flags=KERNEL_THREAD)
    machine.reader.read()
    machine.process(20, flags=KERNEL_THREAD, waited_s=[1.0])
    machine.process(21, flags=KERNEL_THREAD, waited_s=[1.0])
    assert machine.second()[1] == []


def test_who_sleeps_is_found_within_ten_seconds(machine: Machine) -> None:
    machine.process(10)
    machine.reader.read()
    machine.process(10, written=10_000_000)
    seen = [second for _ in range(10) for second in machine.second()[1]]
    assert len(seen) == 1, "and by then it had done so for as long"
    machine.process(10, written=11_000_000)
    assert machine.second()[1] == [ProcessSecond("cp", 10, 0, 8e6, 0.0)], "it is awake now"


def test_what_goes_wrong_is_no_error(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.disk(10_240, 10_240)
    machine.process(10, written=9_000)
    machine.process(11)
    machine.reader.read()
    machine.disk(0, 20_480)
    machine.process(10, written=1_000)
    (machine.root / "proc/11/io").unlink()  # somebody else's
    (machine.root / "proc/12").mkdir()  # it has just ended
    (sample, processes), *_ = [machine.second() for _ in range(10)]
    assert (sample.read_bps, sample.write_bps) == (0, 8 * 10_240) and processes == []
    assert "by vda went back from (10240, 10240) to (0, 20480)" in caplog.text
    assert "by cp went back from (0, 9000) to (0, 1000)" in caplog.text
    shutil.rmtree(machine.root / "sys/block/vda")
    machine.process(13, written=1_000)
    sample, _ = machine.second()
    assert "disk vda has gone" in caplog.text
    assert sample.write_bps == 8_000, "where no disk is seen processes count"
    machine.process(13, written=500, started=8)  # another one with its number
    assert machine.second()[1] == [ProcessSecond("cp", 13, 0, 4_000, 0.0)]


def test_where_io_wait_is_from_is_said(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    machine.reader.read()
    assert "sysctl" not in caplog.text
    machine.delay(0)
    assert machine.reader.read() is None
    assert "sysctl kernel.task_delayacct=1" in caplog.text
    machine.process(10, written=1_000, waited_s=[0.5])
    machine.write("proc/pressure/io", "some avg10=0.00 total=250000\nfull total=0\n")
    sample, processes = machine.second()
    assert sample.io_wait == 0.25 and processes == [ProcessSecond("cp", 10, 0, 8_000, None)]
    (machine.root / "proc/pressure/io").unlink()
    assert machine.reader.read() is None
    machine.write("proc/stat", f"cpu 1 2 3 4 {8 * TICKS} 6 7 8\n")
    machine.now += 3.0  # it did not come to look for a while
    reading = machine.reader.read()
    assert reading is not None and (reading.source, reading.seconds[0].io_wait) == ("iowait", 1.0)


def test_other_hosts_processes_can_be_left_out(machine: Machine) -> None:
    reader = DiskReader(lambda: machine.now, lambda pid: pid == 10, str(machine.root))
    reader.read()
    machine.process(10, written=1_000)
    machine.process(11, written=1_000)
    machine.now += 1.0
    reading = reader.read()
    assert reading is not None and [p.pid for p in reading.processes] == [10]


def test_an_agent_reports_at_once_what_is_worth_it(machine: Machine) -> None:
    posted: list[Mapping[str, Any]] = []
    reporter = DiskReporter(machine.reader)

    def seconds(n: int, post: Post = posted.append) -> list[int]:
        for _ in range(n):
            machine.now += 1.0
            reporter.observe(post)
        return [len(body["seconds"]) for body in posted]

    def away(_: object) -> None:
        raise BrokerError("the broker is away", "unreachable")

    assert seconds(10) == [], "the first look tells nothing"
    assert seconds(1) == [10], "though nothing moved"
    machine.process(10, written=1_000_000)
    with pytest.raises(BrokerError):
        seconds(1, away)
    assert seconds(8) == [10] and seconds(1) == [10, 10]
    assert [p[:2] for p in posted[-1]["processes"]] == [("cp", 10)]
    machine.process(10, written=2_000_000)
    assert seconds(1) == [10, 10, 1] and posted[-1]["source"] == "delay"
    seconds(1)
    machine.delay(0)
    assert seconds(1) == [10, 10, 1, 1], "of one report all is from the same"
    assert posted[-1]["source"] == "delay"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_name_may_be_anything(name: str) -> None:
    stat = parse_stat(f"1 ({name}) S {' '.join(map(str, range(60)))}")
    assert (stat.name, stat.threads, stat.started, stat.waited) == (name, 16, 18, 38)


@given(st.lists(st.floats(0, 1)))
def test_all_io_waits_are_somewhere(waits: list[float]) -> None:
    shares = io_wait_histogram(waits)
    assert len(shares) == 10 and math.isclose(sum(shares), 1 if waits else 0)
    assert math.isclose(shares[9] * len(waits), sum(w >= 0.9 for w in waits), abs_tol=1e-6)


def test_seconds_of_computing_are_left_out() -> None:
    assert write_histogram([0, 9e6, 10e6, 99e6, 100e6, 100e6], 100e6) == [0, 0.25, *[0] * 7, 0.75]
    assert write_histogram([], 1e9) == [0] * 10


def test_hosts_are_told_apart() -> None:
    def report(wait: float, source: str) -> DiskReport:
        seconds = [DiskSample(at, 1e6, 2e6, wait) for at in range(20)]
        known = wait if source == "delay" else None
        return DiskReport(source, seconds, [ProcessSecond("cp", 1, 0, 20e6, known)])

    rows = [row("mu/b", report(0.95, "delay")), row("mu/a", report(0.5, "pressure"))]
    a, b = hosts_disks(rows)
    assert (a["host"], a["sources"]) == ("mu/a", ["pressure"])
    assert (b["host"], b["sources"], b["seconds"]) == ("mu/b", ["delay"], 20)
    assert b["io_wait"]["p95"] == 0.95 and b["write_bps"]["mean"] == 2e6
    assert a["io_waits"] == [0] * 10 and b["io_waits"] == [*[0] * 9, 1]
    assert (b["writes"][9], b["most_write_bps"]) == (1, 20e6)
