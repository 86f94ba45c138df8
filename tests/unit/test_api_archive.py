"""Measurements over HTTP: recorded by those who may, seen by those who may, told as they come."""

from __future__ import annotations

import asyncio
import csv
import http.client
import io
import json
import threading
import zlib
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_rig import bearer, error, keyring, serving, token_of
from broker_rig import Rig
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pyarrow import parquet
from test_api_answers import EXAMPLE, part_of

from adon.service.monitoring import archive_routers
from monitors.api.archive import ArchiveMetrics
from monitors.api.streams import AnswerLimit
from monitors.api.streams import Stream as Streamed
from monitors.archive.archive import Archive, ArchiveError, Measurement
from monitors.archive.retaining import retain
from monitors.archive.retention.horizons import DAY_S, Keep, Retention
from monitors.base.measurement import LONGEST, MOST_DETAILS
from monitors.rules import Rule, Rules
from monitors.workflows.logs.records import TAIL_BYTES
from monitors.workflows.overview import Owners
from network_provisioner.access import Key, Principal, Role, hash_of
from network_provisioner.api import create_app
from network_provisioner.base.errors import BrokerError

NOW = 50.0 * DAY_S


class Here:
    """The service around an archive."""

    def __init__(self, rig: Rig, rules: Rules) -> None:
        self.archive = Archive(":memory:")
        site = Key(Principal("mu", Role.AGENT), hash_of(token_of("mu")))
        more = [ArchiveMetrics(self.archive, rules, lambda: NOW)]
        self.ring = keyring(rig, site)
        self.app: FastAPI = create_app(
            rig.broker, self.ring, None, archive_routers(self.archive, rules, lambda: NOW), more
        )
        self.web = TestClient(self.app, raise_server_exceptions=False)

    def get(self, path: str, who: str = "engineer", **query: Any) -> Any:
        return self.web.get(path, params=query or None, headers=bearer(who))

    def post(self, *sent: dict[str, Any], who: str = "engineer") -> Any:
        return self.web.post("/v1/measurements", json={"measurements": sent}, headers=bearer(who))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "broker.sqlite")
    yield rig
    rig.broker.stop()


@pytest.fixture
def here(rig: Rig) -> Here:
    return Here(rig, Rules())


def body(key: str, **more: Any) -> dict[str, Any]:
    usual = {"metric": "rtt", "subject": "mu>tacc", "value": 0.05, "unit": "s", "at": 100.0}
    return {"id": key, "source": "ping", **usual, **more}


def test_details_have_a_bound_of_their_own(here: Here) -> None:
    # The longest that ADON writes: what a failed job said, of which each byte needs six.
    longest = {"stderr": "\0" * TAIL_BYTES, "output": "/é" * 2048, "host": "h" * 4000}
    assert here.post(body("fits", details=longest)).status_code == 200
    status, code, words = error(here.post(body("a"), body("b", details={"x": "y" * MOST_DETAILS})))
    assert (status, code) == (400, "bad_request")
    assert f"'b': found details of {MOST_DETAILS + 9} characters" in words
    assert here.archive.get("a") is None
    for field, most in LONGEST.items():
        refusal = error(here.post(body("a") | {field: "x" * (most + 1)}))
        assert refusal[:2] == (400, "bad_request") and f"at most {most} characters" in refusal[2]


def described(workflow: str, user: str) -> dict[str, Any]:
    return body(
        f"workflow:{workflow}", metric="workflow", subject=workflow, value=1.0, unit="1",
        workflow=workflow, details={"user": user},
    )  # fmt: skip


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [m["id"] for m in answer.json()["measurements"]]


# ------------------------------------------------------------------ recording


def test_each_is_recorded_once(here: Here) -> None:
    assert here.post(body("a"), body("b"), body("a")).json() == {"recorded": 2, "known": 1}
    assert here.post(body("a", value=1.0)).json() == {"recorded": 0, "known": 1}
    measurement = here.get("/v1/measurements/by-id/a").json()
    assert measurement == {**body("a"), "workflow": "", "details": {}}


