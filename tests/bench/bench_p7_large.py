"""P7: what it costs to follow one workflow of 100,000 jobs and a million events.

The gate is that of Pegasus's own ``pegasus-monitor`` (branch feature/pegasus-monitor-wp9b,
ACCEPTANCE-wp7.md): first everything that happened until now, then 1,000 lines a second. It took
0.9988 of a core and 879 MB; our goal is a quarter of that.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from monitors.archive.archive import Archive
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status
from monitors.workflows.planned.submit_dir import SubmitDir
from tests.bench import Figure, Tell, bench, percentile

JOBS = 100_000
LIVE_JOBS = 5_000  # the last ones, as they happen: 1,100 events a second
LIVE_S = 45.0
AT_ONCE = 500
BEGAN = 1_779_000_000
THEIRS_CORES, THEIRS_MB = 0.9988, 879.0  # live; replay
_BRAINDUMP = (
    'wf_uuid: "b7a9c3f0"\ndag: "w.dag"\ndax_label: "w"\ncondor_log: "w.log"\ntimestamp: '
    '"20260517T000000+0000"\n'
)
_SUBMIT = """\
# PEGASUS WMS GENERATED SUBMIT FILE
environment = "PEGASUS_HOME=/usr;CONDOR_JOBID=$(cluster).$(process)"
arguments = "-n process -N {name} -R mu -L w -T 2026-05-17T00:00:00+00:00 /usr/bin/process"
executable = /usr/bin/pegasus-kickstart
output = {folder}/{name}.out
error = {folder}/{name}.err
log = w.log
+pegasus_site = "mu"
+pegasus_wf_uuid = "b7a9c3f0"
+pegasus_wf_xformation = "soykb::process:1.0"
+pegasus_wf_dax_job_id = "{name}"
+pegasus_job_class = 1
queue
"""


def stamp(at: float) -> str:
    return time.strftime("%m/%d/%y %H:%M:%S", time.localtime(at))


def make_workflow(folder: Path) -> None:
    """The submit directory of a planned workflow, a hundred submit files to a folder."""
    (folder / "braindump.yml").write_text(_BRAINDUMP)
    lines = []
    for number in range(JOBS):
        name, place = f"process_ID{number:07d}", f"{number // 10000:02d}/{number // 100 % 100:02d}"
        if number % 100 == 0:
            (folder / place).mkdir(parents=True)
        (folder / place / f"{name}.sub").write_text(_SUBMIT.format(name=name, folder=place))
        lines.append(f"JOB {name} {place}/{name}.sub\n")
    (folder / "w.dag").write_text("".join(lines))


class Logs:
    """What DAGMan and HTCondor write of the jobs, of which ``AT_ONCE`` run at a time."""

    def __init__(self, nodes: TextIO, dagman: TextIO) -> None:
        self._nodes, self._dagman = nodes, dagman
        first = f"{stamp(BEGAN)} ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n"
        dagman.write(first + f"{stamp(BEGAN)} ** PID = 4242\n")

    def begin(self, number: int) -> None:
        at = self.at(number)
        name, head, job = f"process_ID{number:07d}", f"{stamp(at)} ", f"({number + 1}.0.0)"
        self._dagman.write(
            f"{head}Submitting HTCondor Node {name} job(s)...\n"
            f"{head}\tassigned HTCondor ID {job}\n"
            f"{head}Event: ULOG_SUBMIT for HTCondor Node {name} {job} {{{head[:-1]}}}\n"
        )
        host = "<10.254.1.2:1?addrs=10.254.1.2-1>"
        self._nodes.write(
            self._event(0, number, at, f"Job submitted from host: {host}", f"    DAG Node: {name}")
            + self._event(40, number, at + 2, "Started transferring input files",
                          f"\tTransferring to host: {host}")
            + self._event(40, number, at + 3, "Finished transferring input files")
            + self._event(1, number, at + 4, f"Job executing on host: {host}",
                          "\tSlotName: slot1_1@node1")
            + self._event(6, number, at + 12, "Image size of job updated: 35",
                          "\t1  -  MemoryUsage of job (MB)", "\t35  -  ResidentSetSize of job (KB)")
        )  # fmt: skip

    def end(self, number: int) -> None:
        at = self.at(number) + 50
        name, head, job = f"process_ID{number:07d}", f"{stamp(at)} ", f"({number + 1}.0.0)"
        self._nodes.write(
            self._event(6, number, at - 9, "Image size of job updated: 99",
                        "\t1  -  MemoryUsage of job (MB)", "\t99  -  ResidentSetSize of job (KB)")
            + self._event(40, number, at - 2, "Started transferring output files")
            + self._event(40, number, at - 1, "Finished transferring output files")
            + self._event(5, number, at, "Job terminated.",
                          "\t(1) Normal termination (return value 0)",
                          "\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  Run Remote Usage",
                          "\t0  -  Run Bytes Sent By Job", "\t0  -  Run Bytes Received By Job")
            + self._event(16, number, at + 1, "POST Script terminated.",
                          "\t(1) Normal termination (return value 0)", f"    DAG Node: {name}")
        )  # fmt: skip
        self._dagman.write(
            f"{head}Event: ULOG_JOB_TERMINATED for HTCondor Node {name} {job} {{{head[:-1]}}}\n"
            f"{head}Node {name} job proc {job} completed successfully.\n"
            f"{head}Node {name} job completed\n{head}Running POST script of Node {name}...\n"
            f"{head}Event: ULOG_POST_SCRIPT_TERMINATED for HTCondor Node {name} {job} "
            f"{{{head[:-1]}}}\n{head}POST Script of node {name} completed successfully.\n"
        )

    def table(self, begun: int, done: int) -> None:
        head = f"{stamp(self.at(begun) + 51)} "
        rest = JOBS - begun
        lines = (
            f"Of {JOBS} nodes total:",
            " Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile",
            "  ===     ===      ===     ===     ===        ===      ===      ===",
            f"{done:6d}       0   {begun - done:6d}       0       0   {rest:8d}        0        0",
            "0 job proc(s) currently held",
        )
        self._dagman.write("".join(f"{head}{line}\n" for line in lines))

    def exit(self) -> None:
        head = stamp(self.at(JOBS) + 60)
        self._dagman.write(
            f"{head} **** condor_dagman (condor_DAGMAN) pid 4242 EXITING WITH STATUS 0\n"
        )

    def flush(self) -> None:
        self._nodes.flush()
        self._dagman.flush()

    @staticmethod
    def at(number: int) -> float:
        return BEGAN + number * 0.1

    @staticmethod
    def _event(kind: int, number: int, at: float, text: str, *details: str) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) + f"{at % 1:.3f}"[1:]
        body = "".join(f"{line}\n" for line in details)
        return f"{kind:03d} ({number + 1:03d}.000.000) {clock} {text}\n{body}...\n"


def steps(logs: Logs) -> Iterator[int]:
    """Writes one job's end and another's begin at a time; how many are done."""
    for number in range(JOBS + AT_ONCE):
        if number < JOBS:
            logs.begin(number)
        if number >= AT_ONCE:
            logs.end(number - AT_ONCE)
        if number % 10 == 9:
            logs.table(min(number + 1, JOBS), max(0, number + 1 - AT_ONCE))
        yield max(0, number + 1 - AT_ONCE)


def observe(path: Path, database: Path, pipe: Connection) -> None:
    """A follower in a process of its own: sends its CPU seconds and MB when it has read everything
    until now and again at the end, then when it saw how many jobs were done."""
    stop, seen = threading.Event(), dict[int, float]()

    def used() -> tuple[float, float]:
        # Not ru_maxrss, which a process has from the one that starts it.
        status = Path("/proc/self/status").read_text()
        return time.process_time(), int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def on_status(_submit_dir: SubmitDir, status: Status) -> None:
        if not seen:
            pipe.send(used())
        seen[status.done] = time.monotonic()

    with Archive(database) as archive:
        Follower(path, archive, on_status=on_status).run(stop)
    pipe.send(used())
    pipe.send(seen)


def write_live(rest: Iterator[int], logs: Logs) -> dict[int, float]:
    """Writes what is left at a steady pace; when how many jobs were done (monotonic seconds)."""
    written, began = {}, time.monotonic()
    for number, done in enumerate(rest):
        time.sleep(max(0.0, began + number * LIVE_S / LIVE_JOBS - time.monotonic()))
        if number % 10 == 9:
            logs.flush()
            written[done] = time.monotonic()
    logs.exit()
    logs.flush()
    return written


@bench("P7")
def large_workflow(tell: Tell) -> Iterable[Figure]:
    """Everything until 95 % of the jobs are done, then the rest as it happens."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name) / "run0001"
        folder.mkdir()
        tell(f"writing {JOBS} jobs")
        make_workflow(folder)
        nodes, dagman = folder / "w.dag.nodes.log", folder / "w.dag.dagman.out"
        with nodes.open("w") as opened_nodes, dagman.open("w") as opened_dagman:
            logs = Logs(opened_nodes, opened_dagman)
            rest = steps(logs)
            while next(rest) < JOBS - LIVE_JOBS:
                pass
            logs.flush()
            ours, theirs = multiprocessing.Pipe()
            context = multiprocessing.get_context("spawn")
            tell("following what happened")
            database = Path(name) / "a.sqlite"
            process = context.Process(target=observe, args=(folder, database, theirs))
            process.start()
            try:
                replay_s, replay_mb = ours.recv()
                tell(f"{replay_s:.1f} s of CPU, {replay_mb:.0f} MB; the rest in {LIVE_S:g} s")
                written = write_live(rest, logs)
                total_s, total_mb = ours.recv()
                seen = ours.recv()
            finally:
                process.kill()
                process.join()
        with Archive(database, read_only=True) as archive:
            jobs = sum(1 for _ in archive.query("job"))
    lags = [min(at for done, at in seen.items() if done >= count) - when
            for count, when in written.items()]  # fmt: skip
    events = JOBS * 10
    peer = {"pegasus-monitor": THEIRS_CORES}
    live = (total_s - replay_s) / LIVE_S
    yield Figure(f"following {JOBS} jobs, CPU at {LIVE_JOBS * 10 / LIVE_S:.0f} events/s", live,
                 "cores", "lower", THEIRS_CORES / 4, peer)  # fmt: skip
    yield Figure(f"reading and recording {events} events, CPU", total_s, "s", "lower")
    yield Figure("memory", max(total_mb, replay_mb), "MB", "lower", THEIRS_MB / 4,
                 {"pegasus-monitor": THEIRS_MB})  # fmt: skip
    yield Figure("status lag, 95th percentile", percentile(lags, 0.95), "s", "lower", 1.0)
    yield Figure("jobs recorded", jobs, "", "higher", JOBS)
