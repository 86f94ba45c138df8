"""Every command that lists prints the same records as JSON, CSV and chosen columns."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from api_rig import application, books, serving
from broker_rig import Rig
from cli_world import adon, refusal, write_world
from coordinator_rig import CoordinatorRig
from relay_world import RelayRig
from test_anomaly_service import DAY_S, DROP, Clock, Told, series
from test_anomaly_service import T0 as EVENING
from test_cli_measure_run import TASKS
from test_cli_measure_run import written as planned
from test_cli_monitor_show import report
from test_cli_template import written
from test_cli_workflow import GROW, write_config
from test_docs import leaves
from test_pool_explain import decision
from workflow_world import example

from adon.cli.main import build_parser
from condor_plugins import waiting
from monitors.alerts.anomalies.service import AnomalyService
from monitors.alerts.anomalies.settings import WatchedMetrics
from monitors.api import measuring as measuring_api
from monitors.archive.archive import Archive
from monitors.measurements.probes.disks import row
from monitors.rules import Rules
from network_provisioner.access import Keyring
from network_provisioner.api import create_app
from network_provisioner.stores.sqlite import SqliteStore

# A command, and how many records it has here.
LISTS = {
    "agent probe host --for 0.3s": None,
    "doctor": None,
    "archive estimate job soykb::bwa_mem:1.0@mu": 1,
    "archive query throughput,job": 3,
    "archive rollups job soykb::bwa_mem:1.0@mu": 0,
    "archive show": None,
    "measure agents": 4,
    "measure list": 3,
    "measure plan --config PLAN": None,
    "measure schedule": None,
    "measure who --from mu --to tacc": None,
    "monitor anomalies --archive ANOMALIES": 1,
    "monitor disks --since 0": 1,
    "monitor list": 1,
    "monitor show soykb": 1,
    "monitor status soykb": 1,
    "policy list": 1,
    "policy show night": 1,
    "policy usage": 2,
    "pool explain": 1,
    "pool show": 1,
    "pool waiting": 1,
    "relay list --broker RELAYS": 2,
    "site edge WORKFLOW --workers 1": 1,
    "site explain WORKFLOW": 2,
    "site map WORKFLOW": 2,
    "site show WORKFLOW": None,
    "state show STATE": 1,
    "template history mine": 1,
    "template list": None,
    "template match --min 1Mb/s": 1,
    "template show default": 1,
    "template try default": None,
    "topology check adon.yml": 1,
    "topology drain": 1,
    "topology show": None,
    "topology show --end +1h": None,
    "transfer advise mu tacc": 1,
    "transit explain a": 1,
    "transit list --all": 3,
}
# They print what they change as the list of their noun does, or measure.
LIKE = {
    *(f"transit {verb}" for verb in ("request", "renew", "change", "flows", "release")),
    *(f"policy {verb}" for verb in ("start", "modify", "stop", "delete")),
    *(f"template {verb}" for verb in ("save", "reset", "delete")),
    *(f"measure {verb}" for verb in ("run", "add", "delete")),
    *(f"pool {verb}" for verb in ("enlarge", "shrink")),
    *(f"workflow {verb}" for verb in ("provision", "reserve", "release")),
    *(f"archive {verb}" for verb in ("retain", "copy")),
    *(f"state {verb}" for verb in ("copy", "backup")),
    "broker token new",
    "plan",
    "site evaluate",
    "transfer compare",
}
# They write a file in a format of its own, change a machine, or run until they are stopped.
NO_RECORDS = {
    *("init", "install pegasus", "install condor", "site replicas", "monitor report"),
    *("topology export", "archive export", "broker openapi", "broker alerts", "broker clear"),
    *(
        "completion",
        "dashboard",
        "top",
        "watch",
        "monitor run",
        "pool run",
        "agent run",
        "relay run",
    ),
}
BY_NAME = ("state show", "site show")  # JSON has records by name, in objects
VARY = ("agent probe", "doctor")  # each time other values


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Brokers, archives and files of which the commands have something to tell."""
    folder = tmp_path_factory.mktemp("columns")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        coordinator = CoordinatorRig(folder)
        stack.callback(coordinator.close)
        coordinator.all_present()
        rig = Rig(folder / "rig.sqlite", clock=coordinator.clock)
        rig.broker.sweep = lambda: None  # type: ignore[method-assign]
        ring = Keyring((), coordinator.clock)
        routers = [
            coordinator.agents_router(rig.broker),
            measuring_api.router(
                coordinator.coordinator, Rules(), ring.principals, coordinator.clock
            ),
        ]
        port = stack.enter_context(serving(create_app(rig.broker, ring, books(rig), more=routers)))
        relays = stack.enter_context(serving(application(RelayRig(folder / "relays.sqlite"))))
        patch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        patch.setattr("time.time", coordinator.clock)
        patch.chdir(folder)
        patch.setattr(
            waiting, "read", lambda *_: [waiting.StuckJob("7.0", "=no slot has memory", 1.0)]
        )
        coordinator.let_pass(60)
        coordinator.work("mu", "iplant")
        for words in (
            ("transit", "request", "mu", "tacc", "--size", "25 GB", "--id", "a", "--project", "p"),
            ("transit", "request", "mu", "mu", "--id", "same"),
            ("transit", "request", "mu", "tacc", "--id", "gone", "--user", "=ada"),
            ("transit", "release", "gone", "--moved", "1 GB", "--took", "9 s"),
            (
                "policy",
                "start",
                "night",
                "--type",
                "user",
                "--strategy",
                "7-3",
                "--specs",
                "a",
                "*",
            ),
            ("template", "save", "mine", "--file", written(folder)),
            ("topology", "drain", "s1-s2", "--start", "+48 h", "--note", "new optics"),
        ):
            adon(*words)
        (folder / "grow.py").write_text(GROW)
        command = [sys.executable, "-I", "-S", str(folder / "grow.py")]
        write_config(folder, {"driver": "command", "command": command})
        with Archive("adon-archive.sqlite") as archive:
            archive.record_many([*example(), row("mu", report(1000.0, 0.9)), decision(900.0)])
        (folder / "evening").mkdir()
        (folder / "plan").mkdir()
        with Archive("evening/a.sqlite") as archive:
            archive.record_many(series(EVENING, 6, DROP))
            AnomalyService(archive, WatchedMetrics(), Told(), Clock(EVENING + 6 * DAY_S)).catch_up()
        store = SqliteStore("state.sqlite")
        store.put_document("policy", "p", {"x": 1})
        store.close()
        yield {
            "RELAYS": f"http://127.0.0.1:{relays}",
            "ANOMALIES": "evening/a.sqlite",
            "STATE": "state.sqlite",
            "WORKFLOW": str(write_world(folder)),
            "PLAN": str(planned(folder / "plan", tasks=TASKS)),
        }


