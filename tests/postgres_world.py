"""A real PostgreSQL server for tests, with as many empty places in it as they like."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from adon.machine import packages
from examples.testbed.postgres import Postgres
from network_provisioner.stores import postgres as postgres_store
from network_provisioner.stores import postgres_link
from network_provisioner.stores.postgres import PostgresStore

_NUMBERS = itertools.count()
_PATIENCE_S = 240.0


@contextmanager
def patient_stores() -> Iterator[None]:
    """Stores of this process do not give up on a server that is slow, and lead for long: a busy
    machine may stop either for longer than a broker could wait."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            patch.setitem(postgres_link._SETTINGS, name, f"{_PATIENCE_S:g}s")
        patch.setitem(postgres_link._FOUND, "connect_timeout", int(_PATIENCE_S))
        patch.setattr(postgres_link, "_SILENT_S", _PATIENCE_S)
        patch.setattr(postgres_store, "LEASE_S", _PATIENCE_S)
        yield


def server_in(folder: Path, *, durable: bool = False, tcp: bool = False) -> Postgres:
    """A server that is not started yet."""
    programs = packages.ensure("postgresql", progress=print) / "wrap"
    return Postgres(folder, programs, durable=durable, tcp=tcp)


def new_place(server: Postgres) -> str:
    """The URL of an empty schema."""
    name = f"place{next(_NUMBERS)}"
    with psycopg.connect(server.url) as db:
        db.execute(f"CREATE SCHEMA {name}")
    return f"{server.url}&options=-csearch_path%3D{name}"


def expire(url: str) -> None:
    """End the lease of the leader there."""
    with psycopg.connect(url) as db:
        db.execute("UPDATE adon_meta SET until = 0")


def leading_store(url: str) -> PostgresStore:
    """A store that leads there, whichever did before."""
    store = PostgresStore(url, lambda: 1000.5)
    expire(url)
    store.elect()
    return store


@contextmanager
def stores_at(url: str) -> Iterator[Callable[[], PostgresStore]]:
    """Each call inside opens a store that leads there; leaving closes them."""
    with ExitStack() as stack:

        def opened() -> PostgresStore:
            store = leading_store(url)
            stack.callback(store.close)
            return store

        yield opened
