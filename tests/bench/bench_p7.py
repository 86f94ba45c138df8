"""P7: how soon a change of status is in the archive, at what cost, and how much the archive takes.

The peer is the thesis's loop (Figure 16): every 5 s it looks at every workflow by reading all that
DAGMan ever wrote, as pegasus-status does. Here it is spared the start of a process per workflow.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from monitors.archive import Archive, Measurement
from monitors.follow import Follower
from monitors.status import Status
from monitors.submit_dir import SubmitDir
from tests.bench import Figure, Tell, bench

WORKFLOWS = 1000
DURATION_S = 12.0
CHANGES_PER_S = 250  # one of a thousand workflows changes every 4 s
HISTORY_TABLES = 100  # what each workflow wrote before: 50 kB
POLL_S = 5.0

EVENTS = 200_000
SINGLE_EVENTS = 2_000

Seen = dict[tuple[str, int], float]


def table(done: int) -> bytes:
    """As DAGMan writes it; ``done`` tells one change from the next."""
    at = time.strftime("%m/%d/%y %H:%M:%S")
    lines = (
        "Of 9999 nodes total:",
        " Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile",
        "  ===     ===      ===     ===     ===        ===      ===      ===",
        f"{done:6d}       0        1       0       0       {9998 - done}        0        0",
        "0 job proc(s) currently held",
        "DAGMan Runtime Statistics: [EventCycleTimeAvg=0.001; EventCycleTimeMax=0.006; ]",
    )
    return "".join(f"{at} {line}\n" for line in lines).encode()


def make_workflows(folder: Path) -> list[Path]:
    """Submit directories of workflows that have run for a while."""
    history = b"".join(table(n) for n in range(HISTORY_TABLES))
    paths = []
    for number in range(WORKFLOWS):
        path = folder / f"run{number:04d}"
        path.mkdir()
        (path / "braindump.yml").write_text(f'wf_uuid: "{path.name}"\ndag: "w.dag"\n')
        (path / "w.dag").touch()
        (path / "w.dag.dagman.out").write_bytes(history)
        paths.append(path)
    return paths


def write_changes(paths: list[Path]) -> Seen:
    """Appends changes at the set rate; when each was written (monotonic seconds)."""
    chooser, written = random.Random(7), {}
    counts = dict.fromkeys(paths, HISTORY_TABLES)
    start = time.monotonic()
    for number in itertools.count():
        due = start + number / CHANGES_PER_S
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


# ---------------------------------------------------------------- the two ways to look


def follow(
    paths: list[Path], database: Path, stop: threading.Event, ready: Callable[[], None]
) -> Seen:
    """Ours."""
    seen: Seen = {}
    ready_at = len(paths) * HISTORY_TABLES

    def on_status(submit_dir: SubmitDir, status: Status) -> None:
        seen[submit_dir.workflow, status.done] = time.monotonic()
        if len(seen) == ready_at:
            ready()

    with Archive(database) as archive:
        Follower(paths, archive, on_status=on_status).run(stop)
    return seen


_ROW = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d((?:\s+[0-9]+){7,8})\s*$")


def poll(
    paths: list[Path], database: Path, stop: threading.Event, ready: Callable[[], None]
) -> Seen:
    """The peer: reads everything again every few seconds."""
    seen: Seen = {}
    with Archive(database) as archive:
        for turn in itertools.count():
            began = time.monotonic()
            for path in paths:
                with (path / "w.dag.dagman.out").open() as file:
                    rows = [found[1] for line in file if (found := _ROW.match(line))]
                done = int(rows[-1].split()[0])
                key = f"{path.name}:{done}"
                archive.record(Measurement(key, "status", path.name, done, "%", began, "poll"))
                seen.setdefault((path.name, done), time.monotonic())
            if turn == 0:
                ready()
            if stop.wait(max(0.0, began + POLL_S - time.monotonic())):
                return seen
    raise AssertionError  # count() does not end


def observe(way: str, paths: list[Path], database: Path, pipe: Connection) -> None:
    """Runs in a process of its own on one core; sends what it saw and the CPU seconds it took."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    stop = threading.Event()
    began = [0.0]

    def ready() -> None:
        began[0] = time.process_time()
        pipe.send("ready")

    def wait_for_stop() -> None:
        pipe.recv()
        stop.set()

    threading.Thread(target=wait_for_stop, daemon=True).start()
    seen = (follow if way == "follow" else poll)(paths, database, stop, ready)
    pipe.send((seen, time.process_time() - began[0]))


