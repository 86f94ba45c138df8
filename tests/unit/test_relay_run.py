"""An agent's process: what it says to its broker, and what it does with the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from network_provisioner.base.errors import BrokerError, InputError, MissingError
from network_provisioner.client.http1 import Tls
from network_provisioner.relay import run, sockets
from network_provisioner.relay.sessions import VERSION, Session

SESSION = Session("t", ("127.0.0.2",), ("127.0.0.3",), True, "rb", "127.0.0.4", 0, "00").as_dict()


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
    wrong = {key: value for key, value in SESSION.items() if key != "near"}
    bodies = served(
        Answers({"revision": 7, "sessions": [wrong]}, {}, {"revision": 8, "sessions": [SESSION]})
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
