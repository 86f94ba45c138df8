"""Estimates are asked once for a workflow: of the broker, else of the archive, else of nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_rig import FOR_EVER_S, serving, token_of
from broker_rig import Rig
from cli_world import CONFIG, NOBODY, adon, config_file, write_world
from hooks_world import http, listening, respond
from test_api_archive import NOW, Here
from test_planner_request import small

from adon.planner_request import MappingAnswer, answers
from adon.planning import placement
from monitors.archive import estimate_sources
from monitors.archive.archive import Archive, Measurement
from monitors.archive.estimate_sources import LEFT_OUT
from monitors.archive.knowledge import Knowledge
from monitors.archive.retaining import retain
from monitors.archive.retention.horizons import DAY_S, Keep, Retention
from monitors.archive.stores import base
from monitors.base.measurement import UNITS
from monitors.rules import Rule, Rules
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.plugin.inputs import inputs_of
from pegasus_hooks.plugin.request import parse_request
from site_selector.estimates.estimating import estimate_world, subjects

FACTS = [
    ("throughput", "tacc>mu", 5e7),
    ("tcp_throughput", "mu/a>tacc/b", 3e8),
    ("tcp_throughput", "elsewhere>tacc", 3e8),
    ("rtt", "mu/a>tacc", 0.05),
    ("loss", "mu>tacc", 0.01),
    ("transfer_setup", "mu>tacc", 2.0),
    ("queue_wait", "mu", 7.0),
    *[("queue_wait", "t::a:1@mu", 9.0)] * 3,
    ("runtime", "t::a:1@mu", 50.0),
    ("compute_rate", "t::a:1@tacc", 2e6),
    ("compute_rate", "t::other@tacc", 2e6),
    ("output_ratio", "t::a:1", 0.5),
    *[("belief_error", "runtime:archive", 0.2)] * 5,
]


def fill(archive: Archive) -> None:
    archive.record_many(
        Measurement(f"{n}", metric, subject, value, UNITS.get(metric, "s"), NOW - 5, "test")
        for n, (metric, subject, value) in enumerate(FACTS)
    )


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of a test is waited for however busy the machine is."""
    monkeypatch.setattr(placement, "BROKER_TIMEOUT_S", FOR_EVER_S)
    monkeypatch.setattr(placement, "_ESTIMATES_TIMEOUT_S", FOR_EVER_S)


def planned(config: Path) -> tuple[MappingAnswer, list[str]]:
    """What the planner plug-in is answered, and the notes in its log."""
    notes: list[str] = []
    *_, last = answers(parse_request(small(config=str(config))), notes.append)
    assert set(last.sites) == {"j1", "j2", "s"}
    return last, notes


def at(tmp_path: Path, listen: str) -> Path:
    return config_file(tmp_path, broker={**CONFIG["broker"], "listen": listen})


@pytest.fixture
def here(tmp_path: Path) -> Here:
    rig = Rig(tmp_path / "state.sqlite")
    made = Here(rig, Rules())
    fill(made.archive)
    return made


