"""How long jobs are believed to run."""

from __future__ import annotations

from typing import Any

from condor_plugins.pool.run_times import RunTimes
from monitors.archive.archive import Archive
from monitors.base.estimates import Estimate
from monitors.base.measurement import Measurement
from network_provisioner.base.errors import AdonError

JOB = {"User": "ada@x", "Cmd": "/bin/sleep"}
PEGASUS = {**JOB, "pegasus_wf_xformation": "t::nap:1.0", "pegasus_site": "mu"}


def ended(seconds: float, **more: Any) -> dict[str, Any]:
    return {**JOB, "JobStatus": 4, "ExitCode": 0, "RemoteWallClockTime": seconds, **more}


def test_the_archive_before_jobs_of_the_program_before_the_default() -> None:
    with Archive(":memory:") as archive:
        times = RunTimes(archive, 600.0, lambda: 1000.0)
        assert times.of_job(PEGASUS) == 600.0
        times.learn([ended(20.0), ended(40.0), ended(5.0, ExitCode=1), ended(5.0, JobStatus=3)])
        assert times.of_job(PEGASUS) == times.of_job(JOB) == 30.0
        assert times.of_job({**JOB, "User": "bob@x"}) == 600.0
        measurement = Measurement(
            "r", "runtime", "t::nap:1.0@mu", 12.5, "s", at=900.0, source="log"
        )
        archive.record(measurement)
        assert times.of_job(PEGASUS) == 30.0  # it has been asked just now
        assert RunTimes(archive, 600.0, lambda: 1000.0).of_job(PEGASUS) == 12.5


class Dead:
    asked = 0

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        self.asked += 1
        raise AdonError("disk I/O error")


def test_an_archive_that_does_not_answer_is_told_once_and_not_waited_for() -> None:
    now = [1000.0]
    archive = Dead()
    times = RunTimes(archive, 600.0, lambda: now[0])
    for site in ("mu", "tacc"):
        assert times.of_job({**PEGASUS, "pegasus_site": site}) == 600.0
    assert archive.asked == 1
    assert times.take_warnings() == ["run times are not read from the archive: disk I/O error"]
    now[0] += 60.0
    assert times.of_job(PEGASUS) == 600.0
    assert (archive.asked, times.take_warnings()) == (2, [])
