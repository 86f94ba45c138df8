"""The way to PostgreSQL where there is none: what is said, and how long it takes to say it."""

from __future__ import annotations

import socket
from typing import Any

import psycopg
import pytest

from network_provisioner.stores import postgres_link
from network_provisioner.stores.opening import open_store
from network_provisioner.stores.postgres_link import PostgresConnection
from network_provisioner.stores.store import StoreError


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and it does not listen
        port = bound.getsockname()[1]
        with pytest.raises(StoreError, match=r"Connection refused\Z") as caught:
            open_store(f"postgresql://adon:tops3cret@127.0.0.1:{port}/adon")
    assert str(caught.value).startswith(f"database postgresql://adon@127.0.0.1:{port}/adon: ")
    assert "tops3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    ["postgresql://adon:tops3cret@db/adon?colour=red", "colour=red host=db password=tops3cret"],
)
def test_what_libpq_does_not_take(place: str) -> None:
    with pytest.raises(StoreError, match="found what libpq does not take") as caught:
        PostgresConnection(place)
    assert "tops3cret" not in str(caught.value)


def test_who_waited_in_vain_tells_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads ask at once: not each of them waits for a server that does not answer."""
    tried = []
    now = [100.0]

    def connect(*_: Any, **__: Any) -> Any:
        tried.append(now[0])
        now[0] += 3.0
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setattr(postgres_link._Connection, "connect", connect)
    monkeypatch.setattr(postgres_link.time, "monotonic", lambda: now[0])
    link = PostgresConnection("postgresql://db/adon")
    for _ in range(5):
        with pytest.raises(StoreError, match="connection timeout expired"):
            link.rows("SELECT 1", {})
    assert tried == [100.0]
    now[0] += 1.0
    with pytest.raises(StoreError, match="connection timeout expired"):
        link.rows("SELECT 1", {})
    assert tried == [100.0, 104.0]


def test_who_is_refused_at_once_may_try_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def connect(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise psycopg.OperationalError("Connection refused")

    monkeypatch.setattr(postgres_link._Connection, "connect", connect)
    monkeypatch.setattr(postgres_link.time, "monotonic", lambda: 100.0)  # at once, whatever happens
    link = PostgresConnection("postgresql://db/adon")
    for _ in range(3):
        with pytest.raises(StoreError):
            link.rows("SELECT 1", {})
    assert len(tried) == 3


def test_what_waits_is_left_when_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(postgres_link.time, "monotonic", lambda: now[0])
    closed = []

    def steps() -> Any:
        try:
            heard = yield "wait"
            while heard != "end":
                heard = yield "wait"
            return "done"
        finally:
            closed.append(1)

    waiting = postgres_link._impatient(steps())
    assert next(waiting) == "wait"
    for word in ("something", None, "more", None, None):  # 4 s apart, never silent for more than 8
        now[0] += 4.0 if word else 0.5
        assert waiting.send(word) == "wait"
    with pytest.raises(StopIteration) as end:
        waiting.send("end")
    assert end.value.value == "done"

    waiting = postgres_link._impatient(steps())
    next(waiting)
    for stopped in (60.0, *[0.5] * 9):  # of the first we know nothing: we did not look ourselves
        now[0] += stopped
        assert waiting.send(None) == "wait"
    now[0] += 0.5
    with pytest.raises(psycopg.OperationalError, match="has said nothing for 5 s"):
        waiting.send(None)
    assert closed == [1, 1]
