"""What every store promises: the same tests for SQLite and for PostgreSQL."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_transit import made_transit

from network_provisioner.base.errors import InputError
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.stores.opening import copy_state
from network_provisioner.stores.store import ACTIVE, PAGE, Document, Store, StoreError

World = AbstractContextManager[Callable[[], Store]]
"""An empty place for state; inside, each call opens a store there, and leaving closes them."""

AT = 1000.5  # what the clock says that dates documents
texts = st.text(st.characters(codec="utf-8"))
bodies = st.dictionaries(
    texts, st.recursive(st.none() | st.booleans() | st.integers() | texts, st.lists), max_size=3
)
ids = st.sampled_from("abcdef")
workflows = st.sampled_from(["", "w1", "w2"])
transits = st.builds(
    made_transit,
    id=ids,
    src=st.just("mu"),
    dst=st.just("tacc"),
    state=st.sampled_from(TransitState),
    workflow=workflows,
    path=st.lists(texts, max_size=3),
    reason=texts,
    requested_bps=st.floats(0, 1e12),
    size_bytes=st.none() | st.integers(0, 2**70),
    candidates=st.lists(bodies, max_size=2),
)
puts = st.tuples(st.just("put"), transits)
many = st.tuples(st.just("put_many"), st.lists(transits, max_size=4, unique_by=lambda t: t.id))
names = st.tuples(st.sampled_from(["policy", "template"]), st.sampled_from("xy"))
writes = st.tuples(st.just("write"), st.tuples(names, bodies, st.integers(0, 3)))
deletions = st.tuples(st.just("delete"), names)
few_examples = settings(
    max_examples=12, suppress_health_check=list(HealthCheck)
)  # a place of its own for each takes time where it is a database


def transit(name: str, state: TransitState = TransitState.HELD, workflow: str = "") -> Transit:
    return made_transit(name, "mu", "tacc", state, workflow=workflow, path=["mu", "s1", "tacc"])


class Model:
    """What a store should hold."""

    def __init__(self) -> None:
        self.transits: dict[str, Transit] = {}  # in the order of their first write
        self.versions: dict[tuple[str, str], list[Document]] = {}

    def do(self, what: str, value: Any, store: Store) -> None:
        """Do one thing to the store and to the model, and compare the answers."""
        if what == "put":
            store.put(value)
            self.transits[value.id] = value
        elif what == "put_many":
            store.put_many(value)
            self.transits.update({t.id: t for t in value})
        elif what == "write":
            (kind, name), body, keep = value
            versions = self.versions.setdefault((kind, name), [])
            number = versions[-1].version + 1 if versions else 1
            before = store.documents_stamp(kind)
            assert store.put_document(kind, name, body, keep) == number
            assert store.documents_stamp(kind) > before
            versions.append(Document(kind, name, number, body, AT))
            if keep:
                versions[:] = [d for d in versions if d.version > number - keep]
        elif what == "delete":
            versions = self.versions.get(value, [])
            there = bool(versions) and not versions[-1].deleted
            assert store.delete_document(*value) is there
            if there:
                versions.append(Document(*value, versions[-1].version + 1, {}, AT, deleted=True))

    def check(self, store: Store) -> None:
        """Everything that can be asked gives what the model says."""
        everything = list(self.transits.values())
        counted = Counter(str(t.state) for t in everything)
        assert store.count() == counted
        assert store.active() == [t for t in everything if t.state in ACTIVE]
        for name in "abcdefg":
            assert store.get(name) == self.transits.get(name)
        for state in (None, "held", "released"):
            for workflow in (None, "", "w1"):
                matching = [
                    t
                    for t in everything
                    if state in (None, str(t.state)) and workflow in (None, t.request.workflow)
                ]
                assert store.find(state, workflow, 99) == matching
                assert store.find(state, workflow, 2) == matching[-2:]
                live = [t for t in matching if t.state in ACTIVE]
                assert store.find(state, workflow, 99, ended=False) == live
                for place, transit in enumerate(everything):
                    earlier = [t for t in everything[:place] if t in matching]
                    assert store.find(state, workflow, 2, before=transit.id) == earlier[-2:]
            if state is not None:
                assert list(store.each(state)) == [t for t in everything if str(t.state) == state]
        assert list(store.each()) == everything
        names: dict[str, list[str]] = {}
        for kind, name in sorted(self.versions):
            names.setdefault(kind, []).append(name)
        assert store.kinds() == names
        for kind in ("policy", "template"):
            newest = [v[-1] for k, v in sorted(self.versions.items()) if k[0] == kind]
            assert store.documents(kind) == [d for d in newest if not d.deleted]
        for (kind, name), versions in self.versions.items():
            assert store.history(kind, name) == versions
            last = None if versions[-1].deleted else versions[-1]
            assert store.document(kind, name) == last
            for version in range(1, versions[-1].version + 2):
                document = store.document(kind, name, version)
                expected = [d for d in versions if d.version == version and not d.deleted]
                assert ([document] if document else []) == expected


class StoreSuite:
    """Subclass it where ``world`` is a fixture: each call of it gives a new :data:`World`."""

    @few_examples
    @given(st.lists(puts | many | writes | deletions, max_size=20), st.integers(0, 20))
    def test_it_is_a_dictionary_with_history(
        self, world: Callable[[], World], steps: list[tuple[str, Any]], reopen_at: int
    ) -> None:
        with world() as opened:
            store, model = opened(), Model()
            for number, step in enumerate(steps):
                if number == reopen_at:
                    store.close()
                    store = opened()
                model.do(*step, store)
            store.close()
            model.check(opened())  # as the next broker finds it

    def test_more_than_a_page(self, world: Callable[[], World]) -> None:
        with world() as opened:
            store = opened()
            states = (TransitState.RELEASED, TransitState.HELD)
            many = [transit(f"t{number}", states[number % 2]) for number in range(2 * PAGE + 3)]
            store.put_many(many)
            assert [t.id for t in store.each()] == [t.id for t in many]
            assert list(store.each("held")) == many[1::2]
            some = ["nobody's", "it's 100 %", *(t.id for t in many[::3])]
            assert sorted(t.id for t in store.get_many(some)) == sorted(some[2:])
            assert store.get_many([]) == []

    def test_everything_moves_to_another_place(self, world: Callable[[], World]) -> None:
        with world() as here, world() as there:
            source, target = here(), there()
            for name in "bac":
                source.put(transit(name))
            for body in range(5):
                source.put_document("policy", "p", {"a": body}, keep=3)
            source.put_document("policy", "q", {})
            source.delete_document("policy", "q")
            assert copy_state(source, target) == (3, 5)
            assert list(target.each()) == [transit(name) for name in "bac"]
            assert target.kinds() == source.kinds()
            for name in "pq":
                assert target.history("policy", name) == source.history("policy", name)
            assert target.put_document("policy", "p", {}) == 6
            with pytest.raises(InputError, match="expected an empty one"):
                copy_state(source, target)
            with pytest.raises(StoreError):
                target.restore([Document("k", "n", 1), *source.history("policy", "p")])
            assert target.history("k", "n") == []

    def test_several_are_written_or_none(self, world: Callable[[], World]) -> None:
        with world() as opened:
            store = opened()
            store.put(transit("a"))
            broken = transit("c")
            broken.grant.warnings = [object()]  # type: ignore[list-item]
            with pytest.raises(TypeError):
                store.put_many([transit("a", TransitState.RELEASED), transit("b"), broken])
            unbound = transit("c")
            unbound.request = replace(unbound.request, workflow=None)  # type: ignore[arg-type]
            with pytest.raises(StoreError):
                store.put_many([transit("a", TransitState.RELEASED), transit("b"), unbound])
            assert store.find(None, None, 9) == [transit("a")]
            store.put_many([])
            store.put_many([transit("b"), transit("c")])
            assert [t.id for t in store.active()] == ["a", "b", "c"]

    def test_versions_that_several_threads_write(self, world: Callable[[], World]) -> None:
        with world() as opened:
            store = opened()
            numbers: list[int] = []

            def work() -> None:
                numbers.extend(store.put_document("k", "n", {"i": i}) for i in range(10))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(numbers) == list(range(1, 41))

    def test_a_store_that_was_closed(self, world: Callable[[], World]) -> None:
        with world() as opened:
            store = opened()
            store.close()
            store.close()
            with pytest.raises(StoreError, match="closed"):
                store.put(transit("a"))
            with pytest.raises(StoreError, match="closed"):
                store.documents("k")
