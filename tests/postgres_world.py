"""A real PostgreSQL server for tests, with as many empty places in it as they like."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from adon.testbed import packages
from adon.testbed.postgres import Postgres
from network_provisioner.stores.postgres import PostgresStore

_NUMBERS = itertools.count()


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


@contextmanager
def stores_at(url: str) -> Iterator[Callable[[], PostgresStore]]:
    """Each call inside opens a store there; leaving closes them."""
    with ExitStack() as stack:

        def opened() -> PostgresStore:
            store = PostgresStore(url, lambda: 1000.5)
            stack.callback(store.close)
            return store

        yield opened