def measure(way: str) -> tuple[list[float], float, float]:
    """Lags in seconds, share of changes that were seen at all, and share of a core."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        paths = make_workflows(folder)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=observe, args=(way, paths, folder / "a.sqlite", theirs))
        process.start()
        try:
            if not ours.poll(120):
                raise TimeoutError(f"{way}: not ready within 120 s")
            ours.recv()
            began = time.monotonic()
            written = write_changes(paths)
            if way == "poll":
                time.sleep(POLL_S)  # so that the last changes get their turn
            ours.send("stop")
            seen, cpu_s = ours.recv()
            wall_s = time.monotonic() - began
        finally:
            process.kill()
            process.join()
    lags = sorted(seen[change] - at for change, at in written.items() if change in seen)
    return lags, len(lags) / len(written), cpu_s / wall_s


def percentile(ordered: list[float], share: float) -> float:
    """The value below which that share of an ordered list lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@bench("P7")
def status_lag(tell: Tell) -> Iterable[Figure]:
    """From DAGMan's write to the archive, a thousand workflows at once on one core."""
    tell(f"{WORKFLOWS} workflows, {CHANGES_PER_S} changes/s, {DURATION_S:g} s, ours")
    ours = measure("follow")
    tell("the same, every file read again every 5 s")
    peer = measure("poll")
    name = f"re-reading every {POLL_S:g} s"
    for words, share in (("99th percentile", 0.99), ("median", 0.5)):
        yield Figure(
            f"status lag with {WORKFLOWS} workflows, {words}",
            percentile(ours[0], share),
            "s",
            better="lower",
            goal=1.0 if share == 0.99 else None,
            peers={name: percentile(peer[0], share)},
        )
    yield Figure(
        "changes of status that reach the archive",
        100 * ours[1],
        "%",
        better="higher",
        goal=100.0,
        peers={name: 100 * peer[1]},
    )
    yield Figure(
        f"CPU of following {WORKFLOWS} workflows",
        100 * ours[2],
        "% of a core",
        better="lower",
        peers={name: 100 * peer[2]},
    )


@bench("P7")
def archive_ingest(tell: Tell) -> Iterable[Figure]:
    """Measurements per second into a file that keeps growing, beside one transaction for each."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        path = Path(name) / "archive.sqlite"
        tell(f"{EVENTS} measurements")
        with Archive(path) as archive:
            rate = _rate(EVENTS, lambda: archive.record_many(_events(EVENTS)))
            again = _rate(EVENTS, lambda: archive.record_many(_events(EVENTS)))
            assert len(archive.query("runtime")) == EVENTS
        plain = sqlite3.connect(Path(name) / "plain.sqlite", isolation_level=None)
        plain.execute("CREATE TABLE m (id TEXT UNIQUE, metric, subject, value, at)")

        def one_by_one() -> None:
            for m in _events(SINGLE_EVENTS):
                row = (m.id, m.metric, m.subject, m.value, m.at)
                plain.execute("INSERT INTO m VALUES (?, ?, ?, ?, ?)", row)

        single = _rate(SINGLE_EVENTS, one_by_one)
        plain.close()
    yield Figure(
        "archive ingest",
        rate,
        "events/s",
        better="higher",
        goal=20_000,
        peers={"one SQLite transaction per event": single},
    )
    yield Figure("archive ingest of what is there already", again, "events/s", better="higher")


def _events(count: int) -> Iterable[Measurement]:
    for n in range(count):
        yield Measurement(
            f"runtime:wf-{n % 50}:job-{n}",
            "runtime",
            f"soykb::bwa_mem:1.0@site{n % 4}",
            10.0 + n % 7,
            "s",
            1_700_000_000.0 + n,
            "bench",
            f"wf-{n % 50}",
            {"job": f"job-{n}", "bytes_in": 1000},
        )


def _rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)
