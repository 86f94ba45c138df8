"""An agent and a broker that obeys the protocol, or does not."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from monitor_files import START, Submitted, starting, table
from waiting import until

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.measurements.agent.agent import Agent, following
from monitors.measurements.agent.broker_link import BrokerLink
from monitors.measurements.agent.messages import Assignment, Result
from monitors.measurements.agent.perform import able, perform
from monitors.measurements.agent.settings import AgentLimits, AgentSettings
from monitors.measurements.probes.probe import Halt
from network_provisioner.api.connection import server_context
from network_provisioner.base.clock import since_boot
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.client.http1 import Tls
from tests.agents_broker import FakeBroker

TOKEN = "a token of some length"
DAY_S = 86_400.0
SOON_S = 0.3
LONG_S = 200.0  # of a run: it may begin 20 s late, on a busy machine


def settings(broker: str, folder: Path, **more: Any) -> AgentSettings:
    return AgentSettings("mu", broker, TOKEN, folder / "state", **more)


class Doer:
    """Carries out by noting it down. ``hold`` keeps runs from ending."""

    def __init__(self) -> None:
        self.done: list[tuple[str, float]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.begun = threading.Semaphore(0)

    def __call__(
        self, assignment: Assignment, _: AgentSettings, end: float, halt: Halt, now: Any
    ) -> Result:
        at = now()
        self.done.append((assignment.id, at))
        self.begun.release()
        while not self.hold.wait(0.01) and not halt.is_set():
            pass
        measured = Measurement(
            f"rtt:{assignment.id}", "rtt", assignment.subject, 1.0, "s", at, "agent:mu"
        )
        return Result(assignment.id, assignment.task, at, at, (measured,))


@contextmanager
def working(of: AgentSettings, doer: Doer) -> Iterator[Agent]:
    halt = Halt()
    agent = Agent(of, halt, doer)
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        halt.set()
        thread.join(120)
        assert not thread.is_alive()


def job(key: str, at: float, duration_s: float = LONG_S, **more: Any) -> Assignment:
    given: dict[str, Any] = {"tool": "host", "role": "alone", "subject": "mu", **more}
    return Assignment(id=key, task="t", at=at, duration_s=duration_s, **given)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker({"mu": TOKEN})
    yield made
    made.stop()


@pytest.fixture
def doer() -> Doer:
    return Doer()


def test_it_does_what_it_is_told_when_it_is_told(
    broker: FakeBroker, doer: Doer, tmp_path: Path
) -> None:
    now = broker.clock()
    broker.tell(
        "mu", job("later", now + 2 * SOON_S), job("sooner", now + SOON_S), job("never", now + DAY_S)
    )
    with working(settings(broker.url, tmp_path), doer):
        later, sooner = broker.wait("mu", "later", "sooner")
    done = dict(doer.done)
    assert done.keys() == {"later", "sooner"}
    assert done["sooner"] >= now + SOON_S and done["later"] >= now + 2 * SOON_S
    assert later["measurements"][0]["id"] == "rtt:later"
    assert sooner["error"] == ""


def test_it_goes_by_the_brokers_clock(
    doer: Doer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(of: AgentSettings) -> dict[str, str]:
        time.sleep(0.5)  # which is nothing that the clocks differ by
        return able(of)

    def paused() -> float:
        at = since_boot()
        time.sleep(0.2)  # before another clock is looked at
        return at

    monkeypatch.setattr("monitors.measurements.agent.agent.able", slowly)
    monkeypatch.setattr("monitors.measurements.agent.agent.since_boot", paused)
    ahead = FakeBroker({"mu": TOKEN}, clock=lambda: time.time() + DAY_S)
    try:
        at = ahead.clock() + SOON_S
        ahead.tell("mu", job("a", at))
        with working(settings(ahead.url, tmp_path), doer):
            (result,) = ahead.wait("mu", "a")
            ahead.wait_asked("mu", 2)
        assert at <= result["measurements"][0]["at"] < at + DAY_S / 2
        request = ahead.desks["mu"].asked[1]
        error_s = float(request["error_s"])
        assert error_s >= 0
        assert float(request["offset_s"]) == pytest.approx(DAY_S, abs=error_s + 0.01)
    finally:
        ahead.stop()


def test_new_orders_come_at_once_and_take_the_place_of_old_ones(
    broker: FakeBroker, doer: Doer, tmp_path: Path
) -> None:
    broker.tell("mu", job("withdrawn", broker.clock() + 10 * DAY_S))
    with working(settings(broker.url, tmp_path), doer) as agent:
        broker.wait_asked("mu", 2)  # the second time it waits
        broker.desks["mu"].assignments.clear()
        broker.tell("mu", job("new", broker.clock()))
        broker.wait("mu", "new")
        assert agent._pending.next_at() == math.inf
    assert [key for key, _ in doer.done] == ["new"]


def test_it_goes_on_without_its_broker_and_reports_later(doer: Doer, tmp_path: Path) -> None:
    broker = FakeBroker({"mu": TOKEN})
    broker.tell("mu", job("a", broker.clock() + SOON_S))
    with working(settings(broker.url, tmp_path), doer):
        broker.wait_asked("mu", 2)
        broker.stop()
        assert doer.begun.acquire(timeout=120)
        again = FakeBroker({}, port=broker.port, desks=broker.desks)
        try:
            again.wait("mu", "a")
        finally:
            again.stop()
    assert again.desks["mu"].times == {"a": 1}


def test_a_result_is_sent_again_until_its_receipt_came_and_counts_once(
    broker: FakeBroker, doer: Doer, tmp_path: Path
) -> None:
    broker.forget_receipts = 2
    broker.tell("mu", job("a", broker.clock()))
    with working(settings(broker.url, tmp_path), doer) as agent:
        broker.wait("mu", "a")
        with broker.changed:
            assert broker.changed.wait_for(lambda: broker.forget_receipts == 0, 60)
        until(lambda: not agent._spool.unsent(), "all to be sent")
    assert broker.desks["mu"].times == {"a": 1}


def test_what_is_too_late_or_strange_or_against_its_limits_is_not_done(
    broker: FakeBroker, doer: Doer, tmp_path: Path
) -> None:
    now = broker.clock()
    fields = {"tool": "ping", "subject": "mu>tacc", "peer": "198.51.100.1", "options": {}}
    broker.tell(
        "mu",
        job("late", now - 100.0, 200.0),
        job("strange", now, options={"colour": "blue"}),
        job("command", now, tool="command", options={"command": "rm"}),
        job("peer", now, **fields),
        job("good", now),
    )
    limits = AgentLimits(peers=(ip_network("192.0.2.0/24"),))
    with working(settings(broker.url, tmp_path, limits=limits), doer):
        results = broker.wait("mu", "late", "strange", "command", "peer", "good")
    errors = [result["error"] for result in results]
    assert errors[0].startswith("too late: it was due 1")
    assert errors[1] == "options: unknown option 'colour' of host, expected one of folder"
    assert errors[2] == "command cannot be used here: no commands are configured"
    assert errors[3] == "198.51.100.1 is not among the agent's peers"
    assert errors[4] == ""
    assert [key for key, _ in doer.done] == ["good"]


def test_of_too_many_at_once_some_are_refused(
    broker: FakeBroker, doer: Doer, tmp_path: Path
) -> None:
    doer.hold.clear()
    at = broker.clock() + SOON_S
    broker.tell("mu", job("a", at), job("b", at), job("c", at))
    with working(settings(broker.url, tmp_path, limits=AgentLimits(at_once=2)), doer):
        (refused,) = broker.wait("mu", "c")
        doer.hold.set()
        broker.wait("mu", "a", "b")
    assert refused["error"] == "2 runs at once are the agent's limit"


def test_what_was_measured_in_an_earlier_life_is_sent_and_not_measured_again(
    doer: Doer, tmp_path: Path
) -> None:
    broker = FakeBroker({"mu": TOKEN})
    now = broker.clock()
    broker.tell("mu", job("a", now), job("b", now))
    doer.hold.clear()
    with working(settings(broker.url, tmp_path), doer):
        assert doer.begun.acquire(timeout=120)
        assert doer.begun.acquire(timeout=120)
        broker.stop()  # the results cannot be sent
    again = FakeBroker({}, port=broker.port, desks=broker.desks)
    try:
        with working(settings(again.url, tmp_path), doer):
            again.wait("mu", "a", "b")
            before = len(again.desks["mu"].asked)
            again.tell("mu")  # so that it asks again, and could begin what it is told
            again.wait_asked("mu", before + 1)
    finally:
        again.stop()
    assert len(doer.done) == 2
    assert again.desks["mu"].times == {"a": 1, "b": 1}


def test_a_refused_result_is_dropped_and_said(
    broker: FakeBroker, doer: Doer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.desks["mu"].refuse = {"a": "never given to this agent"}
    broker.tell("mu", job("a", broker.clock()), job("b", broker.clock()))
    with working(settings(broker.url, tmp_path), doer) as agent:
        broker.wait("mu", "b")
        until(lambda: not agent._spool.unsent(), "all to be sent")
    assert "does not accept the result of a: never given to this agent" in caplog.text


def test_a_result_that_spoils_a_batch_is_found(
    broker: FakeBroker, doer: Doer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Any, body: bytes | None) -> None:
        if body is not None and b'"bad"' in body:
            text = json.dumps({"error": {"code": "bad_request", "message": "no"}}).encode()
            broker._send(request, 400, text)
        else:
            ordinary(request, body)

    ordinary = broker.answer
    monkeypatch.setattr(broker, "answer", answer)
    at = broker.clock()
    doer.hold.clear()
    broker.tell("mu", job("a", at), job("bad", at), job("c", at))
    with working(settings(broker.url, tmp_path), doer) as agent:
        for _ in range(3):
            assert doer.begun.acquire(timeout=120)
        doer.hold.set()
        broker.wait("mu", "a", "c")
        until(lambda: not agent._spool.unsent(), "all to be sent")


# -- whom it obeys -------------------------------------------------------------------------------


def test_with_a_certificate_of_its_own_the_token_is_never_sent(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(*authority.issue("broker", hosts=["127.0.0.1"]), authority.file)
    broker = FakeBroker({"mu": TOKEN}, context)
    try:
        certificate, key = authority.issue("mu")
        shown = settings(broker.url, tmp_path, tls=Tls(authority.file, certificate, key))
        BrokerLink(shown).ask("assignments", 10.0, {"wait_s": "0", "after": "0"})
        assert broker.desks["mu"].authorized == [None]
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        for tls in (Tls(other.file, certificate, key), Tls(None, certificate, key)):
            with pytest.raises(BrokerError, match="its certificate is not trusted"):
                BrokerLink(settings(broker.url, tmp_path, tls=tls)).ask("assignments", 10.0)
        with pytest.raises(BrokerError) as caught:  # the broker does not trust this one
            tls = Tls(authority.file, *other.issue("mu"))
            BrokerLink(settings(broker.url, tmp_path, tls=tls)).ask("assignments", 10.0)
        assert caught.value.code == "unreachable"
        assert broker.desks["mu"].authorized == [None]
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://192.0.2.1:8470", "expected https"),
        ("http://broker:8470", "expected https"),
        ("ftp://broker", "expected one like"),
        ("https://", "expected one like"),
        ("https://broker:x", "expected one like"),
        ("https://broker/?q=1", "expected one like"),
    ],
)
def test_a_broker_that_is_none_or_not_safe(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        BrokerLink(settings(url, tmp_path))


# -- brokers that misbehave ----------------------------------------------------------------------


def test_silly_brokers_are_survived(
    broker: FakeBroker, doer: Doer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.measurements.agent.agent._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("monitors.measurements.agent.agent._MOST_PAUSE_S", 0.01)
    answers = [
        (500, b""), (200, b"<html>"), (200, b"{}"), (503, b'{"error": 5}'), (302, b""),
        (401, b'{"error": {"code": "unauthorized", "message": "no"}}'),
    ]  # fmt: skip
    broker.instead = lambda what: answers.pop() if answers else None
    broker.tell("mu", job("a", broker.clock()))
    with working(settings(broker.url, tmp_path), doer):
        broker.wait("mu", "a")
    assert not answers


def test_one_that_dribbles_has_its_time_and_no_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def dribble() -> None:
            sock, _ = listening.accept()
            with sock, suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 10_000:
                    sock.sendall(bytes([byte]))
                    time.sleep(0.02)

        thread = threading.Thread(target=dribble, daemon=True)
        thread.start()
        link = BrokerLink(settings(f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path))
        with pytest.raises(BrokerError, match=r"no answer within 0\.5 s"):
            link.ask("assignments", 0.5)
        thread.join(120)
        assert not thread.is_alive()


def test_closing_ends_a_question_under_way(broker: FakeBroker, tmp_path: Path) -> None:
    link = BrokerLink(settings(broker.url, tmp_path))
    threading.Timer(0.3, link.close).start()
    with pytest.raises(BrokerError):
        link.ask("assignments", 60.0, {"wait_s": "50", "after": "1"})
    with pytest.raises(BrokerError, match="this client was closed"):
        link.ask("assignments", 60.0)


def test_a_connection_that_was_closed_while_nothing_was_asked_is_made_anew(
    broker: FakeBroker, tmp_path: Path
) -> None:
    link = BrokerLink(settings(broker.url, tmp_path))
    for _ in range(3):
        link.ask("assignments", 10.0, {"wait_s": "0", "after": "0"})
        connection = link._client._connection
        assert connection is not None
        until(connection.has_ended, "the end of the connection")


# -- one run, and workflows beside -------------------------------------------------------------


def test_a_run_is_measured_at_the_brokers_time(tmp_path: Path) -> None:
    of = settings("http://127.0.0.1:1", tmp_path)
    result = perform(job("a", 7.0), of, time.monotonic() + 1.5, Halt(), lambda: 7.25)
    assert result.error == ""
    assert {m.id for m in result.measurements} == {"cpu_use:a", "memory_use:a", "io_wait:a"}
    assert {(m.at, m.source, m.subject) for m in result.measurements} == {(7.25, "agent:mu", "mu")}


def test_a_run_that_a_busy_machine_began_at_its_end_measures_still(tmp_path: Path) -> None:
    of = settings("http://127.0.0.1:1", tmp_path)
    assert perform(job("a", 7.0), of, time.monotonic() - 1.0, Halt()).error == ""


def test_a_fault_of_a_probe_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(_: object) -> None:
        raise RuntimeError("a\nfault")

    monkeypatch.setattr("monitors.measurements.probes.hostload.measure", fault)
    of = settings("http://127.0.0.1:1", tmp_path)
    result = perform(job("a", 7.0), of, time.monotonic() + 1.5, Halt())
    assert result.error == "an error in the agent: RuntimeError: a\\nfault"
    assert result.measurements == ()
    odd = perform(job("a", 7.0, role="server"), of, time.monotonic() + 1.5, Halt())
    assert odd.error == "there is no host as server"


def test_workflows_are_followed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Submitted(tmp_path / "run")
    planned.out.write_text(starting() + table(START, queued=1, ready=1))
    with Archive(tmp_path / "archive.sqlite") as archive:
        calls: list[tuple[str, str | None, Tls]] = []

        def sink(url: str, token: str | None, tls: Tls) -> Archive:
            calls.append((url, token, tls))
            return archive

        monkeypatch.setattr("monitors.measurements.agent.agent.BrokerSink", sink)
        plain = settings("https://b:1", tmp_path, workflows=(str(planned.path),))
        with_certificate = replace(plain, tls=Tls("ca", "certificate", "key"))
        for of in (plain, with_certificate):
            with following(of):
                until(lambda: archive.query("status", planned.uuid), "a status")
        assert calls == [("https://b:1", TOKEN, Tls()), ("https://b:1", None, with_certificate.tls)]
    with following(settings("https://b:1", tmp_path)):
        pass
