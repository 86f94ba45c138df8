"""Replica catalogues with a real ``pegasus-plan``: what is written is read, in its order; and the
plug-in in it asks with the database."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import replica_database
from plugin_world import Scene, SceneJob, real_plan

from site_selector.replicas.catalog import Entry, write

pytestmark = [pytest.mark.component, pytest.mark.pegasus]
JOB = SceneJob("j0", reads={"raw 1": None}, writes={"f": 1})
SITES: dict[str, dict[str, str]] = {name: {} for name in ("local", "mu", "tacc", "iplant")}


@pytest.mark.parametrize("order", [("tacc", "iplant"), ("iplant", "tacc")])
def test_the_first_of_the_catalog_is_tried_first(tmp_path: Path, order: tuple[str, ...]) -> None:
    catalog = tmp_path / "ours.yml"
    places = tuple((site, f"https://{site}.example/a%20b") for site in order)
    with catalog.open("w") as stream:
        write({"raw 1": Entry(7, "ab" * 32, places)}, stream)
    options = (f"-Dpegasus.catalog.replica.file={catalog}", "-v")
    scene = Scene([JOB], sites=SITES, execution=("mu",), options=options)
    real_plan(scene, tmp_path / "p")
    (file,) = (tmp_path / "p/submit").rglob("stage_in_*.in")
    (entry,) = json.loads(file.read_text())
    assert [(url["site_label"], url["url"]) for url in entry["src_urls"]] == list(places)
    assert entry["lfn"] == "raw 1"


def test_the_planner_is_asked_with_its_own_database(tmp_path: Path) -> None:
    path = tmp_path / "rc.db"
    subprocess.run(["pegasus-db-admin", "create", f"jdbc:sqlite:{path}"], check=True)
    with closing(sqlite3.connect(path)) as database:
        files = {"raw 1": ([("tacc", "http://tacc.example/raw")], {"size": str(10**12)})}
        replica_database.fill(database, files, None, "?")
    options = (
        "-Dpegasus.catalog.replica=JDBCRC",
        "-Dpegasus.catalog.replica.db.driver=sqlite",
        f"-Dpegasus.catalog.replica.db.url=jdbc:sqlite:{path}",
        "-v",
    )
    outcome = real_plan(Scene([JOB], sites=SITES, options=options), tmp_path / "p")
    assert (outcome.sites, outcome.warnings) == ({"j0": "tacc"}, [])