def test_all_or_none(here: Here) -> None:
    assert error(here.post(body("a"), body("b", unit="ms")))[1] == "bad_request"
    assert error(here.post(body("a"), body("b", surprise=1)))[1] == "bad_request"
    assert error(here.post(body("a"), body("b", value="1")))[1] == "bad_request"
    assert error(here.post(body("a"), body("b", subject="a\0b")))[1] == "bad_request"
    assert here.archive.latest_seq() == 0


def test_more_than_one_transaction_takes_is_all_or_none_too(here: Here) -> None:
    answer = error(here.post(*[body(str(n), details={}) for n in range(5001)]))
    assert answer[1] in ("too_large", "bad_request")
    assert here.archive.latest_seq() == 0


def test_what_is_given_twice_is_a_list_or_refused(here: Here) -> None:
    assert here.get("/v1/measurements", metric=["rtt", "loss"], subject="mu").status_code == 200
    twice = here.get("/v1/measurements", metric="rtt", subject=["mu", "mu"])
    assert error(twice) == (400, "bad_request", "query: 'subject' is given 2 times, expected once")
    assert here.get("/v1/policies", ended=["1", "0"]).status_code == 404  # not described
    unknown = here.get("/v1/measurements", metric="rtt", colour=["red", "red"])
    assert unknown.status_code == 200  # as one that is given once


def test_an_id_may_have_any_characters(here: Here) -> None:
    key = "custom:a/b c?d#e%2F>ü"
    here.post(body(key))
    with serving(here.app) as port:  # the test client decodes twice
        client = http.client.HTTPConnection("127.0.0.1", port)
        path = f"/v1/measurements/by-id/{quote(key, safe='')}"
        client.request("GET", path, headers=bearer("engineer"))
        assert json.loads(client.getresponse().read())["id"] == key
        client.close()


def test_a_researcher_records_what_belongs_to_its_workflows(here: Here) -> None:
    own, others = described("w1", "researcher-1"), described("w2", "bob")
    status = body("status:w1:1", metric="status", subject="w1", unit="%", workflow="w1")
    assert here.post(own, status, who="researcher").json()["recorded"] == 2
    assert here.archive.query("workflow")[0].details == {
        "user": "researcher-1", "by": "researcher-1"
    }  # fmt: skip
    # Known from before, too.
    assert (
        here.post(body("t:w1", metric="runtime", workflow="w1"), who="researcher").json()[
            "recorded"
        ]
        == 1
    )
    for wrong in (
        others,
        body("x:w2", workflow="w2"),
        body("x", workflow="w1"),
        body("status:w1:2", workflow="w1"),
        body("x"),
        body("x:w1", metric="pool_busy", unit="1", workflow="w1"),
        body("x:w1", workflow="w1"),
    ):
        fine = body("y:w1", metric="runtime", workflow="w1")
        code = error(here.post(fine, wrong, who="researcher"))
        assert code[1] == "forbidden"
    assert here.archive.get("y:w1") is None  # all or none


def test_nobody_takes_over_a_workflow_by_describing_it_again(here: Here) -> None:
    here.post(described("w", "bob"))
    stolen = described("w", "researcher-1")
    assert error(here.post(stolen, who="researcher"))[1] == "forbidden"
    other = {**stolen, "id": "workflow:x"}
    for sent in ([other], [body("s:w", workflow="w")], [other, body("s:w", workflow="w")]):
        assert error(here.post(*sent, who="researcher"))[1] == "forbidden"


def test_nobody_takes_a_workflow_by_naming_it_in_another() -> None:
    archive = Archive(":memory:")
    owners = Owners(archive)
    archive.record_many(
        Measurement(f"workflow:{w}", "workflow", of, 1.0, "1", at, "x", w, {"user": user})
        for w, of, at, user in (("w-eve", "w-ada", 0.0, "eve"), ("w-ada", "w-ada", 9.0, "ada"))
    )
    assert owners("w-ada") == "ada"


