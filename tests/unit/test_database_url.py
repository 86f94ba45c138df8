"""Where brokers share their state: what is a URL of it, and what is never shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.database_url import check_state, is_database_url, shown_url
from network_provisioner.base.errors import InputError

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
