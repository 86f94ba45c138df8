"""``adon monitor disks``: the same from an archive as from a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_rig import serving
from cli_world import adon, refusal
from test_api_workflows import Web
from workflow_world import T0, UUID, example, workflow

from monitors.archive.archive import Archive
from monitors.measurements.probes.disks import DiskReport, ProcessSecond, row
from network_provisioner.state.disks import DiskSample


def report(at: float, wait: float, source: str = "delay") -> DiskReport:
    seconds = [DiskSample(at + i, 1e6, 80e6, wait) for i in range(10)]
    known = wait if source == "delay" else None
    busy = [ProcessSecond("cp", 7, 0, write_bps, known) for write_bps in (5e6, 35e6, 80e6, 80e6)]
    return DiskReport(source, seconds, busy)


MEASURED = [
    *example(),
    workflow("w2", at=T0, name="planned"),
    row("mu/dtn1", report(T0 + 100, 0.95)),
    row("mu/dtn1", report(T0 + 110, 0.05)),
    row("mu/dtn1", report(T0 + 5000, 0.0)),
    row("tacc", report(T0 + 110, 0.3, "iowait")),
]


@pytest.fixture(params=["archive", "broker"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "archive":
        with Archive(tmp_path / "archive.sqlite") as archive:
            archive.record_many(MEASURED)
        yield "--archive", str(tmp_path / "archive.sqlite")
        return
    made = Web(tmp_path)
    made.archive.record_many(MEASURED)
    with serving(made.app) as port:
        yield "--broker", f"http://127.0.0.1:{port}"


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_hosts_and_how_long_they_waited(source: tuple[str, str]) -> None:
    said = adon("monitor", "disks", "--workflow", "soykb", *source).out
    assert lines(said) == [
        "host seconds I/O wait 95 % read 95 % write 95 % from",
        "mu/dtn1 20 50 % 95 % 1 Mb/s 1 Mb/s 80 Mb/s 80 Mb/s delay",
        "tacc 10 30 % 30 % 1 Mb/s 1 Mb/s 80 Mb/s 80 Mb/s iowait",
    ]
    said = adon("monitor", "disks", "--since", str(T0), *source).out
    assert lines(said)[1].startswith("mu/dtn1 30 33 % 95 % ")
    assert "no disks were reported" in adon("monitor", "disks", "--host", "x", *source).out


def test_how_the_seconds_of_a_host_are_distributed(source: tuple[str, str]) -> None:
    words = ("monitor", "disks", "--host", "mu/dtn1", "--workflow", UUID, *source)
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


def test_a_workflow_that_has_not_begun(source: tuple[str, str]) -> None:
    said = refusal("monitor", "disks", "--workflow", "planned", *source)
    assert "found it planned, expected one that has begun" in said
