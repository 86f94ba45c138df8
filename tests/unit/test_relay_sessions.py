"""What agents know of a transit's connections, and how streams begin."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.relay.carrier import HEAD, Hello, HelloError
from network_provisioner.relay.sessions import Session, session_from_dict

SESSION = Session(
    "t", ("10.0.0.1", "10.0.1.0/24"), ("10.9.0.1",), True, "rb", "10.9.0.9", 27001, "ab"
)
NEAR, FAR = ("10.0.1.7", 50_000), ("10.9.0.1", 2811)


@pytest.mark.parametrize(
    "session",
    [SESSION, replace(SESSION, flows=(Flow("tcp", None, (1, 9)),), rate_bps=1e9, until=5.0)],
)
def test_a_session_goes_there_and_back(session: Session) -> None:
    assert session_from_dict(json.loads(json.dumps(session.as_dict()))) == session
    assert math.isinf(SESSION.rate_bps)


def test_a_session_that_is_none() -> None:
    with pytest.raises((InputError, KeyError, TypeError)):
        session_from_dict({"id": "t"})


def test_whose_connections_they_are() -> None:
    assert SESSION.carries(NEAR, FAR, here=True)
    assert SESSION.carries(FAR, NEAR, here=False)  # a client on the other side
    assert not SESSION.carries(FAR, NEAR, here=True)
    assert not SESSION.carries(("10.0.2.7", 50_000), FAR, here=True)


@pytest.mark.parametrize("source_here", [True, False])
def test_flows_are_said_as_data_flows(source_here: bool) -> None:
    to_far = replace(SESSION, flows=(Flow("tcp", None, (2811, 2811)),), source_here=True)
    from_far = replace(SESSION, flows=(Flow("tcp", (2811, 2811), None),), source_here=False)
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