def test_an_agent_records_what_it_is_an_end_of(here: Here) -> None:
    mine = "rtt:agent:mu:"
    good = [body(mine + "a"), body(mine + "b", subject="tacc>mu/n1"),
            body(mine + "c", subject="mu"),
            body("cpu_use:agent:mu:d", subject="mu/n1", metric="cpu_use", unit="1")]  # fmt: skip
    assert here.post(*good, who="mu").json()["recorded"] == 4
    for subject in ("tacc>iplant", "mux>tacc", "iplant"):
        assert error(here.post(body(mine + "e", subject=subject), who="mu"))[1] == "forbidden"
    for key in ("rtt:delay:1796000060.000", "a", "rtt:agent:tacc:a"):  # of a run, of another
        assert error(here.post(body(key), who="mu"))[1] == "forbidden"
    here.post(described("bobs", "bob"))
    assert error(here.post(body("e:bobs", workflow="bobs"), who="mu"))[1] == "forbidden"
    assert here.post(described("w", "ada"), body("e:w", workflow="w"), who="mu").status_code == 200


# -------------------------------------------------------------------- reading


def test_pages_follow_one_another(here: Here) -> None:
    here.post(*[body(str(n), at=float(n % 5)) for n in range(12)])
    for order in ("oldest", "newest"):
        all_ids, cursor = [], None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            answer = here.get("/v1/measurements", metric="rtt", limit=5, order=order, **more)
            all_ids += ids(answer)
            cursor = answer.json()["next"]
            if cursor is None:
                break
        expected = [m.id for m in here.archive.query("rtt", newest=order == "newest")]
        assert all_ids == expected and len(all_ids) == 12
    for wrong in ("soon", "nan:1", "inf:1", "1:-1", f"1:{2**63}"):
        assert error(here.get("/v1/measurements", metric="rtt", cursor=wrong))[1] == "bad_request"


def test_a_page_goes_on_behind_what_was_taken_and_not_what_was_looked_at(rig: Rig) -> None:
    here = Here(rig, Rules((), {"w": "researcher-1", "v": "bob"}.get))
    owned = ["w" if n in (0, 3, 4, 5, 8) else "v" for n in range(10)]
    bodies = [body(str(n), at=float(n), workflow=whose) for n, whose in enumerate(owned)]
    here.post(*bodies)
    all_ids, more = [], {}
    while more is not None:
        answer = here.get("/v1/measurements", "researcher", metric="rtt", limit=3, **more)
        all_ids += ids(answer)
        cursor = answer.json()["next"]
        more = None if cursor is None else {"cursor": cursor}
    assert all_ids == ["0", "3", "4", "5", "8"]


def test_what_is_asked_for(here: Here) -> None:
    here.post(
        body("a"), body("b", subject="mu>iplant", at=200.0), body("c", metric="loss", unit="1"),
        body("d", source="owamp", at=300.0),
    )  # fmt: skip
    path = "/v1/measurements"
    assert ids(here.get(path, metric=["rtt", "loss"])) == ["a", "c", "b", "d"]
    assert ids(here.get(path, metric="rtt", subject="mu>tacc")) == ["a", "d"]
    assert ids(here.get(path, metric="rtt", source="owamp")) == ["d"]
    assert ids(here.get(path, metric="rtt", since=150, until=250)) == ["b"]
    assert ids(here.get("/v1/measurements/latest", metric="rtt")) == ["b", "d"]
    assert ids(here.get("/v1/measurements/latest", metric="rtt", subject="mu>iplant")) == ["b"]
    assert here.get("/v1/measurements/series").json() == {
        "series": [
            {"metric": "loss", "subjects": ["mu>tacc"]},
            {"metric": "rtt", "subjects": ["mu>iplant", "mu>tacc"]},
        ]
    }
    assert error(here.get(path))[1] == "bad_request"
    assert error(here.get("/v1/measurements/by-id/none"))[1] == "unknown_measurement"


