"""Replica catalogues in real databases: what site selection and planner plug-in read of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import replica_database
import yaml
from planner_world import make_case
from plugin_world import Scene, SceneJob, fake_plan
from postgres_world import new_place, server_in

from examples.testbed.postgres import Postgres
from network_provisioner.base.errors import InputError
from site_selector.catalogs.replicas import ReplicaDatabase, database_of, find_replicas
from site_selector.inputs import load_inputs

pytestmark = pytest.mark.component
PASSWORD = "opensesame"


@dataclass(frozen=True)
class Place:
    """An empty database, and Pegasus's properties for it."""

    kind: str
    url: str
    properties: Mapping[str, str]

    def fill(self, files: replica_database.Files) -> ReplicaDatabase:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.url)) as file:
                replica_database.fill(file, files, replica_database.SQLITE, "?")
        else:
            with psycopg.connect(self.url) as server:
                replica_database.fill(server, files, replica_database.POSTGRESQL, "%s")
        database = database_of(self.properties)
        assert database is not None
        return database

    def text(self) -> str:
        return "".join(f"{key} = {value}\n" for key, value in self.properties.items())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg"), tcp=True) as running:
        with psycopg.connect(running.url) as database:
            database.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{PASSWORD}'")
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    properties = {"pegasus.catalog.replica": "JDBCRC", "pegasus.catalog.replica.db.driver": kind}
    if kind == "sqlite":
        url = str(tmp_path / "all replicas.db")
        return Place(
            kind, url, properties | {"pegasus.catalog.replica.db.url": f"jdbc:sqlite:{url}"}
        )
    server: Postgres = request.getfixturevalue("server")
    url = new_place(server)
    options = str(psycopg.conninfo.conninfo_to_dict(url)["options"])
    user, _, at = server.tcp_url.removeprefix("postgresql://").partition("@")
    properties |= {
        "pegasus.catalog.replica.db.url": f"jdbc:postgresql://{at}?currentSchema="
        + options.rpartition("=")[2],
        "pegasus.catalog.*.db.user": user,
        "pegasus.catalog.*.db.password": PASSWORD,
    }
    return Place(kind, url, properties)


def test_files_with_sizes_and_places_in_their_order(place: Place) -> None:
    replicas = place.fill({
        "reads": ([("tacc", "gsiftp://tacc/reads"), ("mu", "/reads")], {"size": "12", "x": "y"}),
        "it's \"%s\" ü": ([("mu", "/odd"), (None, "/lost")], {"size": "many"}),
        "nowhere": ([], {"size": "7"}),
        "other": ([("mu", "/other")], {}),
    }).replicas(["reads", "it's \"%s\" ü", "nowhere", "unknown"])  # fmt: skip
    assert {lfn: (replica.places, replica.size_bytes) for lfn, replica in replicas.items()} == {
        "reads": ((("tacc", "gsiftp://tacc/reads"), ("mu", "/reads")), 12),
        'it\'s "%s" ü': ((("mu", "/odd"),), None),
    }


def test_many_files_take_few_queries(place: Place) -> None:
    files = {f"f{n}": ([("mu", f"/f{n}")], {"size": str(n)}) for n in range(12_000)}
    replicas = place.fill(files).replicas(f"f{n}" for n in range(500, 25_000))
    assert len(replicas) == 11_500
    assert replicas["f11999"].size_bytes == 11_999


def test_site_selection_reads_the_database_that_properties_name(
    place: Place, tmp_path: Path
) -> None:
    case = make_case(tmp_path / "case")
    (case.root / "replicas.yml").unlink()
    (case.root / "pegasus.properties").write_text(place.text())
    place.fill({"raw.txt": ([("store", "gsiftp://store/raw.txt")], {"size": "19"})})
    inputs = load_inputs(case.root / "workflow.yml")
    assert (inputs.raw_bytes, inputs.places) == ({"raw.txt": 19}, {"raw.txt": ("store",)})


