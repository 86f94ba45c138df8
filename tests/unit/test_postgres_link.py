"""PostgreSQL: its URLs, what is never shown of them, and the way to one that is not there."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.database_url import check_state, is_database_url, shown_url
from network_provisioner.base.errors import InputError
from network_provisioner.stores import postgres_link
from network_provisioner.stores.opening import open_store
from network_provisioner.stores.postgres_link import PostgresConnection
from network_provisioner.stores.store import StoreError

SECRET = "tops3cret"
_FIRST = ("host", "user", "serv")  # of settings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://adon@db.example.org/adon",
        "postgres://adon@db.example.org:5432/adon?sslmode=verify-full",
        "postgresql:///adon?host=/run/postgresql",
        "postgresql://adon@a:1,b:2,[::1]:3/adon?target_session_attrs=read-write",
        "postgresql://",
        "host=db dbname=adon",
        " user = adon  host='/run/postgresql' options='-c search_path=a\\'b'",
        "service=adon",
        "adon-broker.sqlite",
        "/var/lib/adon/state",
        "/data/user=ada/adon.sqlite",
        "run=3.sqlite",
        ":memory:",
    ],
)
def test_what_can_be_meant(url: str) -> None:
    check_state(url)
    assert is_database_url(url) is (url.startswith("postgres") or url.strip()[:4] in _FIRST)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://adon@db:0/x", "found the port 0 "),
        ("postgresql://adon@db:99999/x", "found the port 99999 "),
        ("postgresql://adon@db:port/x", "cannot be taken apart"),
        ("postgresql://adon@[::1/x", "cannot be taken apart"),
        (f"postgresql://adon:{SECRET}@more@db/x", "cannot be taken apart"),
        (f"postgresql://adon:a/{SECRET}@db/x", "cannot be taken apart"),
        (f"postgresql://adon:a?{SECRET}@db/x", "cannot be taken apart"),
        (f"postgresql://adon:{SECRET} @db/x", "cannot be taken apart"),
        (f"mysql://adon:{SECRET}@db/x", r"the URL of something else \(mysql:\)"),
        (f"postgresql+psycopg://adon:{SECRET}@db/x", r"something else \(postgresql\+psycopg:\)"),
        (f"host=db user='adon password={SECRET}", "settings of PostgreSQL that cannot be taken"),
        (f"host=db dbname=adon {SECRET}", "settings of PostgreSQL that cannot be taken"),
        ("", "found ''"),
        ("a\0b", "found 'a"),
    ],
)
def test_what_cannot(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_state(url)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    assert "expected postgresql://" in str(caught.value)


def test_what_is_shown() -> None:
    url = f"postgresql://adon:{SECRET}@db:5432/adon?sslmode=require&password={SECRET}&host=h"
    assert shown_url(url) == "postgresql://adon@db:5432/adon?host=h"
    assert shown_url("postgresql://db/adon") == "postgresql://db/adon"
    assert shown_url(f"postgresql://adon:{SECRET}") == "postgresql://…"
    assert shown_url(f"dbname=adon password='{SECRET} x' host = db") == "host=db dbname=adon"
    assert shown_url(f"password={SECRET} host='db") == shown_url("sslmode=x passfile=y")


FORMS = ["postgresql://adon:{}@db/x", "postgres://db/x?password={}", "host=db password={}"]


@given(st.text(), st.sampled_from(FORMS))
def test_a_password_is_never_shown(rest: str, form: str) -> None:
    for word in (SECRET + rest, rest + SECRET, quote(SECRET + rest, safe="")):
        url = form.format(word)
        assert SECRET not in shown_url(url)
        try:
            check_state(url)
        except InputError as error:
            assert SECRET not in str(error)


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