def test_a_researcher_sees_its_own_workflows_and_what_is_nobody_s(rig: Rig) -> None:
    owners = {"w1": "researcher-1", "w2": "bob"}
    here = Here(rig, Rules((), owners.get))
    here.post(body("a"), body("b", workflow="w1"), body("c", workflow="w2", at=200.0))
    assert ids(here.get("/v1/measurements", "researcher", metric="rtt")) == ["a", "b"]
    assert ids(here.get("/v1/measurements/latest", "researcher", metric="rtt")) == []
    assert error(here.get("/v1/measurements/by-id/c", "researcher"))[1] == "unknown_measurement"
    text = here.get("/v1/measurements/export", "researcher").text
    assert [row["id"] for row in csv.DictReader(io.StringIO(text))] == ["a", "b"]


def test_rules_hold_for_everything_that_is_shown(rig: Rig) -> None:
    rule = Rule(("operator",), ("see",), ("mu", "tacc"), ("rtt",))
    here = Here(rig, Rules((rule,)))
    here.post(body("a", at=NOW), body("b", at=NOW, subject="mu>iplant"),
              body("c", at=NOW, metric="loss", unit="1"))  # fmt: skip
    assert ids(here.get("/v1/measurements", "operator", metric=["rtt", "loss"])) == ["a"]
    for path in ("/v1/estimates", "/v1/measurements/rollups"):
        seen = here.get(path, "operator", metric="rtt", subject="mu>tacc")
        assert seen.status_code == 200
        hidden = here.get(path, "operator", metric="rtt", subject="mu>iplant")
        assert error(hidden)[1] == "forbidden"
    shown = here.get("/metrics", "operator").text
    assert 'subject="mu>tacc"' in shown and "mu>iplant" not in shown
    assert 'metric="loss"' not in shown
    assert "mu>iplant" in here.get("/metrics").text


def test_an_agent_follows_no_feed(here: Here) -> None:
    assert error(here.get("/v1/feed", "agent"))[1] == "forbidden"


def test_estimates(here: Here) -> None:
    here.post(
        body("a", value=1.0, at=NOW - 10), body("b", value=3.0, at=NOW + 10),
        body("t", metric="tcp_throughput", subject="mu/a>tacc/b", unit="bit/s", at=NOW - 20),
        body("r", metric="runtime", subject="t@mu", at=NOW - 30),
        body("q", metric="queue_wait", subject="mu", value=5.0, at=NOW - 40),
    )  # fmt: skip
    query = {"metric": "rtt", "subject": "mu>tacc"}
    estimate = here.get("/v1/estimates", **query).json()
    assert (estimate["value"], estimate["age_s"], estimate["count"], estimate["unit"]) == (
        1.0,
        10.0,
        1,
        "s",
    )
    assert here.get("/v1/estimates", **query, now=NOW + 10).json()["count"] == 2
    assert error(here.get("/v1/estimates", **query, max_age_s=5))[1] == "unknown_measurement"
    probed = here.get("/v1/estimates/gamma_a", src="mu", dst="tacc").json()
    assert (probed["metric"], probed["subject"]) == ("tcp_throughput", "mu/a>tacc/b")
    ran = here.get("/v1/estimates/gamma_c", transformation="t", site="mu").json()
    assert (ran["metric"], ran["age_s"]) == ("runtime", 30.0)
    assert here.get("/v1/estimates/t_q", site="mu").json()["value"] == 5.0
    assert error(here.get("/v1/estimates/t_q", site="tacc"))[1] == "unknown_measurement"


