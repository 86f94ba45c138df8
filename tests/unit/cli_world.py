"""A small workflow with its catalogs, a network, and the command line run in this process."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from adon.cli import doctor, options
from adon.cli.main import main

NOBODY = "127.0.0.1:9"  # the discard port: nobody listens there

WORKFLOW: dict[str, Any] = {
    "pegasus": "5.0",
    "name": "small",
    "jobs": [
        {
            "type": "job",
            "name": "align",
            "id": "ID1",
            "arguments": ["reads"],
            "uses": [
                {"lfn": "reads", "type": "input"},
                {"lfn": "bam", "type": "output", "stageOut": False, "registerReplica": False},
            ],
        },
        {
            "type": "job",
            "name": "call",
            "id": "ID2",
            "arguments": [],
            "uses": [
                {"lfn": "bam", "type": "input"},
                {"lfn": "vcf", "type": "output", "stageOut": True, "registerReplica": False},
            ],
        },
    ],
    "jobDependencies": [{"id": "ID1", "children": ["ID2"]}],
}


def _site(name: str, **hints: object) -> dict[str, Any]:
    return {
        "name": name,
        "arch": "x86_64",
        "os.type": "linux",
        "directories": [
            {
                "type": kind,
                "path": f"/data/{name}/{folder}",
                "fileServers": [
                    {"operation": "all", "url": f"gsiftp://{name}.example.org/data/{name}/{folder}"}
                ],
            }
            for kind, folder in (("sharedScratch", "scratch"), ("sharedStorage", "storage"))
        ],
        "profiles": {"pegasus": {f"adon.{key}": value for key, value in hints.items()}},
    }


SITES: dict[str, Any] = {
    "pegasus": "5.0",
    "sites": [
        _site("local"),
        _site("mu", workers=4, rate="20 MB/s"),
        _site("tacc", workers=8, queue_wait="60 s"),
    ],
}
REPLICAS: dict[str, Any] = {
    "pegasus": "5.0",
    "replicas": [
        {
            "lfn": "reads",
            "pfns": [{"site": "mu", "pfn": "/data/mu/storage/reads"}],
            "metadata": {"size": 1_000_000},
        }
    ],
}
TRANSFORMATIONS: dict[str, Any] = {
    "pegasus": "5.0",
    "transformations": [
        {
            "name": name,
            "sites": [
                {"name": site, "pfn": f"/opt/{name}", "type": "installed"}
                for site in ("mu", "tacc")
            ],
        }
        for name in ("align", "call")
    ],
}
CONFIG: dict[str, Any] = {
    "topology": {
        "nodes": [
            {"name": "mu", "kind": "site", "address": "10.10.0.1", "mac": "02:00:00:00:00:01"},
            {"name": "tacc", "kind": "site", "address": "10.10.0.2", "mac": "02:00:00:00:00:02"},
            {"name": "s1", "kind": "switch", "dpid": 1},
            {"name": "s2", "kind": "switch", "dpid": 2},
            {"name": "r1", "kind": "router", "macs": {"s1": "02:00:00:00:0b:01"}},
        ],
        "links": [
            {"a": "mu", "b": "s1", "capacity": "1 Gb/s", "ports": {"s1": 1}},
            {"a": "tacc", "b": "s2", "capacity": "1 Gb/s", "ports": {"s2": 2}},
            {
                "a": "s1",
                "b": "s2",
                "layer": "l2",
                "capacity": "200 Mb/s",
                "delay": "26.5 ms",
                "loss": 0.0001,
                "ports": {"s1": 10, "s2": 10},
                "devices": {"s1": "s1-a", "s2": "s2-a"},
            },
            {"a": "s1", "b": "r1", "layer": "l3", "capacity": "20 Mb/s", "ports": {"s1": 11}},
        ],
    },
    "controller": {"driver": "simulated", "listen": "127.0.0.1:6653", "exec": ["ip", "netns"]},
    "broker": {"listen": "127.0.0.1:8470", "state": "s.sqlite", "archive": "a.sqlite"},
    "templates": {
        "mine": {
            "version": 1,
            "qspec": {"min_throughput": "25 Mb/s", "max_delay": "200 ms", "max_loss": 0.01},
            "rspec": {"max_throughput": "150 Mb/s"},
            "weights": {"throughput": 0.8, "delay": 0.2},
            "tables": {"throughput": [["25 Mb/s", 1], ["150 Mb/s", 10]]},
            "priority": 5,
            "patience": "30 s",
            "break_even": "256 KiB",
            "max_age": "15 min",
            "tuning": {"streams": 4, "buffer": "1 MiB"},
        }
    },
}


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


def adon(*words: object) -> Ran:
    """Run ``adon`` in this process; arguments that cannot be end it as they end the program. It
    waits for a test's broker however busy the machine is."""
    out, err = io.StringIO(), io.StringIO()
    patience = patch.object(options, "TIMEOUT_S", 600.0), patch.object(doctor, "_ASKED_S", 600.0)
    with redirect_stdout(out), redirect_stderr(err), patience[0], patience[1]:
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Ran(code, out.getvalue(), err.getvalue())


def refusal(*words: object) -> str:
    """The one line with which ``adon`` refuses these arguments; asserts that it is one, exit 2."""
    ran = adon(*words)
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith("adon: ") and ran.err.count("\n") == 1, ran.err
    return ran.err.removeprefix("adon: ").rstrip("\n")


def write_world(
    folder: Path,
    workflow: Any = None,
    sites: Any = None,
    replicas: Any = None,
    transformations: Any = None,
) -> Path:
    """Write the small workflow and its catalogs, or what is given in their place (JSON is YAML).

    Returns the workflow's path.
    """
    given = {
        "workflow": (workflow, WORKFLOW),
        "sites": (sites, SITES),
        "replicas": (replicas, REPLICAS),
        "transformations": (transformations, TRANSFORMATIONS),
    }
    for name, (mine, usual) in given.items():
        text = mine if isinstance(mine, str) else json.dumps(usual if mine is None else mine)
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    return folder / "workflow.yml"


def changed(document: Mapping[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    """A copy of a document with another value at ``path``."""
    whole = copy.deepcopy(dict(document))
    inner: Any = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return whole


def config_file(folder: Path, **sections: Any) -> Path:
    """``adon.yml`` with a broker that does not answer."""
    file = folder / "adon.yml"
    broker = {**CONFIG["broker"], "listen": NOBODY}
    file.write_text(json.dumps({**CONFIG, "broker": broker, **sections}), encoding="utf-8")
    return file


def values_of(page: Path) -> dict[str, Any]:
    """What a page that stands alone draws, by kind of figure."""
    text = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    values: dict[str, Any] = json.loads(text)
    return values