def cell(value: Any) -> str:
    """A raw value in CSV."""
    if value is None or isinstance(value, str):
        text = value or ""
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return json.dumps(value, ensure_ascii=False)


def holds(document: Any, key: str, value: Any) -> bool:
    """Whether an object somewhere in it has this value."""
    if isinstance(document, list):
        return any(holds(inner, key, value) for inner in document)
    if not isinstance(document, dict):
        return False
    return document.get(key, ...) == value or any(
        holds(inner, key, value) for inner in document.values()
    )


@pytest.mark.parametrize("command", LISTS)
def test_json_csv_and_columns_agree(command: str, places: dict[str, str]) -> None:
    words = [places.get(word, word) for word in command.split()]
    listed = adon(*words, "--csv")
    assert not listed.err
    header, *rows = csv.reader(io.StringIO(listed.out))
    assert len({*header}) == len(header)
    if LISTS[command] is None:
        assert rows
    else:
        assert len(rows) == LISTS[command]
    turned = header[::-1]
    again = adon(*words, "--csv", "--columns", ",".join(turned)).out
    chosen = json.loads(adon(*words, "--json", "--columns", ",".join(turned)).out)
    assert [list(record) for record in chosen] == [turned] * len(rows)
    if not command.startswith(VARY):
        assert [line[::-1] for line in csv.reader(io.StringIO(again))] == [header, *rows]
        assert [[cell(record[key]) for key in header] for record in chosen] == rows
        whole = adon(*words, "--json").out
        document = (
            [json.loads(line) for line in whole.splitlines()]
            if "query" in words
            else (json.loads(whole))
        )
        if not command.startswith(BY_NAME):
            for record in chosen:
                for key, value in record.items():
                    last = key.rpartition(".")[2]
                    assert last.isdecimal() or value is None or holds(document, last, value), key
    assert len(adon(*words, "--columns", header[0]).out.splitlines()) == 1 + len(rows)
    if not rows:
        return
    said = refusal(*words, "--columns", "nonsense")
    assert said.startswith("--columns: found 'nonsense', expected some of ") and header[0] in said


def test_every_command_that_has_columns_is_tried() -> None:
    having = {
        leaf.prog.removeprefix("adon ")
        for leaf in leaves(build_parser())
        if {"--json", "--csv", "--columns"} <= {*leaf._option_string_actions}
    }
    every = {leaf.prog.removeprefix("adon ") for leaf in leaves(build_parser())}
    assert every - having == NO_RECORDS
    assert having - LIKE == {" ".join(command.split()[:2]) for command in LISTS}
    assert having >= LIKE


def test_a_header_stands_where_there_are_no_records(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    Archive(file).close()
    where = ("archive", "show", "--archive", file)
    assert adon(*where, "--csv").out.startswith("metric,subjects,count,")
    assert adon(*where, "--csv", "--columns", "count,anything").out == "count,anything\n"
    assert adon(*where).out == "nothing was measured\n"