def test_roll_ups_are_the_same_before_and_after_retention(here: Here) -> None:
    here.post(*[body(str(n), value=float(n), at=NOW - n * 3600.0) for n in range(60)])
    query = {"metric": "rtt", "subject": "mu>tacc", "by": "day", "until": NOW + 1}
    before = here.get("/v1/measurements/rollups", **query).json()
    retain(here.archive, Retention(Keep(DAY_S)), NOW)
    assert here.get("/v1/measurements/rollups", **query).json() == before
    days = before["rollups"]
    assert [day["count"] for day in days] == [11, 24, 24, 1]
    assert (days[0]["min"], days[0]["max"], days[0]["mean"]) == (49.0, 59.0, 54.0)
    assert days[0]["median"] == pytest.approx(54.0, rel=0.01)
    far = here.get("/v1/measurements/rollups", **(query | {"by": "hour", "since": 0.0}))
    assert far.status_code == 200
    wide = {**query, "by": "hour", "since": 0.0, "until": 1e9}
    assert error(here.get("/v1/measurements/rollups", **wide))[1] == "bad_request"


FUTURE = {"b": 1e9, "c": 1e15}  # that an earlier version took


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": 1e300}, "found 1e+300 s, expected at most 1e+10"),
        ({"value": -1e300}, "expected at most 1e+10"),
        ({"value": 2e15, "metric": "tcp_throughput", "unit": "bit/s"}, "expected at most 1e+15"),
        ({"value": 1e200, "metric": "custom:x", "unit": "apples"}, "expected at most 1e+18"),
        ({"at": NOW + 2 * 3600}, "which is in the future"),
        ({"at": 1e18}, "which is in the future"),
    ],
)
def test_what_nobody_believes_is_refused(here: Here, change: dict[str, Any], words: str) -> None:
    status, code, said = error(here.post(body("fine"), body("x", **change)))
    assert (status, code) == (400, "bad_request") and words in said
    assert here.archive.get("fine") is None
    assert here.post(body("ahead", at=NOW + 600)).json()["recorded"] == 1  # clocks differ


def test_export(here: Here) -> None:
    here.post(body("a", details={"x": 'ü,\n"'}))
    here.archive.record_many(Measurement(**body(name, at=at)) for name, at in FUTURE.items())
    answer = here.get("/v1/measurements/export")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [(row["id"], row["time"]) for row in rows] == [
        ("a", "1970-01-01T00:01:40.000000+00:00"), ("b", "2001-09-09T01:46:40.000000+00:00"),
        ("c", ""),
    ]  # fmt: skip
    assert json.loads(rows[0]["details"]) == {"x": 'ü,\n"'}
    answer = here.get("/v1/measurements/export", format="parquet", metric="rtt")
    table = parquet.read_table(io.BytesIO(answer.content))
    assert table.column("id").to_pylist() == ["a", "b", "c"]
    assert table.column("value").to_pylist() == [0.05] * 3
    assert table.column("time").to_pylist()[1].isoformat() == "2001-09-09T01:46:40+00:00"


@pytest.mark.parametrize(
    "path",
    ["/v1/measurements/export?metric=%00", "/v1/measurements/export?format=parquet&subject=%00",
     "/v1/feed?metrics=%00", "/v1/measurements?metric=%00"],
)  # fmt: skip
def test_a_name_that_is_none_is_refused_before_an_answer_begins(here: Here, path: str) -> None:
    here.post(body("a"))
    status, _, words = error(here.get(path))
    assert status == 400
    assert "which is no text" in words


