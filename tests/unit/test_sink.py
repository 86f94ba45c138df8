"""Measurements go to a broker in portions that it takes; what it refuses holds up nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_files import START, Submitted, append, exiting, starting, table

from monitors.base.measurement import LONGEST, MOST_DETAILS, Measurement
from monitors.workflows.follower import Follower
from monitors.workflows.sink import BrokerSink, SinkError
from network_provisioner.base.errors import InputError

TOKEN = "a-token-that-is-long-enough"
LIMIT_BYTES = 256 * 1024

Answer = Callable[[list[dict[str, Any]]], tuple[int, Any]]


class Broker:
    """Takes measurements as a broker does: all of a request or none."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, Any]] = {}
        self.headers: list[str] = []
        self.sizes: list[int] = []
        self.answer: Answer | None = None
        broker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                sent = json.loads(self.rfile.read(length))["measurements"]
                broker.headers.append(self.headers.get("Authorization", ""))
                broker.sizes.append(length)
                status, answer = (broker.answer or broker.take)(sent)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, sent: list[dict[str, Any]]) -> tuple[int, Any]:
        new = {row["id"]: row for row in sent if row["id"] not in self.taken}
        self.taken |= new
        return 200, {"recorded": len(new), "known": len(sent) - len(new)}


@pytest.fixture
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.server.shutdown()
    running.server.server_close()


def measurement(number: int, **changes: Any) -> Measurement:
    made = Measurement(f"rtt:{number}", "rtt", "mu>tacc", 0.05, "s", 1e9 + number, "test")
    return replace(made, **changes)


def refused(code: str, status: int = 403) -> tuple[int, Any]:
    return status, {"error": {"code": code, "message": f"{code}: not yours"}}


def test_measurements_are_sent_as_they_are_and_counted(broker: Broker) -> None:
    sink = BrokerSink(broker.url, TOKEN)
    made = measurement(1, details={"path": ["a", "b"]}, workflow="w")
    assert sink.record_many([made, measurement(2)]) == 2
    assert sink.record_many([made, measurement(3)]) == 1
    assert Measurement(**broker.taken["rtt:1"]) == made
    assert set(broker.headers) == {f"Bearer {TOKEN}"}
    assert sink.record_many([]) == 0


def test_many_and_large_ones_go_in_portions(broker: Broker) -> None:
    sink = BrokerSink(broker.url)
    assert sink.record_many(measurement(n) for n in range(6000)) == 6000
    large = [measurement(n, id=f"x{n}", details={"stderr": "x" * 4096}) for n in range(200)]
    assert sink.record_many(large) == 200
    assert len(broker.taken) == 6200 and max(broker.sizes) < LIMIT_BYTES
    assert set(broker.headers) == {""}


