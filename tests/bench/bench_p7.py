"""P7: how soon a change of status is in the archive, and at what cost.

The peers do what the thesis's loop does (Figure 16): every 5 s they look at every workflow. One
asks the real pegasus-status, where it is on PATH; the other reads all that DAGMan ever wrote as
pegasus-status does, and is spared the start of a process per workflow. All run on one core.
"""

from __future__ import annotations

import bisect
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from monitors.archive.archive import Archive, Measurement
from monitors.workflows.follower import Follower
from monitors.workflows.logs.status import Status
from monitors.workflows.planned.submit_dir import SubmitDir
from tests.bench import Figure, Tell, bench, percentile

WORKFLOWS = 1000
DURATION_S = 12.0
CHANGES_PER_S = 250  # one of a thousand workflows changes every 4 s
HISTORY_TABLES = 100  # what each workflow wrote before: 50 kB
POLL_S = 5.0
FEW = 8  # workflows that one core can ask pegasus-status about every 5 s
FEW_CHANGES_PER_S = 2

Seen = dict[tuple[str, int], float]
Look = Callable[[Path], int]  # how many jobs of a workflow are done

BRAINDUMP = """\
user: "ada"
submit_hostname: "localhost"
wf_uuid: "{name}"
root_wf_uuid: "{name}"
dax_label: "w"
pegasus_wf_name: "w-0"
submit_dir: "{path}"
dag: "w.dag"
type: "dag"
"""


def table(done: int) -> bytes:
    """As DAGMan writes it; ``done`` tells one change from the next."""
    at = time.strftime("%m/%d/%y %H:%M:%S")
    lines = (
        "DAG status: 0 (DAG_STATUS_OK)",
        "Of 9999 nodes total:",
        " Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile",
        "  ===     ===      ===     ===     ===        ===      ===      ===",
        f"{done:6d}       0        1       0       0       {9998 - done}        0        0",
        "0 job proc(s) currently held",
        "DAGMan Runtime Statistics: [EventCycleTimeAvg=0.001; EventCycleTimeMax=0.006; ]",
    )
    return "".join(f"{at} {line}\n" for line in lines).encode()


def make_workflows(folder: Path, count: int) -> list[Path]:
    """Submit directories of workflows that have run for a while."""
    history = b"".join(table(n) for n in range(HISTORY_TABLES))
    paths = []
    for number in range(count):
        path = folder / f"run{number:04d}"
        path.mkdir()
        (path / "braindump.yml").write_text(BRAINDUMP.format(name=path.name, path=path))
        (path / "w.dag").touch()
        (path / "w.dag.dagman.out").write_bytes(history)
        paths.append(path)
    return paths


def write_changes(paths: list[Path], changes_per_s: float) -> Seen:
    """Appends changes at the set rate; when each was written (monotonic seconds)."""
    chooser, written = random.Random(7), {}
    counts = dict.fromkeys(paths, HISTORY_TABLES)
    start = time.monotonic()
    for number in itertools.count():
        due = start + number / changes_per_s
        if due > start + DURATION_S:
            return written
        time.sleep(max(0.0, due - time.monotonic()))  # the load's own pace
        path = chooser.choice(paths)
        lines = table(counts[path]).splitlines(keepends=True)
        with (path / "w.dag.dagman.out").open("ab", buffering=0) as file:
            for line in lines:  # one write each, as DAGMan does
                file.write(line)
        written[path.name, counts[path]] = time.monotonic()
        counts[path] += 1


# ---------------------------------------------------------------- the ways to look


def follow(
    paths: list[Path], database: Path, stop: threading.Event, ready: Callable[[], None]
) -> Seen:
    """Ours."""
    seen: Seen = {}

    def on_status(submit_dir: SubmitDir, status: Status) -> None:
        seen[submit_dir.workflow, status.done] = time.monotonic()
        if len(seen) == len(paths):  # the newest of each, told when all before is recorded
            ready()

    with Archive(database) as archive:
        Follower(paths, archive, on_status=on_status).run(stop)
    return seen


_ROW = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d((?:\s+[0-9]+){7,8})\s*$")


def read_again(path: Path) -> int:
    """All that DAGMan ever wrote."""
    with (path / "w.dag.dagman.out").open() as file:
        rows = [match[1] for line in file if (match := _ROW.match(line))]
    return int(rows[-1].split()[0])


