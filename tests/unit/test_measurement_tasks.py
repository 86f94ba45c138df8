"""Measurement tasks and the agreement as people write them."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordinator_rig import ANYBODY, ECHO, TASKS, CoordinatorRig
from hypothesis import given
from hypothesis import strategies as st

from adon.service.measuring import EARLIER, measuring_file, take_over
from monitors.measurements.probes.tools import TOOLS
from monitors.measurements.run_store import KeptTask, MeasuringStore, SharedTasks
from monitors.measurements.task_data import (
    FOR_S,
    agreement_from_dict,
    definition_of,
    tasks_from_dict,
)
from monitors.measurements.tasks import Agreement, Task
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.stores.store import StoreError
from network_provisioner.topology.data import topology_from_dict

NETWORK = topology_from_dict({
    "nodes": [
        {"name": "mu", "kind": "site"},
        {"name": "tacc", "kind": "site"},
        {"name": "alone", "kind": "site"},
        {"name": "s1", "kind": "switch"},
        {"name": "s2", "kind": "switch"},
        {"name": "r1", "kind": "router"},
    ],
    "links": [
        {"a": "s1", "b": "mu", "capacity": "1 Gb/s"},
        {"a": "tacc", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "s1", "b": "s2", "layer": "l2", "capacity": "200 Mb/s"},
        {"a": "s1", "b": "r1", "layer": "l3", "capacity": "20 Mb/s"},
        {"a": "r1", "b": "s2", "layer": "l3", "capacity": "20 Mb/s"},
    ],
})  # fmt: skip


def task_from_dict(name: str, body: object, once: bool = False) -> Task:
    return definition_of(name, body, NETWORK, once=once).task


ROUTED = frozenset({("mu", "s1"), ("r1", "s1"), ("r1", "s2"), ("s2", "tacc")})
TCP = {"tool": "tcp", "from": "mu", "to": "tacc", "every": "1 h", "for": "20 s"}


def test_a_task_takes_the_links_of_best_effort() -> None:
    within = {**TCP, "within": "30 min"}
    assert tasks_from_dict({"t": within}, NETWORK) == {
        "t": Task("t", 3_600_000, 20_000, 1_800_000, frozenset({"mu", "tacc"}), ROUTED, 20e6)
    }
    back = task_from_dict("t", {**TCP, "from": "tacc", "to": "mu/dtn2"})
    assert (back.links, back.hosts) == (ROUTED, {"tacc", "mu/dtn2"})


def test_hosts_of_one_site_share_no_link() -> None:
    task = task_from_dict("t", {**TCP, "from": "mu/a", "to": "mu/b"})
    assert (task.hosts, task.links, task.load_bps) == ({"mu/a", "mu/b"}, frozenset(), 0.0)


def test_what_measures_a_host_conflicts_with_nothing() -> None:
    task = task_from_dict("t", {"tool": "host", "from": "mu", "every": "90 s"})
    assert task == Task("t", 90_000, 1_000, 90_000)


@pytest.mark.parametrize(
    ("more", "load_bps"),
    [
        ({}, 20e6),  # the narrowest link
        ({"options": {"rate": "5 Mb/s"}}, 5e6),
        ({"options": {"rate": "5 Gb/s"}}, 20e6),
        ({"load": "7 Mb/s"}, 7e6),
        ({"tool": "udp"}, 1e6),
        ({"tool": "echo", "options": {"interval": "10 ms", "length": 972}}, 800e3),
        ({"tool": "ping"}, 10_240.0),
        ({"tool": "trace"}, 20e3),
    ],
)
def test_the_load_of_each_tool(more: dict[str, Any], load_bps: float) -> None:
    assert task_from_dict("t", {**TCP, **more}).load_bps == pytest.approx(load_bps)


def test_every_tool_has_its_time() -> None:
    assert FOR_S.keys() == TOOLS.keys()
    assert all(FOR_S[name] >= tool.least_s for name, tool in TOOLS.items())


def test_one_run_says_nothing_of_when() -> None:
    once = {key: value for key, value in TCP.items() if key != "every"}
    assert task_from_dict("now", once, once=True).duration_ms == 20_000
    with pytest.raises(InputError, match="unknown key 'every'"):
        task_from_dict("now", TCP, once=True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"evry": "1 h"}, "task 't' has the unknown key 'evry', did you mean 'every'?"),
        ({"tool": "tpc"}, "task 't': tool: found 'tpc', did you mean 'tcp'?"),
        (
            {"from": "taco"},
            "task 't': from is 'taco', expected a site or SITE/HOST; did you mean 'tacc'?",
        ),
        ({"from": "mu/"}, "from is 'mu/', expected a site or SITE/HOST"),
        ({"to": "mu"}, "task 't' is from 'mu' to itself, expected two ends"),
        ({"to": "alone"}, "no path joins 'mu' with 'alone'"),
        ({"to": None}, "task 't': found no 'to', expected the end that tcp measures to"),
        ({"tool": "host"}, "to: found 'tacc', but host has one end alone"),
        ({"every": "0.5 ms"}, "task 't': every: found '0.5 ms', expected whole milliseconds"),
        ({"every": 0.0015}, "expected whole milliseconds, at least one"),
        ({"for": "1 s"}, "for: found 1 s, but tcp needs 3 s at least"),
        ({"for": "2 h"}, "takes 7200 s within 3600 s every 3600 s"),
        ({"within": "2 h"}, "takes 20 s within 7200 s every 3600 s"),
        ({"options": {"stream": 4}}, "unknown option 'stream' of tcp, did you mean 'streams'?"),
        ({"load": "fast"}, "task 't': load: found 'fast'"),
    ],
)
def test_what_cannot_be_meant(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        tasks_from_dict({"t": {**TCP, **more}}, NETWORK)
    assert words in str(caught.value)


@pytest.mark.parametrize("section", [[], {"t": []}, {"": TCP}, {7: TCP}, {"t": {}}])
def test_sections_that_are_none(section: object) -> None:
    with pytest.raises(InputError):
        tasks_from_dict(section, NETWORK)


def test_a_task_says_how_often() -> None:
    with pytest.raises(InputError, match="task 't' has no 'every'"):
        task_from_dict("t", {"tool": "host", "from": "mu"})


def test_the_agreement() -> None:
    agreement = agreement_from_dict(
        {
            "links": {"mu-s1": "50 %", "s1-r1": "5 Mb/s"},
            "domains": {
                "campus": {"nodes": ["mu"], "links": ["s1-s2"], "most": "1 Gb/s", "at_once": 2},
                "wide": {"nodes": ["r1"], "at_once": 0},
            },
        },
        NETWORK,
    )
    assert agreement == Agreement(
        {("mu", "s1"): 500e6, ("r1", "s1"): 5e6},
        {
            "campus": frozenset({("mu", "s1"), ("s1", "s2")}),
            "wide": frozenset({("r1", "s1"), ("r1", "s2")}),
        },
        {"campus": 1e9},
        {"campus": 2, "wide": 0},
    )
    assert agreement_from_dict({}, NETWORK) == Agreement()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"link": {}}, "unknown key 'link', did you mean 'links'?"),
        ({"links": {"mu-s2": 1}}, "agreement: links names the link 'mu-s2', did you mean 'mu-s1'?"),
        ({"links": {"mu-s1": "120 %"}}, "links.mu-s1: found '120 %', expected 0 % to 100 %"),
        ({"links": {"mu-s1": "1 MB/s"}}, "links.mu-s1: found '1 MB/s'"),
        ({"domains": {"d": {"nodes": ["mu"]}}}, "domain 'd' bounds nothing, expected 'most' or"),
        ({"domains": {"d": {"most": 1}}}, "domain 'd' has no links, expected 'links' or 'nodes'"),
        (
            {"domains": {"d": {"nodes": ["taco"], "most": 1}}},
            "names the node 'taco', did you mean 'tacc'?",
        ),
    ],
)
def test_agreements_that_cannot_be_meant(section: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        agreement_from_dict(section, NETWORK)
    assert words in str(caught.value)


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_VALUES = _PLAIN | st.lists(_PLAIN, max_size=2) | st.dictionaries(st.text(max_size=5), _PLAIN)
_KEYS = ("tool", "from", "to", "every", "for", "within", "load", "options", "links", "domains")


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES | st.sampled_from(list(TCP.values()))))
def test_whatever_is_written_it_is_taken_or_refused(body: dict[str, Any]) -> None:
    for read in (
        lambda: task_from_dict("t", body),
        lambda: task_from_dict("t", {**TCP, **body}),
        lambda: agreement_from_dict(body, NETWORK),
        lambda: agreement_from_dict({"domains": {"d": body}}, NETWORK),
    ):
        try:
            read()
        except InputError as error:
            assert "\n" not in str(error)


MINE = {**ECHO, "every": "20 s"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[[str], CoordinatorRig]]:
    """Coordinators with files of their own, and a store together."""
    with ExitStack() as stack:
        store = SqliteStore(tmp_path / "shared.sqlite")
        stack.callback(store.close)

        def started(name: str, shared: bool = True) -> CoordinatorRig:
            made = CoordinatorRig(tmp_path / name, shared=SharedTasks(store) if shared else None)
            stack.callback(made.close)
            made.coordinator.take_over()
            return made

        yield started


def added(rig: CoordinatorRig) -> set[str]:
    return {task["name"] for task in rig.coordinator.tasks()} - TASKS.keys()


def test_who_leads_next_has_what_was_added_and_not_what_was_removed(
    brokers: Callable[[str], CoordinatorRig],
) -> None:
    first, second = brokers("first"), brokers("second")
    first.coordinator.put_task("mine", MINE, ANYBODY)
    second.coordinator.take_over()
    assert added(second) == {"mine"}
    second.all_present()
    assert any(run["task"] == "mine" for run in second.ask("mu"))
    second.coordinator.delete_task("mine", ANYBODY)
    first.coordinator.take_over()
    assert added(first) == set()
    second.coordinator.put_task("mine", {**MINE, "every": "30 s"}, ANYBODY)
    first.coordinator.take_over()
    assert first.coordinator.task("mine")["every_s"] == 30


def test_tasks_of_a_broker_that_was_alone_are_kept(tmp_path: Path) -> None:
    alone = CoordinatorRig(tmp_path)
    alone.coordinator.put_task("mine", MINE, ANYBODY)
    store = SqliteStore(tmp_path / "shared.sqlite")
    again = alone.restarted(shared=SharedTasks(store))
    again.coordinator.take_over()
    assert added(again) == {"mine"} and SharedTasks(store).read() is not None
    again.close()
    store.close()


def test_a_store_that_refuses_leaves_all_as_it_was(
    brokers: Callable[[str], CoordinatorRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = brokers("first")

    def refuse(*_: object) -> None:
        raise StoreError("the database is away")

    monkeypatch.setattr(SharedTasks, "write", refuse)
    with pytest.raises(StoreError, match="is away"):
        rig.coordinator.put_task("mine", MINE, ANYBODY)
    assert added(rig) == set()
    with pytest.raises(BrokerError, match="no measurement task"):
        rig.coordinator.task("mine")


KEPT = {"mine": KeptTask({"tool": "host"}, "ada", 1.0)}


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("/here/adon-broker.sqlite", "/here/adon-broker.measuring.sqlite"),
        ("/here/other.db", "/here/other.measuring.sqlite"),
        ("postgresql://adon@db.example.org/campus", "/folder/campus.measuring.sqlite"),
        ("postgresql://adon@a,b:1/campus?sslmode=require", "/folder/campus.measuring.sqlite"),
        ("postgresql://adon@db.example.org", "/folder/adon.measuring.sqlite"),
        ("host=db password=secret dbname='campus'", "/folder/campus.measuring.sqlite"),
        ("service=adon", "/folder/adon.measuring.sqlite"),
        ("postgresql://db.example.org/../x%2Fy", "/folder/..x2Fy.measuring.sqlite"),
    ],
)
def test_it_is_named_after_the_brokers_state(state: str, name: str) -> None:
    assert measuring_file(state, Path("/folder")) == Path(name)


def test_an_earlier_file_goes_to_the_first_broker_that_is_started(tmp_path: Path) -> None:
    earlier = tmp_path / EARLIER
    before = MeasuringStore(earlier)
    before.write(tasks=KEPT)
    first, second = tmp_path / "a.measuring.sqlite", tmp_path / "b.measuring.sqlite"
    with pytest.raises(InputError, match="earlier version has it"):
        take_over(first)
    before.close()
    # As after kill -9: what was written stands beside the file.
    db = sqlite3.connect(earlier, isolation_level=None)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("INSERT INTO fact VALUES ('x', '7')")
    copy = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-shm" not in file.name}
    db.close()
    for name, data in copy.items():
        (tmp_path / name).write_bytes(data)
    assert (tmp_path / f"{EARLIER}-wal").stat().st_size > 0
    assert take_over(first) and not earlier.exists()
    assert not take_over(first) and not take_over(second)
    store = MeasuringStore(first)
    assert (store.tasks(), store.fact("x")) == (KEPT, 7)
    store.close()
    assert not second.exists()


def test_one_that_is_held_stays(tmp_path: Path) -> None:
    MeasuringStore(tmp_path / EARLIER).close()
    with Path(tmp_path / f"{EARLIER}.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="earlier version has it"):
            take_over(tmp_path / "a.measuring.sqlite")
    assert take_over(tmp_path / "a.measuring.sqlite")


@pytest.mark.parametrize("damage", [b'{"tool": \xff\xfe}', b"[]", b"nothing"])
def test_a_damaged_task_costs_only_itself(tmp_path: Path, damage: bytes) -> None:
    store = MeasuringStore(tmp_path / "m.sqlite")
    store.write(facts={"x": 7, "y": 8}, tasks={**KEPT, "other": KEPT["mine"]})
    store._db.execute("UPDATE task SET body = CAST(? AS TEXT) WHERE name = 'other'", [damage])
    store._db.execute("UPDATE fact SET value = CAST(? AS TEXT) WHERE name = 'y'", [b"{\xff"])
    assert (store.tasks(), store.fact("x"), store.fact("y")) == (KEPT, 7, None)
    store.close()