def test_what_is_refused_is_said_once_and_keeps_nothing_back(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(sent: list[dict[str, Any]]) -> tuple[int, Any]:
        if any(item["workflow"] == "not mine" for item in sent):
            return refused("forbidden")
        return broker.take(sent)

    broker.answer = answer
    all_of_them = [measurement(n, workflow="not mine" if n % 7 == 0 else "mine") for n in range(50)]
    sink = BrokerSink(broker.url)
    assert sink.record_many(all_of_them) == 42
    assert sink.record_many(all_of_them) == 0
    assert len(broker.taken) == 42
    assert len(caplog.records) == 2 and "will not take rtt:0: forbidden" in caplog.text


def test_a_reason_is_said_once_however_many_it_meets(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """As a broker says it: with the id and the subject of each."""

    def answer(sent: list[dict[str, Any]]) -> tuple[int, Any]:
        first = sent[0]
        why = (
            f"'mu' (role agent) may not record {first['id']!r} of {first['subject']!r}: not an end"
        )
        return 403, {"error": {"code": "forbidden", "message": why}}

    broker.answer = answer
    sink = BrokerSink(broker.url)
    assert sink.record_many(measurement(n, subject=f"a{n}>b") for n in range(120)) == 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert "will not take rtt:0: 'mu' (role agent) may not record 'rtt:0'" in messages[0]
    assert "rtt:9, the 10th so refused" in messages[1] and "rtt:99, the 100th" in messages[2]


def test_details_that_no_broker_takes_hold_up_nothing_else(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fits = {"stderr": "\0" * ((MOST_DETAILS - 14) // 6)}
    assert len(json.dumps(fits)) <= MOST_DETAILS < len(json.dumps(fits)) + 6
    large = [
        measurement(1, details=fits),
        measurement(2, details={"stderr": "\0" * (MOST_DETAILS // 6)}),
        measurement(3),
    ]
    large += [
        measurement(4, **{name: "x" * (most + 1)})
        for name, most in LONGEST.items()
        if name != "unit"
    ]
    assert BrokerSink(broker.url).record_many(large) == 2
    assert sorted(broker.taken) == ["rtt:1", "rtt:3"]
    assert "rtt:2': found details of" in caplog.text and str(MOST_DETAILS) in caplog.text
    assert "found subject of 1001 characters, expected at most 1000" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        refused("archive_unavailable", 503),
        refused("unauthorized", 401),
        refused("internal", 500),
        (200, b"not JSON"),
        (200, {"recorded": "some"}),
        (404, b"<html>"),
        (500, {"error": "none"}),
    ],
)
def test_what_may_go_another_time_is_an_error(broker: Broker, answer: tuple[int, Any]) -> None:
    broker.answer = lambda _: answer
    with pytest.raises(SinkError):
        BrokerSink(broker.url).record_many([measurement(1)])


def test_no_broker_and_no_url() -> None:
    with pytest.raises(SinkError, match="cannot be reached"):
        BrokerSink("http://127.0.0.1:9", timeout_s=2.0).record_many([measurement(1)])
    with pytest.raises(InputError, match="expected one like"):
        BrokerSink("nowhere")


def test_what_no_archive_takes_is_left_out(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [measurement(1, value=float("nan")), measurement(2, unit="hours"), measurement(3)]
    assert BrokerSink(broker.url).record_many(odd) == 1
    assert "expected finite numbers" in caplog.text


@settings(max_examples=10)
@given(st.lists(st.sampled_from(["up", "down", "poll", "write"]), max_size=30))
def test_a_broker_that_comes_and_goes_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, course: list[str]
) -> None:
    planned = Submitted(tmp_path_factory.mktemp("wf") / "run")
    broker = Broker()
    try:
        follower = Follower(planned.path, BrokerSink(broker.url))
        append(planned.out, starting())
        done = 0
        for step in course:
            if step == "up":
                broker.answer = None
            elif step == "down":
                broker.answer = lambda _: refused("busy", 503)
            elif step == "write":
                done += 1
                append(planned.out, table(START + done, done=done, unready=99 - done))
            else:
                with_errors(follower.poll)
        append(planned.out, exiting(START + 100, 0))
        broker.answer = None
        assert follower.poll()
        counts = [m["details"]["done"] for m in broker.taken.values() if m["metric"] == "status"]
        assert counts == [*range(1, done + 1), done]
        assert next(iter(broker.taken)) == f"workflow:{planned.uuid}"  # whose it is comes first
    finally:
        broker.server.shutdown()
        broker.server.server_close()


def with_errors(call: Callable[[], object]) -> None:
    try:
        call()
    except SinkError as error:
        assert "busy" in str(error)


def test_while_nothing_can_be_recorded_little_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the files: with many workflows and no sink, those are not read on."""
    monkeypatch.setattr("monitors.workflows.follower.MOST_UNRECORDED", 20)

    class Sink:
        broken = True

        def __init__(self) -> None:
            self.ids: set[str] = set()

        def record_many(self, measurements: Any) -> int:
            if self.broken:
                raise SinkError("busy")
            self.ids |= {m.id for m in measurements}
            return len(self.ids)

    sink = Sink()
    planned = [Submitted(tmp_path / f"run{n}", f"w{n}") for n in range(10)]
    for run in planned:
        run.out.write_text(
            starting() + "".join(table(START + n, done=n, unready=9 - n) for n in range(10))
        )
    follower = Follower([run.path for run in planned], sink)
    with pytest.raises(SinkError):
        follower.poll()
    assert 20 <= len(follower._unrecorded) < 40
    sink.broken = False
    follower.poll()
    assert len([name for name in sink.ids if name.startswith("status:")]) == 100
    assert follower._unrecorded == []