def ask_pegasus(path: Path) -> int:
    """The real one."""
    said = subprocess.run(
        ["pegasus-status", "-j", "-Q", str(path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return int(json.loads(said.stdout)["dags"]["root"]["succeeded"])


def poll(
    look: Look,
    paths: list[Path],
    database: Path,
    stop: threading.Event,
    ready: Callable[[], None],
) -> Seen:
    """A peer: looks at every workflow every few seconds, or as often as it comes to it."""
    seen: Seen = {}
    look(paths[0])
    ready()
    with Archive(database) as archive:
        while not stop.is_set():
            began = time.monotonic()
            for path in paths:
                done = look(path)
                key = f"{path.name}:{done}"
                archive.record(Measurement(key, "status", path.name, done, "%", began, "poll"))
                seen.setdefault((path.name, done), time.monotonic())
                if stop.is_set():
                    break
            stop.wait(max(0.0, began + POLL_S - time.monotonic()))
    return seen


WAYS: dict[str, Look | None] = {
    "follow": None, "re-reading": read_again, "pegasus-status": ask_pegasus,
}  # fmt: skip


def cpu_s() -> float:
    """Of this process and all that it started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def observe(way: str, paths: list[Path], database: Path, pipe: Connection) -> None:
    """Runs in a process of its own on one core; sends what it saw and the CPU seconds it took."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    stop = threading.Event()
    began = [0.0]

    def ready() -> None:
        began[0] = cpu_s()
        pipe.send("ready")

    def wait_for_stop() -> None:
        pipe.recv()
        stop.set()

    threading.Thread(target=wait_for_stop, daemon=True).start()
    look = WAYS[way]
    if look is None:
        seen = follow(paths, database, stop, ready)
    else:
        seen = poll(look, paths, database, stop, ready)
    pipe.send((seen, cpu_s() - began[0]))


@dataclass(frozen=True)
class Outcome:
    """``lags`` in seconds, in order: until that many jobs, or more, were known to be done; of what
    was not known in the end, until the end. ``told`` is the share of changes that were seen each,
    ``known`` of those that were known in the end, ``cores`` the CPU time for each second."""

    lags: list[float]
    told: float
    known: float
    cores: float


def measure(way: str, count: int, changes_per_s: float) -> Outcome:
    """How one way does with ``count`` workflows."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        paths = make_workflows(folder, count)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=observe, args=(way, paths, folder / "a.sqlite", theirs))
        process.start()
        try:
            if not ours.poll(120):
                raise TimeoutError(f"{way}: not ready within 120 s")
            ours.recv()
            began = time.monotonic()
            written = write_changes(paths, changes_per_s)
            if way != "follow":
                time.sleep(2 * POLL_S)  # so that the last changes get their turn
            ours.send("stop")
            seen, used_s = ours.recv()
            ended = time.monotonic()
        finally:
            process.kill()
            process.join()
    return outcome(written, seen, used_s / (ended - began), ended)


def outcome(written: Seen, seen: Seen, cores: float, ended: float) -> Outcome:
    """What was written, beside what was seen and when."""
    looks: dict[str, list[tuple[int, float]]] = {}
    for (name, done), at in sorted(seen.items()):
        looks.setdefault(name, []).append((done, at))
    lags, known = [], 0
    for (name, done), at in written.items():
        later = looks.get(name, [])[bisect.bisect_left(looks.get(name, []), (done, 0.0)) :]
        known += bool(later)
        lags.append(min((seen_at for _, seen_at in later), default=ended) - at)
    reported_share = sum(change in seen for change in written) / len(written)
    return Outcome(sorted(lags), reported_share, known / len(written), cores)


def figures(count: int, ours: Outcome, peers: dict[str, Outcome], goal: bool) -> Iterable[Figure]:
    """Ours beside the peers."""
    for words, share in (("99th percentile", 0.99), ("median", 0.5)):
        yield Figure(
            f"status lag with {count} workflows, {words}",
            percentile(ours.lags, share),
            "s",
            better="lower",
            goal=1.0 if goal and share == 0.99 else None,
            peers={
                f"{name}{'' if peer.known == 1 else ' (at least)'}": percentile(peer.lags, share)
                for name, peer in peers.items()
            },
        )
    yield Figure(
        f"changes of status of {count} workflows that reach the archive",
        100 * ours.told,
        "%",
        better="higher",
        goal=100.0 if goal else None,
        peers={name: 100 * peer.told for name, peer in peers.items()},
    )
    yield Figure(
        f"CPU of following {count} workflows",
        100 * ours.cores,
        "% of a core",
        better="lower",
        peers={name: 100 * peer.cores for name, peer in peers.items()},
    )


@bench("P7")
def status_lag(tell: Tell) -> Iterable[Figure]:
    """From DAGMan's write to the archive, a thousand workflows at once on one core."""
    tell(f"{WORKFLOWS} workflows, {CHANGES_PER_S} changes/s, {DURATION_S:g} s, ours")
    ours = measure("follow", WORKFLOWS, CHANGES_PER_S)
    tell("the same, every file read again every 5 s")
    again = f"re-reading every {POLL_S:g} s"
    peers = {again: measure("re-reading", WORKFLOWS, CHANGES_PER_S)}
    real = shutil.which("pegasus-status") is not None
    theirs = f"pegasus-status every {POLL_S:g} s"
    if real:
        tell("the same, pegasus-status as often as one core runs it")
        peers[theirs] = measure("pegasus-status", WORKFLOWS, CHANGES_PER_S)
    else:
        tell("pegasus-status is not on PATH: the peer that reads as it does stands for it")
    yield from figures(WORKFLOWS, ours, peers, goal=True)
    if real:
        tell(f"{FEW} workflows, {FEW_CHANGES_PER_S} changes/s: as many as pegasus-status manages")
        ours = measure("follow", FEW, FEW_CHANGES_PER_S)
        peer = measure("pegasus-status", FEW, FEW_CHANGES_PER_S)
        yield from figures(FEW, ours, {theirs: peer}, goal=False)