def test_an_archive_that_cannot_be_read_is_told(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ArchiveError("archive x: locked")

    monkeypatch.setattr(here.archive.engine, "rows", fail)
    assert error(here.get("/v1/measurements", metric="rtt"))[:2] == (503, "archive_unavailable")
    assert "adon_archive_up 0.0" in here.get("/metrics").text


def test_metrics_for_prometheus(here: Here) -> None:
    here.post(
        body("a", at=NOW - 100), body("b", at=NOW, value=0.07), body("old", at=1.0, subject="x>y"),
        body("s", metric="status", subject="w", unit="%", at=NOW, details={"state": "running"}),
        body("c", metric="custom:depth", subject="mu", unit="m", value=3.0, at=NOW),
    )  # fmt: skip
    text = here.get("/metrics").text
    series = 'metric="rtt",source="ping",subject="mu>tacc",unit="s"'
    assert f"adon_measurement{{{series}}} 0.07" in text
    assert f"adon_measurement_time_seconds{{{series}}} {NOW:.7g}"[:60] in text
    assert 'adon_workflows{state="running"} 1.0' in text
    assert "custom:depth" in text
    assert "x>y" not in text
    assert "adon_archive_up 1.0" in text
    assert "adon_archive_measurements_total 5.0" in text


# ----------------------------------------------------------------------- feed


class Stream:
    """A client of the feed."""

    def __init__(self, port: int, path: str, who: str = "engineer", **headers: str) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._client.request("GET", path, headers=bearer(who) | headers)
        self._answer = self._client.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def next(self) -> dict[str, Any]:
        while True:
            line = self._answer.readline()
            assert line, "the feed has ended"
            if line.startswith(b"data: "):
                event: dict[str, Any] = json.loads(line[6:])
                return event

    def reached(self, number: int) -> None:
        """Wait until it says that it got so far."""
        while self._answer.readline().strip() != f"id: {number}".encode():
            pass

    def ended(self) -> None:
        """Wait until it has come to its end. Raises IncompleteRead where it was cut off."""
        self._answer.read()

    def close(self) -> None:
        self._client.close()


def told(key: str, **more: Any) -> Measurement:
    return Measurement(**{"workflow": "", "details": {}, **body(key, **more)})


def test_the_feed_tells_what_is_recorded_from_now_on(rig: Rig) -> None:
    owners = {"w1": "researcher-1", "w2": "bob"}
    here = Here(rig, Rules((), owners.get))
    here.archive.record(told("before"))
    with serving(here.app) as port:
        everything, own = Stream(port, "/v1/feed"), Stream(port, "/v1/feed", "researcher")
        losses = Stream(port, "/v1/feed?after=0&metrics=loss&metrics=jitter")
        for stream in (everything, own):
            stream.reached(1)
        here.archive.record_many([
            told("a", workflow="w2"), told("b", workflow="w1"),
            told("c", metric="loss", unit="1"),
        ])  # fmt: skip
        assert [everything.next()["id"] for _ in range(3)] == ["a", "b", "c"]
        assert [own.next()["id"] for _ in range(2)] == ["b", "c"]
        loss = losses.next()
        assert (loss["id"], loss["seq"], loss["metric"]) == ("c", 4, "loss")
        for stream in (everything, own, losses):
            stream.close()


def test_who_comes_back_misses_nothing(rig: Rig) -> None:
    here = Here(rig, Rules())
    here.archive.record_many(told(str(n)) for n in range(1200))
    with serving(here.app) as port:
        stream = Stream(port, "/v1/feed?after=0")
        first = [stream.next() for _ in range(700)]
        stream.close()
        again = Stream(port, "/v1/feed?after=0", **{"Last-Event-ID": str(first[-1]["seq"])})
        rest = [again.next() for _ in range(500)]
        again.close()
    assert [m["id"] for m in first + rest] == [str(n) for n in range(1200)]


def test_the_feed_is_compressed_and_each_part_comes_at_once(rig: Rig) -> None:
    here = Here(rig, Rules())
    with serving(here.app) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = bearer("engineer") | {"Accept-Encoding": "gzip"}
        client.request("GET", "/v1/feed?after=0", headers=headers)
        answer = client.getresponse()
        assert answer.headers["Content-Encoding"] == "gzip"
        unpacker, text, sent = zlib.decompressobj(wbits=31), b"", 0
        here.archive.record_many(told(f"measurement-{n}") for n in range(100))
        while b'"id":"measurement-99"' not in text:
            chunk = answer.read1()
            sent += len(chunk)
            text += unpacker.decompress(chunk)
        assert 4 * sent < len(text)
        client.close()


def test_a_feed_does_not_keep_the_service_from_stopping(rig: Rig) -> None:
    here = Here(rig, Rules())
    with serving(here.app) as port:
        stream = Stream(port, "/v1/feed")
        stream.reached(0)
    stream.ended()  # by itself: what is under way for too long is cut off
    stream.close()


def test_a_feed_ends_when_its_token_is_withdrawn(rig: Rig) -> None:
    here = Here(rig, Rules())
    with serving(here.app) as port:
        stream = Stream(port, "/v1/feed")
        stream.reached(0)
        here.ring.replace([], None)
        stream.ended()
        stream.close()


def test_only_so_many_long_answers_at_once() -> None:
    room = AnswerLimit(1, "feeds")
    sent: list[str] = []

    async def run() -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message["type"])

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.sleep(60.0)
            return {}

        async def once() -> AsyncIterator[str]:
            yield "x"

        room.enter()
        scope: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}
        with pytest.raises(BrokerError, match="1 feeds already") as refused:
            await Streamed(room, once())(scope, receive, send)
        assert refused.value.code == "busy" and sent == []
        room.leave()
        for _ in range(2):
            await Streamed(room, once())(scope, receive, send)
        stuck = asyncio.create_task(Streamed(room, once())(scope, receive, receive))
        await asyncio.sleep(0.01)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        room.enter()

    asyncio.run(run())


