"""What an archive promises, wherever it is: the same tests for SQLite and PostgreSQL."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from generated import shared_fixtures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitors.archive.archive import Archive, ArchiveError, Measurement, Selection
from monitors.archive.retaining import ROWS, due, retain, retain_metric
from monitors.archive.retention.horizons import DAY_S, HOUR_S, Keep, Point, Retention, roll_up
from monitors.archive.retention.rollups import roll_ups
from monitors.archive.stores.base import rename_subjects
from network_provisioner.base.errors import InputError

Opener = Callable[[], Archive]
World = AbstractContextManager[Opener]

few_examples = settings(
    max_examples=12,
    suppress_health_check=[
        *shared_fixtures.suppress_health_check,
        HealthCheck.differing_executors,
    ],
)
METRICS = ("rtt", "loss", "status", "custom:depth")
UNITS = {"rtt": "s", "loss": "1", "status": "%", "custom:depth": "m"}
NOW = 100.0 * DAY_S


def measured(
    key: str, value: float = 1.0, at: float = 100.0, subject: str = "mu>tacc", metric: str = "rtt"
) -> Measurement:
    return Measurement(key, metric, subject, value, UNITS[metric], at, "test")


measurements = st.lists(
    st.builds(
        measured,
        st.integers(0, 40).map(str),
        st.floats(-1e6, 1e6),
        # Some at the same time, some at the edges of hours and days.
        st.integers(0, 100 * 24).map(lambda hour: hour * float(HOUR_S)) | st.floats(0, NOW),
        st.sampled_from(("mu>tacc", "tacc>mu", "ä>ß")),
        st.sampled_from(METRICS),
    ),
    max_size=30,
)
ages = st.floats(HOUR_S, 60 * DAY_S)


def once(batch: list[Measurement]) -> list[Measurement]:
    """The first of each id."""
    unique: dict[str, Measurement] = {}
    for measurement in batch:
        unique.setdefault(measurement.id, measurement)
    return list(unique.values())


def by_time(batch: list[Measurement]) -> list[Measurement]:
    return sorted(batch, key=lambda m: m.at)


def _write(place: str, writer: int, start: Barrier) -> None:
    start.wait()
    with Archive(place) as archive:  # all make the tables at the same time
        for part in range(10):
            archive.record_many(measured(f"shared-{part}-{n}") for n in range(20))
            archive.record_many(measured(f"own-{writer}-{part}-{n}") for n in range(20))


def several_processes_make_one(place: str) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    writers = [context.Process(target=_write, args=(place, n, start)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with Archive(place) as archive:
        ids = [m.id for m in archive.query("rtt")]
    assert len(ids) == len(set(ids)) == 200 + 4 * 200


def a_killed_writer_leaves_whole_transactions_and_its_turn(place: str) -> None:
    code = (
        "import sys; from monitors.archive.archive import Archive, Measurement\n"
        "a = Archive(sys.argv[1])\n"
        "for n in range(10**9):\n"
        "    a.record_many(Measurement(f'{n}-{m}', 'x', 's', n, '1', n, 't') for m in range(7))\n"
        "    print(n, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, place], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[1],
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    with Archive(place) as archive:
        assert archive.record(Measurement("next", "y", "s", 1.0, "1", 1.0, "t"))
        values = [int(m.value) for m in archive.query("x")]
    assert values == [n for n in range(len(values) // 7) for _ in range(7)]
    assert len(values) >= 7 * len(acknowledged)


class ArchiveSuite:
    """Subclasses have a fixture ``world``: a new empty place; its opener opens it."""

    @pytest.fixture
    def world(self) -> Callable[[], World]:
        raise NotImplementedError

    def test_an_id_is_taken_once(self, world: Callable[[], World]) -> None:
        with world() as opened:
            first, second = opened(), opened()
            kept = replace(measured("a", 5.0), workflow="w", details={"job": "j\0", "n": [1.5]})
            assert first.record(kept)
            assert not second.record(measured("a", 7.0))
            assert second.record_many([measured("a"), measured("b"), measured("b")]) == 1
            assert first.get("a") == kept
            assert first.get("c") is None
            assert first.query("rtt", "mu>tacc", workflow="w") == [kept]

    @pytest.mark.parametrize("text", ["a\0b", "\ud800"])
    def test_text_that_no_database_takes_is_refused(
        self, world: Callable[[], World], text: str
    ) -> None:
        with world() as opened, pytest.raises(InputError, match="characters that are no text"):
            opened().record(measured("a", subject=text))
        with world() as opened, pytest.raises(InputError, match="is no text, expected a name"):
            opened().query("rtt", text)

    def test_numbers_that_json_does_not_have_become_null(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record(replace(measured("a"), details={"t": float("inf"), "x": [float("nan")]}))
            measurement = archive.get("a")
            assert measurement is not None and measurement.details == {"t": None, "x": [None]}

    @few_examples
    @given(data=measurements, size=st.integers(1, 7), newest=st.booleans())
    def test_pages_have_everything_once_and_in_order(
        self, world: Callable[[], World], data: list[Measurement], size: int, newest: bool
    ) -> None:
        with world() as opened:
            archive = opened()
            assert archive.record_many(data) == len(once(data))
            for metric in METRICS:
                expected = by_time([m for m in once(data) if m.metric == metric])
                entries, cursor = [], None
                while page := archive.page(Selection((metric,)), cursor, newest=newest, limit=size):
                    assert len(page) <= size
                    entries += [m for _, m in page]
                    cursor = page[-1][0]
                assert entries == (expected[::-1] if newest else expected)
                assert archive.query(metric) == expected
                assert archive.query(metric, newest=True, limit=3) == expected[::-1][:3]
            assert archive.metrics() == sorted({m.metric for m in once(data)})
            assert list(archive.each(Selection())) == [
                m for metric in archive.metrics() for m in archive.query(metric)
            ]

    @few_examples
    @given(data=measurements)
    def test_the_latest_of_each_subject(
        self, world: Callable[[], World], data: list[Measurement]
    ) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many(data)
            for metric in METRICS:
                expected: dict[str, Measurement] = {}
                for m in by_time([m for m in once(data) if m.metric == metric]):
                    expected[m.subject] = m
                assert archive.latest(metric) == expected
                assert archive.subjects(metric) == sorted(expected)
                some = [*expected][:1]
                assert archive.latest(metric, [*some, "nowhere"]) == {s: expected[s] for s in some}

    @few_examples
    @given(data=measurements, size=st.integers(1, 7), of=st.sets(st.sampled_from(METRICS)))
    def test_the_feed_has_everything_once_in_the_order_of_recording(
        self, world: Callable[[], World], data: list[Measurement], size: int, of: set[str]
    ) -> None:
        with world() as opened:
            archive, reader = opened(), opened()
            seq, entries = 0, []
            for measurement in data:
                moment = reader.changed()
                if archive.record(measurement):
                    assert reader.changed() != moment
                rows, reached = reader.read_on(seq, tuple(of), size)
                assert [number for number, _ in rows] == sorted({number for number, _ in rows})
                assert all(seq < number <= reached for number, _ in rows)
                entries += [measured for _, measured in rows]
                seq = reached
            assert entries == [m for m in once(data) if not of or m.metric in of]
            assert seq == reader.latest_seq()
            moment = reader.changed()
            assert reader.changed() == moment

    def test_numbers_rise_with_commits_of_several_writers(self, world: Callable[[], World]) -> None:
        with world() as opened:
            reader = opened()
            writers = [opened() for _ in range(4)]
            done = threading.Event()
            ids: list[str] = []

            def follow() -> None:
                seq = 0
                while True:
                    last = done.is_set()
                    rows, seq = reader.read_on(seq, (), 50)
                    ids.extend(m.id for _, m in rows)
                    if last and not rows:
                        return

            def write(archive: Archive, writer: int) -> None:
                for n in range(25):
                    archive.record_many(
                        [measured(f"{writer}-{n}-{m}") for m in range(3)] + [measured(f"all-{n}")]
                    )

            following = threading.Thread(target=follow)
            following.start()
            writing = [threading.Thread(target=write, args=(a, n)) for n, a in enumerate(writers)]
            for thread in writing:
                thread.start()
            for thread in writing:
                thread.join()
            done.set()
            following.join()
            assert len(ids) == len(set(ids)) == 4 * 75 + 25

    def test_large_batches_are_taken_once_and_in_order(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            batch = [measured(f"{n % 900}", float(n)) for n in range(1000)]
            assert archive.record_many(batch) == 900
            assert archive.record_many(batch) == 0
            assert [m.id for _, m in archive.read_on(0)[0]] == [str(n) for n in range(900)]
            assert [m.value for _, m in archive.read_on(0)[0]] == [float(n) for n in range(900)]

    def test_requests_reach_another_process(self, world: Callable[[], World]) -> None:
        with world() as opened:
            mine, other = opened(), opened()
            first, second = mine.ask("refresh", "w1", 100.0), other.ask("refresh", "w2", 101.0)
            mine.ask("else", "w1", 102.0)
            assert other.requests("refresh") == [(first, "w1", 100.0), (second, "w2", 101.0)]
            assert other.requests("refresh", first) == [(second, "w2", 101.0)]
            third = mine.ask("refresh", "w3", 5000.0)  # the others are forgotten by then
            assert other.requests("refresh") == [(third, "w3", 5000.0)]
            assert third > second > first

    def test_nothing_is_changed_or_taken_away_by_hand(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many([measured("a"), measured("b")])
            for statement in ("UPDATE measurement SET value = 2", "DELETE FROM measurement"):
                with (
                    pytest.raises(ArchiveError, match="append-only"),
                    archive.engine.write() as writing,
                ):
                    writing.run(statement)
            # Not even by who says that it is retention, while the horizon is not above it.
            with (
                pytest.raises(ArchiveError, match="append-only"),
                archive.engine.write() as writing,
            ):
                writing.run("INSERT INTO retaining (since) VALUES (1)")
                writing.run("DELETE FROM measurement")
            assert len(archive.query("rtt")) == 2

    def test_a_horizon_does_not_come_back(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many([measured("a", at=100.0), measured("b", at=NOW)])
            assert retain(archive, Retention(Keep(DAY_S)), NOW).removed == 1
            with (
                pytest.raises(ArchiveError, match="does not come back"),
                archive.engine.write() as writing,
            ):
                writing.run("UPDATE horizon SET raw_until = 0")
            with (
                pytest.raises(ArchiveError, match="append-only"),
                archive.engine.write() as writing,
            ):
                writing.run("DELETE FROM measurement")

    # ------------------------------------------------------------ retention

    @few_examples
    @given(data=measurements, raw_s=ages, steps=st.lists(st.floats(0, NOW * 2), max_size=3))
    def test_retention_neither_loses_nor_doubles(
        self,
        world: Callable[[], World],
        data: list[Measurement],
        raw_s: float,
        steps: list[float],
    ) -> None:
        retention = Retention(Keep(raw_s))
        with world() as opened:
            archive = opened()
            archive.record_many(data)
            last = {metric: archive.latest(metric) for metric in METRICS}
            unique = once(data)
            for now in sorted(steps):
                retain(archive, retention, now)
                assert retain(archive, retention, now).removed == 0
                assert archive.record_many(unique) == 0  # also what is gone
            for metric in ("rtt", "loss", "custom:depth"):
                for subject in {m.subject for m in data}:
                    points = [
                        Point(m.metric, m.subject, m.unit, m.value, m.at, m.source)
                        for m in unique
                        if (m.metric, m.subject) == (metric, subject)
                    ]
                    for width in (HOUR_S, DAY_S):
                        stored = roll_ups(archive.engine, metric, subject, width, 0, 3 * NOW)
                        assert [
                            (row.start, row.number, row.low, row.high, row.sketch, row.last_at)
                            for row in stored
                        ] == [
                            (row.start, row.number, row.low, row.high, row.sketch, row.last_at)
                            for row in roll_up(points, width)
                        ]
            assert archive.latest("status") == last["status"]  # how each workflow ended

    @few_examples
    @given(
        data=measurements,
        later=measurements,
        raw_s=ages,
        retained_at=st.floats(0, NOW * 2),
        now=st.floats(0, NOW),
        max_age_s=st.none() | st.floats(0, NOW),
    )
    def test_estimates_never_use_what_came_later(
        self,
        world: Callable[[], World],
        data: list[Measurement],
        later: list[Measurement],
        raw_s: float,
        retained_at: float,
        now: float,
        max_age_s: float | None,
    ) -> None:
        """Whatever is recorded with a later time, and whenever measurements are rolled up."""
        future = [
            replace(m, id=f"later-{m.id}", at=now + 1 + m.at)
            for m in later
            # A roll-up is used as a whole or not at all: what shares an hour is no subject here.
            if (now + 1 + m.at) // HOUR_S != now // HOUR_S
        ]
        with world() as all_opened, world() as opened:
            everything, past = all_opened(), opened()
            everything.record_many([*data, *future])
            past.record_many(data)
            for archive in (everything, past):
                retain(archive, Retention(Keep(raw_s)), retained_at)
            for metric in ("rtt", "loss"):
                for subject in ("mu>tacc", "tacc>mu"):
                    estimate = everything.estimate(metric, subject, now, max_age_s)
                    assert estimate == past.estimate(metric, subject, now, max_age_s)
                    known = [
                        m
                        for m in once(data)
                        if (m.metric, m.subject) == (metric, subject) and m.at <= now
                    ]
                    if estimate is not None:
                        used = [m.value for m in known]
                        assert min(used) <= estimate.value <= max(used)
                        assert estimate.at <= now
                        assert max_age_s is None or estimate.at >= now - max_age_s
                        assert estimate.count <= len(known)

    def test_what_is_said_to_go_goes(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            states = [
                Measurement(f"{n}", "status", f"w{n % 3}", 1.0, "%", n, "t") for n in range(9)
            ]
            archive.record_many([*states, *(measured(f"r{n}", at=float(n)) for n in range(5))])
            everything = Retention(Keep(DAY_S))
            said = due(archive, everything, NOW)
            # Of each workflow the last status stays, and what was recorded last of all.
            assert said == {"status": 6, "rtt": 4}
            assert retain(archive, everything, NOW).removed == 10
            assert due(archive, everything, NOW) == {}
            assert [m.id for m in archive.query("status")] == ["6", "7", "8"]

    def test_a_moment_that_is_none_has_no_estimate(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record(measured("a"))
            for now in (math.nan, -math.inf):  # to PostgreSQL everything is before NaN
                assert archive.estimate("rtt", "mu>tacc", now) is None

    def test_retention_beside_writers_neither_loses_nor_doubles(
        self, world: Callable[[], World]
    ) -> None:
        """Somebody records everything again and again while two roll it up, a bit at a time."""
        batch = [measured(str(n), float(n), n * 300.0) for n in range(2000)]
        with world() as opened:
            reader, writer = opened(), opened()
            writer.record_many(batch)
            done = threading.Event()
            counts: list[int] = []

            def record() -> None:
                while not done.is_set():
                    counts.append(writer.record_many(batch))

            def ask() -> None:
                while not done.is_set():
                    estimate = reader.estimate("rtt", "mu>tacc", 2000 * 300.0)
                    assert estimate is not None and estimate.count == 128

            def keep(archive: Archive) -> None:
                for hour in range(1, 168, 6):
                    retain(archive, Retention(Keep(HOUR_S)), hour * 3600.0)

            threads = [threading.Thread(target=record), threading.Thread(target=ask)]
            keepers = [threading.Thread(target=keep, args=[opened()]) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in keepers:
                thread.start()
            for thread in keepers:
                thread.join()
            done.set()
            for thread in threads:
                thread.join()
            assert sum(counts) == 0
            days = roll_ups(reader.engine, "rtt", "mu>tacc", DAY_S, 0, NOW)
            assert sum(day.number for day in days) == 2000

    def test_an_hour_with_very_many_goes_in_short_steps_and_counts_once_meanwhile(
        self, world: Callable[[], World]
    ) -> None:
        """If a process ends between two steps, another continues, and readers notice nothing."""
        subjects = [f"h{n}" for n in range(ROWS + 50)]
        batch = [
            measured(f"{name}:{n}", float(n), 100.0 + n, name) for name in subjects for n in (1, 2)
        ]
        with world() as opened:
            reader, late = opened(), [replace(m, id=f"late {m.id}") for m in batch]
            reader.record_many(batch)
            reader.record(measured("newest", at=NOW, metric="loss"))
            keepers = [opened(), opened()]
            sample = (subjects[0], subjects[-1])
            before = [reader.estimate("rtt", name, NOW) for name in sample]
            removed_rows = steps_done = 0
            while True:
                keeper = retain_metric(keepers[steps_done % 2].engine, "rtt", Keep(DAY_S), NOW)
                # Each goes on a little further than the one before it got, and is gone.
                steps = list(islice(keeper, 1 + steps_done))
                keeper.close()
                if not steps:
                    break
                steps_done += 1
                for step in steps:
                    assert max(step.removed, step.made, step.dropped) <= ROWS
                    removed_rows += step.removed
                assert reader.record_many(late[:3]) == 0
                for name in sample:
                    for width in (HOUR_S, DAY_S):
                        (row,) = roll_ups(reader.engine, "rtt", name, width, 0, NOW)
                        assert (row.number, row.total) == (2, 3.0)
                after = [reader.estimate("rtt", name, NOW) for name in sample]
                assert [(e.count, e.at) for e in after if e] == [
                    (e.count, e.at) for e in before if e
                ]
                assert steps_done < 100
            assert removed_rows == len(batch) and reader.query("rtt") == []
            count = reader.engine.rows("SELECT count(*), sum(number) FROM rollup")
            assert [tuple(map(int, row)) for row in count] == [(len(subjects), len(batch))]
            assert reader.engine.rows("SELECT * FROM rolling") == []
            # The same of days, and of their end.
            keep = Keep(DAY_S, 2 * DAY_S, 3 * DAY_S)
            steps = list(retain_metric(reader.engine, "rtt", keep, NOW))
            assert all(max(step.made, step.dropped) <= ROWS for step in steps)
            assert sum(step.dropped for step in steps) == 2 * len(subjects)
            assert roll_ups(reader.engine, "rtt", sample[0], DAY_S, 0, NOW) == []

    def test_what_is_being_rolled_up_cannot_be_taken_away(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many([measured("a"), measured("newest", at=NOW)])
            next(
                retain_metric(archive.engine, "rtt", Keep(DAY_S), NOW)
            )  # the horizon rose, and nothing else
            assert archive.engine.rows("SELECT count(*) FROM rolling") == [(1,)]
            with (
                pytest.raises(ArchiveError, match="append-only"),
                archive.engine.write() as writing,
            ):
                writing.run("INSERT INTO retaining (since) VALUES (1)")
                writing.run("DELETE FROM measurement WHERE id = 'a'")
            assert retain(archive, Retention(Keep(DAY_S)), NOW).removed == 1

    def test_an_estimate_stays_when_its_measurements_are_rolled_up(
        self, world: Callable[[], World]
    ) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many(measured(str(n), 50.0 + n % 5, n * 600.0) for n in range(500))
            now = 500 * 600.0
            before = archive.estimate("rtt", "mu>tacc", now)
            assert retain(archive, Retention(Keep(HOUR_S)), now + 2 * DAY_S).removed == 499
            after = archive.estimate("rtt", "mu>tacc", now)
            assert before is not None and after is not None
            assert after.value == pytest.approx(before.value, rel=0.02)
            assert after.spread == pytest.approx(before.spread, abs=1.0)
            assert (after.count, after.at, after.source) == (before.count, before.at, before.source)

    def test_hours_become_days_and_days_go(self, world: Callable[[], World]) -> None:
        keep = Keep(2 * HOUR_S, 2 * DAY_S, 10 * DAY_S)
        with world() as opened:
            archive = opened()
            archive.record_many(measured(str(n), float(n), n * HOUR_S / 2) for n in range(48 * 20))
            retain(archive, Retention(keep), 20.0 * DAY_S)

            def kept(width_s: int) -> list[tuple[float, int]]:
                return archive.engine.rows(
                    "SELECT start, number FROM rollup WHERE width = ? ORDER BY start", [width_s]
                )

            assert [start / DAY_S for start, _ in kept(DAY_S)] == list(range(10, 18))
            assert {number for _, number in kept(DAY_S)} == {48}
            hours = [start / HOUR_S for start, _ in kept(HOUR_S)]
            assert hours == list(range(18 * 24, 20 * 24 - 2))
            assert len(archive.query("rtt")) == 4
            days = roll_ups(archive.engine, "rtt", "mu>tacc", DAY_S, 0, 30.0 * DAY_S)
            assert [day.number for day in days] == [48] * 10

    def test_what_is_for_ever_stays(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many([measured("a"), measured("b", metric="loss")])
            archive.record(measured("c", at=NOW))
            few = Retention(metrics=(("loss", Keep(DAY_S)),))
            assert retain(archive, few, NOW).removed == 1
            assert archive.query("loss") == []
            assert len(archive.query("rtt")) == 2

    def test_the_newest_number_is_never_given_again(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many([measured("a"), measured("b")])
            top = archive.latest_seq()
            retain(archive, Retention(Keep(DAY_S)), NOW)
            assert archive.record(measured("c", at=NOW))
            assert [m.id for _, m in archive.read_on(top)[0]] == ["c"]

    def test_measurements_go_on_under_another_name(self, world: Callable[[], World]) -> None:
        with world() as opened:
            archive = opened()
            archive.record_many(
                [measured("a"), measured("b", subject="mu", metric="status"), measured("c", at=NOW)]
            )
            retain(archive, Retention(Keep(DAY_S)), NOW)
            rename_subjects(archive.engine, lambda subject: subject.replace("mu", "mizzou"))
            assert [m.subject for m in archive.query("rtt")] == ["mizzou>tacc"]
            assert [m.subject for m in archive.query("status")] == ["mu"]  # of a workflow
            subjects = archive.engine.rows("SELECT DISTINCT subject FROM rollup")
            assert subjects == [("mizzou>tacc",)]
            with pytest.raises(ArchiveError), archive.engine.write() as writing:
                writing.run("UPDATE measurement SET subject = 'x'")
