"""What the store does not take is kept, and goes with the next that it must take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from store_suite import transit

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import StoreError
from network_provisioner.transits.repository import Repository


class Moody(SqliteStore):
    """Takes something or does not, and remembers what it was given at once."""

    broken = False

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.written: list[list[str]] = []

    def put_many(self, transits: Sequence[Transit]) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        super().put_many(transits)
        self.written.append([f"{t.id} {t.state}" for t in transits])


def test_what_was_given_back_is_stored_no_later_than_who_was_given_it() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    repository.write([transit("a")])
    store.broken = True
    repository.save([transit("a", TransitState.RELEASED)])
    with pytest.raises(BrokerError, match="the disk is full"):
        repository.write([transit("b")])
    assert repository.behind and repository.find("a") == transit("a", TransitState.RELEASED)
    assert store.get("a") == transit("a")
    store.broken = False
    repository.write([transit("b")])
    assert store.written == [["a held"], ["a released", "b held"]]
    assert not repository.behind
    repository.write([transit("c")])
    assert store.written[2:] == [["c held"]]


def test_only_the_newest_of_one_transit_is_stored() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    store.broken = True
    repository.save([transit("a")])
    store.broken = False
    repository.write([replace(transit("a"), state=TransitState.RELEASED)])
    assert store.written == [["a released"]] and not repository.behind


def test_nothing_is_stored_before_what_came_before_it() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    store.broken = True
    repository.save([transit("a", TransitState.RELEASED)])
    store.broken = False
    repository.save_later([transit("b")])
    assert repository.behind and repository.find("b") == transit("b") and store.get("b") is None
    repository.save([transit("c")])
    assert store.written == [["a released", "b held", "c held"]] and not repository.behind


def test_what_is_gathered_is_not_behind() -> None:
    store = Moody(":memory:")
    repository = Repository(store)
    with repository.together():
        repository.save([transit("a")])
        assert repository.is_unsaved("a") and not repository.behind
    assert store.written == [["a held"]] and not repository.behind
    store.broken = True
    with repository.together():
        repository.save([transit("b")])
    assert repository.behind
    repository.forget("b")
    assert not repository.behind