def test_too_many_feeds_and_exports_are_told_so(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: AnswerLimit) -> None:
        raise BrokerError("full", "busy")

    monkeypatch.setattr(AnswerLimit, "enter", full)
    for path in ("/v1/feed", "/v1/measurements/export", "/v1/measurements/export?format=parquet"):
        assert error(here.get(path))[:2] == (503, "busy")


def test_the_feed_outlives_an_archive_that_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(rig, Rules())
    with serving(here.app) as port:
        stream = Stream(port, "/v1/feed?after=0")
        stream.reached(0)
        real, failed = here.archive.engine.rows, threading.Event()

        def fail(*_: object, **__: object) -> Any:
            failed.set()
            raise ArchiveError("locked")

        monkeypatch.setattr(here.archive.engine, "rows", fail)
        assert failed.wait(120)
        monkeypatch.setattr(here.archive.engine, "rows", real)
        here.archive.record(told("a"))
        assert stream.next()["id"] == "a"
        stream.close()


# ------------------------------------------------------------------ documents


def test_every_example_is_as_it_is_shown(rig: Rig) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/api-monitoring.md").read_text("utf-8")
    section = text.partition("\n## Measurements\n")[2].partition("\n## ")[0]
    archive = Archive(":memory:")
    web = TestClient(
        create_app(rig.broker, more=archive_routers(archive, Rules(), lambda: 1_000_120.0))
    )
    examples = EXAMPLE.findall(section)
    assert len(examples) == section.count("```http")
    for verb, path, sent, shown in examples:
        answer = web.request(verb, path, json=json.loads(sent) if sent else None)
        assert answer.is_success, (verb, path, answer.text)
        assert part_of(json.loads(shown), answer.json()), (verb, path, answer.text)
        archive.record_many(
            Measurement(metric, metric, subject, value, unit, 1_000_100.0, "transfer")
            for metric, subject, value, unit in (
                ("throughput", "mu>tacc", 180e6, "bit/s"),
                ("runtime", "soykb::bwa_mem:1.0@mu", 30.0, "s"),
                ("queue_wait", "mu", 2.5, "s"),
            )
            if path.startswith("/v1/measurements/rollups")  # after the list of series
        )
