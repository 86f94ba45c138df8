"""P7: how much the archive takes, how soon others are told, and that kill -9 costs nothing."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from adon.service.monitoring import archive_routers
from monitors.archive.archive import Archive
from monitors.rules import Rules
from network_provisioner.api.connection import server
from network_provisioner.api.gate import Gate
from tests.bench import Figure, Tell, bench, percentile, timed
from tests.replay import events, replay

EVENTS = 1_000_000
PART = 100_000
SINGLE_EVENTS = 2_000
WRITERS = 4
POSTGRES_EVENTS = 200_000
KILLS = 10
FEED_EVENTS = 300
FEED_PER_S = 50.0


@bench("P7")
def archive_ingest(tell: Tell) -> Iterable[Figure]:
    """A million measurements into a file that keeps growing, beside one transaction for each."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        tell(f"{EVENTS} measurements")
        with Archive(Path(name) / "archive.sqlite") as archive:
            stream = events(EVENTS)
            times = [
                timed(lambda: archive.record_many(islice(stream, PART)))[1]
                for _ in range(EVENTS // PART)
            ]
            _, again = timed(lambda: archive.record_many(events(PART)))
            _, estimate_s = timed(
                lambda: archive.estimate("runtime", "soykb::bwa_mem:1.0@site1", 2e9)
            )
        single = _one_by_one(Path(name) / "plain.sqlite")
    peers = {"one SQLite transaction per event": single}
    yield Figure("archive ingest, a million measurements", EVENTS / sum(times), "events/s",
                 better="higher", goal=20_000, peers=peers)  # fmt: skip
    yield Figure("archive ingest, the slowest 100,000 of them", PART / max(times), "events/s",
                 better="higher", goal=20_000)  # fmt: skip
    yield Figure("archive ingest of what is there already", PART / again, "events/s",
                 better="higher")  # fmt: skip
    yield Figure("an estimate from a million measurements", 1e3 * estimate_s, "ms", better="lower")


def _one_by_one(path: Path) -> float:
    """Events per second."""
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("CREATE TABLE m (id TEXT UNIQUE, metric, subject, value, at)")

    def work() -> None:
        for m in events(SINGLE_EVENTS):
            row = (m.id, m.metric, m.subject, m.value, m.at)
            plain.execute("INSERT INTO m VALUES (?, ?, ?, ?, ?)", row)

    _, took = timed(work)
    plain.close()
    return SINGLE_EVENTS / took


def _write(url: str, writer: int, start: threading.Barrier) -> None:
    with Archive(url) as archive:
        start.wait()
        archive.record_many(islice(events(POSTGRES_EVENTS), writer, None, WRITERS))


@bench("P7")
def postgres_ingest(tell: Tell) -> Iterable[Figure]:
    """Several writers into one PostgreSQL, which writes to disk as a real one does."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from postgres_world import new_place, server_in  # noqa: PLC0415  # tests are no package

    tell(f"{POSTGRES_EVENTS} measurements by {WRITERS} writers")
    with (
        tempfile.TemporaryDirectory(prefix="adon-pg-") as name,
        server_in(Path(name), durable=True) as database,
    ):
        url = new_place(database)
        Archive(url).close()
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(WRITERS + 1)
        writers = [context.Process(target=_write, args=(url, n, start)) for n in range(WRITERS)]
        for writer in writers:
            writer.start()
        start.wait()
        _, took = timed(lambda: [writer.join() for writer in writers])
        with Archive(url) as archive:
            (count,) = archive.engine.rows("SELECT count(*) FROM measurement")[0]
    if count != POSTGRES_EVENTS:
        raise AssertionError(f"found {count} measurements, expected {POSTGRES_EVENTS}")
    yield Figure(f"archive ingest into PostgreSQL, {WRITERS} writers", POSTGRES_EVENTS / took,
                 "events/s", better="higher", goal=20_000)  # fmt: skip


@bench("P7")
def killed_replay(tell: Tell) -> Iterable[Figure]:
    """kill -9 at random points of a replay; each time it starts again from its beginning."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        tell(f"{EVENTS} measurements, kill -9 at {KILLS} random points")
        result = replay(str(Path(name) / "archive.sqlite"), EVENTS, KILLS, seed=7)
    tell(str(result))
    yield Figure(f"measurements lost or doubled by {result.kills} kill -9 in a replay of a million",
                 result.wrong, "measurements", better="lower", goal=0)  # fmt: skip


@bench("P7")
def feed_lag(tell: Tell) -> Iterable[Figure]:
    """From recording to a client of the broker's feed, over HTTP."""
    from fastapi import FastAPI  # noqa: PLC0415  # slow to import

    from network_provisioner.access import Keyring  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory(prefix="adon-bench-") as name,
        Archive(Path(name) / "archive.sqlite") as archive,
    ):
        app = FastAPI()
        app.add_middleware(Gate, keyring=Keyring((), time.time))
        for routes in archive_routers(archive, Rules(), time.time):
            app.include_router(routes)
        lags = _lags(archive, app)
    tell(f"{len(lags)} measurements")
    yield Figure("lag of the feed, 99th percentile", percentile(lags, 0.99), "s",
                 better="lower", goal=0.5)  # fmt: skip


def _lags(archive: Archive, app: object) -> list[float]:
    listening = socket.create_server(("127.0.0.1", 0))
    web = server(app)
    serving = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
    serving.start()
    recorded: dict[str, float] = {}

    def record() -> None:
        for event in islice(events(FEED_EVENTS), FEED_EVENTS):
            time.sleep(1 / FEED_PER_S)  # the load's own pace
            recorded[event.id] = time.monotonic()
            archive.record(event)

    try:
        client = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=60)
        client.request("GET", "/v1/feed?after=0")
        answer = client.getresponse()
        recording = threading.Thread(target=record)
        recording.start()
        lags: list[float] = []
        while len(lags) < FEED_EVENTS:
            line = answer.readline()
            if line.startswith(b"data: "):
                lags.append(time.monotonic() - recorded[json.loads(line[6:])["id"]])
        recording.join()
        client.close()
    finally:
        web.should_exit = True
        serving.join()
        listening.close()
    return lags