def test_the_broker_the_archive_and_single_questions_tell_the_same(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = inputs_of(parse_request(small()), lambda _: {}, lambda _: None)
    calls: list[tuple[str, str]] = []
    call = BrokerClient.call

    def counted(self: BrokerClient, method: str, path: str, body: Any = None) -> Any:
        calls.append((method, path))
        return call(self, method, path, body)

    monkeypatch.setattr(BrokerClient, "call", counted)
    with serving(here.app) as port:
        broker = BrokerClient(f"http://127.0.0.1:{port}", 60.0, token_of("researcher"))
        answer = estimate_sources.ask(broker, None, *subjects(inputs), NOW)
    assert (answer.note, calls) == ("", [("POST", "/v1/estimates")])
    with Archive(tmp_path / "a.sqlite") as archive:
        fill(archive)
        read = estimate_sources.ask(None, tmp_path / "a.sqlite", *subjects(inputs), NOW)
        world = estimate_world(inputs, Knowledge(archive), now=NOW)
    assert {key[0] for key in answer.known} == {fact[0] for fact in FACTS} - {"tcp_throughput"}
    assert estimate_world(inputs, answer, now=NOW) == estimate_world(inputs, read, now=NOW) == world
    assert world.waits["t::a:1", "mu"].value == 9.0
    assert world.errors == {"runtime": {"archive": 0.4}}


def test_what_was_rolled_up_is_known(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    with Archive(file) as archive:
        fill(archive)
        later = NOW + 9 * DAY_S
        retain(archive, Retention(Keep(DAY_S)), later)
        assert archive.query("runtime") == []
    answer = estimate_sources.ask(None, file, ["mu", "tacc"], ["t::a:1"], later)
    assert {key[0] for key in answer.known} == {fact[0] for fact in FACTS} - {"tcp_throughput"}


def test_a_caller_is_told_what_it_may_see(tmp_path: Path) -> None:
    rules = Rules([Rule(may=("see",), metrics=("queue_wait", "rtt"))])
    here = Here(Rig(tmp_path / "state.sqlite"), rules)
    fill(here.archive)
    with serving(here.app) as port:

        def estimates(role: str) -> estimate_sources.EstimateSnapshot:
            broker = BrokerClient(f"http://127.0.0.1:{port}", 60.0, token_of(role))
            return estimate_sources.ask(broker, None, ["mu", "tacc"], ["t::a:1"], NOW)

        assert {metric for metric, _ in estimates("researcher").known} == {"queue_wait", "rtt"}
        assert len(estimates("engineer").known) == len({*FACTS}) - 2
        agents = estimates("agent")
    assert agents.known == {} and "see measurements" in agents.note and LEFT_OUT in agents.note


@contextmanager
def newer(file: Path) -> Iterator[None]:
    Archive(file).close()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 999")
    yield


@contextmanager
def locked(file: Path) -> Iterator[None]:
    Archive(file).close()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def other(file: Path) -> Iterator[None]:
    file.write_bytes(b"no database" * 500)
    yield


@contextmanager
def folder(file: Path) -> Iterator[None]:
    file.mkdir()
    yield


@pytest.mark.parametrize("spoilt", [newer, locked, other, folder])
def test_an_archive_that_cannot_be_read_leaves_the_mapping_to_the_catalogs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: Callable[[Path], Any]
) -> None:
    monkeypatch.setattr(base, "BUSY_S", 0.0)
    file = at(tmp_path, NOBODY)
    with spoilt(tmp_path / "a.sqlite"):
        mapped, notes = planned(file)
    (note,) = notes
    assert str(tmp_path / "a.sqlite") in note and note.endswith(LEFT_OUT) and "\n" not in note
    assert mapped.tell().beliefs["note"] == note.removeprefix("warning: ")


def test_the_command_and_its_explanation_say_that_measurements_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    (tmp_path / "a.sqlite").write_bytes(b"no database" * 500)
    ran = adon("site", "explain", "workflow.yml", "--config", at(tmp_path, NOBODY))
    assert (ran.code, ran.err.count("\n")) == (0, 1) and LEFT_OUT in ran.err
    assert LEFT_OUT in ran.out


def test_a_broker_whose_archive_is_broken_leaves_the_mapping_to_the_catalogs(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADON_TOKEN", token_of("researcher"))
    here.archive.close()
    with serving(here.app) as port:
        mapped, notes = planned(at(tmp_path, f"127.0.0.1:{port}"))
    (note,) = notes
    assert "closed" in note and mapped.tell().beliefs["note"] == note.removeprefix("warning: ")


def test_a_broker_that_answers_500_is_one_line_and_its_archive_is_read(tmp_path: Path) -> None:
    with Archive(tmp_path / "a.sqlite") as archive:
        fill(archive)
    with listening(respond(http("500 No", b"oops"))) as url:
        mapped, notes = planned(at(tmp_path, url.removeprefix("http://")))
    assert len(notes) == 1 and "answered 500" in notes[0]
    paths = mapped.tell().beliefs["paths"]
    assert paths["tacc>mu"]["gamma_a"]["source"] == "archive"