def test_the_planner_is_asked_with_the_database(place: Place) -> None:
    """Through the real plug-in: the job goes where the database says that its input lies."""
    place.fill({"raw": ([("mu", "http://mu.example/raw")], {"size": str(10**12)})})
    job = SceneJob("j0", reads={"raw": None}, writes={"f": 1})
    assert fake_plan(Scene([job], properties=place.properties)).sites == {"j0": "mu"}
    place_tacc = {"raw": ("tacc", "http://tacc.example/raw", 10**12)}
    inside = Scene([job], properties=place.properties, replicas=place_tacc)
    assert fake_plan(inside).sites == {"j0": "tacc"}  # what stands in the workflow is believed


def test_a_database_without_tables_or_server_is_a_note(place: Place, tmp_path: Path) -> None:
    notes: list[str] = []
    if place.kind == "sqlite":
        sqlite3.connect(place.url).close()
        Path(place.url).touch()
    assert find_replicas(["a"], [], [], notes.append, place.properties) == {}
    (note,) = notes
    assert note.startswith(f"replica catalog jdbc:{place.kind}:")
    assert "rc_lfn" in note and "cannot be read" in note and PASSWORD not in note
    gone = {**place.properties, "pegasus.catalog.replica.db.url": "jdbc:sqlite:/none/x.db"}
    if place.kind == "postgresql":
        gone["pegasus.catalog.replica.db.url"] = "jdbc:postgresql://127.0.0.1:9/x?password=p"
    database = database_of(gone)
    assert database is not None
    with pytest.raises(InputError, match="cannot be read") as refused:
        database.replicas(["a"])
    assert "password" not in str(refused.value)


def test_mysql_is_said_not_to_be_read_and_planning_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {
        "pegasus.catalog.replica": "JDBCRC",
        "pegasus.catalog.replica.db.url": "jdbc:mysql://db.example/rc?password=secret",
    }
    line = (
        "replica catalog jdbc:mysql://db.example/rc: databases of this kind are not read, expected "
        "jdbc:sqlite: or jdbc:postgresql:"
    )
    notes: list[str] = []
    text = tmp_path / "rc.txt"
    text.write_text('a /a site="mu"\n')
    replicas = find_replicas(["a", "b"], [("File", str(text))], [], notes.append, properties)
    assert {lfn: r.places for lfn, r in replicas.items()} == {"a": (("mu", "/a"),)}
    assert notes == [f"{line}; its replicas are ignored"]
    job = SceneJob("j0", reads={"raw": None}, writes={"f": 1})
    outcome = fake_plan(Scene([job], properties=properties))
    assert set(outcome.sites) == {"j0"}
    assert any(line in info for info in outcome.infos)
    case = make_case(tmp_path / "case")
    (case.root / "pegasus.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    assert load_inputs(case.root / "workflow.yml").places["raw.txt"] == ("store",)
    assert caplog.messages == [f"{line}; its replicas are ignored"]


def test_a_catalog_inside_the_workflow_comes_before_the_database(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    database = tmp_path / "rc.db"
    with closing(sqlite3.connect(database)) as file:
        files = {"raw.txt": ([("mu", "/raw.txt")], {"size": "1"})}
        replica_database.fill(file, files, replica_database.SQLITE, "?")
    (case.root / "pegasus.properties").write_text(
        f"pegasus.catalog.replica=JDBCRC\npegasus.catalog.replica.db.url=jdbc:sqlite:{database}\n"
    )
    assert load_inputs(case.root / "workflow.yml").places["raw.txt"] == ("mu",)
    given = load_inputs(case.root / "workflow.yml", replicas=case.root / "replicas.yml")
    assert given.places["raw.txt"] == ("store",)
    inside = yaml.safe_load((case.root / "replicas.yml").read_text())["replicas"]
    case.change("workflow", lambda d: d.update(replicaCatalog={"replicas": inside}))
    assert load_inputs(case.root / "workflow.yml").places["raw.txt"] == ("store",)
