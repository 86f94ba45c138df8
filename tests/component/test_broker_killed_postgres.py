"""kill -9 of the broker at each of its steps, with its state in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import killed_broker
import pytest
from postgres_world import new_place, server_in

from examples.testbed.postgres import Postgres
from network_provisioner.stores.postgres import PostgresStore

pytestmark = [pytest.mark.component, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg")) as running:
        yield running


def test_kill_9_at_every_step_changes_nothing_in_the_end(tmp_path: Path, server: Postgres) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    steps: list[str] = []
    expected = killed_broker.live(whole, partial(PostgresStore, new_place(server)), steps.append)
    assert len(steps) > 60
    for number in range(1, len(steps) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        open_store = partial(PostgresStore, new_place(server))
        done = killed_broker.die_at(number, folder, open_store)
        assert killed_broker.live(folder, open_store, done=done) == expected, (number, done)
