"""Agents of relays: whether they help, what they are told and say, and how their process goes."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from broker_rig import Clock

from network_provisioner.base.errors import BrokerError, InputError, MissingError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitRelay
from network_provisioner.client.http1 import Tls
from network_provisioner.relay import run, sockets
from network_provisioner.relay.agents import RelayAgents
from network_provisioner.relay.carrier import HEAD, Hello, HelloError
from network_provisioner.relay.decision import helps, relay_text, settings
from network_provisioner.relay.sessions import VERSION, AgentStatus, Session, session_from_dict
from network_provisioner.templates.advice import ENOUGH, HostTcp, PathFigures, TriedSetting

LONG = PathFigures(500e6, 0.053)  # 3.3 MB under way, more than Linux's usual windows
SMALL = HostTcp((4096, 131_072, 1 << 20), (4096, 16_384, 1 << 20))


@pytest.mark.parametrize(
    ("path", "streams", "helped", "part"),
    [
        (LONG, 1, True, "500 Mb/s times 53 ms are 3.31 MB under way, of which one stream may "),
        (LONG, 4, False, "4 streams, buffers by the system would reach"),
        (replace(LONG, src=SMALL, dst=SMALL), 4, True, "one stream may have 524 kB"),
        (replace(LONG, rate_bps=250e6), 1, False, "would reach 100% directly"),
        (replace(LONG, rate_bps=100e6, loss=1e-3), 1, True, "at a loss of 0.001"),
        (replace(LONG, rate_bps=100e6), 1, True, "2.1 MB, more than its queue takes"),
        (replace(LONG, rtt_s=0.0), 1, False, "would reach 100% directly"),
    ],
)
def test_it_helps_who_does_not_fill_the_path(
    path: PathFigures, streams: int, helped: bool, part: str
) -> None:
    helpful, why = helps(path, streams, 0)
    assert helpful is helped and part in why


def test_what_was_reached_goes_before_what_is_expected() -> None:
    well = tuple(TriedSetting(1, 0, 500e6, 0.96) for _ in range(ENOUGH))
    helped, why = helps(replace(LONG, tried=well), 1, 0)
    assert not helped and why.startswith("1 stream, buffers by the system reached 96% directly")


@pytest.mark.parametrize(
    ("path", "buffer_bytes"),
    [(LONG, 13_250_000), (replace(LONG, rtt_s=0.0), 1 << 20), (replace(LONG, rtt_s=60), 1 << 28)],
)
def test_buffers_hold_four_times_what_is_under_way(path: PathFigures, buffer_bytes: int) -> None:
    assert settings(path) == {
        "streams": 1, "congestion": "bbr", "buffer_bytes": buffer_bytes, "chunk_bytes": 1 << 18,
    }  # fmt: skip


def test_in_words() -> None:
    relay = TransitRelay("ra", "rb", 27_001, **settings(LONG), why="w")
    assert relay_text(relay) == (
        "ra and rb carry it over one connection (bbr, 13.2 MB) to port 27001: w"
    )
    many = relay_text(replace(relay, streams=4, tls=True))
    assert many == "ra and rb carry it over 4 connections (bbr, 13.2 MB, TLS) to port 27001: w"
    assert (relay_text(TransitRelay(why="no relay")), relay_text(None)) == ("direct: no relay", "")


PEER = Session("t", ("10.0.0.1", "10.0.1.0/24"), ("10.9.0.1",), True, "rb", "10.9.0.9", 27001, "ab")
NEAR, FAR = ("10.0.1.7", 50_000), ("10.9.0.1", 2811)


@pytest.mark.parametrize(
    "session",
    [PEER, replace(PEER, flows=(Flow("tcp", None, (1, 9)),), rate_bps=1e9, until=5.0)],
)
def test_a_session_goes_there_and_back(session: Session) -> None:
    assert session_from_dict(json.loads(json.dumps(session.as_dict()))) == session
    assert math.isinf(PEER.rate_bps)


def test_a_session_that_is_none() -> None:
    with pytest.raises((InputError, KeyError, TypeError)):
        session_from_dict({"id": "t"})


def test_whose_connections_they_are() -> None:
    assert PEER.carries(NEAR, FAR, here=True)
    assert PEER.carries(FAR, NEAR, here=False)  # a client on the other side
    assert not PEER.carries(FAR, NEAR, here=True)
    assert not PEER.carries(("10.0.2.7", 50_000), FAR, here=True)


@pytest.mark.parametrize("source_here", [True, False])
def test_flows_are_said_as_data_flows(source_here: bool) -> None:
    to_far = replace(PEER, flows=(Flow("tcp", None, (2811, 2811)),), source_here=True)
    from_far = replace(PEER, flows=(Flow("tcp", (2811, 2811), None),), source_here=False)
    session = to_far if source_here else from_far
    assert session.carries(NEAR, FAR, here=True)
    assert not session.carries(NEAR, (FAR[0], 80), here=True)
    assert not session.carries((FAR[0], 80), NEAR, here=False)


HELLO = Hello("t", "00ff", ("10.0.0.1", 1), ("10.9.0.1", 2), 0, 4)


def test_a_stream_says_what_it_is_for() -> None:
    packed = HELLO.pack("ab")
    length, proof = HEAD.unpack(packed[: HEAD.size])
    body = packed[HEAD.size :]
    assert (len(body), Hello.unpack(proof, body, "ab")) == (length, HELLO)
    for wrong in (body.replace(b"10.9", b"10.8"), b""):
        with pytest.raises(HelloError, match="not of its session"):
            Hello.unpack(proof, wrong, "ab")
    with pytest.raises(HelloError, match="not of its session"):
        Hello.unpack(proof, body, "ac")
    for place, byte in enumerate(proof):  # all of it counts
        other = proof[:place] + bytes([byte ^ 1]) + proof[place + 1 :]
        with pytest.raises(HelloError, match="not of its session"):
            Hello.unpack(other, body, "ab")


def test_a_stream_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("network_provisioner.relay.carrier.VERSION", 7)
    packed = HELLO.pack("ab")
    monkeypatch.undo()
    with pytest.raises(HelloError, match="version 7, expected 1"):
        Hello.unpack(packed[2 : HEAD.size], packed[HEAD.size :], "ab")


SESSION = Session("t", ("10.0.0.1",), ("10.0.0.2",), True, "rb", "10.0.0.9", 27_001, "s")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agents(clock: Clock) -> RelayAgents:
    return RelayAgents(clock)


def test_an_agent_is_ready_once_it_has_asked_and_until_it_is_silent(
    agents: RelayAgents, clock: Clock
) -> None:
    assert agents.unready("ra") == "no agent of relay 'ra' has connected yet"
    agents.heard("ra", AgentStatus())
    clock.now += 1.5
    assert agents.unready("ra") == ""
    clock.now += 0.2
    assert agents.unready("ra") == "the agent of relay 'ra' has been silent for 1.7 s"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra") == ""


def test_an_agent_whose_question_waits_is_not_silent(agents: RelayAgents, clock: Clock) -> None:
    agents.heard("ra", AgentStatus())
    with agents.waiting("ra", lambda: None):
        clock.now += 60  # in which this process did nothing
        assert agents.unready("ra") == ""
    clock.now += 1.1
    assert agents.unready("ra") == ""
    clock.now += 0.2
    assert agents.unready("ra") == "the agent of relay 'ra' has been silent for 1.6 s"


def test_what_an_agent_says_of_itself(agents: RelayAgents) -> None:
    agents.heard("ra", AgentStatus(version=2))
    assert agents.unready("ra") == "the agent of relay 'ra' is of version 2, expected 1"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra", tls=True) == "the agent of relay 'ra' has no certificate for TLS"
    agents.heard("ra", AgentStatus(tls=True))
    assert agents.unready("ra", tls=True) == ""
    agents.heard("ra", AgentStatus(unready="no TPROXY"))
    assert agents.unready("ra") == "relay 'ra': no TPROXY"
    agents.heard("ra", AgentStatus(connections={"t": 2, "u": 1}))
    agents.heard("rb", AgentStatus(connections={"t": 1}))
    assert [agents.connections(name) for name in "tuv"] == [3, 1, 0]
    assert [agents.open_at(name) for name in ("ra", "rb", "rc")] == [3, 1, 0]


def test_an_agent_that_falls_silent_has_no_connections(agents: RelayAgents, clock: Clock) -> None:
    agents.heard("ra", AgentStatus(connections={"t": 2}))
    clock.now += 1.0
    assert agents.open_at("ra") == 2
    clock.now += 0.6
    assert agents.unready("ra") and agents.open_at("ra") == 0
    agents.heard("ra", AgentStatus(connections={"t": 1}))
    assert agents.open_at("ra") == 1


def test_a_connection_that_breaks_is_known_at_once(agents: RelayAgents) -> None:
    agents.heard("ra", AgentStatus())
    agents.lost("ra")
    assert agents.unready("ra") == "the connection to the agent of relay 'ra' broke"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra") == ""


def test_a_revision_for_each_change_and_no_other(agents: RelayAgents) -> None:
    woken: list[str] = []
    first, none = agents.assigned_sessions("ra")
    assert first > 0 and none == []  # an agent that starts has revision 0
    with agents.waiting("ra", lambda: woken.append("ra")):
        for _ in range(2):
            agents.want({"ra": [SESSION]})
            assert agents.assigned_sessions("ra") == (first + 1, [SESSION])
        agents.want({"rb": [SESSION]})
    agents.want({})
    assert agents.assigned_sessions("ra") == (first + 2, []) and woken == ["ra"] * 2
    assert agents.assigned_sessions("rb")[0] == first + 2


def test_no_two_brokers_begin_with_the_same_revision() -> None:
    assert RelayAgents().assigned_sessions("ra")[0] != RelayAgents().assigned_sessions("ra")[0]


WHOLE = Session("t", ("127.0.0.2",), ("127.0.0.3",), True, "rb", "127.0.0.4", 0, "00").as_dict()


class Answers:
    """A broker that answers with these, and then no more."""

    def __init__(self, *answers: Mapping[str, Any] | None) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def call(self, _method: str, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        self.asked.append((path, json.loads(json.dumps(body))))
        if not self.answers:
            raise KeyboardInterrupt
        answer = self.answers.pop(0)
        if answer is None:
            raise BrokerError("it is away", "unreachable")
        return answer


def served(broker: Answers) -> list[dict[str, Any]]:
    """What an agent said until its broker stopped it."""
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run.serve("r a", "127.0.0.1", broker, None))  # type: ignore[arg-type]
    assert {path for path, _ in broker.asked} == {"/v1/relays/r%20a"}
    return [body for _, body in broker.asked]


def test_without_tproxy_it_says_why_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(run, "_AGAIN_S", 0.0)
    monkeypatch.setattr(run, "_RETRY_S", None)  # each try begins with revision 0
    bodies = served(
        Answers({"revision": 7, "sessions": []}, None, None, {"revision": 7, "sessions": []})
    )
    assert bodies[0] == {
        "revision": 0, "unready": "ip cannot be run: No such file or directory; is it installed?",
        "version": VERSION, "tls": False, "connections": {},
    }  # fmt: skip
    assert [body["revision"] for body in bodies] == [0, 7, 7, 7, 7]
    assert caplog.text.count("it is away") == 1


def test_what_was_not_ready_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(run, "_RETRY_S", 0.0)
    tries: list[str] = []

    @contextmanager
    def tproxy(address: str, _port: int) -> Iterator[None]:
        tries.append(address)
        if len(tries) == 3:
            raise KeyboardInterrupt
        raise MissingError("no device yet")
        yield

    class Silent:
        def call(self, *_: object) -> Mapping[str, Any]:
            raise BrokerError("it is away", "unreachable")

    monkeypatch.setattr(run, "tproxy", tproxy)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run.serve("ra", "10.0.0.1", Silent(), None))  # type: ignore[arg-type]
    assert tries == ["10.0.0.1"] * 3


def test_an_answer_that_is_none_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(run, "_AGAIN_S", 0.0)
    monkeypatch.setattr(run, "_RETRY_S", None)  # each try begins with revision 0
    wrong = {key: value for key, value in WHOLE.items() if key != "near"}
    bodies = served(
        Answers({"revision": 7, "sessions": [wrong]}, {}, {"revision": 8, "sessions": [WHOLE]})
    )
    assert [body["revision"] for body in bodies] == [0, 0, 0, 8]


def test_certificates_that_cannot_be_used(tmp_path: Any) -> None:
    file = tmp_path / "a.pem"
    file.write_text("nothing")
    for tls in (Tls(str(file), str(file), str(file)), Tls(None, str(file), None)):
        with pytest.raises(InputError, match=r"a\.pem.*expected readable PEM files"):
            run.contexts_of(tls)
    assert run.contexts_of(Tls()) is None


def test_the_network_device_may_be_a_vlan(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = "7: eth0.100    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0.100\n"
    commands: list[str] = []

    def done(words: Sequence[str], text: str = "") -> str:
        commands.append(" ".join(words) + text)
        return addresses if "address" in words else ""

    monkeypatch.setattr(sockets, "_do", done)
    with sockets.tproxy("10.0.0.5", 27_000):
        assert "sysctl -qw net/ipv4/conf/eth0.100/rp_filter=2" in commands
    assert any('iifname "eth0.100" meta l4proto tcp tproxy' in command for command in commands)
